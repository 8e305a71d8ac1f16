// Interleavings about parents and children: the initial jobs, and what each actor does in its transaction.
import type pg from "pg";
import { newId } from "../../../src/ids.ts";
import { claim, type HeldJob } from "../actors.ts";
import type { Statement } from "../interleave.ts";

/** A job with children, at the start. */
export interface Family {
  /** Running, unless it waits. */
  parent: HeldJob;
  /** The running ones, in order of their numbers; the others have completed, or are queued. */
  children: HeldJob[];
  ids: string[];
}

export interface FamilyOptions {
  /** How many there are, which of them run, and which are queued. */
  total: number;
  running: number[];
  inLine?: number[];
  onError?: "fail" | "collect";
  /** The parent already waits for them, or for an event. */
  waits?: "children" | "event";
}

/** Creates a family in an empty database. All children not named have completed. */
export async function makeFamily(
  client: pg.ClientBase,
  { total, running, inLine = [], onError = "collect", waits }: FamilyOptions,
): Promise<Family> {
  await client.query("select stillwake.enqueue('parent', '{}')");
  const [parent] = await claim(client, "p", ["parent"], { lease: "1 hour" });
  const ids = await spawnChildren(client, parent!, "kids", total, onError);
  const wanted = new Set(running.map((n) => ids[n]));
  const waiting = inLine.map((n) => ids[n]!);
  await client.query("update stillwake.live_jobs set run_at = 'infinity' where id = any ($1)", [waiting]);
  const children: HeldJob[] = [];
  const done: HeldJob[] = [];
  // Each under a separate lease, as if by separate workers; the completed ones under one.
  await client.query("update stillwake.live_jobs set priority = 1 where id = any ($1)", [[...wanted]]);
  for (const _ of running) children.push(...(await claim(client, "c", ["child"], { lease: "1 hour" })));
  children.sort((a, b) => ids.indexOf(a.job) - ids.indexOf(b.job));
  for (let left = total - running.length - inLine.length; left > 0; left -= 500) {
    done.push(...(await claim(client, "c", ["child"], { limit: Math.min(500, left) })));
  }
  await client.query("select stillwake.settle($1)", [
    JSON.stringify(done.map((held) => ({ ...held, outcome: "completed" }))),
  ]);
  await client.query("update stillwake.live_jobs set run_at = created_at where id = any ($1)", [waiting]);
  if (waits) await client.query(wait(parent!, waits).text, wait(parent!, waits).values);
  return { parent: parent!, children, ids };
}

export async function spawnChildren(
  client: pg.ClientBase,
  { job, epoch, lease }: HeldJob,
  name: string,
  total: number,
  onError: string,
): Promise<string[]> {
  const ids = Array.from({ length: total }, () => newId());
  await client.query("select stillwake.spawn($1, $2, $3, $4, 'child', $5, '{}', $6, 0, $7, $8)", [
    ...[job, epoch, lease, name, JSON.stringify(ids.map(() => 0))],
    ...[ids, total, onError],
  ]);
  return ids;
}

// Statements of actors.

export const settlement = (held: HeldJob, more: object) => ({ ...held, ...more });
export const settle = (...settlements: object[]): Statement => ({
  text: "select job_id, state from stillwake.settle($1)",
  values: [JSON.stringify(settlements)],
});
export const complete = (held: HeldJob): Statement => settle(settlement(held, { outcome: "completed" }));
export const fail = (held: HeldJob): Statement =>
  settle(settlement(held, { outcome: "failed", fatal: true, failure: { message: "as asked" } }));
export const lose = (held: HeldJob): Statement => settle(settlement(held, { outcome: "lost", failure: {} }));
export function wait(held: HeldJob, what: "children" | "event", more: object = {}): Statement {
  const awaits = what === "children" ? "kids" : "word";
  return settle(settlement(held, { outcome: "slept", waiting_for: what, awaits, ...more }));
}
export const controlJob = (verb: "cancel" | "retry" | "pause" | "resume", id: string): Statement => ({
  text: `select stillwake.${verb}($1)`,
  values: [id],
});
export const signalParent = (id: string): Statement => ({
  text: "select stillwake.signal($1, 'word', '1')",
  values: [id],
});
export const claimParent: Statement = {
  text: "select job_id from stillwake.claim('late', 'default', '{parent}')",
};
export const claimChild: Statement = {
  text: "select job_id from stillwake.claim('late', 'default', '{child}', 1, '1 hour')",
};
