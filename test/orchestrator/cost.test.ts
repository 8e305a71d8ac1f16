// The cost of a life is divided exactly among jobs, pipelines, tenants and days; the rest is the pool's. Compared with an
// oracle that computes the same from the attempts.
import { beforeAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { seededRandom } from "../support/providers/fake-provider-api.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const NEAR = 9;
let number = 0;

beforeAll(() => stopClock(sql));

async function one<Row>(text: string, values: unknown[] = []): Promise<Row> {
  return (await sql.query(text, values)).rows[0] as Row;
}

/** A pool with one pipeline, whose machines have the given price. */
async function poolOf(pipelines: string[] = []): Promise<string> {
  const pool = `pool-${number++}`;
  for (const name of [pool, ...pipelines.map((suffix) => `${pool}-${suffix}`)])
    await sql.query(
      "select stillwake.register_pipeline($1, jsonb_build_object('pool', $2::text, 'backoff_initial', '0'))",
      [name, pool],
    );
  return pool;
}

interface Started {
  life: string;
  machine: string;
}

async function startMachine(pool: string, facts: object = {}): Promise<Started> {
  const ordinal = number++;
  const life = await one<Started>("select life, machine from stillwake.reserve_machine($1, 1000, $2)", [
    pool,
    {
      ordinal,
      machine: `m-${ordinal}`,
      burst: false,
      provider: "fly",
      slots: 4,
      price: 0.001,
      prices: "test",
      ...facts,
    },
  ]);
  await sql.query("select stillwake.machine_started($1, 'id')", [life.life]);
  await sql.query("select stillwake.machine_registered($1, $2, 4)", [life.machine, pool]);
  return life;
}

interface Claimed {
  job_id: string;
  epoch: string;
  lease_id: string;
}

const claim = async (machine: string, pool: string, pipelines = [pool], limit = 1): Promise<Claimed[]> =>
  (
    await sql.query("select job_id, epoch, lease_id from stillwake.claim($1, $2, $3, $4, '1 day')", [
      machine,
      pool,
      pipelines,
      limit,
    ])
  ).rows;

const complete = ({ job_id, epoch, lease_id }: Claimed) =>
  sql.query("select stillwake.complete($1, $2, $3)", [job_id, epoch, lease_id]);
const release = ({ job_id, epoch, lease_id }: Claimed) =>
  sql.query("select stillwake.release($1, $2, $3)", [job_id, epoch, lease_id]);
const enqueue = async (pipeline: string, options: object = {}): Promise<string> =>
  (await one<{ id: string }>("select stillwake.enqueue($1, '{}', $2) as id", [pipeline, options])).id;
const end = (life: string, exit: object = {}, from: Date | null = null, until: Date | null = null) =>
  sql.query("select stillwake.machine_ended($1, $2, $3, $4)", [life, exit, from, until]);

interface Cost {
  name: string | null;
  machines: string;
  jobs: string;
  busy_seconds: string;
  idle_seconds: string;
  amount: string;
}
const costs = async (
  by: string | null,
  { since = "-infinity", until = null as string | null, tenant = null as string | null } = {},
) => (await sql.query<Cost>("select * from stillwake.costs($1, $2, $3, $4)", [since, until, by, tenant])).rows;
const jobCost = async (job: string) => (await sql.query("select * from stillwake.job_cost($1)", [job])).rows;
const amountOf = (rows: { amount: string }[]) => rows.reduce((sum, row) => sum + Number(row.amount), 0);
const costOf = async (by: string, name: string | null) => (await costs(by)).find((row) => row.name === name);

describe("one machine", () => {
  it("charges a job the whole time of a machine that ran only this job, including startup and idle time", async () => {
    const pool = await poolOf();
    const job = await enqueue(pool);
    const { life, machine } = await startMachine(pool);
    await travel(sql, "10s");
    const [claimed] = await claim(machine, pool);
    await travel(sql, "5m");
    await complete(claimed!);
    await travel(sql, "60s");
    await end(life);
    const [row, ...more] = await jobCost(job);
    expect(more).toEqual([]);
    expect(row).toMatchObject({ machine, pool, provider: "fly", prices: "test", provisional: false });
    expect(Number(row.worked_seconds)).toBeCloseTo(300, NEAR);
    expect(Number(row.busy_seconds)).toBeCloseTo(300, NEAR);
    expect(Number(row.idle_seconds)).toBeCloseTo(70, NEAR);
    expect(Number(row.amount)).toBeCloseTo(0.37, NEAR);
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.37, NEAR);
  });

  it("divides the time among concurrent jobs in proportion to their run times", async () => {
    const pool = await poolOf(["a", "b"]);
    const names = [`${pool}-a`, `${pool}-b`];
    const { life, machine } = await startMachine(pool);
    const long = await enqueue(names[0]!);
    const short = await enqueue(names[1]!);
    const [first] = await claim(machine, pool, [names[0]!]);
    const [second] = await claim(machine, pool, [names[1]!]);
    await travel(sql, "100s");
    await complete(second!);
    await travel(sql, "200s");
    await complete(first!);
    await travel(sql, "100s");
    await end(life);
    // 400 s are billed, 300 of them busy; of 400 s of work the long job took 300.
    expect(Number((await jobCost(long))[0].amount)).toBeCloseTo(0.3, NEAR);
    expect(Number((await jobCost(short))[0].amount)).toBeCloseTo(0.1, NEAR);
    const mine = await costOf("pipeline", names[0]!);
    expect(Number(mine!.busy_seconds)).toBeCloseTo(225, NEAR);
    expect(Number(mine!.idle_seconds)).toBeCloseTo(75, NEAR);
  });

  it("charges a machine without a job to the pool", async () => {
    const pool = await poolOf();
    const { life } = await startMachine(pool);
    await travel(sql, "50s");
    await end(life);
    const row = await one<Cost & { pipeline: string | null }>(
      "select * from stillwake.machine_costs where pool = $1 and pipeline is null and tenant is null",
      [pool],
    );
    expect(row).toMatchObject({ jobs: 0 });
    expect(Number(row.amount)).toBeCloseTo(0.05, NEAR);
  });

  it("charges nothing for a machine that never started", async () => {
    const pool = await poolOf();
    const { life } = await one<Started>("select life from stillwake.reserve_machine($1, 10, $2)", [
      pool,
      {
        ordinal: 0,
        machine: `never-${number++}`,
        burst: true,
        provider: "cloud-run",
        slots: 1,
        price: 1,
        least_seconds: 60,
      },
    ]);
    await travel(sql, "30s");
    await end(life, { reason: "refused" });
    expect(await costOf("pool", pool)).toBeUndefined();
    expect(await one("select started_at, paid_seconds from stillwake.machine_lives where id = $1", [life])).toEqual({
      started_at: null,
      paid_seconds: "0",
    });
  });

  it("charges the minimum billed seconds from the start, and the actual time once that is longer", async () => {
    const pool = await poolOf();
    const { life } = await startMachine(pool, { least_seconds: 60 });
    await travel(sql, "20s");
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.06, NEAR);
    await end(life);
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.06, NEAR);
    const longer = await startMachine(pool, { least_seconds: 60 });
    await travel(sql, "90s");
    await end(longer.life);
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.15, NEAR);
  });

  it("divides equally among attempts without any run time", async () => {
    const pool = await poolOf();
    const { life, machine } = await startMachine(pool);
    const jobs = [await enqueue(pool), await enqueue(pool)];
    for (const claimed of await claim(machine, pool, [pool], 2)) await complete(claimed);
    await travel(sql, "10s");
    await end(life);
    for (const job of jobs) expect(Number((await jobCost(job))[0].amount)).toBeCloseTo(0.005, NEAR);
  });

  it("uses the provider's times, within plausible limits", async () => {
    const pool = await poolOf();
    const { at } = await one<{ at: Date }>("select stillwake.now() as at");
    const { life } = await startMachine(pool);
    await travel(sql, "100s");
    await end(life, {}, new Date(at.getTime() + 20_000), new Date(at.getTime() + 80_000));
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.06, NEAR);
    const odd = await startMachine(pool);
    await travel(sql, "10s");
    await end(odd.life, {}, new Date(at.getTime() - 1e9), new Date(at.getTime() + 1e9));
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.07, NEAR);
  });
});

describe("a running machine", () => {
  it("counts up to now, and the cost of its jobs is provisional", async () => {
    const pool = await poolOf();
    const { machine, life } = await startMachine(pool);
    const job = await enqueue(pool);
    await claim(machine, pool);
    await travel(sql, "40s");
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.04, NEAR);
    const [row] = await jobCost(job);
    expect(row.provisional).toBe(true);
    expect(Number(row.amount)).toBeCloseTo(0.04, NEAR);
    await end(life);
    expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(0.04, NEAR);
  });
});

describe("a job on several machines", () => {
  it("pays its part of each, also of one that died during the job", async () => {
    const pool = await poolOf();
    const job = await enqueue(pool);
    const first = await startMachine(pool);
    await claim(first.machine, pool);
    await travel(sql, "30s");
    await end(first.life, { code: 137, oom: true });
    const second = await startMachine(pool);
    await travel(sql, "5s");
    const [again] = await claim(second.machine, pool);
    expect(again).toMatchObject({ job_id: job });
    await travel(sql, "20s");
    await complete(again!);
    await end(second.life);
    const rows = await jobCost(job);
    expect(rows.map(({ machine }) => machine)).toEqual([first.machine, second.machine]);
    expect(amountOf(rows)).toBeCloseTo(0.055, NEAR);
  });

  it("has the same cost after the attempts of other jobs were deleted", async () => {
    const pool = await poolOf();
    const { machine, life } = await startMachine(pool);
    const jobs = [await enqueue(pool), await enqueue(pool)];
    const claimed = await claim(machine, pool, [pool], 2);
    await travel(sql, "60s");
    for (const one of claimed) await complete(one);
    await end(life);
    const before = await jobCost(jobs[0]!);
    await sql.query("delete from stillwake.ended_jobs where id = $1", [jobs[1]]);
    expect(await jobCost(jobs[0]!)).toEqual(before);
  });
});

describe("days", () => {
  it("a life over midnight is divided between the days and counted once in total", async () => {
    const pool = await poolOf();
    const { left } = await one<{ left: number }>(
      "select extract(epoch from date_trunc('day', n at time zone 'UTC') + interval '1 day' - n at time zone 'UTC')::float as left from (select stillwake.now() as n) x",
    );
    await travel(sql, `${Math.floor(left * 1000) - 30_000}ms`);
    const { machine, life } = await startMachine(pool);
    await enqueue(pool, { tenant: "night" });
    await claim(machine, pool);
    await travel(sql, "120s");
    const open = await sql.query(
      "select name, amount from stillwake.costs('-infinity', null, 'day', 'night') order by name",
    );
    await end(life);
    const { rows } = await sql.query(
      "select day::text as name, sum(amount) as amount, sum(jobs)::integer as jobs from stillwake.machine_costs where pool = $1 group by day order by day",
      [pool],
    );
    expect(rows).toHaveLength(2);
    expect(Number(rows[0].amount)).toBeCloseTo(0.03, 4);
    expect(amountOf(rows)).toBeCloseTo(0.12, NEAR);
    expect(rows[0].jobs + rows[1].jobs).toBe(1);
    expect(open.rows.map(({ name }) => name)).toEqual(rows.map(({ name }) => name));
    expect(Number(open.rows[1].amount)).toBeCloseTo(Number(rows[1].amount), NEAR);
    const [first] = await costs(null, {
      since: `${rows[0].name}T00:00:00Z`,
      until: `${rows[1].name}T00:00:00Z`,
      tenant: "night",
    });
    expect(Number(first!.amount)).toBeCloseTo(Number(rows[0].amount), NEAR);
  });
});

describe("the parts add up to the total", () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1e9);

  it(`for random jobs on random machines (seed ${seed})`, async () => {
    const random = seededRandom(seed);
    const whole = (most: number) => Math.floor(random() * most);
    const rounds = FULL ? 30 : 3;
    let lives = 0;
    for (let round = 0; round < rounds; round++) {
      const pool = await poolOf(["a", "b", "c"]);
      const pipelines = [`${pool}-a`, `${pool}-b`, `${pool}-c`];
      const open: (Started & { from: number; price: number; least: number })[] = [];
      const running = new Map<
        string,
        Claimed & { at: number; life: string; tenant: string | null; pipeline: string }
      >();
      const ended: { life: string; seconds: number; price: number; least: number }[] = [];
      // The oracle: run time by life and job, and duration by life.
      const work = new Map<string, Map<string, { seconds: number; attempts: number }>>();
      const about = new Map<string, { pipeline: string; tenant: string | null }>();
      let now = 0;
      const settle = async (key: string, how: (claimed: Claimed) => Promise<unknown>) => {
        const claimed = running.get(key)!;
        running.delete(key);
        await how(claimed);
        note(claimed);
      };
      const note = ({ life, job_id, at }: { life: string; job_id: string; at: number }) => {
        const jobs = work.get(life) ?? new Map<string, { seconds: number; attempts: number }>();
        const { seconds, attempts } = jobs.get(job_id) ?? { seconds: 0, attempts: 0 };
        work.set(life, jobs.set(job_id, { seconds: seconds + now - at, attempts: attempts + 1 }));
      };
      const finish = async (machine: (typeof open)[number]) => {
        for (const [key, claimed] of running) {
          if (claimed.life !== machine.life) continue;
          running.delete(key);
          note(claimed);
        }
        await end(machine.life);
        open.splice(open.indexOf(machine), 1);
        ended.push({ life: machine.life, seconds: now - machine.from, price: machine.price, least: machine.least });
      };
      for (let step = 0; step < 60; step++) {
        const act = random();
        if (act < 0.15 && open.length < 4) {
          const price = whole(1000) / 1e6;
          const least = whole(3) * 30;
          open.push({ ...(await startMachine(pool, { price, least_seconds: least })), from: now, price, least });
          lives++;
        } else if (act < 0.5 && open.length > 0) {
          const machine = open[whole(open.length)]!;
          const pipeline = pipelines[whole(3)]!;
          const tenant = [null, "t1", "t2"][whole(3)]!;
          about.set(await enqueue(pipeline, tenant ? { tenant } : {}), { pipeline, tenant });
          for (const claimed of await claim(machine.machine, pool, pipelines, 1 + whole(2)))
            running.set(`${claimed.job_id} ${claimed.epoch}`, {
              ...claimed,
              at: now,
              life: machine.life,
              ...about.get(claimed.job_id)!,
            });
        } else if (act < 0.75 && running.size > 0) {
          await settle([...running.keys()][whole(running.size)]!, random() < 0.7 ? complete : release);
        } else if (act < 0.82 && open.length > 0) {
          await finish(open[whole(open.length)]!);
        } else {
          const seconds = whole(20);
          await travel(sql, `${seconds}s`);
          now += seconds;
        }
      }
      while (open.length > 0) await finish(open[0]!);

      const paid = ended.reduce((sum, { seconds, least, price }) => sum + Math.max(seconds, least) * price, 0);
      expect(Number((await costOf("pool", pool))!.amount)).toBeCloseTo(paid, NEAR);
      const { rows } = await sql.query("select * from stillwake.machine_costs where pool = $1", [pool]);
      expect(amountOf(rows)).toBeCloseTo(paid, NEAR);
      // By job, and by pipeline and tenant.
      const expected = new Map<string, number>();
      for (const { life, seconds, least, price } of ended) {
        const jobs = work.get(life) ?? new Map<string, { seconds: number; attempts: number }>();
        const worked = [...jobs.values()].some((job) => job.seconds > 0);
        const part = (job: { seconds: number; attempts: number }) => (worked ? job.seconds : job.attempts);
        const total = [...jobs.values()].reduce((sum, job) => sum + part(job), 0);
        for (const [id, job] of jobs)
          expected.set(id, (expected.get(id) ?? 0) + (Math.max(seconds, least) * price * part(job)) / total);
      }
      const groups = new Map<string, number>();
      let jobless = 0;
      for (const [job, { pipeline, tenant }] of about) {
        const cost = amountOf(await jobCost(job));
        expect(cost).toBeCloseTo(expected.get(job) ?? 0, NEAR);
        groups.set(`${pipeline} ${tenant}`, (groups.get(`${pipeline} ${tenant}`) ?? 0) + cost);
      }
      for (const row of rows) if (row.pipeline === null) jobless += Number(row.amount);
      for (const [key, amount] of groups)
        expect(amountOf(rows.filter((row) => `${row.pipeline} ${row.tenant}` === key))).toBeCloseTo(amount, NEAR);
      expect([...groups.values()].reduce((sum, value) => sum + value, jobless)).toBeCloseTo(paid, NEAR);
      const { spent } = await one<{ spent: string }>(
        "select coalesce(sum(amount), 0) as spent from stillwake.spending where scope = 'pool' and name = $1",
        [pool],
      );
      expect(Number(spent)).toBeCloseTo(paid, NEAR);
      for (const row of rows) {
        expect(Number(row.busy_seconds)).toBeGreaterThanOrEqual(0);
        expect(Number(row.idle_seconds)).toBeGreaterThanOrEqual(-1e-9);
      }
    }
    recordFigure("cost: lives shared out against the oracle", lives);
  });
});
