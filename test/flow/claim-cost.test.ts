// The cost of flow control: how many rows a claim reads in the worst cases, and that no statement is quadratic in the
// number of jobs. Rows are counted where possible, because times depend on the machine.
import type pg from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { round } from "../support/processes/fault-checks.ts";

const database = await freshDatabase();
const client = await connect(database.url);

const MANY = 10_000;
const BACKLOG = 50_000;
let cursor: string | null;

beforeEach(async () => {
  await client.query(
    "truncate stillwake.live_jobs, stillwake.leases, stillwake.tenants, stillwake.pipelines, stillwake.pools, stillwake.caps, stillwake.cap_ends",
  );
  await register("free");
  cursor = null;
});

const register = (name: string, settings: object = {}) =>
  client.query("select stillwake.register_pipeline($1, $2)", [name, settings]);

/** Jobs of one tenant, or one job each of many tenants. */
async function fill(pipeline: string, count: number, tenant: string | null, options: object = {}): Promise<void> {
  await client.query(
    `select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::integer) n), $3::jsonb
      || case when $4::text is null then '{}' else jsonb_build_object('tenants', (select jsonb_agg(replace($4, '*', n::text)) from generate_series(1, $2) n)) end)`,
    [pipeline, count, options, tenant],
  );
}

interface Claimed {
  pipeline: string;
  tenant: string | null;
}

/** A claim, and how many rows of live_jobs it read. */
async function claim(
  limit: number,
  { by = client, of = [] as string[] } = {},
): Promise<{ jobs: Claimed[]; read: number }> {
  await by.query("begin");
  const before = await readSoFar(by);
  const { rows } = await by.query(
    `select pipeline, tenant, cursor
    from stillwake.claim('w', 'default', case when $3::text[] = '{}' then array(select name from stillwake.pipelines) else $3 end, $1, p_cursor => $2)`,
    [limit, cursor, of],
  );
  const read = (await readSoFar(by)) - before;
  await by.query("commit");
  if (rows.length > 0) cursor = rows[0].cursor;
  return { jobs: rows, read };
}

async function readSoFar(by: pg.Client): Promise<number> {
  const { rows } = await by.query(
    `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows from pg_stat_xact_user_tables
    where schemaname = 'stillwake' and relname = 'live_jobs'`,
  );
  return Number(rows[0].rows);
}

async function timed<Row extends pg.QueryResultRow>(text: string): Promise<{ rows: Row[]; ms: number }> {
  await client.query(text);
  const times: number[] = [];
  let rows: Row[] = [];
  for (let n = 0; n < 5; n++) {
    const startedAt = performance.now();
    ({ rows } = await client.query<Row>(text));
    times.push(performance.now() - startedAt);
  }
  return { rows, ms: round(Math.min(...times)) };
}

describe("a claim in a pool with lanes", () => {
  it("reads a few rows per job if each of 10,000 tenants has one job", async () => {
    await fill("free", MANY, "tenant *");
    await client.query("analyze stillwake.live_jobs");
    const item = await claim(1);
    const hundred = await claim(100);
    expect(item.jobs).toHaveLength(1);
    expect(new Set(hundred.jobs.map(({ tenant }) => tenant)).size).toBe(100);
    recordFigure(`lanes: rows read by a claim of 1 at ${MANY} tenants`, item.read);
    recordFigure(`lanes: rows read by a claim of 100 at ${MANY} tenants`, hundred.read);
    expect(item.read).toBeLessThan(20);
    expect(hundred.read).toBeLessThan(1000);
  });

  it("skips 50,000 jobs of a pipeline at its cap", async () => {
    await register("capped", { concurrency: 1 });
    await fill("capped", BACKLOG, null, { priority: 0 });
    await fill("free", 2, null);
    await client.query("analyze stillwake.live_jobs");
    expect((await claim(2)).jobs.map(({ pipeline }) => pipeline).sort()).toEqual(["capped", "free"]);
    const { jobs, read } = await claim(1);
    expect(jobs).toMatchObject([{ pipeline: "free" }]);
    recordFigure(`lanes: rows read by a claim behind ${BACKLOG} capped jobs`, read);
    expect(read).toBeLessThan(50);
  });

  it("does not read the backlog of one tenant to find the job of another, even with wrong statistics", async () => {
    await fill("free", MANY, "hot");
    // From now on the planner assumes one lane.
    await client.query("analyze stillwake.live_jobs");
    const fresh = await connect(database.url);
    cursor = "0|\u001fhot";
    await fill("free", 1, "small *");
    const { jobs, read } = await claim(1, { by: fresh });
    await fresh.end();
    expect(jobs).toMatchObject([{ tenant: "small 1" }]);
    expect(read).toBeLessThan(20);
  });

  it("reads only due jobs of a lane", async () => {
    await fill("free", MANY, "busy", { delay: "1 hour" });
    await fill("free", 3, "busy");
    const { jobs, read } = await claim(10);
    expect(jobs).toHaveLength(3);
    expect(read).toBeLessThan(50);
  });

  it("does not read other jobs in a worker that knows only a capped pipeline", async () => {
    await register("capped", { concurrency: 5 });
    await fill("free", MANY, "hot");
    await fill("capped", 2, "hot");
    const { jobs, read } = await claim(2, { of: ["capped"] });
    expect(jobs).toHaveLength(2);
    expect(read).toBeLessThan(20);
  });

  it("costs the same with any number of sleeping tenants", async () => {
    await fill("free", MANY, "asleep *", { delay: "1 hour" });
    await fill("free", 2000, "hot");
    await fill("free", 1, "zealous *");
    await client.query("analyze stillwake.live_jobs");
    const reads: number[] = [];
    const tenants: (string | null)[] = [];
    // As many claims as are needed to visit every tenant with 64 steps each.
    for (let n = 0; n < MANY / 64 + 3; n++) {
      const { jobs, read } = await claim(1);
      expect(read).toBeLessThan(1500);
      reads.push(read);
      tenants.push(jobs[0]!.tenant);
    }
    recordFigure(`lanes: rows read by a claim among ${MANY} tenants that sleep`, Math.max(...reads), "", "at most");
    expect(tenants).toContain("zealous 1");
  });

  it("finds the only due job among 10,000 sleeping tenants, and then none", async () => {
    await fill("free", MANY, "asleep *", { delay: "1 hour" });
    await fill("free", 1, "asleep 5000 or *");
    const found = await claim(1);
    expect(found.jobs).toMatchObject([{ tenant: "asleep 5000 or 1" }]);
    expect(found.read).toBeLessThan(200);
    const none = await claim(1);
    expect(none.jobs).toEqual([]);
    expect(none.read).toBeLessThan(200);
  });

  it("finds the only due job behind 2,000 gated ones, among 10,000 sleeping tenants", async () => {
    await register("held", { breakers: ["b"] });
    await client.query("select stillwake.register_breaker('b'), stillwake.open_breaker('b')");
    await fill("held", 2000, null);
    await fill("free", MANY, "asleep *", { delay: "1 hour" });
    await fill("free", 1, "zealous *");
    expect((await claim(1)).jobs).toMatchObject([{ tenant: "zealous 1" }]);
    expect((await claim(1)).jobs).toEqual([]);
  });
});

describe("next_due() and demand()", () => {
  const due = "select stillwake.lanes_due('default', array(select name from stillwake.pipelines), null, null) as due";
  const demand = "select claimable, oldest from stillwake.lanes_demand('default', 1000)";
  const inAnHour = expect.any(Date);

  it("are fast with 10,000 lanes", async () => {
    await fill("free", MANY, "tenant *");
    await client.query("analyze stillwake.live_jobs");
    const now = { due: await timed<{ due: Date }>(due), demand: await timed(demand) };
    expect(now.due.rows[0]!.due.getTime()).toBeLessThanOrEqual(Date.now());
    expect(now.demand.rows).toMatchObject([{ claimable: 1000 }]);
    await client.query("update stillwake.live_jobs set run_at = stillwake.now() + interval '1 hour'");
    await client.query("vacuum analyze stillwake.live_jobs");
    const later = { due: await timed<{ due: Date }>(due), demand: await timed(demand) };
    expect(later.due.rows).toEqual([{ due: inAnHour }]);
    expect(later.demand.rows).toMatchObject([{ claimable: 0 }]);
    recordFigure(`lanes: next_due at ${MANY} lanes`, Math.max(now.due.ms, later.due.ms), "ms");
    recordFigure(`lanes: demand at ${MANY} lanes`, now.demand.ms, "ms", "all due");
    recordFigure(`lanes: demand at ${MANY} lanes`, later.demand.ms, "ms", "none due");
    expect(Math.max(now.due.ms, later.due.ms, now.demand.ms, later.demand.ms)).toBeLessThan(500);
  });

  it("are correct if the first job in the queue cannot start", async () => {
    await register("held", { breakers: ["b"] });
    await register("capped", { concurrency: 1 });
    await client.query("select stillwake.register_breaker('b'), stillwake.open_breaker('b', '10 minutes')");
    await fill("capped", 1500, "capped *");
    await fill("held", 1500, "held *");
    await claim(1);
    const { rows } = await client.query<{ minutes: number }>(
      `select round(extract(epoch from stillwake.lanes_due('default', null, null, null) - stillwake.now()) / 60)::integer as minutes`,
    );
    expect(rows).toEqual([{ minutes: 10 }]);
    expect((await timed(demand)).rows).toMatchObject([{ claimable: 0 }]);
    await fill("free", 3, "free *");
    const free = await timed<{ due: Date }>(due);
    expect(free.rows[0]!.due.getTime()).toBeLessThanOrEqual(Date.now());
    expect((await timed(demand)).rows).toMatchObject([{ claimable: 3 }]);
    recordFigure("lanes: next_due at 3,000 lanes of which none may start", free.ms, "ms");
  });
});

describe("jobs with keys", { timeout: 60_000 }, () => {
  it.each([
    ["join", 10_000],
    ["wait", 10_000],
    ["replace", 3000],
  ])("take no more time each in a call with ten times as many, all free or all taken (%s)", async (conflict, many) => {
    const perJob = async (count: number, prefix: string) => {
      const startedAt = performance.now();
      await client.query(
        `select stillwake.enqueue_many('free', (select jsonb_agg(n) from generate_series(1, $1::integer) n), jsonb_build_object('on_conflict', $2::text, 'keys',
          (select jsonb_agg($3 || n) from generate_series(1, $1) n)))`,
        [count, conflict, prefix],
      );
      return (performance.now() - startedAt) / count;
    };
    const measure = async () => ({ few: await perJob(many / 10, "few"), many: await perJob(many, "many") });
    const free = await measure();
    const taken = await measure();
    recordFigure(`keys: enqueue of ${many} at once, all free (${conflict})`, round(free.many * 1000), "µs");
    recordFigure(`keys: enqueue of ${many} at once, all taken (${conflict})`, round(taken.many * 1000), "µs");
    // A quadratic statement would take ten times as long.
    expect(free.many / free.few).toBeLessThan(5);
    expect(taken.many / taken.few).toBeLessThan(5);
  });
});
