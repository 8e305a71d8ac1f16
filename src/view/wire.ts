// What the server says of a job, as JSON: the part of the API that somebody who follows one job meets. The nouns are those of server/shapes.ts, moments are ISO
// texts, numbers that may grow large are texts. A test holds these types against the shapes of the server.

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

export interface Progress {
  at?: string | undefined;
  fraction?: number | undefined;
  done?: number | undefined;
  total?: number | undefined;
  sentence?: string | undefined;
}

/** How a job stands, as the stream tells it. A job of the API has all of these and more. */
export interface StateTold {
  state: JobState;
  waitingFor: WaitReason | null;
  attempt: number;
  maxAttempts: number;
  runAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
  progress: Progress | null;
  missing: string[];
}

export interface StepTold {
  name: string;
  startedAt: string | null;
  savedAt: string;
  tookMs: number | null;
  epoch: string;
}

export interface LogTold {
  seq: string;
  at: string;
  epoch: string;
  level: Level;
  step: string | null;
  message: string;
  data: unknown;
}

export interface EventTold {
  seq: string;
  at: string;
  epoch: string;
  /** What happened, such as "slept" or "retried". */
  kind: string;
  data: unknown;
}

export interface GapTold {
  after: string;
  next: string;
}

/** The state is null when the job was forgotten while it was followed. */
export interface EndTold {
  state: "completed" | "failed" | "cancelled" | null;
  output: unknown;
  failure: Failure | null;
}

/** One event of the stream. */
export type Told =
  | { event: "state"; id?: string; data: StateTold }
  | { event: "step"; id?: string; data: StepTold }
  | { event: "log"; id?: string; data: LogTold }
  | { event: "event"; id?: string; data: EventTold }
  | { event: "progress"; id?: string; data: Progress }
  | { event: "gap"; id?: string; data: GapTold }
  | { event: "end"; id?: string; data: EndTold };

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
