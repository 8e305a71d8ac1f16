// Finds a Postgres with pg_cron: the Debian packages, or the folder with bin/postgres in STILLWAKE_TEST_PG_CRON.
// Nothing is installed; without one the tests are skipped and name the package.
import fs from "node:fs";
import path from "node:path";
import type pg from "pg";
import { type PostgresServer, startPostgresServer } from "./postgres-server.ts";

const DEBIAN = "/usr/lib/postgresql";

/** The folder of the newest Postgres with pg_cron, or the reason why there is none. */
export function findPgCron(): { build: string } | string {
  const { STILLWAKE_TEST_PG_CRON: given } = process.env;
  if (given) return { build: given };
  const majors = fs.existsSync(DEBIAN) ? fs.readdirSync(DEBIAN).map(Number).filter(Number.isInteger) : [];
  const has = (major: number, file: string) => fs.existsSync(path.join(DEBIAN, String(major), file));
  const found = majors
    .filter((major) => has(major, "bin/postgres") && has(major, "lib/pg_cron.so"))
    .sort((a, b) => b - a)[0];
  if (found) return { build: path.join(DEBIAN, String(found)) };
  return "pg_cron is not installed: apt-get update && apt-get install postgresql-15-cron (Debian 12; postgresql-17-cron in 13)";
}

/** Starts it with pg_cron active in the database of its URL. */
export function startCronServer(build: string): Promise<PostgresServer> {
  const settings = {
    shared_preload_libraries: "pg_cron",
    "cron.database_name": "postgres",
    // Background workers need no password, unlike a login over TCP.
    "cron.use_background_workers": "on",
  };
  return startPostgresServer(settings, build);
}

/** The shortest period and its notation: pg_cron supports seconds since 1.5. */
export async function shortestPeriod(
  client: pg.Client,
): Promise<{ schedule: string; periodMs: number; version: string }> {
  const { rows } = await client.query("select extversion as version from pg_extension where extname = 'pg_cron'");
  const { version } = rows[0] as { version: string };
  const [major = 0, minor = 0] = version.split(".").map((part) => Number.parseInt(part, 10));
  return major > 1 || minor >= 5
    ? { schedule: "1 second", periodMs: 1000, version }
    : { schedule: "* * * * *", periodMs: 60_000, version };
}
