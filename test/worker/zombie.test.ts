// A worker that was stopped past its lease wakes up while another runs its jobs. It does not know yet, and so it goes on: everything it
// writes must be refused, and whoever looks at the fencing token outside must be able to refuse it too.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, type Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { connect, endedAttempts, FULL, leasesCount, repeatedSteps, stateOf } from "../support/processes/aftermath.ts";
import { buildPackage } from "../support/processes/build.ts";
import { startWitness, type Witness } from "../support/processes/witness.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const database = await freshDatabase();
let stillwake: Stillwake;
let witness: Witness;
let client: pg.Client;

beforeAll(async () => {
  buildPackage();
  stillwake = createStillwake({ url: database.url });
  witness = await startWitness();
  client = await connect(database.url);
  await leasesCount(client, "2s");
});
afterAll(async () => {
  await stillwake.close();
  await witness.close();
  await client.end();
});

/** Stops a worker with all its runners, as the suspension of a machine does. */
async function suspend(worker: WorkerProcess): Promise<number[]> {
  const runners = worker.runners();
  for (const pid of [worker.pid, ...runners]) process.kill(pid, "SIGSTOP");
  await waitFor(() => [worker.pid, ...runners].every((pid) => stateOf(pid) === "T"));
  return runners;
}

async function refusedWrites(worker: WorkerProcess): Promise<Record<string, number>> {
  const { msg } = await worker.says("http");
  const text = await (await fetch(`${/http:\S+/.exec(msg!)![0]}/metrics`)).text();
  const samples = text.matchAll(/^stillwake_refused_writes_total\{.*?verb="(\w+)".*?\} (\d+)$/gm);
  return Object.fromEntries([...samples].map(([, verb, count]) => [verb, Number(count)]));
}

describe("a worker that wakes up after its lease", () => {
  const rounds = FULL ? 10 : 2;

  it(`T11: has every late write refused and stops its attempts, ${rounds} times, while its successor goes on (I2, I5)`, async () => {
    const options = {
      url: database.url,
      args: ["--slots", "5", "--lease", "2s", "--grace", "1s", "--metrics-port", "0"],
    };
    let shots = 0;
    let accepted = 0;
    let staleEffects = 0;
    for (let round = 0; round < rounds; round++) {
      const zombie = await startWorker(options);
      const gate = (name: string) => `${name}-${round}`;
      const scripts = {
        streaming: [{ name: "loop", act: "stream", gate: gate("streaming") }],
        checkpoint: [{ name: "long", act: "turnstile", gate: gate("checkpoint") }],
        quiet: [{ name: "long", act: "turnstile", gate: gate("quiet") }],
        failing: [{ name: "long", act: "turnstile", gate: gate("failing"), failAt: "1" }],
        stepping: [
          ...Array.from({ length: 60 }, (_, n) => ({ name: `step-${n}`, act: "wait", ms: 10 })),
          { name: "hold", act: "turnstile", gate: gate("stepping") },
        ],
      };
      const ids: Record<string, string> = {};
      for (const [name, steps] of Object.entries(scripts)) {
        const all = [{ name: "first", act: "nothing" }, ...steps, { name: "last", act: "nothing" }];
        ids[name] = (await stillwake.enqueue("script", { witness: witness.url, steps: all })).id;
      }
      const jobs = Object.values(ids);
      for (const id of jobs) await witness.see(({ job, step }) => job === id && /loop|long|step-1/.test(step ?? ""));
      const runners = await suspend(zombie);
      const successor = await startWorker(options);
      for (const id of jobs)
        await witness.see(({ job, step, epoch }) => job === id && epoch === "2" && /loop|long|step/.test(step ?? ""));
      const from = witness.sights.length;

      // The runners wake first and do what they were about to do; what they tell their keeper waits for it.
      for (const name of ["checkpoint", "failing"]) witness.open(`${gate(name)}-1`);
      for (const pid of runners) process.kill(pid, "SIGCONT");
      await waitFor(() => witness.sights.slice(from).filter(({ stale }) => stale).length >= 5);
      process.kill(zombie.pid, "SIGCONT");
      for (const id of jobs)
        await zombie.says(
          ({ event, job, outcome }) => event === "attempt.ended" && job === id && outcome === "replaced",
        );

      // Its successor was at work all the time.
      expect(successor.lines.filter(({ event, job }) => event === "attempt.ended" && jobs.includes(job!))).toEqual([]);
      for (const name of Object.keys(scripts)) witness.open(`${gate(name)}-2`);
      for (const id of jobs)
        expect(await stillwake.wait(id, { timeout: "30s" })).toMatchObject({
          state: "completed",
          attempt: 2,
          crashes: 1,
        });

      const refused = await refusedWrites(zombie);
      expect(Object.keys(refused).sort()).toEqual(["append_logs", "heartbeat", "save_checkpoints", "settle"]);
      const lines = zombie.lines.filter(({ event }) => event === "write.refused");
      expect(lines).toHaveLength(Object.values(refused).reduce((sum, count) => sum + count, 0));
      expect(successor.lines.filter(({ event }) => event === "write.refused")).toEqual([]);
      shots += lines.length;

      // The sink that looks at the token has refused all of them; only a step that had begun before could try.
      const stale = witness.sights.slice(from).filter(({ stale }) => stale);
      expect(new Set(stale.map(({ job, step }) => `${job} ${step}`))).toEqual(new Set([`${ids.streaming} loop`]));
      staleEffects += stale.length;
      expect(await repeatedSteps(client, witness, jobs)).toEqual([]);
      expect(await endedAttempts(client, jobs)).toEqual({ lost: jobs.length });
      const late = await writesOutOfTurn(jobs);
      expect(late).toEqual([]);
      accepted += late.length;

      // It lives, and it is a good worker again.
      successor.signal("SIGTERM");
      expect(await successor.ended).toBe(0);
      const { id } = await stillwake.enqueue("script", {
        witness: witness.url,
        steps: [{ name: "one", act: "nothing" }],
      });
      expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1 });
      zombie.signal("SIGTERM");
      expect(await zombie.ended).toBe(0);
    }
    recordFigure("T11: late writes refused (shots)", shots, "writes", `${rounds} wakings`);
    recordFigure("T11: late writes accepted", accepted, "writes");
    recordFigure("T11: stale effects refused by a fenced sink (shots)", staleEffects, "effects");
    const passed = witness.sights.filter(({ job, epoch, stale, event }, place) => {
      const later = (other: Witness["sights"][number]) => other.job === job && BigInt(other.epoch) > BigInt(epoch);
      return event === "effect" && !stale && witness.sights.slice(0, place).some(later);
    });
    expect(passed).toEqual([]);
    recordFigure("T11: stale effects accepted by it", passed.length, "effects");
  }, 600_000);

  it("T11: goes on as if nothing had been when nobody has taken its job meanwhile", async () => {
    // It looks for work more often than it heartbeats, so that the first thing it does when it wakes may be to look for leases that have run out.
    const config = path.join(os.tmpdir(), `stillwake-eager-${process.pid}.config.mjs`);
    fs.writeFileSync(config, 'export default { poll: "100ms", pollWithHints: "100ms" };');
    onTestFinished(() => fs.rmSync(config, { force: true }));
    const worker = await startWorker({
      url: database.url,
      args: ["--slots", "2", "--lease", "2s", "--config", config],
    });
    const steps = [
      { name: "one", act: "gate", gate: "unnoticed" },
      { name: "two", act: "nothing" },
    ];
    const { id } = await stillwake.enqueue("script", { witness: witness.url, steps });
    const { pid } = await witness.see(({ job, step }) => job === id && step === "one");
    for (let n = 0; n < (FULL ? 10 : 3); n++) {
      const runners = await suspend(worker);
      await waitFor(
        async () => (await client.query("select from stillwake.leases where until < stillwake.now()")).rowCount === 1,
      );
      // Work for its free slot, so that it claims as soon as it wakes.
      const other = await stillwake.enqueue("script", {
        witness: witness.url,
        steps: [{ name: "one", act: "nothing" }],
      });
      for (const one of [worker.pid, ...runners]) process.kill(one, "SIGCONT");
      expect(await stillwake.wait(other.id, { timeout: "20s" })).toMatchObject({ attempt: 1 });
    }
    witness.open("unnoticed");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    expect(new Set(witness.of(id).map((sight) => sight.pid))).toEqual(new Set([pid]));
  }, 300_000);
});

/** Lines, checkpoints and events of an epoch that were written after a later one had begun (I2). */
async function writesOutOfTurn(jobs: string[]): Promise<string[]> {
  const { rows } = await client.query(
    `select f.job_id, f.seq::text, f.kind from stillwake.feed f
    where f.job_id = any ($1) and exists (select from stillwake.feed e where e.job_id = f.job_id and e.seq < f.seq and e.epoch > f.epoch)
    union all
    select c.job_id, c.step, 'checkpoint' from stillwake.checkpoints c join stillwake.jobs j on j.id = c.job_id
    where c.job_id = any ($1) and c.epoch < j.epoch and c.saved_at > j.claimed_at`,
    [jobs],
  );
  return rows.map(({ job_id, seq, kind }) => `${kind} ${seq} of ${job_id}`);
}
