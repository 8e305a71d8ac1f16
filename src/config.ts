// The only place that reads the environment. Everything else is given plain values.
import { InvalidInput } from "./errors.ts";

export interface Config {
  /** DATABASE_URL or STILLWAKE_DATABASE_URL; without one, `stillwake dev` starts a Postgres of its own. */
  databaseUrl: string | undefined;
  /** STILLWAKE_SCHEMA. */
  schema: string;
  /** STILLWAKE_PORT: where `stillwake dev` answers; the next free port if it is taken. */
  port: number;
  /** STILLWAKE_DIR: where `stillwake dev` keeps its data. */
  dir: string;
}

export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const port = Number(env.STILLWAKE_PORT || 4700);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidInput(`STILLWAKE_PORT ${JSON.stringify(env.STILLWAKE_PORT)} is not a port`, {
      field: "STILLWAKE_PORT",
      remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
    });
  }
  return Object.freeze({
    databaseUrl: env.STILLWAKE_DATABASE_URL || env.DATABASE_URL || undefined,
    schema: env.STILLWAKE_SCHEMA || "stillwake",
    port,
    dir: env.STILLWAKE_DIR || ".stillwake",
  });
}
