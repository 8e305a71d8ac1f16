// A breaker's contract: stands before something many jobs need and stops them all when it fails again and again. Safe in a web bundle.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs, toInterval } from "../time.ts";
import { checkName } from "./limit.ts";

export interface BreakerOptions {
  /** So many failures in a row open it. Default 5. */
  failures?: number;
  /** How long it stays open before one job tries. Default "30s". */
  pause?: Duration;
  /** How much longer after each try that failed. Default 2. */
  growth?: number;
  /** The longest pause. Default "15m". */
  max?: Duration;
  /** Whether an error is a failure of what is behind it. Default: every error but Fatal. */
  counts?: (error: unknown) => boolean;
}

/** What a breaker is used through: a job. */
export interface BreakerUser {
  call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result>;
}

export interface Breaker {
  readonly kind: "breaker";
  readonly name: string;
  readonly options: Readonly<BreakerOptions>;
  /** As `stillwake.register_breaker` takes them. */
  readonly settings: Readonly<Record<string, string | number>>;
  /**
   * Runs `run` and notes how it ends. While the breaker is open, or when this failure opens it, the job is paused instead, with the reason and
   * the time it goes on at; no attempt is charged.
   */
  call<Result>(job: BreakerUser, run: () => Promise<Result> | Result): Promise<Result>;
}

export function breaker(name: string, options: BreakerOptions = {}): Breaker {
  checkName(name, "breaker");
  const known = ["failures", "pause", "growth", "max", "counts"];
  const refuse = (field: string, what: string, remedy: string): never => {
    throw new InvalidInput(`Breaker "${name}" ${what}`, { field, remedy });
  };
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) refuse(unknown, `has an unknown option "${unknown}"`, `Known options: ${known.join(", ")}`);
  const { failures = 5, pause = "30s", growth = 2, counts } = options;
  const pauseMs = durationMs(pause, "pause");
  const max = options.max ?? (pauseMs > 900_000 ? pause : "15m");
  if (!Number.isInteger(failures) || failures < 1 || failures > 1_000_000)
    refuse("failures", `cannot open after ${failures} failures`, "Use a whole number from 1");
  if (!(growth >= 1 && growth <= 100)) refuse("growth", `cannot grow by ${growth}`, "Use a number from 1 to 100");
  if (pauseMs < 10) refuse("pause", `cannot pause for ${pause}`, 'Use "10ms" or longer');
  if (durationMs(max, "max") < pauseMs)
    refuse("max", `has a max below its pause of ${pause}`, "Make it at least as long");
  if (counts !== undefined && typeof counts !== "function")
    refuse("counts", "cannot count by that", "Pass a function of the error");
  const settings = { failures, pause: toInterval(pause, "pause"), growth, max: toInterval(max, "max") };
  const made: Breaker = {
    kind: "breaker",
    name,
    options: Object.freeze({ ...options }),
    settings: Object.freeze(settings),
    call: (job, run) => job.call(made, run),
  };
  return Object.freeze(made);
}
