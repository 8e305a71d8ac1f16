// Sixteen clients on the same few jobs, with batches that overlap in every order. All wait for locks in the same order;
// statements that Postgres rolls back are repeated by the client; and in the end every enqueued job has ended once.
import { afterAll, beforeAll, expect, it } from "vitest";
import { Database } from "../../src/db/database.ts";
import { StillwakeError } from "../../src/errors.ts";
import { travel } from "../../src/testing/index.ts";
import { connect, type HeldJob, outcomes } from "../model/actors.ts";
import { violations } from "../model/invariants.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";

const CLIENTS = 16;
const SECONDS = Number(process.env.STILLWAKE_CONFLICT_SECONDS ?? (FULL ? 60 : 6));
const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);

const fresh = await freshDatabase();
const watcher = await connect(fresh.url);
for (const setting of ["deadlock_timeout = '50ms'", "synchronous_commit = off"]) {
  await watcher.query(`alter database ${fresh.name} set ${setting}`);
}
const database = new Database({ url: fresh.url, connections: CLIENTS });
beforeAll(async () => {
  await travel(watcher, "0s");
  await database.query(
    `select stillwake.register_pipeline('busy', '{"max_attempts": 1000, "crash_limit": 1000, "backoff_initial": "0s", "backoff_max": "0s"}')`,
  );
});
afterAll(() => database.close());

/** Shared by all clients: every job, and the latest handles, whichever client claimed them. */
const jobs: string[] = [];
let handles: HeldJob[] = [];
let refused = 0;

interface Dice {
  /** From 0 to below `sides`. */
  roll(sides: number): number;
  some<T>(from: readonly T[], most: number): T[];
}

function diceOf(seed: number): Dice {
  let state = seed;
  const roll = (sides: number) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % sides;
  };
  const some = <T>(from: readonly T[], most: number) =>
    from.length === 0 ? [] : Array.from({ length: 1 + roll(most) }, () => from[roll(from.length)]!);
  return { roll, some };
}

const endings = Object.values({ ...outcomes, slept: { ...outcomes.slept, for: "0s" } });

/** One statement each. Batches name jobs of many leases, some of them twice, in random order. */
const acts: Record<string, (dice: Dice, worker: string) => Promise<unknown>> = {
  async enqueue(dice) {
    if (jobs.length > 60 && dice.roll(10) > 0) return;
    const options = { priority: dice.roll(3), idempotency_keys: [`key ${dice.roll(500)}`, null] };
    const [row] = await database.query<{ ids: string[] }>(
      "select stillwake.enqueue_many('busy', '[1, 2]', $1) as ids",
      [options],
    );
    for (const id of row!.ids) if (!jobs.includes(id)) jobs.push(id);
  },
  async claim(dice, worker) {
    const rows = await database.query<HeldJob>(
      "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, 'default', '{busy}', $2, '1 second')",
      [worker, 1 + dice.roll(6)],
    );
    handles = [...rows, ...handles].slice(0, 40);
  },
  async settle(dice) {
    const batch = dice.some(handles, 6).map((held) => ({ ...held, ...endings[dice.roll(endings.length)] }));
    const rows = await database.query<{ state: string }>("select * from stillwake.settle($1)", [JSON.stringify(batch)]);
    refused += rows.filter(({ state }) => state === "lost").length;
  },
  async "settle and claim"(dice, worker) {
    const batch = dice.some(handles, 6).map((held) => ({ ...held, ...outcomes.completed }));
    const rows = await database.query<{ job_id: string; epoch: string; lease_id: string }>(
      "select job_id, epoch, lease_id from stillwake.settle_and_claim($1, $2, 'default', '{busy}', 3, '1 second') where job_id is not null",
      [JSON.stringify(batch), worker],
    );
    handles = [...rows.map((row) => ({ job: row.job_id, epoch: row.epoch, lease: row.lease_id })), ...handles].slice(
      0,
      40,
    );
  },
  async heartbeat(dice) {
    const batch = dice.some(handles, 8);
    await database.query("select stillwake.heartbeat($1, $2, $3)", [
      batch.map(({ job }) => job),
      batch.map(({ epoch }) => epoch),
      batch.map(({ lease }) => lease),
    ]);
  },
  async checkpoint(dice) {
    const batch = dice.some(handles, 6).map((held) => ({ ...held, step: `step ${dice.roll(5)}`, output: 1 }));
    await database.query("select stillwake.save_checkpoints($1)", [JSON.stringify(batch)]);
  },
  async logs(dice) {
    const batch = dice.some(handles, 6).map((held) => ({ ...held, lines: [{ message: "one" }, { message: "two" }] }));
    await database.query("select stillwake.append_logs($1)", [JSON.stringify(batch)]);
  },
  async recover(dice) {
    if (dice.roll(3) === 0) await database.query("update stillwake.test_clock set shift = shift + interval '1100ms'");
    await database.query("select stillwake.recover($1)", [1 + dice.roll(10)]);
  },
  async cancel(dice) {
    for (const id of dice.some(jobs, 1)) await database.query("select stillwake.cancel($1)", [id]);
  },
  async pause(dice) {
    for (const id of dice.some(jobs, 1)) await database.query("select stillwake.pause($1)", [id]);
  },
  async resume(dice) {
    for (const id of dice.some(jobs, 2)) await database.query("select stillwake.resume($1)", [id]);
  },
  async retry(dice) {
    for (const id of dice.some(jobs, 2)) await database.query("select stillwake.retry($1)", [id]);
  },
  async watchdog(dice) {
    if (dice.roll(20) === 0) await database.query("select stillwake.watchdog()");
  },
};

it(`${CLIENTS} clients with overlapping batches never see a deadlock, and every job ends once`, {
  timeout: 60_000 + SECONDS * 2000,
}, async () => {
  const deadline = performance.now() + SECONDS * 1000;
  const counts = await Promise.all(
    Array.from({ length: CLIENTS }, (_, n) => work(diceOf(SEED + n), `w${n}`, deadline)),
  );
  const operations = counts.reduce((sum, count) => sum + count, 0);
  expect(await violations(watcher)).toEqual([]);

  await drain();
  expect(await violations(watcher)).toEqual([]);
  const { rows } = await watcher.query(
    "select count(*) as ended, count(distinct id) as jobs from stillwake.ended_jobs",
  );
  expect(rows).toEqual([{ ended: String(jobs.length), jobs: String(jobs.length) }]);
  expect(refused).toBeGreaterThan(0);

  await watcher.query("select pg_stat_force_next_flush()");
  const seen = await watcher.query(
    "select deadlocks::integer from pg_stat_database where datname = current_database()",
  );
  recordFigure(
    "operations of 16 clients on overlapping jobs",
    operations,
    "",
    `${refused} settlements refused, seed ${SEED}`,
  );
  recordFigure("conflicts: deadlocks seen", seen.rows[0].deadlocks, "", "surfaced to a caller: 0");
  expect(seen.rows[0].deadlocks, `seed ${SEED}`).toBe(0);
});

/** Acts at random until the time is up. Refusals because of the state are expected; any other error fails the test. */
async function work(dice: Dice, worker: string, deadline: number): Promise<number> {
  const names = Object.keys(acts);
  let count = 0;
  for (; performance.now() < deadline; count++) {
    const name = names[dice.roll(names.length)]!;
    try {
      await acts[name]!(dice, worker);
    } catch (error) {
      if (error instanceof StillwakeError && error.code === "NOT_ALLOWED") continue;
      throw new Error(`${name} failed, seed ${SEED}`, { cause: error });
    }
  }
  return count;
}

/** All faults are over: runs the remaining jobs until none is left. */
async function drain(): Promise<void> {
  for (const id of jobs)
    await database.query("select stillwake.resume(id) from stillwake.live_jobs where id = $1", [id]);
  for (;;) {
    await travel(watcher, "2m");
    const rows = await database.query<HeldJob>(
      "select job_id as job, epoch, lease_id as lease from stillwake.claim('last', 'default', '{busy}', 100, '1 minute')",
    );
    const batch = rows.map((held) => ({ ...held, ...outcomes.completed }));
    await database.query("select stillwake.settle($1)", [JSON.stringify(batch)]);
    const [left] = await database.query<{ count: string }>("select count(*) from stillwake.live_jobs");
    if (left!.count === "0") return;
  }
}
