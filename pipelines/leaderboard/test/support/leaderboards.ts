// Leaderboards for tests: a database of the file's own with the application's tables, repositories behind a git server, a GitHub-shaped API, and the compiled pipelines
// under real workers, whose runners are processes.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { type GitServer, serveRepositories } from "@stillwake/kit/demo/git-server";
import { inTransaction } from "@stillwake/kit/transaction";
import pg from "pg";
import { createStillwake, type Job, type LogLine, type Stillwake } from "stillwake";
import { waitFor } from "stillwake/testing";
import { createWorker, type WorkerOptions } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { BATCH, users } from "../../src/contract.ts";
import { type GitHubOptions, type GitHubServer, serveGitHub } from "../../src/demo/github-server.ts";
import { namedBy } from "../../src/noreply.ts";
import { ask, lookUpAgain, type Repository, readRepository } from "../../src/repositories.ts";
import { loginFor, migrate } from "../../src/tables.ts";

export const HOME = path.join(ROOT, "pipelines/leaderboard");
export const PIPELINES = {
  commits: path.join(HOME, "dist/commits/pipeline.js"),
  users: path.join(HOME, "dist/users/pipeline.js"),
};
const LONG = 120_000;

export interface Stage {
  url: string;
  pool: pg.Pool;
  stillwake: Stillwake;
  folder: string;
  /** Bare repositories lie below it as "acme/site.git". */
  root: string;
  git: GitServer;
  /** What the pipelines' code is given. */
  env: Record<string, string>;
  github(options: GitHubOptions): Promise<GitHubServer>;
  /** Asks for the board of a repository, as the API does. Answers its record. */
  ask(repository: string, refresh?: boolean): Promise<{ id: string; reading: string }>;
  /** A repository whose commits are counted already: these, by e-mail. Its look-ups wait for a worker. Answers its record and their jobs. */
  counted(repository: string, commits: Record<string, number>): Promise<{ id: string; jobs: string[] }>;
  lookUpAgain(id: string): ReturnType<typeof lookUpAgain>;
  worker(pool: "commits" | "users", options?: Partial<WorkerOptions>): ReturnType<typeof createWorker>;
  /** Works until the repository is in one of these. */
  until(id: string, ...statuses: Repository["status"][]): Promise<Repository>;
  ended(job: string): Promise<{ job: Job; logs: LogLine[]; lines: string[] }>;
  /** "pending", "commits_processing", …: every status it has had, in order. */
  history(id: string): Promise<string[]>;
}

/** At the top of a file. One that starts no worker needs nothing built. */
export async function stage({ build = true } = {}): Promise<Stage> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-"));
  const root = path.join(folder, "repositories");
  fs.mkdirSync(root);
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  const stillwake = createStillwake({ url });
  const git = await serveRepositories({ root, toolPath: process.env.PATH ?? "" });
  const opened: GitHubServer[] = [];
  await migrate(pool);
  const env: Record<string, string> = {
    LEADERBOARD_DATABASE_URL: await loginFor(pool, `leaderboard_${randomUUID().slice(0, 8)}`),
    LEADERBOARD_GITHUB_URL: git.url,
    LEADERBOARD_ALLOW_ADDRESSES: "127.0.0.1/32",
  };
  if (build) beforeAll(() => buildPackage(), LONG);
  afterAll(async () => {
    for (const server of opened) await server.close();
    await git.close();
    await stillwake.close();
    await pool.end();
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  const self: Stage = {
    url,
    pool,
    stillwake,
    folder,
    root,
    git,
    env,
    async github(options) {
      const server = await serveGitHub(options);
      opened.push(server);
      env.LEADERBOARD_GITHUB_API_URL = server.url;
      return server;
    },
    async ask(repository, refresh = false) {
      const named = { repository, url: `https://github.com/${repository}` };
      const { id } = await inTransaction(pool, (tx) => ask(tx, stillwake, named, refresh));
      return { id, reading: (await readRepository(pool, id)).reading! };
    },
    async counted(repository, commits) {
      const { id, reading } = await self.ask(repository);
      await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
      await pool.query(
        `insert into leaderboard.counted (job_id, fence, author_email, author_name, commits, login)
         select $1, 1, key, initcap(split_part(key, '@', 1)), value::bigint, $3::jsonb ->> key from jsonb_each_text($2)`,
        [reading, commits, Object.fromEntries(Object.keys(commits).map((email) => [email, namedBy(email)]))],
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
        spares: 0,
        grace: "500ms",
        ...options,
        env: { PATH: process.env.PATH ?? "", ...env, ...options.env },
      });
    },
    async until(id, ...statuses) {
      await waitFor(async () => statuses.includes((await readRepository(pool, id)).status), {
        timeout: 4 * LONG,
        what: `the repository to be ${statuses.join(" or ")}`,
      });
      return readRepository(pool, id);
    },
    async ended(id) {
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
