// A follower of one job: how it stands, then every line after a place, once and in order, and what came of it. It holds its place and nothing else,
// and takes from what the process shares (followed-job.ts) when it is asked for more; far behind, it reads pages of its own.
//
//   state -> steps kept so far -> lines after the place -> state, step and progress as they change, lines as they come -> end
import { InvalidInput, JobNotFound } from "../errors.ts";
import { checkId } from "../ids.ts";
import type { FeedReader } from "./feed-reader.ts";
import type { FollowEvent, FollowedJob, GapEvent, Line } from "./job-buffer.ts";

export interface FollowOptions {
  /** Only what comes after this `seq`. Default "0": everything. */
  after?: string;
  signal?: AbortSignal;
}

/** What one call of next() brings at most. */
const MAX_LINES = 256;
const MAX_SIZE = 128 * 1024;
const MAX_SEQ = 2n ** 63n - 1n;
/** An end that was read longer ago than this is read again before it is told: the job may have been retried. */
const FRESH_MS = 1000;

/**
 * Ends with the job; throws when the signal is given, when the Stillwake is closed, or when there is no such job. A generator alone would let return()
 * wait behind a next() that waits for news, perhaps for ever: here it ends that wait.
 */
export function follow(
  reader: FeedReader,
  id: string,
  options: FollowOptions = {},
): AsyncGenerator<FollowEvent, void, undefined> {
  const leaving = new AbortController();
  const events = tell(reader, id, options, leaving.signal);
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

async function* tell(
  reader: FeedReader,
  id: string,
  { after = "0", signal }: FollowOptions,
  leaving: AbortSignal,
): AsyncGenerator<FollowEvent, void, undefined> {
  const given = signal ? AbortSignal.any([signal, leaving]) : leaving;
  const follower = await Follower.open(reader, id, checkAfter(after), given);
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

export function checkAfter(after: unknown, field = "after"): bigint {
  if (typeof after === "string" && /^\d{1,19}$/.test(after) && BigInt(after) <= MAX_SEQ) return BigInt(after);
  throw new InvalidInput(`${JSON.stringify(String(after).slice(0, 60))} is not a place in a feed`, {
    field,
    remedy: "Pass the seq of the last line you have, or nothing to begin at the first",
  });
}

export class Follower {
  readonly job: FollowedJob;
  readonly #reader: FeedReader;
  readonly #signal: AbortSignal | undefined;
  #cursor: bigint;
  /** The generation of the job to which its place belongs. */
  #generation = 0;
  /** The place it was to begin after and which the feed has not reached: to be told. */
  #beyond: bigint | undefined;
  #stateNo = 0;
  #progressNo = 0;
  #stepNo = 0;
  #over = false;
  #left = false;

  private constructor(reader: FeedReader, job: FollowedJob, after: bigint, signal: AbortSignal | undefined) {
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
      await job.settled(signal);
      signal?.throwIfAborted();
      reader.checkOpen();
      if (job.gone) {
        throw new JobNotFound(`Job ${id} does not exist`, {
          field: "id",
          remedy: "It was never enqueued here, or its retention is over and it was pruned",
        });
      }
      follower.#generation = job.generation;
      if (after > job.head) follower.#beginAgain();
      return follower;
    } catch (error) {
      follower.close();
      throw error;
    }
  }

  /** Whether there is nothing to come after this place, now: the job has ended and this was its last line. */
  get isAtEnd(): boolean {
    const { job } = this;
    return job.end !== undefined && job.complete && this.#beyond === undefined && this.#cursor === job.through;
  }

  /** What is new, in order; an empty list when nothing came for so long; undefined when all is told. */
  async next(waitMs?: number): Promise<FollowEvent[] | undefined> {
    const { job } = this;
    if (this.#over) return undefined;
    const until = waitMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + waitMs;
    let looked = false;
    for (;;) {
      this.#signal?.throwIfAborted();
      this.#reader.checkOpen();
      if (this.#generation !== job.generation) this.#beginAgain();
      const events: FollowEvent[] = this.#stateNo === 0 ? this.#news() : [];
      if (events.length === 0) {
        if (this.#cursor < job.from && !job.gone) await this.#takePage(events);
        else this.#takeLines(events);
        if (this.#generation !== job.generation) continue;
        events.push(...this.#news());
        if (!looked && job.end && this.#isAtHead && performance.now() - job.readAt > FRESH_MS) {
          if (events.length > 0) return events;
          looked = true;
          this.#reader.look(job);
          await job.settled(this.#signal);
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
    if (this.#left) return;
    this.#left = this.#over = true;
    this.#reader.leave(this.job);
  }

  /** Its place is none: it is told so, and then everything there is. */
  #beginAgain(): void {
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
      this.#reader.look(this.job);
      return this.job.settled(this.#signal);
    }
    if (this.#generation !== this.job.generation) return;
    // The page is newer than what the process knows of the job: it may have gone on after its end.
    if (through > this.job.through || through < this.#cursor) this.#reader.look(this.job);
    for (const line of lines) this.#take(line, events);
    this.#reach(through, events);
  }

  #take(line: Line, events: FollowEvent[]): void {
    if (line.seq > this.#cursor + 1n || this.#beyond !== undefined) events.push(this.#gap(line.seq));
    events.push(line.event);
    this.#cursor = line.seq;
  }

  /** There is nothing more up to this place. */
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

  /** What has changed but for the lines. The state a job ended in comes after its last line, but to one who has just come. */
  #news(): FollowEvent[] {
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
    this.#over = true;
  }
}
