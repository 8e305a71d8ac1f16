// The status sentence at the top of a job's page: what it does, why it waits, why it failed, or how it ended.

import {
  escapeText,
  formatCount,
  formatDayTime,
  formatDuration,
  formatTime,
  plural,
  shortId,
} from "@stillwake/ui/format.ts";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import type { ReactNode } from "react";
import type { FollowedJob } from "stillwake/react";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import { failureCode, failureRemedy, failureSentence } from "../../parts/failure-text.ts";
import { startProblem } from "../../parts/machine-text.ts";
import type { WaitReasons } from "./use-job-data.ts";

export function NowSentence({
  job,
  store,
  since,
  failedAttempts,
  reasons,
  children,
}: {
  job: api.Job;
  store: FollowedJob;
  /** The start of the running attempt. */
  since: string | null;
  /** Failed and lost attempts, including those before a retry by hand. */
  failedAttempts: number;
  reasons: WaitReasons;
  /** Progress and figures. */
  children: ReactNode;
}) {
  const now = useNow();
  const context = { ...reasons, failedAttempts };
  const { tone, text, more } = describe(job, store, since ?? job.startedAt, context, now);
  return (
    <div className="job-now callout untrusted" data-tone={tone} data-state={job.state}>
      <p className="job-now-text">{text}</p>
      {more && <p className="small">{more}</p>}
      {children}
    </div>
  );
}

interface Status {
  tone?: "bad" | "amber" | "teal" | "good" | undefined;
  text: ReactNode;
  more?: ReactNode;
}

interface Context extends WaitReasons {
  failedAttempts: number;
}

function describe(job: api.Job, store: FollowedJob, since: string | null, context: Context, now: number): Status {
  switch (job.state) {
    case "running":
      return describeRunning(job, store, since, now);
    case "queued":
      return describeQueued(job, context, now);
    case "paused":
      return describePaused(job, now);
    case "completed":
      return describeCompleted(job);
    case "failed":
      return describeFailed(job, context);
    case "cancelled":
      return describeCancelled(job);
  }
}

function describeRunning(
  { worker, cancel, pause }: api.Job,
  store: FollowedJob,
  since: string | null,
  now: number,
): Status {
  const time = since === null ? "" : ` for ${wholeSeconds(now - Date.parse(since))}`;
  const on = worker === null ? "" : ` on worker ${escapeText(worker)}`;
  const step = store.steps.findLast(({ state }) => state === "running");
  const doing = store.progress?.sentence ?? step?.sentence ?? step?.name ?? store.latest;
  if (cancel) {
    const by = cancel.by ? ` by ${escapeText(cancel.by)}` : "";
    return { tone: "amber", text: `Stopping: a cancel was requested${by}` };
  }
  return {
    tone: pause ? "amber" : "teal",
    more: pause && describePauseRequest(pause),
    text: (
      <>
        Running<span className="number">{time}</span>
        {on}
        {doing ? <>: {escapeText(doing)}</> : ""}
      </>
    ),
  };
}

/** A pause does not stop the running attempt. */
function describePauseRequest({ by, reason }: NonNullable<api.Job["pause"]>): string {
  const who = by ? ` by ${escapeText(by)}` : "";
  const why = reason ? ` (${escapeText(reason)})` : "";
  return `Pause requested${who}${why}: this attempt continues; the job pauses before its next wait or attempt.`;
}

function describeQueued(job: api.Job, context: Context, now: number): Status {
  const { waitingFor, awaitedEvent, runAt, children, failure, attempt, maxAttempts } = job;
  const later = runAt !== null && Date.parse(runAt) > now;
  const left = later ? wholeSeconds(Date.parse(runAt) - now + 999) : "";
  const until = later ? ` until ${shortTime(runAt, now)}` : "";
  const last = failure && attempt > 0 ? `The last attempt failed: ${escapeText(failureSentence(failure))}` : undefined;
  switch (waitingFor) {
    case "time":
      return later
        ? { tone: "amber", text: `Scheduled for ${shortTime(runAt, now)}, in ${left}`, more: last }
        : describeReady(job, context, last);
    case "retry": {
      if (!later) return describeReady(job, context, last);
      const next = `Attempt ${attempt} of ${maxAttempts} failed; the next one starts in ${left}`;
      return { tone: "amber", text: failure ? `${next}. ${escapeText(failureSentence(failure))}` : next };
    }
    case "key":
      return describeKeyWait(job, context);
    case "limit": {
      const { limit } = context;
      const name = limit ? `limit ${escapeText(limit.name)}` : "a limit";
      const more = limit?.reason ? escapeText(limit.reason) : undefined;
      return {
        tone: "amber",
        text: (
          <>
            Waiting for {limit ? <Link href="/limits">{name}</Link> : name}
            {until}
          </>
        ),
        more,
      };
    }
    case "children": {
      const ended = children ? children.completed + children.failed + children.cancelled : 0;
      const progress = children ? `: ${formatCount(ended)} of ${formatCount(children.total)} ended` : "";
      return { tone: "amber", text: `Waiting for its children${progress}`, more: "It uses no worker while it waits." };
    }
    case "event": {
      const more = "Send it with Signal above, over HTTP or in SQL. The job uses no worker while it waits.";
      return {
        tone: "amber",
        text: `Waiting for ${awaitedEvent ? `the event ${escapeText(awaitedEvent)}` : "an event"}${until}`,
        more,
      };
    }
    default:
      return describeReady(job, context, last);
  }
}

function describeReady(
  { pool, startedAt }: api.Job,
  { pool: details, machines }: WaitReasons,
  last: string | undefined,
): Status {
  const name = escapeText(pool);
  if (details?.paused) {
    const { by, reason } = details.paused;
    const who = by ? ` by ${escapeText(by)}` : "";
    const text = (
      <>
        Ready to {startedAt ? "resume" : "start"}, but its <Link href="/pools">pool {name}</Link> is paused{who}
        {reason && <>: {escapeText(reason)}</>}
      </>
    );
    return { tone: "amber", text, more: last };
  }
  if (details?.machines) return describeMachineWait(details, details.machines, last);
  const none = machines === 0 ? `No worker serves this pool. Start one: stillwake worker --pool ${name}` : undefined;
  const text = startedAt
    ? `Ready to resume; waiting for a worker of pool ${name}`
    : `Ready to start; waiting for a worker of pool ${name}`;
  return { tone: "amber", text, more: none ?? last };
}

/** For a pool whose machines the orchestrator starts: why there is none for the job yet. */
function describeMachineWait(
  pool: api.Pool,
  { now: machines, max, starting }: NonNullable<api.Pool["machines"]>,
  last: string | undefined,
): Status {
  const problem = startProblem(pool);
  const where = <Link href="/pools">pool {escapeText(pool.name)}</Link>;
  if (problem) {
    const retry = problem.until === null ? "" : ` Next start at ${formatTime(problem.until)}.`;
    const text = (
      <>
        Waiting for a machine of {where}. {problem.what}: {escapeText(problem.why)}
      </>
    );
    return { tone: problem.tone, text, more: retry || last };
  }
  if (starting > 0)
    return { tone: "amber", text: <>Waiting for a machine of {where}, which is starting</>, more: last };
  if (machines < max) return { tone: "amber", text: <>Ready to start; waiting for a machine of {where}</>, more: last };
  const text = (
    <>
      Waiting for a free machine: {where} has reached its maximum of {plural(max, "machine")}
    </>
  );
  return { tone: "amber", text, more: last };
}

function describeKeyWait({ key }: api.Job, { holder }: WaitReasons): Status {
  const name = escapeText(key ?? "");
  return {
    tone: "amber",
    text: (
      <>
        Waiting for its key {name}:{" "}
        {holder ? (
          <>
            <Link href={`/jobs/${holder.id}`}>job …{shortId(holder.id)}</Link> has it
          </>
        ) : (
          "another job has it"
        )}
      </>
    ),
  };
}

function describePaused({ pause, runAt }: api.Job, now: number): Status {
  const breaker = typeof pause?.breaker === "string" ? pause.breaker : undefined;
  const until = runAt === null ? "" : ` until ${shortTime(runAt, now)}`;
  const by = breaker ? (
    <>
      {" "}
      by <Link href="/limits">breaker {escapeText(breaker)}</Link>
    </>
  ) : (
    pause?.by && ` by ${escapeText(pause.by)}`
  );
  return {
    tone: "amber",
    text: (
      <>
        Paused{by}
        {until}
        {pause?.reason && <>: {escapeText(pause.reason)}</>}
      </>
    ),
    more: runAt === null ? "It stays paused until it is resumed." : undefined,
  };
}

function describeCompleted({ startedAt, endedAt, missing }: api.Job): Status {
  const took = startedAt && endedAt ? ` in ${formatDuration(Date.parse(endedAt) - Date.parse(startedAt))}` : "";
  if (missing.length === 0) return { tone: "good", text: `Completed${took}` };
  const steps = plural(missing.length, "optional step");
  return { tone: "amber", text: `Completed${took} without ${steps}: ${missing.map(escapeText).join(", ")}` };
}

function describeFailed({ failure, startedAt }: api.Job, { failedAttempts }: Context): Status {
  const attempts = failedAttempts > 1 ? ` after ${plural(failedAttempts, "attempt")}` : "";
  const after = startedAt === null ? " before it started" : attempts;
  const code = failureCode(failure);
  return {
    tone: "bad",
    text: `Failed${after}: ${escapeText(failureSentence(failure))}`,
    more: code ? (
      <>
        <code>{escapeText(code)}</code> {failureRemedy(code)}
      </>
    ) : undefined,
  };
}

function describeCancelled({ cancel, startedAt, endedAt }: api.Job): Status {
  const by = cancel?.by ? ` by ${escapeText(cancel.by)}` : "";
  const after =
    startedAt && endedAt
      ? ` after ${formatDuration(Date.parse(endedAt) - Date.parse(startedAt))}`
      : " before it started";
  return { text: `Cancelled${by}${after}${cancel?.reason ? `: ${escapeText(cancel.reason)}` : ""}` };
}

/** Updated every second, so without fractions. */
function wholeSeconds(ms: number): string {
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : formatDuration(ms);
}

/** Without the day if it is within 12 hours. */
function shortTime(at: string, now: number): string {
  return Date.parse(at) - now < 12 * 3_600_000 ? formatTime(at) : formatDayTime(at);
}
