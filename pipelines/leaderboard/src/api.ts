// The API of the leaderboard: ask for a repository's, watch it being made, read it. The page is a client of this, like everybody else.

import { inTransaction } from "@stillwake/kit/transaction";
import { guardedApi } from "@stillwake/kit/web/guarded-api";
import { Refusal } from "@stillwake/kit/web/problems";
import { readToken } from "@stillwake/kit/web/read-token";
import * as requests from "@stillwake/kit/web/requests";
import type { Context, Hono } from "hono";
import type pg from "pg";
import type { Stillwake } from "stillwake";
import { z } from "zod";
import { readBudgets, readContributors, summariesOf } from "./board.ts";
import { ask, listRepositories, lookUpAgain, readRepository, recordEnds } from "./repositories.ts";
import { type Named, normalise } from "./repository-url.ts";

export interface ApiOptions {
  /** A login that may do what leaderboard_api and stillwake_app may. */
  pool: pg.Pool;
  /** With the secret of the server that follows jobs, for read tokens. */
  stillwake: Stillwake;
  /** Who comes in needs it. Without one, only this machine may. */
  token?: string | undefined;
  /** A repository to try it with, at one click: "owner/name". */
  sample?: { name: string; repository: string } | undefined;
  /** Where the API is reached, for its cookie. Default "/". */
  path?: string;
  /** Told what the caller is not told. */
  onError?: ((error: unknown, request: { method: string; path: string }) => void) | undefined;
}

const asked = z.strictObject({
  url: z.string({ error: "should be the address of a repository" }).max(2000, "is longer than 2000 characters"),
  refresh: z.boolean({ error: "should be true or false" }).default(false),
});
const boardAsked = requests.page.extend({ limit: requests.page.shape.limit.unwrap().default(100) });

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, sample } = options;
  const api = guardedApi({ name: "leaderboard", token: options.token, path: options.path, onError: options.onError });

  /** 202 while it is in work, whoever asks. */
  const answerBoard = async (c: Context, id: string) => {
    const page = requests.asked(boardAsked, c.req.raw);
    await recordEnds(pool);
    const [summary] = await summariesOf(stillwake, [await readRepository(pool, id)]);
    return c.json({ ...summary, contributors: await readContributors(pool, id, page) }, summary?.stage ? 202 : 200);
  };
  const begin = async (c: Context, named: Named, refresh: boolean) => {
    await recordEnds(pool);
    const { id, started } = await inTransaction(pool, (tx) => ask(tx, stillwake, named, refresh));
    if (started) await stillwake.poke();
    return answerBoard(c, id);
  };

  // With what the first page wants to know, so that it need not ask for what is not there.
  api.get("/me", (c) => c.json({ open: options.token === undefined, sample: sample?.name ?? null }));

  api.post("/leaderboard", async (c) => {
    const { url, refresh } = await requests.body(asked, c.req.raw);
    return begin(c, nameOf(url), refresh);
  });
  api.post("/sample", async (c) => {
    await requests.body(requests.nothing, c.req.raw);
    if (!sample) throw new Refusal(404, "NOT_FOUND", "There is no sample here", { remedy: "npm start has one" });
    return begin(c, nameOf(sample.repository), false);
  });
  api.get("/leaderboard", async (c) => {
    const page = requests.asked(requests.page, c.req.raw);
    await recordEnds(pool);
    const { rows, ...rest } = await listRepositories(pool, page, "all");
    return c.json({ rows: await summariesOf(stillwake, rows), ...rest });
  });
  api.get("/leaderboard/:id", (c) => answerBoard(c, idOf(c)));
  api.post("/leaderboard/:id/users", async (c) => {
    await requests.body(requests.nothing, c.req.raw);
    const dealt = await inTransaction(pool, (tx) => lookUpAgain(tx, stillwake, idOf(c)));
    if (dealt.jobs > 0) await stillwake.poke();
    return c.json(dealt, 202);
  });
  api.get("/leaderboard/:id/token", async (c) => {
    const { reading } = await readRepository(pool, idOf(c));
    return c.json({ token: reading === null ? null : readToken(stillwake, reading) });
  });
  api.get("/budget", async (c) => c.json(await readBudgets(stillwake)));
  api.get("/stuck", async (c) => {
    await recordEnds(pool);
    const { rows } = await listRepositories(pool, { limit: 200 }, "stuck");
    return c.json({ rows: await summariesOf(stillwake, rows) });
  });
  return api;
}

function idOf(c: Context): string {
  return requests.checkId(c.req.param("id") ?? "", "leaderboard");
}

function nameOf(url: string): Named {
  const named = normalise(url);
  if (!("wrong" in named)) return named;
  throw new Refusal(400, "INVALID_INPUT", `url: ${named.wrong}`, {
    field: "url",
    remedy: "Write it as https://github.com/owner/name, or as owner/name",
  });
}
