// Calls of sql/functions/flow/schedules.sql for clients, and reads of its table.
import { type Database, placeholders } from "../database.ts";

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

export interface SlotRow {
  slot: string;
  at: Date;
}

/** The next slots of a stored schedule, or of a cron expression in a zone. */
export async function readUpcoming(
  database: Database,
  schedule: string | { cron: string; zone: string },
  count: number,
): Promise<SlotRow[]> {
  const [call, values] =
    typeof schedule === "string"
      ? ["upcoming($2, $1::integer)", [schedule]]
      : ["upcoming($2, $3, $1::integer)", [schedule.cron, schedule.zone]];
  return database.query<SlotRow>(`select slot, at from ${database.schema}.${call}`, [count, ...values]);
}

export interface ScheduleRow {
  name: string;
  cron: string;
  zone: string;
  pipeline: string;
  input: unknown;
  options: Record<string, unknown>;
  overlap: string;
  catch_up: string;
  next_slot: string | null;
  next_at: Date | null;
  late_ms: string;
  last_slot: string | null;
  last_at: Date | null;
  last_job: string | null;
  last_error: string | null;
  fired: string;
  skipped: string;
  missed: string;
  paused_at: Date | null;
  paused_by: string | null;
}

export async function readSchedules(database: Database): Promise<ScheduleRow[]> {
  return database.query<ScheduleRow>(
    `select name, cron, zone, pipeline, input, options, overlap, catch_up, next_slot, next_at,
      case when due_at is null then 0 else greatest(0, extract(epoch from ${database.schema}.now() - next_at) * 1000) end as late_ms,
      last_slot, last_at, last_job, last_error, fired, skipped, missed, paused_at, paused_by
    from ${database.schema}.schedules order by name`,
  );
}
