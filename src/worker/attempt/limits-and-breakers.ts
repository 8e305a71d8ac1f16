// What a job needs of the world and shares with all others: budgets it takes from, breakers it asks. When there is nothing to be had for longer
// than a moment the attempt ends here, uncharged, and the job is back in the table until there is.
import { setTimeout as delay } from "node:timers/promises";
import type { Breaker } from "../../contract/breaker.ts";
import { Fatal } from "../../contract/job-errors.ts";
import type { Limit } from "../../contract/limit.ts";
import type { Learn, Observation } from "../../contract/rate-limit-headers.ts";
import type { BreakerVerdict, Need } from "../../db/calls/flow.ts";
import { InvalidInput } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import type { Port } from "../runner/port.ts";
import { Asleep, type Outcome, Stopped } from "./outcome.ts";

export interface FetchNeeds {
  /** The call is one use of it, and its answer is learned from. */
  limit?: Limit;
  /** Answers of 500 and above, and no answer at all, are failures. */
  breaker?: Breaker;
}

/** Uses that were granted ahead, because this attempt asks often. */
interface Stock {
  left: number;
  /** What those were granted under. */
  mark: string | null;
  until: number;
  /** How many to ask for beyond what is needed. */
  ahead: number;
  askedAt: number;
  /** Takes that are under way. */
  asking: number;
  slackMs: number;
}

/** A budget that comes back sooner than this is waited for where we are. */
const PATIENCE_MS = 2000;
const MAX_AHEAD = 16;
/** For so long a breaker that was closed is not asked again. */
const CLOSED_MS = 1000;

export class Dependencies {
  readonly #port: Port;
  /** Ends the attempt with this outcome. */
  readonly #end: (outcome: Outcome, words: string) => never;
  readonly #hide: (text: string) => string;
  readonly #stocks = new Map<Limit, Stock>();
  readonly #closedAt = new Map<string, number>();
  readonly #byHand = new Map<Limit, number>();

  constructor(
    port: Port,
    end: (outcome: Outcome, words: string) => never,
    /** Without the secrets of the job: others read why a breaker is open. */
    hide: (text: string) => string,
  ) {
    this.#port = port;
    this.#end = end;
    this.#hide = hide;
  }

  async fetch(
    url: string | URL | Request,
    init: RequestInit | undefined,
    { limit, breaker }: FetchNeeds,
    signal: AbortSignal,
  ): Promise<Response> {
    if (breaker) await this.#ask(breaker);
    if (limit) await this.take(limit, 1, signal);
    let response: Response;
    try {
      const signals = init?.signal ? AbortSignal.any([signal, init.signal]) : signal;
      response = await fetch(url, { ...init, signal: signals });
    } catch (error) {
      if (limit) await this.#over(limit, undefined);
      if (breaker && !signal.aborted) await this.#failed(breaker, error);
      throw error;
    }
    if (limit) await this.#answered(limit, response);
    if (breaker) {
      if (response.status >= 500) await this.#failed(breaker, new Error(`It answered ${response.status}`));
      else await this.#tell(breaker, true, null);
    }
    return response;
  }

  async take(limit: Limit, count: number, signal: AbortSignal): Promise<void> {
    if (limit?.kind !== "limit" || !Number.isInteger(count) || count < 1 || count > 1_000_000) {
      throw new InvalidInput(`${count} uses cannot be taken of that`, {
        field: "count",
        remedy: 'Pass what limit("name", { … }) returned, and a whole number from 1',
      });
    }
    let stock = this.#stocks.get(limit);
    if (stock && stock.left >= count && performance.now() < stock.until) {
      stock.left -= count;
      return;
    }
    stock ??= {
      left: 0,
      mark: null,
      until: 0,
      ahead: 0,
      askedAt: Number.NEGATIVE_INFINITY,
      asking: 0,
      slackMs: 0,
    };
    this.#stocks.set(limit, stock);
    stock.asking += 1;
    try {
      await this.#grant(limit, stock, count, signal);
    } finally {
      stock.asking -= 1;
    }
  }

  async #grant(limit: Limit, stock: Stock, count: number, signal: AbortSignal): Promise<void> {
    let { left: unused, mark } = stock;
    stock.left = 0;
    const deadline = performance.now() + PATIENCE_MS;
    for (let attempt = 0; ; attempt++) {
      const now = performance.now();
      const take = count + (stock.asking === 1 ? stock.ahead : 0);
      const call = { take, least: count, unused, mark, slackMs: stock.slackMs };
      const answer = await this.#port.useLimit(needOf(limit), call);
      const { granted, waitMs, reason, withinMs } = answer;
      unused = 0;
      const lateMs = performance.now() - now - (withinMs ?? Number.POSITIVE_INFINITY);
      if (granted >= count && lateMs > 0 && limit.options.max !== undefined) {
        signal.throwIfAborted();
        // Made now it might be counted for too short. Asked for again, with more time for the way here.
        ({ granted: unused, mark } = answer);
        stock.slackMs += lateMs * 3;
        if (now > deadline) {
          await this.#port.useLimit(needOf(limit), { take: 0, least: 0, unused, mark });
          this.#rest(limit, null, "The way to the database takes too long for this limit");
        }
        continue;
      }
      if (granted >= count) {
        if (granted > count) {
          stock.left = granted - count;
          stock.mark = answer.mark;
          stock.until = now + (withinMs ?? 0);
        }
        stock.slackMs = stock.slackMs < 10 ? 0 : stock.slackMs / 2;
        const plain =
          limit.options.max !== undefined && !limit.options.learn && limit.options.concurrency === undefined;
        const often = now - stock.askedAt < (withinMs ?? 0);
        stock.ahead = plain && often ? Math.min(stock.ahead * 2 || 1, MAX_AHEAD) : 0;
        stock.askedAt = now;
        return;
      }
      stock.ahead = 0;
      const pauseMs = (waitMs ?? backoffMs(attempt, 25, 250)) + Math.random() * 20;
      if (now + pauseMs > deadline) this.#rest(limit, waitMs, reason);
      await delay(pauseMs, undefined, { signal });
    }
  }

  async observe(
    limit: Limit,
    response: { status: number; headers: { get(name: string): string | null } },
  ): Promise<void> {
    const taken = this.#byHand.get(limit) ?? 1;
    this.#byHand.delete(limit);
    await this.#answered(limit, response, taken);
  }

  /** Of uses that are made by hand all are under way until their answer is observed. */
  async takeByHand(limit: Limit, count: number, signal: AbortSignal): Promise<void> {
    await this.take(limit, count, signal);
    this.#byHand.set(limit, (this.#byHand.get(limit) ?? 0) + count);
  }

  async call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result> {
    if (breaker?.kind !== "breaker") {
      throw new InvalidInput("That is no breaker", {
        field: "breaker",
        remedy: 'Pass what breaker("name", { … }) returned',
      });
    }
    await this.#ask(breaker);
    let result: Result;
    try {
      result = await run();
    } catch (error) {
      const counts = breaker.options.counts ?? ((thrown: unknown) => !(thrown instanceof Fatal));
      if (!(error instanceof Stopped) && !(error instanceof Asleep) && counts(error))
        await this.#failed(breaker, error);
      throw error;
    }
    await this.#tell(breaker, true, null);
    return result;
  }

  /** Gives back what was granted ahead and not used. */
  async close(): Promise<void> {
    const left = [...this.#stocks].filter(([, stock]) => stock.left > 0);
    this.#stocks.clear();
    await Promise.allSettled(
      left.map(([limit, { left: unused, mark }]) =>
        this.#port.useLimit(needOf(limit), { take: 0, least: 0, unused, mark }),
      ),
    );
  }

  /** The call is over. Only limits that count calls under way, or learn, have to know. */
  async #over(limit: Limit, told: Observation | undefined, done = 1): Promise<void> {
    if (!limit.options.learn && limit.options.concurrency === undefined && !told?.refusedMs) return;
    await this.#port.useLimit(needOf(limit), { take: 0, least: 0, done, ...(told && { told }) });
  }

  async #answered(limit: Limit, response: Parameters<Dependencies["observe"]>[1], done = 1): Promise<void> {
    const told = limit.options.learn?.(response);
    // A good answer that tells nothing is known to tell nothing; from a bad one nothing is learned.
    await this.#over(limit, told ?? (limit.options.learn && response.status < 400 ? {} : undefined), done);
    if (told?.refusedMs !== undefined && told.refusedMs > 0) {
      this.#rest(limit, told.refusedMs, `${limit.name} has refused a call`);
    }
  }

  #rest(limit: Limit, waitMs: number | null, reason: string | null): never {
    const forMs = Math.ceil((waitMs ?? 1000) + Math.random() * 250);
    return this.#end({ kind: "slept", forMs, waitingFor: "limit" }, reason ?? `The budget of ${limit.name} is used up`);
  }

  async #ask(breaker: Breaker): Promise<void> {
    const closedAt = this.#closedAt.get(breaker.name);
    if (closedAt !== undefined && performance.now() - closedAt < CLOSED_MS) return;
    this.#judge(breaker, await this.#port.askBreaker(needOf(breaker)));
  }

  async #failed(breaker: Breaker, error: unknown): Promise<void> {
    this.#closedAt.delete(breaker.name);
    await this.#tell(breaker, false, this.#hide(String((error as Error)?.message ?? error)).slice(0, 1000));
  }

  async #tell(breaker: Breaker, succeeded: boolean, reason: string | null): Promise<void> {
    const verdict = await this.#port.tellBreaker(needOf(breaker), succeeded, reason);
    // What has worked has worked, whoever else is waiting.
    if (!succeeded) this.#judge(breaker, verdict);
    else if (!verdict) this.#closedAt.set(breaker.name, performance.now());
  }

  #judge(breaker: Breaker, verdict: BreakerVerdict | null): void {
    if (!verdict) {
      this.#closedAt.set(breaker.name, performance.now());
      return;
    }
    const outcome: Outcome = { kind: "paused", reason: verdict.reason, breaker: breaker.name };
    if (verdict.resumeInMs !== null) outcome.resumeInMs = Math.ceil(verdict.resumeInMs);
    this.#end(outcome, verdict.reason);
  }
}

/** The calls of a job that need something it shares with others. */
export abstract class Needing {
  abstract readonly signal: AbortSignal;

  /** Throws when the attempt has ended. */
  protected abstract needing(): Dependencies;

  /**
   * The fetch of Node under a limit and a breaker: waits for a use of the limit, learns from the answer, and gives the slot up when the budget
   * is gone or the breaker open. What the attempt has done before is kept if it was in steps.
   */
  async fetch(url: string | URL | Request, init?: RequestInit, needs: FetchNeeds = {}): Promise<Response> {
    return this.needing().fetch(url, init, needs, this.signal);
  }

  /** `limit.take(job, count)`: see there. */
  async take(limit: Limit, count = 1): Promise<void> {
    return this.needing().takeByHand(limit, count, this.signal);
  }

  /** `limit.observe(job, response)`: see there. */
  async observe(limit: Limit, response: Parameters<Learn>[0]): Promise<void> {
    return this.needing().observe(limit, response);
  }

  /** `breaker.call(job, run)`: see there. */
  async call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result> {
    return this.needing().call(breaker, run);
  }
}

function needOf({ kind, name, settings }: Limit | Breaker): Need {
  return { kind, name, settings };
}
