// What somebody outside the house is told of a failure: what went wrong, not where in the code and on which machine.
import type { Failure } from "../../db/calls/jobs.ts";

export function failureForGuest(failure: Failure | null): Failure | null {
  if (!failure) return null;
  const { stack: _stack, cause: _cause, ...told } = failure;
  const message = told.message?.replaceAll(/\bWorker \S+ has not been heard of/g, "The worker has not been heard of");
  return { ...told, ...(message !== undefined && { message }) };
}
