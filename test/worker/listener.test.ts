// Hints arrive over a dedicated connection of the worker. These tests break that connection, with and without an error,
// while jobs are enqueued: the jobs are found by polling, and hints work again after a reconnect.
import { describe, expect, it } from "vitest";
import { type Duration, pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { type RecordedWorker, startRecordedWorker } from "../support/processes/recorded-worker.ts";

const { STILLWAKE_FULL } = process.env;
/** The poll interval varies by a tenth; the rest is for a loaded machine. */
const SLACK_MS = 700;

const { database, stillwake, client: sql } = await connectedDatabase();
const started = new Map<string, number>();

interface Pickup {
  /** When enqueue returned. */
  at: number;
  ms: number;
}

/** Enqueues jobs for an idle worker, which only a hint or its poll interval can wake. Returns how long each job waited. */
async function burst(worker: RecordedWorker, pool: string, size: number): Promise<Pickup[]> {
  const jobs = await stillwake.enqueueMany(pool, new Array(size).fill({}));
  const at = performance.now();
  await waitFor(() => jobs.every(({ id }) => started.has(id)), {
    interval: 1,
    timeout: 30_000,
    what: "the burst to start",
  });
  const pickups = jobs.map(({ id }) => ({ at, ms: Math.max(0, started.get(id)! - at) }));
  await worker.waitForEvent("claim.empty", { after: at + Math.max(...pickups.map(({ ms }) => ms)) });
  return pickups;
}

async function startListeningWorker(
  pool: string,
  directUrl: string,
  intervals: { poll: Duration; pollWithHints: Duration },
): Promise<RecordedWorker> {
  const run = implement(pipeline(pool, { pool }), (job) => void started.set(job.id, performance.now()));
  const worker = await startRecordedWorker({
    url: database.url,
    directUrl,
    pool,
    pipelines: [run],
    slots: 32,
    ...intervals,
  });
  await worker.waitForEvent("hints.ready");
  return worker;
}

describe("when the connection for hints goes silent", () => {
  const wanted = STILLWAKE_FULL ? 1000 : 250;

  it(`${wanted} jobs are claimed within the poll interval, and hints work again afterwards`, {
    timeout: 180_000,
  }, async () => {
    await using proxy = await faultProxy(database.url);
    const worker = await startListeningWorker("silent", proxy.url, { poll: "300ms", pollWithHints: "2s" });
    const before: Pickup[] = [];
    while (before.length < 100) before.push(...(await burst(worker, "silent", 5)));
    expect(percentile(before, 0.5), "hints must be faster than the poll interval").toBeLessThan(250);

    const brokenAt = performance.now();
    proxy.mode = "silent";
    proxy.freeze();
    const during: Pickup[] = [];
    while (during.length < wanted || worker.eventsOf("hints.lost").length === 0) {
      during.push(...(await burst(worker, "silent", 10)));
    }
    const [lost] = worker.eventsOf("hints.lost");
    const beforeDetection = during.filter(({ at }) => at <= lost!.at);
    const afterDetection = during.filter(({ at }) => at > lost!.at);
    expect(beforeDetection.length).toBeGreaterThan(0);
    expect(afterDetection.length).toBeGreaterThan(0);
    expect(Math.max(...beforeDetection.map(({ ms }) => ms))).toBeLessThan(2_000 * 1.1 + SLACK_MS);
    expect(Math.max(...afterDetection.map(({ ms }) => ms))).toBeLessThan(300 * 1.1 + SLACK_MS);
    expect(percentile(beforeDetection, 0.9), "the connection was not silent").toBeGreaterThan(300);
    // A ping is sent every 5 s and times out after 3 s.
    expect(lost!.at - brokenAt).toBeLessThan(8_000 + SLACK_MS);

    const healedAt = performance.now();
    proxy.thaw();
    proxy.mode = "pass";
    const ready = await worker.waitForEvent("hints.ready", { after: healedAt });
    const after: Pickup[] = [];
    while (after.length < 50) after.push(...(await burst(worker, "silent", 5)));
    expect(percentile(after, 0.5), "hints must work again").toBeLessThan(250);
    expect(worker.eventsOf("hints.lost")).toHaveLength(1);
    await allDone("silent");

    recordFigure("pickup with hints, p50", percentile(before, 0.5), "ms");
    recordFigure("pickup with hints, p99", percentile(before, 0.99), "ms");
    recordFigure(
      "pickup in fault, before it was detected, p99",
      percentile(beforeDetection, 0.99),
      "ms",
      "poll interval 2 s",
    );
    recordFigure(
      "pickup in fault, after it was detected, p99",
      percentile(afterDetection, 0.99),
      "ms",
      "poll interval 300 ms",
    );
    recordFigure("jobs enqueued in fault", during.length);
    recordFigure("silent connection noticed after", lost!.at - brokenAt, "ms");
    recordFigure("time until hints work again after the fault", ready.at - healedAt, "ms");
  });

  it("the worker polls at once and does not wait for the longer interval", async () => {
    await using proxy = await faultProxy(database.url);
    const worker = await startListeningWorker("lost", proxy.url, { poll: "200ms", pollWithHints: "1m" });
    await burst(worker, "lost", 1);
    proxy.mode = "refuse";
    const resetAt = performance.now();
    proxy.reset();
    await worker.waitForEvent("hints.lost", { after: resetAt });
    const [pickup] = await burst(worker, "lost", 1);
    expect(pickup!.ms).toBeLessThan(200 * 1.1 + SLACK_MS);
  });
});

describe("when the backends of the connections for hints are terminated", () => {
  const rounds = STILLWAKE_FULL ? 20 : 3;

  it(`jobs enqueued at that moment are claimed after the reconnect, with 8 workers, ${rounds} times`, {
    timeout: 120_000,
  }, async () => {
    const pools = Array.from({ length: 8 }, (_, number) => `killed-${number}`);
    // The poll interval is longer than the test: only the claim after each reconnect finds jobs whose hint was missed.
    const intervals = { poll: "10m", pollWithHints: "10m" } as const;
    const workers = await Promise.all(pools.map((pool) => startListeningWorker(pool, database.url, intervals)));
    await Promise.all(workers.map((worker, index) => burst(worker, pools[index]!, 1)));
    const reconnects: Pickup[] = [];
    const pickups: Pickup[] = [];
    for (let round = 0; round < rounds; round++) {
      const killedAt = performance.now();
      const { rows } = await sql.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'stillwake direct' and datname = current_database()",
      );
      expect(rows).toHaveLength(pools.length);
      await Promise.all(
        workers.map(async (worker, index) => {
          pickups.push(...(await burst(worker, pools[index]!, 5)));
          const ready = await worker.waitForEvent("hints.ready", { after: killedAt });
          reconnects.push({ at: killedAt, ms: ready.at - killedAt });
        }),
      );
      // From now on only hints can start the jobs.
      const hinted = await Promise.all(workers.map((worker, index) => burst(worker, pools[index]!, 1)));
      expect(Math.max(...hinted.flat().map(({ ms }) => ms))).toBeLessThan(5_000);
    }
    for (const [index, worker] of workers.entries()) {
      expect(worker.eventsOf("hints.lost")).toHaveLength(rounds);
      await allDone(pools[index]!);
    }
    recordFigure("time until hints work again after pg_terminate_backend, p50", percentile(reconnects, 0.5), "ms");
    recordFigure("time until hints work again after pg_terminate_backend, p99", percentile(reconnects, 0.99), "ms");
    recordFigure("pickup around pg_terminate_backend, p99", percentile(pickups, 0.99), "ms");
  });
});

function percentile(pickups: Pickup[], part: number): number {
  const sorted = pickups.map(({ ms }) => ms).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!;
}

async function allDone(pool: string): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await sql.query("select from stillwake.jobs where pool = $1 and state <> 'completed'", [pool]);
      return rows.length === 0;
    },
    { what: `the jobs of ${pool} to be settled` },
  );
}

describe("a worker that stops", () => {
  it("leaves no listener behind, even if it stops while it connects: hints would be sent to it for minutes", async () => {
    const pipelines = [implement(pipeline("brief", { pool: "brief" }), () => "done")];
    const listeners = async () =>
      (await sql.query("select worker from stillwake.listeners where pool = 'brief'")).rows as unknown[];
    const runs = Array.from({ length: 10 }, async () => {
      const { worker } = await startRecordedWorker({ url: database.url, pool: "brief", pipelines, until: "empty" });
      await worker.done;
    });
    await Promise.all(runs);
    expect(await listeners()).toEqual([]);
    for (let n = 0; n < 3; n++) {
      const { worker, waitForEvent } = await startRecordedWorker({
        url: database.url,
        pool: "brief",
        pipelines,
      });
      await waitForEvent("hints.ready");
      expect(await listeners()).toHaveLength(1);
      await worker.stop();
      expect(await listeners()).toEqual([]);
    }
  });
});
