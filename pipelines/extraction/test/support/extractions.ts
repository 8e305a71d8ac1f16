// Test setup for whole extractions: a separate database with the application's tables, a project per extraction, and the compiled
// pipeline under a real worker with runner processes. Scripts replace tools that are not installed.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { createStillwake, type Job, type LogLine, newSealKey, type Stillwake } from "stillwake";
import { waitFor } from "stillwake/testing";
import { createWorker, openStore, type WorkerOptions } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { loginFor, migrate } from "../../src/app.ts";
import { extraction, type Input } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";

export const HOME = path.join(ROOT, "pipelines/extraction");
export const PIPELINE = path.join(HOME, "dist/pipeline.js");
const LONG = 120_000;

export interface Extracted {
  job: Job;
  logs: LogLine[];
  /** "error Repository not found - …" */
  lines: string[];
}

export interface ExtractOptions {
  env?: Record<string, string>;
  worker?: Partial<WorkerOptions>;
  /** Scripts by the names of the tools they replace. No other tools are found except git. */
  tools?: Record<string, string>;
}

export interface ExtractionSetup {
  url: string;
  pool: pg.Pool;
  stillwake: Stillwake;
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  folder: string;
  store: string;
  project(): Promise<string>;
  input(fields: Partial<Input> & { repository: string }): Promise<Input>;
  /** Enqueues an extraction and runs a worker until it has ended. */
  extract(fields: Partial<Input> & { repository: string }, options?: ExtractOptions): Promise<Extracted>;
  worker(options?: ExtractOptions): ReturnType<typeof createWorker>;
  waitForJob(id: string): Promise<Extracted>;
}

/** Call it at the top of a file. */
export async function setUpExtractions(): Promise<ExtractionSetup> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-"));
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  const env: Record<string, string> = {
    EXTRACTION_CACHE: path.join(folder, "cache"),
    EXTRACTION_ADVISORIES: path.join(SAMPLES, "advisories"),
    EXTRACTION_EPSS: path.join(SAMPLES, "epss.csv"),
    EXTRACTION_KEV: path.join(SAMPLES, "kev.json"),
    EXTRACTION_OSV_URL: "none",
  };
  const store = `file:${path.join(folder, "artifacts")}`;
  const sealKeys = `test:${newSealKey()}`;
  const stillwake = createStillwake({ url, sealKeys, store: openStore(store) });
  beforeAll(() => buildPackage(), LONG);
  afterAll(async () => {
    await stillwake.close();
    await pool.end();
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  await migrate(pool);
  env.EXTRACTION_DATABASE_URL = await loginFor(pool, `extraction_${randomUUID().slice(0, 8)}`);

  const project = async () => {
    const { rows } = await pool.query(
      "insert into extraction.projects (organization_id, name) values ($1, 'a project') returning id, organization_id",
      [randomUUID()],
    );
    await pool.query(
      "insert into extraction.repositories (project_id, provider, full_name) values ($1, 'github', 'a/b')",
      [rows[0].id],
    );
    return rows[0].id as string;
  };
  const self: ExtractionSetup = {
    url,
    pool,
    stillwake,
    env,
    folder,
    store,
    project,
    async input(fields) {
      return {
        provider: "github",
        packagePath: ".",
        organizationId: randomUUID(),
        ...fields,
        projectId: fields.projectId ?? (await project()),
      };
    },
    worker({ env: extraEnv = {}, worker = {}, tools } = {}) {
      const { PATH = "" } = process.env;
      const toolPath = tools && writeTools(folder, tools);
      return createWorker({
        url,
        sealKeys,
        pool: "scan",
        pipelines: PIPELINE,
        store,
        slots: 1,
        spareRunners: 0,
        grace: "500ms",
        environment: { PATH, ...env, EXTRACTION_TOOL_PATH: toolPath ?? path.join(folder, "no-tools"), ...extraEnv },
        ...worker,
      });
    },
    async extract(fields, options = {}) {
      const worker = self.worker(options);
      await worker.start();
      // Backoff is not tested here.
      await pool.query("update stillwake.pipelines set backoff_initial = '10ms', backoff_max = '20ms'");
      try {
        const { id } = await stillwake.enqueue(extraction, await self.input(fields));
        return await self.waitForJob(id);
      } finally {
        await worker.stop();
      }
    },
    async waitForJob(id) {
      await waitFor(async () => ["completed", "failed", "cancelled"].includes((await stillwake.get(id)).state), {
        timeout: LONG,
        what: `extraction ${id} to end`,
      });
      const job = await stillwake.get(id);
      const logs = await stillwake.logs(id);
      return { job, logs, lines: logs.map(({ level, message }) => `${level} ${message}`) };
    },
  };
  return self;
}

function writeTools(folder: string, tools: Record<string, string>): string {
  const directory = fs.mkdtempSync(path.join(folder, "tools-"));
  for (const [name, script] of Object.entries(tools)) {
    fs.writeFileSync(path.join(directory, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  return directory;
}
