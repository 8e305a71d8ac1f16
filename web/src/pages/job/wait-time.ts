// How long a job waited before its first attempt, counted from the time at which it was due: a job that is scheduled
// for later does not wait before that time.

interface JobTimes {
  createdAt: string;
  runAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
}

interface WaitTime {
  /** Null: not due yet. */
  ms: number | null;
  /** The due time is no longer known: `ms` counts from the enqueue. */
  sinceEnqueue: boolean;
}

/** `firstClaim` is the start of the first attempt. A retry by hand gives the job a new `startedAt`. */
export function waitBeforeStart(
  { createdAt, runAt, startedAt, endedAt }: JobTimes,
  firstClaim: string | null,
  now: number,
): WaitTime {
  const start = firstClaim ?? startedAt;
  const until = Date.parse(start ?? endedAt ?? "") || now;
  const created = Date.parse(createdAt);
  const due = runAt === null ? created : Math.max(created, Date.parse(runAt));
  // A sleep, a wait or a retry has replaced runAt since.
  const isReplaced = start !== null && (runAt === null || due > until);
  const ms = until - (isReplaced ? created : due);
  return { ms: ms < 0 ? null : ms, sinceEnqueue: isReplaced };
}
