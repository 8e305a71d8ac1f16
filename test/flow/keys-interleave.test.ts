// Keys under real concurrency: two and three transactions on one key in every order of their steps. Whatever the order, no place is given
// twice, nobody waits for what is free once all have committed, and nobody is chosen as the victim of a deadlock.
import { afterAll, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect } from "../model/actors.ts";
import { snapshotText } from "../model/engine.ts";
import { ordersOf, Stage, type Statement } from "../model/interleave.ts";
import { type Cast, loose, mayDeadlock, type Scene, scenes, settlement, sweeps, verbs } from "../model/key-scenes.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await client.query(`set synchronous_commit = off;
  select stillwake.register_pipeline('one', '{"key_limit": 1, "crash_limit": 1}');
  select stillwake.register_pipeline('two', '{"key_limit": 2, "crash_limit": 1}')`);
await stopClock(client);
await client.query(`do $$ begin execute format('create function since_start(timestamptz) returns float8 language sql immutable
  as $f$ select case when $1 = ''infinity'' then -1 else extract(epoch from $1 - %L::timestamptz) * 1000 end $f$', stillwake.now()); end $$`);
const stage = await Stage.open(database.url, 3);

const tables = ["live_jobs", "leases", "ended_jobs", "ended_attempts", "feed", "idempotency_keys"];
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

/** Makes a scene and keeps it, to be put back before every play. */
async function save({ pipeline, holders, waiter }: Scene): Promise<Cast> {
  await clear();
  const ended = await enqueue(pipeline, "wait");
  await client.query("select stillwake.cancel($1)", [ended]);
  // They come in the order of their arrival, so the paused one is the first in line once it is resumed.
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
  const cast = {
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
  return cast;
}

let explored = 0;
let waits = 0;
let deadlocks = 0;

/** Plays the verbs in one order; `null` sits it out. Answers where it ended: the answers and the whole state. */
async function play(cast: Cast, chosen: (string | null)[], order: number[]): Promise<string> {
  await client.query("select saved.restore()");
  const scripts = chosen.map((verb, actor): Statement[] => {
    const statements = verb ? verbs[verb]!(cast, ids.slice(actor * 2)) : [];
    return [{ text: "begin" }, ...statements, { text: "commit" }];
  });
  const played = await stage.play(scripts, order);
  const story = `${chosen.map((verb, actor) => `${actor}: ${verb} -> ${JSON.stringify(played.answers[actor])}`).join(", ")}; order ${order}`;
  const { rows } = await client.query({ name: "snapshot", text: snapshotText });
  expect(rows[0].violations ?? [], story).toEqual([]);
  const errors = played.answers.flat().filter((answer) => typeof answer === "string" && !answer.startsWith("SW"));
  if (mayDeadlock(chosen)) deadlocks += errors.filter((error) => error === "40P01").length;
  else expect(errors, `errors: ${story}`).toEqual([]);
  explored += 1;
  waits += played.waits;
  // The answers as well, because they say who was refused and who joined whom. What a sweep says depends on what it passes by.
  const said = played.answers.flatMap((answers, actor) =>
    chosen[actor] && !sweeps.includes(chosen[actor]) ? [answers.slice(1, -1)] : [],
  );
  const jobs = (rows[0].world as { jobs: Seen[] }).jobs.map(
    ({ id, state, waitingFor, slot, cancel, pause }) =>
      `${id} ${state} ${waitingFor} ${slot !== null} ${cancel !== null} ${pause !== null}`,
  );
  return JSON.stringify({ said, jobs });
}

interface Seen {
  id: string;
  state: string;
  waitingFor: string | null;
  slot: number | null;
  cancel: string | null;
  pause: object | null;
}

/** The steps of each: begin goes with the first statement, because alone it does nothing to others. */
function stepsOf(cast: Cast, chosen: (string | null)[]): number[] {
  return chosen.map((verb) => (verb ? verbs[verb]!(cast, ids).length + 1 : 0));
}

function withBegin(order: number[]): number[] {
  return order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
}

/** Where the verbs can end one after the other, in any order, with any sweep passing by what is locked. */
async function serialEnds(cast: Cast, chosen: string[]): Promise<Set<string>> {
  const ends = new Set<string>();
  for (let left = 0; left < 2 ** chosen.length; left++) {
    const taking = chosen.map((verb, actor) => ((left >> actor) & 1 ? null : verb));
    if (chosen.some((verb, actor) => !taking[actor] && !sweeps.includes(verb))) continue;
    const steps = stepsOf(cast, taking);
    for (const turns of ordersOf(taking.map((verb) => (verb ? 1 : 0))))
      ends.add(
        await play(
          cast,
          taking,
          turns.flatMap((actor) => Array.from({ length: steps[actor]! + 1 }, () => actor)),
        ),
      );
  }
  return ends;
}

async function explore(cast: Cast, chosen: string[]): Promise<void> {
  await client.query(`vacuum ${tables.map((table) => `stillwake.${table}`).join(", ")}`);
  const ends = chosen.some((verb) => loose.includes(verb)) ? undefined : await serialEnds(cast, chosen);
  for (const order of ordersOf(stepsOf(cast, chosen))) {
    const end = await play(cast, chosen, withBegin(order));
    if (ends)
      expect([...ends], `${chosen.join(", ")} in order ${order} end as in no order of whole verbs`).toContain(end);
  }
}

describe.each(scenes.map((scene) => [scene.name, scene] as const))("a key with %s", (_, scene) => {
  it("two transactions, every pair of verbs, every order of their steps", { timeout: 300_000 }, async () => {
    const cast = await save(scene);
    const names = Object.keys(verbs).filter((verb) => verbs[verb]!(cast, ids).length > 0);
    for (const [index, one] of names.entries()) {
      for (const two of names.slice(index)) await explore(cast, [one, two]);
    }
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

  it.each(triples)("scene %i: %s, %s, %s", { timeout: 120_000 }, async (scene, ...chosen) => {
    await explore(await save(scenes[scene]!), chosen);
  });
});

/** Keys that a, b, c … are in the order of their locks, from the last to the first. */
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
  // Somebody holds the lock of the second, so that the others meet while each has one lock and wants another.
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

  it("are waited for by calls that name them in opposite orders, without a deadlock", async () => {
    await clear();
    const keys = await keysAgainstTheirLocks("one", 3);
    await client.query(arrivals(keys)[0]!.text, arrivals(keys)[0]!.values);
    const { answers, waits: waited } = await stage.play(
      [holding(keys[1]!), arrivals(keys), arrivals(keys.toReversed())],
      [0, 0, 1, 2, 0],
    );
    expect(waited).toBe(2);
    expect(answers.flat().filter((answer) => typeof answer === "string")).toEqual([]);
  });

  it("are given on while the watchdog looks at them, without a deadlock", async () => {
    await clear();
    const keys = await keysAgainstTheirLocks("one", 3);
    for (let turn = 0; turn < 2; turn++) await client.query(arrivals(keys)[0]!.text, arrivals(keys)[0]!.values);
    const held = await claim(client, "w", ["one"], { limit: 3 });
    const ends = JSON.stringify(held.map((each) => ({ ...each, outcome: "completed" })));
    const { answers } = await stage.play(
      [
        holding(keys[1]!),
        [{ text: "select act from stillwake.watchdog()" }],
        [{ text: "select state from stillwake.settle($1)", values: [ends] }],
      ],
      [0, 0, 1, 2, 0],
    );
    expect(answers.flat().filter((answer) => typeof answer === "string")).toEqual([]);
    expect(await claim(client, "w", ["one"], { limit: 10 })).toHaveLength(3);
  });
});

describe("a key whose holder ends", () => {
  /** The holder is completed while another transaction has the waiter's row locked and then commits or rolls back. */
  async function endWhile(locker: Statement, end: "commit" | "rollback", before?: () => Promise<unknown>) {
    await clear();
    const [first, second] = [await enqueue("one", "wait"), await enqueue("one", "wait")];
    const [held] = await claim(client, "w", ["one"]);
    expect(held!.job).toBe(first);
    await before?.();
    const { answers } = await stage.play(
      [
        [{ text: "begin" }, { ...locker, values: locker.values ?? [second] }, { text: end }],
        [settlement(held!, { outcome: "completed" })],
      ],
      [0, 0, 1, 0],
    );
    expect(answers.flat().filter((answer) => typeof answer === "string")).toEqual([]);
    return second;
  }
  const states = async () => (await client.query("select state from stillwake.live_jobs where key_slot = 1")).rows;

  it("is given to one that has no lane while the watchdog gives out lanes", async () => {
    await endWhile({ text: "select count(*) from stillwake.watchdog()", values: [] }, "commit", () =>
      client.query("select stillwake.lane_pool('default')"),
    );
    expect(await states()).toHaveLength(1);
    expect(await claim(client, "w", ["one"])).toHaveLength(1);
    await client.query("update stillwake.pools set laned = false, relane_until = null");
  });

  it("is given by the watchdog to one who was passed over because somebody began to cancel it and did not", async () => {
    const second = await endWhile({ text: "select stillwake.cancel($1)" }, "rollback");
    expect(await states()).toHaveLength(0);
    await client.query("select stillwake.watchdog()");
    expect((await claim(client, "w", ["one"])).map(({ job }) => job)).toEqual([second]);
  });
});

describe("an idempotency key of a job that joined another", () => {
  it("is forgotten when that one is", async () => {
    await clear();
    const holder = await enqueue("one", "wait");
    const { rows } = await client.query("select stillwake.enqueue('one', '{}', $1) as id", [
      { key: "k", on_conflict: "join", idempotency_key: "once" },
    ]);
    expect(rows[0].id).toBe(holder);
    const [held] = await claim(client, "w", ["one"]);
    await client.query("select stillwake.complete($1, $2, $3)", [held!.job, held!.epoch, held!.lease]);
    const kept = await client.query(
      "select k.forget_on >= e.forget_on as kept from stillwake.idempotency_keys k join stillwake.ended_jobs e on e.id = k.job_id",
    );
    expect(kept.rows).toEqual([{ kept: true }]);
  });
});

afterAll(() => {
  recordFigure("keys: interleavings explored", explored, "", "0 violations");
  recordFigure("keys: deadlocks where they are documented", deadlocks, "", "the loser has left nothing; elsewhere: 0");
  recordFigure("keys: steps that waited for a lock", waits);
});
