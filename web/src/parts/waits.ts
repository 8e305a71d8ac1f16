// Why a job waits now. What its row says was true when it was written: a time that has passed since is waited for no longer, and what keeps the job is that no
// worker has taken it yet. The server counts in the same way. Pure: state-mark.tsx says it, lists look for it.
import type { nouns } from "../api/nouns.ts";

export type Reason = NonNullable<nouns.Job["waitingFor"]>;

/** As the end of a sentence that begins with the job. */
export const reasonWords: Record<Reason, string> = {
  time: "waits for its time",
  retry: "waits to be tried again",
  key: "waits for its key",
  limit: "waits for a limit",
  children: "waits for its children",
  event: "waits for an event",
  machine: "waits for a worker",
};

/** Null where it does not wait. A key is waited for however late it is; `runAt` null means that no time ends the waiting. */
export function waitsFor(
  { state, waitingFor, runAt }: Pick<nouns.Job, "state" | "waitingFor" | "runAt">,
  now: number,
): Reason | null {
  if (state !== "queued") return null;
  if (waitingFor === null) return "machine";
  if (waitingFor === "key" || runAt === null) return waitingFor;
  return Date.parse(runAt) <= now ? "machine" : waitingFor;
}

/** There is a time at which it goes on. */
export function hasTime({ waitingFor, runAt }: Pick<nouns.Job, "waitingFor" | "runAt">): boolean {
  return runAt !== null && (waitingFor === "time" || waitingFor === "retry" || waitingFor === "limit");
}
