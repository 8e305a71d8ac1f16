// Edge cases end to end: an orchestrator on a real database, machines of a fake Fly, and real workers on them. Each test checks
// the job, the machines and the events. The orchestrator's waits advance fifty times as fast; pauses advance the database's clock.
import { describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import {
  type Clock,
  createOrchestrator,
  fly,
  type OrchestratorEvent,
  type PoolOptions,
  type ProviderFactory,
} from "../../src/orchestrator/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import type { Duration } from "../../src/time.ts";
import { implement, type WorkerOptions } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { type FakeMachine, startFakeFly } from "../support/providers/fake-fly.ts";
import {
  type Fault,
  type MachineProcess,
  type ProcessExit,
  seededRandom,
} from "../support/providers/fake-provider-api.ts";
import { fastClock, latch, SEED, startMachineWorker, status } from "../support/providers/provider-test.ts";

const { url } = await freshDatabase();
const client = await connect(url);

const UNREACHABLE = "postgres://nobody@127.0.0.1:1/nothing";
/** Shared by the orchestrator, the fake and the database. */
const clock = fastClock(url);
let pools = 0;

type StartProcess = (machine: FakeMachine) => MachineProcess | "worker";

async function open(
  options: Partial<PoolOptions> = {},
  more: { onStart?: StartProcess; timeout?: Duration; lease?: Duration } = {},
) {
  const pool = `pool${++pools}`;
  const work = pipeline<{ hold: boolean }>(`work${pools}`, { pool });
  const { opened, open: release } = latch();
  const code = implement(work, async (_, { hold }) => {
    if (hold) await opened;
  });
  const workerOn = (machine: FakeMachine, own: Partial<WorkerOptions> = {}): MachineProcess =>
    startMachineWorker(machine.config.env!, {
      url,
      pipelines: [code],
      ...(more.lease && { lease: more.lease }),
      ...own,
    });
  const fake = await startFakeFly({
    now: clock.now,
    // Rate limits are in real time, which does not advance fifty times as fast.
    limits: false,
    onStart(machine) {
      const started = more.onStart?.(machine) ?? "worker";
      return started === "worker" ? workerOn(machine) : started;
    },
  });
  const events: OrchestratorEvent[] = [];
  /** Waits of the provider between retries. */
  const waits: number[] = [];
  const providerClock: Clock = {
    now: clock.now,
    sleep(ms, signal) {
      waits.push(ms);
      return clock.sleep(ms, signal);
    },
  };
  const { app, token } = fake;
  const size = { size: "performance-8x", memoryMb: 65_536, region: ["iad", "ewr"] };
  const machines = fly({ app, token, image: "workers:v1", base: fake.url, timeout: more.timeout ?? "10s", ...size });
  const provider: ProviderFactory = (context) => machines({ ...context, clock: providerClock });
  const orchestrator = createOrchestrator({
    url,
    pools: { [pool]: { provider, idleExit: "300ms", ...options } },
    onEvent: (event) => events.push(event),
    clock,
  });
  const stillwake = createStillwake({ url, poke: () => orchestrator.poke() });
  await stillwake.register(work);
  const fixture = {
    pool,
    fake,
    events,
    waits,
    orchestrator,
    workerOn,
    release,
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
      waitFor(async () => (await fixture.states(ids)).every((state) => state === "completed"), {
        timeout: 30_000,
        what: `${ids.length} jobs of ${pool} to complete: ${fake.alive().map(({ name, state }) => `${name} ${state}`)}`,
      }),
    waitForEvent: (level: string, text: RegExp) =>
      waitFor(() => events.find((event) => event.level === level && text.test(event.message)), {
        what: `${level} ${text}, of ${JSON.stringify(events.map((event) => `${event.level}: ${event.message}`))}`,
      }),
    advance: async (ms: number) => {
      await clock.advance(ms);
      orchestrator.poke();
    },
    /** Waits until no machine runs and no life is open. */
    allStopped: () =>
      waitFor(
        async () => {
          const { rows } = await client.query(
            "select machine from stillwake.machine_lives where pool = $1 and ended_at is null",
            [pool],
          );
          const isStopped = fake.alive().every(({ state }) => state === "stopped");
          // The exit of a machine is noticed only at the next poll.
          if (isStopped && rows.length > 0) await fixture.advance(15_000);
          return isStopped && rows.length === 0;
        },
        { timeout: 30_000, what: `the machines of ${pool} to stop` },
      ),
  };
  onTestFinished(async () => {
    release();
    fake.clearFaults();
    await orchestrator.stop();
    await fake.close();
    await Promise.all(fake.machines.map(({ process: body }) => body?.exited));
    await stillwake.close();
    expect(fake.violations).toEqual([]);
  });
  return fixture;
}

describe("edge cases, end to end", () => {
  it("all machines busy: burst machines are created up to max, with a warning; further jobs wait", async () => {
    const { start, enqueue, workers, fake, waitForEvent, release, completed, allStopped } = await open({
      warm: 3,
      max: 5,
    });
    await start();
    await allStopped();
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
    await waitForEvent("warn", /start burst machine/);
    release();
    await completed(ids);
    await allStopped();
    expect(fake.alive()).toHaveLength(3);
    expect(fake.maxAlive()).toBe(5);
  });

  it("API unreachable or 5xx: retried after 1, 2 and 4 s, then reported; the enqueue never fails, and a later round starts a machine", async () => {
    const { start, enqueue, states, fake, waitForEvent, waits, completed, advance, pool } = await open();
    await start();
    fake.failRandomly({ random: () => 0, chance: 1, faults: [status(503)] });
    waits.length = 0;
    const ids = await enqueue();
    await waitForEvent("warn", /may not have been started: Fly: POST .* failed/);
    expect(waits.slice(0, 3)).toEqual([1000, 2000, 4000]);
    expect(await states(ids)).toEqual(["queued"]);
    await waitFor(async () => {
      const { rows } = await client.query(
        "select provider_error ->> 'code' as code from stillwake.pools where name = $1",
        [pool],
      );
      return rows[0].code === "PROVIDER_UNREACHABLE";
    });
    fake.clearFaults();
    await advance(70_000);
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

  it("a machine fails to start: another one is tried", async () => {
    const { start, enqueue, fake, waitForEvent, completed, allStopped } = await open({ warm: 2, max: 2 });
    await start();
    await allStopped();
    fake.fail("start", status(409, { message: "aborted: insufficient memory available to fulfill request" }));
    await completed(await enqueue());
    await waitForEvent("warn", /m1 could not be started: .* cannot be started: 409 aborted: insufficient memory/);
    expect(fake.machines.map(({ starts }) => starts)).toEqual([1, 2]);
  });

  it("all machines fail to start: a warning is reported, the job stays queued, and a later round starts a machine", async () => {
    const { start, enqueue, states, fake, waitForEvent, completed, allStopped, advance } = await open({
      warm: 1,
      max: 2,
    });
    await start();
    await allStopped();
    for (const region of ["iad", "ewr"]) fake.fullRegions.add(region);
    const ids = await enqueue();
    await waitForEvent("warn", /Fly has no capacity for .* in iad, ewr/);
    expect(await states(ids)).toEqual(["queued"]);
    fake.fullRegions.clear();
    await advance(70_000);
    await completed(ids);
  });

  it("401: an error is reported, no further calls are made, and the job stays queued until the token works", async () => {
    const { start, enqueue, states, fake, waitForEvent, orchestrator, completed, advance } = await open();
    await start();
    const before = fake.calls.length;
    fake.failRandomly({ random: () => 0, chance: 1, faults: [status(401)] });
    const ids = await enqueue();
    const event = await waitForEvent("error", /Fly rejects the token: 401/);
    expect(event.message).not.toContain(fake.token);
    for (let n = 0; n < 10; n++) {
      orchestrator.poke();
      await orchestrator.settled();
    }
    expect(fake.calls.slice(before).map(({ operation }) => operation)).toEqual(["create"]);
    expect(await states(ids)).toEqual(["queued"]);
    fake.clearFaults();
    await advance(6 * 60_000);
    await completed(ids);
  });

  it("a machine dies before its first claim: the job stays queued, and the next machine runs it", async () => {
    const died: FakeMachine[] = [];
    const { start, enqueue, fake, completed, advance } = await open(
      {},
      {
        onStart(machine) {
          if (died.length > 0) return "worker";
          died.push(machine);
          return { exited: Promise.resolve({ code: 1 }), kill: () => {} };
        },
      },
    );
    await start();
    const ids = await enqueue();
    await waitFor(() => died.length > 0);
    // The provider is queried after the boot time has passed.
    await advance(130_000);
    await completed(ids);
    expect(fake.machines).toHaveLength(2);
    const { rows } = await client.query("select exit from stillwake.machine_lives where machine = $1", [died[0]!.name]);
    expect(rows).toEqual([{ exit: { code: 1 } }]);
  });

  it("a machine cannot reach the database: it exits after its idle time, and the job stays queued", async () => {
    const exits: ProcessExit[] = [];
    const fixture = await open(
      {},
      {
        onStart(machine) {
          if (exits.length > 0) return "worker";
          const process = fixture.workerOn(machine, { url: UNREACHABLE });
          void process.exited.then((exit) => exits.push(exit));
          return process;
        },
      },
    );
    await fixture.start();
    const ids = await fixture.enqueue();
    await waitFor(() => exits.length > 0, { timeout: 20_000, what: "the machine to exit" });
    expect(await fixture.states(ids)).toEqual(["queued"]);
    await fixture.advance(130_000);
    await fixture.completed(ids);
    expect(fixture.fake.machines).toHaveLength(2);
  });
});

it("a burst machine that ran out of memory is reported, and its job is retried before its lease expires", async () => {
  const { start, enqueue, workers, fake, waitForEvent, release, completed, pool, advance } = await open(
    {},
    { lease: "1h" },
  );
  await start();
  const ids = await enqueue(1, true);
  await waitFor(async () => (await workers()).length === 1, { timeout: 20_000 });
  const [name] = await workers();
  // Like an OOM kill: the worker gets no signal.
  delete fake.machine(name!).process;
  fake.exit(name!, { code: 137, oom: true });
  await advance(35_000);
  const event = await waitForEvent("warn", /out of memory at 64 GB; its job is queued again/);
  expect(event.pool).toBe(pool);
  release();
  await completed(ids);
  const { rows } = await client.query(
    "select failure ->> 'message' as message from stillwake.ended_attempts where job_id = any ($1) and outcome = 'lost'",
    [ids],
  );
  expect(rows).toEqual([{ message: `Machine ${name} ran out of memory at 64 GB` }]);
});

const FAULTS = FULL ? 500 : 25;

it(
  `${FAULTS} random API failures: no leaked or duplicated machine, and every job completes`,
  async () => {
    const fixture = await open({ warm: 2, max: 6 }, { lease: "1h", timeout: "300ms" });
    const { fake, start, enqueue, states, advance, allStopped, orchestrator } = fixture;
    await start();
    await allStopped();
    const faults: Fault[] = [
      ...[500, 502, 503, 408].map((code) => status(code)),
      status(422, { body: { error: "no capacity", status: "insufficient_capacity" } }),
      status(429),
      status(429, { retryAfter: 3 }),
      ...(["reset", "hang", "lost", "lost", "late", "half", "half"] as const).map((kind) => ({ kind })),
      { kind: "belated", calls: 2 },
      status(502, { done: true }),
    ];
    const random = seededRandom(SEED);
    const ids: string[] = [];
    let faultCount = 0;
    const isDone = async () => (await states(ids)).every((state) => state === "completed");
    const settle = async (): Promise<void> => {
      for (let rounds = 0; !(await isDone()); rounds++) {
        expect(rounds, `seed ${SEED}: ${await states(ids)}`).toBeLessThan(400);
        await orchestrator.settled();
        // After wasted starts there are pauses of ten minutes and more.
        await advance(rounds < 10 ? 20_000 : 11 * 60_000);
      }
    };
    while (faultCount < FAULTS) {
      fake.failRandomly({ random, chance: 0.35, faults });
      ids.push(...(await enqueue(1 + Math.floor(random() * 5))));
      await settle();
      faultCount += fake.clearFaults();
    }
    await settle();
    await fake.finishPending();
    // Strays are removed and warm machines created. Workers run in real time, so they need some between two advances.
    const isTidy = () => fake.alive().length === 2 && fake.alive().every(({ state }) => state === "stopped");
    for (let rounds = 0; ; rounds++) {
      await orchestrator.once();
      if (await waitFor(isTidy, { timeout: 3000 }).catch(() => false)) break;
      expect(rounds, `two stopped machines, of ${fake.alive().map(({ name }) => name)}, seed ${SEED}`).toBeLessThan(12);
      await advance(11 * 60_000);
    }
    await allStopped();
    expect(fake.maxAlive(), `seed ${SEED}`).toBeLessThanOrEqual(6);
    recordFigure(
      "Fly: random API failures without a leaked or duplicated machine or an unfinished job",
      faultCount,
      "failures",
      `${ids.length} jobs, ${fake.machines.length} machines, ${fake.calls.length} calls, seed ${SEED}`,
    );
  },
  FULL ? 600_000 : 60_000,
);
