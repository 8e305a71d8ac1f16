// The ways an attempt ends: the outcome its code arrived at, or the reason for which it was told to stop. Plain data, because it travels
// from the runner to the keeper; one function turns it into the settlement that SQL understands.
import type { Failure, WaitingFor } from "../../db/calls/jobs.ts";
import type { Lease, Settlement } from "../../db/calls/worker.ts";

export type Outcome =
  | { kind: "completed"; output?: unknown; missing?: string[] }
  | { kind: "failed"; failure: Failure; fatal: boolean; retryInMs?: number }
  | { kind: "slept"; forMs?: number; until?: string; waitingFor: WaitingFor; step?: string; awaits?: string }
  | { kind: "paused"; reason: string; resumeInMs?: number; breaker?: string }
  | { kind: "cancelled" }
  | { kind: "released"; reason: string }
  | { kind: "lost"; failure: Failure }
  /** Replaced: nothing is written any more. */
  | { kind: "replaced" };

/** Why an attempt is told to stop before its code has ended. */
export type StopReason =
  | { kind: "replaced" }
  | { kind: "cancel"; reason: string | null }
  | { kind: "shutdown" }
  /** The time that the platform leaves it is over. */
  | { kind: "budget"; afterMs: number }
  | { kind: "crash"; at: string }
  | { kind: "timeout"; afterMs: number; step?: string }
  | { kind: "silence"; afterMs: number; step?: string };

/** What becomes of an attempt that stopped for this reason, whether it came to an end by itself or had to be killed. */
export function outcomeOfStop(reason: StopReason): Outcome {
  switch (reason.kind) {
    case "replaced":
      return { kind: "replaced" };
    case "cancel":
      return { kind: "cancelled" };
    case "shutdown":
      return { kind: "released", reason: "aborted:shutdown" };
    case "budget":
      return {
        kind: "failed",
        fatal: false,
        failure: {
          name: "Stopped",
          code: "BUDGET_EXCEEDED",
          message: `${sentenceOf(reason)} and nothing of it was kept`,
        },
      };
    case "crash":
      return { kind: "lost", failure: { name: "CrashPoint", code: "CRASH_POINT", message: sentenceOf(reason) } };
    case "timeout":
      return { kind: "failed", fatal: false, failure: limitFailure(reason, "TIMEOUT", "was still running") };
    case "silence":
      return { kind: "failed", fatal: false, failure: limitFailure(reason, "SILENT", "gave no sign of life") };
  }
}

/** Thrown through user code when the job goes to sleep. Catching it changes nothing: the attempt is over. */
export class Asleep extends Error {
  override readonly name = "Asleep";
}

/** The reason as an error: what `job.signal` carries and what a step throws when it is stopped. */
export class Stopped extends Error {
  override readonly name = "Stopped";
  readonly code: string;
  readonly stop: StopReason;

  constructor(stop: StopReason) {
    super(sentenceOf(stop));
    this.code = `STOPPED_${stop.kind.toUpperCase()}`;
    this.stop = stop;
  }
}

function sentenceOf(stop: StopReason): string {
  switch (stop.kind) {
    case "replaced":
      return "Another attempt has taken over this job";
    case "cancel":
      return stop.reason ? `The job was cancelled: ${stop.reason}` : "The job was cancelled";
    case "shutdown":
      return "The worker is shutting down; the job goes back to the line";
    case "budget":
      return `The attempt was not done within ${inWords(stop.afterMs)}`;
    case "crash":
      return `Crashed on purpose ${stop.at}`;
    default:
      return limitFailure(stop, "", stop.kind === "timeout" ? "was still running" : "gave no sign of life").message!;
  }
}

function limitFailure(stop: { kind: string; afterMs: number; step?: string }, code: string, what: string): Failure {
  const who = stop.step === undefined ? "The attempt" : `Step "${stop.step}"`;
  const failure: Failure = { name: "Stopped", code, message: `${who} ${what} after ${inWords(stop.afterMs)}` };
  if (stop.step !== undefined) failure.step = stop.step;
  return failure;
}

export function inWords(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 100) / 10} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 360_000) / 10} h`;
}

/** Null for an attempt that was replaced. */
export function settlementOf({ job, epoch, lease }: Lease, outcome: Outcome): Settlement | null {
  const fence = { job, epoch, lease };
  switch (outcome.kind) {
    // Written out: tens of thousands of these are made in a second.
    case "completed": {
      const settlement: Settlement = { job, epoch, lease, outcome: "completed" };
      if (outcome.output !== undefined) settlement.output = outcome.output;
      if (outcome.missing && outcome.missing.length > 0) settlement.missing = outcome.missing;
      return settlement;
    }
    case "failed": {
      const settlement: Settlement = { ...fence, outcome: "failed", failure: outcome.failure, fatal: outcome.fatal };
      if (outcome.retryInMs !== undefined) settlement.retry_in = `${outcome.retryInMs} milliseconds`;
      return settlement;
    }
    case "slept": {
      const settlement: Settlement = { ...fence, outcome: "slept", waiting_for: outcome.waitingFor };
      if (outcome.forMs !== undefined) settlement.for = `${outcome.forMs} milliseconds`;
      if (outcome.until !== undefined) settlement.until = outcome.until;
      if (outcome.step !== undefined) settlement.step = outcome.step;
      if (outcome.awaits !== undefined) settlement.awaits = outcome.awaits;
      return settlement;
    }
    case "paused": {
      const settlement: Settlement = { ...fence, outcome: "paused", reason: outcome.reason };
      if (outcome.breaker !== undefined) settlement.breaker = outcome.breaker;
      if (outcome.resumeInMs !== undefined) settlement.resume_in = `${outcome.resumeInMs} milliseconds`;
      return settlement;
    }
    case "cancelled":
      return { ...fence, outcome: "cancelled" };
    case "released":
      return { ...fence, outcome: "released", reason: outcome.reason };
    case "lost":
      return { ...fence, outcome: "lost", failure: outcome.failure };
    case "replaced":
      return null;
  }
}
