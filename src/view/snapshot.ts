// What is known of a job at one moment: the shape in which a store hands it to views and to React.
import type { PaceNow } from "./pace.ts";
import type { Connection } from "./stream.ts";
import type { EndTold, Level, StateTold } from "./wire.ts";

/** A line of the log, a change of state among them, the place where lines are missing, or how the job ended. */
export interface Line {
  /** Its place among the lines of this page, from 0. */
  no: number;
  kind: "log" | "event" | "gap" | "end";
  seq: string | null;
  at: string | null;
  epoch: string | null;
  level: Level;
  step: string | null;
  message: string;
  data: unknown;
  /** How long the step took that this line ends. */
  tookMs: number | null;
}

export interface Snapshot {
  id: string;
  connection: Connection;
  /** What there is to say about the connection, as a sentence. */
  problem: string | null;
  /** How the job stands; null until the server has said it. */
  job: Omit<StateTold, "progress"> | null;
  steps: readonly StepSeen[];
  progress: PaceNow | null;
  /** All lines so far. The same array grows; it is another one only when everything has begun anew. Go by `version`. */
  lines: readonly Line[];
  version: number;
  counts: Readonly<Record<Level, number>>;
  /** What the job said last, while it runs. */
  latest: string | null;
  end: EndTold | null;
}

export interface StepSeen {
  name: string;
  state: "running" | "kept" | "missing" | "interrupted";
  /** When it began: as the server has it, else the moment of its first line. */
  startedAt: string | null;
  savedAt: string | null;
  tookMs: number | null;
  epoch: string | null;
  /** What it said last. */
  sentence: string | null;
}

/** Of no level any line. */
export const NONE: Readonly<Record<Level, number>> = { info: 0, success: 0, warning: 0, error: 0 };

/** Before anything is known, and what a server renders. */
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
    counts: NONE,
    latest: null,
    end: null,
  };
}
