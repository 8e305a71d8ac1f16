// The orchestrator on a real database, with an in-memory provider whose machines are real workers. The real providers are
// tested in providers.test.ts and the files named after them.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { databaseAddress } from "../../src/db/calls/machines.ts";
import { createStillwake, pipeline } from "../../src/index.ts";
import {
  createOrchestrator,
  type Orchestrator,
  type OrchestratorEvent,
  type OrchestratorOptions,
  type PoolOptions,
  ProviderError,
} from "../../src/orchestrator/index.ts";
import { realClock } from "../../src/orchestrator/provider.ts";
import { testDatabase, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { MemoryCloud, type MemoryCloudOptions } from "../support/providers/in-memory-provider.ts";

const database = await freshDatabase();
const { url } = database;
const client = new pg.Client({ connectionString: url });
beforeAll(() => client.connect());
afterAll(() => client.end());

let made = 0;

interface Stage {
  pool: string;
  cloud: MemoryCloud;
  orchestrator: Orchestrator;
  events: OrchestratorEvent[];
  stillwake: ReturnType<typeof createStillwake>;
  enqueue(count?: number): Promise<string[]>;
  /** The lives of the pool, oldest first. */
  lives(): Promise<Record<string, unknown>[]>;
  /** Waits until all of these jobs have completed. */
  completed(ids: string[]): Promise<void>;
  /** Lets held jobs finish. */
  release(): void;
}

/** A pool with one pipeline and an orchestrator. Jobs with { hold: true } wait for release(). */
async function openPool(
  options: Partial<PoolOptions> = {},
  cloudOptions: Partial<MemoryCloudOptions> = {},
  more: Partial<OrchestratorOptions> = {},
): Promise<Stage> {
  const pool = `pool${++made}`;
  const { promise: freed, resolve: release } = deferred();
  const work = pipeline<{ hold?: boolean }>(`work${made}`, { pool });
  const implementation = implement(work, async (_job, { hold }) => {
    if (hold) await freed;
  });
  const cloud = new MemoryCloud({ url, pipelines: [implementation], reportsExits: true, ...cloudOptions });
  const events: OrchestratorEvent[] = [];
  const orchestrator = createOrchestrator({
    url,
    pools: { [pool]: { provider: cloud.provider, idleExit: "300ms", ...options } },
    onEvent: (event) => events.push(event),
    ...more,
  });
  const stillwake = createStillwake({ url, poke: () => orchestrator.poke() });
  await stillwake.register(work);
  await orchestrator.start();
  await orchestrator.settled();
  onTestFinished(async () => {
    release();
    await orchestrator.stop();
    await cloud.close();
    await stillwake.close();
  });
  return {
    pool,
    cloud,
    orchestrator,
    events,
    stillwake,
    release,
    enqueue: async (count = 1) =>
      (await stillwake.enqueueMany(work, new Array(count).fill({ hold: true }))).map(({ id }) => id),
    lives: async () =>
      (
        await client.query("select * from stillwake.machine_lives where pool = $1 order by ordinal, requested_at", [
          pool,
        ])
      ).rows,
    completed: async (ids) => {
      await waitFor(async () => {
        const { rows } = await client.query(
          "select count(*)::int as done from stillwake.jobs where id = any ($1) and state = 'completed'",
          [ids],
        );
        return rows[0].done === ids.length;
      });
    },
  };
}

const claimed = async (pool: string) =>
  (
    await client.query("select worker from stillwake.jobs where pool = $1 and state = 'running' order by worker", [
      pool,
    ])
  ).rows.map(({ worker }) => worker);

describe("an orchestrator", () => {
  it("starts a machine when a job is enqueued; the worker runs it and exits; the life is closed with its cost", async () => {
    const { pool, cloud, enqueue, release, completed, lives, orchestrator } = await openPool({ price: 0.01 });
    const ids = await enqueue();
    await waitFor(async () => (await claimed(pool)).length === 1);
    expect(await claimed(pool)).toEqual(cloud.alive);
    expect(cloud.alive[0]).toMatch(new RegExp(`^sw-${orchestrator.fleet}-${pool}-m1-\\d+$`));
    release();
    await completed(ids);
    await waitFor(async () => (await lives())[0]!.ended_at !== null);
    expect(cloud.alive).toEqual([]);
    expect((await lives())[0]).toMatchObject({
      left_reason: "idle",
      retired_at: null,
      burst: true,
      why: "1 job is waiting, room for 0",
    });
    const cost = await client.query("select * from stillwake.machine_costs where pool = $1", [pool]);
    expect(Number(cost.rows[0].amount)).toBeGreaterThan(0);
    expect(cloud.calls.filter(({ method }) => method === "remove")).toEqual([]);
  });

  it("gives N jobs N machines, warm ones first; jobs beyond max wait", async () => {
    const { pool, cloud, enqueue, release, completed, lives, events } = await openPool({ warm: 2, max: 4 });
    expect(
      [...cloud.machines.values()].map(({ state }) => state),
      "created in advance, stopped",
    ).toEqual(["stopped", "stopped"]);
    const ids = await enqueue(6);
    await waitFor(async () => (await claimed(pool)).length === 4);
    expect(new Set(await claimed(pool)).size).toBe(4);
    expect((await lives()).map(({ burst }) => burst)).toEqual([false, false, true, true]);
    await waitFor(() =>
      events.some(({ kind, level, message }) => kind === "decision" && level === "warn" && message.includes("burst")),
    );
    expect(events.some(({ message }) => message.includes("the pool is at its maximum of 4 machines"))).toBe(true);
    release();
    await completed(ids);
    await waitFor(async () => (await lives()).every(({ ended_at }) => ended_at !== null));
    expect(cloud.maxAlive).toBe(4);
    expect((await lives()).length, "the same machines did what had waited").toBe(4);
    expect([...cloud.machines.values()].filter(({ state }) => state === "stopped").length).toBe(2);
  });

  it("starts a stopped machine again under its name", async () => {
    const { pool, enqueue, release, completed, lives } = await openPool({ warm: 1, max: 1 });
    release();
    await completed(await enqueue());
    await waitFor(async () => (await lives()).every(({ ended_at }) => ended_at !== null));
    await completed(await enqueue());
    await waitFor(
      async () => (await lives()).length === 2 && (await lives()).every(({ ended_at }) => ended_at !== null),
    );
    expect(new Set((await lives()).map(({ machine }) => machine)).size).toBe(1);
    expect(pool).toBeDefined();
  });

  it("keeps a machine that is about to exit when a job arrives at that moment", async () => {
    const { cloud, enqueue, release, completed, lives } = await openPool({ max: 1 });
    release();
    const first = await enqueue();
    await completed(first);
    // Jobs in sequence until the machine is gone: whenever a job arrives, it runs, on one machine at a time.
    const rest: string[] = [];
    for (let round = 0; round < 12; round++) {
      rest.push(...(await enqueue()));
      await completed(rest);
      await new Promise((resolve) => setTimeout(resolve, 270 + round * 5));
    }
    expect(cloud.maxAlive).toBe(1);
    expect((await lives()).every(({ retired_at }) => retired_at === null)).toBe(true);
  });

  it("retries the job of a dead machine on another one at once, with the exit reason in the attempt", async () => {
    const { pool, cloud, enqueue, release, completed, lives, stillwake } = await openPool(
      {},
      { worker: { lease: "1h" } },
    );
    const ids = await enqueue();
    await waitFor(async () => (await claimed(pool)).length === 1);
    const [machine] = cloud.alive;
    const dead = cloud.machines.get(machine!)!;
    // Like kill -9 as far as the job is concerned: it is not handed back. The worker must not claim it again when a heartbeat finds the lease lost.
    void dead.worker!.drain("dead", 60_000);
    delete dead.worker;
    await cloud.exit(machine!, { oom: true, memory: "64 GB" });
    await waitFor(async () => (await claimed(pool)).some((worker) => worker !== machine));
    release();
    await completed(ids);
    const [lost] = (await stillwake.attempts(ids[0]!)).filter(({ outcome }) => outcome === "lost");
    expect(lost!.failure).toMatchObject({
      code: "MACHINE_OOM",
      message: `Machine ${machine} ran out of memory at 64 GB`,
    });
    expect((await lives())[0]).toMatchObject({ machine, exit: { oom: true } });
  });

  it("pauses after three wasted starts with a reason, and starts again when its settings change", async () => {
    const crashing: MemoryCloudOptions["onStart"] = async ({ name }, cloud) => cloud.exit(name, { code: 1 });
    const { pool, cloud, enqueue, lives, orchestrator } = await openPool({}, { onStart: crashing });
    const ids = await enqueue();
    await waitFor(async () => (await lives()).filter(({ ended_at }) => ended_at !== null).length === 3);
    orchestrator.poke();
    await orchestrator.settled();
    orchestrator.poke();
    await orchestrator.settled();
    expect(cloud.calls.filter(({ method }) => method === "start").length).toBe(3);
    const { rows } = await client.query(
      "select wasted_starts, (select state from stillwake.jobs where id = $2) as state from stillwake.pools where name = $1",
      [pool, ids[0]],
    );
    expect(rows[0]).toEqual({ wasted_starts: 3, state: "queued" });
    recordFigure("machines per job when none is of use", 3, "", "until the first pause of ten minutes");
    const mended = createOrchestrator({ url, pools: { [pool]: { provider: cloud.provider, max: 6 } } });
    await mended.once();
    await mended.stop();
    expect(cloud.calls.filter(({ method }) => method === "start").length).toBeGreaterThan(3);
  });

  it("shares a pool with a second orchestrator: each ordinal is taken once", async () => {
    const { pool, cloud, enqueue, release, completed, lives } = await openPool({ max: 3 });
    const others = Array.from({ length: 3 }, () =>
      createOrchestrator({ url, pools: { [pool]: { provider: cloud.provider, idleExit: "300ms", max: 3 } } }),
    );
    for (const other of others) await other.start();
    onTestFinished(async () => {
      for (const other of others) await other.stop();
    });
    const ids = await enqueue(5);
    for (let round = 0; round < 20; round++) for (const other of others) other.poke();
    await waitFor(async () => (await claimed(pool)).length === 3);
    release();
    await completed(ids);
    await waitFor(async () => (await lives()).every(({ ended_at }) => ended_at !== null));
    expect(cloud.maxAlive).toBeLessThanOrEqual(3);
    expect(
      new Set(cloud.calls.filter(({ method }) => method === "start").map(({ name }) => name)).size,
      "no name is started twice",
    ).toBe(cloud.calls.filter(({ method }) => method === "start").length);
  });

  it("with a rejected token reports one error, makes no further calls, and the job waits", async () => {
    const { pool, cloud, enqueue, events, lives, orchestrator } = await openPool();
    cloud.beforeCall = (method) => {
      if (method === "start")
        throw new ProviderError("auth", "The token is rejected", { certain: true, remedy: "Create a new one" });
    };
    await enqueue(3);
    await waitFor(() => events.some(({ kind, level }) => kind === "error" && level === "error"));
    await orchestrator.settled();
    const before = cloud.calls.length;
    for (let round = 0; round < 10; round++) orchestrator.poke();
    await orchestrator.settled();
    expect(cloud.calls.length).toBe(before);
    expect(await lives()).toEqual([]);
    const { rows } = await client.query("select provider_error from stillwake.pools where name = $1", [pool]);
    expect(rows[0].provider_error).toMatchObject({
      code: "PROVIDER_AUTH",
      message: "The token is rejected. Create a new one",
    });
    const inMs = Date.parse(rows[0].provider_error.until) - Date.now();
    expect(inMs).toBeGreaterThan(240_000);
    const refused = createOrchestrator({
      url,
      pools: { [pool]: { provider: cloud.provider } },
      onEvent: (event) => events.push(event),
    });
    cloud.beforeCall = () => {
      throw new ProviderError("auth", "The token is rejected", { certain: true });
    };
    events.length = 0;
    cloud.calls.length = 0;
    await refused.once();
    for (let round = 0; round < 5; round++) {
      refused.poke();
      await refused.settled();
    }
    await refused.stop();
    expect(cloud.calls.length, "one list, and a start for each job").toBeLessThanOrEqual(4);
  });

  it("never stops a machine that has a job, and a retired machine gets none", async () => {
    const { pool, enqueue, lives } = await openPool();
    await enqueue();
    await waitFor(async () => (await claimed(pool)).length === 1);
    const [life] = await lives();
    expect((await client.query("select stillwake.retire_machine($1) as may", [life!.id])).rows).toEqual([
      { may: false },
    ]);
    await client.query("insert into stillwake.pools (name) values ('retiring') on conflict do nothing");
    await client.query("select stillwake.register_pipeline('retiring', '{\"pool\": \"retiring\"}')");
    const reserved = await client.query(
      `select life, machine from stillwake.reserve_machine('retiring', 5, '{"ordinal": 1, "machine": "x-m1", "burst": false, "provider": "memory", "slots": 1, "by": "me", "why": "so"}')`,
    );
    await client.query("select stillwake.machine_registered('x-m1', 'retiring')");
    await client.query("select stillwake.enqueue('retiring', '{}')");
    expect((await client.query("select stillwake.retire_machine($1) as may", [reserved.rows[0].life])).rows).toEqual([
      { may: true },
    ]);
    expect((await client.query("select * from stillwake.claim('x-m1', 'retiring', array['retiring'])")).rowCount).toBe(
      0,
    );
    expect((await client.query("select stillwake.machine_registered('x-m1', 'retiring') as welcome")).rows).toEqual([
      { welcome: false },
    ]);
    expect(
      (await client.query("select * from stillwake.claim('worker', 'retiring', array['retiring'])")).rowCount,
    ).toBe(1);
  });

  it("wakes when a job becomes due, and for the jobs of lost workers", async () => {
    const { pool, cloud, stillwake, completed, release } = await openPool();
    release();
    const { id } = await stillwake.enqueue(`work${made}`, {}, { delay: "1s" });
    await completed([id]);
    expect(cloud.calls.filter(({ method }) => method === "start").length).toBe(1);
    await waitFor(() => cloud.alive.length === 0);
    const late = await stillwake.enqueue(`work${made}`, {}, { delay: "200ms" });
    await client.query("select pg_sleep(0.3)");
    await client.query("select * from stillwake.claim('ghost', $1, array[$2], 1, '1 second')", [pool, `work${made}`]);
    await completed([late.id]);
  });
});

describe("stopping an orchestrator", () => {
  it("closes the lives of its child machines, and their jobs wait for the next orchestrator", async () => {
    const { pool, cloud, enqueue, lives, orchestrator } = await openPool({ price: 0.01 }, { children: true });
    const [id] = await enqueue();
    await waitFor(async () => (await claimed(pool)).length === 1);
    await orchestrator.stop();
    expect(cloud.alive).toEqual([]);
    expect((await lives()).map(({ ended_at, paid_seconds }) => ended_at !== null && paid_seconds !== null)).toEqual([
      true,
    ]);
    expect((await client.query("select state, attempt from stillwake.jobs where id = $1", [id])).rows).toEqual([
      { state: "queued", attempt: 0 },
    ]);
  });
});

describe("provider failures", () => {
  it("a provider whose list hangs does not delay other pools", async () => {
    const slow = await openPool();
    slow.cloud.beforeCall = (method) =>
      method === "list" ? new Promise((resolve) => setTimeout(resolve, 20_000).unref()) : undefined;
    const other = new MemoryCloud({ url, pipelines: slow.cloud.options.pipelines, reportsExits: true });
    const both = createOrchestrator({
      url,
      pools: {
        [slow.pool]: { provider: slow.cloud.provider },
        "beside-it": { provider: other.provider, idleExit: "300ms" },
      },
    });
    onTestFinished(async () => {
      slow.cloud.beforeCall = () => {};
      await other.close();
    });
    await both.start();
    const { id } = await slow.stillwake.enqueue(`work${made}`, {}, { pool: "beside-it" });
    both.poke();
    await slow.completed([id]);
    expect(other.calls.filter(({ method }) => method === "start").length).toBe(1);
    void both.stop();
  });

  it("a removal that fails is not retried at once", async () => {
    const { cloud, pool, orchestrator } = await openPool();
    cloud.beforeCall = (method) => {
      if (method === "remove") throw new ProviderError("refused", "No", { certain: true });
    };
    const name = `sw-${orchestrator.fleet}-${pool}-m4-999`;
    cloud.machines.set(name, { name, id: "stray", state: "stopped", burst: true });
    await orchestrator.once();
    const before = cloud.calls.length;
    for (let round = 0; round < 20; round++) {
      orchestrator.poke();
      await orchestrator.settled();
    }
    expect(cloud.calls.length - before).toBeLessThanOrEqual(2);
    expect(cloud.calls.filter(({ method }) => method === "remove").length).toBeGreaterThan(0);
    cloud.beforeCall = () => {};
  });

  it("warm machines are created once the provider responds, after a failed first list", async () => {
    let failures = 2;
    const clock = {
      now: () => Date.now() * 50,
      sleep: (ms: number, signal?: AbortSignal) => realClock.sleep(ms / 50, signal),
    };
    const name = `pool${++made}`;
    const cloud = new MemoryCloud({ url, pipelines: [] });
    cloud.beforeCall = (method) => {
      if (method === "list" && failures-- > 0)
        throw new ProviderError("unreachable", "Nobody there", { certain: true });
    };
    const orchestrator = createOrchestrator({
      url,
      clock,
      pools: { [name]: { provider: cloud.provider, warm: 1, max: 1 } },
    });
    onTestFinished(() => orchestrator.stop());
    await orchestrator.start();
    await waitFor(() => cloud.machines.size === 1);
  });

  it("a pool paused by its budget starts machines again in the next period", async () => {
    const { pool, enqueue, release, completed } = await openPool();
    release();
    await client.query(
      "update stillwake.pools set paused_at = stillwake.now(), paused_by = 'budget', pause_reason = 'used up', resume_at = stillwake.now() + interval '2 seconds' where name = $1",
      [pool],
    );
    await completed(await enqueue());
  });
});

describe("a copied database", () => {
  it("is rejected until it is adopted, and then touches no machine of the original", async () => {
    const server = inject("server");
    const original = await testDatabase({ server, template: inject("template"), prefix: "original" });
    const cloud = new MemoryCloud({ url: original.url, pipelines: [] });
    const pools = { scan: { provider: cloud.provider, warm: 2, max: 2 } };
    const prod = createOrchestrator({ url: original.url, pools });
    await prod.once();
    await prod.stop();
    const copy = await testDatabase({ server, template: new URL(original.url).pathname.slice(1), prefix: "copy" });
    onTestFinished(async () => {
      await copy.drop();
      await original.drop();
    });
    const staging = createOrchestrator({ url: copy.url, pools });
    onTestFinished(() => staging.stop());
    const before = cloud.calls.length;
    await expect(staging.start()).rejects.toThrow(/looks like a copy.*stillwake fleet adopt/s);
    expect(cloud.calls.length, "no call was made").toBe(before);
    const there = await connect(copy.url);
    await there.query("select stillwake.adopt_fleet()");
    await there.end();
    await staging.once();
    expect(staging.fleet).not.toBe(prod.fleet);
    expect(cloud.calls.slice(before).flatMap(({ name }) => (name ? [name] : []))).toEqual([
      `sw-${staging.fleet}-scan-m1`,
      `sw-${staging.fleet}-scan-m2`,
    ]);
    const names = [...cloud.machines.keys()];
    expect(names.filter((name) => name.includes(prod.fleet)).length, "those of the original are as they were").toBe(2);
    recordFigure("machines of another fleet touched", 0, "", "a copy of the database, before and after it was adopted");
  });

  it("is detected by its address when its files were copied, and can be adopted as the same", async () => {
    const at = async (address: string | null) =>
      (await client.query("select * from stillwake.fleet($1)", [address])).rows[0];
    const { id } = await at(null);
    expect(await at(null)).toMatchObject({ fits: true });
    expect(await at("staging.example.com:5432/app")).toMatchObject({
      id,
      fits: false,
      why: "the machines belong to a database at local, and this is one at staging.example.com:5432/app",
    });
    await client.query("select stillwake.adopt_fleet('pooler.example.com:6543/app', true, 'me')");
    expect(await at("pooler.example.com:6543/app")).toMatchObject({ id, fits: true });
    expect(await at(null), "unchanged").toMatchObject({ id, fits: true });
    await client.query("update stillwake.fleet set addresses = array['db.example.com:5432/app']");
    expect(await at(null), "its files on another host, at a loopback address").toMatchObject({ id, fits: false });
    expect([databaseAddress("postgres://u:p@DB.example.com/app?sslmode=require"), databaseAddress(url)]).toEqual([
      "db.example.com:5432/app",
      null,
    ]);
    await client.query("update stillwake.fleet set addresses = '{local}'");
  });
});
