// A limit's contract: one budget for all workers, shared through Postgres. Safe to import from a web bundle.
import { InvalidInput } from "../errors.ts";
import { type Duration, toInterval } from "../time.ts";
import type { Learn } from "./rate-limit-headers.ts";

export interface LimitOptions {
  /** At most so many uses in any interval of the length of `per`, wherever it begins. */
  max?: number;
  per?: Duration;
  /** At most so many calls under way, on all workers together. */
  concurrency?: number;
  /** Reads the budget from the answers of the other side, such as `rateLimitHeaders`. */
  learn?: Learn;
}

/** What a limit is used through: a job. */
export interface LimitUser {
  take(limit: Limit, count?: number): Promise<void>;
  observe(limit: Limit, response: Parameters<Learn>[0]): Promise<void>;
}

export interface Limit {
  readonly kind: "limit";
  readonly name: string;
  readonly options: Readonly<LimitOptions>;
  /** As `stillwake.register_limit` takes them. */
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  /**
   * Waits for `count` uses, make them soon after. When the budget is gone for longer than a moment the job goes back to the line until it
   * is not: its attempt ends here, uncharged, and its code runs again from its last step.
   */
  take(job: LimitUser, count?: number): Promise<void>;
  /** After a call you made by hand: what its answer says of the budget. Says also that the call is over. */
  observe(job: LimitUser, response: Parameters<Learn>[0]): Promise<void>;
}

export function limit(name: string, options: LimitOptions): Limit {
  checkName(name, "limit");
  const known = ["max", "per", "concurrency", "learn"];
  const unknown = Object.keys(options ?? {}).find((key) => !known.includes(key));
  const refuse = (field: string, what: string, remedy: string): never => {
    throw new InvalidInput(`Limit "${name}" ${what}`, { field, remedy });
  };
  if (unknown) refuse(unknown, `has an unknown option "${unknown}"`, `Known options: ${known.join(", ")}`);
  const { max, per, concurrency, learn } = options ?? {};
  const whole = (value: unknown) => Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 1e9;
  if ((max === undefined) !== (per === undefined))
    refuse("per", "has only one of max and per", "Give both, or neither");
  if (max !== undefined && !whole(max)) refuse("max", `cannot have max ${max}`, "Use a whole number from 1");
  if (concurrency !== undefined && !whole(concurrency))
    refuse("concurrency", `cannot have concurrency ${concurrency}`, "Use a whole number from 1");
  if (learn !== undefined && typeof learn !== "function")
    refuse("learn", "cannot learn from that", "Pass rateLimitHeaders, or a function of the response");
  if (max === undefined && concurrency === undefined && !learn)
    refuse("max", "limits nothing", "Give max and per, concurrency, or learn");
  const settings: Record<string, string | number | boolean> = { learn: learn !== undefined };
  if (max !== undefined) settings.max = max;
  if (per !== undefined) settings.period = toInterval(per, "per");
  if (concurrency !== undefined) settings.concurrency = concurrency;
  const made: Limit = {
    kind: "limit",
    name,
    options: Object.freeze({ ...options }),
    settings: Object.freeze(settings),
    take: (job, count) => job.take(made, count),
    observe: (job, response) => job.observe(made, response),
  };
  return Object.freeze(made);
}

export function checkName(name: unknown, what: string): asserts name is string {
  if (typeof name === "string" && /^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(name)) return;
  throw new InvalidInput(`${JSON.stringify(name)} cannot name a ${what}`, {
    field: "name",
    remedy: "Use 1 to 100 lower-case letters, digits and _ . : - beginning with a letter or digit",
  });
}
