// The JSON of the server that a follower of one job receives. The names are those of server/schemas.ts, timestamps are
// ISO strings, numbers that may grow large are strings. A test checks these types against the server's.
import type { Progress } from "../text/progress-rate.ts";

export type { Progress };
export type JobState = "queued" | "running" | "paused" | "completed" | "failed" | "cancelled";
export type WaitReason = "time" | "retry" | "key" | "limit" | "children" | "event" | "machine";
export type Level = "info" | "success" | "warning" | "error";

export interface Failure {
  name?: string | undefined;
  message?: string | undefined;
  code?: string | undefined;
  stack?: string | undefined;
  cause?: unknown;
  sentence?: string | undefined;
  step?: string | undefined;
}

/** The status of a job. A job of the API has these fields and more. */
export interface StateEvent {
  state: JobState;
  waitingFor: WaitReason | null;
  /** Null for a reader with a read token. */
  awaitedEvent: string | null;
  attempt: number;
  maxAttempts: number;
  runAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
  progress: Progress | null;
  missing: string[];
}

export interface StepEvent {
  name: string;
  startedAt: string | null;
  savedAt: string;
  tookMs: number | null;
  epoch: string;
}

export interface LogEvent {
  seq: string;
  at: string;
  epoch: string;
  level: Level;
  step: string | null;
  message: string;
  data: unknown;
}

/** A state change of the job. */
export interface FeedEvent {
  seq: string;
  at: string;
  epoch: string;
  /** Such as "slept" or "retried". */
  kind: string;
  data: unknown;
}

/** Lines between two sequence numbers are no longer stored. */
export interface GapEvent {
  after: string;
  next: string;
}

export interface EndEvent {
  /** Null when the job was pruned while it was followed. */
  state: "completed" | "failed" | "cancelled" | null;
  output: unknown;
  failure: Failure | null;
}

/** One event of the stream. */
export type StreamEvent =
  | { event: "state"; id?: string; data: StateEvent }
  | { event: "step"; id?: string; data: StepEvent }
  | { event: "log"; id?: string; data: LogEvent }
  | { event: "event"; id?: string; data: FeedEvent }
  | { event: "progress"; id?: string; data: Progress }
  | { event: "gap"; id?: string; data: GapEvent }
  | { event: "end"; id?: string; data: EndEvent };

export interface Artifact {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  savedAt: string;
}

export interface Problem {
  code: string;
  detail: string;
  remedy?: string | undefined;
}
