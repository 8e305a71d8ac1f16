// Calls GitHub through Octokit, without Octokit's throttling: each call uses a limit that all workers share. If the limit is
// exhausted, the job goes back to the queue instead of waiting here.
import { Octokit } from "@octokit/core";
import type { Limit } from "stillwake";
import type { JobContext } from "stillwake/worker";
import { z } from "zod";
import { github, reads, searches } from "../contract.ts";
import type { Settings } from "../settings.ts";

export interface User {
  login: string;
  githubId: number;
  name: string | null;
  etag: string | null;
}

/** GitHub or the network failed for this look-up. Others may succeed. */
export class LookupError extends Error {
  override readonly name = "LookupError";
}

class TokenRejected extends Error {}

export interface GitHub {
  /** Number of calls so far. */
  readonly calls: number;
  /** The user who shows this address on their profile. */
  userByEmail(email: string): Promise<User | undefined>;
  /** Undefined: the login no longer exists. */
  user(login: string, etag: string | null): Promise<User | "unchanged" | undefined>;
}

const TIMEOUT_MS = 30_000;
/** 422: an invalid search finds nothing and is not retried. */
const NOT_FOUND = [404, 410, 422];

/** All workers pause for this time after GitHub rejected the token. */
const TOKEN_PAUSE_SECONDS = 900;

const searchResult = z.object({
  incomplete_results: z.boolean().optional(),
  items: z.array(z.object({ login: z.string().min(1).max(100), id: z.int() })),
});
const profile = z.object({ login: z.string().min(1).max(100), id: z.int(), name: z.string().max(500).nullish() });

export function openGitHub(job: JobContext, settings: Pick<Settings, "githubApiUrl" | "githubToken">): GitHub {
  const { githubApiUrl, githubToken } = settings;
  if (githubToken !== undefined) job.secret(githubToken);
  let calls = 0;
  const octokit = new Octokit({
    baseUrl: githubApiUrl,
    userAgent: "stillwake-leaderboard",
    ...(githubToken !== undefined && { auth: githubToken }),
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
  });
  const requestOptions = (limit: Limit) => ({
    fetch: async (url: string, init: RequestInit) => {
      calls += 1;
      return job.fetch(url, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) }, { limit, breaker: github });
    },
  });
  const call = (limit: Limit, request: Promise<GitHubResponse>) =>
    readResponse(request).catch((error) => (error instanceof TokenRejected ? pauseAll(limit) : Promise.reject(error)));
  /** Exhausts the limit for all workers, which reschedules the job without charging an attempt. Does not return. */
  const pauseAll = async (limit: Limit): Promise<never> => {
    job.log.error("GitHub rejects the token - set LEADERBOARD_GITHUB_TOKEN of the users workers to a valid one");
    await job.observe(limit, { status: 429, headers: new Headers({ "retry-after": String(TOKEN_PAUSE_SECONDS) }) });
    throw new LookupError("GitHub rejects the token");
  };
  return {
    get calls() {
      return calls;
    },

    async userByEmail(email) {
      const response = await call(
        searches,
        octokit.request("GET /search/users", {
          q: `"${email}" in:email type:user`,
          per_page: 1,
          request: requestOptions(searches),
        }),
      );
      if (response === undefined || response === "unchanged") return undefined;
      const { items, incomplete_results: incomplete } = parseData(searchResult, response);
      const [first] = items;
      if (!first && incomplete) throw new LookupError("GitHub returned incomplete search results");
      return first && { login: first.login, githubId: first.id, name: null, etag: null };
    },

    async user(login, etag) {
      const response = await call(
        reads,
        octokit.request("GET /users/{username}", {
          username: login,
          headers: etag === null ? {} : { "if-none-match": etag },
          request: requestOptions(reads),
        }),
      );
      if (response === undefined || response === "unchanged") return response;
      const { login: currentLogin, id, name } = parseData(profile, response);
      return { login: currentLogin, githubId: id, name: name?.trim() || null, etag: response.headers.etag ?? null };
    },
  };
}

interface GitHubResponse {
  status: number;
  data: unknown;
  headers: { etag?: string | undefined };
}

/** Undefined if the user does not exist. */
async function readResponse(request: Promise<GitHubResponse>): Promise<GitHubResponse | "unchanged" | undefined> {
  try {
    const response = await request;
    if (response.status === 202) throw new LookupError("GitHub is still computing the result (HTTP 202)");
    return response;
  } catch (error) {
    const { status, response, cause } = error as { status?: number; response?: object; cause?: unknown };
    if (error instanceof LookupError) throw error;
    // No response. Errors that Stillwake throws to stop the attempt are passed on; only network errors become LookupErrors.
    if (!response) throw toNetworkError(cause ?? error) ?? cause ?? error;
    if (status === 304) return "unchanged";
    if (status !== undefined && NOT_FOUND.includes(status)) return undefined;
    if (status === 401) throw new TokenRejected();
    // A 403 because of the rate limit has already stopped the attempt.
    throw new LookupError(`GitHub returned HTTP ${status}`);
  }
}

function toNetworkError(error: unknown): LookupError | undefined {
  const { name, cause } = error as { name?: string; cause?: { code?: string } };
  if (name === "TimeoutError") return new LookupError(`GitHub did not respond within ${TIMEOUT_MS / 1000} seconds`);
  if (error instanceof TypeError)
    return new LookupError(`GitHub could not be reached (${cause?.code ?? error.message})`);
  return undefined;
}

function parseData<Shape>(shape: z.ZodType<Shape>, { data }: GitHubResponse): Shape {
  const { success, data: read } = shape.safeParse(data);
  if (!success) throw new LookupError("GitHub returned an unexpected response");
  return read;
}
