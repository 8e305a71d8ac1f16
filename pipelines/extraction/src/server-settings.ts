// What an operator sets for the server, read once from the environment: what is Stillwake's own under its names, what is the application's as EXTRACTION_…. Workers read
// settings.ts instead, and none of this.
import type { Environment } from "@stillwake/kit/settings";
import {
  readDatabaseUrl as databaseUrlOf,
  need,
  readWebSettings,
  storeCredentialsOf,
  type WebSettings,
  wholeNumber,
} from "@stillwake/kit/web/server-settings";
import type { Credentials } from "stillwake/worker";
import { DEFAULT_ORGANIZATION } from "./api.ts";

export interface ServerSettings extends WebSettings {
  organization: string;
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

const HOLDS = "projects and jobs";

/** All that is needed to bring the tables. */
export function readDatabaseUrl(): string {
  return databaseUrlOf(process.env, HOLDS);
}

export function readServerSettings(env: Environment = process.env): ServerSettings {
  const web = readWebSettings(env, { prefix: "EXTRACTION", port: 4800, holds: HOLDS });
  const organization = (env.EXTRACTION_ORGANIZATION || DEFAULT_ORGANIZATION).toLowerCase();
  if (!UUID.test(organization)) throw new Error("EXTRACTION_ORGANIZATION is not a UUID");
  const app = env.EXTRACTION_FLY_APP;
  return {
    ...web,
    organization,
    sealKeys: env.STILLWAKE_SEAL_KEYS || undefined,
    store: need(
      env,
      "STILLWAKE_STORE",
      "where workers keep reports, such as s3://…, or file:./artifacts on one machine",
    ),
    storeCredentials: storeCredentialsOf(env),
    fly: app
      ? {
          app,
          token: env.EXTRACTION_FLY_TOKEN || undefined,
          image: env.EXTRACTION_FLY_IMAGE || undefined,
          size: env.EXTRACTION_FLY_SIZE || "performance-8x",
          memoryMb: wholeNumber(env, "EXTRACTION_FLY_MEMORY_MB", 65_536, 256),
          region: env.EXTRACTION_FLY_REGION || "iad",
          warm: wholeNumber(env, "EXTRACTION_WARM_MACHINES", 3, 0),
          max: wholeNumber(env, "EXTRACTION_MAX_MACHINES", 5, 1),
        }
      : undefined,
  };
}
