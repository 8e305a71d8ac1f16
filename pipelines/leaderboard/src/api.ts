// The HTTP API: request a leaderboard, watch its progress, read it. The page uses this API like any other client.
import { inTransaction } from "@stillwake/kit/database";
import { type GuardedOptions, guardedApi, readToken } from "@stillwake/kit/web/guarded-api";
import { Refusal } from "@stillwake/kit/web/problems";
import * as requests from "@stillwake/kit/web/requests";
import type { Context, Hono } from "hono";
import type pg from "pg";
import type { Stillwake } from "stillwake";
import { z } from "zod";
import { readContributors, readQuotas, readSummaries } from "./board.ts";
import { listRepositories, lookUpAgain, readRepository, recordOutcomes, requestReading } from "./repositories.ts";
import { parseRepositoryUrl, type RepositoryName } from "./repository-url.ts";

export interface ApiOptions extends Omit<GuardedOptions, "name"> {
  /** A login with the roles leaderboard_api and stillwake_app. */
  pool: pg.Pool;
  /** With the secret of the live view, for read tokens. */
  stillwake: Stillwake;
  /** A sample repository ("owner/name") that the page offers. */
  sample?: { name: string; repository: string } | undefined;
}

const leaderboardBody = z.strictObject({
  url: z.string({ error: "must be the URL of a repository" }).max(2000, "is longer than 2000 characters"),
  refresh: z.boolean({ error: "must be true or false" }).default(false),
});
const boardQuery = requests.pageQuery.extend({ limit: requests.pageQuery.shape.limit.unwrap().default(100) });

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, sample, token, path, onError } = options;
  const api = guardedApi({ name: "leaderboard", token, path, onError });

  /** 202 while it is in progress. */
  const respondBoard = async (c: Context, id: string) => {
    const page = requests.parseQuery(boardQuery, c.req.raw);
    await recordOutcomes(pool);
    const [summary] = await readSummaries(stillwake, [await readRepository(pool, id)]);
    return c.json({ ...summary, contributors: await readContributors(pool, id, page) }, summary?.stage ? 202 : 200);
  };
  const request = async (c: Context, repository: RepositoryName, refresh: boolean) => {
    await recordOutcomes(pool);
    const { id, started } = await inTransaction(pool, (tx) => requestReading(tx, stillwake, repository, refresh));
    if (started) await stillwake.poke();
    return respondBoard(c, id);
  };

  // What the first page needs to know, in one request.
  api.get("/me", (c) => c.json({ open: token === undefined, sample: sample?.name ?? null }));

  api.post("/leaderboard", async (c) => {
    const { url, refresh } = await requests.parseBody(leaderboardBody, c.req.raw);
    return request(c, parseUrl(url), refresh);
  });
  api.post("/sample", async (c) => {
    await requests.parseBody(requests.emptyBody, c.req.raw);
    if (!sample) throw new Refusal(404, "NOT_FOUND", "This server has no sample", { remedy: "Use npm start" });
    return request(c, parseUrl(sample.repository), false);
  });
  api.get("/leaderboard", async (c) => {
    const page = requests.parseQuery(requests.pageQuery, c.req.raw);
    await recordOutcomes(pool);
    const { rows, ...rest } = await listRepositories(pool, page, "all");
    return c.json({ rows: await readSummaries(stillwake, rows), ...rest });
  });
  api.get("/leaderboard/:id", (c) => respondBoard(c, idOf(c)));
  api.post("/leaderboard/:id/users", async (c) => {
    await requests.parseBody(requests.emptyBody, c.req.raw);
    const result = await inTransaction(pool, (tx) => lookUpAgain(tx, stillwake, idOf(c)));
    if (result.jobs > 0) await stillwake.poke();
    return c.json(result, 202);
  });
  api.get("/leaderboard/:id/token", async (c) => {
    const { reading } = await readRepository(pool, idOf(c));
    return c.json({ token: reading === null ? null : readToken(stillwake, reading) });
  });
  api.get("/quota", async (c) => c.json(await readQuotas(stillwake)));
  api.get("/stuck", async (c) => {
    await recordOutcomes(pool);
    const { rows } = await listRepositories(pool, { limit: 200 }, "stuck");
    return c.json({ rows: await readSummaries(stillwake, rows) });
  });
  return api;
}

function idOf(c: Context): string {
  return requests.checkId(c.req.param("id") ?? "", "leaderboard");
}

function parseUrl(url: string): RepositoryName {
  const parsed = parseRepositoryUrl(url);
  if (!("problem" in parsed)) return parsed;
  throw new Refusal(400, "INVALID_INPUT", `url: ${parsed.problem}`, {
    field: "url",
    remedy: "Write it as https://github.com/owner/name, or as owner/name",
  });
}
