// A job that is to be enqueued again, on its way from its page to the form. It travels in the state of the history, not in the address: an input may hold what
// should be in no log.
import type { nouns } from "../api/nouns.ts";

export interface Again {
  pipeline: string;
  input: unknown;
  key: string | null;
  tenant: string | null;
  priority: number;
}

/** For `navigate(path, { state })`. */
export function stateOf({ pipeline, input, key, tenant, priority }: nouns.Job): { again: Again } {
  return { again: { pipeline, input, key, tenant, priority } };
}

/** What the form of this pipeline was opened with, if it was opened so. */
export function againFor(pipeline: string): Again | undefined {
  const { again } = ((history.state as { again?: Again } | null) ?? {}) as { again?: Again };
  return again?.pipeline === pipeline ? again : undefined;
}
