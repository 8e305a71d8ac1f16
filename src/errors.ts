// Errors that callers receive. Each has a code for programs, a message that names the thing and the limit, and a
// remedy. `fromDatabase` maps SQLSTATEs SW001… to these classes.

export interface StillwakeErrorOptions {
  cause?: unknown;
  /** How to fix it, as a sentence. */
  remedy?: string;
  /** Whether the same call may succeed later without any change. */
  retryable?: boolean;
  /** Path of the invalid field, such as `input.repo` or `options.delay`. */
  field?: string;
}

export class StillwakeError extends Error {
  readonly code: string;
  readonly retryable: boolean;
  readonly remedy?: string;
  readonly field?: string;

  constructor(code: string, message: string, options: StillwakeErrorOptions = {}) {
    super(
      options.remedy ? `${message}. ${options.remedy}` : message,
      options.cause ? { cause: options.cause } : undefined,
    );
    this.name = new.target.name;
    this.code = code;
    this.retryable = options.retryable ?? false;
    if (options.remedy) this.remedy = options.remedy;
    if (options.field) this.field = options.field;
  }
}

type ErrorClass = new (message: string, options?: StillwakeErrorOptions) => StillwakeError;

/** The base of an error class that adds nothing but its code. */
function withCode(code: string): ErrorClass {
  return class extends StillwakeError {
    constructor(message: string, options?: StillwakeErrorOptions) {
      super(code, message, options);
    }
  };
}

export interface Issue {
  path: string;
  message: string;
}

/** Input, options or filters are invalid. Nothing was stored. */
export class InvalidInput extends StillwakeError {
  readonly issues: readonly Issue[];

  constructor(message: string, options: StillwakeErrorOptions & { issues?: readonly Issue[] } = {}) {
    super("INVALID_INPUT", message, options);
    this.issues = options.issues ?? [];
  }
}

export class UnknownPipeline extends withCode("UNKNOWN_PIPELINE") {}

export class UnknownPool extends withCode("UNKNOWN_POOL") {}

export class JobNotFound extends withCode("JOB_NOT_FOUND") {}

export function jobNotFound(id: string): JobNotFound {
  return new JobNotFound(`Job ${id} does not exist`, {
    field: "id",
    remedy: "It was never enqueued here, or it was pruned after its retention",
  });
}

/** The job's state does not allow the operation. */
export class NotAllowed extends withCode("NOT_ALLOWED") {}

/** The attempt lost its lease: it must stop, and none of its writes is accepted. */
export class LeaseLost extends withCode("LEASE_LOST") {}

/** Thrown by wait(): the job failed or was cancelled. `failure` is the stored failure. */
export class JobFailed extends StillwakeError {
  readonly jobId: string;
  readonly state: "failed" | "cancelled";
  readonly failure: unknown;

  constructor(jobId: string, state: "failed" | "cancelled", failure: unknown) {
    const reason = (failure as { message?: string } | null)?.message;
    super(
      "JOB_FAILED",
      `Job ${jobId} ${state === "failed" ? "failed" : "was cancelled"}${reason ? `: ${reason}` : ""}`,
    );
    this.jobId = jobId;
    this.state = state;
    this.failure = failure;
  }
}

/** Another active job has the key, and onConflict is "reject". */
export class KeyTaken extends StillwakeError {
  /** The job that has the key. */
  readonly jobId: string | undefined;

  constructor(message: string, options: StillwakeErrorOptions = {}) {
    super("KEY_TAKEN", message, { ...options, field: "key" });
    this.jobId = options.field === "key" ? undefined : options.field;
  }
}

export class UnknownLimit extends withCode("UNKNOWN_LIMIT") {}

export class UnknownBreaker extends withCode("UNKNOWN_BREAKER") {}

/** The schema in the database does not match this version of Stillwake. */
export class SchemaMismatch extends StillwakeError {}

/** Postgres was unreachable for longer than the client retries. */
export class DatabaseUnavailable extends StillwakeError {
  constructor(message: string, options: StillwakeErrorOptions = {}) {
    super("DATABASE_UNAVAILABLE", message, { retryable: true, ...options });
  }
}

const bySqlState: Record<string, ErrorClass> = {
  SW001: InvalidInput,
  SW002: UnknownPipeline,
  SW003: UnknownPool,
  SW004: JobNotFound,
  SW005: LeaseLost,
  SW006: NotAllowed,
  SW007: KeyTaken,
  SW008: UnknownLimit,
  SW009: UnknownBreaker,
};

/** Postgres is reachable and does not accept this login: a retry cannot help. */
const loginRefusals: Record<string, { code: string; remedy: string }> = {
  "28P01": {
    code: "LOGIN_REFUSED",
    remedy:
      "Check user and password in the database URL (DATABASE_URL, STILLWAKE_DATABASE_URL or --url); special characters of a password are escaped, as in %40 for @",
  },
  "28000": {
    code: "LOGIN_REFUSED",
    remedy:
      "Check the user in the database URL (DATABASE_URL, STILLWAKE_DATABASE_URL or --url), and whether the server accepts it from here; hosted databases often need ?sslmode=require",
  },
  "3D000": {
    code: "DATABASE_MISSING",
    remedy:
      "Check the name after the last / of the database URL (DATABASE_URL, STILLWAKE_DATABASE_URL or --url), or create the database: createdb <name>",
  },
};

interface PostgresError {
  code?: string;
  message?: string;
  detail?: string;
  hint?: string;
  /** Prisma wraps the driver's error: its own engine copies code and message, a driver adapter nests the error. */
  meta?: { code?: string; message?: string; driverAdapterError?: unknown };
  cause?: unknown;
}

/** Converts a driver's error into one of the classes above; returns any other error unchanged. */
export function fromDatabase(thrown: unknown): unknown {
  for (
    let error = thrown as PostgresError | undefined, depth = 0;
    error && depth < 5;
    error = (error.meta?.driverAdapterError ?? error.cause) as PostgresError, depth++
  ) {
    const state = error.meta?.code ?? error.code;
    const known = state ? bySqlState[state] : undefined;
    if (known) {
      return new known(error.meta?.message ?? error.message ?? "", {
        cause: thrown,
        ...(error.detail && { field: error.detail }),
        ...(error.hint && { remedy: error.hint.replace(/\.$/, ".") }),
      });
    }
    // 22P02 means an unpaired surrogate: everything else about the JSON we send is valid.
    if (state === "22021" || state === "22P05" || (state === "22P02" && /type json/.test(error.message ?? ""))) {
      return new InvalidInput(`A string contains characters that Postgres cannot store: ${error.message}`, {
        cause: thrown,
        remedy: "Remove NUL characters and unpaired surrogates",
      });
    }
    const refusal = state === undefined ? undefined : loginRefusals[state];
    if (refusal)
      return new StillwakeError(refusal.code, error.message ?? "", { cause: thrown, remedy: refusal.remedy });
    if (state === "42883" || state === "3F000" || state === "42P01") {
      return new SchemaMismatch(
        "SCHEMA_MISSING",
        `The database does not have the Stillwake schema of this version: ${error.message}`,
        {
          cause: thrown,
          remedy: "Run `stillwake migrate` with the owner's URL, or check the schema setting.",
        },
      );
    }
  }
  return thrown;
}

const lostConnection = new Set([
  ..."ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH ENETUNREACH EAI_AGAIN ENOTFOUND".split(" "),
  // read_only_sql_transaction: this server is a standby; the next connection finds the primary.
  "25006",
  // admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout, too_many_connections, connection exceptions
  ..."57P01 57P02 57P03 57P05 53300 08000 08001 08003 08004 08006 08P01".split(" "),
]);

/** True when the connection was lost or refused: the statement may or may not have been executed. */
export function isConnectionLoss(thrown: unknown): boolean {
  const error = thrown as { code?: string; message?: string; errors?: unknown[] };
  if (error?.errors?.some(isConnectionLoss)) return true;
  if (error?.code) return lostConnection.has(error.code);
  return /Connection terminated|Query read timeout|timeout exceeded when trying to connect|Client has encountered a connection error|not queryable/.test(
    error?.message ?? "",
  );
}

const notConnected = new Set(
  "ECONNREFUSED EHOSTUNREACH ENETUNREACH EAI_AGAIN ENOTFOUND 53300 57P03 08001 08004".split(" "),
);

/** True when no connection was opened, so that no statement was sent. */
export function isNotConnected(thrown: unknown): boolean {
  const { code, message, errors } = thrown as { code?: string; message?: string; errors?: unknown[] };
  if (errors?.length) return errors.every(isNotConnected);
  return notConnected.has(code ?? "") || message === "timeout exceeded when trying to connect";
}

/** Postgres has no free connection slot. Retrying too soon would starve connected clients. */
export function isTooManyConnections(thrown: unknown): boolean {
  return (thrown as { code?: string })?.code === "53300";
}

/** Deadlock or serialization failure: the transaction was rolled back and can be repeated. */
export function isConflict(thrown: unknown): boolean {
  const code = (thrown as { code?: string })?.code;
  return code === "40P01" || code === "40001";
}

const transient = new Set(
  // query_canceled, lock_not_available; insufficient_resources, disk_full, out_of_memory, configuration_limit_exceeded; io_error
  "57014 55P03 53000 53100 53200 53400 58030".split(" "),
);

/** The statement was rolled back for a temporary reason and can succeed later. */
export function isTransient(thrown: unknown): boolean {
  return transient.has((thrown as { code?: string })?.code ?? "");
}

/** A lock was not granted in time: a transaction that may stay open holds a row. */
export function isLocked(thrown: unknown): boolean {
  return (thrown as { code?: string })?.code === "55P03";
}

/**
 * No partition takes the row, or the one that was chosen changed its bounds meanwhile. Unlike a violated constraint, which
 * has the same code, the error names none.
 */
export function isMissingPartition(thrown: unknown): boolean {
  const { code, table, constraint } = (thrown ?? {}) as { code?: string; table?: string; constraint?: string };
  return code === "23514" && table !== undefined && constraint === undefined;
}

/**
 * Postgres rejects these values for good: an exception raised by a trigger, a data or constraint violation, or a program
 * limit. A missing partition is not the fault of the values.
 */
export function isRejection(thrown: unknown): boolean {
  if (thrown instanceof InvalidInput) return true;
  const { code = "" } = (thrown ?? {}) as { code?: string };
  return /^(P0|22|23|44|54)[0-9A-Z]{3}$/.test(code) && !isMissingPartition(thrown);
}
