// An error becomes a failure record and, by class, by the pipeline's own judgement and by its table of codes, one of the ways to go on.

import { Fatal, Pause, RateLimited, Retry } from "../../contract/job-errors.ts";
import type { FailureKind } from "../../contract/pipeline.ts";
import type { Failure } from "../../db/calls/jobs.ts";
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

/** Who says what an error means: the pipeline and its implementation. */
export interface Judge {
  readonly pipeline: { readonly options: { readonly failures?: Readonly<Record<string, FailureKind>> } };
  /** Decides what an error means, before the codes of the contract do. Undefined leaves it to them. */
  classify?(error: unknown): Classification | undefined;
  /** The sentence for the person who waits. Undefined leaves the error's own message. */
  explain?(error: unknown): string | undefined;
}

const MAX_MESSAGE = 4000;
const MAX_STACK = 8000;

/** How the attempt ends whose code threw this. */
export function outcomeOfError(error: unknown, judge: Judge, step?: string): Outcome {
  try {
    return judged(error, judge, step);
  } catch (wrong) {
    // What it says about how to go on cannot be understood, a time that is none for one: then that is the failure.
    return { kind: "failed", failure: failureOf(wrong, undefined, step), fatal: wrong instanceof StillwakeError };
  }
}

function judged(error: unknown, judge: Judge, step?: string): Outcome {
  if (error instanceof Stopped) return outcomeOfStop(error.stop);
  if (error instanceof RateLimited) return limited(error.until);
  if (error instanceof Pause) return paused(error.message, error.resumeIn);
  const failure = failureOf(error, judge, step);
  const verdict = classify(error, judge);
  if (verdict === "fatal" || verdict === "retry") return { kind: "failed", failure, fatal: verdict === "fatal" };
  if ("retryIn" in verdict) {
    return { kind: "failed", failure, fatal: false, retryInMs: durationMs(verdict.retryIn, "retryIn") };
  }
  if ("rateLimitedUntil" in verdict) return limited(verdict.rateLimitedUntil);
  return paused(verdict.pause, verdict.resumeIn);
}

/** The one place where it is decided what an error means. Read from top to bottom. */
export function classify(error: unknown, judge: Judge): Classification {
  if (error instanceof Fatal) return "fatal";
  if (error instanceof Retry) return error.in === undefined ? "retry" : { retryIn: error.in };
  const own = guarded(() => judge.classify?.(error));
  if (own !== undefined) return own;
  const { failures = {} } = judge.pipeline.options;
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
  // One of ours that says it cannot succeed by being repeated: a result that cannot be stored, a command that is not installed.
  if (error instanceof StillwakeError && !error.retryable && !("*" in failures)) return "fatal";
  return asClassification(failures["*"] ?? "retry", error);
}

export function failureOf(error: unknown, judge?: Judge, step?: string): Failure {
  const failure = describe(error, 0);
  const sentence = judge && guarded(() => judge.explain?.(error));
  if (sentence) failure.sentence = clean(String(sentence), MAX_MESSAGE);
  if (step !== undefined) failure.step = step;
  return failure;
}

function describe(error: unknown, depth: number): Failure {
  if (typeof error !== "object" || error === null) {
    return { name: "Error", message: clean(String(error), MAX_MESSAGE), code: "THROWN" };
  }
  const [name, message, code, stack, cause] = ["name", "message", "code", "stack", "cause"].map((key) =>
    guarded(() => (error as Record<string, unknown>)[key]),
  );
  const failure: Failure = {
    name: clean(typeof name === "string" ? name : "Error", 200),
    message: clean(typeof message === "string" ? message : safeJson(error), MAX_MESSAGE),
  };
  if (typeof code === "string" || typeof code === "number") failure.code = clean(String(code), 200);
  if (typeof stack === "string") failure.stack = clean(stack, MAX_STACK);
  if (cause !== undefined && cause !== null && depth < 3) failure.cause = describe(cause, depth + 1);
  return failure;
}

/** The words for people: what explain() said, or the error's own message. */
export function sentenceOf(failure: Failure): string {
  return failure.sentence || failure.message || failure.code || "It failed";
}

/** As Postgres can store it. */
export function clean(text: string, most: number): string {
  const whole = (text as string & { toWellFormed(): string }).toWellFormed().replaceAll("\u0000", "\u2400");
  return whole.length > most
    ? `${whole.slice(0, most)}… (${whole.length - most} more)`.replace(/[\ud800-\udbff]…/, "…")
    : whole;
}

function asClassification(kind: FailureKind, error: unknown): Classification {
  return kind === "pause" ? { pause: clean(String((error as Error)?.message ?? error), MAX_MESSAGE) } : kind;
}

function limited(until: Date | Duration): Outcome {
  if (until instanceof Date && Number.isNaN(until.getTime())) {
    throw new InvalidInput("A rate limit until an invalid Date cannot be waited for", {
      field: "until",
      remedy: "Check the header it was read from, or give a duration",
    });
  }
  return until instanceof Date
    ? { kind: "slept", until: until.toISOString(), waitingFor: "limit" }
    : { kind: "slept", forMs: durationMs(until, "until"), waitingFor: "limit" };
}

function paused(reason: string, resumeIn: Duration | undefined): Outcome {
  const outcome: Outcome = { kind: "paused", reason: clean(reason, MAX_MESSAGE) };
  if (resumeIn !== undefined) outcome.resumeInMs = durationMs(resumeIn, "resumeIn");
  return outcome;
}

/** A classify or explain of the user's that throws itself must not hide the failure it was asked about. */
function guarded<T>(ask: () => T | undefined): T | undefined {
  try {
    return ask();
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
