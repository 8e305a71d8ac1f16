// The data of a row in the job list: the job without its input and output, and its progress in percent.
import type { api } from "../../api/resources.ts";

/** Without input and output: a list can hold a hundred thousand jobs. */
export type JobRowData = Omit<api.Job, "input" | "output">;

/** The same job returns the same object, so that a row renders only when its job has changed. */
const rowDataByJob = new WeakMap<api.Job, JobRowData>();

export function toRowData(job: api.Job): JobRowData {
  const known = rowDataByJob.get(job);
  if (known) return known;
  const { input: _input, output: _output, ...row } = job;
  rowDataByJob.set(job, row);
  return row;
}

interface Progress {
  percent: number;
  /** If it is counted in items. */
  items: { done: number; total: number } | undefined;
}

/**
 * The reported progress; for a job that waits for children and has reported none, the share of ended children.
 * Undefined if it is not known, or if the job has ended.
 */
export function progressOf(
  job: Pick<JobRowData, "state" | "waitingFor" | "progress" | "children">,
): Progress | undefined {
  const { state, waitingFor, progress, children } = job;
  if (state !== "queued" && state !== "running" && state !== "paused") return undefined;
  const reported = reportedProgress(progress);
  const waitsForChildren = state === "queued" && waitingFor === "children";
  if (!waitsForChildren || !children || children.total === 0 || (reported && reported.percent > 0)) return reported;
  const done = children.completed + children.failed + children.cancelled;
  return { percent: toPercent(done / children.total), items: { done, total: children.total } };
}

function reportedProgress(progress: JobRowData["progress"]): Progress | undefined {
  if (progress === null) return undefined;
  const { fraction, done, total } = progress;
  const items = done !== undefined && total ? { done, total } : undefined;
  const part = fraction ?? (items && items.done / items.total);
  return part === undefined ? undefined : { percent: toPercent(part), items };
}

function toPercent(part: number): number {
  return Math.round(Math.min(1, Math.max(0, part)) * 100);
}
