// The contract of a limit: one quota for all workers, shared through Postgres. Part of `stillwake/contract`.
import { InvalidInput } from "../errors.ts";
import { type Duration, toInterval } from "../time.ts";
import { isInteger, rejectUnknownOptions } from "../validate.ts";
import type { Learn } from "./rate-limit-headers.ts";

export interface LimitOptions {
  /** The maximum number of uses in any interval of length `per` (a sliding window). */
  max?: number;
  per?: Duration;
  /** The maximum number of concurrent calls, over all workers. */
  concurrency?: number;
  /** Reads the quota from the service's responses, such as `rateLimitHeaders`. */
  learn?: Learn;
}

/** The part of a job context that a limit uses. */
export interface LimitUser {
  take(limit: Limit, count?: number): Promise<void>;
  observe(limit: Limit, response: Parameters<Learn>[0]): Promise<void>;
}

export interface Limit {
  readonly kind: "limit";
  readonly name: string;
  readonly options: Readonly<LimitOptions>;
  /** The settings as `stillwake.register_limit` takes them. */
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  /**
   * Waits for `count` uses; make the calls soon after. When the limit is exhausted for longer than 2 s, the
   * attempt ends here and is not counted; the job is requeued and its code runs again from the last checkpoint.
   */
  take(job: LimitUser, count?: number): Promise<void>;
  /** After a call you made yourself: updates the quota from its response and ends the call's use of `concurrency`. */
  observe(job: LimitUser, response: Parameters<Learn>[0]): Promise<void>;
}

export function limit(name: string, options: LimitOptions): Limit {
  checkName(name, "limit");
  rejectUnknownOptions(options, ["max", "per", "concurrency", "learn"], `Limit "${name}"`);
  const reject = (field: string, problem: string, remedy: string): never => {
    throw new InvalidInput(`Limit "${name}" ${problem}`, { field, remedy });
  };
  const { max, per, concurrency, learn } = options ?? {};
  if ((max === undefined) !== (per === undefined))
    reject("per", "has only one of max and per", "Pass both, or neither");
  if (max !== undefined && !isInteger(max, 1, 1e9))
    reject("max", `cannot have max ${max}`, "Use a whole number from 1");
  if (concurrency !== undefined && !isInteger(concurrency, 1, 1e9))
    reject("concurrency", `cannot have concurrency ${concurrency}`, "Use a whole number from 1");
  if (learn !== undefined && typeof learn !== "function")
    reject(
      "learn",
      "has an invalid learn option: it must be a function",
      "Pass rateLimitHeaders, or a function of the response",
    );
  if (max === undefined && concurrency === undefined && !learn)
    reject("max", "limits nothing", "Pass max and per, concurrency, or learn");
  const settings: Record<string, string | number | boolean> = { learn: learn !== undefined };
  if (max !== undefined) settings.max = max;
  if (per !== undefined) settings.period = toInterval(per, "per");
  if (concurrency !== undefined) settings.concurrency = concurrency;
  const contract: Limit = {
    kind: "limit",
    name,
    options: Object.freeze({ ...options }),
    settings: Object.freeze(settings),
    take: (job, count) => job.take(contract, count),
    observe: (job, response) => job.observe(contract, response),
  };
  return Object.freeze(contract);
}

export function checkName(name: unknown, kind: string, field = "name"): asserts name is string {
  if (typeof name === "string" && /^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(name)) return;
  throw new InvalidInput(`${JSON.stringify(name)} is not a valid ${kind} name`, {
    field,
    remedy: "Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit",
  });
}
