// Starts the leaderboard for `npm start` without a network: tables, page, a local git server with the sample repository, and a
// fake GitHub. With LEADERBOARD_GITHUB_TOKEN, contributors are looked up at GitHub instead.
import fs from "node:fs/promises";
import path from "node:path";
import { serveSample } from "@stillwake/kit/demo/git-server";
import pg from "pg";
import type { DevPlace } from "stillwake";
import { createApp, loginFor, migrate } from "../app.ts";
import { readSettings } from "../settings.ts";
import { serveGitHub } from "./github-server.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "./sample.ts";

export interface Application {
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  line: string;
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

/** Small, so that the exhausted limit is visible, and soon reset. GitHub's own limit is 30 searches per minute. */
const SEARCHES = { limit: 20, windowMs: 15_000 };

export async function startLeaderboard(dev: DevPlace & { base: string }): Promise<Application> {
  const { toolPath, githubToken } = readSettings();
  const home = path.join(dev.dir, "leaderboard");
  const root = path.join(home, "repositories");
  await fs.mkdir(root, { recursive: true });
  const pool = new pg.Pool({ connectionString: dev.url, max: 4, idleTimeoutMillis: 5000 });
  pool.on("error", () => {});
  await migrate(pool);
  const login = await loginFor(pool, "leaderboard_dev");
  const git = await serveSample({ root, toolPath }, makeSampleRepository);
  const github = githubToken === undefined ? await serveGitHub({ users: SAMPLE_USERS, search: SEARCHES }) : undefined;
  const app = createApp({
    pool,
    stillwake: dev.stillwake,
    live: async (request) => dev.fetch(request),
    base: dev.base,
    ...(git && { sample: SAMPLE }),
  });
  return {
    env: {
      LEADERBOARD_DATABASE_URL: login,
      LEADERBOARD_CACHE: path.join(home, "cache"),
      ...(github && { LEADERBOARD_GITHUB_API_URL: github.url }),
      ...(githubToken !== undefined && { LEADERBOARD_GITHUB_TOKEN: githubToken }),
      ...(git && {
        LEADERBOARD_MIRRORS: `${SAMPLE.repository.split("/")[0]}=${git.url}`,
        LEADERBOARD_ALLOW_ADDRESSES: "127.0.0.1/32",
      }),
    },
    line: git
      ? "Its authors can be ranked with one click, without a network:"
      : "Contributors can be ranked as soon as git is installed:",
    fetch: (request) => app.fetch(request),
    async close() {
      await git?.close();
      await github?.close();
      await pool.end();
    },
  };
}
