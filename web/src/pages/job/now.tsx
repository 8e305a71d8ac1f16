// The sentence of now: what the job is doing, why it waits, what killed it, how it ended. The first thing that is read, so it says it in one.
import type { ReactNode } from "react";
import type { FollowedJob } from "stillwake/react";
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { codeOf, remedyOf, sentenceOf } from "../../parts/failure-words.ts";
import { heldBack } from "../../parts/machine-words.ts";
import { useNow } from "../../parts/moment.tsx";
import { clockTime, count, dayTime, inert, several, shortId, span } from "../../parts/words.ts";
import type { Reasons } from "./use-job-data.ts";

export function NowSentence({
  job,
  store,
  since,
  tries,
  awaited,
  reasons,
  children,
}: {
  job: nouns.Job;
  store: FollowedJob;
  /** When the attempt that runs began. */
  since: string | null;
  /** How many attempts have failed or were lost, those before a retry by hand among them. */
  tries: number;
  /** The step in which it waits for an event. */
  awaited: string;
  reasons: Reasons;
  /** What it cost so far. */
  children: ReactNode;
}) {
  const now = useNow();
  const { tone, text, more } = sentence(job, store, since ?? job.startedAt, { ...reasons, awaited, tries }, now);
  return (
    <div className="job-now callout foreign" data-tone={tone} data-state={job.state}>
      <p className="job-now-text">{text}</p>
      {more && <p className="small">{more}</p>}
      {children}
    </div>
  );
}

interface Said {
  tone?: "bad" | "amber" | "teal" | "good" | undefined;
  text: ReactNode;
  more?: ReactNode;
}

interface Why extends Reasons {
  awaited: string;
  tries: number;
}

function sentence(job: nouns.Job, store: FollowedJob, since: string | null, reasons: Why, now: number): Said {
  switch (job.state) {
    case "running":
      return runs(job, store, since, now);
    case "queued":
      return waits(job, reasons, now);
    case "paused":
      return paused(job, now);
    case "completed":
      return completed(job);
    case "failed":
      return failed(job, reasons);
    case "cancelled":
      return cancelled(job);
  }
}

function runs({ worker, cancel, pause }: nouns.Job, store: FollowedJob, since: string | null, now: number): Said {
  const length = since === null ? "" : ` for ${going(now - Date.parse(since))}`;
  const on = worker === null ? "" : ` on worker ${inert(worker)}`;
  const step = store.steps.findLast(({ state }) => state === "running");
  const doing = store.progress?.sentence ?? step?.sentence ?? step?.name ?? store.latest;
  if (cancel) {
    const by = cancel.by ? ` by ${inert(cancel.by)}` : "";
    return { tone: "amber", text: `Was asked to stop${by}, and is being given a moment to do so` };
  }
  return {
    tone: pause ? "amber" : "teal",
    more: pause && pauseAsked(pause),
    text: (
      <>
        Running<span className="number">{length}</span>
        {on}
        {doing ? <>: {inert(doing)}</> : ""}
      </>
    ),
  };
}

/** A pause does not stop what runs: the job is set aside when its attempt would give it back. */
function pauseAsked({ by, reason }: NonNullable<nouns.Job["pause"]>): string {
  const who = by ? ` by ${inert(by)}` : "";
  const why = reason ? ` (${inert(reason)})` : "";
  return `Asked to pause${who}${why}: this attempt goes on, and the job is set aside when it next waits or would be tried again.`;
}

function waits(job: nouns.Job, reasons: Why, now: number): Said {
  const { waitingFor, runAt, children, failure, attempt, maxAttempts } = job;
  const later = runAt !== null && Date.parse(runAt) > now;
  const left = later ? going(Date.parse(runAt) - now + 999) : "";
  const until = later ? ` until ${nearTime(runAt, now)}` : "";
  const last = failure && attempt > 0 ? `The last attempt ended with: ${inert(sentenceOf(failure))}` : undefined;
  switch (waitingFor) {
    case "time":
      return later
        ? { tone: "amber", text: `Waits for its time: ${nearTime(runAt, now)}, in ${left}`, more: last }
        : couldStart(job, reasons, last);
    case "retry": {
      if (!later) return couldStart(job, reasons, last);
      const tried = `Tried ${attempt} of ${maxAttempts} times; next try in ${left}`;
      return { tone: "amber", text: failure ? `${tried}, because: ${inert(sentenceOf(failure))}` : tried };
    }
    case "key":
      return waitsForKey(job, reasons);
    case "limit": {
      const { limit } = reasons;
      const name = limit ? `limit ${inert(limit.name)}` : "a limit";
      const more = limit?.reason ? inert(limit.reason) : undefined;
      return {
        tone: "amber",
        text: (
          <>
            Waits for {limit ? <Link href="/flow">{name}</Link> : name}
            {until}
          </>
        ),
        more,
      };
    }
    case "children": {
      const ended = children ? children.completed + children.failed + children.cancelled : 0;
      const said = children ? `: ${count(ended)} of ${count(children.total)} have ended` : "";
      return { tone: "amber", text: `Waits for its children${said}`, more: "It holds no worker meanwhile." };
    }
    case "event": {
      const more =
        "Somebody or something has to say it: with Signal above, over HTTP, or in SQL. It holds no worker meanwhile.";
      return {
        tone: "amber",
        text: `Waits for an event${reasons.awaited && ` in step ${inert(reasons.awaited)}`}${until}`,
        more,
      };
    }
    default:
      return couldStart(job, reasons, last);
  }
}

function couldStart(
  { pool, startedAt }: nouns.Job,
  { pool: known, machines }: Reasons,
  last: string | undefined,
): Said {
  const name = inert(pool);
  if (known?.paused) {
    const { by, reason } = known.paused;
    const who = by ? ` by ${inert(by)}` : "";
    const text = (
      <>
        Could {startedAt ? "go on" : "start"}, but its <Link href="/pools">pool {name}</Link> is paused{who}
        {reason && <>: {inert(reason)}</>}
      </>
    );
    return { tone: "amber", text, more: last };
  }
  const kept = known?.machines ? waitsForMachine(known, known.machines, last) : undefined;
  if (kept) return kept;
  const none =
    machines === 0 ? `No worker serves this pool now. Start one: stillwake worker --pool ${name}` : undefined;
  const text = startedAt
    ? `Goes on as soon as a worker of pool ${name} takes it`
    : `Could start now; waits for a worker of pool ${name}`;
  return { tone: "amber", text, more: none ?? last };
}

/** Of a pool whose machines are started when there is work: why there is none for it yet. */
function waitsForMachine(
  pool: nouns.Pool,
  { now: has, max, starting }: NonNullable<nouns.Pool["machines"]>,
  last: string | undefined,
): Said | undefined {
  const held = heldBack(pool);
  const where = <Link href="/pools">pool {inert(pool.name)}</Link>;
  if (held) {
    const again = held.until === null ? "" : ` Tried again at ${clockTime(held.until)}.`;
    const text = (
      <>
        Waits for a machine of {where}. {held.what}: {inert(held.why)}
      </>
    );
    return { tone: held.tone, text, more: again || last };
  }
  if (starting > 0) return { tone: "amber", text: <>Waits for a machine of {where}, which is starting</>, more: last };
  if (has < max) return { tone: "amber", text: <>Could start now; waits for a machine of {where}</>, more: last };
  const text = (
    <>
      Waits for a free machine: {where} has as many as it may, {several(max, "machine")}
    </>
  );
  return { tone: "amber", text, more: last };
}

function waitsForKey({ key }: nouns.Job, { holder }: Reasons): Said {
  const name = inert(key ?? "");
  return {
    tone: "amber",
    text: (
      <>
        Waits for its key {name}:{" "}
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

function paused({ pause, runAt }: nouns.Job, now: number): Said {
  const breaker = typeof pause?.breaker === "string" ? pause.breaker : undefined;
  const until = runAt === null ? "" : ` until ${nearTime(runAt, now)}`;
  const by = breaker ? (
    <>
      {" "}
      by <Link href="/flow">breaker {inert(breaker)}</Link>
    </>
  ) : (
    pause?.by && ` by ${inert(pause.by)}`
  );
  return {
    tone: "amber",
    text: (
      <>
        Paused{by}
        {until}
        {pause?.reason && <>: {inert(pause.reason)}</>}
      </>
    ),
    more: runAt === null ? "It goes on when somebody resumes it." : undefined,
  };
}

function completed({ startedAt, endedAt, missing }: nouns.Job): Said {
  const took = startedAt && endedAt ? ` in ${span(Date.parse(endedAt) - Date.parse(startedAt))}` : "";
  if (missing.length === 0) return { tone: "good", text: `Completed${took}` };
  const parts = `${several(missing.length, "optional part")} ${missing.length === 1 ? "is" : "are"} missing: ${missing.map(inert).join(", ")}`;
  return { tone: "amber", text: `Completed${took}; ${parts}` };
}

function failed({ failure, startedAt }: nouns.Job, { tries }: Why): Said {
  const after = startedAt === null ? " before it began" : tries > 1 ? ` after ${several(tries, "attempt")}` : "";
  const code = codeOf(failure);
  return {
    tone: "bad",
    text: `Failed${after}: ${inert(sentenceOf(failure))}`,
    more: code ? (
      <>
        <code>{inert(code)}</code> {remedyOf(code)}
      </>
    ) : undefined,
  };
}

function cancelled({ cancel, startedAt, endedAt }: nouns.Job): Said {
  const by = cancel?.by ? ` by ${inert(cancel.by)}` : "";
  const after =
    startedAt && endedAt ? ` after ${span(Date.parse(endedAt) - Date.parse(startedAt))}` : " before it began";
  return { text: `Cancelled${by}${after}${cancel?.reason ? `: ${inert(cancel.reason)}` : ""}` };
}

/** In whole seconds, since it is counted up in them. */
function going(ms: number): string {
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : span(ms);
}

/** The time of day alone where it is near. */
function nearTime(at: string, now: number): string {
  return Date.parse(at) - now < 12 * 3_600_000 ? clockTime(at) : dayTime(at);
}
