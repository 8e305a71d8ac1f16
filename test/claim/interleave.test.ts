// Two and three actors in every order of their steps. Whatever the order, the invariants hold, a refused actor has written
// nothing, and the final state is one that the actors could have reached one after the other.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, enqueue, type HeldJob } from "../model/actors.ts";
import { snapshotText } from "../model/engine.ts";
import { Interleaver, ordersOf, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await client.query("set synchronous_commit = off; select stillwake.register_pipeline('plain')");
await stopClock(client);
await client.query(`do $$ begin execute format('create function since_start(timestamptz) returns float8 language sql immutable
  as $f$ select extract(epoch from $1 - %L::timestamptz) * 1000 $f$', stillwake.now()); end $$`);
const interleaver = await Interleaver.open(database.url, 3);

// As a function, because planning the same few statements again took most of the time.
const tables = ["live_jobs", "leases", "outages", "ended_jobs", "ended_attempts", "checkpoints", "feed"];
await client.query(`create schema saved;
  ${tables.map((table) => `create table saved.${table} (like stillwake.${table});`).join("\n")}
  create function saved.restore() returns void language plpgsql as $$ begin
  ${tables.map((table) => `delete from stillwake.${table}; insert into stillwake.${table} select * from saved.${table};`).join("\n")}
  end $$`);

/** A start: the content of the tables, and the handles of the actors. Created once and restored before every run. */
interface Setup {
  name: string;
  prepare(): Promise<HeldJob[][]>;
  /** With two leases a sweep may find one of them free, which no order of whole calls can show. */
  serial: boolean;
}

const setups: Setup[] = [
  {
    name: "one job under a lease that has expired",
    serial: true,
    async prepare() {
      const [held] = await startJobs(1, 1);
      await travel(client, "11s");
      return [[held!], [held!], [held!]];
    },
  },
  {
    name: "two jobs under one lease that has expired",
    serial: true,
    async prepare() {
      const [one, two] = await startJobs(2, 2);
      await travel(client, "11s");
      return [[one!], [two!], [one!, two!]];
    },
  },
  {
    name: "two jobs under two leases that have expired, named in opposite orders",
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

async function startJobs(count: number, perLease: number): Promise<HeldJob[]> {
  for (let n = 0; n < count; n++) await enqueue(client, "plain");
  const held: HeldJob[] = [];
  while (held.length < count) held.push(...(await claim(client, "old", ["plain"], { limit: perLease })));
  return held;
}

const batch = (held: HeldJob[], more: object) => [JSON.stringify(held.map((each) => ({ ...each, ...more })))];

/** Each call as one actor makes it; the tag is found again in everything the call has written. */
const calls: Record<string, (held: HeldJob[], tag: string) => Statement> = {
  claim: (_, tag) => ({
    text: "select job_id, epoch from stillwake.claim($1, 'default', '{plain}', 2, '10s')",
    values: [tag],
  }),
  recover: () => ({ text: "select stillwake.recover()" }),
  heartbeat: (held) => ({
    text: "select job_id, verdict from stillwake.heartbeat($1, $2, $3)",
    values: [held.map(({ job }) => job), held.map(({ epoch }) => epoch), held.map(({ lease }) => lease)],
  }),
  complete: (held, tag) => ({
    text: "select * from stillwake.settle($1) order by 1",
    values: batch(held, { outcome: "completed", output: tag }),
  }),
  fail: (held, tag) => ({
    text: "select * from stillwake.settle($1) order by 1",
    values: batch(held, { outcome: "failed", retry_in: "0s", failure: { code: tag } }),
  }),
  cancel: (held, tag) => ({ text: "select stillwake.cancel($1, $2)", values: [held[0]!.job, tag] }),
  checkpoint: (held, tag) => ({
    text: "select job_id, result from stillwake.save_checkpoints($1) order by 1",
    values: batch(held, { step: tag, output: tag }),
  }),
  logs: (held, tag) => ({
    text: "select * from stillwake.append_logs($1) order by 1",
    values: batch(held, { lines: [{ message: tag }] }),
  }),
};
const names = Object.keys(calls);
const sweeps = ["claim", "recover"];

/** The rows that contain a tag: which jobs, in which table. */
const tagsText = `
  select job_id, step as tag from stillwake.checkpoints
  union select job_id, message from stillwake.feed where kind = 'log'
  union select job_id, failure ->> 'code' from stillwake.attempts
  union select id, output #>> '{}' from stillwake.ended_jobs`;

let explored = 0;
let waits = 0;
let refused = 0;

async function save(setup: Setup): Promise<HeldJob[][]> {
  await client.query(tables.map((table) => `delete from stillwake.${table}`).join(";"));
  const held = await setup.prepare();
  await client.query(
    tables.map((table) => `delete from saved.${table}; insert into saved.${table} table stillwake.${table}`).join(";"),
  );
  return held;
}

/** Runs the calls in one order and returns the result: return values and the whole state, without random values. */
async function runInOrder(
  selected: (string | null)[],
  held: HeldJob[][],
  order: number[],
  begin: boolean,
): Promise<string> {
  await client.query("select saved.restore()");
  const scripts = selected.map((call, actor): Statement[] => {
    if (!call) return [];
    const statement = calls[call]!(held[actor]!, `tag ${actor}`);
    return begin ? [{ text: "begin" }, statement, { text: "commit" }] : [statement];
  });
  const outcome = await interleaver.run(scripts, order, async (actor, statementResults) => {
    if (statementResults.length === 2) await expectHeld(selected, actor, held[actor]!, statementResults[1]);
  });
  const results = outcome.results.map((statementResults) => statementResults[begin ? 1 : 0]);
  const { rows } = await client.query({ name: "snapshot", text: snapshotText });
  const tags = await client.query({ name: "tags", text: tagsText, rowMode: "array" });
  const description = `${selected.map((call, actor) => `${actor}: ${call} -> ${JSON.stringify(results[actor])}`).join(", ")}; order ${order}`;
  expect(rows[0].violations ?? [], description).toEqual([]);
  expect(
    results.filter((result) => typeof result === "string" && !result.startsWith("SW")),
    `errors: ${description}`,
  ).toEqual([]);
  for (const [actor, result] of results.entries()) {
    for (const job of refusedJobs(result)) {
      refused += 1;
      expect(tags.rows, description).not.toContainEqual([job, `tag ${actor}`]);
    }
  }
  if (begin) explored += 1;
  waits += outcome.waits;
  const leases = (rows[0].world as { leases: { id: string; worker: string }[] }).leases;
  const end = leases.reduce((text, { id, worker }) => text.replaceAll(id, worker), JSON.stringify(rows[0].world));
  // A sweep that is left out, and one that found everything locked, both return nothing.
  return `${results.map((result) => JSON.stringify(result ?? []).replace("[[0]]", "[]"))} ${end}`;
}

/** Until a worker commits a write that was accepted, no other actor can have taken the job: others still see its lease. */
async function expectHeld(selected: (string | null)[], actor: number, held: HeldJob[], result: unknown): Promise<void> {
  const call = selected[actor]!;
  if (!["complete", "fail", "checkpoint", "logs"].includes(call)) return;
  // For an attempt that has ended, the settlement returns its state, which is not a write.
  const isRepeat =
    (selected.indexOf(call) !== selected.lastIndexOf(call) && !["checkpoint", "logs"].includes(call)) ||
    isCancelled(result);
  const accepted = isRepeat ? [] : held.filter(({ job }) => !refusedJobs(result).includes(job));
  const { rows } = await client.query({ name: "held", text: heldText, values: [accepted.map(({ job }) => job)] });
  const description = `${call} among ${selected.join(", ")} commits for a job that was taken away`;
  for (const each of accepted) expect(rows, description).toContainEqual(each);
}

const heldText = "select id as job, epoch, lease_id as lease from stillwake.live_jobs where id = any ($1::uuid[])";

function isCancelled(result: unknown): boolean {
  return Array.isArray(result) && result.some(([, state]) => state === "cancelled");
}

function refusedJobs(result: unknown): string[] {
  if (!Array.isArray(result)) return [];
  return result.flatMap(([job, result]) => (result === "lost" || result === null ? [job] : []));
}

/** The results of running the calls one after the other, in any order, with any sweep skipping locked rows. */
async function serialResults(selected: string[], held: HeldJob[][]): Promise<Set<string>> {
  const expected = new Set<string>();
  for (let left = 0; left < 2 ** selected.length; left++) {
    const taking = selected.map((call, actor) => ((left >> actor) & 1 ? null : call));
    if (selected.some((call, actor) => !taking[actor] && !sweeps.includes(call))) continue;
    for (const order of ordersOf(taking.map((call) => (call ? 1 : 0))))
      expected.add(await runInOrder(taking, held, order, false));
  }
  return expected;
}

async function explore(setup: Setup, held: HeldJob[][], selected: string[], orders: number[][]): Promise<void> {
  // The same few ids are inserted and deleted, which leaves many dead rows behind each of them.
  await client.query(`vacuum ${tables.map((table) => `stillwake.${table}`).join(", ")}`);
  const expected = setup.serial ? await serialResults(selected, held) : undefined;
  for (const order of orders) {
    const end = await runInOrder(selected, held, order, true);
    if (expected)
      expect(
        [...expected],
        `${selected.join(", ")} in order ${order}: no order of whole calls has this result`,
      ).toContain(end);
  }
}

describe.each(setups.map((setup) => [setup.name, setup] as const))("%s", (_, setup) => {
  it("two actors, every pair of calls, every order of begin, call and commit", { timeout: 120_000 }, async () => {
    const held = await save(setup);
    for (const [index, one] of names.entries()) {
      for (const two of names.slice(index)) await explore(setup, held, [one, two], ordersOf([3, 3]));
    }
  });
});

describe("three actors", () => {
  const takers = [
    ["claim", "claim"],
    ["claim", "recover"],
    ["claim", "cancel"],
    ["recover", "cancel"],
  ];
  const writers = ["heartbeat", "complete", "fail", "checkpoint", "logs"];
  // A begin alone has no effect on others, so it is combined with its call.
  const orders = ordersOf([2, 2, 2]).map((order) =>
    order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor])),
  );

  it.each(takers)(
    "%s, %s and every write of the old worker, in every order",
    { timeout: 120_000 },
    async (one, two) => {
      const held = await save(setups[0]!);
      for (const writer of writers) await explore(setups[0]!, held, [one!, two!, writer], orders);
    },
  );
});

describe("a job that moves while a call looks it up", () => {
  const cases: [string, string, Statement[]][] = [
    ["cancel", "ended_jobs", [{ text: "select stillwake.retry($1)" }]],
    ["pause", "ended_jobs", [{ text: "select stillwake.retry($1)" }]],
    ["retry", "live_jobs", [{ text: "select stillwake.cancel($1)" }]],
  ];

  it.each(cases)("is never reported as missing: %s, stopped before %s", async (call, table, move) => {
    await client.query(tables.map((each) => `delete from stillwake.${each}`).join(";"));
    const job = await enqueue(client, "plain");
    if (table === "ended_jobs") await client.query("select stillwake.cancel($1)", [job]);
    const mover = [
      { text: "begin" },
      { text: `lock table stillwake.${table} in access exclusive mode` },
      ...move.map(({ text }) => ({ text, values: [job] })),
      { text: "commit" },
    ];
    const { results, waits: waited } = await interleaver.run(
      [mover, [{ text: `select stillwake.${call}($1)`, values: [job] }]],
      [0, 0, 1, 0, 0],
    );
    expect(waited).toBe(1);
    expect(results[1]![0]).not.toBe("SW004");
  });
});

afterAll(() => {
  recordFigure(
    "interleavings explored",
    explored,
    "",
    "36 pairs of calls in 4 setups, 20 triples in one, every order; 0 violations",
  );
  recordFigure("interleaved steps that waited for a lock", waits);
  recordFigure("interleaved writes refused", refused, "", "rows written by them: 0");
});
