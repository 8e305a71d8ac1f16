// How far a job is: by its own word, or, where it waits for children and has said nothing, by how many of them have ended. Pure.
import type { Row } from "./slim.ts";

interface Share {
  percent: number;
  /** Counted things, where it counts. */
  of: { done: number; total: number } | undefined;
}

/** Undefined where nothing is known, or where it is over and no longer matters. */
export function shareOf(job: Pick<Row, "state" | "waitingFor" | "progress" | "children">): Share | undefined {
  const { state, waitingFor, progress, children } = job;
  if (state !== "queued" && state !== "running" && state !== "paused") return undefined;
  const own = ownShare(progress);
  const isParent = state === "queued" && waitingFor === "children";
  if (!isParent || !children || children.total === 0 || (own && own.percent > 0)) return own;
  const done = children.completed + children.failed + children.cancelled;
  return { percent: percentOf(done / children.total), of: { done, total: children.total } };
}

function ownShare(progress: Row["progress"]): Share | undefined {
  if (progress === null) return undefined;
  const { fraction, done, total } = progress;
  const of = done !== undefined && total ? { done, total } : undefined;
  const part = fraction ?? (of && of.done / of.total);
  return part === undefined ? undefined : { percent: percentOf(part), of };
}

function percentOf(part: number): number {
  return Math.round(Math.min(1, Math.max(0, part)) * 100);
}
