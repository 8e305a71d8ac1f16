// Which selected jobs can be cancelled or retried, and a summary of the result that counts each job once.
import { hasEnded, type JobState } from "../../api/resources.ts";
import type { JobRowData } from "./row-data.ts";

export type Verb = "cancel" | "retry";

/** Ended jobs cannot be cancelled; only failed and cancelled jobs can be retried. */
export function appliesTo(verb: Verb, state: JobState): boolean {
  return verb === "retry" ? state === "failed" || state === "cancelled" : !hasEnded(state);
}

/** The row in its new state, until the job is refetched. */
export function withState(row: JobRowData, state: JobState, at: string): JobRowData {
  if (row.state === state) return row;
  return { ...row, state, waitingFor: null, pause: null, failure: null, endedAt: hasEnded(state) ? at : null };
}

export interface BulkResult {
  id: string;
  /** The state before, if the list has the job. */
  before?: string | undefined;
  state?: JobState;
  problem?: { code: string; detail: string };
}

export function summarizeCancel(results: readonly BulkResult[]): string {
  return summarize(results, ({ before, state, problem }) => {
    if (problem) return problemText(problem);
    if (state === "cancelled" && before !== "cancelled") return "cancelled";
    if (state === "running") return "stopping";
    return "had already ended";
  });
}

export function summarizeRetry(results: readonly BulkResult[]): string {
  return summarize(results, ({ problem }) => (problem ? problemText(problem) : "retried"));
}

function problemText({ code, detail }: { code: string; detail: string }): string {
  if (code === "JOB_NOT_FOUND") return "not found";
  // Without the id the same problem has the same text for all jobs.
  const text = detail.replace(/^Job [0-9a-f-]{36} /, "");
  if (text === "is completed") return "unchanged because completed";
  return text === "has not ended" ? "unchanged because not ended" : text;
}

function summarize(results: readonly BulkResult[], textOf: (result: BulkResult) => string): string {
  const counts = new Map<string, number>();
  for (const result of results) counts.set(textOf(result), (counts.get(textOf(result)) ?? 0) + 1);
  return [...counts].map(([text, count]) => `${count} ${text}`).join(", ");
}
