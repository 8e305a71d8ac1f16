// Converts an error into a failure record, and decides what it means for the job: by the class of the error, by
// classify() of the implementation, and by the failure codes of the pipeline.

import { Fatal, Pause, RateLimited, Retry } from "../../contract/job-errors.ts";
import type { FailureKind } from "../../contract/pipeline.ts";
import type { Failure } from "../../db/calls/job.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type Duration, durationMs } from "../../time.ts";
import { type Outcome, outcomeOfStop, Stopped } from "./outcome.ts";

/** What a failure means for the job. */
export type Classification =
  | "retry"
  | "fatal"
  | { retryIn: Duration }
  | { rateLimitedUntil: Date | Duration }
  | { pause: string; resumeIn?: Duration };

/** The parts of an implementation that decide what an error means. */
export interface FailurePolicy {
  readonly pipeline: { readonly options: { readonly failures?: Readonly<Record<string, FailureKind>> } };
  /** Decides what an error means. Undefined leaves the decision to the failure codes of the pipeline. */
  classify?(error: unknown): Classification | undefined;
  /** The sentence shown to people. Undefined leaves the message of the error. */
  explain?(error: unknown): string | undefined;
}

const MAX_MESSAGE = 4000;
const MAX_STACK = 8000;

/** The outcome of an attempt whose code threw this error. */
export function outcomeOfError(error: unknown, policy: FailurePolicy, step?: string): Outcome {
  try {
    return decideOutcome(error, policy, step);
  } catch (invalid) {
    // The classification itself is invalid, for example its duration: that becomes the failure.
    return { kind: "failed", failure: toFailure(invalid, undefined, step), fatal: invalid instanceof StillwakeError };
  }
}

function decideOutcome(error: unknown, policy: FailurePolicy, step?: string): Outcome {
  if (error instanceof Stopped) return outcomeOfStop(error.stop);
  if (error instanceof RateLimited) return sleepUntil(error.until);
  if (error instanceof Pause) return pause(error.message, error.resumeIn);
  const failure = toFailure(error, policy, step);
  const verdict = classify(error, policy);
  if (verdict === "fatal" || verdict === "retry") return { kind: "failed", failure, fatal: verdict === "fatal" };
  if ("retryIn" in verdict) {
    return { kind: "failed", failure, fatal: false, retryInMs: durationMs(verdict.retryIn, "retryIn") };
  }
  if ("rateLimitedUntil" in verdict) return sleepUntil(verdict.rateLimitedUntil);
  return pause(verdict.pause, verdict.resumeIn);
}

/** The only place that decides what an error means. The first match wins. */
export function classify(error: unknown, policy: FailurePolicy): Classification {
  if (error instanceof Fatal) return "fatal";
  if (error instanceof Retry) return error.in === undefined ? "retry" : { retryIn: error.in };
  const own = callSafely(() => policy.classify?.(error));
  if (own !== undefined) return own;
  const { failures = {} } = policy.pipeline.options;
  const { code, exitCode, name } = (error ?? {}) as { code?: unknown; exitCode?: unknown; name?: unknown };
  const keys = [
    typeof code === "number" ? String(code) : code,
    typeof exitCode === "number" ? `EXIT_${exitCode}` : undefined,
    name,
  ];
  for (const key of keys) {
    const kind = typeof key === "string" && Object.hasOwn(failures, key) ? failures[key] : undefined;
    if (kind) return asClassification(kind, error);
  }
  // Our own errors that a retry cannot fix, such as a result that cannot be stored or a command that is not installed.
  if (error instanceof StillwakeError && !error.retryable && !("*" in failures)) return "fatal";
  return asClassification(failures["*"] ?? "retry", error);
}

export function toFailure(error: unknown, policy?: FailurePolicy, step?: string): Failure {
  const failure = describe(error, 0);
  const sentence = policy && callSafely(() => policy.explain?.(error));
  if (sentence) failure.sentence = toStorableText(String(sentence), MAX_MESSAGE);
  if (step !== undefined) failure.step = step;
  return failure;
}

function describe(error: unknown, depth: number): Failure {
  if (typeof error !== "object" || error === null) {
    return { name: "Error", message: toStorableText(String(error), MAX_MESSAGE), code: "THROWN" };
  }
  const [name, message, code, stack, cause] = ["name", "message", "code", "stack", "cause"].map((key) =>
    callSafely(() => (error as Record<string, unknown>)[key]),
  );
  const failure: Failure = {
    name: toStorableText(typeof name === "string" ? name : "Error", 200),
    message: toStorableText(typeof message === "string" ? message : safeJson(error), MAX_MESSAGE),
  };
  if (typeof code === "string" || typeof code === "number") failure.code = toStorableText(String(code), 200);
  if (typeof stack === "string") failure.stack = toStorableText(stack, MAX_STACK);
  if (cause !== undefined && cause !== null && depth < 3) failure.cause = describe(cause, depth + 1);
  return failure;
}

/** The text for people: the sentence of explain(), or the message of the error. */
export function sentenceOf(failure: Failure): string {
  return failure.sentence || failure.message || failure.code || "Failed without a message";
}

/** Makes a text storable in Postgres, and truncates it. */
export function toStorableText(text: string, maxLength: number): string {
  const whole = (text as string & { toWellFormed(): string }).toWellFormed().replaceAll("\u0000", "\u2400");
  return whole.length > maxLength
    ? `${whole.slice(0, maxLength)}… (${whole.length - maxLength} more)`.replace(/[\ud800-\udbff]…/, "…")
    : whole;
}

function asClassification(kind: FailureKind, error: unknown): Classification {
  return kind === "pause" ? { pause: toStorableText(String((error as Error)?.message ?? error), MAX_MESSAGE) } : kind;
}

function sleepUntil(until: Date | Duration): Outcome {
  if (until instanceof Date && Number.isNaN(until.getTime())) {
    throw new InvalidInput("The end of the rate limit is an invalid Date", {
      field: "until",
      remedy: "Check the header it was read from, or pass a duration",
    });
  }
  return until instanceof Date
    ? { kind: "slept", until: until.toISOString(), waitingFor: "limit" }
    : { kind: "slept", forMs: durationMs(until, "until"), waitingFor: "limit" };
}

function pause(reason: string, resumeIn: Duration | undefined): Outcome {
  const outcome: Outcome = { kind: "paused", reason: toStorableText(reason, MAX_MESSAGE) };
  if (resumeIn !== undefined) outcome.resumeInMs = durationMs(resumeIn, "resumeIn");
  return outcome;
}

/** An error thrown by the user's classify, explain or a getter must not hide the failure itself. */
function callSafely<T>(call: () => T | undefined): T | undefined {
  try {
    return call();
  } catch {
    return undefined;
  }
}

function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}
