// What an operator sets for the server, read once from the environment: what is Stillwake's own under its names, what is the application's as EXTRACTION_…. Workers read
// settings.ts instead, and none of this.
import type { Credentials } from "stillwake/worker";
import { DEFAULT_ORGANIZATION } from "./api.ts";
import { isLoopback, LEAST_TOKEN } from "./web/access.ts";

export interface ServerSettings {
  databaseUrl: string;
  directUrl: string | undefined;
  host: string;
  port: number;
  base: string;
  token: string | undefined;
  organization: string;
  secret: string | undefined;
  sealKeys: string | undefined;
  store: string;
  storeCredentials: Credentials | undefined;
  /** Without one, machines are started by nobody here. */
  fly: FlySettings | undefined;
}

interface FlySettings {
  app: string;
  token: string | undefined;
  image: string | undefined;
  size: string;
  memoryMb: number;
  region: string;
  warm: number;
  max: number;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** All that is needed to bring the tables. */
export function readDatabaseUrl(env: NodeJS.ProcessEnv = process.env): string {
  return need(env, "STILLWAKE_DATABASE_URL", "where projects and jobs are, such as postgres://…");
}

export function readServerSettings(env: NodeJS.ProcessEnv = process.env): ServerSettings {
  const number = (name: string, fallback: number, least: number) => {
    const value = Number(env[name] || fallback);
    if (Number.isInteger(value) && value >= least) return value;
    throw new Error(`${name} is "${env[name]}" and should be a whole number, ${least} at least`);
  };
  const host = env.EXTRACTION_HOST || "127.0.0.1";
  const token = env.EXTRACTION_API_TOKEN || undefined;
  if (token === undefined && !isLoopback(host)) {
    throw new Error(
      `Without EXTRACTION_API_TOKEN it cannot listen on ${host}: everybody there could do everything. Set it (openssl rand -base64 32 makes one), or EXTRACTION_HOST=127.0.0.1`,
    );
  }
  if (token !== undefined && token.length < LEAST_TOKEN) {
    throw new Error(
      `EXTRACTION_API_TOKEN has ${token.length} characters and needs ${LEAST_TOKEN} at least: openssl rand -base64 32`,
    );
  }
  if (token !== undefined && !/^[!-~]+$/.test(token)) {
    throw new Error(
      "EXTRACTION_API_TOKEN has characters that no header can carry: openssl rand -base64 32 makes one without",
    );
  }
  const organization = (env.EXTRACTION_ORGANIZATION || DEFAULT_ORGANIZATION).toLowerCase();
  if (!UUID.test(organization)) throw new Error("EXTRACTION_ORGANIZATION is not a UUID");
  const app = env.EXTRACTION_FLY_APP;
  return {
    databaseUrl: readDatabaseUrl(env),
    directUrl: env.STILLWAKE_DIRECT_URL || undefined,
    host,
    port: number("EXTRACTION_PORT", 4800, 0),
    base: env.EXTRACTION_BASE || "/",
    token,
    organization,
    secret: env.STILLWAKE_SECRET || undefined,
    sealKeys: env.STILLWAKE_SEAL_KEYS || undefined,
    store: need(
      env,
      "STILLWAKE_STORE",
      "where workers keep reports, such as s3://…, or file:./artifacts on one machine",
    ),
    storeCredentials: credentialsOf(env),
    fly: app
      ? {
          app,
          token: env.EXTRACTION_FLY_TOKEN || undefined,
          image: env.EXTRACTION_FLY_IMAGE || undefined,
          size: env.EXTRACTION_FLY_SIZE || "performance-8x",
          memoryMb: number("EXTRACTION_FLY_MEMORY_MB", 65_536, 256),
          region: env.EXTRACTION_FLY_REGION || "iad",
          warm: number("EXTRACTION_WARM_MACHINES", 3, 0),
          max: number("EXTRACTION_MAX_MACHINES", 5, 1),
        }
      : undefined,
  };
}

function need(env: NodeJS.ProcessEnv, name: string, why: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set: ${why}`);
}

function credentialsOf(env: NodeJS.ProcessEnv): Credentials | undefined {
  const accessKeyId = env.STILLWAKE_STORE_ACCESS_KEY_ID || env.AWS_ACCESS_KEY_ID;
  const secretAccessKey = env.STILLWAKE_STORE_SECRET_ACCESS_KEY || env.AWS_SECRET_ACCESS_KEY;
  const sessionToken = env.STILLWAKE_STORE_SESSION_TOKEN || env.AWS_SESSION_TOKEN;
  return accessKeyId && secretAccessKey
    ? { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) }
    : undefined;
}
