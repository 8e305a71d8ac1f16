// Keys under real concurrency: two and three transactions on one key in every order of their steps. In every order the
// key limit is respected, no job waits for a free key once all have committed, and there is no deadlock.
import { afterAll, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect } from "../model/actors.ts";
import { snapshotText } from "../model/engine.ts";
import { Interleaver, ordersOf, type Statement } from "../model/interleave.ts";
import {
  type KeyJobs,
  type KeySetup,
  keyCalls,
  keySetups,
  mayDeadlock,
  nondeterministic,
  settlement,
  sweeps,
} from "../model/key-setups.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { sample } from "../support/processes/fault-checks.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await client.query(`set synchronous_commit = off;
  select stillwake.register_pipeline('one', '{"key_limit": 1, "crash_limit": 1}');
  select stillwake.register_pipeline('two', '{"key_limit": 2, "crash_limit": 1}')`);
await stopClock(client);
await client.query(`do $$ begin execute format('create function since_start(timestamptz) returns float8 language sql immutable
  as $f$ select case when $1 = ''infinity'' then -1 else extract(epoch from $1 - %L::timestamptz) * 1000 end $f$', stillwake.now()); end $$`);
const interleaver = await Interleaver.open(database.url, 3);

const tables = ["live_jobs", "leases", "outages", "ended_jobs", "ended_attempts", "feed", "idempotency_keys"];
await client.query(`create schema saved;
  ${tables.map((table) => `create table saved.${table} (like stillwake.${table});`).join("\n")}
  create function saved.restore() returns void language plpgsql as $$ begin
  ${tables.map((table) => `delete from stillwake.${table}; insert into stillwake.${table} select * from saved.${table};`).join("\n")}
  end $$`);

const ids = Array.from({ length: 6 }, () => newId());

async function enqueue(pipeline: string, onConflict: string, key = "k"): Promise<string> {
  const { rows } = await client.query("select stillwake.enqueue($1, '{}', $2) as id", [
    pipeline,
    { key, on_conflict: onConflict },
  ]);
  return rows[0].id;
}

async function clear(): Promise<void> {
  await client.query(tables.map((table) => `delete from stillwake.${table}`).join(";"));
}

/** Creates a scenario and saves it, to be restored before every run. */
async function save({ pipeline, holders, waiter }: KeySetup): Promise<KeyJobs> {
  await clear();
  const ended = await enqueue(pipeline, "wait");
  await client.query("select stillwake.cancel($1)", [ended]);
  // In order of arrival, so that the paused job is first once it is resumed.
  const fillers = [await enqueue(pipeline, "wait"), await enqueue(pipeline, "wait")].slice(
    0,
    pipeline === "one" ? 1 : 2,
  );
  if (pipeline === "one") await client.query("delete from stillwake.live_jobs where key_slot is null");
  const paused = await enqueue(pipeline, "wait");
  await client.query("select stillwake.pause($1)", [paused]);
  const free = fillers.slice(holders.length);
  for (const id of free) await client.query("select stillwake.cancel($1)", [id]);
  await client.query("delete from stillwake.ended_jobs where id = any ($1)", [free]);
  const [runner] = holders.includes("runner") ? await claim(client, "old", [pipeline]) : [];
  await travel(client, "11s");
  const queued = holders.includes("queued")
    ? fillers.find((id) => id !== runner?.job && !free.includes(id))
    : undefined;
  const keyJobs = {
    pipeline,
    runner,
    queued,
    waiter: waiter ? await enqueue(pipeline, "wait") : undefined,
    paused,
    ended,
  };
  await client.query(
    tables.map((table) => `delete from saved.${table}; insert into saved.${table} table stillwake.${table}`).join(";"),
  );
  return keyJobs;
}

let explored = 0;
let waits = 0;
let deadlocks = 0;

/** Runs the calls in one order; `null` skips one. Returns the final state: the results and all rows. */
async function runOrder(keyJobs: KeyJobs, chosen: (string | null)[], order: number[]): Promise<string> {
  await client.query("select saved.restore()");
  const scripts = chosen.map((verb, actor): Statement[] => {
    const statements = verb ? keyCalls[verb]!(keyJobs, ids.slice(actor * 2)) : [];
    return [{ text: "begin" }, ...statements, { text: "commit" }];
  });
  const played = await interleaver.run(scripts, order);
  const story = `${chosen.map((verb, actor) => `${actor}: ${verb} -> ${JSON.stringify(played.results[actor])}`).join(", ")}; order ${order}`;
  const { rows } = await client.query({ name: "snapshot", text: snapshotText });
  expect(rows[0].violations ?? [], story).toEqual([]);
  const errors = played.results.flat().filter((response) => typeof response === "string" && !response.startsWith("SW"));
  if (mayDeadlock(chosen)) deadlocks += errors.filter((error) => error === "40P01").length;
  else expect(errors, `errors: ${story}`).toEqual([]);
  explored += 1;
  waits += played.waits;
  // Includes the results, because they tell which job was rejected and which joined. A sweep's result depends on what it skips.
  const output = played.results.flatMap((responses, actor) =>
    chosen[actor] && !sweeps.includes(chosen[actor]) ? [responses.slice(1, -1)] : [],
  );
  const jobs = (rows[0].world as { jobs: Seen[] }).jobs.map(
    ({ id, state, waitingFor, slot, cancel, pause }) =>
      `${id} ${state} ${waitingFor} ${slot !== null} ${cancel !== null} ${pause !== null}`,
  );
  return JSON.stringify({ said: output, jobs });
}

interface Seen {
  id: string;
  state: string;
  waitingFor: string | null;
  slot: number | null;
  cancel: string | null;
  pause: object | null;
}

/** The steps of each: BEGIN is sent with the first statement, because alone it does not affect others. */
function stepsOf(keyJobs: KeyJobs, chosen: (string | null)[]): number[] {
  return chosen.map((verb) => (verb ? keyCalls[verb]!(keyJobs, ids).length + 1 : 0));
}

function withBegin(order: number[]): number[] {
  return order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
}

/** The final states of all serial orders, with any sweep skipping locked rows. */
async function serialEnds(keyJobs: KeyJobs, chosen: string[]): Promise<Set<string>> {
  const ends = new Set<string>();
  for (let left = 0; left < 2 ** chosen.length; left++) {
    const taking = chosen.map((verb, actor) => ((left >> actor) & 1 ? null : verb));
    if (chosen.some((verb, actor) => !taking[actor] && !sweeps.includes(verb))) continue;
    const steps = stepsOf(keyJobs, taking);
    for (const turns of ordersOf(taking.map((verb) => (verb ? 1 : 0))))
      ends.add(
        await runOrder(
          keyJobs,
          taking,
          turns.flatMap((actor) => Array.from({ length: steps[actor]! + 1 }, () => actor)),
        ),
      );
  }
  return ends;
}

async function explore(keyJobs: KeyJobs, chosen: string[]): Promise<void> {
  await client.query(`vacuum ${tables.map((table) => `stillwake.${table}`).join(", ")}`);
  const ends = chosen.some((verb) => nondeterministic.includes(verb)) ? undefined : await serialEnds(keyJobs, chosen);
  for (const order of ordersOf(stepsOf(keyJobs, chosen))) {
    const end = await runOrder(keyJobs, chosen, withBegin(order));
    if (ends)
      expect([...ends], `${chosen.join(", ")} in order ${order} end as in no order of whole calls`).toContain(end);
  }
}

describe.each(keySetups.map((setup) => [setup.name, setup] as const))("a key with %s", (_, setup) => {
  it("two transactions, a sample of all pairs of calls, every order of their steps", { timeout: 300_000 }, async () => {
    const keyJobs = await save(setup);
    const names = Object.keys(keyCalls).filter((verb) => keyCalls[verb]!(keyJobs, ids).length > 0);
    const pairs = names.flatMap((one, index) => names.slice(index).map((second) => [one, second]));
    for (const pair of sample(pairs, 0.35)) await explore(keyJobs, pair);
  });
});

describe("three transactions on a key, every order of their steps", () => {
  const triples = [
    [0, "complete", "enqueue wait", "enqueue join"],
    [0, "complete", "enqueue wait", "resume"],
    [0, "complete", "cancel waiter", "retry"],
    [0, "complete", "enqueue replace", "resume"],
    [0, "complete", "pause waiter", "enqueue two"],
    [6, "enqueue wait", "resume", "retry"],
    [6, "enqueue reject", "enqueue join", "enqueue wait"],
  ] as const;

  it.each(triples)("scenario %i: %s, %s, %s", { timeout: 120_000 }, async (setup, ...chosen) => {
    await explore(await save(keySetups[setup]!), chosen);
  });
});

/** Keys that sort by their locks in descending order. */
async function keysAgainstTheirLocks(pipeline: string, count: number): Promise<string[]> {
  const { rows } = await client.query(
    `select k as key from (select 'key-' || lpad(n::text, 3, '0') as k from generate_series(1, 400) n) k order by stillwake.key_lock($1, k) desc`,
    [pipeline],
  );
  const chosen: string[] = [];
  for (const { key } of rows) if (chosen.length < count && (chosen.at(-1) ?? "") < key) chosen.push(key);
  return chosen;
}

describe("several keys", () => {
  // Another session has the lock of the second key, so that the others each have one lock and wait for another.
  const holding = (key: string): Statement[] => [
    { text: "begin" },
    { text: "select pg_advisory_xact_lock(stillwake.key_lock('one', $1))", values: [key] },
    { text: "commit" },
  ];
  const arrivals = (keys: string[]): Statement[] => [
    {
      text: "select stillwake.enqueue_many('one', $1, $2)",
      values: [JSON.stringify(keys.map(() => 0)), { keys, on_conflict: "wait" }],
    },
  ];

  it("are locked by calls that name them in opposite orders, without a deadlock", async () => {
    await clear();
    const keys = await keysAgainstTheirLocks("one", 3);
    await client.query(arrivals(keys)[0]!.text, arrivals(keys)[0]!.values);
    const { results: answers, waits: waited } = await interleaver.run(
      [holding(keys[1]!), arrivals(keys), arrivals(keys.toReversed())],
      [0, 0, 1, 2, 0],
    );
    expect(waited).toBe(2);
    expect(answers.flat().filter((response) => typeof response === "string")).toEqual([]);
  });

  it("are released while the watchdog checks them, without a deadlock", async () => {
    await clear();
    const keys = await keysAgainstTheirLocks("one", 3);
    for (let turn = 0; turn < 2; turn++) await client.query(arrivals(keys)[0]!.text, arrivals(keys)[0]!.values);
    const held = await claim(client, "w", ["one"], { limit: 3 });
    const ends = JSON.stringify(held.map((each) => ({ ...each, outcome: "completed" })));
    const { results: answers } = await interleaver.run(
      [
        holding(keys[1]!),
        [{ text: "select act from stillwake.watchdog()" }],
        [{ text: "select state from stillwake.settle($1)", values: [ends] }],
      ],
      [0, 0, 1, 2, 0],
    );
    expect(answers.flat().filter((response) => typeof response === "string")).toEqual([]);
    expect(await claim(client, "w", ["one"], { limit: 10 })).toHaveLength(3);
  });
});

describe("a key whose job ends", () => {
  /** Completes the key's job while another transaction has the waiting job's row locked and then commits or rolls back. */
  async function endWhile(locker: Statement, end: "commit" | "rollback", before?: () => Promise<unknown>) {
    await clear();
    const [first, second] = [await enqueue("one", "wait"), await enqueue("one", "wait")];
    const [held] = await claim(client, "w", ["one"]);
    expect(held!.job).toBe(first);
    await before?.();
    const { results: answers } = await interleaver.run(
      [
        [{ text: "begin" }, { ...locker, values: locker.values ?? [second] }, { text: end }],
        [settlement(held!, { outcome: "completed" })],
      ],
      [0, 0, 1, 0],
    );
    expect(answers.flat().filter((response) => typeof response === "string")).toEqual([]);
    return second;
  }
  const states = async () => (await client.query("select state from stillwake.live_jobs where key_slot = 1")).rows;

  it("goes to a job without a lane while the watchdog assigns lanes", async () => {
    await endWhile({ text: "select count(*) from stillwake.watchdog()", values: [] }, "commit", () =>
      client.query("select stillwake.lane_pool('default')"),
    );
    expect(await states()).toHaveLength(1);
    expect(await claim(client, "w", ["one"])).toHaveLength(1);
    await client.query("update stillwake.pools set laned = false, relane_until = null");
  });

  it("goes by the watchdog to a job that was skipped because of a cancel that was rolled back", async () => {
    const second = await endWhile({ text: "select stillwake.cancel($1)" }, "rollback");
    expect(await states()).toHaveLength(0);
    await client.query("select stillwake.watchdog()");
    expect((await claim(client, "w", ["one"])).map(({ job }) => job)).toEqual([second]);
  });
});

describe("an idempotency key of a job that joined another", () => {
  it("is deleted with that job", async () => {
    await clear();
    const holder = await enqueue("one", "wait");
    const { rows } = await client.query("select stillwake.enqueue('one', '{}', $1) as id", [
      { key: "k", on_conflict: "join", idempotency_key: "once" },
    ]);
    expect(rows[0].id).toBe(holder);
    const [held] = await claim(client, "w", ["one"]);
    await client.query("select stillwake.complete($1, $2, $3)", [held!.job, held!.epoch, held!.lease]);
    const stored = await client.query(
      "select k.forget_on >= e.forget_on as kept from stillwake.idempotency_keys k join stillwake.ended_jobs e on e.id = k.job_id",
    );
    expect(stored.rows).toEqual([{ kept: true }]);
  });
});

afterAll(() => {
  recordFigure("keys: interleavings explored", explored, "", "0 violations");
  recordFigure("keys: deadlocks where they are documented", deadlocks, "", "the loser has left nothing; elsewhere: 0");
  recordFigure("keys: steps that waited for a lock", waits);
});
