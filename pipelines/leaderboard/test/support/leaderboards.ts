// Test setup for leaderboards: a separate database with the application's tables, a git server, a fake GitHub, and the compiled
// pipelines under real workers with runner processes.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { inTransaction } from "@stillwake/kit/database";
import { type GitServer, serveRepositories } from "@stillwake/kit/demo/git-server";
import pg from "pg";
import { createStillwake, type Job, type LogLine, type Stillwake } from "stillwake";
import { waitFor } from "stillwake/testing";
import { createWorker, type WorkerOptions } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { loginFor, migrate } from "../../src/app.ts";
import { loginFromNoreply } from "../../src/commits/count.ts";
import { BATCH, users } from "../../src/contract.ts";
import { type GitHubOptions, type GitHubServer, serveGitHub } from "../../src/demo/github-server.ts";
import { lookUpAgain, type Repository, readRepository, requestReading } from "../../src/repositories.ts";

export const HOME = path.join(ROOT, "pipelines/leaderboard");
export const PIPELINES = {
  commits: path.join(HOME, "dist/commits/pipeline.js"),
  users: path.join(HOME, "dist/users/pipeline.js"),
};
const LONG = 120_000;

export interface LeaderboardSetup {
  url: string;
  pool: pg.Pool;
  stillwake: Stillwake;
  folder: string;
  /** Contains bare repositories such as "acme/site.git". */
  root: string;
  git: GitServer;
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  serveGitHub(options: GitHubOptions): Promise<GitHubServer>;
  /** Requests the leaderboard of a repository, like the API. */
  request(repository: string, refresh?: boolean): Promise<{ id: string; reading: string }>;
  /** Adds a repository with counted commits, by e-mail address. Its look-up jobs wait for a worker. */
  addCounted(repository: string, commits: Record<string, number>): Promise<{ id: string; jobs: string[] }>;
  lookUpAgain(id: string): ReturnType<typeof lookUpAgain>;
  worker(pool: "commits" | "users", options?: Partial<WorkerOptions>): ReturnType<typeof createWorker>;
  waitForStatus(id: string, ...statuses: Repository["status"][]): Promise<Repository>;
  waitForJob(job: string): Promise<{ job: Job; logs: LogLine[]; lines: string[] }>;
  /** All statuses it has had, in order. */
  history(id: string): Promise<string[]>;
}

/** Call it at the top of a file. `build: false` for files that start no worker. */
export async function setUpLeaderboards({ build = true } = {}): Promise<LeaderboardSetup> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-"));
  const root = path.join(folder, "repositories");
  fs.mkdirSync(root);
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  const stillwake = createStillwake({ url });
  const git = await serveRepositories({ root, toolPath: process.env.PATH ?? "" });
  const githubServers: GitHubServer[] = [];
  await migrate(pool);
  const env: Record<string, string> = {
    LEADERBOARD_DATABASE_URL: await loginFor(pool, `leaderboard_${randomUUID().slice(0, 8)}`),
    LEADERBOARD_GITHUB_URL: git.url,
    LEADERBOARD_ALLOW_ADDRESSES: "127.0.0.1/32",
  };
  if (build) beforeAll(() => buildPackage(), LONG);
  afterAll(async () => {
    for (const server of githubServers) await server.close();
    await git.close();
    await stillwake.close();
    await pool.end();
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  const self: LeaderboardSetup = {
    url,
    pool,
    stillwake,
    folder,
    root,
    git,
    env,
    async serveGitHub(options) {
      const server = await serveGitHub(options);
      githubServers.push(server);
      env.LEADERBOARD_GITHUB_API_URL = server.url;
      return server;
    },
    async request(repository, refresh = false) {
      const name = { repository, url: `https://github.com/${repository}` };
      const { id } = await inTransaction(pool, (tx) => requestReading(tx, stillwake, name, refresh));
      return { id, reading: (await readRepository(pool, id)).reading! };
    },
    async addCounted(repository, commits) {
      const { id, reading } = await self.request(repository);
      await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
      await pool.query(
        `insert into leaderboard.counted (job_id, fence, author_email, author_name, commits, login)
         select $1, 1, key, initcap(split_part(key, '@', 1)), value::bigint, $3::jsonb ->> key from jsonb_each_text($2)`,
        [reading, commits, Object.fromEntries(Object.keys(commits).map((email) => [email, loginFromNoreply(email)]))],
      );
      const { rows } = await pool.query(
        "select batches from leaderboard.end_reading($1, $2, 1, true, 'head', null, $3)",
        [id, reading, BATCH],
      );
      const batches = Array.from({ length: rows[0].batches }, (_, batch) => ({ repositoryId: id, reading, batch }));
      return { id, jobs: (await stillwake.enqueueMany(users, batches)).map((job) => job.id) };
    },
    lookUpAgain: (id) => inTransaction(pool, (tx) => lookUpAgain(tx, stillwake, id)),
    worker(name, options = {}) {
      return createWorker({
        url,
        pool: name,
        pipelines: PIPELINES[name],
        slots: 1,
        spareRunners: 0,
        grace: "500ms",
        ...options,
        environment: { PATH: process.env.PATH ?? "", ...env, ...options.environment },
      });
    },
    async waitForStatus(id, ...statuses) {
      await waitFor(async () => statuses.includes((await readRepository(pool, id)).status), {
        timeout: 4 * LONG,
        what: `the repository to be ${statuses.join(" or ")}`,
      });
      return readRepository(pool, id);
    },
    async waitForJob(id) {
      await waitFor(async () => (await stillwake.get(id)).endedAt !== null, {
        timeout: LONG,
        what: `job ${id} to end`,
      });
      const logs = await stillwake.logs(id);
      return { job: await stillwake.get(id), logs, lines: logs.map(({ level, message }) => `${level} ${message}`) };
    },
    async history(id) {
      const { rows } = await pool.query(
        "select became from leaderboard.transitions where repository_id = $1 order by at, ctid",
        [id],
      );
      return rows.map(({ became }) => became);
    },
  };
  return self;
}
