// What an operator sets for a server of any system: what is Stillwake's own under its names, what is the system's under its prefix. Which else there is stands in the
// server-settings of each, which alone read the environment.
import type { Credentials } from "stillwake/worker";
import type { Environment } from "../settings.ts";
import { isLoopback, MIN_TOKEN } from "./access.ts";

export interface WebSettings {
  databaseUrl: string;
  directUrl: string | undefined;
  host: string;
  port: number;
  base: string;
  token: string | undefined;
  secret: string | undefined;
}

export interface WebDefaults {
  /** "EXTRACTION" of EXTRACTION_HOST, _PORT, _BASE and _API_TOKEN. */
  prefix: string;
  /** Where it listens unless it is told. */
  port: number;
  /** What is in the database, for the sentence of one that is not set. */
  holds: string;
}

export function readWebSettings(env: Environment, { prefix, port, holds }: WebDefaults): WebSettings {
  const host = env[`${prefix}_HOST`] || "127.0.0.1";
  return {
    token: tokenOf(env, prefix, host),
    databaseUrl: readDatabaseUrl(env, holds),
    directUrl: env.STILLWAKE_DIRECT_URL || undefined,
    host,
    port: wholeNumber(env, `${prefix}_PORT`, port, 0),
    base: env[`${prefix}_BASE`] || "/",
    secret: env.STILLWAKE_SECRET || undefined,
  };
}

/** All that is needed to bring the tables. */
export function readDatabaseUrl(env: Environment, holds: string): string {
  return need(env, "STILLWAKE_DATABASE_URL", `where ${holds} are, such as postgres://…`);
}

export function need(env: Environment, name: string, why: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set: ${why}`);
}

export function wholeNumber(env: Environment, name: string, fallback: number, least: number): number {
  const value = Number(env[name] || fallback);
  if (Number.isInteger(value) && value >= least) return value;
  throw new Error(`${name} is "${env[name]}" and should be a whole number, ${least} at least`);
}

export function storeCredentialsOf(env: Environment): Credentials | undefined {
  const accessKeyId = env.STILLWAKE_STORE_ACCESS_KEY_ID || env.AWS_ACCESS_KEY_ID;
  const secretAccessKey = env.STILLWAKE_STORE_SECRET_ACCESS_KEY || env.AWS_SECRET_ACCESS_KEY;
  const sessionToken = env.STILLWAKE_STORE_SESSION_TOKEN || env.AWS_SESSION_TOKEN;
  return accessKeyId && secretAccessKey
    ? { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) }
    : undefined;
}

function tokenOf(env: Environment, prefix: string, host: string): string | undefined {
  const name = `${prefix}_API_TOKEN`;
  const token = env[name] || undefined;
  if (token === undefined) {
    if (isLoopback(host)) return undefined;
    throw new Error(
      `Without ${name} it cannot listen on ${host}: everybody there could do everything. Set it (openssl rand -base64 32 makes one), or ${prefix}_HOST=127.0.0.1`,
    );
  }
  if (token.length < MIN_TOKEN) {
    throw new Error(`${name} has ${token.length} characters and needs ${MIN_TOKEN} at least: openssl rand -base64 32`);
  }
  if (!/^[!-~]+$/.test(token)) {
    throw new Error(`${name} has characters that no header can carry: openssl rand -base64 32 makes one without`);
  }
  return token;
}
