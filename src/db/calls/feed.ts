// The SQL of the live path: what a process that has followers asks of sql/functions/live/watch.sql.
import type { Database } from "../database.ts";
import type { Failure, JobState, WaitingFor } from "./jobs.ts";

/** How a job stands, as read_feeds() tells it. Times are ISO texts. */
export interface StateFacts {
  state: JobState;
  waiting_for: WaitingFor | null;
  attempt: number;
  max_attempts: number;
  run_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  progress: { at: string; fraction?: number; done?: number; total?: number; sentence?: string } | null;
  missing: string[] | null;
}

interface EndFacts {
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
    | { what: "state"; seq: string; data: StateFacts }
    | { what: "end"; seq: string; data: EndFacts }
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
    | { what: "step"; at: Date; step: string; data: { started_at: string | null; mark: string } }
  );

export type FeedRow = Extract<LiveRow, { what: "feed" }>;

/** From where to read on about one job. Numbers are whole ones as text. */
export interface ReadFrom {
  job: string;
  /** Null for the last 100 of its feed. */
  after: string | null;
  /** Null when its steps are not asked for. */
  mark: string | null;
}

/** `ends`: with what came of those that have ended, which may be large. */
export async function readFeeds(database: Database, jobs: ReadFrom[], most: number, ends = true): Promise<LiveRow[]> {
  return database.query<LiveRow>(
    `select job_id, what, seq, at, epoch, kind, level, step, message, data, size from ${database.schema}.read_feeds($1, $2, $3, $4, $5)`,
    [jobs.map(({ job }) => job), jobs.map(({ after }) => after), jobs.map(({ mark }) => mark), most, ends],
  );
}

export async function watch(database: Database, watcher: string, jobs: string[], span: string): Promise<void> {
  await database.query(`select ${database.schema}.watch($1, $2, $3)`, [watcher, jobs, span], 1000);
}

/** All of them when none is named. */
export async function unwatch(database: Database, watcher: string, jobs: string[] | null): Promise<void> {
  await database.query(`select ${database.schema}.unwatch($1, $2)`, [watcher, jobs], 1000);
}

/** What the connection says over which hints come. */
export function lineStatements(schema: string): { listen: string; pid: string; ping: string } {
  return { listen: `listen "${schema}.feed"`, pid: "select pg_backend_pid() as pid", ping: "select 1" };
}
