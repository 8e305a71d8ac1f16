// One tenant has far more jobs than all others together. The others wait for their turn and not for its backlog. The
// bound is the number of jobs started before theirs; times depend on the machine and are only recorded.
import path from "node:path";
import { describe, expect, it } from "vitest";
import { createStillwake, type PipelineOptions, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement, type JobContext } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL, recordTimes } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startWorker } from "../support/processes/workers.ts";

const { database, stillwake, name, start, query } = await inProcessFixture();
/** A database in which nothing else runs. */
const separateDatabase = await freshDatabase();
const HOT = FULL ? 100_000 : 20_000;
const SMALL = 50;
const SLOTS = 16;
/** One job of every tenant, and the jobs of the two claims that a worker may have in flight. */
const ROTATION = SMALL + 1 + SLOTS;

interface TenantInput {
  tenant: string;
}

interface Scenario {
  hot: number;
  contract?: PipelineOptions<TenantInput, TenantInput>;
  /** What a job does. */
  code?(job: JobContext, input: TenantInput): unknown;
}

interface RunResult {
  pool: string;
  /** For each small tenant: how many jobs were started between the enqueue and the start of its job. */
  before: number[];
}

/** The jobs of one hot tenant, if any, and one job of each small tenant: ten at the start, the others during the run. */
async function runTenants({ hot, contract: options = {}, code }: Scenario): Promise<RunResult> {
  const pool = name();
  const contract = pipeline<TenantInput>(pool, { tenant: ({ tenant }) => tenant, ...options, pool });
  const started: string[] = [];
  const waiting = new Map<string, number>();
  const before: number[] = [];
  const enqueues: Promise<void>[] = [];
  let enqueued = 0;
  async function enqueueSmall(): Promise<void> {
    const tenant = `small ${++enqueued}`;
    await stillwake.enqueue(contract, { tenant });
    // The claim may be faster than the response to the enqueue.
    if (started.includes(tenant)) before.push(0);
    else waiting.set(tenant, started.length);
  }
  const recordStart = (tenant: string) => {
    const since = waiting.get(tenant);
    if (since !== undefined) before.push(started.length - since);
    started.push(tenant);
    if (enqueued < SMALL && (hot === 0 || started.length % Math.floor(hot / SMALL) === 0))
      enqueues.push(enqueueSmall());
  };
  await stillwake.enqueueMany(contract, new Array(hot).fill({ tenant: "hot" }));
  for (let n = 0; n < 10; n++) await enqueueSmall();
  const run = async (job: JobContext, input: TenantInput) => {
    recordStart(input.tenant);
    await code?.(job, input);
  };
  const { worker } = await start([implement(contract, run)], { pool, slots: SLOTS });
  const all = hot + SMALL;
  await waitFor(() => started.length >= all, { timeout: 240_000, interval: 20, what: `${all} jobs to start` });
  await Promise.all(enqueues);
  await worker.stop();
  expect(before).toHaveLength(SMALL);
  return { pool, before };
}

async function waitsOf(pool: string, hot: boolean): Promise<number[]> {
  const rows = await query<{ ms: string }>(
    `select extract(epoch from claimed_at - created_at) * 1000 as ms from stillwake.ended_jobs where pool = $1 and (tenant = 'hot') = $2`,
    [pool, hot],
  );
  return rows.map(({ ms }) => Number(ms));
}

describe("one hot tenant", { timeout: 300_000 }, () => {
  it("delays other tenants by at most one rotation", async () => {
    const withoutHot = await runTenants({ hot: 0 });
    const withHot = await runTenants({ hot: HOT });
    recordTimes(`wait of ${SMALL} tenants by themselves`, await waitsOf(withoutHot.pool, false));
    recordTimes(`wait of ${SMALL} tenants beside ${HOT} jobs of another`, await waitsOf(withHot.pool, false));
    recordTimes(`wait of the hot tenant's ${HOT} jobs`, await waitsOf(withHot.pool, true));
    const maximum = Math.max(...withHot.before);
    recordFigure(
      `jobs started before that of a small tenant, of ${HOT}`,
      maximum,
      "",
      `at most; a rotation is ${ROTATION}`,
    );
    expect(maximum).toBeLessThanOrEqual(ROTATION);
  });

  it("with a key limit of four never has more than four running jobs, and delays no other tenant", async () => {
    let active = 0;
    let maximum = 0;
    const { pool, before } = await runTenants({
      hot: HOT / 10,
      contract: { key: ({ tenant }) => tenant, keyLimit: 4, onConflict: "wait" },
      async code(_job, { tenant }) {
        if (tenant !== "hot") return;
        active += 1;
        maximum = Math.max(maximum, active);
        await new Promise(setImmediate);
        active -= 1;
      },
    });
    recordTimes(`wait of ${SMALL} tenants beside one with a limit`, await waitsOf(pool, false));
    expect(maximum).toBe(4);
    expect(Math.max(...before)).toBeLessThanOrEqual(ROTATION);
  });

  it("delays no other tenant in a worker with few slots and separate runners", async () => {
    buildPackage();
    const tenants = 10;
    const slots = 4;
    await stillwake.register(pipeline("nothing"));
    await stillwake.enqueueMany(
      "nothing",
      Array.from({ length: FULL ? 4000 : 800 }, () => null),
      { tenant: "hot" },
    );
    const pipelines = path.join(ROOT, "test/fixtures/pipelines/tenants.mjs");
    await startWorker({ url: database.url, pipelines, args: ["--slots", String(slots)] });
    const claimed = "from stillwake.jobs where pool = 'default' and claimed_at";
    const before: number[] = [];
    const waits: number[] = [];
    for (let n = 0; n < tenants; n++) {
      const { id } = await stillwake.enqueue("nothing", null, { tenant: `small ${n}` });
      const [earlier] = await query<{ count: number }>(`select count(*)::integer ${claimed} is not null`);
      await stillwake.wait(id);
      const [job] = await query<{ before: number; ms: string }>(
        `select (select count(*)::integer ${claimed} < j.claimed_at) as before, extract(epoch from j.claimed_at - j.created_at) * 1000 as ms
        from stillwake.ended_jobs j where j.id = $1`,
        [id],
      );
      before.push(job!.before - earlier!.count);
      waits.push(Number(job!.ms));
    }
    const [left] = await query<{ count: number }>(
      "select count(*)::integer from stillwake.live_jobs where tenant = 'hot'",
    );
    recordTimes("wait of 10 tenants in a worker of 4 slots", waits);
    expect(left!.count).toBeGreaterThan(0);
    expect(Math.max(...before)).toBeLessThanOrEqual(2 + slots);
  });

  it("does not delay a job that is queued again: after a failure, a sleep or a delay", async () => {
    const pool = name();
    const contract = pipeline<TenantInput>(pool, {
      pool,
      tenant: ({ tenant }) => tenant,
      retry: { initial: "600ms", max: "600ms" },
    });
    const behaviours: Record<string, (job: JobContext) => unknown> = {
      fails: (job) => {
        if (job.attempt === 1) throw new Error("once");
      },
      sleeps: (job) => job.sleep("a while", "400ms"),
    };
    await stillwake.enqueueMany(contract, new Array(HOT / 2).fill({ tenant: "hot" }));
    for (const tenant of ["fails", "sleeps"]) await stillwake.enqueue(contract, { tenant });
    await stillwake.enqueue(contract, { tenant: "delayed" }, { delay: "500ms" });
    await start([implement(contract, (job, { tenant }) => behaviours[tenant]?.(job))], { pool, slots: SLOTS });
    const rows = await waitFor(
      async () => {
        const ended = await query<{ tenant: string; before: number; left: number }>(
          `select s.tenant, (select count(*)::integer from stillwake.jobs h where h.pool = $1 and h.claimed_at >= s.due_at and h.claimed_at < s.claimed_at) as before,
            (select count(*)::integer from stillwake.live_jobs h where h.pool = $1 and h.tenant = 'hot') as left
          from (
            select e.*, coalesce((select a.ended_at + interval '600 ms' from stillwake.ended_attempts a where a.job_id = e.id and a.outcome = 'failed'), e.run_at) as due_at
            from stillwake.ended_jobs e where e.pool = $1 and e.tenant <> 'hot'
          ) s`,
          [pool],
        );
        return ended.length === 3 && ended;
      },
      { timeout: 60_000, interval: 10 },
    );
    expect(rows[0]!.left).toBeGreaterThan(0);
    // Four tenants, and the claims that started before it was due.
    const late = rows.filter(({ before }) => before > 4 + SLOTS);
    expect(late).toEqual([]);
  });
});

describe("weights", { timeout: 120_000 }, () => {
  it.each([[SLOTS], [200]])("of 3 and 1 give 3 times the share, in a worker with %i slots", async (slots) => {
    const pool = name();
    const contract = pipeline<TenantInput>(pool, { pool, tenant: ({ tenant }) => tenant });
    const started: string[] = [];
    await stillwake.flow.weigh("heavy", 3);
    for (const tenant of ["light", "heavy"]) {
      await stillwake.enqueueMany(contract, new Array(4000).fill({ tenant }));
    }
    await start([implement(contract, (_job, { tenant }) => void started.push(tenant))], { pool, slots });
    // Both have work until here.
    await waitFor(() => started.length >= 4000, { timeout: 60_000, interval: 5 });
    await stillwake.flow.weigh("heavy", 1);
    const heavy = started.slice(0, 4000).filter((tenant) => tenant === "heavy").length;
    const ratio = heavy / (4000 - heavy);
    recordFigure(`fairness: share of a tenant of weight 3, ${slots} slots`, Math.round(ratio * 100) / 100, "×");
    expect(ratio).toBeGreaterThan(2.7);
    expect(ratio).toBeLessThan(3.3);
  });
});

describe("a turn", { timeout: 120_000 }, () => {
  it("needs no shared row: eight workers drain a pool of tenants without writing a common row", async () => {
    const pool = name();
    const contract = pipeline<TenantInput>(pool, { pool, tenant: ({ tenant }) => tenant });
    const producer = createStillwake({ url: separateDatabase.url });
    await producer.flow.weigh("tenant 1", 2);
    await producer.enqueueMany(
      contract,
      Array.from({ length: 4000 }, (_, n) => ({ tenant: `tenant ${n % 40}` })),
    );
    // The statistics of a session are complete when it has ended.
    await producer.close();
    const observer = await connect(separateDatabase.url);
    const send = async (text: string, values: unknown[] = []) => (await observer.query(text, values)).rows;
    const shared = ["pipelines", "pools", "tenants"];
    const versions = () =>
      send(
        `${shared.map((table) => `select '${table}', xmin, ctid::text, t::text from stillwake.${table} t`).join(" union all ")} order by 1, 4`,
      );
    const writes = async (): Promise<number[]> => {
      const text = `select n_tup_ins + n_tup_upd + n_tup_del as writes from pg_stat_user_tables where schemaname = 'stillwake' and relname = any ($1) order by relname`;
      return (await send(text, [shared])).map((row) => Number(row.writes));
    };
    await waitFor(async () => (await writes()).every((count) => count > 0));
    const before = { versions: await versions(), writes: await writes() };
    let done = 0;
    const workers = await Promise.all(
      Array.from({ length: 8 }, () =>
        start([implement(contract, () => void done++)], { url: separateDatabase.url, pool, slots: 4 }),
      ),
    );
    await waitFor(() => done >= 4000, { timeout: 60_000, interval: 10 });
    await Promise.all(workers.map(({ worker }) => worker.stop()));
    const counted = "select n_tup_upd::integer as count from pg_stat_user_tables where relname = 'live_jobs'";
    await waitFor(async () => (await send(counted))[0].count >= 4000, { what: "the statistics of all sessions" });
    expect(await versions()).toEqual(before.versions);
    expect(await writes()).toEqual(before.writes);
    const claimers = await send("select count(distinct worker)::integer as count from stillwake.ended_jobs");
    expect(claimers[0].count).toBeGreaterThan(1);
  });
});
