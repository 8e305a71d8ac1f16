// The contract of a breaker: pauses all jobs that use a dependency while the dependency keeps failing. Part of `stillwake/contract`.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs, toInterval } from "../time.ts";
import { isInteger, rejectUnknownOptions } from "../validate.ts";
import { checkName } from "./limit.ts";

export interface BreakerOptions {
  /** Consecutive failures that open it. Default 5. */
  failures?: number;
  /** How long it stays open before one job probes the dependency. Default "30s". */
  pause?: Duration;
  /** The pause is multiplied by this after each failed probe. Default 2. */
  growth?: number;
  /** The longest pause. Default "15m". */
  max?: Duration;
  /** Whether an error is a failure of the dependency. Default: every error but Fatal. */
  counts?: (error: unknown) => boolean;
}

/** The part of a job context that a breaker uses. */
export interface BreakerUser {
  call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result>;
}

export interface Breaker {
  readonly kind: "breaker";
  readonly name: string;
  readonly options: Readonly<BreakerOptions>;
  /** The settings as `stillwake.register_breaker` takes them. */
  readonly settings: Readonly<Record<string, string | number>>;
  /**
   * Runs `run` and records whether it failed. While the breaker is open, or when this failure opens it, the job is
   * paused instead, with the reason and the time it resumes; no attempt is counted.
   */
  call<Result>(job: BreakerUser, run: () => Promise<Result> | Result): Promise<Result>;
}

export function breaker(name: string, options: BreakerOptions = {}): Breaker {
  checkName(name, "breaker");
  rejectUnknownOptions(options, ["failures", "pause", "growth", "max", "counts"], `Breaker "${name}"`);
  const reject = (field: string, problem: string, remedy: string): never => {
    throw new InvalidInput(`Breaker "${name}" ${problem}`, { field, remedy });
  };
  const { failures = 5, pause = "30s", growth = 2, counts } = options;
  const pauseMs = durationMs(pause, "pause");
  const max = options.max ?? (pauseMs > 900_000 ? pause : "15m");
  if (!isInteger(failures, 1, 1_000_000))
    reject("failures", `cannot have failures ${failures}`, "Use a whole number from 1");
  if (!(growth >= 1 && growth <= 100)) reject("growth", `cannot have growth ${growth}`, "Use a number from 1 to 100");
  if (pauseMs < 10) reject("pause", `cannot have pause ${pause}`, 'Use "10ms" or longer');
  if (durationMs(max, "max") < pauseMs)
    reject("max", `has a max below its pause of ${pause}`, "Make it at least as long");
  if (counts !== undefined && typeof counts !== "function")
    reject("counts", "has an invalid counts option: it must be a function", "Pass a function of the error");
  const settings = { failures, pause: toInterval(pause, "pause"), growth, max: toInterval(max, "max") };
  const contract: Breaker = {
    kind: "breaker",
    name,
    options: Object.freeze({ ...options }),
    settings: Object.freeze(settings),
    call: (job, run) => job.call(contract, run),
  };
  return Object.freeze(contract);
}
