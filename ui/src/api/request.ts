// One HTTP request to the server of the page. A failed request throws a RequestError with the server's message and its remedy.
import { learnServerClock } from "./server-clock.ts";

/** The body of an error response, as far as pages show it. */
interface Problem {
  status: number;
  code?: string;
  detail?: string;
  remedy?: string;
  /** The field of the request that is invalid. */
  field?: string;
  /** Of the dashboard's API. The example systems report their first issue as `field` and `detail`. */
  issues?: { path?: string; message: string }[];
}

export class RequestError extends Error {
  readonly code: string;
  /** 0 if the server could not be reached. */
  readonly status: number;
  readonly remedy: string | undefined;
  readonly field: string | undefined;
  readonly issues: { path: string; message: string }[];

  constructor({ status, code = "UNKNOWN", detail, remedy, field, issues = [] }: Problem) {
    super(detail || `The server responded with status ${status}`);
    this.name = "RequestError";
    this.code = code;
    this.status = status;
    this.remedy = remedy;
    this.field = field;
    this.issues = issues.flatMap(({ path, message }) => (path === undefined ? [] : [{ path, message }]));
  }

  /** The server could not handle the request, as opposed to rejecting it. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export interface RequestOptions {
  query?: Record<string, string | number | undefined> | undefined;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Relative to the document's base: the server may be mounted under any path. */
export function resolveUrl(path: string, query: RequestOptions["query"] = {}): string {
  const url = new URL(path.replace(/^\//, ""), document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** Returns undefined for a response without a body. */
export async function request<Result>(
  method: string,
  path: string,
  { query, body, signal }: RequestOptions = {},
): Promise<Result> {
  let response: Response;
  const sentAt = Date.now();
  try {
    response = await fetch(resolveUrl(path, query), {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const remedy = "Jobs continue without it. This page retries automatically.";
    throw new RequestError({ code: "UNREACHABLE", status: 0, detail: "The server does not respond", remedy });
  }
  learnServerClock(response, sentAt);
  const { status, ok } = response;
  if (status === 204) return undefined as Result;
  const text = await response.text();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const detail = `The server responded with status ${status} and a body that is not JSON`;
    throw new RequestError({ code: "UNREADABLE", status, detail });
  }
  if (ok) return value as Result;
  throw new RequestError({ detail: response.statusText, ...(value as object), status });
}
