// Serves the application on a port, with an HTTP client that records all responses, and a manual worker for readings.
import { createServer } from "stillwake/server";
import { afterAll } from "vitest";
import { type Caller, type ClaimedJob, callAt, claimJob, listen } from "../../../kit/test/support/api-server.ts";
import { type AppOptions, createApp } from "../../src/app.ts";
import { commits, users } from "../../src/contract.ts";
import type { LeaderboardSetup } from "./leaderboards.ts";

const SECRET = "a secret of more than thirty-two characters";

export interface ServedApi extends Pick<Caller, "get" | "post"> {
  origin: string;
  /** Texts of all responses so far. */
  responses: string[];
  /** Errors that were passed to onError so far. */
  internalErrors: unknown[];
}

/** Call it at the top of a file. It closes in afterAll, or when `onClose` calls it. */
export async function serveApi(
  setup: Pick<LeaderboardSetup, "url" | "pool">,
  options: Partial<AppOptions> & { secret?: string | null } = {},
  onClose: (close: () => Promise<void>) => void = afterAll,
): Promise<ServedApi> {
  const { secret = SECRET, ...appOptions } = options;
  const live = createServer({ url: setup.url, ...(secret !== null && { secret }) });
  const internalErrors: unknown[] = [];
  const responses: string[] = [];
  await live.stillwake.register(commits, users);
  const app = createApp({
    pool: setup.pool,
    stillwake: live.stillwake,
    live: live.fetch,
    onError: (error) => void internalErrors.push(error),
    ...appOptions,
  });
  const { origin, close } = await listen(app);
  onClose(async () => {
    await close();
    await live.close();
  });
  const { get, post } = callAt(`${origin}${appOptions.base ?? "/"}api`, (text) => void responses.push(text));
  return { origin, get, post, responses, internalErrors };
}

/** Claims a reading like a worker, and settles it if an outcome is given. Returns the claim. */
export function claimReading(
  { pool }: Pick<LeaderboardSetup, "pool">,
  job: string,
  outcome?: Record<string, unknown>,
): Promise<ClaimedJob> {
  const from = { worker: "manual-worker", pool: "commits", pipeline: "leaderboard-commits", lease: "10 minutes" };
  return claimJob(pool, job, from, outcome);
}
