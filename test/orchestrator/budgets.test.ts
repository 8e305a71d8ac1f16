// Budgets: an exhausted budget pauses a pool or holds a tenant's jobs, without affecting others or running jobs.
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startClock, stopClock, travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { seededRandom } from "../support/providers/fake-provider-api.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
let number = 0;

// Noon early in a month, so that each test stays within one day and one month.
beforeAll(async () => {
  await stopClock(sql);
  await untilNext("month");
  await travel(sql, "12h");
});
beforeEach(async () => {
  await sql.query(`truncate stillwake.live_jobs, stillwake.leases, stillwake.tenants, stillwake.pipelines, stillwake.pools, stillwake.budgets,
    stillwake.spending, stillwake.machine_lives, stillwake.machine_jobs, stillwake.machine_costs`);
  await stopClock(sql);
});

async function one<Row>(text: string, values: unknown[] = []): Promise<Row> {
  return (await sql.query(text, values)).rows[0] as Row;
}

const register = (name: string, settings: object = {}) =>
  sql.query("select stillwake.register_pipeline($1, $2)", [name, { pool: "scan", ...settings }]);
const enqueue = async (pipeline: string, options: object = {}): Promise<string> =>
  (await one<{ id: string }>("select stillwake.enqueue($1, '{}', $2) as id", [pipeline, options])).id;
const fill = (pipeline: string, count: number, options: object = {}) =>
  sql.query(
    "select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::integer) n), $3::jsonb)",
    [pipeline, count, options],
  );
const setBudget = (scope: string, name: string, amount: number | null, period = "month") =>
  sql.query("select stillwake.set_budget($1, $2, $3, $4, 'operator')", [scope, name, amount, period]);
const check = async () => (await sql.query("select act, note from stillwake.check_budgets()")).rows;
const pool = () =>
  one<{ paused_at: Date | null; paused_by: string | null; pause_reason: string | null; resume_at: Date | null }>(
    "select paused_at, paused_by, pause_reason, resume_at from stillwake.pools where name = 'scan'",
  );
const demand = () =>
  one<{ claimable: number; next_due: Date | null }>("select claimable, next_due from stillwake.demand(array['scan'])");
const nextDue = async () =>
  (await one<{ due: Date | null }>("select stillwake.next_due(array['scan'], array['p', 'gated', 'plain']) as due"))
    .due;
const monthEnd = async () =>
  (
    await one<{ at: Date }>(
      "select (date_trunc('month', stillwake.now() at time zone 'UTC') + interval '1 month') at time zone 'UTC' as at",
    )
  ).at;

interface Claimed {
  job_id: string;
  epoch: string;
  lease_id: string;
  tenant: string | null;
}
const claim = async (limit = 1, worker = "w", pipelines = ["p", "gated", "plain"]): Promise<Claimed[]> =>
  (
    await sql.query<Claimed>(
      "select job_id, epoch, lease_id, tenant from stillwake.claim($1, 'scan', $2, $3, '1 day')",
      [worker, pipelines, limit],
    )
  ).rows;
const complete = ({ job_id, epoch, lease_id }: Claimed) =>
  sql.query("select stillwake.complete($1, $2, $3)", [job_id, epoch, lease_id]);

async function startMachine(): Promise<{ life: string; machine: string } | undefined> {
  const ordinal = number++;
  const life = await one<{ life: string; machine: string } | undefined>(
    "select life, machine from stillwake.reserve_machine('scan', 1000, $1)",
    [{ ordinal, machine: `m-${ordinal}`, burst: false, provider: "fly", slots: 4, price: 0.01, prices: "test" }],
  );
  if (!life) return undefined;
  await sql.query("select stillwake.machine_started($1, 'id')", [life.life]);
  await sql.query("select stillwake.machine_registered($1, 'scan', 4)", [life.machine]);
  return life;
}
const end = (life: string) => sql.query("select stillwake.machine_ended($1)", [life]);

/** Runs one job of the tenant on a machine for the given seconds, at one cent each. */
async function spend(seconds: number, tenant?: string): Promise<void> {
  const { life, machine } = (await startMachine())!;
  await enqueue("p", tenant ? { tenant } : {});
  const [claimed] = await claim(1, machine);
  await travel(sql, `${seconds}s`);
  await complete(claimed!);
  await end(life);
}

describe("the budget of a pool", () => {
  it("pauses the pool once it is exhausted, also by running machines, and running jobs finish", async () => {
    await register("p");
    await setBudget("pool", "scan", 1);
    const { life, machine } = (await startMachine())!;
    await enqueue("p");
    await enqueue("p");
    const [claimed] = await claim(1, machine);
    await travel(sql, "99s");
    expect(await check()).toEqual([]);
    await travel(sql, "1s");
    expect(await check()).toEqual([
      { act: "paused", note: "pool scan: The budget is used up: $1.00 of $1.00 this month" },
    ]);
    expect(await check()).toEqual([]);
    expect(await pool()).toMatchObject({
      paused_by: "budget",
      pause_reason: "The budget is used up: $1.00 of $1.00 this month",
      resume_at: await monthEnd(),
    });
    expect(await claim(1, machine)).toEqual([]);
    expect(await startMachine()).toBeUndefined();
    await complete(claimed!);
    await end(life);
    expect(
      (await one<{ state: string }>("select state from stillwake.jobs where id = $1", [claimed!.job_id])).state,
    ).toBe("completed");
    expect(await one("select wanted from stillwake.wanted_workers where pool = 'scan'")).toEqual({ wanted: 0 });
  });

  it("resumes the pool when it is raised or removed", async () => {
    await register("p");
    await spend(200);
    await enqueue("p");
    await setBudget("pool", "scan", 1);
    expect((await pool()).paused_by).toBe("budget");
    await setBudget("pool", "scan", 3);
    expect(await pool()).toEqual({ paused_at: null, paused_by: null, pause_reason: null, resume_at: null });
    await setBudget("pool", "scan", 0);
    expect((await pool()).paused_by).toBe("budget");
    await setBudget("pool", "scan", null);
    expect((await pool()).paused_at).toBeNull();
    expect(await claim()).toHaveLength(1);
  });

  it("resumes the pool in the next period: idle polls know the time, and the first claim resumes it", async () => {
    await register("p");
    await spend(200);
    await enqueue("p");
    await setBudget("pool", "scan", 1);
    const resets = await monthEnd();
    expect(await nextDue()).toEqual(resets);
    expect(await demand()).toMatchObject({ next_due: resets });
    expect(await claim()).toEqual([]);
    await untilNext("month");
    expect(await claim()).toHaveLength(1);
    expect(await pool()).toMatchObject({ paused_at: null, resume_at: null });
  });

  it("keeps the pool paused while it stays exhausted, and wakes nothing for a pool without jobs", async () => {
    await register("p");
    await setBudget("pool", "scan", 0, "day");
    expect(await nextDue()).toBeNull();
    await enqueue("p");
    await untilNext("day");
    expect(await claim()).toEqual([]);
    const { now } = await one<{ now: Date }>("select stillwake.now() as now");
    expect((await nextDue())!.getTime()).toBeGreaterThan(now.getTime());
  });

  it("never resumes a pool that an operator paused, before or after", async () => {
    await register("p");
    await sql.query("select stillwake.pause_pool('scan', 'looking into it', 'ann')");
    await spendIn("pool", 2);
    await setBudget("pool", "scan", 1);
    await setBudget("pool", "scan", 5);
    expect(await pool()).toMatchObject({ paused_by: "ann", pause_reason: "looking into it" });
    await sql.query("select stillwake.resume_pool('scan')");
    await setBudget("pool", "scan", 1);
    expect((await pool()).paused_by).toBe("budget");
    // Also if the operator is called like the pauses of budgets.
    await sql.query("select stillwake.pause_pool('scan', 'mine now', 'budget')");
    await setBudget("pool", "scan", null);
    expect(await pool()).toMatchObject({ paused_by: "budget", pause_reason: "mine now" });
    await untilNext("month");
    expect(await claim()).toEqual([]);
  });

  it("of a day counts only the cost since midnight of a machine that runs longer", async () => {
    await register("p");
    await untilNext("day");
    await travel(sql, "23h");
    await setBudget("pool", "scan", 50, "day");
    const { life } = (await startMachine())!;
    await travel(sql, "2h");
    const state = () => one<{ spent: string }>("select spent from stillwake.budget_state('pool', 'scan')");
    expect(Number((await state()).spent)).toBeCloseTo(36, 0);
    await end(life);
    expect(Number((await state()).spent)).toBeCloseTo(36, 0);
  });

  it("rejects invalid values", async () => {
    await register("p");
    for (const [scope, name, amount, period] of [
      ["fleet", "scan", 1, "month"],
      ["pool", "", 1, "month"],
      ["pool", "scan", -1, "month"],
      ["pool", "scan", Number.NaN, "month"],
      ["pool", "scan", Number.POSITIVE_INFINITY, "month"],
      ["pool", "scan", 1, "year"],
    ] as const)
      await expect(setBudget(scope, name, amount, period)).rejects.toMatchObject({ code: "SW001" });
    await expect(setBudget("pool", "scam", 1)).rejects.toMatchObject({ code: "SW003" });
  });
});

describe("the budget of a tenant", () => {
  it("holds its jobs as paused with reason and time, and needs no machine for them; other tenants continue", async () => {
    await register("p");
    await spend(200, "acme");
    const heldJob = await enqueue("p", { tenant: "acme" });
    const free = await enqueue("p", { tenant: "globex" });
    const nobodys = await enqueue("p");
    await setBudget("tenant", "acme", 1.5);
    const { state, pause, run_at } = await one<{ state: string; pause: object; run_at: Date }>(
      "select state, pause, run_at from stillwake.jobs where id = $1",
      [heldJob],
    );
    expect({ state, pause }).toEqual({
      state: "paused",
      pause: { reason: "The budget for this month is used up", resume_at: expect.any(String) },
    });
    expect(run_at).toEqual(await monthEnd());
    expect(await demand()).toMatchObject({ claimable: 2 });
    const claimed = await claim(10);
    expect(new Set(claimed.map(({ job_id }) => job_id))).toEqual(new Set([free, nobodys]));
    expect(await demand()).toMatchObject({ claimable: 0 });
    expect(await claim(10)).toEqual([]);
    for (const job of claimed) await complete(job);
    expect(await nextDue()).toEqual(await monthEnd());
    expect(await one("select wanted from stillwake.wanted_workers where pool = 'scan'")).toEqual({ wanted: 0 });
    await untilNext("month");
    expect((await claim(10)).map(({ job_id }) => job_id)).toEqual([heldJob]);
  });

  it("releases the jobs when it is raised or removed, and leaves no row for a tenant without a weight", async () => {
    await register("p");
    await spend(200, "acme");
    await enqueue("p", { tenant: "acme" });
    await sql.query("select stillwake.set_weight('heavy', 5)");
    for (const tenant of ["acme", "heavy"]) await setBudget("tenant", tenant, 0);
    expect(await claim()).toEqual([]);
    await setBudget("tenant", "acme", 3);
    await setBudget("tenant", "heavy", null);
    expect((await sql.query("select name, weight, held_until from stillwake.tenants")).rows).toEqual([
      { name: "heavy", weight: 5, held_until: null },
    ]);
    expect(await claim()).toHaveLength(1);
  });

  it("keeps the tenant's weight during a hold, and removing the weight does not end the hold", async () => {
    await register("p");
    await setBudget("tenant", "acme", 0);
    await sql.query("select stillwake.set_weight('acme', 7)");
    await sql.query("select stillwake.set_weight('acme', 1)");
    await enqueue("p", { tenant: "acme" });
    expect(await claim()).toEqual([]);
  });

  it("lets running jobs finish and counts them", async () => {
    await register("p");
    const { life, machine } = (await startMachine())!;
    await enqueue("p", { tenant: "acme" });
    await enqueue("p", { tenant: "acme" });
    const [running] = await claim(1, machine);
    await setBudget("tenant", "acme", 0.5);
    await travel(sql, "60s");
    expect(await check()).toEqual([
      { act: "held", note: "tenant acme: The budget is used up: $0.60 of $0.50 this month" },
    ]);
    expect(await claim(1, machine)).toEqual([]);
    await complete(running!);
    await end(life);
    expect(
      Number((await one<{ spent: string }>("select spent from stillwake.budget_state('tenant', 'acme')")).spent),
    ).toBeCloseTo(0.6, 9);
  });

  it("holds jobs that have no lane yet", async () => {
    await register("p");
    await fill("p", 5);
    await sql.query(
      "update stillwake.live_jobs set tenant = 'acme' where id in (select id from stillwake.live_jobs limit 3)",
    );
    await sql.query("select stillwake.lane_pool('scan')");
    await setBudget("tenant", "acme", 0);
    expect(await demand()).toMatchObject({ claimable: 2 });
    expect(await claim(10)).toHaveLength(2);
    expect(await demand()).toMatchObject({ claimable: 0 });
    expect(await nextDue()).not.toBeNull();
    await setBudget("tenant", "acme", null);
    expect(await demand()).toMatchObject({ claimable: 3 });
    expect(await claim(10)).toHaveLength(3);
  });

  it("does not starve other tenants behind a long queue of held jobs, and notifies their workers", async () => {
    await register("p");
    await fill("p", 2500, { tenant: "acme" });
    await travel(sql, "1s");
    for (let tenant = 0; tenant < 80; tenant++) await setBudget("tenant", `held-${tenant}`, 0);
    for (let tenant = 0; tenant < 80; tenant++) await enqueue("p", { tenant: `held-${tenant}` });
    await setBudget("tenant", "acme", 0);
    const { now } = await one<{ now: Date }>("select stillwake.now() as now");
    expect(await nextDue()).toEqual(await monthEnd());
    const id = await enqueue("p", { tenant: "zz" });
    expect((await nextDue())!.getTime()).toBeLessThanOrEqual(now.getTime() + 1000);
    expect(await demand()).toMatchObject({ claimable: 1 });
    expect((await claim(10)).map(({ job_id }) => job_id)).toEqual([id]);
  });
});

describe("claims, demand and the next due time against an oracle", () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1e9);

  it(`agree for random holds and queues (seed ${seed})`, async () => {
    const random = seededRandom(seed);
    const whole = (most: number) => Math.floor(random() * most);
    const rounds = FULL ? 60 : 8;
    for (let round = 0; round < rounds; round++) {
      await sql.query(
        "truncate stillwake.live_jobs, stillwake.leases, stillwake.tenants, stillwake.pipelines, stillwake.pools, stillwake.budgets",
      );
      await register("plain");
      await register("gated", { concurrency: 1000 });
      const tenants = Array.from({ length: 1 + whole(90) }, (_, at) => `t${at}`);
      const heldTenants = new Set(tenants.filter(() => random() < 0.6));
      const jobs = 1 + whole(round % 4 === 3 ? 3000 : 300);
      const big = tenants[whole(tenants.length)]!;
      await sql.query(`select setseed($1)`, [(seed % 1000) / 1000]);
      // In one SQL statement: run_at around now, some priorities, one tenant with most jobs.
      for (const pipeline of ["plain", "gated"])
        await sql.query(
          "select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::integer) n), jsonb_build_object('tenants', $3::jsonb))",
          [
            pipeline,
            jobs,
            JSON.stringify(
              Array.from({ length: jobs }, () =>
                random() < 0.1 ? null : random() < 0.5 ? big : tenants[whole(tenants.length)],
              ),
            ),
          ],
        );
      await sql.query(
        "update stillwake.live_jobs set run_at = run_at + (floor(random() * 7) - 4 + $1) * interval '10 seconds', priority = floor(random() * 2)",
        [whole(2) * 4],
      );
      await sql.query("update stillwake.live_jobs set run_at = run_at + interval '5 seconds' where tenant = any ($1)", [
        [...heldTenants],
      ]);
      await sql.query("analyze stillwake.live_jobs");
      for (const tenant of heldTenants)
        await sql.query(
          "insert into stillwake.tenants (name, held_until, hold_reason) values ($1, stillwake.now() + $2 * interval '1 second', 'x')",
          [tenant, 1 + whole(100)],
        );
      const truth = await one<{ due: number; next: Date | null }>(
        `select count(*) filter (where l.run_at <= n.at and t.name is null)::integer as due, min(greatest(l.run_at, t.held_until)) as next
        from (select stillwake.now() as at) n cross join stillwake.live_jobs l left join stillwake.tenants t on t.name = l.tenant and t.held_until > n.at`,
      );
      const { now } = await one<{ now: Date }>("select stillwake.now() as now");
      const due = await nextDue();
      if (truth.due > 0) expect(due!.getTime()).toBeLessThanOrEqual(now.getTime());
      else expect(due).toEqual(truth.next);
      expect((await demand()).claimable).toBe(Math.min(1000, truth.due));
      let taken = 0;
      for (;;) {
        const got = await claim(1 + whole(400));
        if (got.length === 0) break;
        taken += got.length;
        for (const { tenant } of got) expect(heldTenants.has(tenant!)).toBe(false);
      }
      // The gated pool has a concurrency limit.
      const { most } = await one<{ most: number }>(
        "select (select count(*) from stillwake.live_jobs where lease_id is not null and pipeline = 'gated')::integer as most",
      );
      expect(taken === truth.due || most === 1000).toBe(true);
    }
  });
});

describe("performance", () => {
  it("checking 1,000 budgets with 100,000 cost rows is fast", async () => {
    await register("p");
    await startClock(sql);
    const rows = FULL ? 100_000 : 20_000;
    await sql.query(
      `insert into stillwake.machine_costs (life, day, pool, pipeline, tenant, jobs, busy_seconds, idle_seconds, amount)
      select gen_random_uuid(), (stillwake.now() at time zone 'UTC')::date - n % 28, 'scan', 'p', 't' || n % 1000, 1, 300, 60, 0.01 from generate_series(1, $1::integer) n`,
      [rows],
    );
    await sql.query(
      `insert into stillwake.spending (scope, name, day, amount)
      select 'tenant', tenant, day, sum(amount) from stillwake.machine_costs group by 2, 3 union all select 'pool', pool, day, sum(amount) from stillwake.machine_costs group by 2, 3`,
    );
    await sql.query(
      "insert into stillwake.budgets (scope, name, amount, updated_at) select 'tenant', 't' || n, 1000, stillwake.now() from generate_series(0, 999) n",
    );
    await sql.query("analyze stillwake.machine_costs, stillwake.spending, stillwake.budgets");
    const many = await timed(() => sql.query("select stillwake.check_budgets()"));
    await sql.query("delete from stillwake.budgets where name <> 't7'");
    const few = await timed(() => sql.query("select stillwake.check_budgets()"));
    const month = await timed(() =>
      sql.query("select stillwake.costs(stillwake.now() - interval '28 days', null, 'tenant')"),
    );
    await sql.query("delete from stillwake.budgets");
    const none = await timed(() => sql.query("select stillwake.check_budgets()"));
    recordFigure("budgets: look at 1,000", many, "ms", `${rows} rows of cost`);
    recordFigure("budgets: look at 1", few, "ms");
    recordFigure("budgets: look at none", none, "ms");
    recordFigure("costs: a month by tenant", month, "ms", `${rows} rows of cost`);
    // A budget reads the sums, not the rows.
    expect(few).toBeLessThan(Math.max(20, month));
  });
});

describe("erasing a tenant", () => {
  it("removes its name from costs, sums and budgets, and keeps the pool's sum", async () => {
    await register("p");
    await spend(100, "acme");
    await setBudget("tenant", "acme", 0.5);
    let erased = { over: false, objects: [] as string[] };
    while (!erased.over)
      erased = await one("select over, objects from stillwake.erase_tenant('acme', 500, $1)", [erased.objects]);
    for (const table of ["machine_costs", "machine_jobs", "spending", "budgets", "tenants", "machine_lives", "pools"]) {
      const { rows } = await sql.query(`select t::text as row from stillwake.${table} t where t::text like '%acme%'`);
      expect(rows).toEqual([]);
    }
    expect(
      (await sql.query("select name, amount::float as amount from stillwake.costs('-infinity', null, 'pool')")).rows,
    ).toEqual([{ name: "scan", amount: 1 }]);
  });
});

/** Advances the clock to the start of the next day or month (UTC). */
async function untilNext(period: "day" | "month"): Promise<void> {
  const { left } = await one<{ left: number }>(
    `select extract(epoch from date_trunc($1, n) + ('1 ' || $1)::interval - n)::float as left from (select stillwake.now() at time zone 'UTC' as n) x`,
    [period],
  );
  await travel(sql, `${Math.ceil(left * 1000)}ms`);
}

async function spendIn(scope: string, amount: number): Promise<void> {
  await sql.query(
    "insert into stillwake.spending (scope, name, day, amount) values ($1, 'scan', (stillwake.now() at time zone 'UTC')::date, $2)",
    [scope, amount],
  );
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let time = 0; time < 5; time++) {
    const from = performance.now();
    await act();
    times.push(performance.now() - from);
  }
  return Math.round(Math.min(...times) * 100) / 100;
}
