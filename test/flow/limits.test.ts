// Budgets that many workers share: a limit of so many per time, one that is learned from the answers, calls under way. The other side is a fake
// API that counts every call as it arrives; what it has counted is what is believed here.
//
// The 20 workers of the large tests are 2 processes with 10 workers each, every worker with connections of its own and without isolation.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, type TestContext } from "vitest";
import {
  type LimitOptions,
  limit,
  type PipelineOptions,
  pipeline,
  RateLimited,
  rateLimitHeaders,
} from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { type AnyImplementation, implement, type JobContext } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { type FakeApi, fakeApi } from "../support/fakes/rate-limited-api.ts";
import { recordFigure } from "../support/figures.ts";
import { connect, FULL, round } from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { rig } from "../support/processes/in-process.ts";
import { ownWorker } from "../support/processes/recorded-worker.ts";
import { startWorker } from "../support/processes/workers.ts";

const database = await freshDatabase();
const { stillwake, start, run, query, until, attempts, name: fresh } = rig(database);
const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-budgets-")));
let client: pg.Client;

beforeAll(async () => {
  buildPackage();
  client = await connect(database.url);
  fs.writeFileSync(path.join(dir, "calling.mjs"), calling);
  fs.writeFileSync(path.join(dir, "crowd.mjs"), crowd);
});
afterAll(async () => {
  await client.end();
  fs.rmSync(dir, { recursive: true });
});

/** What a job does in another process: a step whose effect is counted, then calls under the limit, each in a step. */
interface Calling {
  name: string;
  /** Where calls and effects go. */
  api: string;
  effects: string;
  calls: number;
  /** Default: its name. */
  pool?: string;
  /** Default: it is learned from the answers. */
  limit?: Omit<LimitOptions, "learn">;
  /** Whether the pipeline names the limit in `needs`. */
  needs: boolean;
}

const calling = `
import { limit, pipeline, rateLimitHeaders } from "${ROOT}/dist/index.js";
import { implement } from "${ROOT}/dist/worker/index.js";

// Every call has the moment it was made at in its path.
const { fetch } = globalThis;
globalThis.fetch = (url, init) => fetch(url + "/" + (performance.timeOrigin + performance.now()), init);

export function called({ name, pool = name, api, effects, calls, needs, ...options }) {
  const budget = limit(name, options.limit ?? { learn: rateLimitHeaders });
  return implement(pipeline(name, { pool, needs: needs ? [budget] : [] }), async (job) => {
    await job.step("before", async () => (await fetch(effects + "/" + job.id)).status);
    for (let number = 0; number < calls; number++) {
      await job.step("call " + number, async () => {
        const response = await job.fetch(api + "/" + job.id, undefined, { limit: budget });
        await response.arrayBuffer();
        return response.status;
      });
    }
  });
}
`;

const crowd = `
import { createWorker } from "${ROOT}/dist/worker/index.js";
import { called } from "./calling.mjs";

const { url, worker, workers, ...options } = JSON.parse(process.argv[2]);
const pipelines = [called(options)];
const all = Array.from({ length: workers }, (_, number) =>
  createWorker({ url, name: worker + "-" + number, pool: options.name, pipelines, slots: 2, connections: 2, grace: "200ms" }),
);
process.stdin.on("end", () => process.exit(0)).resume();
await Promise.all(all.map((one) => one.start()));
console.log("ready");
`;

const PROCESSES = 2;
const PER_PROCESS = 10;

/** Tests that run side by side have each their own. */
type Finish = TestContext["onTestFinished"];

/** One that starts is no company for one that is measured: they begin together. */
const crowds: Promise<unknown>[] = [];

/** Starts the 20 workers and answers when they are at work; they end with the test. */
async function startCrowd(options: Calling, finish: Finish): Promise<void> {
  const ready = Array.from({ length: PROCESSES }, (_, number) => {
    const given = { ...options, url: database.url, worker: `${options.name}-${number}`, workers: PER_PROCESS };
    const child = spawn(process.execPath, [path.join(dir, "crowd.mjs"), JSON.stringify(given)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const gone = once(child, "exit");
    finish(async () => {
      child.kill("SIGKILL");
      await gone;
    });
    return Promise.race([once(child.stdout!, "data"), gone.then(() => Promise.reject(new Error("A crowd has ended")))]);
  });
  crowds.push(...ready);
  await Promise.all(ready);
  await Promise.all(crowds);
}

/** Jobs of a pipeline whose code is in another process, which has made it known. */
async function enqueue(name: string, count: number): Promise<string[]> {
  const jobs = await stillwake.enqueueMany(
    name,
    Array.from({ length: count }, () => 0),
  );
  return jobs.map(({ id }) => id);
}

/** Until this many milliseconds of performance.now(). */
async function passTo(moment: number): Promise<void> {
  await waitFor(() => performance.now() >= moment, { timeout: moment - performance.now() + 10_000, interval: 5 });
}

/** All of them have completed, and the waiting has cost no attempt. */
async function allAtFirst(ids: string[], timeout: number): Promise<void> {
  const open = () => query("select id from stillwake.live_jobs where id = any ($1)", [ids]);
  await waitFor(async () => (await open()).length === 0, { timeout, interval: 100, what: "all jobs to end" });
  const ends = await query(
    "select state, attempt, count(*)::int as n from stillwake.jobs where id = any ($1) group by 1, 2",
    [ids],
  );
  expect(ends).toEqual([{ state: "completed", attempt: 1, n: ids.length }]);
}

/** How often each effect happened, by job. */
function repeated(effects: FakeApi): string[] {
  const seen = effects.calls.map(({ path: called }) => called.split("/")[1]!);
  return seen.filter((id, index) => seen.indexOf(id) !== index);
}

/** Transactions of everybody in this database so far; what is counted reaches us up to a second late. */
async function commits(): Promise<number> {
  const { rows } = await client.query(
    "select xact_commit::int as n from pg_stat_database where datname = current_database()",
  );
  return rows[0].n;
}

describe("20 workers", () => {
  const periodMs = FULL ? 60_000 : 6000;
  const periods = FULL ? 4 : 3;
  const max = 100;

  /** The share of it that was used: how many calls the last period had, on the average over the time, of those it might have had. */
  const share = (times: number[], from: number, to: number) => {
    const within = (at: number) => Math.max(0, Math.min(at + periodMs, to) - Math.max(at, from));
    return times.reduce((sum, at) => sum + within(at), 0) / (to - from) / max;
  };

  const most = (times: number[]) => {
    const sorted = [...times].sort((a, b) => a - b);
    return Math.max(...sorted.map((from, index) => sorted.findLastIndex((at) => at < from + periodMs) - index + 1));
  };

  async function measure(needs: boolean, finish: Finish) {
    const api = await fakeApi();
    const effects = await fakeApi();
    finish(() => api[Symbol.asyncDispose]());
    finish(() => effects[Symbol.asyncDispose]());
    const name = `max-${needs ? "declared" : "asked"}`;
    const limited = { max, per: `${periodMs}ms` };
    await startCrowd({ name, api: api.url, effects: effects.url, calls: 3, needs, limit: limited }, finish);
    await enqueue(name, Math.ceil((max * (periods + 1)) / 3));
    const first = await waitFor(() => api.calls[0]?.at, { timeout: 20_000, what: "the first call" });
    const end = first + periods * periodMs;
    await passTo(end);
    const arrived = api.calls.filter(({ at }) => at < end);
    const made = arrived.map((call) => Number(call.path.split("/")[2]) - performance.timeOrigin);
    const slowestMs = Math.max(...arrived.map(({ at }, index) => at - made[index]!));
    const times = arrived.map(({ at }) => at);
    const used = times.length / max / periods;
    const mean = share(times, first + periodMs, end);
    const note = `20 workers, ${max} per ${periodMs / 1000} s, ${periods} periods, ${needs ? "declared in needs" : "not declared"}`;
    recordFigure("limit: most calls made in any period", most(made), "", note);
    recordFigure("limit: most calls that arrived in any period", api.mostIn(periodMs), "", note);
    recordFigure("limit: slowest call from being made to its arrival", round(slowestMs), "ms", note);
    recordFigure("limit: used of what whole periods allow", round(used * 100), "%", note);
    recordFigure("limit: used on the average of all periods", round(mean * 100), "%", note);
    return { api, made, slowestMs, used, mean };
  }

  it("never exceed a limit of 100 per period in any window and use ≥ 95 % of it, whether declared or not", {
    timeout: periodMs * periods + 60_000,
  }, async ({ onTestFinished: finish }) => {
    const before = await commits();
    const both = await Promise.all([measure(true, finish), measure(false, finish)]);
    const calls = both.reduce((sum, { made }) => sum + made.length, 0);
    const statements = round(((await commits()) - before) / calls);
    recordFigure("limit: transactions per call", statements, "", "of all 60 workers, with their starts and idle looks");
    for (const { api, made, slowestMs, used, mean } of both) {
      expect(most(made)).toBeLessThanOrEqual(max);
      // A hundredth of the period is there for the way. What a busy machine takes longer is not the limit's to give.
      expect(api.mostIn(periodMs - Math.max(0, slowestMs - periodMs / 100))).toBeLessThanOrEqual(max);
      // Of a minute it is nothing how long a busy machine takes to use what has become free; of 6 s it is much: there the figure tells.
      expect(used).toBeGreaterThanOrEqual(FULL ? 0.95 : 0.5);
      if (FULL) expect(mean).toBeGreaterThanOrEqual(0.95);
    }
  });

  const windowMs = FULL ? 10_000 : 5000;
  const budgets = FULL ? [50, 5, 200, 1, 0, 30, 100, 2, 60] : [20, 1, 0, 50];

  it("have at most one call refused per window of a learned budget, whatever the next one is, and repeat no step", {
    timeout: windowMs * budgets.length * 2 + 60_000,
  }, async ({ onTestFinished: finish }) => {
    await using api = await fakeApi();
    await using effects = await fakeApi();
    await startCrowd({ name: "learned", api: api.url, effects: effects.url, calls: 2, needs: false }, finish);
    api.windows({ budgets, windowMs });
    const started = performance.now();
    const ids = await enqueue("learned", FULL ? 200 : 30);
    await allAtFirst(ids, windowMs * budgets.length * 2 + 20_000);
    const refused = api.refusedPerWindow();
    const note = `20 workers, budgets of ${budgets.join(", ")}`;
    recordFigure("learned budget: most refused calls in a window", Math.max(...refused), "", note);
    recordFigure(
      "learned budget: refused calls",
      refused.reduce((sum, one) => sum + one, 0),
      "",
      note,
    );
    recordFigure("learned budget: good calls", api.mostIn(Number.POSITIVE_INFINITY), "", note);
    recordFigure("learned budget: windows", refused.length, "", `${note}, of ${windowMs} ms`);
    recordFigure("learned budget: time", Math.round(performance.now() - started), "ms", note);
    // A call that a busy machine holds up until its window is over is refused in the next one: nobody can foresee that.
    const slowestMs = Math.max(
      ...api.calls.map(({ at, path: called }) => at - (Number(called.split("/")[2]) - performance.timeOrigin)),
    );
    recordFigure("learned budget: slowest call from being made to its arrival", round(slowestMs), "ms", note);
    if (FULL || slowestMs < 1000) expect(Math.max(...refused)).toBeLessThanOrEqual(1);
    expect(api.mostIn(Number.POSITIVE_INFINITY)).toBe(ids.length * 2);
    expect(repeated(effects)).toEqual([]);
  });
});

describe("a budget that is learned from the answers", () => {
  it("leaves the slot to others while it waits for the next window, whether the job has asked or is held by its gate", async () => {
    await using api = await fakeApi();
    const pool = fresh();
    const github = limit(pool, { learn: rateLimitHeaders });
    const steps: string[] = [];
    const code = async (job: JobContext) => {
      await job.step("before", () => void steps.push(job.id));
      return job.step("call", async () => (await job.fetch(api.url, undefined, { limit: github })).status);
    };
    const asking = implement(pipeline(`${pool}-asking`, { pool }), code);
    const held = implement(pipeline(`${pool}-held`, { pool, needs: [github] }), code);
    const other = implement(pipeline(`${pool}-other`, { pool }), () => "done");
    await start([asking, held, other], { pool, slots: 1 });
    api.windows({ budgets: [1, 50], windowMs: 4000 });
    const first = await stillwake.enqueue(asking.pipeline, 0);
    expect(await until(first.id)).toMatchObject({ state: "completed", output: 200 });
    const { id: asked } = await stillwake.enqueue(asking.pipeline, 0);
    const { id: gated } = await stillwake.enqueue(held.pipeline, 0);
    const waiting = { state: "queued", waitingFor: "limit", attempt: 0 };
    expect(await until(asked, ({ waitingFor }) => waitingFor === "limit")).toMatchObject(waiting);
    expect(await until(gated, ({ waitingFor }) => waitingFor === "limit")).toMatchObject({ ...waiting, epoch: "0" });
    const resetAt = (await budgetOf(pool)).reported!.resetAt.getTime();
    expect((await stillwake.get(gated)).runAt!.getTime()).toBe(resetAt);
    expect((await stillwake.get(asked)).runAt!.getTime()).toBeGreaterThanOrEqual(resetAt);
    const began = performance.now();
    await stillwake.wait((await stillwake.enqueue(other.pipeline, 0)).id);
    recordFigure("a job in the only slot, while others wait for a budget", round(performance.now() - began), "ms");
    expect(api.calls).toHaveLength(1);
    await allAtFirst([first.id, asked, gated], 10_000);
    expect((await attempts(asked)).map(({ outcome }) => outcome)).toEqual(["slept", "completed"]);
    expect(steps.toSorted()).toEqual([first.id, asked, gated].toSorted());
    expect(api.refusedPerWindow().every((count) => count === 0)).toBe(true);
  });

  it("needs no worker process while all wait for it: --idle-exit leaves, and demand() says when to start one again", async () => {
    await using api = await fakeApi();
    await using second = await fakeApi();
    const pool = fresh();
    const effects = (await fakeApi()) as FakeApi;
    onTestFinished(() => effects[Symbol.asyncDispose]());
    const asking: Calling = {
      name: `${pool}-asking`,
      pool,
      api: api.url,
      effects: effects.url,
      calls: 1,
      needs: false,
    };
    const held: Calling = { ...asking, name: `${pool}-held`, api: second.url, needs: true };
    const file = path.join(dir, "waiting.mjs");
    fs.writeFileSync(
      file,
      `import { called } from "./calling.mjs";
      export const asking = called(${JSON.stringify(asking)});
      export const held = called(${JSON.stringify(held)});`,
    );
    const args = ["--pool", pool, "--slots", "2", "--idle-exit", "2s"];
    const worker = await startWorker({ url: database.url, pipelines: file, args });
    for (const one of [api, second]) one.windows({ budgets: [1, 50], windowMs: 10_000 });
    const jobs = await Promise.all(
      [asking, held, asking, held].map(({ name }) => stillwake.enqueue(name, 0).then(({ id }) => id)),
    );
    expect(await worker.ended).toBe(0);
    const { rows } = await client.query("select * from stillwake.demand(array[$1])", [pool]);
    expect(rows).toEqual([expect.objectContaining({ claimable: 0, running: 0 })]);
    const due = rows[0].next_due.getTime() - performance.timeOrigin;
    recordFigure("no worker while all wait for a budget", Math.round(due - performance.now()), "ms");
    expect(due).toBeGreaterThan(performance.now());
    expect([api.calls.length, second.calls.length]).toEqual([1, 1]);
    await passTo(due);
    await startWorker({ url: database.url, pipelines: file, args });
    await allAtFirst(jobs, 20_000);
    expect(repeated(effects)).toEqual([]);
    expect([...api.calls, ...second.calls].map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  }, 60_000);

  it("is left alone by everybody for as long as the secondary limit says, after one refused call", async () => {
    await using api = await fakeApi();
    api.latency(20);
    api.windows({ budgets: [1000], windowMs: 60_000 });
    const pool = fresh();
    const github = limit(pool, { learn: rateLimitHeaders });
    const code = implement(pipeline(pool, { pool }), async (job) => {
      await (await job.fetch(api.url, undefined, { limit: github })).arrayBuffer();
    });
    for (let number = 0; number < 4; number++) await start([code], { pool, slots: 3 });
    const enqueueMany = async (count: number) =>
      (
        await stillwake.enqueueMany(
          code.pipeline,
          Array.from({ length: count }, () => 0),
        )
      ).map(({ id }) => id);
    await allAtFirst(await enqueueMany(10), 10_000);
    api.refuseOnce(2);
    const jobs = await enqueueMany(30);
    const refused = await waitFor(() => api.calls.find(({ status }) => status === 403));
    const { blockedUntil } = await waitFor(async () => {
      const state = await budgetOf(pool);
      return state.blockedUntil && state;
    });
    const over = blockedUntil!.getTime() - performance.timeOrigin;
    expect(over - refused.at).toBeGreaterThanOrEqual(2000);
    await allAtFirst(jobs, 10_000);
    const after = api.calls.filter(({ at }) => at > refused.at);
    recordFigure(
      "secondary limit of 2 s: calls under way when it was told",
      after.filter(({ at }) => at < over).length,
    );
    // Those that were under way when it was told, one per slot at most, arrive soon.
    expect(after.filter(({ at }) => at < over).length).toBeLessThan(12);
    expect(after.filter(({ at }) => at > refused.at + 1000 && at < over)).toEqual([]);
    expect(api.calls.filter(({ status }) => status === 403)).toHaveLength(1);
  });

  it("does not make calls wait for one another for ever when the answers tell nothing", async () => {
    await using api = await fakeApi();
    api.latency(200);
    const pool = fresh();
    const silent = limit(pool, { learn: rateLimitHeaders });
    const code = implement(pipeline(pool, { pool }), async (job) => {
      await (await job.fetch(api.url, undefined, { limit: silent })).arrayBuffer();
    });
    await start([code], { pool, slots: 10 });
    const jobs = await stillwake.enqueueMany(
      code.pipeline,
      Array.from({ length: 30 }, () => 0),
    );
    await allAtFirst(
      jobs.map(({ id }) => id),
      10_000,
    );
    // The first went alone.
    expect(api.calls[1]!.at - api.calls[0]!.at).toBeGreaterThanOrEqual(195);
    expect(api.mostIn(200)).toBeGreaterThanOrEqual(5);
  });
});

/** What everybody can see of a limit. */
async function budgetOf(name: string) {
  return (await stillwake.flow.limits()).find((one) => one.name === name)!;
}

describe("calls under way", () => {
  it("are at most so many on all workers together, and as many", async () => {
    await using api = await fakeApi();
    api.latency(100);
    const pool = fresh();
    const few = limit(pool, { concurrency: 3 });
    const code = implement(pipeline(pool, { pool }), async (job) => {
      await (await job.fetch(api.url, undefined, { limit: few })).arrayBuffer();
    });
    for (let number = 0; number < 4; number++) await start([code], { pool, slots: 3 });
    const jobs = await stillwake.enqueueMany(
      code.pipeline,
      Array.from({ length: 40 }, () => 0),
    );
    await allAtFirst(
      jobs.map(({ id }) => id),
      20_000,
    );
    // Each is under way for as long as the answer takes at least.
    expect(api.mostIn(100)).toBe(3);
    expect(await query("select from stillwake.limit_holds where name = $1", [pool])).toEqual([]);
  });

  it("of a worker that is killed -9 no longer count once its lease is gone", async () => {
    await using api = await fakeApi();
    await using effects = await fakeApi();
    api.latency(600_000);
    const name = fresh();
    const limited = { concurrency: 2 };
    const options: Calling = { name, api: api.url, effects: effects.url, calls: 1, needs: false, limit: limited };
    const file = path.join(dir, "holding.mjs");
    fs.writeFileSync(
      file,
      `import { called } from "./calling.mjs"; export default called(${JSON.stringify(options)});`,
    );
    const args = ["--pool", name, "--slots", "2"];
    const victim = await startWorker({ url: database.url, pipelines: file, args });
    const ids = await enqueue(name, 4);
    await waitFor(() => api.calls.length === 2, { timeout: 20_000, what: "two calls under way" });
    api.latency(0);
    const few = limit(name, limited);
    const code = implement(pipeline(name, { pool: name }), async (job) => {
      await job.step("before", async () => (await fetch(`${effects.url}/${job.id}`)).status);
      await (await job.fetch(api.url, undefined, { limit: few })).arrayBuffer();
    });
    await ownWorker({ url: database.url, pool: name, pipelines: [code], slots: 2 });
    await waitFor(() => effects.calls.length === 4, { timeout: 20_000, what: "the others to come to their call" });
    expect((await budgetOf(name)).free).toBe(0);
    expect(api.calls).toHaveLength(2);
    const killedAt = performance.now();
    victim.signal("SIGKILL");
    const next = await waitFor(() => api.calls[2], { timeout: 20_000, what: "a call by the other worker" });
    recordFigure("concurrency: kill -9 to the next call in its place", round(next.at - killedAt), "ms");
    await waitFor(async () => (await query("select from stillwake.live_jobs where pool = $1", [name])).length === 0);
    const ends = await query(
      "select state, crashes, count(*)::int as n from stillwake.jobs where id = any ($1) group by 1, 2",
      [ids],
    );
    expect(ends).toContainEqual({ state: "completed", crashes: 1, n: 2 });
    expect(ends).toContainEqual({ state: "completed", crashes: 0, n: 2 });
    expect(repeated(effects)).toEqual([]);
  });
});

describe("uses taken by hand", () => {
  it("count like those of job.fetch, and observe() says what the answer told and that the call is over", async () => {
    await using api = await fakeApi();
    api.windows({ budgets: [30], windowMs: 60_000 });
    const name = fresh();
    const github = limit(name, { learn: rateLimitHeaders });
    const seen: unknown[] = [];
    const { job } = await run(async (context) => {
      await github.take(context);
      seen.push((await budgetOf(name)).free);
      await github.observe(context, await fetch(api.url));
      seen.push((await budgetOf(name)).reported?.remaining);
      // What is taken and not answered yet is taken off.
      await github.take(context, 4);
      seen.push((await budgetOf(name)).free);
    });
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
    expect(seen).toEqual([0, 29, 25]);
    // The lease of the job held the four.
    expect((await budgetOf(name)).free).toBe(29);
  });

  it("of which more are wanted than there ever are fail the job at once, and say so", async () => {
    for (const options of [{ max: 5, per: "1m" }, { concurrency: 5 }]) {
      const much = limit(fresh(), options);
      const { job } = await run((context) => much.take(context, 6));
      expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
      expect(job.failure!.message).toContain("6 uses of limit");
      expect(job.failure!.message).toContain("Take fewer at a time");
    }
  });

  it("of which too few are free are waited for until enough are, in one sleep", async () => {
    const name = fresh();
    const some = limit(name, { max: 5, per: "2500ms" });
    const contract = pipeline<number>(name, { pool: name });
    const taken: number[] = [];
    const code = implement(contract, async (job, count) => {
      await some.take(job, count);
      taken.push(performance.now());
    });
    await start([code], { pool: name });
    const few = await stillwake.enqueue(name, 4);
    await until(few.id);
    const more = await stillwake.enqueue(name, 3);
    expect(await until(more.id)).toMatchObject({ state: "completed", attempt: 1 });
    expect((await attempts(more.id)).map(({ outcome }) => outcome)).toEqual(["slept", "completed"]);
    expect(taken[1]! - taken[0]!).toBeGreaterThanOrEqual(2500);
  });

  it("may be several before anything was learned", async () => {
    const several = limit(fresh(), { learn: rateLimitHeaders });
    const { job } = await run((context) => several.take(context, 3));
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
  });
});

describe("waiting for a budget", () => {
  type Call = (job: JobContext) => Promise<string>;

  /** What code does with a call that is refused at first. */
  const ways: Record<string, (call: Call) => (job: JobContext) => Promise<unknown>> = {
    "a catch-all": (call) => (job) => call(job).catch(() => "swallowed"),
    "a catch-all in a step": (call) => (job) => job.step("call", () => call(job).catch(() => "swallowed")),
    "an error of one's own": (call) => (job) =>
      job.step("call", () => call(job).catch((cause) => Promise.reject(new Error("mine", { cause })))),
    "the tries of a step": (call) => (job) =>
      job.step("call", { retry: { attempts: 5, initial: "1ms", max: "1ms" } }, () => call(job)),
    "an optional step": (call) => (job) => job.optional("call", () => call(job)),
    "an optional step that swallows": (call) => (job) => job.optional("call", () => call(job).catch(() => "swallowed")),
    "a loop that tries for ever": (call) => async (job) => {
      for (let tries = 0; tries < 200; tries++) {
        const answer = await call(job).catch(() => undefined);
        if (answer) return answer;
        await delay(50);
      }
    },
  };

  it("ends the attempt as slept whatever its code makes of that", async () => {
    await Promise.all(
      Object.entries(ways).map(async ([what, way]) => {
        await using api = await fakeApi();
        api.windows({ budgets: [100], windowMs: 60_000 });
        api.refuseOnce(1);
        const github = limit(fresh(), { learn: rateLimitHeaders });
        const call: Call = async (job) => `answered ${(await job.fetch(api.url, {}, { limit: github })).status}`;
        const { job, id, logs } = await run(way(call));
        const ends = (await attempts(id)).map(({ outcome }) => outcome);
        const loud = logs.filter(({ level }) => level === "warning" || level === "error");
        const statuses = api.calls.map(({ status }) => status);
        expect({ what, ends, statuses, loud }).toEqual({
          what,
          ends: ["slept", "completed"],
          statuses: [403, 200],
          loud: [],
        });
        expect(job, what).toMatchObject({ state: "completed", attempt: 1, output: "answered 200", missing: [] });
      }),
    );
  });

  it("until a date that has passed is no hot loop", async () => {
    const began: number[] = [];
    await run(
      () => {
        began.push(performance.now());
        throw new RateLimited(new Date(0));
      },
      { until: () => began.length >= 5 },
    );
    recordFigure("RateLimited until the past: attempts per second", round(4000 / (began[4]! - began[0]!)), "/s");
    expect(began[4]! - began[0]!).toBeGreaterThanOrEqual(4 * 250);
  });
});

describe("a worker whose only jobs are held", () => {
  /** Three jobs of a pipeline, of which somebody else has one that never ends. */
  async function takenFrom(options: PipelineOptions<unknown, unknown>, cap?: number): Promise<string> {
    const name = fresh();
    const contract = pipeline(name, { ...options, pool: name });
    await stillwake.enqueueMany(contract, ["a", "b", "c"]);
    if (cap) await stillwake.flow.cap(name, cap);
    const [taken] = await query("select * from stillwake.claim('other', $1, array[$1], 1, '1 hour')", [name]);
    for (const { kind, name: needed } of options.needs ?? []) {
      const lease = [needed, taken!.job_id, taken!.epoch, taken!.lease_id];
      if (kind === "limit") await query("select stillwake.use_limit($1, $2, $3, $4)", lease);
    }
    const code = implement(contract, () => expect.unreachable());
    await listen(name, code);
    return name;
  }

  const claims = new Map<string, number>();

  async function listen(name: string, code: AnyImplementation): Promise<void> {
    const { heard, hears } = await ownWorker({ url: database.url, pool: name, pipelines: [code], slots: 4 });
    await hears("push.ready");
    const { at } = await hears("claim.empty");
    await passTo(at + 2500);
    claims.set(name, heard.filter((one) => one.at > at && ["claimed", "claim.empty"].includes(one.kind)).length);
  }

  it("is as quiet as one that has none: by a limit, by a call under way, by a cap", async () => {
    const names = await Promise.all([
      takenFrom({ needs: [limit(fresh(), { max: 1, per: "1m" })] }),
      takenFrom({ needs: [limit(fresh(), { learn: rateLimitHeaders })] }),
      takenFrom({ needs: [limit(fresh(), { concurrency: 1 })] }),
      takenFrom({ concurrency: 1 }),
      takenFrom({}, 1),
      takenFrom({ tenant: String }, 1),
    ]);
    // One for the hint that may have gone by unheard.
    expect(names.map((name) => claims.get(name)).filter((count) => count! > 1)).toEqual([]);
    const { rows } = await client.query(
      "select pool, claimable, running, next_due > stillwake.now() as later from stillwake.demand($1)",
      [names],
    );
    expect(rows).toHaveLength(names.length);
    for (const row of rows) expect(row).toMatchObject({ claimable: 0, running: 1, later: true });
    recordFigure("claims of a worker in 2.5 s whose only jobs are held", Math.max(...claims.values()));
  });
});
