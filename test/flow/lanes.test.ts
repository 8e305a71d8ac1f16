// Tenants take turns by weight, gated pipelines are skipped, caps apply to all workers together.
import { describe, expect, it } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";

const { database, stillwake, client: sql } = await connectedDatabase();
let number = 0;

interface Taken {
  job_id: string;
  epoch: string;
  lease_id: string;
  pipeline: string;
  tenant: string | null;
  cursor: string | null;
}

function worker(pool: string, pipelines: string[]) {
  let cursor: string | null = null;
  return {
    async claim(limit = 1): Promise<Taken[]> {
      const { rows } = await sql.query<Taken>(
        "select job_id, epoch, lease_id, pipeline, tenant, cursor from stillwake.claim('w', $1, $2, $3, p_cursor => $4)",
        [pool, pipelines, limit, cursor],
      );
      if (rows.length > 0) cursor = rows[0]!.cursor;
      return rows;
    },
  };
}

function fresh(): string {
  return `lane-${number++}`;
}

async function tenantsOf(claims: Taken[][]): Promise<(string | null)[]> {
  return claims.flat().map(({ tenant }) => tenant);
}

describe("tenants", () => {
  it("take turns, one job each, however many jobs a tenant has and whichever enqueued first", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, tenant: (input) => (input as string) || null });
    await stillwake.enqueueMany(contract, new Array(50).fill("big"));
    await stillwake.enqueueMany(contract, ["small", "tiny", "small", ""]);
    const { claim } = worker(name, [name]);
    const order: (string | null)[] = [];
    for (let turn = 0; turn < 10; turn++) order.push((await claim())[0]!.tenant);
    expect(new Set(order.slice(0, 4))).toEqual(new Set(["big", "small", "tiny", null]));
    expect(order.filter((tenant) => tenant === "small")).toHaveLength(2);
    expect(order.slice(6)).toEqual(["big", "big", "big", "big"]);
  });

  it("share one large claim", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, tenant: (input) => input as string });
    await stillwake.enqueueMany(contract, new Array(300).fill("big"));
    await stillwake.enqueueMany(contract, new Array(40).fill("small"));
    const { claim } = worker(name, [name]);
    const tenants = await tenantsOf([await claim(60)]);
    expect(tenants).toHaveLength(60);
    expect(tenants.filter((tenant) => tenant === "small").length).toBeGreaterThanOrEqual(28);
    expect(new Set((await claim(500)).map(({ job_id }) => job_id)).size).toBe(280);
  });

  it("have as many turns as their weight", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, tenant: (input) => input as string });
    await stillwake.flow.weigh("heavy", 3);
    await stillwake.enqueueMany(
      contract,
      Array.from({ length: 200 }, (_, index) => (index % 2 ? "heavy" : "light")),
    );
    const { claim } = worker(name, [name]);
    const order: (string | null)[] = [];
    for (let turn = 0; turn < 40; turn++) order.push((await claim())[0]!.tenant);
    expect(order.filter((tenant) => tenant === "heavy")).toHaveLength(30);
    await stillwake.flow.weigh("heavy", 1);
  });

  it("whose turn is not over continue it in the next claim, and no job is claimed twice", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, tenant: (input) => input as string });
    await stillwake.flow.weigh("heavy", 3);
    await stillwake.enqueueMany(
      contract,
      Array.from({ length: 120 }, (_, index) => ["heavy", "light", "other"][index % 3]!),
    );
    const { claim } = worker(name, [name]);
    expect((await claim(1))[0]!.tenant).toBe("heavy");
    expect(await claim(60)).toHaveLength(60);
    await stillwake.flow.weigh("heavy", 1);
    const { rows } = await sql.query(
      `select cardinality(l.job_ids) as jobs, (select count(distinct i)::integer from unnest(l.job_ids) i) as different
      from stillwake.leases l where l.pool = $1 order by 1 desc limit 1`,
      [name],
    );
    expect(rows).toEqual([{ jobs: 60, different: 60 }]);
  });

  it("respect priorities, and the order of arrival within a tenant", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, tenant: (input) => (input as string).slice(0, 1) });
    const low = await stillwake.enqueueMany(contract, ["a1", "a2", "b1"]);
    const high = await stillwake.enqueueMany(contract, ["a3", "b2"], { priority: 5 });
    const { claim } = worker(name, [name]);
    const ids = (await claim(2)).map(({ job_id }) => job_id);
    expect(new Set(ids)).toEqual(new Set(high.map(({ id }) => id)));
    const rest = (await claim(10)).map(({ job_id }) => job_id);
    expect(new Set(rest)).toEqual(new Set(low.map(({ id }) => id)));
    expect(rest.indexOf(low[0]!.id)).toBeLessThan(rest.indexOf(low[1]!.id));
  });

  it("that are added to a pool without tenants do not lose its jobs", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name });
    await stillwake.enqueueMany(contract, [1, 2, 3]);
    await stillwake.enqueue(contract, 4, { tenant: "first" });
    await sql.query("update stillwake.live_jobs set lane = null where pipeline = $1 and tenant is null", [name]);
    expect((await worker(name, [name]).claim(10)).length).toBe(4);
  });
});

describe("a cap", () => {
  it("of a pipeline applies to all claims, and its jobs do not block others", async () => {
    const pool = fresh();
    const capped = pipeline(`${pool}-capped`, { pool, concurrency: 2 });
    const free = pipeline(`${pool}-free`, { pool });
    await stillwake.register(capped, free);
    await stillwake.enqueueMany(capped, new Array(30).fill(0));
    await stillwake.enqueueMany(free, [1, 2]);
    const names = [capped.name, free.name];
    const taken = await worker(pool, names).claim(10);
    expect(taken.filter((item) => item.pipeline === capped.name)).toHaveLength(2);
    expect(taken.filter((item) => item.pipeline === free.name)).toHaveLength(2);
    expect(await worker(pool, names).claim(10)).toEqual([]);
    const entry = taken.find((job) => job.pipeline === capped.name)!;
    await sql.query("select stillwake.complete($1, $2, $3)", [entry.job_id, entry.epoch, entry.lease_id]);
    expect(await worker(pool, names).claim(10)).toHaveLength(1);
    const { rows } = await sql.query("select claimable, next_due from stillwake.demand(array[$1])", [pool]);
    expect(rows[0].claimable).toBe(0);
  });

  it("of a pool applies until it is removed", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name });
    await stillwake.register(contract);
    await stillwake.flow.cap(name, 3);
    await stillwake.enqueueMany(contract, new Array(10).fill(0));
    expect(await worker(name, [name]).claim(10)).toHaveLength(3);
    expect(await worker(name, [name]).claim(10)).toHaveLength(0);
    await stillwake.flow.cap(name, null);
    expect(await worker(name, [name]).claim(10)).toHaveLength(7);
  });

  it("applies to twenty concurrent claims", async () => {
    const pool = fresh();
    const capped = pipeline(`${pool}-capped`, { pool, concurrency: 7 });
    await stillwake.register(capped);
    await stillwake.enqueueMany(capped, new Array(100).fill(0));
    const clients = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const client = await connect(database.url);
        return client;
      }),
    );
    const claims = await Promise.all(
      clients.map((client, index) =>
        client.query("select job_id from stillwake.claim($1, $2, array[$3], 3)", [`w${index}`, pool, capped.name]),
      ),
    );
    expect(claims.flatMap(({ rows }) => rows)).toHaveLength(7);
    await Promise.all(clients.map((client) => client.end()));
  });
});

describe("a gate", () => {
  it("applies to jobs in every pool, and to jobs enqueued before it", async () => {
    const pool = fresh();
    const plain = pipeline(`${pool}-plain`, { pool });
    const moving = pipeline(`${pool}-moving`, { pool: `${pool}-own` });
    await stillwake.register(plain, moving);
    await stillwake.enqueueMany(moving, [1, 2, 3], { pool });
    await stillwake.register(pipeline(`${pool}-moving`, { pool: `${pool}-own`, concurrency: 1 }));
    const other = createStillwake({ url: database.url });
    const capped = pipeline(`${pool}-moving`, { pool: `${pool}-own`, concurrency: 1 });
    await other.register(capped);
    await other.enqueueMany(capped, [4, 5], { pool });
    await sql.query("select stillwake.watchdog()");
    expect(await worker(pool, [plain.name, moving.name]).claim(10)).toHaveLength(1);
    expect(await worker(pool, [plain.name, moving.name]).claim(10)).toHaveLength(0);
    await other.close();
  });
});

describe("the watchdog", () => {
  it("completes jobs without remaining work if `completeByProgress` is set, and ignores progress without counts", async () => {
    const name = fresh();
    const contract = pipeline(name, { pool: name, completeByProgress: true });
    const jobs = await stillwake.enqueueMany(contract, [1, 2, 3, 4]);
    const received = [{ done: 5, total: 5 }, { done: "three", total: 10 }, { total: 0 }, { done: 1, total: 5 }];
    for (const [index, progress] of received.entries()) {
      await sql.query("update stillwake.live_jobs set progress = $2 where id = $1", [jobs[index]!.id, progress]);
    }
    await sql.query("select stillwake.watchdog()");
    const states = await Promise.all(jobs.map(async ({ id }) => (await stillwake.get(id)).state));
    expect(states).toEqual(["completed", "queued", "completed", "queued"]);
  });
});
