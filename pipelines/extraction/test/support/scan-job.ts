// Test setup for one scan as a separate job on a real worker.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain } from "@stillwake/kit/failures";
import pg from "pg";
import { createStillwake, type Job, pipeline, type Stillwake } from "stillwake";
import { createWorker, implement, type JobContext, type StepHandle } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { migrate } from "../../src/app.ts";
import type { Finding } from "../../src/model.ts";
import { readSettings, type Settings } from "../../src/settings.ts";

type Scan = (step: StepHandle, options: { directory: string; settings: Settings }) => Promise<Finding[]>;

interface ScanResult {
  /** Undefined if the scan failed. */
  found: Finding[] | undefined;
  /** "warning Static analysis …" */
  lines: string[];
  job: Job;
}

interface ScanSetup {
  folder: string;
  store: string;
  /** With the application's tables. */
  pool: pg.Pool;
  /** For jobs that are not awaited. */
  stillwake: Stillwake;
  /** Creates a folder with these files; content that begins with "-> " is a link. */
  repository(files: Record<string, string | Uint8Array>): string;
  /** Creates a folder of programs for EXTRACTION_TOOL_PATH. */
  tools(programs: Record<string, string>): string;
  scan(scan: Scan, directory: string, env?: Record<string, string>): Promise<ScanResult>;
  /** Runs any code as a job. */
  run(code: (job: JobContext) => Promise<unknown>): Promise<{ job: Job; lines: string[] }>;
  /** Starts any code as a job; returns its id. */
  start(code: (job: JobContext) => Promise<unknown>): Promise<string>;
  /** Every row of every table, as text. */
  databaseText(): Promise<string>;
}

/** Call it at the top of a file. */
export async function setUpScans(): Promise<ScanSetup> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-search-"));
  const store = path.join(folder, "artifacts");
  const empty = path.join(folder, "no-tools");
  fs.mkdirSync(empty);
  const codes = new Map<string, (job: JobContext) => Promise<unknown>>();
  const contract = pipeline<{ code: string }>("search", { retry: { attempts: 1 } });
  const worker = createWorker({
    url,
    isolation: "none",
    pipelines: [implement(contract, (job, { code }) => codes.get(code)!(job), { explain })],
    store: `file:${store}`,
    scratch: path.join(folder, "scratch"),
    poll: "50ms",
  });
  const stillwake = createStillwake({ url });
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  pool.on("error", () => {});
  await migrate(pool);
  beforeAll(() => worker.start());
  afterAll(async () => {
    await worker.stop();
    await stillwake.close();
    await pool.end();
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  const self: ScanSetup = {
    folder,
    store,
    pool,
    stillwake,
    repository(files) {
      const directory = fs.mkdtempSync(path.join(folder, "source-"));
      for (const [name, content] of Object.entries(files)) {
        const file = path.join(directory, name);
        fs.mkdirSync(path.dirname(file), { recursive: true });
        if (typeof content === "string" && content.startsWith("-> ")) fs.symlinkSync(content.slice(3), file);
        else fs.writeFileSync(file, content);
      }
      return directory;
    },
    tools(programs) {
      const directory = fs.mkdtempSync(path.join(folder, "tools-"));
      for (const [name, text] of Object.entries(programs))
        fs.writeFileSync(path.join(directory, name), text, { mode: 0o755 });
      return directory;
    },
    async scan(scan, directory, env = {}) {
      let found: Finding[] | undefined;
      const ran = await self.run(async (job) => {
        const settings = readSettings({ EXTRACTION_TOOL_PATH: empty, ...env });
        await job.optional("scan", async (step) => {
          found = await scan(step, { directory, settings });
        });
      });
      return { found, ...ran };
    },
    async run(code) {
      const id = await self.start(code);
      const job = await stillwake.wait(id, { timeout: "60s" });
      return { job, lines: (await stillwake.logs(id)).map(({ level, message }) => `${level} ${message}`) };
    },
    async start(code) {
      const name = randomUUID();
      codes.set(name, code);
      return (await stillwake.enqueue(contract, { code: name })).id;
    },
    async databaseText() {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      try {
        const { rows: tables } = await client.query<{ name: string }>(
          "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema')",
        );
        let all = "";
        for (const { name } of tables) {
          const { rows } = await client.query<{ text: string }>(`select t::text as text from ${name} t`);
          all += rows.map(({ text }) => text).join("\n");
        }
        return all;
      } finally {
        await client.end();
      }
    },
  };
  return self;
}

/** The text of a Node program. */
export function nodeScript(body: string): string {
  return `#!/usr/bin/env node\n${body}\n`;
}
