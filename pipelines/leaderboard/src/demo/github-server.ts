// A server on this machine that speaks like GitHub's REST API as far as the leaderboard asks it: the search for users, one user, the rate limit. The sample that comes
// with the product needs nothing else, and tests make it fail through `onCall`. It keeps GitHub's two budgets and tells them in the headers of every answer.
//
//   budget    a window opens with the first call after the last one has ended; a call beyond the limit is refused and costs nothing
//   free      304, the rate limit itself, and what never reached the part that counts: 401, secondary limits, 5xx, no answer
//   reset     in whole seconds, rounded up: whoever waits for it finds the next window
import http from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Answer,
  beyondBudget,
  failed,
  findUsers,
  getUser,
  rates,
  secondaryLimit,
  unknown,
} from "./github-answers.ts";
import { Budget, type BudgetOptions } from "./github-budget.ts";

export interface SampleUser {
  login: string;
  id: number;
  name: string | null;
  /** The public one, by which they are found; null for those who show none. */
  email: string | null;
}

export interface GitHubOptions {
  /** Looked at anew with each call: what a test changes in it is true from then on. */
  users: readonly SampleUser[];
  /** 30 a minute unless said. */
  search?: BudgetOptions;
  /** 5,000 an hour unless said. */
  core?: BudgetOptions;
  /** Whoever does not show it is refused. Without one everybody counts as signed in. */
  token?: string;
  /** What a call beyond the budget, or a secondary limit, is refused with. GitHub uses both; 403 unless said. */
  refusal?: 403 | 429;
  /** Sees each call as it arrives and may have it fail. What it awaits, the call awaits. */
  onCall?(call: Readonly<Call>): Fault | undefined | Promise<Fault | undefined>;
}

/** More than one may be said, such as a delay and a status. */
export interface Fault {
  /** The limit on too much at once: 403 with retry-after in seconds, or without. */
  secondary?: { retryAfter?: number };
  /** 5xx as of a broken GitHub, 202 with an empty object as of one that still computes, or any other refusal. */
  status?: number;
  /** No answer, ever. */
  hang?: boolean;
  /** The connection ends in the middle of the body. */
  cut?: boolean;
  /** 200 with a page in the place of JSON. */
  garbage?: boolean;
  /** From now on the windows of this budget have this limit, the present one too. */
  limit?: number;
  /** The call counts when it arrives and is answered so much later. */
  delayMs?: number;
}

export type Resource = "search" | "core";

export interface Call {
  /** When it arrived, in milliseconds of Date.now(). */
  at: number;
  /** Without the query. */
  path: string;
  /** That was searched for. */
  email: string | undefined;
  /** What it is answered with; 0 while it is not. */
  status: number;
  resource: Resource;
  /** Of its budget, the first one is 1. */
  window: number;
  /** For want of budget. A secondary limit is not that. */
  refused: boolean;
}

export interface GitHubServer {
  /** "http://127.0.0.1:4321", to be set as the address of GitHub's API. */
  url: string;
  /** In the order of their arrival. */
  calls: Call[];
  close(): Promise<void>;
}

const MINUTE = 60_000;

export async function serveGitHub(options: GitHubOptions): Promise<GitHubServer> {
  const budgets = {
    search: new Budget(options.search ?? { limit: 30, windowMs: MINUTE }),
    core: new Budget(options.core ?? { limit: 5000, windowMs: 60 * MINUTE }),
  };
  const calls: Call[] = [];
  const closing = new AbortController();
  let url = "";

  const take = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    request.resume();
    const asked = new URL(request.url ?? "/", url);
    const resource = asked.pathname === "/search/users" ? "search" : "core";
    const budget = budgets[resource];
    const isFree = asked.pathname === "/rate_limit";
    const at = Date.now();
    const call: Call = {
      at,
      path: asked.pathname,
      email: resource === "search" ? emailIn(asked.searchParams.get("q") ?? "") : undefined,
      status: 0,
      resource,
      window: isFree ? budget.number : budget.enter(at),
      refused: false,
    };
    calls.push(call);
    const refusal = { status: options.refusal ?? 403, requestId: `0000:${calls.length.toString(16).toUpperCase()}` };
    const fault = (await options.onCall?.(call)) ?? {};
    if (fault.limit !== undefined) budget.limit = fault.limit;
    if (fault.hang) return;

    const now = Date.now();
    const decide = (): Answer => {
      if (options.token !== undefined && !shows(request, options.token)) return failed(401);
      if (fault.secondary) return secondaryLimit(refusal, fault.secondary.retryAfter);
      if (fault.status !== undefined && fault.status >= 500) return failed(fault.status);
      if (isFree) return rates(budgets, now);
      call.window = budget.enter(now);
      if (budget.state(now).remaining === 0) {
        call.refused = true;
        return beyondBudget(refusal);
      }
      const answer = fault.status === undefined ? found() : failed(fault.status);
      if (answer.status !== 304) budget.spend();
      return answer;
    };
    const found = (): Answer => {
      if (fault.garbage)
        return { status: 200, page: "<!doctype html>\n<title>Sign in</title>\n<p>To go on, sign in.\n" };
      if (request.method !== "GET") return unknown();
      if (resource === "search") return findUsers(options.users, call.email, asked.searchParams, url);
      const [, login] = /^\/users\/([^/]+)$/.exec(asked.pathname) ?? [];
      return login === undefined ? unknown() : getUser(options.users, login, request.headers["if-none-match"], url);
    };
    const answer = decide();
    const { limit, used, remaining, reset } = budget.state(now);
    const headers = {
      "x-github-request-id": refusal.requestId,
      "x-ratelimit-limit": limit,
      "x-ratelimit-used": used,
      "x-ratelimit-remaining": remaining,
      "x-ratelimit-reset": reset,
      "x-ratelimit-resource": resource,
    };
    call.status = answer.status;
    if (fault.delayMs) await sleep(fault.delayMs, undefined, { signal: closing.signal });
    send(response, answer, headers, fault.cut ?? false);
  };

  const server = http.createServer((request, response) => {
    // It closes in the middle of a delay, or a test's own function has failed: either way there is no answer.
    take(request, response).catch(() => response.destroy());
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

/** What stands in quotes; without any, the first word. */
function emailIn(query: string): string | undefined {
  return /"([^"]*)"/.exec(query)?.[1] ?? query.split(/\s+/).find((word) => word && !/^\w+:/.test(word));
}

function shows({ headers }: http.IncomingMessage, token: string): boolean {
  return /^(?:bearer|token) (.+)$/i.exec(headers.authorization ?? "")?.[1] === token;
}

function send(
  response: http.ServerResponse,
  { status, body, page, headers }: Answer,
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
    // A 304 has no body to describe.
    ...(status !== 304 && {
      "content-type": page === undefined ? "application/json; charset=utf-8" : "text/html; charset=utf-8",
      "content-length": bytes.length,
    }),
  });
  if (!cut) response.end(bytes);
  else response.write(bytes.subarray(0, bytes.length / 2), () => response.destroy());
}
