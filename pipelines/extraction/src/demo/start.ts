// Starts the extraction for `npm start` without a network: tables, page, and a local git server with the sample repository.
import fs from "node:fs/promises";
import path from "node:path";
import { serveSample } from "@stillwake/kit/demo/git-server";
import pg from "pg";
import type { DevPlace } from "stillwake";
import { createApp, loginFor, migrate } from "../app.ts";
import { readSettings } from "../settings.ts";
import { makeSampleRepository, SAMPLE, SAMPLES } from "./sample.ts";

export interface Application {
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  line: string;
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

export async function startExtraction(dev: DevPlace & { base: string }): Promise<Application> {
  const home = path.join(dev.dir, "extraction");
  await fs.mkdir(home, { recursive: true });
  const pool = new pg.Pool({ connectionString: dev.url, max: 4, idleTimeoutMillis: 5000 });
  pool.on("error", () => {});
  await migrate(pool);
  const login = await loginFor(pool, "extraction_dev");
  const repositories = path.join(home, "repositories");
  const git = await serveSample({ root: repositories, toolPath: readSettings().toolPath }, makeSampleRepository);
  const app = createApp({
    pool,
    stillwake: dev.stillwake,
    live: async (request) => dev.fetch(request),
    base: dev.base,
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
