// What is refused, in words for whoever asked: what is wrong, with which field, and what to do. What goes wrong inside is told to the house alone: no stack, no SQL and
// no address leaves it.
import { StillwakeError } from "stillwake";
import type { z } from "zod";

interface Issue {
  field: string;
  message: string;
}

/** The body of every answer that is a refusal. */
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

export function notFound(what: string, remedy = "It was deleted or never was"): Refusal {
  return new Refusal(404, "NOT_FOUND", `There is no such ${what}`, { remedy });
}

/** Everything that is wrong with what was sent; the first of it in the sentence. */
export function invalid(error: z.ZodError): Refusal {
  const issues = error.issues.slice(0, 20).flatMap(issuesOf);
  const [{ field, message } = { field: "body", message: "is not what is expected" }] = issues;
  return new Refusal(400, "INVALID_INPUT", `${field}: ${message}`, { field, issues });
}

function issuesOf(issue: z.core.$ZodIssue): Issue[] {
  const field = issue.path.map(String).join(".");
  if (issue.code === "unrecognized_keys")
    return issue.keys.slice(0, 5).map((key) => ({
      field: [field, key.slice(0, 80)].filter(Boolean).join("."),
      message: "is not known here",
    }));
  return [{ field: field || "body", message: issue.message }];
}

/** The answer to an error, and whether somebody of the house should hear of it. `forgotten`: of a job that the engine does not have. */
export function problemOf(error: unknown, forgotten: () => Refusal): { problem: Problem; inside: boolean } {
  if (error instanceof Refusal) return { problem: error.problem, inside: false };
  if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND")
    return { problem: forgotten().problem, inside: false };
  if (isAway(error)) {
    const problem = {
      status: 503,
      code: "DATABASE_UNAVAILABLE",
      detail: "The database cannot be used just now",
      remedy: "Nothing is lost. Try again in a moment",
    };
    return { problem, inside: true };
  }
  const problem = {
    status: 500,
    code: "INTERNAL",
    detail: "Something went wrong inside the server",
    remedy: "Its log has the reason",
  };
  return { problem, inside: true };
}

function isAway(error: unknown): boolean {
  const { code = "", message = "" } = error as { code?: string; message?: string };
  return (
    /^(DATABASE_UNAVAILABLE|CLOSED|E[A-Z]+|08...|57P..|53...)$/.test(code) ||
    /timeout exceeded when trying/.test(message)
  );
}
