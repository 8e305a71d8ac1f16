// One request to the server. A refusal is an error with the server's own words: what is wrong, and what to do about it.
import type { nouns } from "stillwake/server";
import { learnClock } from "./clock.ts";

export class Refused extends Error {
  readonly code: string;
  readonly status: number;
  readonly remedy: string | undefined;
  readonly field: string | undefined;
  readonly issues: { path: string; message: string }[];

  constructor({ code, status, detail, remedy, field, issues }: Omit<nouns.Problem, "type" | "title">) {
    super(detail);
    this.name = "Refused";
    this.code = code;
    this.status = status;
    this.remedy = remedy;
    this.field = field;
    this.issues = issues ?? [];
  }
}

export interface Said {
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Relative to the document's base, so that a server may be mounted anywhere. */
export function addressOf(path: string, query: Said["query"] = {}): string {
  const url = new URL(path.replace(/^\//, ""), document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

export async function call<Answer>(method: string, path: string, { query, body, signal }: Said = {}): Promise<Answer> {
  let answer: Response;
  const askedAt = Date.now();
  try {
    answer = await fetch(addressOf(path, query), {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const remedy = "Nothing is lost: jobs go on without it, and this page asks again by itself.";
    throw new Refused({ code: "UNREACHABLE", status: 0, detail: "The server does not answer", remedy });
  }
  learnClock(answer, askedAt);
  if (answer.status === 204) return undefined as Answer;
  const text = await answer.text();
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    const detail = `The server answered ${answer.status} with something that is not JSON`;
    throw new Refused({ code: "UNREADABLE", status: answer.status, detail });
  }
  if (answer.ok) return said as Answer;
  throw new Refused({ code: "UNKNOWN", detail: answer.statusText, ...(said as object), status: answer.status });
}
