// Settings that all servers share: Stillwake's variables under their own names, the system's under its prefix. Each
// system's server-settings.ts adds its own.
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
  /** Default port. */
  port: number;
  /** What the database contains, for the message about a missing URL. */
  contents: string;
}

export function readWebSettings(env: Environment, { prefix, port, contents }: WebDefaults): WebSettings {
  const host = env[`${prefix}_HOST`] || "127.0.0.1";
  return {
    token: readApiToken(env, prefix, host),
    databaseUrl: readDatabaseUrl(env, contents),
    directUrl: env.STILLWAKE_DIRECT_URL || undefined,
    host,
    port: readInteger(env, `${prefix}_PORT`, port, 0),
    base: env[`${prefix}_BASE`] || "/",
    secret: env.STILLWAKE_SECRET || undefined,
  };
}

/** The only setting that --migrate needs. */
export function readDatabaseUrl(env: Environment, contents: string): string {
  return requireVariable(env, "STILLWAKE_DATABASE_URL", `the database with ${contents}, such as postgres://…`);
}

export function requireVariable(env: Environment, name: string, purpose: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set: ${purpose}`);
}

export function readInteger(env: Environment, name: string, fallback: number, min: number): number {
  const value = Number(env[name] || fallback);
  if (Number.isInteger(value) && value >= min) return value;
  throw new Error(`${name} is "${env[name]}" but must be an integer of at least ${min}`);
}

export function readStoreCredentials(env: Environment): Credentials | undefined {
  const accessKeyId = env.STILLWAKE_STORE_ACCESS_KEY_ID || env.AWS_ACCESS_KEY_ID;
  const secretAccessKey = env.STILLWAKE_STORE_SECRET_ACCESS_KEY || env.AWS_SECRET_ACCESS_KEY;
  const sessionToken = env.STILLWAKE_STORE_SESSION_TOKEN || env.AWS_SESSION_TOKEN;
  return accessKeyId && secretAccessKey
    ? { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) }
    : undefined;
}

function readApiToken(env: Environment, prefix: string, host: string): string | undefined {
  const name = `${prefix}_API_TOKEN`;
  const token = env[name] || undefined;
  if (token === undefined) {
    if (isLoopback(host)) return undefined;
    throw new Error(
      `${name} is required to listen on ${host}, because every client there would have full access. Set it (create one with openssl rand -base64 32), or set ${prefix}_HOST=127.0.0.1`,
    );
  }
  if (token.length < MIN_TOKEN) {
    throw new Error(
      `${name} has ${token.length} characters but needs at least ${MIN_TOKEN}. Create one with openssl rand -base64 32`,
    );
  }
  if (!/^[!-~]+$/.test(token)) {
    throw new Error(
      `${name} contains characters that are not allowed in a header. Create one with openssl rand -base64 32`,
    );
  }
  return token;
}
