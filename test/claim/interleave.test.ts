// T2: two and three actors in every order of their steps. Whatever the order, the invariants hold, whoever was refused has left nothing,
// and the end is one that the actors could have reached one after the other.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, enqueue, type Held } from "../model/actors.ts";
import { snapshotText } from "../model/engine.ts";
import { ordersOf, Stage, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await client.query("set synchronous_commit = off; select stillwake.register_pipeline('plain')");
await stopClock(client);
await client.query(`do $$ begin execute format('create function since_start(timestamptz) returns float8 language sql immutable
  as $f$ select extract(epoch from $1 - %L::timestamptz) * 1000 $f$', stillwake.now()); end $$`);
const stage = await Stage.open(database.url, 3);

// As a function, because planning the same few statements anew took most of the time.
const tables = ["live_jobs", "leases", "ended_jobs", "ended_attempts", "checkpoints", "feed"];
await client.query(`create schema saved;
  ${tables.map((table) => `create table saved.${table} (like stillwake.${table});`).join("\n")}
  create function saved.restore() returns void language plpgsql as $$ begin
  ${tables.map((table) => `delete from stillwake.${table}; insert into stillwake.${table} select * from saved.${table};`).join("\n")}
  end $$`);

/** A beginning: what is in the tables, and which handles the actors hold. It is made once and put back before every play. */
interface Scene {
  name: string;
  prepare(): Promise<Held[][]>;
  /** With two leases a sweep may find one of them free, which no order of whole verbs can show. */
  serial: boolean;
}

const scenes: Scene[] = [
  {
    name: "one job under a lease that has run out",
    serial: true,
    async prepare() {
      const [held] = await startJobs(1, 1);
      await travel(client, "11s");
      return [[held!], [held!], [held!]];
    },
  },
  {
    name: "two jobs under one lease that has run out",
    serial: true,
    async prepare() {
      const [one, two] = await startJobs(2, 2);
      await travel(client, "11s");
      return [[one!], [two!], [one!, two!]];
    },
  },
  {
    name: "two jobs under two leases that have run out, named in opposite orders",
    serial: false,
    async prepare() {
      const [one, two] = await startJobs(2, 1);
      await travel(client, "11s");
      return [[one!, two!], [two!, one!], [one!]];
    },
  },
  {
    name: "one job back in line, its old worker still writing",
    serial: true,
    async prepare() {
      const [held] = await startJobs(1, 1);
      await travel(client, "11s");
      await client.query("select stillwake.recover()");
      return [[held!], [held!], [held!]];
    },
  },
];

async function startJobs(count: number, perLease: number): Promise<Held[]> {
  for (let n = 0; n < count; n++) await enqueue(client, "plain");
  const held: Held[] = [];
  while (held.length < count) held.push(...(await claim(client, "old", ["plain"], { limit: perLease })));
  return held;
}

const batch = (held: Held[], more: object) => [JSON.stringify(held.map((each) => ({ ...each, ...more })))];

/** Each verb as one actor says it; the mark is found again in whatever the verb has written. */
const verbs: Record<string, (held: Held[], mark: string) => Statement> = {
  claim: (_, mark) => ({
    text: "select job_id, epoch from stillwake.claim($1, 'default', '{plain}', 2, '10s')",
    values: [mark],
  }),
  recover: () => ({ text: "select stillwake.recover()" }),
  heartbeat: (held) => ({
    text: "select job_id, verdict from stillwake.heartbeat($1, $2, $3)",
    values: [held.map(({ job }) => job), held.map(({ epoch }) => epoch), held.map(({ lease }) => lease)],
  }),
  complete: (held, mark) => ({
    text: "select * from stillwake.settle($1) order by 1",
    values: batch(held, { outcome: "completed", output: mark }),
  }),
  fail: (held, mark) => ({
    text: "select * from stillwake.settle($1) order by 1",
    values: batch(held, { outcome: "failed", retry_in: "0s", failure: { code: mark } }),
  }),
  cancel: (held, mark) => ({ text: "select stillwake.cancel($1, $2)", values: [held[0]!.job, mark] }),
  checkpoint: (held, mark) => ({
    text: "select job_id, result from stillwake.save_checkpoints($1) order by 1",
    values: batch(held, { step: mark, output: mark }),
  }),
  logs: (held, mark) => ({
    text: "select * from stillwake.append_logs($1) order by 1",
    values: batch(held, { lines: [{ message: mark }] }),
  }),
};
const names = Object.keys(verbs);
const sweeps = ["claim", "recover"];

/** What is left of a mark: in which jobs, in whatever table. */
const marksText = `
  select job_id, step as mark from stillwake.checkpoints
  union select job_id, message from stillwake.feed where kind = 'log'
  union select job_id, failure ->> 'code' from stillwake.attempts
  union select id, output #>> '{}' from stillwake.ended_jobs`;

let explored = 0;
let waits = 0;
let refused = 0;

async function save(scene: Scene): Promise<Held[][]> {
  await client.query(tables.map((table) => `delete from stillwake.${table}`).join(";"));
  const held = await scene.prepare();
  await client.query(
    tables.map((table) => `delete from saved.${table}; insert into saved.${table} table stillwake.${table}`).join(";"),
  );
  return held;
}

/** Plays the verbs in one order and answers where it ended: the answers and the whole state, without what is drawn at random. */
async function play(chosen: (string | null)[], held: Held[][], order: number[], begin: boolean): Promise<string> {
  await client.query("select saved.restore()");
  const scripts = chosen.map((verb, actor): Statement[] => {
    if (!verb) return [];
    const statement = verbs[verb]!(held[actor]!, `mark ${actor}`);
    return begin ? [{ text: "begin" }, statement, { text: "commit" }] : [statement];
  });
  const played = await stage.play(scripts, order, async (actor, answers) => {
    if (answers.length === 2) await expectHeld(chosen, actor, held[actor]!, answers[1]);
  });
  const said = played.answers.map((answers) => answers[begin ? 1 : 0]);
  const { rows } = await client.query({ name: "snapshot", text: snapshotText });
  const marks = await client.query({ name: "marks", text: marksText, rowMode: "array" });
  const story = `${chosen.map((verb, actor) => `${actor}: ${verb} -> ${JSON.stringify(said[actor])}`).join(", ")}; order ${order}`;
  expect(rows[0].violations ?? [], story).toEqual([]);
  expect(
    said.filter((answer) => typeof answer === "string" && !answer.startsWith("SW")),
    `errors: ${story}`,
  ).toEqual([]);
  for (const [actor, answer] of said.entries()) {
    for (const job of refusedJobs(answer)) {
      refused += 1;
      expect(marks.rows, story).not.toContainEqual([job, `mark ${actor}`]);
    }
  }
  if (begin) explored += 1;
  waits += played.waits;
  const leases = (rows[0].world as { leases: { id: string; worker: string }[] }).leases;
  const end = leases.reduce((text, { id, worker }) => text.replaceAll(id, worker), JSON.stringify(rows[0].world));
  // A sweep that is left out, and one that found everything locked, both say nothing.
  return `${said.map((answer) => JSON.stringify(answer ?? []).replace("[[0]]", "[]"))} ${end}`;
}

/** Before a worker commits a write that was accepted, nobody can have taken the job from it: the others still see its lease. */
async function expectHeld(chosen: (string | null)[], actor: number, held: Held[], answer: unknown): Promise<void> {
  const verb = chosen[actor]!;
  if (!["complete", "fail", "checkpoint", "logs"].includes(verb)) return;
  // An attempt that has ended before is told so, which is no write.
  const isTold =
    (chosen.indexOf(verb) !== chosen.lastIndexOf(verb) && !["checkpoint", "logs"].includes(verb)) ||
    isCancelled(answer);
  const accepted = isTold ? [] : held.filter(({ job }) => !refusedJobs(answer).includes(job));
  const { rows } = await client.query({ name: "held", text: heldText, values: [accepted.map(({ job }) => job)] });
  const story = `${verb} among ${chosen.join(", ")} commits for a job that was taken away`;
  for (const each of accepted) expect(rows, story).toContainEqual(each);
}

const heldText = "select id as job, epoch, lease_id as lease from stillwake.live_jobs where id = any ($1::uuid[])";

function isCancelled(answer: unknown): boolean {
  return Array.isArray(answer) && answer.some(([, state]) => state === "cancelled");
}

function refusedJobs(answer: unknown): string[] {
  if (!Array.isArray(answer)) return [];
  return answer.flatMap(([job, result]) => (result === "lost" || result === null ? [job] : []));
}

/** Where the verbs can end one after the other, in any order, with any sweep passing by what is locked. */
async function serialEnds(chosen: string[], held: Held[][]): Promise<Set<string>> {
  const ends = new Set<string>();
  for (let left = 0; left < 2 ** chosen.length; left++) {
    const taking = chosen.map((verb, actor) => ((left >> actor) & 1 ? null : verb));
    if (chosen.some((verb, actor) => !taking[actor] && !sweeps.includes(verb))) continue;
    for (const order of ordersOf(taking.map((verb) => (verb ? 1 : 0))))
      ends.add(await play(taking, held, order, false));
  }
  return ends;
}

async function explore(scene: Scene, held: Held[][], chosen: string[], orders: number[][]): Promise<void> {
  // The same few ids come and go, which leaves long trails of dead rows behind each of them.
  await client.query(`vacuum ${tables.map((table) => `stillwake.${table}`).join(", ")}`);
  const ends = scene.serial ? await serialEnds(chosen, held) : undefined;
  for (const order of orders) {
    const end = await play(chosen, held, order, true);
    if (ends)
      expect([...ends], `${chosen.join(", ")} in order ${order} end as in no order of whole verbs`).toContain(end);
  }
}

describe.each(scenes.map((scene) => [scene.name, scene] as const))("T2: %s", (_, scene) => {
  it("two actors, every pair of verbs, every order of begin, verb and commit", { timeout: 120_000 }, async () => {
    const held = await save(scene);
    for (const [index, one] of names.entries()) {
      for (const two of names.slice(index)) await explore(scene, held, [one, two], ordersOf([3, 3]));
    }
  });
});

describe("T2: three actors", () => {
  const takers = [
    ["claim", "claim"],
    ["claim", "recover"],
    ["claim", "cancel"],
    ["recover", "cancel"],
  ];
  const writers = ["heartbeat", "complete", "fail", "checkpoint", "logs"];
  // A begin alone does nothing to others, so it goes with its verb.
  const orders = ordersOf([2, 2, 2]).map((order) =>
    order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor])),
  );

  it.each(takers)(
    "%s, %s and every write of the old worker, in every order",
    { timeout: 120_000 },
    async (one, two) => {
      const held = await save(scenes[0]!);
      for (const writer of writers) await explore(scenes[0]!, held, [one!, two!, writer], orders);
    },
  );
});

describe("a job that moves while a verb looks for it", () => {
  const looks: [string, string, Statement[]][] = [
    ["cancel", "ended_jobs", [{ text: "select stillwake.retry($1)" }]],
    ["pause", "ended_jobs", [{ text: "select stillwake.retry($1)" }]],
    ["retry", "live_jobs", [{ text: "select stillwake.cancel($1)" }]],
  ];

  it.each(looks)("is never said not to exist: %s, stopped before %s", async (verb, table, move) => {
    await client.query(tables.map((each) => `delete from stillwake.${each}`).join(";"));
    const job = await enqueue(client, "plain");
    if (table === "ended_jobs") await client.query("select stillwake.cancel($1)", [job]);
    const mover = [
      { text: "begin" },
      { text: `lock table stillwake.${table} in access exclusive mode` },
      ...move.map(({ text }) => ({ text, values: [job] })),
      { text: "commit" },
    ];
    const { answers, waits: waited } = await stage.play(
      [mover, [{ text: `select stillwake.${verb}($1)`, values: [job] }]],
      [0, 0, 1, 0, 0],
    );
    expect(waited).toBe(1);
    expect(answers[1]![0]).not.toBe("SW004");
  });
});

afterAll(() => {
  recordFigure(
    "T2: interleavings explored",
    explored,
    "",
    "36 pairs of verbs in 4 scenes, 20 triples in one, every order; 0 violations",
  );
  recordFigure("T2: steps that waited for a lock", waits);
  recordFigure("T2: writes refused", refused, "", "shots on goal; traces left by them: 0");
});
