// The limits and breakers that a job uses: job.fetch(), limit.take(), breaker.call(). When a limit is used up for longer than two seconds
// or a breaker is open, the attempt ends without counting as a failure and the job waits in the database.
import { setTimeout as delay } from "node:timers/promises";
import type { Breaker } from "../../contract/breaker.ts";
import { Fatal } from "../../contract/job-errors.ts";
import type { Limit } from "../../contract/limit.ts";
import type { Observation } from "../../contract/rate-limit-headers.ts";
import type { BreakerVerdict, Dependency } from "../../db/calls/flow.ts";
import { InvalidInput } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import type { AttemptState } from "./attempt-state.ts";
import { type Outcome, Stopped, Suspended } from "./outcome.ts";

export interface FetchNeeds {
  /** The call takes one use of it and learns from the response. */
  limit?: Limit;
  /** Responses of 500 and above, and calls without a response, count as failures. */
  breaker?: Breaker;
}

/** Uses granted in advance, because this attempt takes uses of the limit often. */
interface Prefetch {
  available: number;
  /** Identifies the grant when unused uses are returned. */
  bin: string | null;
  /** performance.now() until which the available uses may be made. */
  validUntil: number;
  /** How many uses to request beyond those needed. */
  extra: number;
  requestedAt: number;
  /** Requests in progress. */
  pending: number;
  /** Time to the database that the next request allows for, beyond the usual. */
  slackMs: number;
}

/** A limit that is available again sooner than this is waited for within the attempt. */
const MAX_WAIT_MS = 2000;
const MAX_EXTRA = 16;
/** How long a breaker that was closed is not checked again. */
const CLOSED_MS = 1000;

export class LimitsAndBreakers {
  readonly #attempt: AttemptState;
  readonly #prefetched = new Map<Limit, Prefetch>();
  readonly #closedAt = new Map<string, number>();
  /** Uses taken with limit.take() whose response was not observed yet. */
  readonly #takenByHand = new Map<Limit, number>();

  constructor(attempt: AttemptState) {
    this.#attempt = attempt;
  }

  get #port() {
    return this.#attempt.host.port;
  }

  async fetch(
    url: string | URL | Request,
    init: RequestInit | undefined,
    { limit, breaker }: FetchNeeds,
  ): Promise<Response> {
    const { signal } = this.#attempt;
    if (breaker) await this.#checkBreaker(breaker);
    if (limit) await this.#take(limit, 1);
    let response: Response;
    try {
      const signals = init?.signal ? AbortSignal.any([signal, init.signal]) : signal;
      response = await fetch(url, { ...init, signal: signals });
    } catch (error) {
      if (limit) await this.#reportDone(limit, undefined);
      if (breaker && !signal.aborted) await this.#reportFailure(breaker, error);
      throw error;
    }
    if (limit) await this.#learn(limit, response);
    if (breaker) {
      if (response.status >= 500) await this.#reportFailure(breaker, new Error(`HTTP status ${response.status}`));
      else await this.#report(breaker, true, null);
    }
    return response;
  }

  async #take(limit: Limit, count: number): Promise<void> {
    if (limit?.kind !== "limit" || !Number.isInteger(count) || count < 1 || count > 1_000_000) {
      throw new InvalidInput(`take() needs a limit and a whole number of uses, not ${count}`, {
        field: "count",
        remedy: 'Pass the result of limit("name", { … }), and a whole number from 1',
      });
    }
    let prefetch = this.#prefetched.get(limit);
    if (prefetch && prefetch.available >= count && performance.now() < prefetch.validUntil) {
      prefetch.available -= count;
      return;
    }
    prefetch ??= {
      available: 0,
      bin: null,
      validUntil: 0,
      extra: 0,
      requestedAt: Number.NEGATIVE_INFINITY,
      pending: 0,
      slackMs: 0,
    };
    this.#prefetched.set(limit, prefetch);
    prefetch.pending += 1;
    try {
      await this.#request(limit, prefetch, count);
    } finally {
      prefetch.pending -= 1;
    }
  }

  async #request(limit: Limit, prefetch: Prefetch, count: number): Promise<void> {
    const { signal } = this.#attempt;
    let { available: unused, bin } = prefetch;
    prefetch.available = 0;
    const deadline = performance.now() + MAX_WAIT_MS;
    for (let attempt = 0; ; attempt++) {
      const now = performance.now();
      const take = count + (prefetch.pending === 1 ? prefetch.extra : 0);
      const call = { take, minimum: count, unused, bin, slackMs: prefetch.slackMs };
      const grant = await this.#port.useLimit(toDependency(limit), call);
      const { granted, waitMs, reason, withinMs } = grant;
      unused = 0;
      const lateMs = performance.now() - now - (withinMs ?? Number.POSITIVE_INFINITY);
      if (granted >= count && lateMs > 0 && limit.options.max !== undefined) {
        signal.throwIfAborted();
        // The grant arrived too late: a use made now could fall into the next period. Return it and request again with more slack.
        ({ granted: unused, bin } = grant);
        prefetch.slackMs += lateMs * 3;
        if (now > deadline) {
          await this.#port.useLimit(toDependency(limit), { take: 0, minimum: 0, unused, bin });
          this.#wait(limit, null, "The database responds too slowly for this limit");
        }
        continue;
      }
      if (granted >= count) {
        if (granted > count) {
          prefetch.available = granted - count;
          prefetch.bin = grant.bin;
          prefetch.validUntil = now + (withinMs ?? 0);
        }
        prefetch.slackMs = prefetch.slackMs < 10 ? 0 : prefetch.slackMs / 2;
        const { max, learn, concurrency } = limit.options;
        const canPrefetch = max !== undefined && !learn && concurrency === undefined;
        const isFrequent = now - prefetch.requestedAt < (withinMs ?? 0);
        prefetch.extra = canPrefetch && isFrequent ? Math.min(prefetch.extra * 2 || 1, MAX_EXTRA) : 0;
        prefetch.requestedAt = now;
        return;
      }
      prefetch.extra = 0;
      const pauseMs = (waitMs ?? backoffMs(attempt, 25, 250)) + Math.random() * 20;
      if (now + pauseMs > deadline) this.#wait(limit, waitMs, reason);
      await delay(pauseMs, undefined, { signal });
    }
  }

  async observe(
    limit: Limit,
    response: { status: number; headers: { get(name: string): string | null } },
  ): Promise<void> {
    const taken = this.#takenByHand.get(limit) ?? 1;
    this.#takenByHand.delete(limit);
    await this.#learn(limit, response, taken);
  }

  /** limit.take(): the uses count as in progress until limit.observe() reports their response. */
  async takeByHand(limit: Limit, count: number): Promise<void> {
    await this.#take(limit, count);
    this.#takenByHand.set(limit, (this.#takenByHand.get(limit) ?? 0) + count);
  }

  async call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result> {
    if (breaker?.kind !== "breaker") {
      throw new InvalidInput("The argument of call() is not a breaker", {
        field: "breaker",
        remedy: 'Pass the result of breaker("name", { … })',
      });
    }
    await this.#checkBreaker(breaker);
    let result: Result;
    try {
      result = await run();
    } catch (error) {
      const counts = breaker.options.counts ?? ((thrown: unknown) => !(thrown instanceof Fatal));
      const isFailure = !(error instanceof Stopped) && !(error instanceof Suspended) && counts(error);
      if (isFailure) await this.#reportFailure(breaker, error);
      throw error;
    }
    await this.#report(breaker, true, null);
    return result;
  }

  /** Returns uses that were granted in advance and not made. */
  async close(): Promise<void> {
    const unusedOnes = [...this.#prefetched].filter(([, prefetch]) => prefetch.available > 0);
    this.#prefetched.clear();
    await Promise.allSettled(
      unusedOnes.map(([limit, { available: unused, bin }]) =>
        this.#port.useLimit(toDependency(limit), { take: 0, minimum: 0, unused, bin }),
      ),
    );
  }

  /** Only limits that learn or count concurrent calls need to know that a call is done. */
  async #reportDone(limit: Limit, observation: Observation | undefined, done = 1): Promise<void> {
    if (!limit.options.learn && limit.options.concurrency === undefined && !observation?.refusedMs) return;
    const call = { take: 0, minimum: 0, done, ...(observation && { observation }) };
    await this.#port.useLimit(toDependency(limit), call);
  }

  async #learn(limit: Limit, response: Parameters<LimitsAndBreakers["observe"]>[1], done = 1): Promise<void> {
    const observed = limit.options.learn?.(response);
    // A successful response without rate limit headers is an observation too; a failed one is not.
    await this.#reportDone(limit, observed ?? (limit.options.learn && response.status < 400 ? {} : undefined), done);
    if (observed?.refusedMs !== undefined && observed.refusedMs > 0) {
      this.#wait(limit, observed.refusedMs, `${limit.name} rejected a call because of its rate limit`);
    }
  }

  #wait(limit: Limit, waitMs: number | null, reason: string | null): never {
    const forMs = Math.ceil((waitMs ?? 1000) + Math.random() * 250);
    const outcome: Outcome = { kind: "slept", forMs, waitingFor: "limit" };
    return this.#attempt.suspend(outcome, reason ?? `The limit ${limit.name} is used up`);
  }

  async #checkBreaker(breaker: Breaker): Promise<void> {
    const closedAt = this.#closedAt.get(breaker.name);
    if (closedAt !== undefined && performance.now() - closedAt < CLOSED_MS) return;
    this.#pauseIfOpen(breaker, await this.#port.checkBreaker(toDependency(breaker)));
  }

  async #reportFailure(breaker: Breaker, error: unknown): Promise<void> {
    this.#closedAt.delete(breaker.name);
    // Redacted: other jobs and operators see the reason of an open breaker.
    const reason = this.#attempt.redactor.redact(String((error as Error)?.message ?? error));
    await this.#report(breaker, false, reason.slice(0, 1000));
  }

  async #report(breaker: Breaker, succeeded: boolean, reason: string | null): Promise<void> {
    const verdict = await this.#port.reportBreakerResult(toDependency(breaker), succeeded, reason);
    // After a success the job continues even if the breaker is open.
    if (!succeeded) this.#pauseIfOpen(breaker, verdict);
    else if (!verdict) this.#closedAt.set(breaker.name, performance.now());
  }

  #pauseIfOpen(breaker: Breaker, verdict: BreakerVerdict | null): void {
    if (!verdict) {
      this.#closedAt.set(breaker.name, performance.now());
      return;
    }
    const outcome: Outcome = { kind: "paused", reason: verdict.reason, breaker: breaker.name };
    if (verdict.resumeInMs !== null) outcome.resumeInMs = Math.ceil(verdict.resumeInMs);
    this.#attempt.suspend(outcome, verdict.reason);
  }
}

function toDependency({ kind, name, settings }: Limit | Breaker): Dependency {
  return { kind, name, settings };
}
