// The Job type of the client, and its conversion from a row.
import type * as calls from "../db/calls/jobs.ts";

/** A job and its current state. Times are the database's. */
export interface Job {
  id: string;
  pipeline: string;
  pool: string;
  state: calls.JobState;
  /** Why a queued job waits; null when it is ready to start. */
  waitingFor: calls.WaitingFor | null;
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
  /** The slot it is for, if a schedule created it. */
  schedule: ScheduledFor | null;
  input: unknown;
  output: unknown;
  failure: calls.Failure | null;
  cancel: calls.JobRow["cancel"];
  pause: calls.JobRow["pause"];
  progress: calls.JobRow["progress"];
  /** Optional steps of a completed job that have no result. */
  missing: string[];
  /** The job that spawned it, the name of the spawn, and the index of its input. */
  parent: { id: string; spawn: string; index: number } | null;
  /** Counts of the jobs it spawned, by state; null without any. */
  children: calls.JobRow["children"];
  /** The seq of the last line or event in its feed, a whole number as a string. */
  lastSeq: string;
  /** In a brief list: fields that were left out because they are too large. */
  omitted?: string[];
}

/** The slot of a schedule that a job is for. */
export interface ScheduledFor {
  name: string;
  /** The local time, such as "2030-03-31T02:30". */
  slot: string;
  /** The time it was due. */
  at: Date;
}

export function scheduledFor(origin: calls.JobOrigin | null): ScheduledFor | null {
  return origin && { name: origin.schedule, slot: origin.slot, at: new Date(origin.at) };
}

export function toJob(row: calls.JobRow): Job {
  return {
    id: row.id,
    pipeline: row.pipeline,
    pool: row.pool,
    state: row.state,
    waitingFor: row.waiting_for,
    priority: row.priority,
    // pg parses infinity as a number.
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
