// The leaderboard's own tables in the database, and a login for the pipelines' code.
import { fileURLToPath } from "node:url";
import * as tables from "@stillwake/kit/tables";
import type pg from "pg";

/** From src/ and from dist/ alike. */
const file = fileURLToPath(new URL("../tables.sql", import.meta.url));

export function migrate(pool: pg.Pool): Promise<void> {
  return tables.migrate(pool, { schema: "leaderboard", file });
}

/** It may count commits and store contributors. Answers its URL. */
export function loginFor(pool: pg.Pool, name: string): Promise<string> {
  return tables.loginFor(pool, name, ["leaderboard_pipeline"]);
}
