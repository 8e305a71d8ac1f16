// Heartbeats and silence. The keeper sends heartbeats whatever its runners do, and kills a runner that sends nothing at all.
import { describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import {
  endedAttempts,
  FULL,
  isAlive,
  round,
  waitDatabaseTime,
  waitForEnd,
  waitForStartupGrace,
} from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { nothing, turnstile } from "../support/processes/script-steps.ts";
import { startWorker } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();

/** Runs one step in a worker while an idle worker would recover its lease if it expired. */
async function runBesideAnother(step: Record<string, unknown>, lease: string, timeout: number) {
  await waitForStartupGrace(client, lease);
  const worker = await startWorker({ url: database.url, args: ["--slots", "1", "--lease", lease] });
  const steps = [{ name: "heavy", ...step }, nothing("after")];
  const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
  const first = await observer.waitForReport(({ job, step }) => job === id && step === "heavy");
  const other = await startWorker({ url: database.url, args: ["--slots", "1", "--lease", lease] });
  const job = await waitForEnd(stillwake, id, timeout);
  const after = observer.reportsOf(id).find(({ step }) => step === "after")!;
  expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  expect(await endedAttempts(client, [id])).toEqual({});
  expect(new Set(observer.reportsOf(id).map(({ pid }) => pid)).size).toBe(1);
  for (const { lines } of [worker, other]) expect(lines.filter(({ event }) => event === "recovered")).toEqual([]);
  return after.at - first.at;
}

describe("a blocked event loop", () => {
  const [blockMs, lease] = FULL ? [60_000, "15s"] : [6000, "2s"];

  it(`of ${blockMs / 1000} s loses no lease of ${lease}`, async () => {
    const tookMs = await runBesideAnother({ act: "block", ms: blockMs }, lease!, blockMs! + 30_000);
    expect(tookMs).toBeGreaterThanOrEqual(blockMs!);
    recordFigure("leases lost while the loop was blocked", 0, "leases", `${blockMs! / 1000} s, lease of ${lease}`);
  }, 300_000);

  const mb = FULL ? 200 : 64;

  it(`in JSON.parse of ${mb} MB loses no lease`, async () => {
    const tookMs = await runBesideAnother({ act: "parse", mb }, "1s", 60_000);
    recordFigure(`JSON.parse of ${mb} MB in a step, lease of 1 s kept`, round(tookMs), "ms");
  }, 300_000);

  it("can be cancelled: its runner is killed, and its slot is used again", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "endless", act: "block", ms: 600_000 }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "endless");
    const cancelledAt = performance.now();
    await stillwake.cancel(id, { reason: "no longer wanted" });
    await waitFor(() => !isAlive(pid), { what: "the runner to be killed" });
    const tookMs = performance.now() - cancelledAt;
    expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled", attempt: 1, crashes: 0 });
    const next = await stillwake.enqueue("script", { steps: [] });
    expect(await stillwake.wait(next.id, { timeout: "20s" })).toMatchObject({ state: "completed" });
    expect(worker.lines.filter(({ event }) => event === "attempt.ended")[0]).toMatchObject({ outcome: "cancelled" });
    // Far less than the grace period: the runner did not acknowledge.
    expect(tookMs).toBeLessThan(3000);
    recordFigure("cancel to the death of a blocked runner", round(tookMs), "ms");
  });
});

describe("a silent runner", () => {
  it("is killed at its pipeline's silence limit, and the attempt is counted as a failure, not a crash, and retried", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [nothing("one"), turnstile("two", "silent")];
    const { id } = await stillwake.enqueue("strict", { observer: observer.url, steps });
    observer.openGate("silent-2");
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "two");
    const stoppedAt = performance.now();
    process.kill(pid, "SIGSTOP");
    await waitFor(() => !isAlive(pid), { what: "the stopped runner to be killed" });
    const tookMs = performance.now() - stoppedAt;
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 2, crashes: 0 });
    const { rows } = await client.query("select outcome, failure from stillwake.ended_attempts where job_id = $1", [
      id,
    ]);
    expect(rows).toMatchObject([{ outcome: "failed", failure: { code: "SILENT" } }]);
    expect(observer.reportsOf(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(worker.lines.find(({ event }) => event === "attempt.ended")).toMatchObject({ code: "SILENT", retry: true });
    // A runner reports every second, and limits are checked every half second. There is no grace period: it does not acknowledge.
    expect(tookMs).toBeGreaterThan(1000);
    expect(tookMs).toBeLessThan(2000 + 500 + 2000);
    recordFigure("SIGSTOP of a runner to its death, silence of 2 s", round(tookMs), "ms");
  });

  it("is not killed if its keeper was suspended", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "one", act: "turnstile", gate: "stood" }];
    const { id } = await stillwake.enqueue("strict", { observer: observer.url, steps });
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "one");
    for (let n = 0; n < 2; n++) {
      process.kill(worker.pid, "SIGSTOP");
      await waitDatabaseTime(client, "4s");
      process.kill(worker.pid, "SIGCONT");
      // The keeper has checked the limits since.
      await waitDatabaseTime(client, "1500ms");
      expect(isAlive(pid)).toBe(true);
    }
    observer.openGate("stood-1");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  });
});

describe("a worker that becomes idle", () => {
  it("claims a job that is enqueued while it queries the next due time", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    await worker.waitForLine("hints.ready");
    // The result is computed and then delayed.
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
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps: [] }, { delay: "1s" });
    const enqueuedAt = performance.now();
    await worker.waitForLine("claim.empty", { from });
    await client.query(`select pg_advisory_unlock(4711);
      drop function stillwake.next_due(text[], text[], integer[], integer[]);
      alter function stillwake.next_due_itself(text[], text[], integer[], integer[]) rename to next_due`);
    const begun = await observer.waitForReport(({ job }) => job === id);
    expect(begun.at - enqueuedAt).toBeGreaterThan(950);
    expect(begun.at - enqueuedAt).toBeLessThan(1000 + 1500);
    await stillwake.wait(id, { timeout: "20s" });
  });
});
