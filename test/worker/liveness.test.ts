// Signs of life. The keeper heartbeats, whatever its runners are busy with; what it does not put up with is a runner that shows nothing at all.
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, type Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import {
  connect,
  ended,
  endedAttempts,
  FULL,
  isAlive,
  leasesCount,
  pass,
  round,
} from "../support/processes/aftermath.ts";
import { buildPackage } from "../support/processes/build.ts";
import { startWitness, type Witness } from "../support/processes/witness.ts";
import { startWorker } from "../support/processes/workers.ts";

const database = await freshDatabase();
let stillwake: Stillwake;
let witness: Witness;
let client: pg.Client;

beforeAll(async () => {
  buildPackage();
  stillwake = createStillwake({ url: database.url });
  witness = await startWitness();
  client = await connect(database.url);
});
afterAll(async () => {
  await stillwake.close();
  await witness.close();
  await client.end();
});

/** Runs one step in a worker while another, which has nothing to do, waits for the first lease to run out. */
async function runBesideAnother(step: Record<string, unknown>, lease: string, timeout: number) {
  await leasesCount(client, lease);
  const worker = await startWorker({ url: database.url, args: ["--slots", "1", "--lease", lease] });
  const steps = [
    { name: "heavy", ...step },
    { name: "after", act: "nothing" },
  ];
  const { id } = await stillwake.enqueue("script", { witness: witness.url, steps });
  const first = await witness.see(({ job, step }) => job === id && step === "heavy");
  const other = await startWorker({ url: database.url, args: ["--slots", "1", "--lease", lease] });
  const job = await ended(stillwake, id, timeout);
  const after = witness.of(id).find(({ step }) => step === "after")!;
  expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  expect(await endedAttempts(client, [id])).toEqual({});
  expect(new Set(witness.of(id).map(({ pid }) => pid)).size).toBe(1);
  for (const { lines } of [worker, other]) expect(lines.filter(({ event }) => event === "recovered")).toEqual([]);
  return after.at - first.at;
}

describe("a blocked event loop", () => {
  const [blockMs, lease] = FULL ? [60_000, "15s"] : [6000, "2s"];

  it(`T9: of ${blockMs / 1000} s loses no lease of ${lease}`, async () => {
    const tookMs = await runBesideAnother({ act: "block", ms: blockMs }, lease!, blockMs! + 30_000);
    expect(tookMs).toBeGreaterThanOrEqual(blockMs!);
    recordFigure("T9: leases lost while the loop was blocked", 0, "leases", `${blockMs! / 1000} s, lease of ${lease}`);
  }, 300_000);

  const mb = FULL ? 200 : 64;

  it(`T9: in JSON.parse of ${mb} MB loses no lease`, async () => {
    const tookMs = await runBesideAnother({ act: "parse", mb }, "1s", 60_000);
    recordFigure(`T9: JSON.parse of ${mb} MB in a step, lease of 1 s kept`, round(tookMs), "ms");
  }, 300_000);

  it("T9: can be cancelled: its runner is killed, and its slot works on", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "endless", act: "block", ms: 600_000 }];
    const { id } = await stillwake.enqueue("script", { witness: witness.url, steps });
    const { pid } = await witness.see(({ job, step }) => job === id && step === "endless");
    const cancelledAt = performance.now();
    await stillwake.cancel(id, { reason: "no longer wanted" });
    await waitFor(() => !isAlive(pid), { what: "the runner to be killed" });
    const tookMs = performance.now() - cancelledAt;
    expect(await ended(stillwake, id)).toMatchObject({ state: "cancelled", attempt: 1, crashes: 0 });
    const next = await stillwake.enqueue("script", { steps: [] });
    expect(await stillwake.wait(next.id, { timeout: "20s" })).toMatchObject({ state: "completed" });
    expect(worker.lines.filter(({ event }) => event === "attempt.ended")[0]).toMatchObject({ outcome: "cancelled" });
    // Far less than the grace: it did not answer.
    expect(tookMs).toBeLessThan(3000);
    recordFigure("T9: cancel to the death of a blocked runner", round(tookMs), "ms");
  });
});

describe("a runner without a sign of life", () => {
  it("T10: that was stopped is killed at its pipeline's limit, charged as a failure and not as a crash, and run again", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [
      { name: "one", act: "nothing" },
      { name: "two", act: "turnstile", gate: "silent" },
    ];
    const { id } = await stillwake.enqueue("strict", { witness: witness.url, steps });
    witness.open("silent-2");
    const { pid } = await witness.see(({ job, step }) => job === id && step === "two");
    const stoppedAt = performance.now();
    process.kill(pid, "SIGSTOP");
    await waitFor(() => !isAlive(pid), { what: "the stopped runner to be killed" });
    const tookMs = performance.now() - stoppedAt;
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 2, crashes: 0 });
    const { rows } = await client.query("select outcome, failure from stillwake.ended_attempts where job_id = $1", [
      id,
    ]);
    expect(rows).toMatchObject([{ outcome: "failed", failure: { code: "SILENT" } }]);
    expect(witness.of(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(worker.lines.find(({ event }) => event === "attempt.ended")).toMatchObject({ code: "SILENT", retry: true });
    // Up to a second passes between two signs of life, half a second between two looks. The grace of 5 s is not waited for: it does not answer.
    expect(tookMs).toBeGreaterThan(1000);
    expect(tookMs).toBeLessThan(2000 + 500 + 2000);
    recordFigure("T10: SIGSTOP of a runner to its death, silence of 2 s", round(tookMs), "ms");
  });

  it("T10: is not blamed when its keeper was the one that stood still", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "one", act: "turnstile", gate: "stood" }];
    const { id } = await stillwake.enqueue("strict", { witness: witness.url, steps });
    const { pid } = await witness.see(({ job, step }) => job === id && step === "one");
    for (let n = 0; n < 2; n++) {
      process.kill(worker.pid, "SIGSTOP");
      await pass(client, "4s");
      process.kill(worker.pid, "SIGCONT");
      // It has looked at its limits since.
      await pass(client, "1500ms");
      expect(isAlive(pid)).toBe(true);
    }
    witness.open("stood-1");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  });
});

describe("a worker that is about to rest", () => {
  it("hears of a job that comes while it asks when the next one is due", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    await worker.says("push.ready");
    // The answer is worked out and then held back.
    await client.query(`alter function stillwake.next_due(text[], text[], integer[], integer[]) rename to next_due_itself;
      create function stillwake.next_due(p_pools text[], p_pipelines text[], p_versions integer[], p_oldest integer[]) returns timestamptz
      language plpgsql stable as $$ declare v_due timestamptz := stillwake.next_due_itself(p_pools, p_pipelines, p_versions, p_oldest);
      begin perform pg_advisory_xact_lock_shared(4711); return v_due; end $$;
      select pg_advisory_lock(4711)`);
    const asks = async () =>
      (await client.query("select from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"))
        .rowCount;
    const first = await stillwake.enqueue("script", { steps: [] });
    await stillwake.wait(first.id, { timeout: "20s" });
    await waitFor(async () => (await asks()) === 1);
    const from = worker.lines.length;
    const { id } = await stillwake.enqueue("script", { witness: witness.url, steps: [] }, { delay: "1s" });
    const enqueuedAt = performance.now();
    await worker.says("claim.empty", { from });
    await client.query(`select pg_advisory_unlock(4711);
      drop function stillwake.next_due(text[], text[], integer[], integer[]);
      alter function stillwake.next_due_itself(text[], text[], integer[], integer[]) rename to next_due`);
    const begun = await witness.see(({ job }) => job === id);
    expect(begun.at - enqueuedAt).toBeGreaterThan(950);
    expect(begun.at - enqueuedAt).toBeLessThan(1000 + 1500);
    await stillwake.wait(id, { timeout: "20s" });
  });
});
