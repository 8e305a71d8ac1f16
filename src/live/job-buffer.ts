// The shared buffer of one followed job: its latest lines, its state and its checkpoints. FeedReader fills it, any number of followers read
// it, each with its own cursor. All followers get the same event objects, so that an event is encoded once for all.
import type { FeedRow, JobStatus, LiveRow } from "../db/calls/feed.ts";
import type { Failure, JobState, WaitingFor } from "../db/calls/job.ts";

/** The current state of a job. */
export interface StateEvent {
  kind: "state";
  state: JobState;
  waitingFor: WaitingFor | null;
  awaitedEvent: string | null;
  attempt: number;
  maxAttempts: number;
  runAt: Date | null;
  startedAt: Date | null;
  endedAt: Date | null;
  progress: JobStatus["progress"];
  missing: string[];
}

/** A log line. Continue after it with `follow(id, { after: seq })`. */
export interface LogEvent {
  kind: "log";
  /** The event id of the stream. */
  id: string;
  seq: string;
  at: Date;
  epoch: string;
  level: "info" | "success" | "warning" | "error";
  step: string | null;
  message: string;
  data: unknown;
}

/** A change of state, as stored in the feed. */
export interface FeedEvent {
  kind: "event";
  id: string;
  seq: string;
  at: Date;
  epoch: string;
  /** The kind of change, such as "slept" or "retried". */
  event: string;
  data: unknown;
}

/** A checkpoint was saved. */
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
  progress: NonNullable<JobStatus["progress"]>;
}

/** Lines between these two seqs were deleted. */
export interface GapEvent {
  kind: "gap";
  after: string;
  next: string;
}

/** The last event. The state is null if the job was deleted while it was followed. */
export interface EndEvent {
  kind: "end";
  id: string;
  state: "completed" | "failed" | "cancelled" | null;
  output: unknown;
  failure: Failure | null;
}

export type FollowEvent = StateEvent | LogEvent | FeedEvent | StepEvent | ProgressEvent | GapEvent | EndEvent;

export interface FeedLine {
  seq: bigint;
  event: LogEvent | FeedEvent;
  size: number;
}

/** Buffered lines per job. */
const MAX_LINES = 1000;
/** Approximate memory of a line besides its text, in bytes. */
const LINE_SIZE = 600;
/** Lines of a first read: see read_feeds(). */
const TAIL = 100n;
const MAX_STEPS = 500;
/** The steps of a job with many of them are read less often, because each read scans them all. */
const PER_STEP_MS = 0.2;
const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

export interface ReadBounds {
  /** The row limit of the read. */
  maxRows: number;
  /** The maximum size of the buffered lines, in bytes. */
  maxSize: number;
  /** Whether the read included steps. */
  withSteps: boolean;
}

export class JobBuffer {
  readonly id: string;
  followers = 0;
  /** When the last follower left (performance.now()). */
  leftAt = 0;
  /** At least one read has succeeded. */
  loaded = false;
  /** The numbers of the last started, completed and failed read. */
  startedReads = 0;
  #completedReads = 0;
  #failed: { no: number; error: unknown } | undefined;
  /** When it was last read (performance.now()). */
  readAt = Number.NEGATIVE_INFINITY;
  /** The job does not exist, or no longer. */
  gone = false;
  /** Incremented when the database has lost lines that were read, as after a failover: earlier cursors are invalid. */
  generation = 0;
  /** The buffer has every line after this seq… */
  from = 0n;
  /** …up to this one, */
  through = 0n;
  /** and this is the last seq in the database. */
  head = 0n;
  lines: FeedLine[] = [];
  #size = 0;
  state: StateEvent | undefined;
  stateNo = 0;
  progress: ProgressEvent | undefined;
  progressNo = 0;
  /** Its checkpoints, numbered in the order they were read. */
  steps: { no: number; event: StepEvent }[] = [];
  stepNo = 0;
  /** The job has ended as of the last read; the result is in `end` once that was read. */
  hasEnded = false;
  end: EndEvent | undefined;
  /** Its steps must be read before its end is sent. */
  #lacksSteps = false;
  /** The time of its newest checkpoint, in microseconds. */
  stepsCursor = 0n;
  /** Until when hints are sent for it, and when its steps were last read (performance.now()). */
  watchedUntil = 0;
  stepsAt = Number.NEGATIVE_INFINITY;
  /** A read is planned for the steps that the last read left out. */
  stepsPlanned = false;
  /** The server's encoding of the latest events: [0] complete, [1] redacted for external callers. */
  readonly encoded: { events: readonly FollowEvent[]; bytes: Uint8Array }[] = [];
  readonly #waiting = new Set<() => void>();
  /** Calls of refreshed() that wait. */
  #refreshing = 0;
  #statusText = "";
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

  notify(): void {
    for (const call of [...this.#waiting]) call();
  }

  /** Applies the rows of one read, which are of one database snapshot. */
  apply(rows: LiveRow[], { maxRows, maxSize, withSteps }: ReadBounds): void {
    const before = this.#summary;
    const first = !this.loaded;
    const head = rows.find((row) => row.what === "state");
    const last = head ? BigInt(head.seq) : 0n;
    if (head && last < this.through) {
      this.#reset(last);
      return;
    }
    this.loaded = true;
    this.readAt = performance.now();
    this.#completedReads = this.startedReads;
    this.gone = head === undefined;
    if (head) {
      if (first) this.#startNear(last);
      const feed = rows.filter((row) => row.what === "feed");
      this.#append(
        feed.map(toLine).filter(({ seq }) => seq > this.through),
        maxSize,
      );
      this.through = wasCut(feed, maxRows) ? BigInt(feed.at(-1)!.seq) : last;
      this.hasEnded = ENDED.has(head.data.state);
      // A known end is final unless the feed has a new line: a retry writes one.
      const known = this.hasEnded && last === this.head && !this.#lacksSteps ? this.end : undefined;
      this.head = last;
      this.#setState(head.data);
      for (const row of rows) if (row.what === "step") this.#addStep(row);
      const end = rows.find((row) => row.what === "end");
      this.#lacksSteps = this.hasEnded && !withSteps && !known;
      this.end = end ? { kind: "end", id: `${last}-${idSuffix(this.id)}-end`, ...end.data } : known;
    }
    if (before !== this.#summary || this.#refreshing > 0) this.notify();
  }

  /** 0 if a read now includes its steps; otherwise after how long a read may include them. */
  stepsInMs(now: number): number {
    return this.#lacksSteps ? 0 : Math.max(0, this.stepsAt + Math.min(2000, this.stepNo * PER_STEP_MS) - now);
  }

  /** A read has failed; `final` if there will be no other. */
  fail(error: unknown, final = false): void {
    this.#failed = { no: final ? Number.POSITIVE_INFINITY : this.startedReads, error };
    if (this.#refreshing > 0 || final) this.notify();
  }

  /** Resolves when a read that started after this call has completed; what is buffered may be outdated. */
  async refreshed(signal?: AbortSignal): Promise<void> {
    const wanted = this.startedReads + 1;
    this.#refreshing += 1;
    try {
      while (this.#completedReads < wanted) {
        signal?.throwIfAborted();
        if (this.#failed && this.#failed.no >= wanted) throw this.#failed.error;
        await this.changed(signal);
      }
    } finally {
      this.#refreshing -= 1;
    }
  }

  /** Resolves at the next change, after `waitMs`, or when the signal is aborted. */
  async changed(signal?: AbortSignal, waitMs?: number): Promise<void> {
    if (signal?.aborted) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      const wakeUp = () => {
        this.#waiting.delete(wakeUp);
        clearTimeout(timer);
        signal?.removeEventListener("abort", wakeUp);
        resolve();
      };
      this.#waiting.add(wakeUp);
      signal?.addEventListener("abort", wakeUp);
      if (waitMs !== undefined) timer = setTimeout(wakeUp, waitMs);
    });
  }

  /** The index of the first buffered line after this seq. */
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

  /** A first read starts near the end. */
  #startNear(last: bigint): void {
    this.from = this.through = last > TAIL ? last - TAIL : 0n;
  }

  /** The feed ends before a line that was read: discards everything. The next read, which follows at once, loads everything again. */
  #reset(last: bigint): void {
    this.generation += 1;
    this.#startNear(last);
    this.head = last;
    this.lines = [];
    this.#size = 0;
    this.steps = [];
    this.stepsCursor = 0n;
    this.end = undefined;
    this.#lacksSteps = true;
    this.notify();
  }

  #append(lines: FeedLine[], maxSize: number): void {
    for (const line of lines) {
      this.lines.push(line);
      this.#size += line.size;
      // Steps saved after the restart may be buffered already: lines are read in parts, steps all at once.
      if (line.event.kind === "event" && deletesCheckpoints(line.event)) {
        const { at } = line.event;
        this.steps = this.steps.filter(({ event }) => event.savedAt >= at);
      }
    }
    let drop = 0;
    while (this.lines.length - drop > MAX_LINES || (this.#size > maxSize && drop < this.lines.length - 1)) {
      this.#size -= this.lines[drop]!.size;
      drop += 1;
    }
    if (drop === 0) return;
    this.from = this.lines[drop - 1]!.seq;
    this.lines.splice(0, drop);
  }

  #setState(status: JobStatus): void {
    const { progress, ...rest } = status;
    const text = JSON.stringify(rest);
    const progressText = JSON.stringify(progress);
    if (text !== this.#statusText) {
      this.stateNo += 1;
      this.#statusText = text;
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
      state: status.state,
      waitingFor: status.waiting_for,
      awaitedEvent: status.awaited_event,
      attempt: status.attempt,
      maxAttempts: status.max_attempts,
      runAt: date(status.run_at),
      startedAt: date(status.started_at),
      endedAt: date(status.ended_at),
      progress,
      missing: status.missing ?? [],
    };
  }

  #addStep(row: Extract<LiveRow, { what: "step" }>): void {
    const savedUs = BigInt(row.data.saved_us);
    if (savedUs > this.stepsCursor) this.stepsCursor = savedUs;
    const startedAt = row.data.started_at === null ? null : new Date(row.data.started_at);
    const tookMs = startedAt && row.at.getTime() - startedAt.getTime();
    const event: StepEvent = { kind: "step", name: row.step, startedAt, savedAt: row.at, tookMs, epoch: row.epoch };
    this.stepNo += 1;
    this.steps = this.steps.filter((step) => step.event.name !== row.step).slice(1 - MAX_STEPS);
    this.steps.push({ no: this.stepNo, event });
  }
}

export function toLine(row: FeedRow): FeedLine {
  const { seq, at, epoch, data } = row;
  const id = `${seq}-${idSuffix(row.job_id)}`;
  const event: FeedLine["event"] =
    row.kind === "log"
      ? { kind: "log", id, seq, at, epoch, level: row.level!, step: row.step, message: row.message ?? "", data }
      : { kind: "event", id, seq, at, epoch, event: row.kind, data };
  return { seq: BigInt(seq), event, size: row.size + LINE_SIZE };
}

/** Whether a read stopped at one of its bounds, so that there may be more. The size bound is that of read_feeds(). */
export function wasCut(feed: FeedRow[], maxRows: number): boolean {
  return feed.length > 0 && (feed.length >= maxRows || feed.reduce((sum, { size }) => sum + size, 0) >= 262_144);
}

function deletesCheckpoints({ event, data }: FeedEvent): boolean {
  return (
    event === "restarted" || (event === "retried" && (data as { from_start?: boolean } | null)?.from_start === true)
  );
}

/** Part of every event id, so that an event id of one job is not accepted for another. */
export function idSuffix(job: string): string {
  return job.slice(-8).toLowerCase();
}
