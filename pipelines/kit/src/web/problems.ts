// Error responses of the API: what is wrong, in which field, and what to do. Details of internal errors (stack, SQL,
// addresses) are logged and never sent.
import { StillwakeError } from "stillwake";
import type { z } from "zod";

interface Issue {
  field: string;
  message: string;
}

/** The body of every error response. */
export interface Problem {
  status: number;
  code: string;
  detail: string;
  field?: string;
  remedy?: string;
  issues?: Issue[];
}

export class Refusal extends Error {
  readonly problem: Problem;

  constructor(status: number, code: string, detail: string, more: Partial<Problem> = {}) {
    super(detail);
    this.name = "Refusal";
    this.problem = { ...more, status, code, detail };
  }
}

/** The same for a missing object and for one of another organization, so that callers cannot tell them apart. */
export function notFound(what: string): Refusal {
  return new Refusal(404, "NOT_FOUND", `There is no such ${what}`, {
    remedy: `Check the id: the ${what} was deleted, never existed, or you have no access to it`,
  });
}

/** All issues of a request; the first one is the detail. */
export function invalid(error: z.ZodError): Refusal {
  const issues = error.issues.slice(0, 20).flatMap(issuesOf);
  const [{ field, message } = { field: "body", message: "is invalid" }] = issues;
  return new Refusal(400, "INVALID_INPUT", `${field}: ${message}`, { field, issues });
}

function issuesOf(issue: z.core.$ZodIssue): Issue[] {
  const field = issue.path.map(String).join(".");
  if (issue.code === "unrecognized_keys")
    return issue.keys.slice(0, 5).map((key) => ({
      field: [field, key.slice(0, 80)].filter(Boolean).join("."),
      message: "is not a known field",
    }));
  return [{ field: field || "body", message: issue.message }];
}

/** `internal`: the operator should see the error. `what`: what to call a job that Stillwake no longer has. */
export function problemOf(error: unknown, what: string): { problem: Problem; internal: boolean } {
  if (error instanceof Refusal) return { problem: error.problem, internal: false };
  if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND")
    return { problem: notFound(what).problem, internal: false };
  if (isDatabaseUnavailable(error)) {
    const problem = {
      status: 503,
      code: "DATABASE_UNAVAILABLE",
      detail: "The database is not available",
      remedy: "Nothing is lost. Try again in a moment",
    };
    return { problem, internal: true };
  }
  const problem = {
    status: 500,
    code: "INTERNAL",
    detail: "Internal server error",
    remedy: "See the server's log",
  };
  return { problem, internal: true };
}

function isDatabaseUnavailable(error: unknown): boolean {
  const { code = "", message = "" } = error as { code?: string; message?: string };
  return (
    /^(DATABASE_UNAVAILABLE|CLOSED|E[A-Z]+|08...|57P..|53...)$/.test(code) ||
    /timeout exceeded when trying/.test(message)
  );
}
