// A Postgres that has pg_cron: the Debian packages, or what STILLWAKE_TEST_PG_CRON names, a folder with bin/postgres. Nothing is installed here;
// where there is none, the tests are skipped and say what would install it.
import fs from "node:fs";
import path from "node:path";
import type pg from "pg";
import { type OwnServer, ownServer } from "./postgres-server.ts";

const DEBIAN = "/usr/lib/postgresql";

/** The folder of the newest Postgres that has it, or the reason why there is none. */
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

/** Starts it with pg_cron at work in the database of its URL. */
export function cronServer(build: string): Promise<OwnServer> {
  const settings = {
    shared_preload_libraries: "pg_cron",
    "cron.database_name": "postgres",
    // Otherwise it logs in over TCP, and would need the password.
    "cron.use_background_workers": "on",
  };
  return ownServer(settings, build);
}

/** Its shortest period and how that is written: pg_cron knows seconds since 1.5. */
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
