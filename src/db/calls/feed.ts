// Calls of sql/functions/live/watch.sql, for processes with followers.
import type { Database } from "../database.ts";
import type { Failure, JobState, WaitingFor } from "./job.ts";

/** The status of a job as read_feeds() returns it. Times are ISO strings. */
export interface JobStatus {
  state: JobState;
  waiting_for: WaitingFor | null;
  awaited_event: string | null;
  attempt: number;
  max_attempts: number;
  run_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  progress: { at: string; fraction?: number; done?: number; total?: number; sentence?: string } | null;
  missing: string[] | null;
}

interface EndData {
  state: "completed" | "failed" | "cancelled";
  output: unknown;
  failure: Failure | null;
}

interface Common {
  job_id: string;
  epoch: string;
}

export type LiveRow = Common &
  (
    | { what: "state"; seq: string; data: JobStatus }
    | { what: "end"; seq: string; data: EndData }
    | {
        what: "feed";
        seq: string;
        at: Date;
        kind: string;
        level: "info" | "success" | "warning" | "error" | null;
        step: string | null;
        message: string | null;
        data: unknown;
        size: number;
      }
    | { what: "step"; at: Date; step: string; data: { started_at: string | null; saved_us: string } }
  );

export type FeedRow = Extract<LiveRow, { what: "feed" }>;

/** From where to continue reading one job. Integers as strings. */
export interface FeedPosition {
  job: string;
  /** Null for the last 100 rows of its feed. */
  after: string | null;
  /** Steps saved after this time, in microseconds since 1970; null for none. */
  stepsAfter: string | null;
}

/** `results`: includes the outputs and failures of ended jobs, which may be large. */
export async function readFeeds(
  database: Database,
  jobs: FeedPosition[],
  limit: number,
  results = true,
): Promise<LiveRow[]> {
  return database.read<LiveRow>(
    `select job_id, what, seq, at, epoch, kind, level, step, message, data, size from ${database.schema}.read_feeds($1, $2, $3, $4, $5)`,
    [
      jobs.map(({ job }) => job),
      jobs.map(({ after }) => after),
      jobs.map(({ stepsAfter }) => stepsAfter),
      limit,
      results,
    ],
  );
}

export async function watch(database: Database, watcher: string, jobs: string[], span: string): Promise<void> {
  await database.query(`select ${database.schema}.watch($1, $2, $3)`, [watcher, jobs, span], 1000);
}

/** Null for all jobs of the watcher. */
export async function unwatch(database: Database, watcher: string, jobs: string[] | null): Promise<void> {
  await database.query(`select ${database.schema}.unwatch($1, $2)`, [watcher, jobs], 1000);
}
