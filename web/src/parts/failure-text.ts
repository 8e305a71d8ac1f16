// A failure as text: its sentence, its code, and its remedy if there is one.
import type { api } from "../api/resources.ts";

export type Failure = NonNullable<api.Job["failure"]>;

/** Codes of failures that wrap the failure that caused them. */
const WRAPPERS = new Set(["RETRIES_EXHAUSTED", "POISONED"]);

const remedies: Record<string, string> = {
  RUNNER_OOM: "Give its runner more memory, or process smaller pieces in the step.",
  RUNNER_KILLED: "The system killed its runner, often because of a lack of memory. Check the machine.",
  RUNNER_EXITED: "Its code ended the process. Look for process.exit, and check the last log lines.",
  LEASE_EXPIRED: "The machine was lost, disconnected or frozen. Check whether it is still up.",
  TIMEOUT: "The attempt exceeded the pipeline's timeout. Raise the timeout, or split the work into steps.",
  SILENT: "The attempt exceeded the pipeline's silence limit. Log or report progress more often, or raise silence.",
  STEP_TIMEOUT: "The step exceeded its timeout.",
  STEP_SILENT: "The step exceeded its silence limit.",
  UNCAUGHT: "An uncaught error. Await every promise inside the pipeline.",
  EXPIRED: "No worker claimed it before it expired. Check that a worker serves its pool, or let it expire later.",
  POISONED: "Every attempt killed its runner, so it is not retried. Fix the cause, then retry it by hand.",
};

export const failureRemedy = (code: string): string | undefined => remedies[code];

/** The failure and its causes, outermost first. */
export function failureChain(failure: Failure | null): Failure[] {
  const chain: Failure[] = [];
  for (let cause: unknown = failure; typeof cause === "object" && cause !== null && chain.length < 8; ) {
    chain.push(cause as Failure);
    cause = (cause as Failure).cause;
  }
  return chain;
}

/** The first sentence in the chain, else the message of the first failure that is not a wrapper. */
export function failureSentence(failure: Failure | null): string {
  const chain = failureChain(failure);
  const sentence = chain.find((cause) => cause.sentence)?.sentence;
  const first = chain.find(({ code }) => !code || !WRAPPERS.has(code)) ?? chain[0];
  return sentence ?? first?.message ?? first?.name ?? "no reason given";
}

/** The code of the first failure that is not a wrapper, or the name of its error. */
export function failureCode(failure: Failure | null): string | undefined {
  const chain = failureChain(failure);
  const inner = chain.find(({ code }) => !code || !WRAPPERS.has(code));
  return inner ? (inner.code ?? (inner.name === "Error" ? undefined : inner.name)) : chain[0]?.code;
}
