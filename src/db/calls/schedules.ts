// Calls of sql/functions/flow/schedules.sql for clients, and reads of its table.
import type { CatchUp, Overlap } from "../../contract/schedule.ts";
import { type Database, placeholders } from "../database.ts";
import { readValues } from "../row.ts";

/** Returns whether anything changed. */
export async function setSchedule(database: Database, name: string, settings: string): Promise<boolean> {
  const rows = await database.query<{ changed: boolean }>(
    `select ${database.schema}.set_schedule($1, $2::text::jsonb) as changed`,
    [name, settings],
  );
  return rows[0]!.changed;
}

/** Returns false when there is no such schedule. */
export async function removeSchedule(database: Database, name: string): Promise<boolean> {
  let lost = false;
  const rows = await database.repeat<{ removed: boolean }>(`select ${database.schema}.remove_schedule($1) as removed`, {
    values: (again) => {
      lost = again;
      return [name];
    },
  });
  // A first try whose response was lost may have removed it.
  return rows[0]!.removed || lost;
}

export async function controlSchedule(
  database: Database,
  verb: "pause_schedule" | "resume_schedule",
  values: unknown[],
): Promise<void> {
  await database.query(`select ${database.schema}.${verb}(${placeholders(values)})`, values);
}

export interface Occurrence {
  /** The local time, such as "2030-03-31T02:30"; with its offset where every hour is named. */
  occurrence: string;
  at: Date;
}

/** The next occurrences of a stored schedule, or of a cron expression in a zone. */
export async function readUpcoming(
  database: Database,
  schedule: string | { cron: string; zone: string },
  count: number,
): Promise<Occurrence[]> {
  const [call, values] =
    typeof schedule === "string"
      ? ["upcoming($2, $1::integer)", [schedule]]
      : ["upcoming($2, $3, $1::integer)", [schedule.cron, schedule.zone]];
  return database.read<Occurrence>(`select occurrence, at from ${database.schema}.${call}`, [count, ...values]);
}

/** A schedule and its current state. Times are the database's. */
export interface ScheduleState {
  name: string;
  cron: string;
  zone: string;
  pipeline: string;
  input: unknown;
  overlap: Overlap;
  catchUp: CatchUp;
  /** The next occurrence that has not been fired. */
  next: Occurrence | null;
  /** How long it is overdue. More than a minute: no worker of its pool is running and the watchdog is not called. */
  lateMs: number;
  /** The last occurrence for which a job was enqueued. */
  last: (Occurrence & { job: string }) | null;
  /** Why the next occurrence's job could not be enqueued; retried every minute. */
  lastError: string | null;
  fired: number;
  /** Occurrences without a job because the previous job was still live. */
  skipped: number;
  /** Occurrences that passed while nothing fired schedules, and were not caught up. */
  missed: number;
  paused: { at: Date; by: string | null } | null;
}

interface ScheduleOccurrences {
  nextOccurrence: string | null;
  nextAt: Date | null;
  lastOccurrence: string | null;
  lastAt: Date | null;
  lastJob: string | null;
  pausedAt: Date | null;
  pausedBy: string | null;
}

export async function readSchedules(database: Database): Promise<ScheduleState[]> {
  const rows = await readValues<Omit<ScheduleState, "next" | "last" | "paused"> & ScheduleOccurrences>(
    database,
    `select name, cron, zone, pipeline, input, overlap, catch_up, next_occurrence, next_at,
      case when due_at is null then 0
        else round(greatest(0, extract(epoch from ${database.schema}.now() - next_at) * 1000)) end::float8 as late_ms,
      last_occurrence, last_at, last_job, last_error, fired::float8, skipped::float8, missed::float8, paused_at, paused_by
    from ${database.schema}.schedules order by name`,
  );
  return rows.map(({ nextOccurrence, nextAt, lastOccurrence, lastAt, lastJob, pausedAt, pausedBy, ...row }) => ({
    ...row,
    next: nextAt && pausedAt === null ? { occurrence: nextOccurrence!, at: nextAt } : null,
    last: lastAt && { occurrence: lastOccurrence!, at: lastAt, job: lastJob! },
    paused: pausedAt && { at: pausedAt, by: pausedBy },
  }));
}
