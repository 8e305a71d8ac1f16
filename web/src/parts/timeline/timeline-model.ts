// The timeline of a job as numbers: a row for each step, a band for each attempt, the gaps between them, and the axis.
// Built from the steps and attempts of the server and from log lines: a step without a checkpoint has only log lines.
import { type Axis, type Band, buildAxis, findGaps, type Gap, type Outcome } from "./timeline-axis.ts";

export interface AttemptData {
  epoch: string;
  /** The server's count. It restarts when an ended job is retried, and does not grow when an attempt is released. */
  attempt: number;
  claimedAt: string;
  endedAt: string | null;
  outcome: Outcome | null;
  failure?: { code?: string | undefined; name?: string | undefined } | null;
}

export interface StepData {
  name: string;
  epoch: string;
  startedAt: string | null;
  savedAt: string;
  /** The duration of the attempt at the step that was kept. */
  tookMs?: number | null;
}

export interface LogLine {
  kind: string;
  at: string | null;
  epoch: string | null;
  level: string;
  step: string | null;
  message: string;
  data: unknown;
}

export interface JobData {
  state: string;
  waitingFor: string | null;
  startedAt: string | null;
  endedAt: string | null;
  missing: readonly string[];
  children: { total: number; completed: number; failed: number; cancelled: number } | null;
}

export interface TimelineData {
  job: JobData;
  attempts: readonly AttemptData[];
  /** Steps with a checkpoint. */
  steps: readonly StepData[];
  /** Names of steps whose checkpoint is not a result yet: an unfinished list, a wait. */
  open?: ReadonlySet<string>;
  log?: LogIndex;
  now: number;
}

export type RowState = "kept" | "running" | "waiting" | "skipped" | "interrupted" | "children";

export interface Piece {
  from: number;
  to: number;
  /** Its state in this attempt. */
  state: RowState;
  /** In an attempt before the latest one. */
  earlier: boolean;
  attempt: number | null;
}

export interface Row {
  name: string;
  state: RowState;
  pieces: Piece[];
  /** Of the piece that was kept, else of the latest one; of a list that several attempts worked on, all pieces. */
  tookMs: number | null;
  /** All pieces together. */
  allMs: number;
  /** The earlier attempt whose checkpoint is used. */
  keptFrom: number | null;
  /** Why it was skipped, or its last log line. */
  text: string | null;
}

export interface Timeline extends Axis {
  from: number;
  to: number;
  rows: Row[];
  bands: Band[];
  gaps: Gap[];
}

interface StepLog {
  step: string;
  epoch: string;
  first: number;
  last: number;
  message: string;
  /** The warning of an optional step that failed. */
  skipped: string | null;
}

/** What log lines say about steps. The array of lines only grows, so each line is read once. */
export class LogIndex {
  /** By epoch and step. */
  readonly steps = new Map<string, StepLog>();
  readonly spawns: { name: string; at: number; total: number }[] = [];
  /** The latest epoch. */
  epoch: string | undefined;
  #lines: readonly LogLine[] = [];
  #next = 0;

  add(lines: readonly LogLine[]): this {
    if (lines !== this.#lines) {
      this.#lines = lines;
      this.#next = 0;
      this.steps.clear();
      this.spawns.length = 0;
      this.epoch = undefined;
    }
    for (; this.#next < lines.length; this.#next++) this.#read(lines[this.#next]!);
    return this;
  }

  #read({ kind, at, epoch, level, step, message, data }: LogLine): void {
    if (at === null) return;
    const time = Date.parse(at);
    const details = (typeof data === "object" && data !== null ? data : {}) as Record<string, unknown>;
    if (kind === "event" && typeof details.spawn === "string" && typeof details.children === "number") {
      this.spawns.push({ name: details.spawn, at: time, total: details.children });
    }
    if (kind !== "log" || epoch === null) return;
    // Lines are in order, and epochs only grow.
    this.epoch = epoch;
    if (step === null) return;
    const key = `${epoch} ${step}`;
    const known = this.steps.get(key);
    const skipped = level === "warning" && "error" in details ? message : null;
    if (!known) {
      this.steps.set(key, { step, epoch, first: time, last: time, message, skipped });
      return;
    }
    known.last = Math.max(known.last, time);
    known.message = message;
    known.skipped = skipped ?? known.skipped;
  }
}

export function buildTimeline(data: TimelineData): Timeline | null {
  const { job, now } = data;
  const { attempts, endedJob } = numberAttempts(data);
  const first = attempts[0];
  const from = first ? Date.parse(first.claimedAt) : job.startedAt ? Date.parse(job.startedAt) : null;
  if (from === null) return null;
  const to = Math.max(from + 1, job.endedAt ? Date.parse(job.endedAt) : now);
  const bands = attempts.map((attempt) => ({
    from: Date.parse(attempt.claimedAt),
    to: attempt.endedAt ? Date.parse(attempt.endedAt) : to,
    attempt: attempt.attempt,
    outcome: attempt.outcome,
    runnerLost: isRunnerLost(attempt),
    endedJob: endedJob.has(attempt.epoch),
  }));
  const gaps = findGaps(bands, to);
  const axis = buildAxis(from, to, gaps);
  return { from, to, bands, gaps, rows: buildRows(data, attempts, to), ...axis };
}

/** The attempts in order, numbered from 1, and the epochs of those that ended the job before it was retried by hand. */
function numberAttempts({ attempts, job }: TimelineData): { attempts: AttemptData[]; endedJob: Set<string> } {
  const sorted = [...attempts].sort((a, b) => Date.parse(a.claimedAt) - Date.parse(b.claimedAt));
  const endedJob = new Set<string>();
  for (const [index, { epoch, attempt, outcome }] of sorted.entries()) {
    const next = sorted[index + 1];
    // A failed or lost attempt is counted: a count that does not grow after it has restarted.
    const isCounted = outcome === "failed" || outcome === "lost";
    const hasRestarted = next ? next.attempt <= attempt : job.startedAt === null;
    if (outcome === "completed" || outcome === "cancelled" || (isCounted && hasRestarted)) endedJob.add(epoch);
  }
  return { attempts: sorted.map((attempt, index) => ({ ...attempt, attempt: index + 1 })), endedJob };
}

/** Whether the runner died and not the worker, which reported it. */
export function isRunnerLost({ outcome, failure }: Pick<AttemptData, "outcome" | "failure">): boolean {
  return outcome === "lost" && (failure?.code?.startsWith("RUNNER_") === true || failure?.name === "RunnerDied");
}

/** The time of all attempts, and how much of it was wasted: after the last checkpoint of a failed or lost attempt. */
export function workerTime(attempts: readonly AttemptData[], steps: readonly StepData[], now: number) {
  let workedMs = 0;
  let wastedMs = 0;
  for (const { epoch, claimedAt, endedAt, outcome } of attempts) {
    const began = Date.parse(claimedAt);
    const ended = endedAt ? Date.parse(endedAt) : now;
    workedMs += Math.max(0, ended - began);
    if (outcome !== "lost" && outcome !== "failed") continue;
    const saved = steps.filter((step) => step.epoch === epoch).map(({ savedAt }) => Date.parse(savedAt));
    wastedMs += Math.max(0, ended - Math.max(began, ...saved));
  }
  return { workedMs, wastedMs };
}

/** Selects the rows to show: the latest, those that are not kept, then the longest. Keeps their order. */
export function selectRows(rows: readonly Row[], max: number): Row[] {
  if (rows.length <= max) return [...rows];
  const weight = ({ state, tookMs }: Row) => (state === "kept" ? (tookMs ?? 0) : Number.MAX_SAFE_INTEGER);
  const latest = rows.slice(-Math.ceil(max / 3));
  const rest = rows.slice(0, -latest.length).sort((a, b) => weight(b) - weight(a));
  const chosen = new Set([...latest, ...rest.slice(0, max - latest.length)]);
  return rows.filter((row) => chosen.has(row));
}

interface RowSources extends TimelineData {
  to: number;
  log: LogIndex;
  latest: AttemptData | undefined;
  byEpoch: ReadonlyMap<string, AttemptData>;
  /** The epoch of the running attempt. */
  running: string | undefined;
  results: ReadonlyMap<string, StepData>;
  /** Steps that save a cursor: the work of an earlier attempt on one is not wasted. */
  lists: ReadonlySet<string>;
  rowOf(name: string): Row;
}

function buildRows(data: TimelineData, attempts: readonly AttemptData[], to: number): Row[] {
  const { job, steps: kept, open, log = new LogIndex() } = data;
  const latest = attempts.at(-1);
  const byEpoch = new Map(attempts.map((attempt) => [attempt.epoch, attempt]));
  const rows = new Map<string, Row>();
  const rowOf = (name: string) => {
    const row = rows.get(name) ?? {
      name,
      state: "interrupted",
      pieces: [],
      tookMs: null,
      allMs: 0,
      keptFrom: null,
      text: null,
    };
    rows.set(name, row);
    return row;
  };
  const isList = ({ name, epoch, startedAt }: StepData) =>
    open?.has(name) || isContinued(byEpoch.get(epoch), startedAt);
  const sources: RowSources = {
    ...data,
    to,
    log,
    latest,
    byEpoch,
    // The fetched attempts may be older than the log lines.
    running: job.state !== "running" ? undefined : latest?.endedAt === null ? latest.epoch : log.epoch,
    results: new Map(kept.filter(({ name }) => !open?.has(name)).map((step) => [step.name, step])),
    lists: new Set(kept.filter(isList).map(({ name }) => name)),
    rowOf,
  };
  addLogged(sources);
  addResults(sources);
  addOpen(sources);
  for (const name of job.missing) rowOf(name).state = "skipped";
  for (const row of rows.values()) {
    row.pieces.sort((a, b) => a.from - b.from);
    const relevant = row.state === "kept" ? row.pieces.filter(({ state }) => state === "kept") : row.pieces;
    const counted = sources.lists.has(row.name) ? relevant : relevant.slice(-1);
    row.tookMs = counted.length === 0 ? null : lengthOf(counted);
    row.allMs = lengthOf(row.pieces);
  }
  const startOf = ({ pieces }: Row) => pieces[0]?.from ?? Number.MAX_VALUE;
  const steps = [...rows.values()].sort((a, b) => startOf(a) - startOf(b));
  return [...steps, ...childrenRow(data, attempts, to)];
}

function lengthOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { from, to }) => sum + to - from, 0);
}

/** Steps that were started in an epoch without a checkpoint in it: running, skipped, or ended with the attempt. */
function addLogged({ log, results, running, lists, latest, byEpoch, rowOf, to }: RowSources): void {
  const lastSteps = lastStepByEpoch(log);
  for (const entry of log.steps.values()) {
    const { step, epoch, first, last, message, skipped } = entry;
    const row = rowOf(step);
    row.text = skipped ?? message;
    const result = results.get(step);
    if (result?.epoch === epoch) continue;
    const attempt = byEpoch.get(epoch);
    const isRunning = epoch === running && !result && skipped === null;
    const wasLast = lastSteps.get(epoch) === entry && skipped === null && attempt?.endedAt;
    const end = isRunning ? to : wasLast ? Math.max(last, Date.parse(attempt.endedAt!)) : last;
    const earlier = epoch !== (running ?? latest?.epoch);
    const partly = earlier && lists.has(step);
    row.state = isRunning ? "running" : skipped !== null ? "skipped" : partly ? "kept" : "interrupted";
    row.pieces.push({ from: first, to: end, state: row.state, earlier, attempt: attempt?.attempt ?? null });
  }
}

function addResults({ results, log, lists, latest, byEpoch, rowOf }: RowSources): void {
  for (const { name, epoch, startedAt, savedAt, tookMs } of results.values()) {
    const row = rowOf(name);
    const end = Date.parse(savedAt);
    const earlier = latest !== undefined && epoch !== latest.epoch;
    const attempt = byEpoch.get(epoch)?.attempt ?? null;
    // The start of a list is in its first attempt; this piece is of the last one.
    const logged = lists.has(name) ? log.steps.get(`${epoch} ${name}`)?.first : undefined;
    const start = typeof tookMs === "number" ? end - tookMs : startedAt ? Date.parse(startedAt) : end;
    const from = Math.min(end, logged ?? start);
    row.pieces.push({ from, to: end, state: "kept", earlier, attempt });
    row.state = "kept";
    row.keptFrom = earlier ? attempt : null;
  }
}

/** Steps with a cursor and no result yet. */
function addOpen({ job, steps, open, running, byEpoch, rowOf, to }: RowSources): void {
  for (const { name, epoch, startedAt, savedAt } of steps) {
    if (!open?.has(name)) continue;
    const row = rowOf(name);
    if (row.pieces.some(({ state }) => state === "running")) continue;
    row.state = epoch === running ? "running" : job.waitingFor === "event" ? "waiting" : "interrupted";
    // Log lines are more exact than the saved cursor.
    if (row.pieces.length > 0 && row.state !== "waiting") continue;
    const from = Date.parse(startedAt ?? savedAt);
    const end = row.state === "interrupted" ? Date.parse(savedAt) : to;
    const attempt = byEpoch.get(epoch)?.attempt ?? null;
    row.pieces.push({ from, to: end, state: row.state, earlier: false, attempt });
  }
}

/** The step was started before this attempt: the attempt continued it from its cursor. */
function isContinued(attempt: AttemptData | undefined, startedAt: string | null): boolean {
  return attempt !== undefined && startedAt !== null && Date.parse(startedAt) < Date.parse(attempt.claimedAt);
}

/** The step of the last log line in each epoch: it was running when the attempt ended. */
function lastStepByEpoch(log: LogIndex): Map<string, StepLog> {
  const lasts = new Map<string, StepLog>();
  for (const entry of log.steps.values()) {
    const last = lasts.get(entry.epoch);
    if (!last || entry.last >= last.last) lasts.set(entry.epoch, entry);
  }
  return lasts;
}

function childrenRow({ job: { children }, log }: TimelineData, attempts: readonly AttemptData[], to: number): Row[] {
  if (!children || children.total === 0) return [];
  const ended = children.completed + children.failed + children.cancelled;
  const since = log?.spawns[0]?.at;
  const pieces: Piece[] = [];
  if (since !== undefined) {
    const next = attempts.map(({ claimedAt }) => Date.parse(claimedAt)).find((at) => at > since);
    const until = ended < children.total ? to : (next ?? to);
    pieces.push({ from: since, to: Math.max(since, until), state: "children", earlier: false, attempt: null });
  }
  const tookMs = pieces[0] ? pieces[0].to - pieces[0].from : null;
  const text = `${ended} of ${children.total} ended`;
  return [{ name: "children", state: "children", pieces, tookMs, allMs: tookMs ?? 0, keptFrom: null, text }];
}
