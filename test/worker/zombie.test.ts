// A worker that was suspended for longer than its lease resumes while another worker runs its jobs. All its writes must
// be refused, and external systems must be able to refuse them by the fencing token.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import {
  endedAttempts,
  FULL,
  processState,
  repeatedSteps,
  waitForStartupGrace,
} from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { gated, nothing } from "../support/processes/script-steps.ts";
import type { StepObserver } from "../support/processes/step-observer.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();

beforeAll(() => waitForStartupGrace(client, "2s"));

/** Suspends a worker with all its runners, like a suspended machine. */
async function suspend(worker: WorkerProcess): Promise<number[]> {
  const runners = worker.runners();
  for (const pid of [worker.pid, ...runners]) process.kill(pid, "SIGSTOP");
  await waitFor(() => [worker.pid, ...runners].every((pid) => processState(pid) === "T"));
  return runners;
}

async function refusedWrites(worker: WorkerProcess): Promise<Record<string, number>> {
  const { msg } = await worker.waitForLine("http");
  const text = await (await fetch(`${/http:\S+/.exec(msg!)![0]}/metrics`)).text();
  const samples = text.matchAll(/^stillwake_refused_writes_total\{.*?verb="(\w+)".*?\} (\d+)$/gm);
  return Object.fromEntries([...samples].map(([, verb, count]) => [verb, Number(count)]));
}

describe("a worker that resumes after its lease expired", () => {
  const rounds = FULL ? 10 : 2;

  it(`has every late write refused and stops its attempts, while its successor continues, ${rounds} times`, async () => {
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
        ids[name] = (await stillwake.enqueue("script", { observer: observer.url, steps: all })).id;
      }
      const jobs = Object.values(ids);
      for (const id of jobs)
        await observer.waitForReport(({ job, step }) => job === id && /loop|long|step-1/.test(step ?? ""));
      const runners = await suspend(zombie);
      const successor = await startWorker(options);
      for (const id of jobs)
        await observer.waitForReport(
          ({ job, step, epoch }) => job === id && epoch === "2" && /loop|long|step/.test(step ?? ""),
        );
      const from = observer.reports.length;

      // The runners resume first; their messages wait for the keeper.
      for (const name of ["checkpoint", "failing"]) observer.openGate(`${gate(name)}-1`);
      for (const pid of runners) process.kill(pid, "SIGCONT");
      await waitFor(() => observer.reports.slice(from).filter(({ stale }) => stale).length >= 5);
      process.kill(zombie.pid, "SIGCONT");
      for (const id of jobs)
        await zombie.waitForLine(
          ({ event, job, outcome }) => event === "attempt.ended" && job === id && outcome === "replaced",
        );

      // Its successor was running all the time.
      expect(successor.lines.filter(({ event, job }) => event === "attempt.ended" && jobs.includes(job!))).toEqual([]);
      for (const name of Object.keys(scripts)) observer.openGate(`${gate(name)}-2`);
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

      // The observer has rejected all of them by their token; only a step that had already started could try.
      const stale = observer.reports.slice(from).filter(({ stale }) => stale);
      expect(new Set(stale.map(({ job, step }) => `${job} ${step}`))).toEqual(new Set([`${ids.streaming} loop`]));
      staleEffects += stale.length;
      expect(await repeatedSteps(client, observer, jobs)).toEqual([]);
      expect(await endedAttempts(client, jobs)).toEqual({ lost: jobs.length });
      const late = await writesOutOfTurn(jobs);
      expect(late).toEqual([]);
      accepted += late.length;

      // It is alive and works again.
      successor.signal("SIGTERM");
      expect(await successor.exited).toBe(0);
      const { id } = await stillwake.enqueue("script", {
        observer: observer.url,
        steps: [{ name: "one", act: "nothing" }],
      });
      expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1 });
      zombie.signal("SIGTERM");
      expect(await zombie.exited).toBe(0);
    }
    recordFigure("late writes refused (shots)", shots, "writes", `${rounds} wakings`);
    recordFigure("late writes accepted", accepted, "writes");
    recordFigure("stale effects refused by a fenced sink (shots)", staleEffects, "effects");
    const passed = observer.reports.filter(({ job, epoch, stale, event }, place) => {
      const later = (other: StepObserver["reports"][number]) =>
        other.job === job && BigInt(other.epoch) > BigInt(epoch);
      return event === "effect" && !stale && observer.reports.slice(0, place).some(later);
    });
    expect(passed).toEqual([]);
    recordFigure("stale effects accepted by it", passed.length, "effects");
  }, 600_000);

  it("continues normally if no other worker has claimed its job", async () => {
    // It polls more often than it sends heartbeats, so its first statement after resuming may be a search for expired leases.
    const config = path.join(os.tmpdir(), `stillwake-eager-${process.pid}.config.mjs`);
    fs.writeFileSync(config, 'export default { poll: "100ms", pollWithHints: "100ms" };');
    onTestFinished(() => fs.rmSync(config, { force: true }));
    const worker = await startWorker({
      url: database.url,
      args: ["--slots", "2", "--lease", "2s", "--config", config],
    });
    const steps = [gated("one", "unnoticed"), nothing("two")];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "one");
    for (let n = 0; n < (FULL ? 10 : 3); n++) {
      const runners = await suspend(worker);
      await waitFor(
        async () => (await client.query("select from stillwake.leases where until < stillwake.now()")).rowCount === 1,
      );
      // Work for its free slot, so that it claims as soon as it resumes.
      const other = await stillwake.enqueue("script", {
        observer: observer.url,
        steps: [{ name: "one", act: "nothing" }],
      });
      for (const one of [worker.pid, ...runners]) process.kill(one, "SIGCONT");
      expect(await stillwake.wait(other.id, { timeout: "20s" })).toMatchObject({ attempt: 1 });
    }
    observer.openGate("unnoticed");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    expect(new Set(observer.reportsOf(id).map((report) => report.pid))).toEqual(new Set([pid]));
  }, 300_000);
});

/** Log lines, checkpoints and events of an epoch that were written after a later epoch had started. */
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
