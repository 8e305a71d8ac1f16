// The immutable state of a job at one moment, as a store passes it to views and to React.
import type { ProgressRate } from "../text/progress-rate.ts";
import type { Connection } from "./stream.ts";
import type { EndEvent, Level, StateEvent } from "./wire.ts";

/** A log line, a state change, a gap of lines that are no longer stored, or the outcome. */
export interface Line {
  /** Index in `Snapshot.lines`. */
  no: number;
  kind: "log" | "event" | "gap" | "end";
  seq: string | null;
  at: string | null;
  epoch: string | null;
  level: Level;
  step: string | null;
  message: string;
  data: unknown;
  /** On the last line of a step: the duration of the step. */
  tookMs: number | null;
}

export interface Snapshot {
  id: string;
  connection: Connection;
  /** A sentence about the connection. */
  problem: string | null;
  /** Null until the server has sent it. */
  job: Omit<StateEvent, "progress"> | null;
  steps: readonly StepView[];
  progress: ProgressRate | null;
  /** All lines. The same array grows, and is replaced only when the log starts over. Compare `version`. */
  lines: readonly Line[];
  version: number;
  counts: Readonly<Record<Level, number>>;
  /** The last log message of the running attempt. */
  latest: string | null;
  end: EndEvent | null;
}

export interface StepView {
  name: string;
  state: "running" | "kept" | "missing" | "interrupted";
  /** From the server, or else the time of its first line. */
  startedAt: string | null;
  savedAt: string | null;
  tookMs: number | null;
  epoch: string | null;
  /** Its last log message. */
  sentence: string | null;
}

export const NO_LINES: Readonly<Record<Level, number>> = { info: 0, success: 0, warning: 0, error: 0 };

/** The snapshot before the first event, and during server rendering. */
export function emptySnapshot(id: string): Snapshot {
  return {
    id,
    connection: "connecting",
    problem: null,
    job: null,
    steps: [],
    progress: null,
    lines: [],
    version: 0,
    counts: NO_LINES,
    latest: null,
    end: null,
  };
}
