// What came of cancelling or retrying many jobs, in a sentence that counts each of them once.

export interface Answered {
  id: string;
  /** As the list had it; undefined where it did not know. */
  before?: string | undefined;
  state?: string;
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
