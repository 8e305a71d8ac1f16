// Limits per caller: requests per second and open streams. Counted in this process, without the database.
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

  /** Seconds until take() succeeds, 0 when it would now. Takes nothing. */
  waitSeconds(name: string): number {
    const bucket = this.#buckets.get(name);
    if (!bucket) return 0;
    const left = bucket.left + ((performance.now() - bucket.at) / 1000) * this.#perSecond;
    return left < 1 ? (1 - left) / this.#perSecond : 0;
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
