// Which of many jobs can be cancelled or retried, and what came of it, in a sentence that counts each of them once.
import type { JobState } from "../../api/nouns.ts";
import type { Row } from "./slim.ts";

export type Verb = "cancel" | "retry";

/** What has ended is not cancelled, and only what ended badly is retried. */
export function appliesTo(verb: Verb, state: JobState): boolean {
  const isBad = state === "failed" || state === "cancelled";
  return verb === "retry" ? isBad : !isBad && state !== "completed";
}

/** The row of a job whose new state was answered, before more is known of it. */
export function changed(row: Row, state: JobState, at: string): Row {
  if (row.state === state) return row;
  const isEnd = state === "completed" || state === "failed" || state === "cancelled";
  return { ...row, state, waitingFor: null, pause: null, failure: null, endedAt: isEnd ? at : null };
}

export interface Answered {
  id: string;
  /** As the list had it; undefined where it did not know. */
  before?: string | undefined;
  state?: JobState;
  problem?: { code: string; detail: string };
}

export function cancelledWords(answered: readonly Answered[]): string {
  return sentence(answered, ({ before, state, problem }) => {
    if (problem) return refusal(problem);
    if (state === "cancelled" && before !== "cancelled") return "cancelled";
    if (state === "running") return "asked to stop";
    return "had already ended";
  });
}

export function retriedWords(answered: readonly Answered[]): string {
  return sentence(answered, ({ problem }) => (problem ? refusal(problem) : "retried"));
}

function refusal({ code, detail }: { code: string; detail: string }): string {
  if (code === "JOB_NOT_FOUND") return "no longer there";
  // Without its id the same reason is the same for all.
  const why = detail.replace(/^Job [0-9a-f-]{36} /, "");
  return why === "is completed" ? "left, as completed" : why === "has not ended" ? "left, as not ended" : why;
}

function sentence(answered: readonly Answered[], wordOf: (one: Answered) => string): string {
  const counts = new Map<string, number>();
  for (const one of answered) counts.set(wordOf(one), (counts.get(wordOf(one)) ?? 0) + 1);
  return [...counts].map(([word, count]) => `${count} ${word}`).join(", ");
}
