// A failure in words: the sentence for people, the code of what it was, and what to do about it where the product knows.
import type { nouns } from "../api/nouns.ts";

export type Failure = NonNullable<nouns.Job["failure"]>;

/** Codes that only say that a job ended; what it was lies behind. */
const WRAPS = new Set(["RETRIES_EXHAUSTED", "POISONED"]);

/** What to do, where the product knows. */
const remedies: Record<string, string> = {
  RUNNER_OOM: "Give its runner more memory, or let the step work in smaller pieces.",
  RUNNER_KILLED: "Something outside killed its runner, often the system for want of memory: look at the machine.",
  RUNNER_EXITED: "Its code ended the process: look for process.exit, and at the lines before.",
  LEASE_EXPIRED: "The machine was lost, cut off or frozen: look whether it still lives.",
  TIMEOUT: "An attempt took longer than the pipeline allows: raise its timeout, or split it into steps.",
  SILENT: "It said nothing for longer than the pipeline allows: let it log or tell its progress, or raise silence.",
  STEP_TIMEOUT: "The step took longer than its timeout.",
  STEP_SILENT: "The step said nothing for longer than it may.",
  UNCAUGHT: "An error that nobody caught: await every promise within the pipeline.",
  EXPIRED: "No worker took it in time: see whether one serves its pool, or give it more time.",
  POISONED: "It took its runner with it each time, so it is not tried again by itself. Mend the cause, then retry it.",
};

export const remedyOf = (code: string): string | undefined => remedies[code];

/** The reasons of a failure, the outermost first. */
export function chainOf(failure: Failure | null): Failure[] {
  const chain: Failure[] = [];
  for (let one: unknown = failure; typeof one === "object" && one !== null && chain.length < 8; ) {
    chain.push(one as Failure);
    one = (one as Failure).cause;
  }
  return chain;
}

/** For people. What wraps a reason without a sentence of its own is passed over. */
export function sentenceOf(failure: Failure | null): string {
  const chain = chainOf(failure);
  const said = chain.find(({ sentence }) => sentence)?.sentence;
  const first = chain.find(({ code }) => !code || !WRAPS.has(code)) ?? chain[0];
  return said ?? first?.message ?? first?.name ?? "no reason was given";
}

/** The code of what it was; the name of the error where it has none. */
export function codeOf(failure: Failure | null): string | undefined {
  const chain = chainOf(failure);
  const inner = chain.find(({ code }) => !code || !WRAPS.has(code));
  return inner ? (inner.code ?? (inner.name === "Error" ? undefined : inner.name)) : chain[0]?.code;
}
