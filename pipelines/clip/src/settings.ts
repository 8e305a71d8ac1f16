// Settings of the workers and of the server, read from the environment. worker-settings.ts has those of the worker process.
import os from "node:os";
import path from "node:path";
import { type Environment, preferOwnSettings, readVariables } from "@stillwake/kit/settings";
import * as web from "@stillwake/kit/web/server-settings";
import type { Credentials } from "stillwake/worker";

/** The store of uploads and downloads, separate from that of the workers because pipeline code reads and writes it. */
export interface SourcesSettings {
  url: string;
  credentials: Credentials | undefined;
}

export interface Settings {
  /** Login of the pipeline code; it never gets the worker's login. */
  databaseUrl: string;
  sources: SourcesSettings;
  /** Non-public networks that sources may be fetched from, such as "10.0.0.0/8". */
  allowAddresses: string[];
  /** PATH to find ffmpeg, ffprobe and yt-dlp. */
  toolPath: string;
  /** Folder for programs of npm packages that npm has installed without the right to run them. */
  toolCache: string;
  /** Older versions of yt-dlp are refused. */
  ytDlpMinVersion: string;
  limits: Limits;
}

export interface Limits {
  sourceBytes: number;
  clipSeconds: number;
  /** Width times height. */
  pixels: number;
  resolveMs: number;
  clipMs: number;
  uploadMs: number;
  asrMs: number;
  finalizeMs: number;
  /** Without a byte of a download, or output of a program. */
  silenceMs: number;
}

const MB = 2 ** 20;
const CONTENTS = "clips and jobs";

/** For `npm start`: what the environment sets is kept; the sample adds to it. */
export function settingsOfSample(sample: Record<string, string>): Record<string, string> {
  return preferOwnSettings(sample, process.env);
}

export function readSettings(env: Environment = process.env): Settings {
  const { text, number, seconds, list } = readVariables("CLIP", env);
  return {
    databaseUrl: text("DATABASE_URL", ""),
    sources: readSources(env),
    allowAddresses: list("ALLOW_ADDRESSES"),
    toolPath: text("TOOL_PATH", env.PATH ?? ""),
    toolCache: text("TOOL_CACHE", path.join(os.tmpdir(), `clip-tools-${os.userInfo().uid}`)),
    // Earlier versions take a proxy from the fragment of a URL, also from that of a redirect or of a link in a page.
    ytDlpMinVersion: text("YTDLP_MIN_VERSION", "2023.11.14"),
    limits: {
      sourceBytes: number("SOURCE_MB", 2048) * MB,
      clipSeconds: number("CLIP_SECONDS", 600),
      pixels: number("PIXELS", 8192 * 4320),
      resolveMs: seconds("RESOLVE_TIMEOUT_SEC", 1800),
      clipMs: seconds("CLIP_TIMEOUT_SEC", 1800),
      uploadMs: seconds("UPLOAD_TIMEOUT_SEC", 900),
      asrMs: seconds("ASR_TIMEOUT_SEC", 1800),
      finalizeMs: seconds("FINALIZE_TIMEOUT_SEC", 1800),
      silenceMs: seconds("SILENCE_SEC", 60),
    },
  };
}

/** Without the credentials of the pipeline. By its tag the worker finds and kills a program whose runner has died. */
export function environmentOfPrograms({ PATH, LANG, STILLWAKE_PROCESS_TAG }: Environment = process.env) {
  return { PATH, LANG, STILLWAKE_PROCESS_TAG };
}

function readSources(env: Environment): SourcesSettings {
  const { CLIP_SOURCES_ACCESS_KEY_ID: accessKeyId, CLIP_SOURCES_SECRET_ACCESS_KEY: secretAccessKey } = env;
  return {
    url: env.CLIP_SOURCES || "",
    credentials: accessKeyId && secretAccessKey ? { accessKeyId, secretAccessKey } : undefined,
  };
}

export interface ServerSettings extends web.WebSettings {
  sources: SourcesSettings;
  limits: Limits;
  /** Attempts of a job. */
  maxAttempts: number | undefined;
  /** The store of the workers, for the finished files. */
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
  slots: number;
}

/** The only setting that --migrate needs. */
export function readDatabaseUrl(): string {
  return web.readDatabaseUrl(process.env, CONTENTS);
}

export function readServerSettings(env: Environment = process.env): ServerSettings {
  const { sources, limits } = readSettings(env);
  web.requireVariable(
    env,
    "CLIP_SOURCES",
    "where uploads are stored, such as s3://…, or file:./sources on one machine",
  );
  const app = env.CLIP_FLY_APP;
  return {
    ...web.readWebSettings(env, { prefix: "CLIP", port: 4802, contents: CONTENTS }),
    sources,
    limits,
    maxAttempts: env.MAX_ATTEMPTS ? web.readInteger(env, "MAX_ATTEMPTS", 3, 1) : undefined,
    store: web.requireVariable(
      env,
      "STILLWAKE_STORE",
      "where workers store clips, such as s3://…, or file:./artifacts on one machine",
    ),
    storeCredentials: web.readStoreCredentials(env),
    fly: app
      ? {
          app,
          token: env.CLIP_FLY_TOKEN || undefined,
          image: env.CLIP_FLY_IMAGE || undefined,
          size: env.CLIP_FLY_SIZE || "performance-2x",
          memoryMb: web.readInteger(env, "CLIP_FLY_MEMORY_MB", 4096, 256),
          region: env.CLIP_FLY_REGION || "iad",
          warm: web.readInteger(env, "CLIP_WARM_MACHINES", 1, 0),
          max: web.readInteger(env, "CLIP_MAX_MACHINES", 5, 1),
          slots: web.readInteger(env, "MAX_CONCURRENCY", 2, 1),
        }
      : undefined,
  };
}
