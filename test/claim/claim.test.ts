// Which worker gets which jobs, in what order, how many at once, and at what cost.
import type pg from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, enqueue, first, type HeldJob, outcomes, settle } from "../model/actors.ts";
import { violations } from "../model/invariants.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`
  select stillwake.register_pipeline('plain'), stillwake.register_pipeline('other'), stillwake.register_pipeline('drawing', '{"pool": "gpu"}')`);
await stopClock(client);

beforeEach(async () => {
  await client.query("delete from stillwake.leases; delete from stillwake.live_jobs; delete from stillwake.ended_jobs");
});

describe("a claim whose response was lost", () => {
  const lease = "00000000-0000-4000-8000-00000000c1a1";
  const repeat = async () => {
    const text = "select job_id, epoch, lease_id from stillwake.claim('w1', 'default', '{plain}', 2, '10 seconds', $1)";
    return (await client.query(text, [lease])).rows;
  };

  it("can be repeated with the same lease and returns the same jobs, no others and no second attempt", async () => {
    for (let n = 0; n < 4; n++) await enqueue(client, "plain");
    const answer = await repeat();
    expect(answer).toHaveLength(2);
    expect(await repeat()).toEqual(answer);
    expect(await first(client, "select count(*)::int from stillwake.live_jobs where attempt = 1", [])).toBe(2);
    await settle(client, { job: answer[0].job_id, epoch: answer[0].epoch, lease }, outcomes.completed);
    expect(await repeat()).toEqual(answer.slice(1));
  });

  it("claims new jobs under that lease once it was recovered", async () => {
    await enqueue(client, "plain");
    const answer = await repeat();
    await travel(client, "11s");
    const second = await repeat();
    // An expired lease that still exists is returned as it is; recover() removes it.
    expect(second).toEqual(answer);
    await client.query("select stillwake.recover()");
    expect((await repeat()).map((row) => Number(row.epoch))).toEqual([Number(answer[0].epoch) + 1]);
  });
});

describe("under REPEATABLE READ", () => {
  const claimFrom = async (pool: string) => {
    await client.query("begin isolation level repeatable read");
    try {
      return await claim(client, "w1", ["plain", "drawing"], { pool });
    } finally {
      await client.query("rollback");
    }
  };

  it("a claim from a pool with a cap is refused with the remedy, because it could exceed the cap", async () => {
    await enqueue(client, "drawing");
    await client.query("select stillwake.cap_pool('gpu', 1)");
    await expect(claimFrom("gpu")).rejects.toMatchObject({
      code: "SW006",
      detail: "isolation",
      hint: expect.stringMatching(/alter role \w+ set default_transaction_isolation to 'read committed'/),
    });
    await client.query("select stillwake.cap_pool('gpu', null)");
  });

  it("a claim from a pool without a cap returns jobs", async () => {
    const id = await enqueue(client, "plain");
    expect((await claimFrom("default")).map(({ job }) => job)).toEqual([id]);
  });
});

describe("the queue order", () => {
  it("is by priority, then by time, then by id", async () => {
    const late = await enqueue(client, "plain");
    const low = await enqueue(client, "plain", { priority: -5 });
    const early = await enqueue(client, "plain", { run_at: "2020-01-01T00:00:00Z" });
    const urgent = await enqueue(client, "plain", { priority: 7 });
    const { rows } = await client.query(
      "select unnest(stillwake.enqueue_many('plain', '[1,2,3]', '{\"priority\": -9}')) as id",
    );
    const batch = rows.map((row) => row.id);
    const claimed = await claim(client, "w1", ["plain"], { limit: 20 });
    expect(claimed.map(({ job }) => job)).toEqual([urgent, early, late, low, ...batch]);
  });

  it("is the same for single claims and for one batch", async () => {
    for (const priority of [0, 3, 0, 3, 1]) {
      await enqueue(client, "plain", { priority });
      await travel(client, "1ms");
    }
    const { rows } = await client.query("select id from stillwake.live_jobs order by priority desc, run_at, id");
    const claimed: HeldJob[] = [];
    for (let n = 0; n < 5; n++) claimed.push(...(await claim(client, "w1", ["plain"])));
    expect(claimed.map(({ job }) => job)).toEqual(rows.map((row) => row.id));
  });

  it("skips jobs of pipelines the worker does not know, and of other pools", async () => {
    await enqueue(client, "other", { priority: 9 });
    await enqueue(client, "drawing", { priority: 9 });
    const mine = await enqueue(client, "plain");
    expect((await claim(client, "w1", ["plain", "drawing"], { limit: 5 })).map(({ job }) => job)).toEqual([mine]);
    expect(await claim(client, "w1", [], { limit: 5 })).toEqual([]);
    expect(await claim(client, "w2", ["other"], { limit: 5 })).toHaveLength(1);
    expect(await claim(client, "w3", ["drawing"], { pool: "gpu" })).toHaveLength(1);
  });

  it("contains a delayed job from the moment it is due", async () => {
    const job = await enqueue(client, "plain", { delay: "5 minutes", priority: 9 });
    await travel(client, "299999ms");
    expect(await claim(client, "w1", ["plain"])).toEqual([]);
    await travel(client, "1ms");
    expect((await claim(client, "w1", ["plain"])).map((held) => held.job)).toEqual([job]);
  });

  it.each([
    ["a back-off", { outcome: "failed", failure: { message: "no" }, retry_in: "2 seconds" }],
    ["a pause", { outcome: "paused", reason: "no budget", resume_in: "2 seconds" }],
    ["a wait for an event that timed out", { outcome: "slept", waiting_for: "event", awaits: "go", for: "2 seconds" }],
  ])("keeps the position of a job during %s: once its time has come, it precedes the backlog", async (_, outcome) => {
    const [retried, next] = await enqueueInTurn(2);
    await travel(client, "1ms");
    await fill(1000, {});
    const [held] = await claim(client, "w1", ["plain"]);
    expect(held!.job).toBe(retried);
    const until = (await first(client, "select stillwake.now() + interval '2 seconds'", [])) as Date;
    const sent = "awaits" in outcome ? { ...outcome, until: until.toISOString() } : outcome;
    await client.query("select stillwake.settle(jsonb_build_array($1::jsonb))", [{ ...held, ...sent }]);
    await travel(client, "1999ms");
    expect((await claim(client, "w1", ["plain"])).map(({ job }) => job)).toEqual([next]);
    await travel(client, "1ms");
    expect((await claim(client, "w1", ["plain"])).map(({ job }) => job)).toEqual([retried]);
  });

  it("keeps the position of a job through several retries, and in the lane of its tenant", async () => {
    await client.query(`select stillwake.register_pipeline('tenants', '{"pool": "tenants", "max_attempts": 9}')`);
    const jobs = await enqueueMany("tenants", 3, { tenant: "a" });
    const options = { pool: "tenants" };
    for (let attempt = 0; attempt < 4; attempt++) {
      const [held] = await claim(client, "w1", ["tenants"], options);
      expect(held!.job).toBe(jobs[0]);
      const failed = { ...held, outcome: "failed", failure: { message: "no" }, retry_in: attempt === 2 ? "0s" : "1s" };
      await client.query("select stillwake.settle(jsonb_build_array($1::jsonb))", [failed]);
      await travel(client, "1s");
    }
  });

  it("contains a paused job whose time has come at its position, also after it was resumed by hand", async () => {
    const [paused, next] = await enqueueInTurn(2);
    const [held] = await claim(client, "w1", ["plain"]);
    const outcome = { outcome: "paused", reason: "no budget", resume_in: "1 second" };
    await client.query("select stillwake.settle(jsonb_build_array($1::jsonb))", [{ ...held, ...outcome }]);
    await travel(client, "1s");
    // This claim puts it back at its position and does not take it.
    expect(await claim(client, "w1", ["other"])).toEqual([]);
    expect(await first(client, "select stillwake.resume($1)", [paused])).toBe("queued");
    expect((await claim(client, "w1", ["plain"], { limit: 2 })).map(({ job }) => job)).toEqual([paused, next]);
  });

  it("returns a bounded number of jobs to their position in one claim, and all are claimable", async () => {
    const jobs = await enqueueMany("plain", 300, {});
    const held = await claim(client, "w1", ["plain"], { limit: 300 });
    const failed = held.map((each) => ({ ...each, outcome: "failed", failure: { message: "no" }, retry_in: "1s" }));
    await client.query("select count(*) from stillwake.settle($1)", [JSON.stringify(failed)]);
    await travel(client, "1s");
    expect(await claim(client, "w1", ["plain"])).toHaveLength(1);
    const waiting = "select count(*)::integer from stillwake.live_jobs where order_at is not null";
    expect(await first(client, waiting, [])).toBe(100);
    const rest = await claim(client, "w1", ["plain"], { limit: 300 });
    expect(new Set(rest.map(({ job }) => job)).size).toBe(jobs.length - 1);
  });

  it("yields nothing while its pool is paused, and everything afterwards", async () => {
    await enqueue(client, "plain");
    await client.query("select stillwake.pause_pool('default', 'maintenance')");
    expect(await claim(client, "w1", ["plain"])).toEqual([]);
    await client.query("select stillwake.resume_pool('default')");
    expect(await claim(client, "w1", ["plain"])).toHaveLength(1);
  });

  it("skips a job that is locked by another transaction, without waiting", async () => {
    const changed = await enqueue(client, "plain", { priority: 9 });
    const next = await enqueue(client, "plain");
    const operator = await connect(database.url);
    await operator.query("begin");
    await operator.query("select stillwake.pause($1)", [changed]);
    await client.query("set lock_timeout = '2s'");
    const claimed = await claim(client, "w1", ["plain"], { limit: 2 }).catch((error) => error.message);
    await operator.query("commit");
    expect(claimed).toMatchObject([{ job: next }]);
  });

  it.each([
    ["a pool that does not exist", ["w1", "nowhere", "{plain}", 1, "10s"], "SW003"],
    ["no worker", ["", "default", "{plain}", 1, "10s"], "SW001"],
    ["more than a thousand", ["w1", "default", "{plain}", 1001, "10s"], "SW001"],
    ["a lease of no time", ["w1", "default", "{plain}", 1, "0s"], "SW001"],
  ])("refuses %s", async (_, values, code) => {
    expect(await first(client, "select * from stillwake.claim($1, $2, $3, $4, $5)", values)).toBe(code);
  });
});

describe("the cost of a claim", () => {
  it("does not grow with delayed jobs of a higher priority", async () => {
    await fill(10_000, { priority: 9, delay: "1 hour" });
    const job = await enqueue(client, "plain");
    await client.query("begin");
    const before = Number(await first(client, rowsReadText, []));
    const claimed = await claim(client, "w1", ["plain"]);
    const read = Number(await first(client, rowsReadText, [])) - before;
    await client.query("commit");
    expect(claimed.map((held) => held.job)).toEqual([job]);
    recordFigure("claim: rows read behind 10,000 delayed jobs", read);
    expect(read).toBeLessThan(50);
  });

  it("a recovered job is the next one claimed with 10,000 jobs waiting, as fast as with none", async () => {
    const alone = await recoverAndClaim(40, () => enqueue(client, "plain"));
    await client.query("delete from stillwake.live_jobs");
    await fill(10_000, {});
    const behind = await recoverAndClaim(40, async () => undefined);
    recordFigure("claim: claim of a recovered job, nothing else waiting, p50", median(alone), "ms");
    recordFigure("claim: claim of a recovered job, 10,000 waiting, p50", median(behind), "ms");
    // Far from the target of 20 %, because a busy machine must not fail the test; a scan of the backlog is 20 times slower.
    expect(median(behind)).toBeLessThan(5 * median(alone) + 5);
  });
});

async function enqueueInTurn(count: number): Promise<string[]> {
  const jobs: string[] = [];
  for (let n = 0; n < count; n++) {
    await travel(client, "1ms");
    jobs.push((await enqueue(client, "plain")) as string);
  }
  return jobs;
}

async function enqueueMany(pipeline: string, count: number, options: object): Promise<string[]> {
  const { rows } = await client.query(
    "select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::integer) n), $3) as ids",
    [pipeline, count, options],
  );
  return rows[0].ids;
}

/** Claims, lets the lease expire and claims again: the same job must be returned. Returns the duration of each second claim. */
async function recoverAndClaim(times: number, prepare: () => Promise<unknown>): Promise<number[]> {
  const took: number[] = [];
  for (let n = 0; n < times; n++) {
    await prepare();
    const [dead] = await claim(client, "dead", ["plain"]);
    await travel(client, "10001ms");
    const began = performance.now();
    const [next] = await claim(client, "next", ["plain"]);
    took.push(performance.now() - began);
    expect(next!.job).toBe(dead!.job);
    expect(await settle(client, next!, outcomes.completed)).toBe("completed");
  }
  return took;
}

describe("twenty concurrent workers", () => {
  it("never claim more than requested, and no job twice, under the worst possible plan", async () => {
    const worst = ["hashjoin", "mergejoin", "hashagg", "material", "memoize", "indexonlyscan"];
    for (const node of worst) await client.query(`alter database ${database.name} set enable_${node} = off`);
    await fill(600, {});
    const workers = await Promise.all(Array.from({ length: 20 }, () => connect(database.url)));
    const claims = (await Promise.all(workers.map((worker, n) => claimAll(worker, `w${n}`, 1 + (n % 4))))).flat();
    const jobs = claims.flatMap(({ held }) => held.map(({ job }) => job));
    const tooMany = claims.filter(({ held, limit }) => held.length > limit).length;
    const { rows } = await client.query(
      "select count(*) filter (where state = 'running') as running, max(epoch) as epoch from stillwake.live_jobs",
    );
    expect(tooMany).toBe(0);
    expect(jobs).toHaveLength(600);
    expect(new Set(jobs).size).toBe(600);
    expect(rows).toEqual([{ running: "600", epoch: "1" }]);
    expect(await violations(client)).toEqual([]);
    recordFigure("claims by 20 workers under forced nested loops", claims.length, "", `${tooMany} over their limit`);
  });
});

async function claimAll(worker: pg.Client, name: string, limit: number): Promise<{ limit: number; held: HeldJob[] }[]> {
  const claims: { limit: number; held: HeldJob[] }[] = [];
  for (;;) {
    const held = await claim(worker, name, ["plain"], { limit });
    if (held.length === 0) return claims;
    claims.push({ limit, held });
  }
}

async function fill(count: number, options: object): Promise<void> {
  await client.query(
    "select stillwake.enqueue_many('plain', (select jsonb_agg(n) from generate_series(1, $1::integer) n), $2)",
    [count, options],
  );
  await client.query("analyze stillwake.live_jobs");
}

/** What this connection has read of live_jobs so far. */
const rowsReadText = `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
  where schemaname = 'stillwake' and relname = 'live_jobs'`;

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
