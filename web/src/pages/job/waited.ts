// How long a job waited before it was first begun. It is counted from the moment at which it could begin, so that a job for a later time has not waited before that.

export interface WaitGiven {
  createdAt: string;
  runAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
}

export interface Waited {
  /** Null: it is not due yet. */
  ms: number | null;
  /** When it was due is no longer known: this is all the time since it was enqueued. */
  whole: boolean;
}

/** `began` is when its first attempt began. A job that was retried by hand has a new `startedAt`, and the same first attempt. */
export function waitedToStart(
  { createdAt, runAt, startedAt, endedAt }: WaitGiven,
  began: string | null,
  now: number,
): Waited {
  const first = began ?? startedAt;
  const until = Date.parse(first ?? endedAt ?? "") || now;
  const made = Date.parse(createdAt);
  const due = runAt === null ? made : Math.max(made, Date.parse(runAt));
  // A sleep, a wait or a retry has given it another time since.
  const moved = first !== null && (runAt === null || due > until);
  const ms = until - (moved ? made : due);
  return { ms: ms < 0 ? null : ms, whole: moved };
}
