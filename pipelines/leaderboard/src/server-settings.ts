// What an operator sets for the server, read once from the environment: what is Stillwake's own under its names, what is the application's as LEADERBOARD_…. Workers read
// settings.ts instead, and none of this.
import type { Environment } from "@stillwake/kit/settings";
import {
  readDatabaseUrl as databaseUrlOf,
  readWebSettings,
  type WebSettings,
} from "@stillwake/kit/web/server-settings";

const HOLDS = "leaderboards and jobs";

/** All that is needed to bring the tables. */
export function readDatabaseUrl(): string {
  return databaseUrlOf(process.env, HOLDS);
}

export function readServerSettings(env: Environment = process.env): WebSettings {
  return readWebSettings(env, { prefix: "LEADERBOARD", port: 4801, holds: HOLDS });
}
