// Caps: what a claim reads to respect them; and that a worker which waits for a cap, a limit or a breaker needs no poll.
import { describe, expect, it } from "vitest";
import { breaker, limit, pipeline } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { round } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, startIdle, name, until } = await inProcessFixture();
const sql = await connect(database.url);

interface Held {
  job: string;
  epoch: string;
  lease: string;
}

async function claim(pool: string, pipelines: string[], limit = 1, worker = "elsewhere"): Promise<Held[]> {
  const { rows } = await sql.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($4, $1, $2, $3, '1 hour')",
    [pool, pipelines, limit, worker],
  );
  return rows;
}

async function settle(held: Held, outcome: object): Promise<void> {
  await sql.query("select from stillwake.settle(jsonb_build_array($1::jsonb))", [{ ...held, ...outcome }]);
}

const runningText = `select j.pipeline, count(*)::integer as running, max(stillwake.running_jobs(j.pipeline)) as counted
  from stillwake.live_jobs j where j.lease_id is not null and j.pool = $1 group by 1`;

describe("the end of a job under a cap", () => {
  const outcomes: [string, object][] = [
    ["completed", { outcome: "completed" }],
    ["failed", { outcome: "failed", failure: { message: "no" }, retry_in: "1 hour" }],
    ["slept", { outcome: "slept", for: "1 hour" }],
    ["paused", { outcome: "paused", reason: "no budget" }],
  ];
  it.each(outcomes)("lets a worker that waits claim at once, without a poll (%s)", async (_, outcome) => {
    const own = name();
    const capped = pipeline(own, { pool: own, concurrency: 1 });
    await stillwake.register(capped);
    await stillwake.enqueue(capped, 1);
    const [held] = await claim(own, [own]);
    const waiting = await stillwake.enqueue(capped, 2);
    await startIdle(capped);
    await settle(held!, outcome);
    expect(await until(waiting.id)).toMatchObject({ state: "completed" });
  });

  it("of a pool lets a worker that waits claim at once, without a poll", async () => {
    const own = name();
    const contract = pipeline(own, { pool: own });
    await stillwake.register(contract);
    await stillwake.flow.cap(own, 1);
    await stillwake.enqueue(contract, 1);
    const [held] = await claim(own, [own]);
    const waiting = await stillwake.enqueue(contract, 2);
    await startIdle(contract);
    await settle(held!, { outcome: "completed" });
    expect(await until(waiting.id)).toMatchObject({ state: "completed" });
  });

  it("in one pool lets a worker of another pool claim", async () => {
    const [own, other] = [name(), name()];
    const capped = pipeline(own, { pool: own, concurrency: 1 });
    await stillwake.register(capped, pipeline(other, { pool: other }));
    await stillwake.enqueue(capped, 1);
    const [held] = await claim(own, [own]);
    const waiting = await stillwake.enqueue(capped, 2, { pool: other });
    await startIdle(capped, { pool: other });
    await settle(held!, { outcome: "completed" });
    expect(await until(waiting.id)).toMatchObject({ state: "completed" });
  });
});

describe("a worker that waits", () => {
  it("for a breaker starts the next probe at once when the job that probed it ends without a result", async () => {
    const own = name();
    const contract = pipeline(own, { pool: own, needs: [breaker(own, { failures: 1, pause: "10ms" })] });
    await stillwake.register(contract);
    for (let n = 0; n < 2; n++) await stillwake.enqueue(contract, n);
    const report = "select from stillwake.report_breaker_result($1, gen_random_uuid(), gen_random_uuid(), false)";
    await sql.query(report, [own]);
    await waitFor(
      async () =>
        (await sql.query("select stillwake.next_due(array[$1]) <= stillwake.now() as due", [own])).rows[0].due,
    );
    const [probe] = await claim(own, [own], 2);
    const events = await startIdle(contract);
    await settle(probe!, { outcome: "completed" });
    await waitFor(() => events.some(({ kind }) => kind === "claimed"));
  });

  it("for a limit of calls in flight claims at once when one of them gets its response", async () => {
    const own = name();
    const contract = pipeline(own, { pool: own, needs: [limit(own, { concurrency: 1 })] });
    await stillwake.register(contract);
    await stillwake.enqueue(contract, 1);
    const [held] = await claim(own, [own]);
    const use = "select granted from stillwake.use_limit($1, $2, $3, $4, $5, $5, $6)";
    const { job, epoch, lease } = held!;
    await sql.query(use, [own, job, epoch, lease, 1, 0]);
    const waiting = await stillwake.enqueue(contract, 2);
    await startIdle(contract);
    await sql.query(use, [own, job, epoch, lease, 0, 1]);
    expect(await until(waiting.id)).toMatchObject({ state: "completed" });
  });
});

describe("the count of a cap", () => {
  it("is right after every way in which a job stops running, and after a cap was added", async () => {
    const own = name();
    await sql.query("select stillwake.register_pipeline($1, $2)", [own, { pool: own, max_attempts: 9 }]);
    await sql.query("select stillwake.enqueue_many($1, '[1,2,3,4,5,6,7,8,9,10]')", [own]);
    const held = await claim(own, [own], 3);
    await sql.query("select stillwake.register_pipeline($1, $2)", [own, { concurrency: 8 }]);
    const counts = async () => (await sql.query(runningText, [own])).rows;
    expect(await counts()).toEqual([{ pipeline: own, running: 3, counted: 3 }]);
    held.push(...(await claim(own, [own], 10)));
    expect(await counts()).toEqual([{ pipeline: own, running: 8, counted: 8 }]);
    const outcomes = [
      { outcome: "completed" },
      { outcome: "failed", failure: { message: "no" }, fatal: true },
      { outcome: "failed", failure: { message: "no" } },
      { outcome: "released" },
      { outcome: "lost", failure: { message: "gone" } },
    ];
    for (const [index, outcome] of outcomes.entries()) {
      await settle(held[index]!, outcome);
      expect(await counts()).toEqual([{ pipeline: own, running: 7 - index, counted: 7 - index }]);
    }
    await claim(own, [own], 2);
    expect(await counts()).toEqual([{ pipeline: own, running: 5, counted: 5 }]);
    await travel(sql, "2h");
    await sql.query("select stillwake.recover(), stillwake.recover()");
    expect(await counts()).toEqual([]);
    expect(await claim(own, [own], 10)).toHaveLength(8);
  });

  it("that is wrong is corrected within a minute", async () => {
    const own = name();
    await sql.query("select stillwake.register_pipeline($1, $2)", [own, { pool: own, concurrency: 2 }]);
    await sql.query("select stillwake.enqueue_many($1, '[1,2,3]')", [own]);
    expect(await claim(own, [own])).toHaveLength(1);
    await sql.query("update stillwake.caps set running = 7 where name = $1", [own]);
    expect(await claim(own, [own])).toEqual([]);
    await travel(sql, "61s");
    expect(await claim(own, [own], 5)).toHaveLength(1);
  });
});

describe("a claim with 20 capped pipelines and 4,000 running jobs", () => {
  it("reads none of the running jobs", { timeout: 60_000 }, async () => {
    const pool = name();
    const names = Array.from({ length: 20 }, (_, index) => `${pool}-${index}`);
    for (const each of names) {
      await sql.query("select stillwake.register_pipeline($1, $2)", [each, { pool, concurrency: 1000 }]);
      await sql.query(
        "select stillwake.enqueue_many($1, (select jsonb_agg('{}'::jsonb) from generate_series(1, 300)))",
        [each],
      );
    }
    for (let n = 0; n < 80; n++) await claim(pool, names, 50, `w${n}`);
    const read = async () =>
      Number(
        (
          await sql.query(`select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) as rows
            from pg_stat_xact_user_tables where schemaname = 'stillwake' and relname in ('live_jobs', 'leases')`)
        ).rows[0].rows,
      );
    const times: number[] = [];
    let rows = 0;
    for (let n = 0; n < 100; n++) {
      await sql.query("begin");
      const before = await read();
      const startedAt = performance.now();
      expect(await claim(pool, names)).toHaveLength(1);
      times.push(performance.now() - startedAt);
      rows = Math.max(rows, (await read()) - before);
      await sql.query("commit");
    }
    times.sort((a, b) => a - b);
    recordFigure("caps: claim with 20 caps and 4,000 running jobs, p50", round(times[50]!), "ms");
    recordFigure("caps: claim with 20 caps and 4,000 running jobs, p99", round(times[98]!), "ms");
    recordFigure("caps: rows read by a claim with 20 caps and 4,000 running jobs", rows, "", "at most");
    expect(rows).toBeLessThan(1000);
  });
});
