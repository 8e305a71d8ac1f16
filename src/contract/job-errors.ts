// Errors that pipeline code throws to decide what happens to its job, and the one of waitFor that it catches. Any other error is a
// failure, retried by policy.
import { StillwakeError } from "../errors.ts";
import type { Duration } from "../time.ts";

export interface ThrowOptions {
  /** For programs and for the pipeline's table of failures. */
  code?: string;
  cause?: unknown;
}

/** Fail the job without retry, even if attempts remain. */
export class Fatal extends StillwakeError {
  constructor(message: string, options: ThrowOptions = {}) {
    super(options.code ?? "FATAL", message, { cause: options.cause });
  }
}

/** Retry after `in`, or after the pipeline's back-off. Counts as a failed attempt. */
export class Retry extends StillwakeError {
  readonly in: Duration | undefined;

  constructor(message: string, options: ThrowOptions & { in?: Duration } = {}) {
    super(options.code ?? "RETRY", message, { cause: options.cause, retryable: true });
    this.in = options.in;
  }
}

/** Requeue the job until the given time. It occupies no slot, and no attempt is counted. */
export class RateLimited extends StillwakeError {
  readonly until: Date | Duration;

  constructor(until: Date | Duration, options: ThrowOptions & { message?: string } = {}) {
    super(options.code ?? "RATE_LIMITED", options.message ?? "Rate limit reached", {
      cause: options.cause,
      retryable: true,
    });
    this.until = until;
  }
}

/** Pause the job with a visible reason, for `resumeIn` or until an operator resumes it. */
export class Pause extends StillwakeError {
  readonly resumeIn: Duration | undefined;

  constructor(reason: string, options: ThrowOptions & { resumeIn?: Duration } = {}) {
    super(options.code ?? "PAUSED", reason, { cause: options.cause, retryable: true });
    this.resumeIn = options.resumeIn;
  }
}

/** Thrown by job.waitFor: no signal arrived in time. Later attempts get the same error. */
export class EventTimeout extends StillwakeError {
  constructor(event: string, timeout: Duration | undefined) {
    super("EVENT_TIMEOUT", `No signal "${event}" arrived${timeout === undefined ? " in time" : ` within ${timeout}`}`);
  }
}
