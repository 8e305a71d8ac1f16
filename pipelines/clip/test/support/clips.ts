// Test setup for clips: a separate database with the application's tables, stores in a folder, the API, and the compiled pipeline
// under real workers with runner processes.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import pg from "pg";
import type { Job, LogLine, Stillwake } from "stillwake";
import { createServer } from "stillwake/server";
import { waitFor } from "stillwake/testing";
import { type Credentials, createWorker, openStore, type WorkerOptions } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { type Caller, callAt, listen } from "../../../kit/test/support/api-server.ts";
import { type AppOptions, createApp, loginFor, migrate } from "../../src/app.ts";
import { clip } from "../../src/contract.ts";
import type { Clip, NewClipBody, RequestedClip, Upload } from "../../src/model.ts";
import { readSettings } from "../../src/settings.ts";
import { openSources } from "../../src/stages/sources.ts";

export const HOME = path.join(ROOT, "pipelines/clip");
export const PIPELINE = path.join(HOME, "dist/pipeline.js");
const LONG = 120_000;

export interface ClipSetup {
  url: string;
  pool: pg.Pool;
  stillwake: Stillwake;
  folder: string;
  store: string;
  origin: string;
  api: Caller;
  /** Texts of all responses so far. */
  responses: string[];
  internalErrors: unknown[];
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  upload(content: Uint8Array, name?: string): Promise<Upload>;
  request(body: NewClipBody): Promise<RequestedClip>;
  worker(options?: Partial<WorkerOptions>): ReturnType<typeof createWorker>;
  waitForEnd(id: string): Promise<Ended>;
  /** The content of an artifact, in a file of its name. */
  save(id: string, name: string): Promise<string>;
}

export interface Ended {
  clip: Clip;
  job: Job;
  logs: LogLine[];
  lines: string[];
}

export interface SetupOptions {
  /** Further settings. */
  env?: Record<string, string>;
  maxAttempts?: number;
  /** Where the application is mounted, and what its page offers. */
  app?: Pick<AppOptions, "base" | "sample">;
  /** The store of the workers. Default: a folder. */
  store?: { url: string; credentials?: Credentials };
}

/** Call it at the top of a file. */
export async function setUpClips({
  env: more = {},
  app: mount = {},
  ...options
}: SetupOptions = {}): Promise<ClipSetup> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "stillwake-clip-"));
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  await migrate(pool);
  const { url: store, credentials } = options.store ?? { url: `file:${path.join(folder, "artifacts")}` };
  const env: Record<string, string> = {
    CLIP_DATABASE_URL: await loginFor(pool, `clip_${randomUUID().slice(0, 8)}`),
    CLIP_SOURCES: `file:${path.join(folder, "sources")}`,
    CLIP_TOOL_CACHE: path.join(os.tmpdir(), "stillwake-clip-tools"),
    CLIP_ALLOW_ADDRESSES: "127.0.0.1/32 *",
    // That of Debian.
    CLIP_YTDLP_MIN_VERSION: "2023.03.04",
    ...more,
  };
  const live = createServer({
    url,
    store: openStore(store, credentials),
    secret: "a secret of more than thirty-two characters",
  });
  const { stillwake } = live;
  await stillwake.register(clip);
  const internalErrors: unknown[] = [];
  const responses: string[] = [];
  const settings = readSettings(env);
  const app = createApp({
    pool,
    stillwake,
    live: live.fetch,
    sources: openSources(settings.sources),
    limits: settings.limits,
    maxAttempts: options.maxAttempts,
    onError: (error) => void internalErrors.push(error),
    ...mount,
  });
  const { origin, close } = await listen(app);
  const api = callAt(`${origin}${mount.base ?? "/"}api`, (text) => void responses.push(text));
  beforeAll(() => buildPackage(), LONG);
  afterAll(async () => {
    await close();
    await live.close();
    await pool.end();
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  return {
    ...{ url, pool, stillwake, folder, store, origin, api, responses, internalErrors, env },
    async upload(content, name = "video.mp4") {
      const headers = { "content-type": "application/octet-stream" };
      const path = `/uploads?name=${encodeURIComponent(name)}`;
      return (await api.request(path, { method: "POST", headers, body: content as Uint8Array<ArrayBuffer> })).body;
    },
    async request(body) {
      const response = await api.post("/clips", body);
      if (response.status >= 300) throw new Error(`${response.status} ${response.text}`);
      return response.body;
    },
    worker: (options = {}) =>
      createWorker({
        ...{ url, pool: "clip", pipelines: PIPELINE, slots: 1, spareRunners: 0, grace: "500ms", store },
        scratch: path.join(folder, "scratch"),
        ...(credentials && { storeCredentials: credentials }),
        ...options,
        environment: { PATH: process.env.PATH ?? "", ...env, ...options.environment },
      }),
    async waitForEnd(id) {
      await waitFor(async () => (await stillwake.get(id)).endedAt !== null, {
        timeout: LONG,
        what: `clip ${id} to end`,
      });
      const logs = await stillwake.logs(id);
      const { body } = await api.get(`/clips/${id}`);
      const lines = logs.map(({ level, message }) => `${level} ${message}`);
      return { clip: body, job: await stillwake.get(id), logs, lines };
    },
    async save(id, name) {
      const file = path.join(folder, `${randomUUID()}-${name}`);
      fs.writeFileSync(file, await buffer(await stillwake.download(id, name)));
      return file;
    },
  };
}

/** Retries without pauses. */
export async function withoutBackoff(pool: pg.Pool): Promise<void> {
  await pool.query(
    `create function public.no_backoff() returns trigger language plpgsql as
       'begin new.backoff_initial := ''10 ms''; new.backoff_max := ''20 ms''; return new; end';
     create trigger no_backoff before insert or update on stillwake.pipelines for each row execute function public.no_backoff();
     update stillwake.pipelines set name = name`,
  );
}
