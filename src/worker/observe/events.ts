// The events of a worker. The keeper emits them; the process log, the metrics and user code subscribe. Every attempt.started is followed by
// exactly one attempt.ended of the same job and epoch, also when the runner died: the gauge of running jobs depends on it.
import type { JobState } from "../../db/calls/job.ts";
import type { Outcome } from "../attempt/outcome.ts";

export type WorkerEvent =
  | {
      kind: "worker.started";
      worker: string;
      slots: number;
      /** The pools it serves, with the names of their pipelines. */
      pools: Record<string, string[]>;
      /** Pools of its other pipelines, which it does not serve. */
      notServed: Record<string, string[]>;
      isolation: string;
      version: string;
    }
  // Variables of the environment that pipeline code does not get, once per start.
  | { kind: "env.withheld"; names: string[] }
  | { kind: "worker.draining"; reason: string; active: number; limitMs: number }
  | { kind: "worker.stopped"; reason: string; tookMs: number; jobs: number }
  // The database counts as reachable until it is reported lost. Each is emitted once per outage.
  | { kind: "database.lost"; message: string }
  | { kind: "database.back"; awayMs: number }
  // The direct connection that receives hints.
  | { kind: "hints.lost"; message: string }
  | { kind: "hints.ready" }
  | { kind: "hints.unavailable"; why: string }
  | { kind: "claimed"; count: number; tookMs: number }
  // A claim after a hint that found nothing has lost a race against another worker.
  | { kind: "claim.empty"; hinted: boolean }
  | { kind: "claim.failed"; message: string }
  // Postgres rejects the outcome of an attempt: its job fails, or is paused if Postgres rejects that too.
  | { kind: "settlement.rejected"; job: string; message: string }
  | { kind: "heartbeat"; jobs: number; tookMs: number }
  | { kind: "heartbeat.failed"; message: string }
  | { kind: "recovered"; count: number; reason: "stale" | "absent" }
  | {
      kind: "attempt.started";
      job: string;
      pipeline: string;
      attempt: number;
      epoch: string;
      traceContext?: Record<string, string>;
    }
  | {
      kind: "attempt.ended";
      job: string;
      pipeline: string;
      epoch: string;
      outcome: Outcome["kind"];
      /** The job's state afterwards; lost when another attempt has replaced this one. */
      state: JobState | "lost";
      code?: string;
      tookMs: number;
      /** Whether the attempt failed and the job will be retried. */
      retry: boolean;
      /** The step that failed. */
      step?: string;
    }
  | { kind: "step.started"; job: string; pipeline: string; step: string }
  | {
      kind: "step.ended";
      job: string;
      pipeline: string;
      step: string;
      tookMs: number;
      outcome: "completed" | "failed" | "kept" | "skipped";
      code?: string;
    }
  // The fence refused a late write.
  | { kind: "write.refused"; job: string; verb: string }
  | { kind: "module.empty"; file: string }
  | { kind: "runner.started"; runner: string; pid: number; tookMs: number }
  | {
      kind: "runner.died";
      runner: string;
      pid: number;
      code: number | null;
      signal: string | null;
      cause: string;
      job?: string;
    }
  // A line that user code wrote to stdout or stderr.
  | { kind: "runner.output"; runner: string; stream: "stdout" | "stderr"; line: string; job?: string }
  | { kind: "memory.high"; fraction: number; usedBytes: number; limitBytes: number }
  | { kind: "demand"; pool: string; claimable: number; running: number; oldestSeconds: number }
  | { kind: "logs.dropped"; job: string; lines: number }
  // Partitions or the deletion of old data; tried again a minute later.
  | { kind: "housekeeping.failed"; message: string }
  // A delivery attempt of a webhook was recorded.
  | {
      kind: "webhook";
      id: string;
      endpoint: string;
      attempt: number;
      state: "pending" | "delivered" | "failed" | "lost";
      status: number | null;
      error: string | null;
      tookMs: number;
    };

export type EventOf<Kind extends WorkerEvent["kind"]> = Extract<WorkerEvent, { kind: Kind }>;

export interface WorkerEvents {
  emit(event: WorkerEvent): void;
  /** Returns a function that ends the subscription. */
  subscribe(listener: (event: WorkerEvent) => void): () => void;
}

export function createWorkerEvents(): WorkerEvents {
  // Replaced, never mutated, so that a listener may unsubscribe during an event.
  let listeners: readonly ((event: WorkerEvent) => void)[] = [];
  return {
    emit(event) {
      for (const listener of listeners) listener(event);
    },
    subscribe(listener) {
      const safe = catchErrors(listener);
      listeners = [...listeners, safe];
      return () => {
        listeners = listeners.filter((other) => other !== safe);
      };
    },
  };
}

/** The first error of a listener, thrown or rejected, becomes a process warning; none reaches the keeper. */
function catchErrors(listener: (event: WorkerEvent) => unknown): (event: WorkerEvent) => void {
  let warned = false;
  const warn = (error: unknown) => {
    if (warned) return;
    warned = true;
    process.emitWarning(`A listener to worker events failed: ${(error as Error)?.stack ?? error}`, "StillwakeWarning");
  };
  return (event) => {
    try {
      const result = listener(event);
      if (result instanceof Promise) result.catch(warn);
    } catch (error) {
      warn(error);
    }
  };
}
