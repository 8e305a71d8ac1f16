// The table of edge cases from end to end: an orchestrator on a real database, machines of a fake Fly, and real workers on them. What a person would see of
// each row is checked: the job, the machines, what was said. The orchestrator's waits pass fifty times as fast; the database's clock is moved where a pause counts.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import {
  type Clock,
  createOrchestrator,
  fly,
  type OrchestratorEvent,
  type PoolOptions,
  type ProviderFactory,
} from "../../src/orchestrator/index.ts";
import { realClock } from "../../src/orchestrator/provider.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import type { Duration } from "../../src/time.ts";
import { createWorker, implement, type WorkerOptions } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/aftermath.ts";
import { type Body, type End, type FakeMachine, startFakeFly } from "../support/providers/fake-fly.ts";
import { dice, type Fault } from "../support/providers/fake-provider-api.ts";

const { url } = await freshDatabase();
const client = new pg.Client({ connectionString: url });
beforeAll(() => client.connect());
afterAll(() => client.end());

const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);
const SPEED = 50;
const NOWHERE = "postgres://nobody@127.0.0.1:1/nothing";
/** How far this file's clocks have gone ahead of the real one: the database's by as much as those of the fake and the orchestrator. */
let aheadMs = 0;
let made = 0;

type MakeBody = (machine: FakeMachine) => Body | "worker";

async function open(
  options: Partial<PoolOptions> = {},
  more: { body?: MakeBody; timeout?: string; lease?: Duration } = {},
) {
  const pool = `pool${++made}`;
  const work = pipeline<{ hold: boolean }>(`work${made}`, { pool });
  let free: () => void = () => {};
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  const code = implement(work, async (_, { hold }) => {
    if (hold) await freed;
  });
  const now = () => Date.now() + aheadMs;
  const workerOn = (machine: FakeMachine, own: Partial<WorkerOptions> = {}): Body => {
    const env = machine.config.env!;
    const worker = createWorker({
      url,
      directUrl: false,
      pipelines: [code],
      machine: env.STILLWAKE_MACHINE!,
      pool: env.STILLWAKE_POOL!,
      slots: Number(env.STILLWAKE_SLOTS),
      idleExit: env.STILLWAKE_IDLE_EXIT as "1s",
      poll: "50ms",
      grace: "100ms",
      webhooks: false,
      ...(more.lease && { lease: more.lease }),
      ...own,
    });
    const exited = worker
      .start()
      .then(() => worker.done)
      .then(
        (): End => ({ code: 0 }),
        (): End => ({ code: 1 }),
      );
    return { exited, kill: () => void worker.stop() };
  };
  const fake = await startFakeFly({
    now,
    // Its limits are of its own time, in which nothing goes fifty times as fast.
    limits: false,
    onStart(machine) {
      const body = more.body?.(machine) ?? "worker";
      return body === "worker" ? workerOn(machine) : body;
    },
  });
  const events: OrchestratorEvent[] = [];
  /** Those between tries, and not the orchestrator's own. */
  const waits: number[] = [];
  const clock: Clock = { now, sleep: (ms, signal) => realClock.sleep(ms / SPEED, signal) };
  const counting: Clock = {
    now,
    sleep(ms, signal) {
      waits.push(ms);
      return clock.sleep(ms, signal);
    },
  };
  const { app, token } = fake;
  const size = { size: "performance-8x", memoryMb: 65_536, region: ["iad", "ewr"] };
  const machines = fly({ app, token, image: "workers:v1", base: fake.url, timeout: more.timeout ?? "10s", ...size });
  const provider: ProviderFactory = (context) => machines({ ...context, clock: counting });
  const orchestrator = createOrchestrator({
    url,
    pools: { [pool]: { provider, idleExit: "300ms", ...options } },
    onEvent: (event) => events.push(event),
    clock,
  });
  const stillwake = createStillwake({ url, poke: () => orchestrator.poke() });
  await stillwake.register(work);
  const stage = {
    pool,
    fake,
    events,
    waits,
    orchestrator,
    workerOn,
    free,
    now,
    start: async () => {
      await orchestrator.start();
      await orchestrator.settled();
    },
    enqueue: async (count = 1, hold = false) => {
      const inputs = Array.from({ length: count }, () => ({ hold }));
      return (await stillwake.enqueueMany(work, inputs)).map(({ id }) => id);
    },
    states: async (ids: string[]) => {
      const { rows } = await client.query("select state from stillwake.jobs where id = any ($1)", [ids]);
      return rows.map(({ state }) => state as string);
    },
    workers: async () => {
      const { rows } = await client.query("select worker from stillwake.jobs where pool = $1 and state = 'running'", [
        pool,
      ]);
      return rows.map(({ worker }) => worker as string).toSorted();
    },
    completed: (ids: string[]) =>
      waitFor(async () => (await stage.states(ids)).every((state) => state === "completed"), {
        timeout: 30_000,
        what: `${ids.length} jobs of ${pool} to be done: ${fake.alive().map(({ name, state }) => `${name} ${state}`)}`,
      }),
    said: (level: string, text: RegExp) =>
      waitFor(() => events.find((event) => event.level === level && text.test(event.message)), {
        what: `${level} ${text}, of ${JSON.stringify(events.map((event) => `${event.level}: ${event.message}`))}`,
      }),
    /** Everybody's time, at once. */
    pass: async (ms: number) => {
      await travel(url, `${ms}ms`);
      aheadMs += ms;
      orchestrator.poke();
    },
    /** Nothing runs, and no life is open. */
    atRest: () =>
      waitFor(
        async () => {
          const { rows } = await client.query(
            "select machine from stillwake.machine_lives where pool = $1 and ended_at is null",
            [pool],
          );
          const isStill = fake.alive().every(({ state }) => state === "stopped");
          // Of a machine that has left by itself nobody need hear at once: it is looked at when there is something to do, or time has passed.
          if (isStill && rows.length > 0) await stage.pass(15_000);
          return isStill && rows.length === 0;
        },
        { timeout: 30_000, what: `the machines of ${pool} to be at rest` },
      ),
  };
  onTestFinished(async () => {
    free();
    fake.calm();
    await orchestrator.stop();
    await fake.close();
    await Promise.all(fake.machines.map(({ body }) => body?.exited));
    await stillwake.close();
    expect(fake.violations).toEqual([]);
  });
  return stage;
}

const status = (code: number, more: Partial<Extract<Fault, { kind: "status" }>> = {}): Fault => ({
  kind: "status",
  status: code,
  ...more,
});

describe("the table of edge cases, from end to end", () => {
  it("all machines busy: burst machines are made up to the configured total, with a warning; what is beyond waits", async () => {
    const { start, enqueue, workers, fake, said, free, completed, atRest } = await open({ warm: 3, max: 5 });
    await start();
    await atRest();
    expect(fake.alive().map(({ state }) => state)).toEqual(["stopped", "stopped", "stopped"]);
    const ids = await enqueue(6, true);
    await waitFor(async () => (await workers()).length === 5, { timeout: 20_000 });
    expect(await workers()).toEqual(
      fake
        .alive()
        .map(({ name }) => name)
        .toSorted(),
    );
    expect(fake.alive().filter(({ config }) => config.auto_destroy)).toHaveLength(2);
    await said("warn", /start burst machine/);
    free();
    await completed(ids);
    await atRest();
    expect(fake.alive()).toHaveLength(3);
    expect(fake.most()).toBe(5);
  });

  it("API unreachable / 5xx: tried again after 1, 2 and 4 s, then said; the enqueue never fails, and the watchdog starts a machine later", async () => {
    const { start, enqueue, states, fake, said, waits, completed, pass, pool } = await open();
    await start();
    fake.chaos({ random: () => 0, chance: 1, faults: [status(503)] });
    waits.length = 0;
    const ids = await enqueue();
    await said("warn", /could not be started, as far as is known: Fly gives no answer/);
    expect(waits.slice(0, 3)).toEqual([1000, 2000, 4000]);
    expect(await states(ids)).toEqual(["queued"]);
    await waitFor(async () => {
      const { rows } = await client.query("select trouble ->> 'code' as code from stillwake.pools where name = $1", [
        pool,
      ]);
      return rows[0].code === "PROVIDER_UNREACHABLE";
    });
    fake.calm();
    await pass(70_000);
    await completed(ids);
    expect(fake.machines).toHaveLength(1);
  });

  it("429: waits Retry-After, or 2 s", async () => {
    const { start, enqueue, fake, waits, completed } = await open();
    await start();
    fake.fail("create", status(429, { retryAfter: 7 }), status(429));
    waits.length = 0;
    await completed(await enqueue());
    expect(waits).toEqual([7000, 2000]);
    expect(fake.count("create")).toBe(3);
    expect(fake.machines).toHaveLength(1);
  });

  it("a machine fails to start: another from the pool is tried", async () => {
    const { start, enqueue, fake, said, completed, atRest } = await open({ warm: 2, max: 2 });
    await start();
    await atRest();
    fake.fail("start", status(409, { message: "aborted: insufficient memory available to fulfill request" }));
    await completed(await enqueue());
    await said("warn", /m1 could not be started: .* cannot be started: 409 aborted: insufficient memory/);
    expect(fake.machines.map(({ starts }) => starts)).toEqual([1, 2]);
  });

  it("all machines fail to start: it is said, the job stays queued, and the watchdog handles it", async () => {
    const { start, enqueue, states, fake, said, completed, atRest, pass } = await open({ warm: 1, max: 2 });
    await start();
    await atRest();
    for (const region of ["iad", "ewr"]) fake.full.add(region);
    const ids = await enqueue();
    await said("warn", /Fly has no room for .* in iad, ewr/);
    expect(await states(ids)).toEqual(["queued"]);
    fake.full.clear();
    await pass(70_000);
    await completed(ids);
  });

  it("401: critical, for somebody to come; no storm of calls; the job stays queued until the token is mended", async () => {
    const { start, enqueue, states, fake, said, orchestrator, completed, pass } = await open();
    await start();
    const before = fake.calls.length;
    fake.chaos({ random: () => 0, chance: 1, faults: [status(401)] });
    const ids = await enqueue();
    const event = await said("error", /Fly refuses our token: 401/);
    expect(event.message).not.toContain(fake.token);
    for (let n = 0; n < 10; n++) {
      orchestrator.poke();
      await orchestrator.settled();
    }
    expect(fake.calls.slice(before).map(({ operation }) => operation)).toEqual(["create"]);
    expect(await states(ids)).toEqual(["queued"]);
    fake.calm();
    await pass(6 * 60_000);
    await completed(ids);
  });

  it("a machine dies before claiming: the job stays queued, and the next machine does it", async () => {
    const died: FakeMachine[] = [];
    const { start, enqueue, fake, completed, pass } = await open(
      {},
      {
        body(machine) {
          if (died.length > 0) return "worker";
          died.push(machine);
          return { exited: Promise.resolve({ code: 1 }), kill: () => {} };
        },
      },
    );
    await start();
    const ids = await enqueue();
    await waitFor(() => died.length > 0);
    // The provider is asked once nothing has been heard of it for a while.
    await pass(130_000);
    await completed(ids);
    expect(fake.machines).toHaveLength(2);
    const { rows } = await client.query("select exit from stillwake.machine_lives where machine = $1", [died[0]!.name]);
    expect(rows).toEqual([{ exit: { code: 1 } }]);
  });

  it("a machine cannot reach the database: it polls, gets errors, and exits after the idle time; the job stays queued", async () => {
    const ends: End[] = [];
    const stage = await open(
      {},
      {
        body(machine) {
          if (ends.length > 0) return "worker";
          const body = stage.workerOn(machine, { url: NOWHERE });
          void body.exited.then((end) => ends.push(end));
          return body;
        },
      },
    );
    await stage.start();
    const ids = await stage.enqueue();
    await waitFor(() => ends.length > 0, { timeout: 20_000, what: "the machine to give up" });
    expect(await stage.states(ids)).toEqual(["queued"]);
    await stage.pass(130_000);
    await stage.completed(ids);
    expect(stage.fake.machines).toHaveLength(2);
  });
});

it("a burst machine that ran out of memory is named, and its job goes on at once, without waiting for its lease", async () => {
  const { start, enqueue, workers, fake, said, free, completed, pool, pass } = await open({}, { lease: "1h" });
  await start();
  const ids = await enqueue(1, true);
  await waitFor(async () => (await workers()).length === 1, { timeout: 20_000 });
  const [name] = await workers();
  // As the kernel does it: nobody on it hears of it.
  delete fake.machine(name!).body;
  fake.exit(name!, { code: 137, oom: true });
  await pass(35_000);
  const event = await said("warn", /out of memory at 64 GB; its job goes back to the line/);
  expect(event.pool).toBe(pool);
  free();
  await completed(ids);
  const { rows } = await client.query(
    "select failure ->> 'message' as message from stillwake.ended_attempts where job_id = any ($1) and outcome = 'lost'",
    [ids],
  );
  expect(rows).toEqual([{ message: `Machine ${name} ran out of memory at 64 GB` }]);
});

const FAULTS = FULL ? 500 : 25;

it(
  `${FAULTS} random failures of the API: no machine leaked or doubled, no job left without one`,
  async () => {
    const stage = await open({ warm: 2, max: 6 }, { lease: "1h", timeout: "300ms" });
    const { fake, start, enqueue, states, pass, atRest, orchestrator } = stage;
    await start();
    await atRest();
    const faults: Fault[] = [
      ...[500, 502, 503, 408].map((code) => status(code)),
      status(422, { body: { error: "no capacity", status: "insufficient_capacity" } }),
      status(429),
      status(429, { retryAfter: 3 }),
      ...(["reset", "hang", "lost", "lost", "late", "half", "half"] as const).map((kind) => ({ kind })),
      { kind: "belated", calls: 2 },
      status(502, { done: true }),
    ];
    const random = dice(SEED);
    const ids: string[] = [];
    let struck = 0;
    const isDone = async () => (await states(ids)).every((state) => state === "completed");
    const settle = async (): Promise<void> => {
      for (let rounds = 0; !(await isDone()); rounds++) {
        expect(rounds, `seed ${SEED}: ${await states(ids)}`).toBeLessThan(400);
        await orchestrator.settled();
        // After machines that were of no use there are pauses of ten minutes and more.
        await pass(rounds < 10 ? 20_000 : 11 * 60_000);
      }
    };
    while (struck < FAULTS) {
      fake.chaos({ random, chance: 0.35, faults });
      ids.push(...(await enqueue(1 + Math.floor(random() * 5))));
      await settle();
      struck += fake.calm();
    }
    await settle();
    await fake.settled();
    // What was left over is found and removed, and what is kept warm is there. The workers' time is the real one: they need some of it between two leaps.
    const isTidy = () => fake.alive().length === 2 && fake.alive().every(({ state }) => state === "stopped");
    for (let rounds = 0; ; rounds++) {
      await orchestrator.once();
      if (await waitFor(isTidy, { timeout: 3000 }).catch(() => false)) break;
      expect(rounds, `two stopped machines, of ${fake.alive().map(({ name }) => name)}, seed ${SEED}`).toBeLessThan(12);
      await pass(11 * 60_000);
    }
    await atRest();
    expect(fake.most(), `seed ${SEED}`).toBeLessThanOrEqual(6);
    recordFigure(
      "Fly: random API failures without a leaked or doubled machine or a job left over",
      struck,
      "failures",
      `${ids.length} jobs, ${fake.machines.length} machines, ${fake.calls.length} calls, seed ${SEED}`,
    );
  },
  FULL ? 600_000 : 60_000,
);
