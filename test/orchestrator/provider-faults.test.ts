// Five hundred calls to Fly's API fail in all known ways while jobs arrive and machines die. There are never more machines than
// allowed, every job completes once the faults end, and no machine is left over. Time passes 150 times as fast for database,
// orchestrator and fake. A failure prints its seed: SEED=… repeats the faults, but not their timing.
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createOrchestrator, fly } from "../../src/orchestrator/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { type FakeFly, startFakeFly } from "../support/providers/fake-fly.ts";
import {
  type Fault,
  type MachineProcess,
  type ProcessExit,
  seededRandom,
} from "../support/providers/fake-provider-api.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const FAULTS = FULL ? 3000 : 500;
const SPEED = 150;
const WARM = 2;
const MAX = 5;
const POOLS = ["scan", "clip", "digest"];

const { url } = await freshDatabase();
const pool = new pg.Pool({ connectionString: url, max: 12 });
const random = seededRandom(SEED);
const from = Date.now();
const clock = {
  now: () => from + (Date.now() - from) * SPEED,
  sleep: (ms: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms / SPEED);
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    }),
};
let fake: FakeFly;

beforeAll(async () => {
  await pool.query(
    `create or replace function stillwake.now() returns timestamptz language sql volatile parallel safe as $f$ select to_timestamp(${from / 1000}) + (clock_timestamp() - to_timestamp(${from / 1000})) * ${SPEED} $f$`,
  );
  for (const name of POOLS) {
    const settings = JSON.stringify({ pool: name, max_attempts: 1000, crash_limit: 1000 });
    await pool.query("select stillwake.register_pipeline($1, $2)", [name, settings]);
  }
  fake = await startFakeFly({
    now: clock.now,
    onStart: ({ config }) => worker(config.env!.STILLWAKE_MACHINE!, config.env!.STILLWAKE_POOL!),
  });
});
afterAll(async () => {
  await pool.end();
  await fake.close();
});

/** A worker that calls the SQL functions directly. Some die before they claim, some with a job. */
function worker(name: string, workerPool: string): MachineProcess {
  const { promise: exited, resolve: end } = deferred<ProcessExit>();
  let killed = false;
  const query = async (text: string, values: unknown[]) => (killed ? [] : (await pool.query(text, values)).rows);
  const work = async (): Promise<ProcessExit> => {
    await clock.sleep(500 + random() * 3000);
    if (random() < 0.04) return { code: 1 };
    const [welcome] = await query("select stillwake.machine_registered($1, $2) as yes", [name, workerPool]);
    while (welcome?.yes && !killed) {
      const [job] = await query(
        "select job_id, lease_id, epoch from stillwake.claim($1, $2, array[$2], 1, '10 minutes')",
        [name, workerPool],
      );
      if (!job) {
        const [leave] = await query("select stillwake.machine_leaves($1, $2, null, array[$2]) as yes", [
          name,
          workerPool,
        ]);
        if (leave?.yes) return { code: 0 };
        continue;
      }
      await clock.sleep(1000 + random() * 20_000);
      if (random() < 0.05) return random() < 0.5 ? { code: 137, oom: true } : { code: 139 };
      await query("select * from stillwake.settle($1::text::jsonb)", [
        JSON.stringify([{ job: job.job_id, epoch: job.epoch, lease: job.lease_id, outcome: "completed" }]),
      ]);
    }
    return { code: 0 };
  };
  void work().then(
    (exit) => end(exit),
    () => end({ code: 1 }),
  );
  return {
    exited,
    kill: () => {
      killed = true;
      end({ code: 143, requested: true });
    },
  };
}

const faults: Fault[] = [
  ...[500, 502, 503, 504].map((status): Fault => ({ kind: "status", status })),
  { kind: "status", status: 429, retryAfter: 3 },
  { kind: "status", status: 429 },
  { kind: "status", status: 408 },
  { kind: "status", status: 412, message: "failed_precondition: machine getting replaced, refusing to start" },
  {
    kind: "status",
    status: 422,
    message: "insufficient capacity",
    body: { error: "insufficient resources to create new machine", status: "insufficient_capacity" },
  },
  { kind: "reset" },
  { kind: "hang" },
  { kind: "lost" },
  { kind: "late" },
  { kind: "belated", calls: 2 },
  { kind: "half" },
];

it("five hundred failing calls leak no machine, never exceed max, and every job completes", {
  timeout: 600_000,
}, async () => {
  const make = () =>
    createOrchestrator({
      url,
      clock,
      pools: Object.fromEntries(
        POOLS.map((name) => [
          name,
          {
            provider: fly({
              app: fake.app,
              token: fake.token,
              image: "registry.fly.io/workers:1",
              size: "shared-cpu-1x",
              region: ["iad", "ewr"],
              base: fake.url,
              timeout: "150ms",
            }),
            warm: WARM,
            max: MAX,
            boot: "60s",
            grace: "10s",
            idleExit: "20s",
          },
        ]),
      ),
    });
  const orchestrators = [make(), make()];
  for (const one of orchestrators) await one.start();
  fake.failRandomly({ random, chance: 0.5, faults });

  const isUp = ({ state }: { state: string }) => ["starting", "started", "stopping"].includes(state);
  const running = () => fake.machines.filter(isUp).length;
  /** Highest number of machines of any pool. */
  const fullest = () =>
    Math.max(...POOLS.map((name) => fake.machines.filter((one) => isUp(one) && one.name.includes(`-${name}-`)).length));
  let most = 0;
  const look = () => {
    most = Math.max(most, fullest());
    return true;
  };
  let jobs = 0;
  let failed = 0;
  const isFaulty = () => fake.calls.filter(({ status }) => status === 0 || (status ?? 0) >= 400).length;
  for (const deadline = performance.now() + 400_000; failed < FAULTS && performance.now() < deadline; ) {
    look();
    if (random() < 0.3) {
      const count = 1 + Math.floor(random() * 4);
      await pool.query(
        "select stillwake.enqueue_many($2, (select jsonb_agg('{}'::jsonb) from generate_series(1, $1)))",
        [count, POOLS[Math.floor(random() * POOLS.length)]],
      );
      jobs += count;
    }
    // Some pokes are lost.
    if (random() < 0.7) orchestrators[Math.floor(random() * 2)]!.poke();
    await new Promise((resolve) => setTimeout(resolve, 20));
    failed = isFaulty();
  }
  expect(failed, `SEED=${SEED}`).toBeGreaterThanOrEqual(FAULTS);
  fake.clearFaults();
  await fake.finishPending();

  // As the watchdog does once a minute.
  const left = async () => (await pool.query("select count(*)::int as n from stillwake.live_jobs")).rows[0].n as number;
  const open = async () =>
    (await pool.query("select count(*)::int as n from stillwake.machine_lives where ended_at is null")).rows[0]
      .n as number;
  const poking = setInterval(() => orchestrators[0]!.poke(), 1000);
  const healed = clock.now();
  await waitFor(async () => look() && (await left()) === 0, {
    timeout: 120_000,
    what: `all jobs to complete, SEED=${SEED}`,
  });
  const doneMs = clock.now() - healed;
  const kept = () => fake.alive().filter(({ name }) => /-m\d+$/.test(name));
  await waitFor(async () => (await open()) === 0 && running() === 0 && fake.alive().length === kept().length, {
    timeout: 90_000,
    what: `all machines to be removed, SEED=${SEED}`,
  });
  clearInterval(poking);
  for (const one of orchestrators) await one.stop();

  expect(most, `SEED=${SEED}`).toBeLessThanOrEqual(MAX);
  expect(kept().length).toBeLessThanOrEqual(WARM * POOLS.length);
  expect(new Set(fake.alive().map(({ name }) => name)).size).toBe(fake.alive().length);
  const { rows } = await pool.query(
    "select count(*)::int as lives, (select count(*)::int from stillwake.jobs where state = 'completed') as completed from stillwake.machine_lives",
  );
  expect(rows[0].completed, `SEED=${SEED}`).toBe(jobs);
  expect(fake.violations).toEqual([]);
  recordFigure(
    "provider calls that failed",
    failed,
    "",
    `of ${fake.calls.length}; ${jobs} jobs, ${rows[0].lives} lives, at most ${most} machines of ${MAX} at once in a pool, seed ${SEED}`,
  );
  recordFigure("machines left over after failing calls", fake.alive().length - kept().length);
  recordFigure("from the last fault to the last job done", Math.round(doneMs / 1000), "s", "of the sped-up clock");
});
