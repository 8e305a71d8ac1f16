// Why a job waits now. `waitingFor` of a job was true when it was written: if its time has passed since, the job waits
// for a worker. The server counts waiting jobs in the same way.
import type { api } from "../api/resources.ts";

export type WaitingReason = NonNullable<api.Job["waitingFor"]>;

export const waitingTexts: Record<WaitingReason, string> = {
  time: "waits for its start time",
  retry: "waits for a retry",
  key: "waits for its key",
  limit: "waits for a limit",
  children: "waits for its children",
  event: "waits for an event",
  machine: "waits for a worker",
};

/** Null if it does not wait. A key has no time; `runAt` null: no time ends the wait. */
export function waitingReason(
  { state, waitingFor, runAt }: Pick<api.Job, "state" | "waitingFor" | "runAt">,
  now: number,
): WaitingReason | null {
  if (state !== "queued") return null;
  if (waitingFor === null) return "machine";
  if (waitingFor === "key" || runAt === null) return waitingFor;
  return Date.parse(runAt) <= now ? "machine" : waitingFor;
}

/** Whether the time at which it resumes is known. */
export function hasResumeTime({ waitingFor, runAt }: Pick<api.Job, "waitingFor" | "runAt">): boolean {
  return runAt !== null && (waitingFor === "time" || waitingFor === "retry" || waitingFor === "limit");
}
