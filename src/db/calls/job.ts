// The type of a job, and its conversion from a row.
import { finiteTime, fromRow, type RowOf } from "../row.ts";

export type JobState = "queued" | "running" | "paused" | "completed" | "failed" | "cancelled";
export type WaitingFor = "time" | "retry" | "key" | "limit" | "children" | "event" | "machine";

export interface Failure {
  name?: string;
  message?: string;
  code?: string;
  stack?: string;
  cause?: unknown;
  /** The text for people. */
  sentence?: string;
  /** The step it happened in. */
  step?: string;
}

/**
 * The id of a job, a string. Those that enqueue() returns know the type of the job's output, for get() and wait(); for an id
 * from elsewhere it can be named: `id as JobId<OutputOf<typeof contract>>`.
 */
export type JobId<Output = unknown> = string & { readonly "~output"?: Output };

/** A job and its current state. Times are the database's. */
export interface Job<Output = unknown> {
  id: JobId<Output>;
  pipeline: string;
  pool: string;
  state: JobState;
  /** Why a queued job waits; null when it is ready to start. */
  waitingFor: WaitingFor | null;
  /** The event that it waits for, also while it is paused; null when it waits for none. */
  awaitedEvent: string | null;
  priority: number;
  /** Null while it is paused without a time to resume. */
  runAt: Date | null;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
  expiresAt: Date | null;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  /** The fencing token of the latest attempt, a whole number as a string. */
  epoch: string;
  worker: string | null;
  key: string | null;
  tenant: string | null;
  idempotencyKey: string | null;
  /** The occurrence it is for, if a schedule created it. */
  schedule: ScheduledFor | null;
  input: unknown;
  /** Null until the job has completed. */
  output: Output | null;
  failure: Failure | null;
  cancel: { at: string; by?: string; reason?: string } | null;
  pause: { at: string; by?: string; reason?: string; resume_at?: string } | null;
  progress: { at: string; fraction?: number; done?: number; total?: number; sentence?: string } | null;
  /** Optional steps of a completed job that have no result. */
  missing: string[];
  /** The job that spawned it, the name of the spawn, and the index of its input. */
  parent: { id: string; spawn: string; index: number } | null;
  /** Counts of the jobs it spawned, by state; null without any. */
  children: { total: number; completed: number; failed: number; cancelled: number } | null;
  /** The seq of the last line or event in its feed, a whole number as a string. */
  lastSeq: string;
  /** In a brief list: fields that were omitted because they are too large. */
  omitted?: string[];
}

export interface CompletedJob<Output = unknown> extends Job<Output> {
  state: "completed";
  output: Output;
}

/** The occurrence of a schedule that a job is for. */
export interface ScheduledFor {
  name: string;
  /** The local time, such as "2030-03-31T02:30". */
  occurrence: string;
  /** The time it was due. */
  at: Date;
}

/** The schedule that created a job. */
export interface JobOrigin {
  schedule: string;
  /** The local time of the occurrence. */
  occurrence: string;
  at: string;
}

export function scheduledFor(origin: JobOrigin | null): ScheduledFor | null {
  return origin && { name: origin.schedule, occurrence: origin.occurrence, at: new Date(origin.at) };
}

type SameFields = Omit<Job, "runAt" | "schedule" | "missing" | "parent" | "lastSeq" | "omitted">;

export interface JobRow extends RowOf<SameFields> {
  run_at: Date | number;
  origin: JobOrigin | null;
  missing: string[] | null;
  parent_id: string | null;
  spawn: string | null;
  child_no: number | null;
  seq: string;
  omitted?: string[];
}

export function toJob({ run_at, origin, missing, parent_id, spawn, child_no, seq, omitted, ...row }: JobRow): Job {
  return {
    ...fromRow<SameFields>(row),
    runAt: finiteTime(run_at),
    schedule: scheduledFor(origin),
    missing: missing ?? [],
    parent: parent_id ? { id: parent_id, spawn: spawn!, index: child_no! } : null,
    lastSeq: seq,
    ...(omitted && omitted.length > 0 && { omitted }),
  };
}
