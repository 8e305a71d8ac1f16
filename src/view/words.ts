// What the view says, in the words of the person who waits. Nothing here touches a page; texts of jobs are put in as they are and made plain where they are shown.
import type { Snapshot } from "./snapshot.ts";
import type { EventTold, Failure, Level, WaitReason } from "./wire.ts";

/** "850 ms", "4.2 s", "1 min 4 s", "2 h 5 min", "3 days 4 h". */
export function span(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const days = Math.floor(seconds / 86_400);
  const parts = [
    [days, days === 1 ? "day" : "days"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ] as const;
  const first = parts.findIndex(([amount]) => amount !== 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount !== 0)
    .map((part) => part.join(" "))
    .join(" ");
}

/** The time of day here: "14:05:09". */
export function clock(moment: string | number): string {
  const date = new Date(moment);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function count(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

/** For the person who waits first. */
function failureSentence(failure: Failure | null): string {
  return failure?.sentence ?? failure?.message ?? "no reason was given";
}

const WAITS: Record<WaitReason, string> = {
  time: "Waiting for its time",
  retry: "Waiting to try again",
  key: "Waiting for an earlier job of the same kind to finish",
  limit: "Waiting for a limit to allow more",
  children: "Waiting for the parts it was split into",
  event: "Waiting for an answer from outside",
  machine: "Waiting for a machine to start",
};

/** What happens now, in one sentence. */
export function headline(snapshot: Snapshot, now = Date.now()): string {
  const { job, end } = snapshot;
  const refused = refusal(snapshot);
  // What was true when it was told may be so no longer; only an end stays.
  if (refused !== null && !job?.endedAt) return refused;
  if (end && end.state === null) return "This job is no longer kept.";
  if (!job) return "Looking for the job…";
  const tries = job.attempt > 1 ? ` (attempt ${job.attempt} of ${job.maxAttempts})` : "";
  const of = doing(snapshot);
  switch (job.state) {
    case "running":
      return `Working${of && `: ${of}`}${tries || (of ? "" : "…")}`;
    case "queued": {
      const until = job.runAt && Date.parse(job.runAt) > now ? `, until ${clock(job.runAt)}` : "";
      const why = job.waitingFor ? WAITS[job.waitingFor] : job.startedAt ? "Waiting to go on" : "Waiting for a worker";
      return `${why}${until}.`;
    }
    case "paused": {
      const until = job.runAt && Date.parse(job.runAt) > now ? `It goes on at ${clock(job.runAt)}.` : "";
      return `Paused. ${until || "It goes on when somebody resumes it."}`;
    }
    default:
      return `${ending(snapshot)}.`.replace(/([.!?…])\.$/, "$1");
  }
}

/** Why nothing more is told, while there would be more to tell. */
export function refusal({ connection, problem, end }: Snapshot): string | null {
  if (connection !== "refused" || end) return null;
  return problem ?? "This job cannot be shown.";
}

/** How it ended: "Completed in 1 min 4 s", "Failed: …", with what is missing. Why it failed is left out where that was `said` just before. */
export function ending({ job, end }: Pick<Snapshot, "job" | "end">, said?: string): string {
  if (!job) return "";
  const { startedAt, endedAt, missing } = job;
  const took = startedAt && endedAt ? Math.max(0, Date.parse(endedAt) - Date.parse(startedAt)) : undefined;
  const after = took === undefined ? "" : span(took);
  if (job.state === "completed") {
    return `Completed${after && ` in ${after}`}${missing.length > 0 ? `, without ${missing.join(", ")}` : ""}`;
  }
  if (job.state === "failed") {
    const why = end ? failureSentence(end.failure) : "";
    if (why !== "" && why === said) return `Failed${after && ` after ${after}`}`;
    // Some failures begin with the word themselves, or with what has failed.
    return /^(\S+ )?failed\b/i.test(why) || why === "" ? why || "Failed" : `Failed: ${why}`;
  }
  return `Cancelled${after && ` after ${after}`}`;
}

/** What a running job is at: its own sentence, else what it said last of the step it is in. */
function doing({ progress, steps, latest }: Snapshot): string {
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
  note?: string;
  spawn?: string;
  children?: number;
  from?: number | string;
  to?: number | string;
}

/** A change of state as a line among the lines. To those outside the house its data is not told. */
export function eventSentence({ kind, data }: Pick<EventTold, "kind" | "data">): { level: Level; message: string } {
  const told = (typeof data === "object" && data !== null ? data : {}) as EventData;
  const by = told.by ? ` by ${told.by}` : "";
  const why = told.reason ? `: ${told.reason}` : "";
  const failure = told.sentence ?? told.message;
  switch (kind) {
    case "lost":
      return {
        level: "warning",
        // What is known of it says who was lost; a runner is one process of a worker that lives on.
        message: `${failure ?? "Worker lost"}. The job goes on where it was.`,
      };
    case "failed":
      return { level: "error", message: `This attempt failed${failure ? `: ${failure}` : ""}. It is tried again.` };
    case "slept":
      return { level: "info", message: "The job sleeps; nothing is held for it meanwhile." };
    case "released":
    case "aborted:shutdown":
      return { level: "info", message: "Handed back by its worker, which is leaving. The job goes on elsewhere." };
    case "handed_on":
      return {
        level: "info",
        message: "Handed on: the time its worker had is over. The job goes on from what was kept.",
      };
    case "paused":
      return {
        level: "warning",
        message: `Paused${by}${why}${told.resume_at ? `, until ${clock(told.resume_at)}` : ""}`,
      };
    case "pause_requested":
      return { level: "info", message: `Asked to pause${by}${why}` };
    case "resumed":
      return { level: "info", message: `Resumed${by}` };
    case "retried":
      return {
        level: "info",
        message: `Retried${by}${told.from_start ? ", from the start" : ", from the last step that was kept"}`,
      };
    case "restarted":
      return {
        level: "warning",
        message: "Begun anew: the pipeline has a new version that cannot go on from what was kept.",
      };
    case "adopted":
      return { level: "info", message: "Goes on under a new version of the pipeline." };
    case "cancel_requested":
      return { level: "warning", message: `Asked to stop${by}${why}` };
    case "signalled":
      return { level: "info", message: `Told${told.event ? ` of ${told.event}` : " something from outside"}${by}` };
    case "moved":
      return {
        level: "warning",
        message: `It ran out of memory and goes on on a larger machine${told.to ? ` (pool ${told.to})` : ""}.`,
      };
    case "spawned":
      return {
        level: "info",
        message: `Split into ${told.children === undefined ? "parts" : plural(told.children, "job")}`,
      };
    case "ghost":
      return { level: "info", message: told.note ?? "There was nothing left to do." };
    default:
      // A worker may give a reason of its own for handing a job back.
      return { level: "info", message: `${kind.replaceAll(/[_:]+/g, " ")}${by}${why}` };
  }
}

/** In a word or two, for the corner of a panel. */
export function connectionWords({ connection, job, end }: Snapshot): string {
  if (connection === "live") return job?.endedAt && !end ? "Loading…" : "Live";
  if (connection === "over") return "Ended";
  if (connection === "refused") return "Not connected";
  return connection === "connecting" ? "Connecting…" : "Reconnecting…";
}

/** What stands where lines would be. */
export function emptyWords(snapshot: Snapshot): string {
  const { connection, job } = snapshot;
  // The banner says why.
  if (refusal(snapshot) !== null) return "No lines can be shown.";
  if (!job)
    return connection === "reconnecting" ? "The server cannot be reached. Trying again…" : "Looking for the job…";
  if (job.state === "queued" && !job.startedAt) {
    return "Waiting for a worker. The first line comes when one has taken the job.";
  }
  if (job.state === "paused") return "Paused before it said anything.";
  if (job.endedAt) return "This job has written no lines.";
  return "It has begun, and has not said anything yet.";
}

/** "412 of 1,000 · 38 a second · 16 s left". The time left runs on between two messages. */
export function progressWords({ progress }: Snapshot, now = Date.now()): string {
  if (!progress) return "";
  const { fraction, done, total, perSecond, leftMs, toldAt } = progress;
  const parts: string[] = [];
  if (done !== null && total !== null) parts.push(`${count(done)} of ${count(total)}`);
  else if (fraction !== null) parts.push(`${Math.floor(fraction * 100)} %`);
  if (perSecond !== null) parts.push(`${perSecond >= 10 ? count(Math.round(perSecond)) : count(perSecond)} a second`);
  if (leftMs !== null) {
    const left = leftMs - (now - toldAt);
    parts.push(`${span(Math.max(1000, Math.ceil(left / 1000) * 1000)).replace(".0 s", " s")} left`);
  }
  return parts.join(" · ");
}
