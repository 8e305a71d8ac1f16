// Test setup for the clone step as a separate job on a real worker.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain, logJobFailure, logStepFailure } from "@stillwake/kit/failures";
import { createStillwake, JobFailed, newSealKey, pipeline } from "stillwake";
import { type RanJob, type RunJobOptions, runJob } from "stillwake/testing";
import { createWorker, implement, type JobContext, type StepHandle } from "stillwake/worker";
import { afterAll, beforeAll } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { type FaultyGitServer, faultyGitServer } from "../../../kit/test/support/git-server.ts";
import { cloneRepository, restoreCheckout, SOURCE, type Source } from "../../src/clone/clone.ts";
import { type Input, input as schema } from "../../src/contract.ts";
import type { Checkout } from "../../src/model.ts";
import { readSettings } from "../../src/settings.ts";

export interface CloneOptions {
  input?: Partial<Input>;
  /** Environment from which the settings are read. */
  env?: Record<string, string>;
  /** Called after the clone, before the files are used. */
  between?(): void;
  /** Deletes the files after the clone, as if on another machine. */
  loseFiles?: boolean;
  /** Called with the directory of the files. */
  inspect?(directory: string): unknown;
}

export type CloneResult = Pick<RanJob, "job" | "logs">;

export interface CloneSetup {
  url: string;
  /** Folder of this test file; removed at its end. */
  folder: string;
  scratch: string;
  server: FaultyGitServer;
  /** On a worker that all jobs of the file share. */
  clone(options?: CloneOptions): Promise<CloneResult>;
  /** On a separate worker. */
  cloneOnOwnWorker(options: CloneOptions, run: Partial<RunJobOptions>): Promise<RanJob>;
}

export async function setUpClones({ token }: { token?: string } = {}): Promise<CloneSetup> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-clone-"));
  const scratch = path.join(folder, "scratch");
  const root = path.join(folder, "repositories");
  for (const directory of [scratch, root]) fs.mkdirSync(directory);
  const server = await faultyGitServer({ root, ...(token && { token }) });
  const baseEnv = {
    EXTRACTION_GITHUB_URL: server.url,
    EXTRACTION_GITLAB_URL: server.url,
    EXTRACTION_BITBUCKET_URL: server.url,
    EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
  };
  const optionsByProject = new Map<string, CloneOptions>();
  const inputFor = (options: CloneOptions): Input => {
    const projectId = randomUUID();
    optionsByProject.set(projectId, options);
    return schema.parse({ projectId, organizationId: randomUUID(), repository: "acme/site", ...options.input });
  };
  const codeOf = (name: string, attempts: number) =>
    implement(
      pipeline(name, { input: schema, sealed: ["credential"], pool: name, retry: { attempts } }),
      (job, input) =>
        cloneAndInspect(
          job,
          input,
          { ...baseEnv, ...optionsByProject.get(input.projectId)?.env },
          optionsByProject.get(input.projectId),
        ),
      { explain },
    );

  const code = codeOf("clone-1", 1);
  const sealKeys = `test:${newSealKey()}`;
  const stillwake = createStillwake({ url, sealKeys });
  const worker = createWorker({ url, sealKeys, scratch, pool: "clone-1", pipelines: [code], slots: 6 });
  beforeAll(() => worker.start());
  afterAll(async () => {
    await worker.stop();
    await stillwake.close();
    await server.close();
    fs.rmSync(folder, { recursive: true, force: true });
  });
  return {
    url,
    folder,
    scratch,
    server,
    async clone(options = {}) {
      const { id } = await stillwake.enqueue(code.pipeline, inputFor(options));
      await stillwake.wait(id, { timeout: "25s" }).catch((error) => {
        if (!(error instanceof JobFailed)) throw error;
      });
      return { job: await stillwake.get(id), logs: await stillwake.logs(id) };
    },
    cloneOnOwnWorker: (options, { worker: own, ...run }) =>
      // A separate pool, so that no job of another test is claimed.
      runJob(codeOf(`alone-${randomUUID()}`, 2), inputFor(options), {
        url,
        worker: { sealKeys, scratch: `${scratch}-alone`, ...own },
        ...run,
      }),
  };
}

function cloneAndInspect(job: JobContext, input: Input, env: Record<string, string>, options: CloneOptions = {}) {
  return logJobFailure(job, "Extraction", async () => {
    const source: Source = { input, settings: readSettings(env), redact: (value) => job.secret(value) };
    const messages = { start: "Cloning repository...", end: "Repository cloned successfully" };
    const checkout = await job.step<Checkout>("cloning", messages, (step: StepHandle) =>
      logStepFailure(step, () => cloneRepository(step, source)),
    );
    options.between?.();
    if (options.loseFiles) fs.rmSync(path.join(await job.scratch(), SOURCE), { recursive: true });
    await job.step("looking", (step: StepHandle) =>
      logStepFailure(step, async () => {
        await options.inspect?.(await restoreCheckout(job, source, checkout));
      }),
    );
    return checkout;
  });
}

/** Content of all files by path; links by their target. */
export function filesIn(directory: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const entry of fs.readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    const name = path.relative(directory, file);
    if (entry.isSymbolicLink()) found[name] = `-> ${fs.readlinkSync(file)}`;
    else if (entry.isFile()) found[name] = fs.readFileSync(file, "utf8");
  }
  return found;
}

/** Log lines of the levels error and warning. */
export function warningsAndErrors({ logs }: CloneResult): string[] {
  return logs
    .filter(({ level }) => level === "error" || level === "warning")
    .map(({ level, message }) => `${level}: ${message}`);
}
