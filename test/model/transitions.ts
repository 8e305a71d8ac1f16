// The transitions of a job, once the fence has accepted the write. calls.ts and control.ts decide which one.
import { passKey } from "./keys.ts";
import { INFINITY, type Job, pipelines, type World } from "./world.ts";

export type Outcome =
  | { outcome: "completed"; output: string }
  | { outcome: "failed"; failure: string; fatal: boolean; retryIn: number | null }
  | { outcome: "cancelled" }
  | { outcome: "slept"; for: number; waitingFor: string }
  | { outcome: "paused"; reason: string; resumeIn: number | null }
  | { outcome: "released" }
  | { outcome: "lost"; failure: string };

export function settleHeld(world: World, job: Job, outcome: Outcome): string {
  const lease = world.leases.get(job.lease!)!;
  lease.jobs.delete(job.id);
  if (lease.jobs.size === 0) world.leases.delete(lease.id);
  switch (outcome.outcome) {
    case "completed":
      job.output = outcome.output;
      return end(world, job, "completed", null);
    case "failed":
      return settleFailed(world, job, outcome);
    case "lost":
      return settleLost(world, job, outcome.failure);
    case "cancelled":
      return end(world, job, "cancelled", null);
  }
  if (job.cancel !== null) return end(world, job, "cancelled", null, outcome.outcome);
  job.attempt -= 1;
  if (outcome.outcome === "released") return requeue(world, job, "released", job.runAt, null);
  if (outcome.outcome === "slept") {
    const least = outcome.waitingFor === "limit" ? 250 : 0;
    return requeue(world, job, "slept", world.now + Math.max(outcome.for, least), outcome.waitingFor);
  }
  // A pause requested by an operator lasts until it is resumed.
  if (job.pause) return requeue(world, job, "paused", job.runAt, null);
  requeue(world, job, "paused", job.runAt, null);
  return setAside(job, outcome.reason, outcome.resumeIn === null ? null : world.now + outcome.resumeIn);
}

function settleFailed(world: World, job: Job, outcome: Outcome & { outcome: "failed" }): string {
  if (outcome.fatal) return end(world, job, "failed", outcome.failure);
  if (job.cancel !== null) return end(world, job, "cancelled", outcome.failure, "failed");
  if (job.attempt >= job.maxAttempts) return end(world, job, "failed", "RETRIES_EXHAUSTED");
  job.failure = outcome.failure;
  if (outcome.retryIn !== null) return requeue(world, job, "failed", world.now + outcome.retryIn, "retry");
  const { backoffFirst, backoffMost } = pipelines[job.pipeline]!;
  const max = Math.min(backoffFirst * 2 ** (job.attempt - 1), backoffMost);
  if (max > 0) world.drawn.set(job.id, [world.now + max / 2, world.now + max]);
  return requeue(world, job, "failed", world.now + max, "retry");
}

function settleLost(world: World, job: Job, failure: string): string {
  job.crashes += 1;
  if (job.crashes >= pipelines[job.pipeline]!.crashLimit) return end(world, job, "failed", "POISONED", "lost");
  if (job.cancel !== null) return end(world, job, "cancelled", failure, "lost");
  if (job.attempt >= job.maxAttempts) return end(world, job, "failed", "RETRIES_EXHAUSTED", "lost");
  job.failure = failure;
  return requeue(world, job, "lost", job.runAt, null);
}

/** Requeues a job. The epoch is never decremented. */
function requeue(world: World, job: Job, outcome: string, runAt: number, waitingFor: string | null): string {
  job.attempts.get(job.epoch)!.outcome = outcome;
  job.feed.push(`${outcome}@${job.epoch}`);
  job.state = "queued";
  job.lease = null;
  job.worker = null;
  job.claimedAt = null;
  // A retry keeps its position.
  const keeps = waitingFor === "retry";
  job.orderAt = keeps && runAt > world.now ? job.runAt : null;
  job.runAt = keeps && runAt <= world.now ? job.runAt : runAt;
  job.waitingFor = runAt > world.now || ["limit", "event", "key"].includes(waitingFor!) ? waitingFor : null;
  return job.pause ? setAside(job, job.pause.reason, job.pause.resumeAt) : "queued";
}

/** Not claimable, with its position kept. */
export function setAside(job: Job, reason: string | null, resumeAt: number | null): string {
  job.pause = { reason, resumeAt, waitingFor: job.pause?.waitingFor ?? job.waitingFor };
  job.orderAt ??= job.runAt;
  job.state = "paused";
  job.waitingFor = null;
  job.runAt = resumeAt ?? INFINITY;
  job.feed.push(`paused@${job.epoch}`);
  return "paused";
}

export function end(
  world: World,
  job: Job,
  state: "completed" | "failed" | "cancelled",
  failure: string | null,
  outcome: string = state,
): string {
  const attempt = job.lease === null ? undefined : job.attempts.get(job.epoch);
  if (attempt) attempt.outcome = outcome;
  job.state = state;
  job.lease = null;
  job.waitingFor = null;
  job.pause = null;
  job.orderAt = null;
  job.endedAt = world.now;
  job.failure = state === "completed" ? null : (failure ?? job.failure);
  if (state === "completed" && job.progress !== null) job.progress = 1;
  passKey(world, job);
  return state;
}
