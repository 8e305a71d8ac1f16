// A leaderboard that needs no network, for `npm start`: the sample repository behind a git server of this machine, a server that speaks like GitHub's API, the
// application's tables, and its page. With a token of one's own, people are looked up at GitHub itself.
import fs from "node:fs/promises";
import path from "node:path";
import { serveSample } from "@stillwake/kit/demo/git-server";
import pg from "pg";
import type { DevPlace } from "stillwake";
import { createApp } from "../app.ts";
import { readSettings } from "../settings.ts";
import { loginFor, migrate } from "../tables.ts";
import { serveGitHub } from "./github-server.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "./sample.ts";

export interface Application {
  /** For the pipelines' code. */
  env: Record<string, string>;
  line: string;
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

/** Small enough to be seen used up, and soon renewed. GitHub's own has 30 searches a minute. */
const SEARCHES = { limit: 20, windowMs: 15_000 };

export async function startLeaderboard(place: DevPlace & { base: string }): Promise<Application> {
  const { toolPath, githubToken } = readSettings();
  const home = path.join(place.dir, "leaderboard");
  const root = path.join(home, "repositories");
  await fs.mkdir(root, { recursive: true });
  const pool = new pg.Pool({ connectionString: place.url, max: 4, idleTimeoutMillis: 5000 });
  pool.on("error", () => {});
  await migrate(pool);
  const login = await loginFor(pool, "leaderboard_dev");
  const git = await serveSample({ root, toolPath }, makeSampleRepository);
  const github = githubToken === undefined ? await serveGitHub({ users: SAMPLE_USERS, search: SEARCHES }) : undefined;
  const app = createApp({
    pool,
    stillwake: place.stillwake,
    live: async (request) => place.fetch(request),
    base: place.base,
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
