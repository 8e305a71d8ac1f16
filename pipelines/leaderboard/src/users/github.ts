// GitHub, asked through Octokit. How often it may be asked is not Octokit's business: each call is a use of a limit that all workers share, and when the budget is
// gone the job goes back to the table instead of waiting here.
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

/** GitHub, or the way to it, failed for this one question. Others may be answered. */
export class Trouble extends Error {
  override readonly name = "Trouble";
}

class TokenRefused extends Error {}

export interface GitHub {
  /** Calls that were made. */
  readonly calls: number;
  /** Who shows this address on their page. */
  userByEmail(email: string): Promise<User | undefined>;
  /** Undefined: there is nobody of that name any more. */
  user(login: string, etag: string | null): Promise<User | "unchanged" | undefined>;
}

/** An answer that takes longer is none. */
const PATIENCE_MS = 30_000;
/** A question that cannot be asked is one that nobody is found by; nothing is gained by asking it again. */
const NOBODY = [404, 410, 422];

/** So long nobody asks after GitHub has refused the token. */
const REFUSED_SECONDS = 900;

const found = z.object({
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
  const under = (limit: Limit) => ({
    fetch: async (url: string, init: RequestInit) => {
      calls += 1;
      return job.fetch(url, { ...init, signal: AbortSignal.timeout(PATIENCE_MS) }, { limit, breaker: github });
    },
  });
  const asked = (limit: Limit, call: Promise<Answer>) =>
    answerOf(call).catch((error) => (error instanceof TokenRefused ? refuse(limit) : Promise.reject(error)));
  /** What holds for one call holds for all of them: nobody asks for a while, and no attempt is charged for it. Does not return. */
  const refuse = async (limit: Limit): Promise<never> => {
    job.log.error("GitHub refuses the token - set LEADERBOARD_GITHUB_TOKEN of the users' workers to one that is valid");
    await job.observe(limit, { status: 429, headers: new Headers({ "retry-after": String(REFUSED_SECONDS) }) });
    throw new Trouble("GitHub refuses the token");
  };
  return {
    get calls() {
      return calls;
    },

    async userByEmail(email) {
      const answer = await asked(
        searches,
        octokit.request("GET /search/users", {
          q: `"${email}" in:email type:user`,
          per_page: 1,
          request: under(searches),
        }),
      );
      if (answer === undefined || answer === "unchanged") return undefined;
      const { items, incomplete_results: incomplete } = read(found, answer);
      const [first] = items;
      if (!first && incomplete) throw new Trouble("GitHub has not searched to the end");
      return first && { login: first.login, githubId: first.id, name: null, etag: null };
    },

    async user(login, etag) {
      const answer = await asked(
        reads,
        octokit.request("GET /users/{username}", {
          username: login,
          headers: etag === null ? {} : { "if-none-match": etag },
          request: under(reads),
        }),
      );
      if (answer === undefined || answer === "unchanged") return answer;
      const { login: called, id, name } = read(profile, answer);
      return { login: called, githubId: id, name: name?.trim() || null, etag: answer.headers.etag ?? null };
    },
  };
}

interface Answer {
  status: number;
  data: unknown;
  headers: { etag?: string | undefined };
}

/** What the answer means: there is one, it has not changed, or nobody is there. */
async function answerOf(call: Promise<Answer>): Promise<Answer | "unchanged" | undefined> {
  try {
    const answer = await call;
    // It is still working the answer out.
    if (answer.status === 202) throw new Trouble("GitHub has no answer yet (HTTP 202)");
    return answer;
  } catch (error) {
    const { status, response, cause } = error as { status?: number; response?: object; cause?: unknown };
    if (error instanceof Trouble) throw error;
    // No answer at all. What the engine has thrown to end the attempt is passed on as it was; only the network's own errors are troubles.
    if (!response) throw networkTrouble(cause ?? error) ?? cause ?? error;
    if (status === 304) return "unchanged";
    if (status !== undefined && NOBODY.includes(status)) return undefined;
    if (status === 401) throw new TokenRefused();
    // A 403 for want of budget has ended the attempt already.
    throw new Trouble(`GitHub answered with HTTP ${status}`);
  }
}

function networkTrouble(error: unknown): Trouble | undefined {
  const { name, cause } = error as { name?: string; cause?: { code?: string } };
  if (name === "TimeoutError") return new Trouble(`GitHub did not answer within ${PATIENCE_MS / 1000} seconds`);
  if (error instanceof TypeError) return new Trouble(`GitHub could not be reached (${cause?.code ?? error.message})`);
  return undefined;
}

function read<Shape>(shape: z.ZodType<Shape>, { data }: Answer): Shape {
  const { success, data: read } = shape.safeParse(data);
  if (!success) throw new Trouble("GitHub answered with something else than was asked for");
  return read;
}
