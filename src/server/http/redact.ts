// What an external caller (with a read token) sees of a job: its state, result and log, without the input, the
// operators' actions, the name of the event it waits for, and where in the code and on which machine it failed.
import type { Failure, Job } from "../../db/calls/job.ts";
import type { FollowEvent } from "../../live/job-buffer.ts";

export function redactJob(job: Job): Job {
  const hidden = {
    input: null,
    worker: null,
    idempotencyKey: null,
    tenant: null,
    cancel: null,
    pause: null,
    awaitedEvent: null,
  };
  return { ...job, ...hidden, failure: redactFailure(job.failure) };
}

export function redactEvent(event: FollowEvent): FollowEvent {
  if (event.kind === "event") {
    // A follower must know that checkpoints were deleted, but not who did it and why.
    const { from_start } = (event.data ?? {}) as { from_start?: unknown };
    return { ...event, data: from_start === true ? { from_start } : null };
  }
  if (event.kind === "state") return { ...event, awaitedEvent: null };
  return event.kind === "end" ? { ...event, failure: redactFailure(event.failure) } : event;
}

function redactFailure(failure: Failure | null): Failure | null {
  if (!failure) return null;
  const { stack: _stack, cause: _cause, ...rest } = failure;
  const message = rest.message?.replaceAll(/\bWorker \S+ has not sent/g, "The worker has not sent");
  return { ...rest, ...(message !== undefined && { message }) };
}
