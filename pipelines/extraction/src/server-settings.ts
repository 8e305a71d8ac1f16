// Settings of the server, read from the environment: Stillwake's variables and EXTRACTION_…. Workers read settings.ts.
import type { Environment } from "@stillwake/kit/settings";
import {
  readDatabaseUrl as databaseUrlOf,
  readInteger,
  readStoreCredentials,
  readWebSettings,
  requireVariable,
  type WebSettings,
} from "@stillwake/kit/web/server-settings";
import type { Credentials } from "stillwake/worker";
import { DEFAULT_ORGANIZATION } from "./api.ts";

export interface ServerSettings extends WebSettings {
  organization: string;
  sealKeys: string | undefined;
  store: string;
  storeCredentials: Credentials | undefined;
  /** Undefined: this server starts no machines. */
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

const CONTENTS = "projects and jobs";

/** The only setting that --migrate needs. */
export function readDatabaseUrl(): string {
  return databaseUrlOf(process.env, CONTENTS);
}

export function readServerSettings(env: Environment = process.env): ServerSettings {
  const web = readWebSettings(env, { prefix: "EXTRACTION", port: 4800, contents: CONTENTS });
  const organization = (env.EXTRACTION_ORGANIZATION || DEFAULT_ORGANIZATION).toLowerCase();
  if (!UUID.test(organization)) throw new Error("EXTRACTION_ORGANIZATION must be a UUID");
  const app = env.EXTRACTION_FLY_APP;
  return {
    ...web,
    organization,
    sealKeys: env.STILLWAKE_SEAL_KEYS || undefined,
    store: requireVariable(
      env,
      "STILLWAKE_STORE",
      "where workers store reports, such as s3://…, or file:./artifacts on one machine",
    ),
    storeCredentials: readStoreCredentials(env),
    fly: app
      ? {
          app,
          token: env.EXTRACTION_FLY_TOKEN || undefined,
          image: env.EXTRACTION_FLY_IMAGE || undefined,
          size: env.EXTRACTION_FLY_SIZE || "performance-8x",
          memoryMb: readInteger(env, "EXTRACTION_FLY_MEMORY_MB", 65_536, 256),
          region: env.EXTRACTION_FLY_REGION || "iad",
          warm: readInteger(env, "EXTRACTION_WARM_MACHINES", 3, 0),
          max: readInteger(env, "EXTRACTION_MAX_MACHINES", 5, 1),
        }
      : undefined,
  };
}
