// Converts errors to application/problem+json (RFC 9457). Internal errors reveal nothing: no stack, no SQL, no address.
import { InvalidInput, StillwakeError } from "../../errors.ts";

export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  field?: string;
  remedy?: string;
  issues?: { path: string; message: string }[];
}

const statusOf: Record<string, number> = {
  INVALID_INPUT: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  JOB_NOT_FOUND: 404,
  TOKEN_NOT_FOUND: 404,
  ARTIFACT_MISSING: 404,
  BUDGET_NOT_FOUND: 404,
  UNKNOWN_PIPELINE: 404,
  UNKNOWN_POOL: 404,
  UNKNOWN_LIMIT: 404,
  UNKNOWN_BREAKER: 404,
  METHOD_NOT_ALLOWED: 405,
  NOT_ALLOWED: 409,
  NO_ORCHESTRATOR: 409,
  KEY_TAKEN: 409,
  TOO_LARGE: 413,
  NOT_JSON: 415,
  SEARCH_TOO_SLOW: 422,
  TOO_MANY_REQUESTS: 429,
  NO_STORE: 501,
  DATABASE_UNAVAILABLE: 503,
  SCHEMA_MISSING: 503,
  SCHEMA_TOO_OLD: 503,
  SCHEMA_TOO_NEW: 503,
  TENANT_ROLE_MISSING: 503,
  CLOSED: 503,
};

const titles: Record<number, string> = {
  400: "Bad request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not found",
  405: "Method not allowed",
  409: "Conflict",
  413: "Too large",
  415: "Unsupported media type",
  422: "Too much to search",
  429: "Too many requests",
  500: "Internal error",
  501: "Not configured",
  503: "Unavailable",
};

/** An error of the server itself; the code decides the status. */
export function httpError(
  code: string,
  detail: string,
  options: { field?: string; remedy?: string } = {},
): StillwakeError {
  return new StillwakeError(code, detail, options);
}

/** `internal`: the error must be logged, because the response hides its details. */
export function toProblem(error: unknown): { problem: Problem; internal: boolean } {
  const known = error instanceof StillwakeError ? statusOf[error.code] : undefined;
  const status = known ?? (error instanceof InvalidInput ? 400 : 500);
  // 501: what the server was not configured for. It reveals nothing.
  if (status >= 500 && status !== 501) {
    const unreachable = status === 503;
    const code = unreachable ? (error as StillwakeError).code : "INTERNAL";
    const detail =
      code === "CLOSED"
        ? "The server is closing"
        : unreachable
          ? "The database is temporarily unavailable"
          : "Internal server error";
    const remedy = unreachable
      ? "Try again shortly; `stillwake doctor` shows the cause"
      : "See the server's log for the cause";
    const problem = { type: "about:blank", title: titles[status]!, status, code, detail, remedy };
    return { problem, internal: code !== "CLOSED" };
  }
  const { code, message, field, remedy } = error as StillwakeError;
  const { issues } = error as { issues?: { path: string; message: string }[] };
  return {
    problem: {
      type: "about:blank",
      title: titles[status] ?? "Rejected",
      status,
      code,
      // StillwakeError appends the remedy to its message.
      detail: remedy && message.endsWith(remedy) ? message.slice(0, -remedy.length - 2) : message,
      ...(field !== undefined && { field }),
      ...(remedy !== undefined && { remedy }),
      ...(issues && issues.length > 0 && { issues }),
    },
    internal: false,
  };
}

export function problemResponse(problem: Problem, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(problem), {
    status: problem.status,
    headers: { "content-type": "application/problem+json", ...headers },
  });
}
