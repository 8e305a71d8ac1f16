// How a failure is said: once in red where it happened, in the words of the one who threw it, and once at the end as what it means for the whole job.
import { Fatal, StillwakeError } from "stillwake";
import type { JobContext, StepHandle } from "stillwake/worker";
import { Told } from "./user-error.ts";

/** What has been said of an error already, and the last line it is to have. */
const said = new WeakSet<object>();
const lastWords = new WeakMap<object, string>();

/** Around the work of a critical step: the line belongs to the step. */
export async function sayingIn<T>(step: StepHandle, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!step.signal.aborted && isObject(error)) {
      step.log.error(words(error), dataOf(error));
      said.add(error);
    }
    throw error;
  }
}

/** Around the whole job. `noun`: what has failed when it has, such as "Extraction". */
export async function saying<T>(job: JobContext, noun: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isObject(error) || job.signal.aborted) throw error;
    const last = endsIt(error) || job.attempt >= job.maxAttempts;
    if (!said.has(error) && !last) job.log.error(words(error), dataOf(error));
    lastWords.set(
      error,
      last
        ? `${noun} failed: ${words(error)}`
        : `Attempt ${job.attempt} of ${job.maxAttempts} failed - it is tried again`,
    );
    throw error;
  }
}

/** For implement(): the sentence of an error. */
export function explain(error: unknown): string | undefined {
  if (!isObject(error)) return undefined;
  return lastWords.get(error) ?? (error instanceof Told || error instanceof Fatal ? error.message : undefined);
}

/** As the runtime judges it: one of its own that cannot succeed by being repeated ends the job as well, such as an artifact without a store. */
function endsIt(error: object): boolean {
  return error instanceof StillwakeError && !error.retryable;
}

function words(error: object): string {
  const { message } = error as { message?: unknown };
  return typeof message === "string" && message !== "" ? message : "something unexpected went wrong";
}

function dataOf(error: object): Record<string, unknown> {
  const { code, stack } = error as { code?: unknown; stack?: unknown };
  return { ...(typeof code === "string" && { code }), ...(typeof stack === "string" && { stack }) };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
