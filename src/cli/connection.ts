// Settings of commands that open the database or a server in this process.
import { checkSecrets } from "../client/read-token.ts";
import { checkUrl } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";

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
