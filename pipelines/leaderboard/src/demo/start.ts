// Starts the leaderboard for `npm start` without a network, with a fake GitHub. With LEADERBOARD_GITHUB_TOKEN, contributors are
// looked up at GitHub instead.
import path from "node:path";
import { type Application, startDemo } from "@stillwake/kit/demo/start";
import type { DevPlace } from "stillwake";
import { createApp, loginFor, migrate } from "../app.ts";
import { readSettings, settingsOfSample } from "../settings.ts";
import { serveGitHub } from "./github-server.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "./sample.ts";

/** Small, so that the exhausted limit is visible, and soon reset. GitHub's own limit is 30 searches per minute. */
const SEARCHES = { limit: 20, windowMs: 15_000 };

export async function startLeaderboard(dev: DevPlace & { base: string }): Promise<Application> {
  const { toolPath, githubToken } = readSettings();
  const demo = await startDemo(dev, {
    name: "leaderboard",
    toolPath,
    migrate,
    loginFor,
    makeSampleRepository,
    createApp: ({ hasSample, ...options }) => createApp({ ...options, ...(hasSample && { sample: SAMPLE }) }),
  });
  const { home, login, git, fetch } = demo;
  const github = githubToken === undefined ? await serveGitHub({ users: SAMPLE_USERS, search: SEARCHES }) : undefined;
  return {
    env: {
      LEADERBOARD_DATABASE_URL: login,
      ...settingsOfSample({
        LEADERBOARD_CACHE: path.join(home, "cache"),
        ...(github && { LEADERBOARD_GITHUB_API_URL: github.url }),
        ...(githubToken !== undefined && { LEADERBOARD_GITHUB_TOKEN: githubToken }),
        ...(git && {
          LEADERBOARD_MIRRORS: `${SAMPLE.repository.split("/")[0]}=${git.url}`,
          LEADERBOARD_ALLOW_ADDRESSES: "127.0.0.1/32",
        }),
      }),
    },
    line: git
      ? "Its authors can be ranked with one click, without a network:"
      : "Contributors can be ranked as soon as git is installed:",
    fetch,
    async close() {
      await github?.close();
      await demo.close();
    },
  };
}
