// The outcome of an attempt and the reasons to stop one. Plain data, because it is sent from the runner to the keeper.
// toSettlement() converts an outcome into the argument of settle().
import type { Failure, WaitingFor } from "../../db/calls/job.ts";
import type { Lease, Settlement } from "../../db/calls/worker.ts";

export type Outcome =
  | { kind: "completed"; output?: unknown; missing?: string[] }
  | { kind: "failed"; failure: Failure; fatal: boolean; retryInMs?: number }
  | { kind: "slept"; forMs?: number; until?: string; waitingFor: WaitingFor; step?: string; awaits?: string }
  | { kind: "paused"; reason: string; resumeInMs?: number; breaker?: string }
  | { kind: "cancelled" }
  | { kind: "released"; reason: string }
  | { kind: "lost"; failure: Failure }
  /** Another attempt has taken over: nothing is written. */
  | { kind: "replaced" };

/** Why an attempt is stopped before its code has finished. */
export type StopReason =
  | { kind: "replaced" }
  | { kind: "cancel"; reason: string | null }
  | { kind: "shutdown" }
  /** The time limit of the platform is reached. */
  | { kind: "max_duration"; afterMs: number }
  | { kind: "crash"; at: string }
  | { kind: "timeout"; afterMs: number; step?: string }
  | { kind: "silence"; afterMs: number; step?: string };

/** The outcome of an attempt that was stopped for this reason, whether its code stopped by itself or was killed. */
export function outcomeOfStop(reason: StopReason): Outcome {
  switch (reason.kind) {
    case "replaced":
      return { kind: "replaced" };
    case "cancel":
      return { kind: "cancelled" };
    case "shutdown":
      return { kind: "released", reason: "aborted:shutdown" };
    case "max_duration": {
      const message = `${describeStop(reason)} and saved no checkpoint`;
      return { kind: "failed", fatal: false, failure: { name: "Stopped", code: "MAX_DURATION_EXCEEDED", message } };
    }
    case "crash":
      return { kind: "lost", failure: { name: "CrashPoint", code: "CRASH_POINT", message: describeStop(reason) } };
    case "timeout":
    case "silence": {
      const code = reason.kind === "timeout" ? "TIMEOUT" : "SILENT";
      const failure: Failure = { name: "Stopped", code, message: describeStop(reason) };
      if (reason.step !== undefined) failure.step = reason.step;
      return { kind: "failed", fatal: false, failure };
    }
  }
}

/** Thrown through user code to end the attempt, for example when the job sleeps. Catching it does not undo that. */
export class Suspended extends Error {
  override readonly name = "Suspended";
}

/** A stop reason as an error: the reason of `job.signal`, thrown by steps that are stopped. */
export class Stopped extends Error {
  override readonly name = "Stopped";
  readonly code: string;
  readonly stop: StopReason;

  constructor(stop: StopReason) {
    super(describeStop(stop));
    this.code = `STOPPED_${stop.kind.toUpperCase()}`;
    this.stop = stop;
  }
}

function describeStop(stop: StopReason): string {
  switch (stop.kind) {
    case "replaced":
      return "Another attempt has taken over this job";
    case "cancel":
      return stop.reason ? `The job was cancelled: ${stop.reason}` : "The job was cancelled";
    case "shutdown":
      return "The worker is shutting down; the job is queued again";
    case "max_duration":
      return `The attempt did not finish within ${formatMs(stop.afterMs)}`;
    case "crash":
      return `Crashed at a fault point ${stop.at}`;
    default: {
      const subject = stop.step === undefined ? "The attempt" : `Step "${stop.step}"`;
      const problem = stop.kind === "timeout" ? "was still running after" : "was silent for";
      return `${subject} ${problem} ${formatMs(stop.afterMs)}`;
    }
  }
}

/** "250 ms", "1.5 s", "3 min", "2.5 h". */
export function formatMs(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 100) / 10} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 360_000) / 10} h`;
}

/** Returns null for an attempt that was replaced. */
export function toSettlement({ job, epoch, lease }: Lease, outcome: Outcome): Settlement | null {
  const fence = { job, epoch, lease };
  switch (outcome.kind) {
    // No spread here: this case runs tens of thousands of times per second.
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
