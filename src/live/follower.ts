// A follower of one job. It has only a cursor and takes events from the job's shared buffer (job-buffer.ts) when next()
// is called; when it is far behind, it reads separate pages. Lines come once and in order:
//
//   state -> checkpoints so far -> lines after the cursor -> changes of state, steps and progress, new lines -> end
import { InvalidInput, jobNotFound } from "../errors.ts";
import { checkId } from "../ids.ts";
import type { FeedReader } from "./feed-reader.ts";
import type { FeedLine, FollowEvent, GapEvent, JobBuffer } from "./job-buffer.ts";

export interface FollowOptions {
  /** Only lines after this `seq`. Default "0": all. */
  after?: string;
  signal?: AbortSignal;
}

/** Per call of next(). */
const MAX_LINES = 256;
const MAX_SIZE = 128 * 1024;
const MAX_SEQ = 2n ** 63n - 1n;
/** An end that was read longer ago is read again before it is sent: the job may have been retried. */
const FRESH_MS = 1000;

/**
 * Finishes with the job. Throws when the signal is aborted, when the client is closed, or JobNotFound. Not a plain
 * generator: its return() would wait for a pending next(), perhaps forever; this one ends that wait.
 */
export function follow(
  reader: FeedReader,
  id: string,
  options: FollowOptions = {},
): AsyncGenerator<FollowEvent, void, undefined> {
  const leaving = new AbortController();
  const events = iterate(reader, id, options, leaving.signal);
  const leave = () => {
    leaving.abort();
    events.return().catch(() => {});
  };
  return {
    async next() {
      try {
        return await events.next();
      } catch (error) {
        if (!leaving.signal.aborted) throw error;
        return { done: true, value: undefined };
      }
    },
    async return() {
      leave();
      return { done: true, value: undefined };
    },
    async throw(error) {
      leave();
      throw error;
    },
    async [Symbol.asyncDispose]() {
      leave();
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

async function* iterate(
  reader: FeedReader,
  id: string,
  { after = "0", signal }: FollowOptions,
  leaving: AbortSignal,
): AsyncGenerator<FollowEvent, void, undefined> {
  const stopped = signal ? AbortSignal.any([signal, leaving]) : leaving;
  const follower = await Follower.open(reader, id, parseSeq(after), stopped);
  const close = () => follower.close();
  leaving.addEventListener("abort", close);
  try {
    for (;;) {
      const events = await follower.next();
      if (!events) return;
      yield* events;
    }
  } finally {
    close();
  }
}

export function parseSeq(text: unknown, field = "after"): bigint {
  if (typeof text === "string" && /^\d{1,19}$/.test(text) && BigInt(text) <= MAX_SEQ) return BigInt(text);
  throw new InvalidInput(`${field} ${JSON.stringify(String(text).slice(0, 60))} is not a seq`, {
    field,
    remedy: "Pass the seq of the last line you have, or nothing to start at the first line",
  });
}

export class Follower {
  readonly job: JobBuffer;
  readonly #reader: FeedReader;
  readonly #signal: AbortSignal | undefined;
  #cursor: bigint;
  /** The buffer's generation that the cursor belongs to. */
  #generation = 0;
  /** A requested cursor beyond the end of the feed, to be reported as a gap. */
  #beyond: bigint | undefined;
  #stateNo = 0;
  #progressNo = 0;
  #stepNo = 0;
  #finished = false;
  #closed = false;

  private constructor(reader: FeedReader, job: JobBuffer, after: bigint, signal: AbortSignal | undefined) {
    this.#reader = reader;
    this.job = job;
    this.#signal = signal;
    this.#cursor = after;
  }

  static async open(reader: FeedReader, id: string, after: bigint, signal?: AbortSignal): Promise<Follower> {
    signal?.throwIfAborted();
    const job = reader.join(checkId(id));
    const follower = new Follower(reader, job, after, signal);
    try {
      await job.refreshed(signal);
      signal?.throwIfAborted();
      reader.checkOpen();
      if (job.gone) throw jobNotFound(id);
      follower.#generation = job.generation;
      if (after > job.head) follower.#restart();
      return follower;
    } catch (error) {
      follower.close();
      throw error;
    }
  }

  /** Whether the job has ended and the cursor is at its last line. */
  get isAtEnd(): boolean {
    const { job } = this;
    return job.end !== undefined && job.complete && this.#beyond === undefined && this.#cursor === job.through;
  }

  /** New events, in order; an empty list after `waitMs` without any; undefined after the end. */
  async next(waitMs?: number): Promise<FollowEvent[] | undefined> {
    const { job } = this;
    if (this.#finished) return undefined;
    const until = waitMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + waitMs;
    let confirmed = false;
    for (;;) {
      this.#signal?.throwIfAborted();
      this.#reader.checkOpen();
      if (this.#generation !== job.generation) this.#restart();
      const events: FollowEvent[] = this.#stateNo === 0 ? this.#takeChanges() : [];
      if (events.length === 0) {
        if (this.#cursor < job.from && !job.gone) await this.#takePage(events);
        else this.#takeLines(events);
        if (this.#generation !== job.generation) continue;
        events.push(...this.#takeChanges());
        if (!confirmed && job.end && this.#isAtHead && performance.now() - job.readAt > FRESH_MS) {
          if (events.length > 0) return events;
          confirmed = true;
          this.#reader.refresh(job);
          await job.refreshed(this.#signal);
          continue;
        }
        this.#takeEnd(events);
      }
      const leftMs = until - performance.now();
      if (events.length > 0 || leftMs <= 0) return events;
      await job.changed(this.#signal, Number.isFinite(leftMs) ? leftMs : undefined);
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = this.#finished = true;
    this.#reader.leave(this.job);
  }

  /** The cursor is invalid: sends a gap, and then the whole feed. */
  #restart(): void {
    this.#generation = this.job.generation;
    if (this.#cursor > 0n) this.#beyond = this.#cursor;
    this.#cursor = 0n;
  }

  #takeLines(events: FollowEvent[]): void {
    const { lines } = this.job;
    let size = 0;
    for (let at = this.job.indexAfter(this.#cursor); at < lines.length; at++) {
      if (events.length >= MAX_LINES || size > MAX_SIZE) break;
      size += lines[at]!.size;
      this.#take(lines[at]!, events);
    }
    if (this.#isDrained) this.#reach(this.job.through, events);
  }

  async #takePage(events: FollowEvent[]): Promise<void> {
    const { lines, through, gone } = await this.#reader.page(this.job.id, this.#cursor);
    if (gone) {
      this.#reader.refresh(this.job);
      return this.job.refreshed(this.#signal);
    }
    if (this.#generation !== this.job.generation) return;
    // The page is newer than the buffer: the job may have been retried after its end.
    if (through > this.job.through || through < this.#cursor) this.#reader.refresh(this.job);
    for (const line of lines) this.#take(line, events);
    this.#reach(through, events);
  }

  #take(line: FeedLine, events: FollowEvent[]): void {
    if (line.seq > this.#cursor + 1n || this.#beyond !== undefined) events.push(this.#gap(line.seq));
    events.push(line.event);
    this.#cursor = line.seq;
  }

  /** Advances the cursor over seqs that have no line. */
  #reach(through: bigint, events: FollowEvent[]): void {
    if (through > this.#cursor || this.#beyond !== undefined) events.push(this.#gap(through + 1n));
    if (through > this.#cursor) this.#cursor = through;
  }

  #gap(next: bigint): GapEvent {
    const after = this.#beyond ?? this.#cursor;
    this.#beyond = undefined;
    return { kind: "gap", after: String(after), next: String(next) };
  }

  get #isDrained(): boolean {
    return this.job.indexAfter(this.#cursor) >= this.job.lines.length;
  }

  /** Changes of steps, state and progress. The final state comes after the last line, except to a new follower. */
  #takeChanges(): FollowEvent[] {
    const { job } = this;
    const events: FollowEvent[] = [];
    const first = this.#stateNo === 0;
    for (const { no, event } of job.steps) {
      if (no > this.#stepNo) events.push(event);
    }
    this.#stepNo = job.stepNo;
    if (job.stateNo > this.#stateNo && (first || !job.hasEnded || this.#isAtHead)) {
      if (first) events.unshift(job.state!);
      else events.push(job.state!);
      this.#stateNo = job.stateNo;
      this.#progressNo = job.progressNo;
    } else if (job.progressNo > this.#progressNo) {
      events.push(job.progress!);
      this.#progressNo = job.progressNo;
    }
    return events;
  }

  get #isAtHead(): boolean {
    return this.job.complete && this.#beyond === undefined && this.#cursor === this.job.through;
  }

  #takeEnd(events: FollowEvent[]): void {
    const { job } = this;
    if (job.end && this.#isAtHead) events.push(job.end);
    else if (job.gone && this.#isDrained) {
      const id = `${this.#cursor}-${job.id.slice(-8)}-end`;
      events.push({ kind: "end", id, state: null, output: null, failure: null });
    } else return;
    this.#finished = true;
  }
}
