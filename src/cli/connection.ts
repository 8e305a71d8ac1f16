// Settings of commands that open the database or a server in this process.
import { checkSecrets } from "../client/read-token.ts";
import type { Config } from "../config.ts";
import { checkUrl } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { readDevDatabase } from "./dev/address.ts";
import type { Flags } from "./flags.ts";
import type { Screen } from "./output/screen.ts";

/** The database of --url or the environment, or else that of a running `stillwake dev`: for commands that inspect. */
export function findDatabaseUrl(flags: Flags, config: Config, screen: Screen): string {
  const configured = flags.url ?? config.databaseUrl;
  if (configured) return checkUrl(configured);
  const dev = readDevDatabase(config.dir);
  if (dev === undefined) {
    throw new InvalidInput("No database is configured", {
      field: "url",
      remedy: "Pass --url postgres://…, set DATABASE_URL, or start `stillwake dev`",
    });
  }
  screen.printStderr("Using the database of stillwake dev.");
  return dev;
}

export function requireDatabaseUrl(url: string | undefined): string {
  if (url) return checkUrl(url);
  throw new InvalidInput("No database is configured", {
    field: "url",
    remedy: "Pass --url postgres://… or set DATABASE_URL",
  });
}

/** Checks STILLWAKE_SECRET; the error names the variable, not the option of the library. */
export function checkSecretSetting(secret: string): string {
  try {
    checkSecrets(secret);
    return secret;
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    throw new InvalidInput("STILLWAKE_SECRET is shorter than 32 characters", {
      field: "STILLWAKE_SECRET",
      remedy: "Generate one with `openssl rand -base64 32`",
    });
  }
}

/** The orchestrator to poke when a job is enqueued: STILLWAKE_POKE_URL, with STILLWAKE_TOKEN as its token. */
export function pokeOptions(url: string, token: string | undefined): { url: string; token?: string } {
  return { url, ...(token !== undefined && { token }) };
}
