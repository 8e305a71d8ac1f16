// A job as the client shows it: the row of the view under the names of TypeScript.
import type * as verbs from "../db/calls/jobs.ts";

/** Where a job stands. Times are the database's. */
export interface Job {
  id: string;
  pipeline: string;
  pool: string;
  state: verbs.JobState;
  /** Why a queued job waits; null when it could start now. */
  waitingFor: verbs.WaitingFor | null;
  priority: number;
  /** Null while it is set aside with no time to resume. */
  runAt: Date | null;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
  expiresAt: Date | null;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  /** The fencing token of the latest attempt, a whole number as text. */
  epoch: string;
  worker: string | null;
  key: string | null;
  tenant: string | null;
  idempotencyKey: string | null;
  /** The slot it is for, when a schedule made it. */
  schedule: ScheduledFor | null;
  input: unknown;
  output: unknown;
  failure: verbs.Failure | null;
  cancel: verbs.JobRow["cancel"];
  pause: verbs.JobRow["pause"];
  progress: verbs.JobRow["progress"];
  /** Optional steps of a completed job that have no result. */
  missing: string[];
  /** The job that has spawned it, in which of its spawns, and its place among the inputs. */
  parent: { id: string; spawn: string; index: number } | null;
  /** How far the jobs are that it has spawned; null when it has spawned none. */
  children: verbs.JobRow["children"];
  /** The place of the last line or event in its log, a whole number as text. */
  lastSeq: string;
  /** In a brief list: what is too large for it. */
  omitted?: string[];
}

/** The slot of a schedule that a job is for. */
export interface ScheduledFor {
  name: string;
  /** The local time, such as "2030-03-31T02:30". */
  slot: string;
  /** The moment it was due. */
  at: Date;
}

export function scheduledFor(origin: verbs.JobOrigin | null): ScheduledFor | null {
  return origin && { name: origin.schedule, slot: origin.slot, at: new Date(origin.at) };
}

export function toJob(row: verbs.JobRow): Job {
  return {
    id: row.id,
    pipeline: row.pipeline,
    pool: row.pool,
    state: row.state,
    waitingFor: row.waiting_for,
    priority: row.priority,
    // The driver reads infinity as a number.
    runAt: row.run_at instanceof Date ? row.run_at : null,
    createdAt: row.created_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    expiresAt: row.expires_at,
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    crashes: row.crashes,
    epoch: row.epoch,
    worker: row.worker,
    key: row.key,
    tenant: row.tenant,
    idempotencyKey: row.idempotency_key,
    schedule: scheduledFor(row.origin),
    input: row.input,
    output: row.output,
    failure: row.failure,
    cancel: row.cancel,
    pause: row.pause,
    progress: row.progress,
    missing: row.missing ?? [],
    parent: row.parent_id ? { id: row.parent_id, spawn: row.spawn!, index: row.child_no! } : null,
    children: row.children,
    lastSeq: row.seq,
    ...(row.omitted && row.omitted.length > 0 && { omitted: row.omitted }),
  };
}
