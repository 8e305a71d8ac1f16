// A job in time, as numbers: rows for its steps, bands for its attempts, gaps between them, and where each lies on the axis. Made of what the server keeps
// (steps, attempts) and of what was said while it happened (lines), since a step that was not kept is known by its lines alone.
import { type Axis, axisOf, type Band, type Gap, gapsOf, type Outcome } from "./timeline-axis.ts";

export interface AttemptGiven {
  epoch: string;
  /** As the server counts: it begins anew when an ended job is retried, and does not grow where an attempt is given back. */
  attempt: number;
  claimedAt: string;
  endedAt: string | null;
  outcome: Outcome | null;
  failure?: { code?: string | undefined; name?: string | undefined } | null;
}

export interface StepGiven {
  name: string;
  epoch: string;
  startedAt: string | null;
  savedAt: string;
  /** Of the try that was kept. */
  tookMs?: number | null;
}

export interface LineGiven {
  kind: string;
  at: string | null;
  epoch: string | null;
  level: string;
  step: string | null;
  message: string;
  data: unknown;
}

export interface JobGiven {
  state: string;
  waitingFor: string | null;
  startedAt: string | null;
  endedAt: string | null;
  missing: readonly string[];
  children: { total: number; completed: number; failed: number; cancelled: number } | null;
}

export interface Given {
  job: JobGiven;
  attempts: readonly AttemptGiven[];
  /** As the server keeps them. */
  kept: readonly StepGiven[];
  /** Names of those that are no result yet: a list that is half done, a wait that goes on. */
  open?: ReadonlySet<string>;
  heard?: Heard;
  now: number;
}

export type RowState = "kept" | "running" | "waiting" | "skipped" | "interrupted" | "children";

export interface Piece {
  from: number;
  to: number;
  /** What came of it in this attempt. */
  state: RowState;
  /** Of an attempt before the latest one. */
  earlier: boolean;
  attempt: number | null;
}

export interface Row {
  name: string;
  state: RowState;
  pieces: Piece[];
  /** Of the try that was kept, else of the latest; of a list that several attempts have worked at, of all of them. */
  tookMs: number | null;
  /** All tries together. */
  allMs: number;
  /** Which attempt's result is used, when the latest did not have to make it. */
  keptFrom: number | null;
  /** Why it was skipped, or what it said last. */
  words: string | null;
}

export interface Timeline extends Axis {
  from: number;
  to: number;
  rows: Row[];
  bands: Band[];
  gaps: Gap[];
}

interface Words {
  step: string;
  epoch: string;
  first: number;
  last: number;
  message: string;
  /** The warning that an optional step leaves. */
  skipped: string | null;
}

/** What lines tell about steps. Lines only ever grow, so each is looked at once, however often a page is drawn. */
export class Heard {
  readonly words = new Map<string, Words>();
  readonly spawns: { name: string; at: number; total: number }[] = [];
  /** The latest that anything was said under. */
  epoch: string | undefined;
  #lines: readonly LineGiven[] = [];
  #seen = 0;

  take(lines: readonly LineGiven[]): this {
    if (lines !== this.#lines) {
      this.#lines = lines;
      this.#seen = 0;
      this.words.clear();
      this.spawns.length = 0;
      this.epoch = undefined;
    }
    for (; this.#seen < lines.length; this.#seen++) this.#hear(lines[this.#seen]!);
    return this;
  }

  #hear({ kind, at, epoch, level, step, message, data }: LineGiven): void {
    if (at === null) return;
    const moment = Date.parse(at);
    const told = (typeof data === "object" && data !== null ? data : {}) as Record<string, unknown>;
    if (kind === "event" && typeof told.spawn === "string" && typeof told.children === "number") {
      this.spawns.push({ name: told.spawn, at: moment, total: told.children });
    }
    if (kind !== "log" || epoch === null) return;
    // Lines come in order, and an epoch only grows.
    this.epoch = epoch;
    if (step === null) return;
    const key = `${epoch} ${step}`;
    const known = this.words.get(key);
    const skipped = level === "warning" && "error" in told ? message : null;
    if (!known) {
      this.words.set(key, { step, epoch, first: moment, last: moment, message, skipped });
      return;
    }
    known.last = Math.max(known.last, moment);
    known.message = message;
    known.skipped = skipped ?? known.skipped;
  }
}

export function timelineOf(given: Given): Timeline | null {
  const { job, now } = given;
  const { attempts, last } = inOrder(given);
  const first = attempts[0];
  const from = first ? Date.parse(first.claimedAt) : job.startedAt ? Date.parse(job.startedAt) : null;
  if (from === null) return null;
  const to = Math.max(from + 1, job.endedAt ? Date.parse(job.endedAt) : now);
  const bands = attempts.map((attempt) => ({
    from: Date.parse(attempt.claimedAt),
    to: attempt.endedAt ? Date.parse(attempt.endedAt) : to,
    attempt: attempt.attempt,
    outcome: attempt.outcome,
    runner: lostRunner(attempt),
    last: last.has(attempt.epoch),
  }));
  const gaps = gapsOf(bands, to);
  const axis = axisOf(from, to, gaps);
  return { from, to, bands, gaps, rows: rowsOf(given, attempts, to), ...axis };
}

/** The attempts by their order, numbered by it, and those of them with which the job had ended before somebody retried it. */
function inOrder({ attempts, job }: Given): { attempts: AttemptGiven[]; last: Set<string> } {
  const sorted = [...attempts].sort((one, two) => Date.parse(one.claimedAt) - Date.parse(two.claimedAt));
  const last = new Set<string>();
  for (const [at, { epoch, attempt, outcome }] of sorted.entries()) {
    const next = sorted[at + 1];
    // One that failed or was lost is charged, so a count that does not grow after it has begun anew.
    const charged = outcome === "failed" || outcome === "lost";
    const anew = next ? next.attempt <= attempt : job.startedAt === null;
    if (outcome === "completed" || outcome === "cancelled" || (charged && anew)) last.add(epoch);
  }
  return { attempts: sorted.map((one, at) => ({ ...one, attempt: at + 1 })), last };
}

/** Whether it was the runner that died. Its worker lives and has said so. */
export function lostRunner({ outcome, failure }: Pick<AttemptGiven, "outcome" | "failure">): boolean {
  return outcome === "lost" && (failure?.code?.startsWith("RUNNER_") === true || failure?.name === "RunnerDied");
}

/** What the attempts took together, and how much of that was done in wastedStarts: after the last result that an attempt kept before it was lost or failed. */
export function costOf(attempts: readonly AttemptGiven[], kept: readonly StepGiven[], now: number) {
  let workedMs = 0;
  let vainMs = 0;
  for (const { epoch, claimedAt, endedAt, outcome } of attempts) {
    const began = Date.parse(claimedAt);
    const ended = endedAt ? Date.parse(endedAt) : now;
    workedMs += Math.max(0, ended - began);
    if (outcome !== "lost" && outcome !== "failed") continue;
    const saved = kept.filter((step) => step.epoch === epoch).map(({ savedAt }) => Date.parse(savedAt));
    vainMs += Math.max(0, ended - Math.max(began, ...saved));
  }
  return { workedMs, vainMs };
}

/** Those to show of many: all that move or went wrong, then the longest; in their order. */
export function mostTelling(rows: readonly Row[], most: number): Row[] {
  if (rows.length <= most) return [...rows];
  const weight = ({ state, tookMs }: Row) => (state === "kept" ? (tookMs ?? 0) : Number.MAX_SAFE_INTEGER);
  const latest = rows.slice(-Math.ceil(most / 3));
  const rest = rows.slice(0, -latest.length).sort((one, two) => weight(two) - weight(one));
  const chosen = new Set([...latest, ...rest.slice(0, most - latest.length)]);
  return rows.filter((row) => chosen.has(row));
}

/** What all rows are made from. */
interface Sheet extends Given {
  to: number;
  heard: Heard;
  latest: AttemptGiven | undefined;
  byEpoch: ReadonlyMap<string, AttemptGiven>;
  /** The epoch under which it runs now. */
  running: string | undefined;
  results: ReadonlyMap<string, StepGiven>;
  /** Steps that keep a place: what an earlier attempt did of one was not in wastedStarts. */
  lists: ReadonlySet<string>;
  rowOf(name: string): Row;
}

function rowsOf(given: Given, attempts: readonly AttemptGiven[], to: number): Row[] {
  const { job, kept, open, heard = new Heard() } = given;
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
      words: null,
    };
    rows.set(name, row);
    return row;
  };
  const isList = ({ name, epoch, startedAt }: StepGiven) => open?.has(name) || wentOn(byEpoch.get(epoch), startedAt);
  const sheet: Sheet = {
    ...given,
    to,
    heard,
    latest,
    byEpoch,
    // The list of attempts may be a moment behind the lines.
    running: job.state !== "running" ? undefined : latest?.endedAt === null ? latest.epoch : heard.epoch,
    results: new Map(kept.filter(({ name }) => !open?.has(name)).map((step) => [step.name, step])),
    lists: new Set(kept.filter(isList).map(({ name }) => name)),
    rowOf,
  };
  addHeard(sheet);
  addResults(sheet);
  addOpen(sheet);
  for (const name of job.missing) rowOf(name).state = "skipped";
  for (const row of rows.values()) {
    row.pieces.sort((one, two) => one.from - two.from);
    const counts = row.state === "kept" ? row.pieces.filter(({ state }) => state === "kept") : row.pieces;
    const tries = sheet.lists.has(row.name) ? counts : counts.slice(-1);
    row.tookMs = tries.length === 0 ? null : lengthOf(tries);
    row.allMs = lengthOf(row.pieces);
  }
  const began = ({ pieces }: Row) => pieces[0]?.from ?? Number.MAX_VALUE;
  const steps = [...rows.values()].sort((one, two) => began(one) - began(two));
  return [...steps, ...childrenRow(given, attempts, to)];
}

function lengthOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { from, to }) => sum + to - from, 0);
}

/** What was begun and not kept under the same epoch: it runs, was given up, or ended with its attempt. */
function addHeard({ heard, results, running, lists, latest, byEpoch, rowOf, to }: Sheet): void {
  const lastWords = lastOfEach(heard);
  for (const words of heard.words.values()) {
    const { step, epoch, first, last, message, skipped } = words;
    const row = rowOf(step);
    row.words = skipped ?? message;
    const result = results.get(step);
    if (result?.epoch === epoch) continue;
    const attempt = byEpoch.get(epoch);
    const goesOn = epoch === running && !result && skipped === null;
    const wasLast = lastWords.get(epoch) === words && skipped === null && attempt?.endedAt;
    const end = goesOn ? to : wasLast ? Math.max(last, Date.parse(attempt.endedAt!)) : last;
    const earlier = epoch !== (running ?? latest?.epoch);
    const partly = earlier && lists.has(step);
    row.state = goesOn ? "running" : skipped !== null ? "skipped" : partly ? "kept" : "interrupted";
    row.pieces.push({ from: first, to: end, state: row.state, earlier, attempt: attempt?.attempt ?? null });
  }
}

function addResults({ results, heard, lists, latest, byEpoch, rowOf }: Sheet): void {
  for (const { name, epoch, startedAt, savedAt, tookMs } of results.values()) {
    const row = rowOf(name);
    const end = Date.parse(savedAt);
    const earlier = latest !== undefined && epoch !== latest.epoch;
    const attempt = byEpoch.get(epoch)?.attempt ?? null;
    // A list has begun with the first attempt at it; this is about the last.
    const began = lists.has(name) ? heard.words.get(`${epoch} ${name}`)?.first : undefined;
    const told = typeof tookMs === "number" ? end - tookMs : startedAt ? Date.parse(startedAt) : end;
    const from = Math.min(end, began ?? told);
    row.pieces.push({ from, to: end, state: "kept", earlier, attempt });
    row.state = "kept";
    row.keptFrom = earlier ? attempt : null;
  }
}

/** What has a place but no result yet. */
function addOpen({ job, kept, open, running, byEpoch, rowOf, to }: Sheet): void {
  for (const { name, epoch, startedAt, savedAt } of kept) {
    if (!open?.has(name)) continue;
    const row = rowOf(name);
    if (row.pieces.some(({ state }) => state === "running")) continue;
    const goes = epoch === running;
    row.state = goes ? "running" : job.waitingFor === "event" ? "waiting" : "interrupted";
    // What its lines tell is more exact than the place that was saved.
    if (row.pieces.length > 0 && row.state !== "waiting") continue;
    const from = Date.parse(startedAt ?? savedAt);
    const end = row.state === "interrupted" ? Date.parse(savedAt) : to;
    const attempt = byEpoch.get(epoch)?.attempt ?? null;
    row.pieces.push({ from, to: end, state: row.state, earlier: false, attempt });
  }
}

function wentOn(attempt: AttemptGiven | undefined, startedAt: string | null): boolean {
  return attempt !== undefined && startedAt !== null && Date.parse(startedAt) < Date.parse(attempt.claimedAt);
}

/** Who spoke last in an attempt is who was at it when it ended. */
function lastOfEach(heard: Heard): Map<string, Words> {
  const lasts = new Map<string, Words>();
  for (const words of heard.words.values()) {
    const last = lasts.get(words.epoch);
    if (!last || words.last >= last.last) lasts.set(words.epoch, words);
  }
  return lasts;
}

function childrenRow({ job: { children }, heard }: Given, attempts: readonly AttemptGiven[], to: number): Row[] {
  if (!children || children.total === 0) return [];
  const ended = children.completed + children.failed + children.cancelled;
  const since = heard?.spawns[0]?.at;
  const pieces: Piece[] = [];
  if (since !== undefined) {
    const next = attempts.map(({ claimedAt }) => Date.parse(claimedAt)).find((at) => at > since);
    const until = ended < children.total ? to : (next ?? to);
    pieces.push({ from: since, to: Math.max(since, until), state: "children", earlier: false, attempt: null });
  }
  const tookMs = pieces[0] ? pieces[0].to - pieces[0].from : null;
  const words = `${ended} of ${children.total} have ended`;
  return [{ name: "children", state: "children", pieces, tookMs, allMs: tookMs ?? 0, keptFrom: null, words }];
}
