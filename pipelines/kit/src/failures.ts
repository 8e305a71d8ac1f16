// Errors with a sentence for people, and how a failed job logs them: once where the error happened, and once as the
// failure of the whole job.
import { Fatal, StillwakeError } from "stillwake";
import type { JobContext, StepHandle } from "stillwake/worker";

export interface UserErrorOptions {
  code: string;
  /** Another attempt would fail in the same way. */
  fatal?: boolean;
  cause?: unknown;
}

/** Its message is shown to people as it is. Messages of all other errors are for operators. */
export class UserError extends Error {
  override readonly name = "UserError";
  readonly code: string;

  constructor(message: string, { code, cause }: UserErrorOptions) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** Returns a Fatal, which fails the job at once, or a UserError, which is retried by the job's policy. */
export function userError(message: string, options: UserErrorOptions): UserError | Fatal {
  const { code, fatal, cause } = options;
  return fatal ? new Fatal(message, { code, ...(cause !== undefined && { cause }) }) : new UserError(message, options);
}

const logged = new WeakSet<object>();
const finalSentences = new WeakMap<object, string>();

/** Wraps the work of a critical step: its error is logged as a line of the step. */
export async function logStepFailure<T>(step: StepHandle, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!step.signal.aborted && isObject(error)) {
      step.log.error(messageOf(error), logDataOf(error));
      logged.add(error);
    }
    throw error;
  }
}

/** Wraps a whole job. `noun`: what has failed, such as "Extraction". */
export async function logJobFailure<T>(job: JobContext, noun: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isObject(error) || job.signal.aborted) throw error;
    const last = isFinal(error) || job.attempt >= job.maxAttempts;
    if (!logged.has(error) && !last) job.log.error(messageOf(error), logDataOf(error));
    finalSentences.set(
      error,
      last
        ? `${noun} failed: ${messageOf(error)}`
        : `Attempt ${job.attempt} of ${job.maxAttempts} failed - it will be retried`,
    );
    throw error;
  }
}

/** For implement(): the sentence of an error. */
export function explain(error: unknown): string | undefined {
  if (!isObject(error)) return undefined;
  return (
    finalSentences.get(error) ?? (error instanceof UserError || error instanceof Fatal ? error.message : undefined)
  );
}

/** The runtime's own errors that cannot succeed on retry fail the job too, such as an artifact without a store. */
function isFinal(error: object): boolean {
  return error instanceof StillwakeError && !error.retryable;
}

function messageOf(error: object): string {
  const { message } = error as { message?: unknown };
  return typeof message === "string" && message !== "" ? message : "unexpected error";
}

function logDataOf(error: object): Record<string, unknown> {
  const { code, stack } = error as { code?: unknown; stack?: unknown };
  return { ...(typeof code === "string" && { code }), ...(typeof stack === "string" && { stack }) };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
