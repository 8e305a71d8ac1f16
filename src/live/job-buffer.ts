// What a process knows of one job that somebody follows: a ring of the latest lines, how the job stands, the steps it has kept. Filled by the
// one reader of the process (feed-reader.ts), read by any number of followers (follow.ts), each of which holds no more than its own place.
// Every event is one object for all followers, so that whoever encodes it does so once.
import type { FeedRow, LiveRow, StateFacts } from "../db/calls/feed.ts";
import type { Failure, JobState, WaitingFor } from "../db/calls/jobs.ts";

/** How a job stands. */
export interface StateEvent {
  kind: "state";
  state: JobState;
  waitingFor: WaitingFor | null;
  attempt: number;
  maxAttempts: number;
  runAt: Date | null;
  startedAt: Date | null;
  endedAt: Date | null;
  progress: StateFacts["progress"];
  missing: string[];
}

/** A line for people. */
export interface LogEvent {
  kind: "log";
  /** To go on after it: `follow(id, { after: seq })`. */
  id: string;
  seq: string;
  at: Date;
  epoch: string;
  level: "info" | "success" | "warning" | "error";
  step: string | null;
  message: string;
  data: unknown;
}

/** A change of state, as the feed keeps it. */
export interface FeedEvent {
  kind: "event";
  id: string;
  seq: string;
  at: Date;
  epoch: string;
  /** What happened, such as "slept" or "retried". */
  event: string;
  data: unknown;
}

/** The result of a step was kept. */
export interface StepEvent {
  kind: "step";
  name: string;
  startedAt: Date | null;
  savedAt: Date;
  tookMs: number | null;
  epoch: string;
}

export interface ProgressEvent {
  kind: "progress";
  progress: NonNullable<StateFacts["progress"]>;
}

/** What lay between these two places is gone. */
export interface GapEvent {
  kind: "gap";
  after: string;
  next: string;
}

/** The last one. The state is null when the job was forgotten while it was followed. */
export interface EndEvent {
  kind: "end";
  id: string;
  state: "completed" | "failed" | "cancelled" | null;
  output: unknown;
  failure: Failure | null;
}

export type FollowEvent = StateEvent | LogEvent | FeedEvent | StepEvent | ProgressEvent | GapEvent | EndEvent;

export interface Line {
  seq: bigint;
  event: LogEvent | FeedEvent;
  size: number;
}

/** The ring of a job holds no more lines than this. */
const MAX_LINES = 1000;
/** What a line takes besides its text, about. */
const LINE_SIZE = 600;
/** What a first look brings: see read_feeds(). */
const TAIL = 100n;
const MAX_STEPS = 500;
/** A job with many steps is asked for them less often: all of them are looked through. */
const PER_STEP_MS = 0.2;
const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

export interface ReadBounds {
  /** Lines that were asked for. */
  most: number;
  /** What the ring may take, in bytes. */
  room: number;
  /** Its steps were asked for. */
  withSteps: boolean;
}

export class FollowedJob {
  readonly id: string;
  /** How many follow it now. */
  followers = 0;
  /** When it was last followed, once nobody does. */
  leftAt = 0;
  /** Something was read about it. */
  loaded = false;
  /** Reads that were begun, and the last of them that has been answered or has failed. */
  begun = 0;
  #answered = 0;
  #failed: { no: number; error: unknown } | undefined;
  /** When it was last read (performance.now()). */
  readAt = Number.NEGATIVE_INFINITY;
  /** There is no such job, or no longer. */
  gone = false;
  /** Grows when the database has lost lines that were read, as after a failover: places in what was known before mean nothing. */
  generation = 0;
  /** The ring has every line after this one… */
  from = 0n;
  /** …up to this one, */
  through = 0n;
  /** and this is the last there is. */
  head = 0n;
  lines: Line[] = [];
  #size = 0;
  state: StateEvent | undefined;
  stateNo = 0;
  progress: ProgressEvent | undefined;
  progressNo = 0;
  /** The steps it has kept, numbered as they came in. */
  steps: { no: number; event: StepEvent }[] = [];
  stepNo = 0;
  /** It has ended, as far as is known; what came of it is in `end` once that was read. */
  hasEnded = false;
  end: EndEvent | undefined;
  /** Its steps are to be read before its end is told. */
  #lacksSteps = false;
  /** The moment of the newest of its steps, in microseconds. */
  mark = 0n;
  /** Until when hints are sent for it, and when its steps were last asked for (performance.now()). */
  watchedUntil = 0;
  stepsAt = Number.NEGATIVE_INFINITY;
  /** A look is planned for the steps that the last read has left out. */
  stepsPlanned = false;
  /** What a server made of the latest lines, for all of its clients: those of the house, and guests. */
  readonly encoded: { events: readonly FollowEvent[]; bytes: Uint8Array }[] = [];
  readonly #waiting = new Set<() => void>();
  #opening = 0;
  #facts = "";
  #progressText = "";

  constructor(id: string) {
    this.id = id;
  }

  /** False while there is more to read. */
  get complete(): boolean {
    return this.through >= this.head && !this.#lacksSteps && (!this.hasEnded || this.end !== undefined);
  }

  get isOver(): boolean {
    return this.gone || this.end !== undefined;
  }

  tell(): void {
    for (const call of [...this.#waiting]) call();
  }

  /** What one read of at most so many lines has brought about this job, all of one moment. */
  apply(rows: LiveRow[], { most, room, withSteps }: ReadBounds): void {
    const before = this.#summary;
    const first = !this.loaded;
    const head = rows.find((row) => row.what === "state");
    const last = head ? BigInt(head.seq) : 0n;
    if (head && last < this.through) {
      this.#beginAnew(last);
      return;
    }
    this.loaded = true;
    this.readAt = performance.now();
    this.#answered = this.begun;
    this.gone = head === undefined;
    if (head) {
      if (first) this.#beginNear(last);
      const feed = rows.filter((row) => row.what === "feed");
      this.#append(
        feed.map(toLine).filter(({ seq }) => seq > this.through),
        room,
      );
      this.through = wasCut(feed, most) ? BigInt(feed.at(-1)!.seq) : last;
      this.hasEnded = ENDED.has(head.data.state);
      // Of an end that is known all is known: a job that is retried has a new line.
      const known = this.hasEnded && last === this.head && !this.#lacksSteps ? this.end : undefined;
      this.head = last;
      this.#setState(head.data);
      for (const row of rows) if (row.what === "step") this.#addStep(row);
      const end = rows.find((row) => row.what === "end");
      this.#lacksSteps = this.hasEnded && !withSteps && !known;
      this.end = end ? { kind: "end", id: `${last}-${tailOf(this.id)}-end`, ...end.data } : known;
    }
    if (before !== this.#summary || this.#opening > 0) this.tell();
  }

  /** Whether its steps are asked for in a read at this moment; otherwise, after how long they may be. */
  stepsInMs(now: number): number {
    return this.#lacksSteps ? 0 : Math.max(0, this.stepsAt + Math.min(2000, this.stepNo * PER_STEP_MS) - now);
  }

  /** A read has failed; for good, when there will be no other. */
  fail(error: unknown, forGood = false): void {
    this.#failed = { no: forGood ? Number.POSITIVE_INFINITY : this.begun, error };
    if (this.#opening > 0 || forGood) this.tell();
  }

  /** Resolves when it has been read as it is now or later; what was known before may be old. */
  async settled(signal?: AbortSignal): Promise<void> {
    const wanted = this.begun + 1;
    this.#opening += 1;
    try {
      while (this.#answered < wanted) {
        signal?.throwIfAborted();
        if (this.#failed && this.#failed.no >= wanted) throw this.#failed.error;
        await this.changed(signal);
      }
    } finally {
      this.#opening -= 1;
    }
  }

  /** Resolves at the next change, after so long at the latest, or when the signal is given. */
  async changed(signal?: AbortSignal, waitMs?: number): Promise<void> {
    if (signal?.aborted) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      const over = () => {
        this.#waiting.delete(over);
        clearTimeout(timer);
        signal?.removeEventListener("abort", over);
        resolve();
      };
      this.#waiting.add(over);
      signal?.addEventListener("abort", over);
      if (waitMs !== undefined) timer = setTimeout(over, waitMs);
    });
  }

  /** The first line of the ring after this place, as an index. */
  indexAfter(seq: bigint): number {
    let low = 0;
    let high = this.lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.lines[middle]!.seq > seq) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  get #summary(): string {
    return `${this.generation} ${this.through} ${this.stateNo} ${this.progressNo} ${this.stepNo} ${this.isOver} ${this.complete}`;
  }

  /** A first look begins near the end. */
  #beginNear(last: bigint): void {
    this.from = this.through = last > TAIL ? last - TAIL : 0n;
  }

  /** The feed ends before what was read of it, so that nothing known is sure. The next read, which is due at once, brings what there is. */
  #beginAnew(last: bigint): void {
    this.generation += 1;
    this.#beginNear(last);
    this.head = last;
    this.lines = [];
    this.#size = 0;
    this.steps = [];
    this.mark = 0n;
    this.end = undefined;
    this.#lacksSteps = true;
    this.tell();
  }

  #append(lines: Line[], room: number): void {
    for (const line of lines) {
      this.lines.push(line);
      this.#size += line.size;
      // Its new steps may be known already: lines come in parts, steps all at once.
      if (line.event.kind === "event" && startsAgain(line.event)) {
        const { at } = line.event;
        this.steps = this.steps.filter(({ event }) => event.savedAt >= at);
      }
    }
    let drop = 0;
    while (this.lines.length - drop > MAX_LINES || (this.#size > room && drop < this.lines.length - 1)) {
      this.#size -= this.lines[drop]!.size;
      drop += 1;
    }
    if (drop === 0) return;
    this.from = this.lines[drop - 1]!.seq;
    this.lines.splice(0, drop);
  }

  #setState(facts: StateFacts): void {
    const { progress, ...rest } = facts;
    const text = JSON.stringify(rest);
    const progressText = JSON.stringify(progress);
    if (text !== this.#facts) {
      this.stateNo += 1;
      this.#facts = text;
    } else if (progressText === this.#progressText) {
      return;
    } else if (progress) {
      this.progressNo += 1;
      this.progress = { kind: "progress", progress };
    }
    this.#progressText = progressText;
    const date = (iso: string | null) => (iso === null ? null : new Date(iso));
    this.state = {
      kind: "state",
      state: facts.state,
      waitingFor: facts.waiting_for,
      attempt: facts.attempt,
      maxAttempts: facts.max_attempts,
      runAt: date(facts.run_at),
      startedAt: date(facts.started_at),
      endedAt: date(facts.ended_at),
      progress,
      missing: facts.missing ?? [],
    };
  }

  #addStep(row: Extract<LiveRow, { what: "step" }>): void {
    const mark = BigInt(row.data.mark);
    if (mark > this.mark) this.mark = mark;
    const startedAt = row.data.started_at === null ? null : new Date(row.data.started_at);
    const tookMs = startedAt && row.at.getTime() - startedAt.getTime();
    const event: StepEvent = { kind: "step", name: row.step, startedAt, savedAt: row.at, tookMs, epoch: row.epoch };
    this.stepNo += 1;
    this.steps = this.steps.filter((step) => step.event.name !== row.step).slice(1 - MAX_STEPS);
    this.steps.push({ no: this.stepNo, event });
  }
}

export function toLine(row: FeedRow): Line {
  const { seq, at, epoch, data } = row;
  const id = `${seq}-${tailOf(row.job_id)}`;
  const event: Line["event"] =
    row.kind === "log"
      ? { kind: "log", id, seq, at, epoch, level: row.level!, step: row.step, message: row.message ?? "", data }
      : { kind: "event", id, seq, at, epoch, event: row.kind, data };
  return { seq: BigInt(seq), event, size: row.size + LINE_SIZE };
}

/** Whether a read has stopped at one of its bounds, so that there may be more. The second is that of read_feeds(). */
export function wasCut(feed: FeedRow[], most: number): boolean {
  return feed.length > 0 && (feed.length >= most || feed.reduce((sum, { size }) => sum + size, 0) >= 262_144);
}

/** What it had kept before is kept no longer. */
function startsAgain({ event, data }: FeedEvent): boolean {
  return (
    event === "restarted" || (event === "retried" && (data as { from_start?: boolean } | null)?.from_start === true)
  );
}

/** Part of every id of a line, so that the place in one job is never taken for a place in another. */
export function tailOf(job: string): string {
  return job.slice(-8).toLowerCase();
}
