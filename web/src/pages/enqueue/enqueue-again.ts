// Passes a job from its page to the form that enqueues a copy of it. It is in the state of the history entry and not in
// the URL: an input may contain what must not be in a log.
import type { api } from "../../api/resources.ts";

export interface JobCopy {
  pipeline: string;
  input: unknown;
  key: string | null;
  tenant: string | null;
  priority: number;
}

/** For `navigate(path, { state })`. */
export function enqueueAgainState({ pipeline, input, key, tenant, priority }: api.Job): { jobCopy: JobCopy } {
  return { jobCopy: { pipeline, input, key, tenant, priority } };
}

/** The job that the form of this pipeline was opened with, if any. */
export function readJobCopy(pipeline: string): JobCopy | undefined {
  const { jobCopy } = (history.state ?? {}) as { jobCopy?: JobCopy };
  return jobCopy?.pipeline === pipeline ? jobCopy : undefined;
}
