// An extraction that needs no network, for `npm start`: the sample repository behind a git server of this machine, the application's tables, and its page.
import fs from "node:fs/promises";
import path from "node:path";
import { serveSample } from "@stillwake/kit/demo/git-server";
import pg from "pg";
import type { DevPlace } from "stillwake";
import { createApp } from "../app.ts";
import { readSettings } from "../settings.ts";
import { loginFor, migrate } from "../tables.ts";
import { makeSampleRepository, SAMPLE, SAMPLES } from "./sample.ts";

export interface Application {
  /** For the pipeline's code. */
  env: Record<string, string>;
  line: string;
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

export async function startExtraction(place: DevPlace & { base: string }): Promise<Application> {
  const home = path.join(place.dir, "extraction");
  await fs.mkdir(home, { recursive: true });
  const pool = new pg.Pool({ connectionString: place.url, max: 4, idleTimeoutMillis: 5000 });
  pool.on("error", () => {});
  await migrate(pool);
  const login = await loginFor(pool, "extraction_dev");
  const repositories = path.join(home, "repositories");
  const git = await serveSample({ root: repositories, toolPath: readSettings().toolPath }, makeSampleRepository);
  const app = createApp({
    pool,
    stillwake: place.stillwake,
    live: async (request) => place.fetch(request),
    base: place.base,
    ...(git && { sample: SAMPLE }),
  });
  return {
    env: {
      EXTRACTION_DATABASE_URL: login,
      EXTRACTION_CACHE: path.join(home, "cache"),
      EXTRACTION_ADVISORIES: path.join(SAMPLES, "advisories"),
      EXTRACTION_EPSS: path.join(SAMPLES, "epss.csv"),
      EXTRACTION_KEV: path.join(SAMPLES, "kev.json"),
      ...(git && {
        EXTRACTION_MIRRORS: `${SAMPLE.provider}:${SAMPLE.repository.split("/")[0]}=${git.url}`,
        EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
      }),
    },
    line: git
      ? "A repository can be extracted with one click, without a network:"
      : "Repositories can be extracted as soon as git is installed:",
    fetch: (request) => app.fetch(request),
    async close() {
      await git?.close();
      await pool.end();
    },
  };
}
