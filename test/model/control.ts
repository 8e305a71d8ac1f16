// The operator's calls in the model: their effect on the world and their results.
import { fillKey, waitForKey } from "./keys.ts";
import { end, setAside } from "./transitions.ts";
import { isLive, type World } from "./world.ts";

export function cancel(world: World, id: string, reason: string): string {
  const job = world.jobs.get(id);
  if (!job) return "SW004";
  if (!isLive(job)) return job.state;
  if (job.cancel === null) {
    job.cancel = reason;
    job.feed.push(`cancel_requested@${job.epoch}`);
  }
  return job.lease === null ? end(world, job, "cancelled", null) : "running";
}

export function pause(world: World, id: string, reason: string): string {
  const job = world.jobs.get(id);
  if (!job) return "SW004";
  if (!isLive(job)) return "SW006";
  if (job.lease === null) return setAside(job, reason, null);
  job.pause = { reason, resumeAt: null, waitingFor: null };
  job.feed.push(`pause_requested@${job.epoch}`);
  return "running";
}

export function resume(world: World, id: string): string {
  const job = world.jobs.get(id);
  if (!job) return "SW004";
  if (!isLive(job)) return "SW006";
  if (!job.pause) return job.state;
  if (job.state === "paused") {
    job.state = "queued";
    const waits = job.key !== null && job.slot === null;
    if (!waits) {
      job.runAt = job.orderAt ?? job.runAt;
      job.orderAt = null;
    }
    job.waitingFor = job.pause.waitingFor;
    job.pause = null;
    if (waits) fillKey(world, job);
  }
  job.pause = null;
  job.feed.push(`resumed@${job.epoch}`);
  return job.state;
}

/** Attempts and crashes restart at zero; the epoch, the feed and, by default, the checkpoints are kept. */
export function retry(world: World, id: string, fromStart: boolean): string {
  const job = world.jobs.get(id);
  if (!job) return "SW004";
  if (isLive(job) || job.state === "completed") return "SW006";
  Object.assign(job, {
    state: "queued",
    runAt: world.now,
    expiresAt: null,
    startedAt: null,
    claimedAt: null,
    endedAt: null,
    attempt: 0,
    crashes: 0,
    worker: null,
    cancel: null,
    progress: null,
  });
  if (job.key !== null) {
    waitForKey(job);
    fillKey(world, job);
  }
  if (fromStart) job.checkpoints.clear();
  job.feed.push(`retried@${job.epoch}`);
  return "queued";
}
