// A long outage of a dependency: the breaker stops all jobs after a few calls, lets one probe at intervals, and resumes all after recovery.
// The dependency is a fake API that counts every call; the workers are `stillwake worker` processes unless noted.
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type BreakerOptions, breaker, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { durationMs } from "../../src/time.ts";
import { type AnyImplementation, implement, type JobContext } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { startRateLimitedApi } from "../support/fakes/rate-limited-api.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, start, query, until, attempts, name: fresh } = await inProcessFixture();
const client = await connect(database.url);
const dir = temporaryDirectory("dependency");

beforeAll(async () => {
  buildPackage();
});

interface Needing {
  name: string;
  api: string;
  breaker: BreakerOptions;
  /** Whether the pipeline has the breaker in `needs`. */
  needs: boolean;
}

/** A module whose jobs make one call each, behind a breaker of the same name. */
function moduleOf(options: Needing): string {
  const file = path.join(dir, `${options.name}.mjs`);
  const text = `
import { breaker, pipeline } from "${ROOT}/dist/index.js";
import { implement } from "${ROOT}/dist/worker/index.js";

const { name, api, needs, ...options } = ${JSON.stringify(options)};
const behind = breaker(name, options.breaker);
export default implement(pipeline(name, { pool: name, needs: needs ? [behind] : [] }), async (job) => {
  const response = await job.fetch(api + "/" + job.id, undefined, { breaker: behind });
  await response.arrayBuffer();
  if (!response.ok) throw new Error("It answered " + response.status);
});
`;
  fs.writeFileSync(file, text);
  return file;
}

const SLOTS = 2;

/** Workers of two slots each. */
async function startWorkers(count: number, options: Needing): Promise<WorkerProcess[]> {
  const pipelines = moduleOf(options);
  const args = ["--pool", options.name, "--slots", String(SLOTS), "--log-level", "trace"];
  return Promise.all(Array.from({ length: count }, () => startWorker({ url: database.url, pipelines, args })));
}

async function enqueue(name: string, count: number): Promise<string[]> {
  const jobs = await stillwake.enqueueMany(name, new Array(count).fill(0));
  return jobs.map(({ id }) => id);
}

async function breakerOf(name: string) {
  return (await stillwake.flow.breakers()).find((breaker) => breaker.name === name)!;
}

/** As in the view stillwake.jobs. */
async function states(pool: string): Promise<Record<string, number>> {
  const rows = await query<{ state: string; n: number }>(
    "select state, count(*)::int as n from stillwake.jobs where pool = $1 group by 1",
    [pool],
  );
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
}

/** The database's time, as performance.now(). */
const moment = (date: Date) => date.getTime() - performance.timeOrigin;

/** Waits until performance.now() has this value. */
async function passTo(at: number): Promise<void> {
  await waitFor(() => performance.now() >= at, { timeout: at - performance.now() + 10_000, interval: 20 });
}

/** Claims of these workers since a given log line of each, with or without jobs. */
function claims(workers: WorkerProcess[], from: number[]): { claimed: number; empty: number } {
  const lines = workers.flatMap((worker, index) => worker.lines.slice(from[index]));
  const of = (event: string) => lines.filter((line) => line.event === event).length;
  return { claimed: of("claimed"), empty: of("claim.empty") };
}

/** Checks that every job has completed; returns how many had a second attempt. */
async function allComplete(ids: string[], timeout: number): Promise<number> {
  const open = () => query("select id from stillwake.live_jobs where id = any ($1)", [ids]);
  await waitFor(async () => (await open()).length === 0, { timeout, interval: 100, what: "all jobs to end" });
  const rows = await query<{ state: string; attempt: number; n: number }>(
    "select state, attempt, count(*)::int as n from stillwake.jobs where id = any ($1) group by 1, 2",
    [ids],
  );
  expect(rows.filter(({ state, attempt }) => state !== "completed" || attempt > 2)).toEqual([]);
  expect(rows.reduce((sum, { n }) => sum + n, 0)).toBe(ids.length);
  return rows.find(({ attempt }) => attempt === 2)?.n ?? 0;
}

describe("a dependency that keeps failing, with 1,000 queued jobs", () => {
  /** The default breaker over ten minutes, or a fast one over ten seconds. */
  const settings: Required<Pick<BreakerOptions, "failures" | "pause" | "growth" | "max">> = FULL
    ? { failures: 5, pause: "30s", growth: 2, max: "15m" }
    : { failures: 5, pause: "400ms", growth: 2, max: "2s" };
  const watchedMs = FULL ? 600_000 : 10_000;
  const firstMs = durationMs(settings.pause, "pause");
  const pauseMs = (probes: number) => Math.min(firstMs * 2 ** probes, durationMs(settings.max, "max"));

  it("pauses all jobs after a few calls, is probed a few times, and all complete after recovery without a lost attempt", {
    timeout: watchedMs * 2 + 120_000,
  }, async () => {
    await using api = await startRateLimitedApi();
    api.fail(503);
    api.latency(20);
    const name = "failing";
    const workers = await startWorkers(2, { name, api: api.url, breaker: settings, needs: true });
    const ids = await enqueue(name, 1000);
    const { openedAt } = await waitFor(async () => {
      const state = await breakerOf(name);
      return state.state === "open" && state;
    });
    const opened = moment(openedAt!);
    const from = workers.map(({ lines }) => lines.length);

    // All but the probe, including those that failed before it opened, once their back-off is over.
    const seen = await waitFor(
      async () => {
        const rows = await query(
          `select state, pause ->> 'reason' as reason, pause ->> 'breaker' as breaker, (pause ->> 'resume_at')::timestamptz > stillwake.now() as later,
            waiting_for, attempt < 2 as spared, count(*)::int as n from stillwake.jobs where pool = $1 group by 1, 2, 3, 4, 5, 6`,
          [name],
        );
        return rows.length === 1 && rows;
      },
      { timeout: 20_000, interval: 50, what: "1,000 paused jobs" },
    );
    const paused = { state: "paused", reason: "HTTP status 503", breaker: name, later: true, waiting_for: null };
    expect(seen).toEqual([{ ...paused, spared: true, n: 1000 }]);
    expect((await stillwake.list({ pool: name, state: "paused", limit: 200 })).jobs).toHaveLength(200);

    await passTo(opened + watchedMs);
    const early = api.calls.filter(({ at }) => at < opened + firstMs);
    const probes = api.calls.filter(({ at }) => at >= opened + firstMs);
    const { claimed, empty } = claims(workers, from);
    const note = `2 workers of ${SLOTS} slots, ${settings.failures} failures, ${settings.pause} to ${settings.max}, ${watchedMs / 1000} s`;
    recordFigure("breaker: calls until it opened", early.length, "", note);
    recordFigure("breaker: probe calls", probes.length, "", note);
    recordFigure("breaker: claims with jobs while open", claimed, "", note);
    recordFigure("breaker: claims without while open", empty, "", note);
    expect(early.length).toBeGreaterThanOrEqual(settings.failures);
    expect(early.length).toBeLessThanOrEqual(settings.failures + 2 * SLOTS - 1);
    const pauses = probes.map((_, index) => pauseMs(index));
    const gaps = probes.map(({ at }, index) => at - (probes[index - 1]?.at ?? opened));
    for (const [index, gap] of gaps.entries()) expect(gap).toBeGreaterThanOrEqual(pauses[index]! - 5);
    expect(probes.length).toBeGreaterThanOrEqual(FULL ? 4 : 3);
    expect(probes.length).toBeLessThanOrEqual(FULL ? 4 : 6);
    expect((await breakerOf(name)).probes).toBe(probes.length);
    // A claim per probe, those at the time it opened, and two per worker for each hint and each 5 s poll.
    expect(claimed).toBeLessThanOrEqual(probes.length + 2 * SLOTS);
    expect(empty).toBeLessThanOrEqual(2 * 2 * (probes.length + 5 + watchedMs / 5000));

    api.latency(0);
    api.heal();
    // No worker claims before the resume time.
    const healed = performance.now();
    const again = await allComplete(ids, watchedMs + 60_000);
    recordFigure("breaker: healed to all 1,000 completed", Math.round(performance.now() - healed), "ms", note);
    recordFigure("breaker: jobs that had an attempt counted", again, "", note);
    // Jobs that failed before it opened.
    expect(again).toBeLessThan(settings.failures);
    expect(api.calls.filter(({ status }) => status === 200)).toHaveLength(1000);
    expect(await breakerOf(name)).toMatchObject({ state: "closed", failures: 0, probes: 0 });
  });
});

describe("a breaker that the pipeline does not declare", () => {
  it("pauses jobs one by one at their calls, lets one probe, and resumes all when it closes", async () => {
    await using api = await startRateLimitedApi();
    api.fail(503);
    const name = fresh();
    const settings = { failures: 3, pause: "1s", growth: 2, max: "2s" } as const;
    await startWorkers(1, { name, api: api.url, breaker: settings, needs: false });
    const ids = await enqueue(name, 40);
    const aside = await waitFor(
      async () => {
        const [calls, { probes }] = [api.calls.length, await breakerOf(name)];
        const { jobs } = await stillwake.list({ pool: name, state: "paused", limit: 200 });
        // Nothing has happened since the calls were counted.
        const still = (await breakerOf(name)).probes === probes && api.calls.length === calls;
        return probes > 0 && jobs.length === 40 && still && { calls, probes, jobs };
      },
      { timeout: 20_000, what: "40 paused jobs, after a probe" },
    );
    for (const { pause, attempt } of aside.jobs) {
      expect(pause).toMatchObject({ breaker: name, reason: `${name} is failing: HTTP status 503` });
      expect(attempt).toBeLessThanOrEqual(1);
    }
    expect(aside.calls - aside.probes).toBeGreaterThanOrEqual(settings.failures);
    expect(aside.calls - aside.probes).toBeLessThanOrEqual(settings.failures + SLOTS - 1);
    api.heal();
    await allComplete(ids, 20_000);
    expect(api.calls.filter(({ status }) => status === 200)).toHaveLength(40);
  });

  it("does not run each of them repeatedly during a probe", async () => {
    await using api = await startRateLimitedApi();
    api.latency(3000);
    const name = fresh();
    const behind = breaker(name, { pause: "30s" });
    const code = implement(pipeline(name, { pool: name }), async (job) => {
      await (await job.fetch(api.url, undefined, { breaker: behind })).arrayBuffer();
    });
    const ids = await enqueueFor(code, 20, async () => {
      await query("select stillwake.register_breaker($1, $2)", [name, JSON.stringify(behind.settings)]);
      await stillwake.flow.open(name, { for: "10ms" });
      await waitFor(async () => (await breakerOf(name)).resumeAt!.getTime() < Date.now());
    });
    await start([code], { pool: name });
    await waitFor(() => api.calls.length === 1, { what: "the probe" });
    api.latency(0);
    await allComplete(ids, 10_000);
    const outcomes = await Promise.all(
      ids.map(async (id) => (await attempts(id)).map(({ outcome }) => outcome).join()),
    );
    expect(outcomes.filter((outcome) => outcome === "completed")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "paused,completed")).toHaveLength(19);
  });
});

/** Enqueues jobs before anything else happens. */
async function enqueueFor(code: AnyImplementation, count: number, then?: () => Promise<void>): Promise<string[]> {
  await stillwake.register(code.pipeline as never);
  const ids = await enqueue(code.pipeline.name, count);
  await then?.();
  return ids;
}

describe("a probe", () => {
  it("is followed by another if its worker is killed with SIGKILL", async () => {
    await using api = await startRateLimitedApi();
    api.fail(503);
    const name = fresh();
    const settings = { failures: 3, pause: "500ms", growth: 1, max: "500ms" } as const;
    const workers = await startWorkers(2, { name, api: api.url, breaker: settings, needs: true });
    const ids = await enqueue(name, 20);
    // By then no call from before it opened is in flight.
    await waitFor(async () => (await breakerOf(name)).probes > 0, { what: "a failed probe" });
    api.latency(600_000);
    const before = api.calls.length;
    const probing = await waitFor(
      async () => {
        const rows = await query<{ worker: string }>(
          "select l.worker from stillwake.breakers b join stillwake.leases l on l.id = b.probe_lease where b.name = $1",
          [name],
        );
        return api.calls.length > before && rows[0];
      },
      { what: "a running probe" },
    );
    expect(await states(name)).toMatchObject({ running: 1 });
    const victim = workers.find(({ lines }) => lines.some(({ worker }) => worker === probing.worker))!;
    const inFlight = api.calls.length;
    const killedAt = performance.now();
    victim.signal("SIGKILL");
    api.latency(0);
    api.heal();
    const next = await waitFor(() => api.calls[inFlight], { timeout: 20_000, what: "another probe" });
    recordFigure("breaker: kill -9 of the prober to the next probe", round(next.at - killedAt), "ms");
    await allComplete(ids, 20_000);
  });
});

describe("a breaker opened by an operator", () => {
  it("pauses jobs until it is closed, whether their pipeline declares it or not, and resumes them at once", async () => {
    await using api = await startRateLimitedApi();
    const pool = fresh();
    const behind = breaker(pool);
    const code = async (job: JobContext) => {
      await (await job.fetch(api.url, undefined, { breaker: behind })).arrayBuffer();
    };
    const declared = implement(pipeline(`${pool}-declared`, { pool, needs: [behind] }), code);
    const asking = implement(pipeline(`${pool}-asking`, { pool }), code);
    await startRecordedWorker({ url: database.url, pool, pipelines: [declared, asking], slots: 2 });
    await stillwake.flow.open(pool, { reason: "maintenance", by: "ada" });
    expect(await breakerOf(pool)).toMatchObject({ state: "open", openedBy: "ada", resumeAt: null });
    const held = (await stillwake.enqueue(declared.pipeline, 0)).id;
    const aside = (await stillwake.enqueue(asking.pipeline, 0)).id;
    const paused = ({ state }: { state: string }) => state === "paused";
    expect(await until(held, paused)).toMatchObject({ runAt: null, pause: { reason: "maintenance" }, attempt: 0 });
    const reason = `${pool} was opened by ada: maintenance`;
    expect(await until(aside, paused)).toMatchObject({ runAt: null, pause: { reason, breaker: pool }, attempt: 0 });
    expect((await stillwake.get(held)).pause).not.toHaveProperty("resume_at");
    const startedAt = performance.now();
    await stillwake.flow.close(pool);
    await allComplete([held, aside], 5000);
    recordFigure("breaker: closed by hand to all completed", round(performance.now() - startedAt), "ms");
    expect(performance.now() - startedAt).toBeLessThan(3000);
    expect(api.calls).toHaveLength(2);
  });

  it("that is closed while a job is being paused does not pause that job", async () => {
    const name = fresh();
    const behind = breaker(name);
    const contract = pipeline(name, { pool: name });
    const code = implement(contract, (job) => behind.call(job, () => "called"));
    const [id] = await enqueueFor(code, 1, async () => {
      await query("select stillwake.register_breaker($1)", [name]);
      await stillwake.flow.open(name);
    });
    const [taken] = await query("select * from stillwake.claim('w', $1, array[$1])", [name]);
    const [verdict] = await query("select * from stillwake.check_breaker($1, $2, $3, $4)", [
      name,
      taken!.job_id,
      taken!.epoch,
      taken!.lease_id,
    ]);
    expect(verdict!.resume_at).toBe(Number.POSITIVE_INFINITY);
    await stillwake.flow.close(name);
    const settlement = {
      job: taken!.job_id,
      epoch: taken!.epoch,
      lease: taken!.lease_id,
      outcome: "paused",
      breaker: name,
    };
    await query("select * from stillwake.settle($1)", [JSON.stringify([settlement])]);
    await start([code], { pool: name });
    expect(await until(id!)).toMatchObject({ state: "completed", output: "called", attempt: 1 });
  });
});

describe("an optional step behind a breaker", () => {
  it("is missing when the call fails, and pauses the job while the breaker is open", async () => {
    await using api = await startRateLimitedApi();
    api.fail(500);
    const name = fresh();
    const behind = breaker(name, { failures: 2, pause: "1s" });
    const code = implement(pipeline(name, { pool: name }), async (job) => {
      const extra = await job.optional("extra", () =>
        behind.call(job, async () => {
          const { status } = await fetch(api.url);
          if (status >= 500) throw new Error(`It answered ${status}`);
          return status;
        }),
      );
      return { extra: extra ?? "none" };
    });
    await start([code], { pool: name, slots: 1 });
    const [first, second] = [await stillwake.enqueue(name, 0), await stillwake.enqueue(name, 0)];
    expect(await until(first.id)).toMatchObject({ output: { extra: "none" }, missing: ["extra"], attempt: 1 });
    const paused = await until(second.id, ({ state }) => state === "paused");
    expect(paused).toMatchObject({
      attempt: 0,
      pause: { breaker: name, reason: `${name} is failing: It answered 500` },
    });
    api.heal();
    expect(await until(second.id)).toMatchObject({ output: { extra: 200 }, missing: [], attempt: 1 });
    expect(api.calls.map(({ status }) => status)).toEqual([500, 500, 200]);
  });
});

describe("a worker whose only jobs are paused by a breaker", () => {
  it("is as quiet as one without jobs: until the resume time, until it is closed, during a probe", async () => {
    const held = async (open: (name: string) => Promise<unknown>): Promise<{ name: string; claims: number }> => {
      const name = fresh();
      const contract = pipeline(name, { pool: name, needs: [breaker(name)] });
      await stillwake.enqueueMany(contract, [1, 2, 3]);
      await open(name);
      const code = implement(contract, () => expect.unreachable());
      const { events: heard, waitForEvent } = await startRecordedWorker({
        url: database.url,
        pool: name,
        pipelines: [code],
        slots: 4,
      });
      await waitForEvent("hints.ready");
      const { at } = await waitForEvent("claim.empty");
      await passTo(at + 3000);
      const polls = heard.filter((event) => event.at > at && ["claimed", "claim.empty"].includes(event.kind));
      return { name, claims: polls.length };
    };
    const probed = async (name: string) => {
      await stillwake.flow.open(name, { for: "10ms" });
      const claim = () => query("select job_id from stillwake.claim('other', $1, array[$1], 3, '1 hour')", [name]);
      expect(await waitFor(async () => (await claim()).length, { what: "a probe" })).toBe(1);
    };
    const quiet = await Promise.all([
      held((name) => stillwake.flow.open(name, { for: "1m" })),
      held((name) => stillwake.flow.open(name)),
      held(probed),
    ]);
    expect(quiet.filter(({ claims: count }) => count > 1)).toEqual([]);
    recordFigure(
      "claims of a worker in 3 s whose jobs are paused by a breaker",
      Math.max(...quiet.map(({ claims }) => claims)),
    );
    const { rows } = await client.query("select claimable, next_due from stillwake.demand($1) order by pool", [
      quiet.map(({ name }) => name),
    ]);
    expect(rows.map(({ claimable }) => claimable)).toEqual([0, 0, 0]);
    // In a minute, never, and when the lease of the probe expires.
    const dues = rows.map(({ next_due: due }) => due as Date | null);
    expect(dues.filter((due) => due === null)).toHaveLength(1);
    expect(dues.filter((due) => due && due.getTime() > Date.now() + 30_000)).toHaveLength(2);
  });
});
