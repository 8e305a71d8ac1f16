// What user code throws to say how its job goes on. Anything else that is thrown is a failure, and retried by policy.
import { StillwakeError } from "../errors.ts";
import type { Duration } from "../time.ts";

export interface ThrowOptions {
  /** For programs and for the pipeline's table of failures. */
  code?: string;
  cause?: unknown;
}

/** Do not try again, whatever attempts remain. */
export class Fatal extends StillwakeError {
  constructor(message: string, options: ThrowOptions = {}) {
    super(options.code ?? "FATAL", message, { cause: options.cause });
  }
}

/** Try again, after `in` or after the pipeline's back-off; counted as a failed attempt. */
export class Retry extends StillwakeError {
  readonly in: Duration | undefined;

  constructor(message: string, options: ThrowOptions & { in?: Duration } = {}) {
    super(options.code ?? "RETRY", message, { cause: options.cause, retryable: true });
    this.in = options.in;
  }
}

/** Go back to the line until then: no slot is held and no attempt is counted. */
export class RateLimited extends StillwakeError {
  readonly until: Date | Duration;

  constructor(until: Date | Duration, options: ThrowOptions & { message?: string } = {}) {
    super(options.code ?? "RATE_LIMITED", options.message ?? "The rate limit is used up", {
      cause: options.cause,
      retryable: true,
    });
    this.until = until;
  }
}

/** Set the job aside with a reason that everybody can see, until `resumeIn` or until somebody resumes it. */
export class Pause extends StillwakeError {
  readonly resumeIn: Duration | undefined;

  constructor(reason: string, options: ThrowOptions & { resumeIn?: Duration } = {}) {
    super(options.code ?? "PAUSED", reason, { cause: options.cause, retryable: true });
    this.resumeIn = options.resumeIn;
  }
}
