// A local fake of the GitHub REST API endpoints that the leaderboard uses: user search, user, rate limit. For the sample and
// for tests, which inject faults through `onCall`. It enforces GitHub's two rate limits and reports them in all responses.
//
//   window    opens with the first call after the last one ended; a call beyond the limit is refused and not counted
//   free      304, /rate_limit, 401, secondary limits, 5xx and calls without a response are not counted
//   reset     in whole seconds, rounded up, so that a client that waits for it is in the next window
import http from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Quota, type QuotaOptions } from "./github-quota.ts";
import {
  type FakeResponse,
  failure,
  findUsers,
  getUser,
  notFound,
  rateLimited,
  rates,
  secondaryLimit,
} from "./github-responses.ts";

export interface SampleUser {
  login: string;
  id: number;
  name: string | null;
  /** The public address; null if the user shows none. */
  email: string | null;
}

export interface GitHubOptions {
  /** Read for each call, so tests may change it. */
  users: readonly SampleUser[];
  /** Default: 30 per minute. */
  search?: QuotaOptions;
  /** Default: 5,000 per hour. */
  core?: QuotaOptions;
  /** Clients without it get 401. Without a token all clients are accepted. */
  token?: string;
  /** Status of a call beyond a rate limit. GitHub uses both. Default 403. */
  refusal?: 403 | 429;
  /** Called for each call; may return a fault. The call waits for its promise. */
  onCall?(call: Readonly<Call>): Fault | undefined | Promise<Fault | undefined>;
}

/** Faults can be combined, such as a delay and a status. */
export interface Fault {
  /** GitHub's secondary rate limit: 403, optionally with retry-after in seconds. */
  secondary?: { retryAfter?: number };
  /** Any status, such as 5xx, or 202 with an empty object. */
  status?: number;
  /** No response. */
  hang?: boolean;
  /** The connection closes in the middle of the body. */
  cut?: boolean;
  /** 200 with an HTML page instead of JSON. */
  garbage?: boolean;
  /** Changes the limit of this rate limit from now on, also of the current window. */
  limit?: number;
  /** Delays the response. The call is counted on arrival. */
  delayMs?: number;
}

export type Resource = "search" | "core";

export interface Call {
  /** Arrival time, as of Date.now(). */
  at: number;
  /** Without the query. */
  path: string;
  /** The searched address. */
  email: string | undefined;
  /** Status of the response; 0 before it. */
  status: number;
  resource: Resource;
  /** Number of its window, starting with 1. */
  window: number;
  /** Refused by the rate limit (not by a secondary limit). */
  refused: boolean;
}

export interface GitHubServer {
  /** "http://127.0.0.1:4321" */
  url: string;
  /** In order of arrival. */
  calls: Call[];
  close(): Promise<void>;
}

const MINUTE = 60_000;

export async function serveGitHub(options: GitHubOptions): Promise<GitHubServer> {
  const quotas = {
    search: new Quota(options.search ?? { limit: 30, windowMs: MINUTE }),
    core: new Quota(options.core ?? { limit: 5000, windowMs: 60 * MINUTE }),
  };
  const calls: Call[] = [];
  const closing = new AbortController();
  let url = "";

  const handle = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    request.resume();
    const target = new URL(request.url ?? "/", url);
    const resource = target.pathname === "/search/users" ? "search" : "core";
    const quota = quotas[resource];
    const isFree = target.pathname === "/rate_limit";
    const at = Date.now();
    const call: Call = {
      at,
      path: target.pathname,
      email: resource === "search" ? parseEmail(target.searchParams.get("q") ?? "") : undefined,
      status: 0,
      resource,
      window: isFree ? quota.windowNumber : quota.openWindow(at),
      refused: false,
    };
    calls.push(call);
    const refusal = { status: options.refusal ?? 403, requestId: `0000:${calls.length.toString(16).toUpperCase()}` };
    const fault = (await options.onCall?.(call)) ?? {};
    if (fault.limit !== undefined) quota.limit = fault.limit;
    if (fault.hang) return;

    const now = Date.now();
    const respond = (): FakeResponse => {
      if (options.token !== undefined && !hasToken(request, options.token)) return failure(401);
      if (fault.secondary) return secondaryLimit(refusal, fault.secondary.retryAfter);
      if (fault.status !== undefined && fault.status >= 500) return failure(fault.status);
      if (isFree) return rates(quotas, now);
      call.window = quota.openWindow(now);
      if (quota.state(now).remaining === 0) {
        call.refused = true;
        return rateLimited(refusal);
      }
      const result = fault.status === undefined ? lookUp() : failure(fault.status);
      if (result.status !== 304) quota.spend();
      return result;
    };
    const lookUp = (): FakeResponse => {
      if (fault.garbage)
        return { status: 200, page: "<!doctype html>\n<title>Sign in</title>\n<p>Sign in to continue.\n" };
      if (request.method !== "GET") return notFound();
      if (resource === "search") return findUsers(options.users, call.email, target.searchParams, url);
      const [, login] = /^\/users\/([^/]+)$/.exec(target.pathname) ?? [];
      return login === undefined ? notFound() : getUser(options.users, login, request.headers["if-none-match"], url);
    };
    const result = respond();
    const { limit, used, remaining, reset } = quota.state(now);
    const headers = {
      "x-github-request-id": refusal.requestId,
      "x-ratelimit-limit": limit,
      "x-ratelimit-used": used,
      "x-ratelimit-remaining": remaining,
      "x-ratelimit-reset": reset,
      "x-ratelimit-resource": resource,
    };
    call.status = result.status;
    if (fault.delayMs) await sleep(fault.delayMs, undefined, { signal: closing.signal });
    send(response, result, headers, fault.cut ?? false);
  };

  const server = http.createServer((request, response) => {
    // The server is closing, or onCall has thrown: no response.
    handle(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    calls,
    close: () =>
      new Promise((resolve) => {
        closing.abort();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** The quoted text, else the first word. */
function parseEmail(query: string): string | undefined {
  return /"([^"]*)"/.exec(query)?.[1] ?? query.split(/\s+/).find((word) => word && !/^\w+:/.test(word));
}

function hasToken({ headers }: http.IncomingMessage, token: string): boolean {
  return /^(?:bearer|token) (.+)$/i.exec(headers.authorization ?? "")?.[1] === token;
}

function send(
  response: http.ServerResponse,
  { status, body, page, headers }: FakeResponse,
  common: Record<string, string | number>,
  cut: boolean,
): void {
  const bytes = Buffer.from(page ?? (body === undefined ? "" : JSON.stringify(body)));
  response.writeHead(status, {
    date: new Date().toUTCString(),
    server: "github.com",
    "x-github-media-type": "github.v3; format=json",
    ...common,
    ...headers,
    // A 304 has no body.
    ...(status !== 304 && {
      "content-type": page === undefined ? "application/json; charset=utf-8" : "text/html; charset=utf-8",
      "content-length": bytes.length,
    }),
  });
  if (!cut) response.end(bytes);
  else response.write(bytes.subarray(0, bytes.length / 2), () => response.destroy());
}
