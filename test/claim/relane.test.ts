// Jobs in the wrong lane or in none: enqueued before their pool got lanes or their pipeline got or lost its cap, or
// after that by a transaction that did not see it. Claims find all of them; no test here calls the watchdog, except to
// show that it has nothing to do with it.
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, start, name } = await inProcessFixture();
const sql = await connect(database.url);

async function claim(pool: string, pipelines: string[], limit = 100): Promise<string[]> {
  const { rows } = await sql.query("select job_id from stillwake.claim('w', $1, $2, $3)", [pool, pipelines, limit]);
  return rows.map(({ job_id }) => job_id);
}

/** In the order of their ids. Claims again after one that came back short, as a worker does while next_due() is past. */
async function claimAll(pool: string, pipelines: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (let tries = 0; tries < 20; tries++) {
    ids.push(...(await claim(pool, pipelines)));
    const { rows } = await sql.query("select stillwake.next_due(array[$1], $2) <= stillwake.now() as due", [
      pool,
      pipelines,
    ]);
    if (!rows[0].due) break;
  }
  return ids.sort();
}

async function register(pipeline: string, settings: object): Promise<void> {
  await sql.query("select stillwake.register_pipeline($1, $2)", [pipeline, settings]);
}

async function enqueue(pipeline: string, options: object = {}, by: pg.Client = sql): Promise<string> {
  const { rows } = await by.query("select stillwake.enqueue($1, '{}', $2) as id", [pipeline, options]);
  return rows[0].id;
}

async function enqueueMany(pipeline: string, count: number, options: object = {}): Promise<string[]> {
  const { rows } = await sql.query(
    "select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::integer) n), $3) as ids",
    [pipeline, count, options],
  );
  return rows[0].ids;
}

describe("a worker that lives", () => {
  it("runs the jobs that waited when their pipeline got a cap, and when it lost it", { timeout: 30_000 }, async () => {
    const own = name();
    const plain = pipeline(own, { pool: own });
    const before = await stillwake.enqueueMany(plain, [1, 2, 3, 4, 5]);
    const capped = pipeline(own, { pool: own, concurrency: 2 });
    await start([implement(capped, async () => "done")]);
    const after = await stillwake.enqueueMany(capped, [6, 7]);
    const ended = async (jobs: { id: string }[]) =>
      (await Promise.all(jobs.map(({ id }) => stillwake.get(id)))).every(({ state }) => state === "completed");
    await waitFor(() => ended([...before, ...after]));

    await sql.query("select stillwake.pause_pool($1)", [own]);
    const waiting = await stillwake.enqueueMany(capped, [8, 9, 10]);
    await register(own, { concurrency: 0 });
    await sql.query("select stillwake.resume_pool($1)", [own]);
    await waitFor(() => ended(waiting));
  });
});

describe("claims", () => {
  it("find jobs of a pipeline that got a cap, and respect the cap", async () => {
    const own = name();
    await register(own, { pool: own });
    await enqueueMany(own, 5);
    await register(own, { concurrency: 2 });
    expect(await claimAll(own, [own])).toHaveLength(2);
  });

  it("find jobs that wait in the lanes of tenants when their pipeline gets a cap", async () => {
    const [pool, other] = [name(), name()];
    await register(pool, { pool });
    await register(other, { pool });
    await enqueueMany(other, 1500, { tenant: "a" });
    const jobs = await enqueueMany(pool, 3, { tenant: "a" });
    await register(pool, { concurrency: 1000 });
    // Behind more jobs of a pipeline that this worker does not run than one claim looks at.
    expect(await claimAll(pool, [pool])).toEqual(jobs.sort());
  });

  it("find jobs of a pipeline that lost its cap", async () => {
    const own = name();
    await register(own, { pool: own, concurrency: 1 });
    const jobs = await enqueueMany(own, 5);
    await register(own, { concurrency: 0 });
    expect(await claimAll(own, [own])).toEqual(jobs.sort());
  });

  it("count them as demand, so that a machine is started for them", async () => {
    const own = name();
    await register(own, { pool: own });
    await enqueueMany(own, 5);
    await register(own, { concurrency: 3 });
    const demand = "select claimable, next_due <= stillwake.now() as due from stillwake.demand(array[$1])";
    expect((await sql.query(demand, [own])).rows).toEqual([{ claimable: 3, due: true }]);
  });

  it("move a bounded portion each", async () => {
    const own = name();
    await register(own, { pool: own });
    await enqueueMany(own, 1000);
    await register(own, { concurrency: 1000 });
    const withoutLane = async () =>
      (
        await sql.query("select count(*)::integer as n from stillwake.live_jobs where pool = $1 and lane is null", [
          own,
        ])
      ).rows[0].n;
    expect(await claim(own, [own], 1)).toHaveLength(1);
    const left = await withoutLane();
    recordFigure("lanes: jobs that one claim moves to their lanes", 1000 - left);
    expect(left).toBeGreaterThan(700);
    expect(left).toBeLessThan(1000);
    expect(await claimAll(own, [own])).toHaveLength(999);
  });
});

describe("an enqueue in a transaction that stays open for more than ten minutes", () => {
  it("while its pool gets lanes is claimed after its commit", async () => {
    const own = name();
    await register(own, { pool: own });
    const open = await connect(database.url);
    await open.query("begin");
    const id = await enqueue(own, {}, open);
    await register(`${own}-capped`, { pool: own, concurrency: 2 });
    for (const time of ["5m", "6m"] as const) {
      await travel(sql, time);
      await sql.query("select from stillwake.watchdog()");
    }
    await open.query("commit");
    const later = await enqueue(own);
    expect(await claimAll(own, [own])).toEqual([id, later].sort());
  });

  it.each([
    ["a worker of that pipeline", (own: string) => [own]],
    ["a worker of all pipelines", (own: string) => [own, `${own}-other`]],
  ])("while its pipeline gets a cap, in a pool with tenants, is claimed by %s", async (_, known) => {
    const own = name();
    await register(own, { pool: own });
    await register(`${own}-other`, { pool: own });
    await enqueue(own, { tenant: "b" });
    expect(await claimAll(own, known(own))).toHaveLength(1);
    const open = await connect(database.url);
    await open.query("begin");
    const id = await enqueue(own, { tenant: "a" }, open);
    await register(own, { concurrency: 2 });
    await claimAll(own, known(own));
    await travel(sql, "11m");
    await sql.query("select from stillwake.watchdog()");
    await open.query("commit");
    expect(await claimAll(own, known(own))).toContain(id);
  });

  it("while its pipeline loses its cap is claimed after its commit", async () => {
    const own = name();
    await register(own, { pool: own, concurrency: 2 });
    const open = await connect(database.url);
    await open.query("begin");
    const id = await enqueue(own, {}, open);
    await register(own, { concurrency: 0 });
    await claimAll(own, [own]);
    await travel(sql, "11m");
    await sql.query("select from stillwake.watchdog()");
    await open.query("commit");
    expect(await claimAll(own, [own])).toEqual([id]);
  });
});
