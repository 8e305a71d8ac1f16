// The texts of the live view for the person who waits for a job. Texts of the job are inserted as they are; the caller
// escapes the result where it is shown.
import { formatCount, formatDueTime, formatDuration, formatElapsed, formatPlural, formatTime } from "../text/format.ts";
import { escapeText } from "./safe-text.ts";
import type { Line, Snapshot } from "./snapshot.ts";
import type { Failure, FeedEvent, Level, WaitReason } from "./wire.ts";

const WAIT_TEXTS: Record<WaitReason, string> = {
  time: "Waiting for its start time",
  retry: "Waiting for the next attempt",
  key: "Waiting for an earlier job with the same key to finish",
  limit: "Waiting for a rate limit",
  children: "Waiting for its child jobs",
  event: "Waiting for an external event",
  machine: "Waiting for a machine to start",
};

/** The current state of the job, in one sentence. */
export function headline(snapshot: Snapshot, now = Date.now()): string {
  const { job, end } = snapshot;
  const refusal = formatRefusal(snapshot);
  // While the stream is refused the last state may be outdated; only an outcome is final.
  if (refusal !== null && !job?.endedAt) return refusal;
  if (end && end.state === null) return "This job was pruned.";
  if (!job) return "Loading the job…";
  const attempt = job.attempt > 1 ? ` (attempt ${job.attempt} of ${job.maxAttempts})` : "";
  const activity = currentActivity(snapshot);
  const isLater = job.runAt !== null && Date.parse(job.runAt) > now;
  switch (job.state) {
    case "running":
      return `Running${activity && `: ${activity}`}${attempt || (activity ? "" : "…")}`;
    case "queued": {
      const reason = job.awaitedEvent
        ? `Waiting for the event ${job.awaitedEvent}`
        : job.waitingFor
          ? WAIT_TEXTS[job.waitingFor]
          : job.startedAt
            ? "Waiting to resume"
            : "Waiting for a worker";
      return `${reason}${isLater ? `, until ${formatDueTime(job.runAt!, now)}` : ""}.`;
    }
    case "paused":
      return `Paused. ${isLater ? `Resumes at ${formatDueTime(job.runAt!, now)}.` : "Waiting to be resumed by an operator."}`;
    default:
      return `${formatOutcome(snapshot)}.`.replace(/([.!?…])\.$/, "$1");
  }
}

/** Why the job cannot be followed, unless its outcome is known. */
export function formatRefusal({ connection, problem, end }: Snapshot): string | null {
  if (connection !== "refused" || end) return null;
  return problem ?? "This job cannot be shown.";
}

/** "Completed in 1 min 4 s", "Failed: …", with the missing steps. The reason of the failure is left out if it equals `previousLine`. */
export function formatOutcome({ job, end }: Pick<Snapshot, "job" | "end">, previousLine?: string): string {
  if (!job) return "";
  const { startedAt, endedAt, missing } = job;
  const elapsed = formatElapsed(startedAt, endedAt);
  if (job.state === "completed") {
    return `Completed${elapsed && ` in ${elapsed}`}${missing.length > 0 ? `, without ${missing.join(", ")}` : ""}`;
  }
  if (job.state === "failed") {
    const reason = end ? formatFailure(end.failure) : "";
    if (reason !== "" && reason === previousLine) return `Failed${elapsed && ` after ${elapsed}`}`;
    // Some reasons already start with "Failed", or with what has failed.
    return /^(\S+ )?failed\b/i.test(reason) || reason === "" ? reason || "Failed" : `Failed: ${reason}`;
  }
  return `Cancelled${elapsed && ` after ${elapsed}`}`;
}

function formatFailure(failure: Failure | null): string {
  return failure?.sentence ?? failure?.message ?? "no reason given";
}

/** The sentence of its progress, or else the last line of its current step. */
function currentActivity({ progress, steps, latest }: Snapshot): string {
  if (progress?.sentence) return progress.sentence;
  const step = steps.findLast(({ state }) => state === "running");
  return step?.sentence ?? step?.name ?? latest ?? "";
}

interface EventData {
  by?: string;
  reason?: string;
  resume_at?: string;
  from_start?: boolean;
  sentence?: string;
  message?: string;
  event?: string;
  waiting_for?: string;
  awaits?: string;
  note?: string;
  children?: number;
  to?: number | string;
}

/** A state change as a line of the log. External callers (read tokens) receive no data. */
export function formatEvent({ kind, data }: Pick<FeedEvent, "kind" | "data">): { level: Level; message: string } {
  const details = (typeof data === "object" && data !== null ? data : {}) as EventData;
  const by = details.by ? ` by ${details.by}` : "";
  const reason = details.reason ? `: ${details.reason}` : "";
  const failure = details.sentence ?? details.message;
  switch (kind) {
    case "lost":
      return {
        level: "warning",
        // The failure names what was lost; a runner is one process of a worker that keeps running.
        message: `${failure ?? "Worker lost"}. The job resumes from its last checkpoint.`,
      };
    case "failed":
      return { level: "error", message: `This attempt failed${failure ? `: ${failure}` : ""}. The job is retried.` };
    case "slept": {
      const waits =
        details.waiting_for === "event"
          ? `for the event ${details.awaits} and`
          : details.waiting_for === "children"
            ? "for its child jobs and"
            : "and";
      return { level: "info", message: `The job waits ${waits} occupies no worker until it resumes.` };
    }
    case "released":
    case "aborted:shutdown":
      return { level: "info", message: "Released: its worker is shutting down. The job resumes on another worker." };
    case "released:time":
      return {
        level: "info",
        message: "Released: its worker has reached its time limit. The job resumes from its last checkpoint.",
      };
    case "paused":
      return {
        level: "warning",
        message: `Paused${by}${reason}${details.resume_at ? `, until ${formatTime(details.resume_at)}` : ""}`,
      };
    case "pause_requested":
      return { level: "info", message: `Pause requested${by}${reason}` };
    case "resumed":
      return { level: "info", message: `Resumed${by}` };
    case "retried":
      return {
        level: "info",
        message: `Retried${by}, from the ${details.from_start ? "start" : "last checkpoint"}`,
      };
    case "restarted":
      return {
        level: "warning",
        message: "Restarted: the new version of the pipeline cannot use the existing checkpoints.",
      };
    case "adopted":
      return { level: "info", message: "Resumed with a new version of the pipeline." };
    case "cancel_requested":
      return { level: "warning", message: `Cancel requested${by}${reason}` };
    case "signalled":
      return {
        level: "info",
        message: `Received ${details.event ? `event ${details.event}` : "an external event"}${by}`,
      };
    case "moved":
      return {
        level: "warning",
        message: `Out of memory. The job resumes on a larger machine${details.to ? ` (pool ${details.to})` : ""}.`,
      };
    case "spawned":
      return {
        level: "info",
        message: `Spawned ${details.children === undefined ? "child jobs" : formatPlural(details.children, "child job")}`,
      };
    case "completed_by_progress":
      return { level: "info", message: details.note ?? "There was nothing left to do." };
    default:
      // A worker may release a job with its own reason.
      return { level: "info", message: `${kind.replaceAll(/[_:]+/g, " ")}${by}${reason}` };
  }
}

/** The state of the connection, for the toolbar. */
export function formatConnection({ connection, job, end }: Snapshot): string {
  if (connection === "live") return job?.endedAt && !end ? "Loading…" : "Live";
  if (connection === "over") return "Ended";
  if (connection === "refused") return "Not connected";
  return connection === "connecting" ? "Connecting…" : "Reconnecting…";
}

/** The text in place of the lines while there are none. */
export function formatEmptyLog(snapshot: Snapshot): string {
  const { connection, job } = snapshot;
  // The banner shows the reason.
  if (formatRefusal(snapshot) !== null) return "No lines can be shown.";
  if (!job) return connection === "reconnecting" ? "The server cannot be reached. Retrying…" : "Loading the job…";
  if (job.state === "queued" && !job.startedAt) return "Waiting for a worker. Lines appear when the job starts.";
  if (job.state === "paused") return "Paused before the first line.";
  if (job.endedAt) return "This job wrote no lines.";
  return "Running. No lines yet.";
}

/** "412 of 1,000 · 38 per second · 16 s left". The remaining time counts down between two updates. */
export function formatProgress({ progress }: Snapshot, now = Date.now()): string {
  if (!progress) return "";
  const { fraction, done, total, perSecond, leftMs, receivedAt } = progress;
  const parts: string[] = [];
  if (done !== null && total !== null) parts.push(`${formatCount(done)} of ${formatCount(total)}`);
  else if (fraction !== null) parts.push(`${Math.floor(fraction * 100)} %`);
  if (perSecond !== null) {
    parts.push(`${perSecond >= 10 ? formatCount(Math.round(perSecond)) : formatCount(perSecond)} per second`);
  }
  if (leftMs !== null) {
    const left = leftMs - (now - receivedAt);
    parts.push(`${formatDuration(Math.max(1000, Math.ceil(left / 1000) * 1000)).replace(".0 s", " s")} left`);
  }
  return parts.join(" · ");
}

/**
 * Log lines for copying and downloading: "14:05:09  warning  [cloning] message (4.2 s)". Escaped, because copied text may
 * be pasted into a terminal. Continuation lines are indented: a message cannot forge a line.
 */
export function formatLines(lines: readonly Line[], formatAt: (at: string) => string = formatTime): string {
  return lines.map((line) => `${formatLine(line, formatAt)}\n`).join("");
}

function formatLine({ at, level, step, message, tookMs }: Line, formatAt: (at: string) => string): string {
  const time = at === null ? "" : formatAt(at);
  const head = `${time.padEnd(8)}  ${level.padEnd(7)}  ${step === null ? "" : `[${escapeText(step).replaceAll("\n", " ")}] `}`;
  const took = tookMs === null ? "" : ` (${formatDuration(tookMs)})`;
  return `${head}${escapeText(message).replaceAll("\n", `\n${" ".repeat(time.length + 11)}`)}${took}`;
}
