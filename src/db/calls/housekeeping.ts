// Calls of the watchdog: sql/functions/jobs/watchdog.sql and housekeeping.sql.
import type { Database } from "../database.ts";

/** One action of the watchdog: what it did, how often, and a note. */
export interface WatchdogAction {
  act: string;
  count: number;
  note: string;
}

/** With `everyMs`: only if no process has done it in this time. `held`: as for a claim; with null, because this process cannot tell whether workers could reach the database. */
export function tendJobs(
  database: Database,
  everyMs?: number,
  held: (string | null)[] = [null],
): Promise<WatchdogAction[]> {
  const every = everyMs === undefined ? null : `${everyMs} milliseconds`;
  // After an outage no lease is recovered: if it was longer than a lease, those of living workers look expired until they heartbeat.
  return readActions(database, "tend_jobs($1, $2)", (again) => [every, again ? null : held]);
}

/** In this order: partitions first, because rows that arrive before their partition have to be moved. */
export const HOUSEKEEPING_TASKS = ["partitions", "retention", "leftovers", "webhooks", "sessions"] as const;

/** One portion of a task, in one transaction. No action: another process is at it. Counts of 0: nothing is left. */
export function housekeep(database: Database, task: (typeof HOUSEKEEPING_TASKS)[number]): Promise<WatchdogAction[]> {
  return readActions(database, "housekeep($1)", () => [task]);
}

export async function isHousekeepingDue(database: Database, everyMs: number): Promise<boolean> {
  const [row] = await database.read<{ due: boolean }>(`select ${database.schema}.housekeeping_due($1) as due`, [
    `${everyMs} milliseconds`,
  ]);
  return row!.due;
}

export async function recordHousekeeping(database: Database): Promise<void> {
  await database.query(`select ${database.schema}.housekeeping_done()`);
}

async function readActions(
  database: Database,
  call: string,
  values: (again: boolean) => unknown[],
): Promise<WatchdogAction[]> {
  const rows = await database.repeat<{ act: string; count: string; note: string }>(
    `select act, count, note from ${database.schema}.${call}`,
    { values },
  );
  return rows.map(({ act, count, note }) => ({ act, count: Number(count), note }));
}
