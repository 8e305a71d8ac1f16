// Limits per caller: requests per second, requests at once, and open streams. Counted in this process, without the
// database.
import { httpError } from "./problem.ts";

const MAX_BUCKETS = 20_000;

/** Thrown for too many requests; answered with 429 and retry-after. */
export class RateLimitExceeded extends Error {
  readonly seconds: number;

  constructor(waitSeconds: number) {
    super("Too many requests");
    this.seconds = Math.max(1, Math.ceil(waitSeconds));
  }
}

/** A token bucket per name. */
export class RateLimiter {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #buckets = new Map<string, { left: number; at: number }>();

  constructor({ perSecond, burst }: { perSecond: number; burst: number }) {
    this.#perSecond = perSecond;
    this.#burst = burst;
  }

  take(name: string): void {
    const now = performance.now();
    let bucket = this.#buckets.get(name);
    if (!bucket) {
      if (this.#buckets.size >= MAX_BUCKETS) this.#deleteFull(now);
      bucket = { left: this.#burst, at: now };
      this.#buckets.set(name, bucket);
    }
    bucket.left = Math.min(this.#burst, bucket.left + ((now - bucket.at) / 1000) * this.#perSecond);
    bucket.at = now;
    if (bucket.left < 1) throw new RateLimitExceeded((1 - bucket.left) / this.#perSecond);
    bucket.left -= 1;
  }

  /** A full bucket is equal to none. */
  #deleteFull(now: number): void {
    for (const [name, { left, at }] of this.#buckets) {
      if (left + ((now - at) / 1000) * this.#perSecond >= this.#burst) this.#buckets.delete(name);
    }
    if (this.#buckets.size >= MAX_BUCKETS) this.#buckets.clear();
  }
}

interface Waiting {
  running: number;
  /** Each starts one call. */
  queue: (() => void)[];
}

/** How many calls run at once: per caller, and in total. Further ones wait; callers take turns. */
export class ConcurrencyLimiter {
  readonly #perCaller: number;
  readonly #total: number;
  readonly #waiting: number;
  readonly #callers = new Map<string, Waiting>();
  #running = 0;

  /** `waiting`: how many calls of one caller may wait before the next is rejected. */
  constructor({
    perCaller,
    total = Number.POSITIVE_INFINITY,
    waiting,
  }: Record<"perCaller" | "waiting", number> & { total?: number }) {
    this.#perCaller = perCaller;
    this.#total = total;
    this.#waiting = waiting;
  }

  async run<Result>(name: string, call: () => Promise<Result>): Promise<Result> {
    const caller = this.#callers.get(name) ?? { running: 0, queue: [] };
    this.#callers.set(name, caller);
    if (caller.running >= this.#perCaller || this.#running >= this.#total) {
      if (caller.queue.length >= this.#waiting) throw new RateLimitExceeded(1);
      await new Promise<void>((resolve) => caller.queue.push(resolve));
    } else this.#start(caller);
    try {
      return await call();
    } finally {
      caller.running -= 1;
      this.#running -= 1;
      if (caller.running === 0 && caller.queue.length === 0) this.#callers.delete(name);
      this.#startNext();
    }
  }

  #start(caller: Waiting): void {
    caller.running += 1;
    this.#running += 1;
  }

  /** The caller that was served goes to the end of the map, so that the others are next. */
  #startNext(): void {
    if (this.#running >= this.#total) return;
    for (const [name, caller] of this.#callers) {
      if (caller.queue.length === 0 || caller.running >= this.#perCaller) continue;
      this.#callers.delete(name);
      this.#callers.set(name, caller);
      this.#start(caller);
      caller.queue.shift()!();
      return;
    }
  }
}

/** Counts open streams by caller. */
export class StreamLimiter {
  readonly #perToken: number;
  readonly #total: number;
  readonly #streams = new Map<string, Set<AbortController>>();
  #count = 0;

  constructor({ perToken, total }: { perToken: number; total: number }) {
    this.#perToken = perToken;
    this.#total = total;
  }

  /** `release` must be called when the stream is over; `revoked` is aborted by abortAll(). */
  open(caller: string): { release: () => void; revoked: AbortSignal } {
    const streams = this.#streams.get(caller) ?? new Set();
    if (streams.size >= this.#perToken || this.#count >= this.#total) {
      const open = streams.size >= this.#perToken ? streams.size : this.#count;
      throw httpError("TOO_MANY_REQUESTS", `There are ${open} streams open`, {
        remedy: "Close some, or follow several jobs by polling /v1/jobs",
      });
    }
    const controller = new AbortController();
    this.#streams.set(caller, streams.add(controller));
    this.#count += 1;
    const release = () => {
      if (!streams.delete(controller)) return;
      this.#count -= 1;
      if (streams.size === 0) this.#streams.delete(caller);
    };
    return { release, revoked: controller.signal };
  }

  /** Ends all streams of a caller whose token was revoked. */
  abortAll(caller: string): void {
    for (const controller of this.#streams.get(caller) ?? []) controller.abort();
  }
}
