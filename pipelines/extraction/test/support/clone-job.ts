// The first step of an extraction, as a job of its own on the real engine: what is cloned, what is said, and what is left.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain, saying, sayingIn } from "@stillwake/kit/failures";
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
  /** Variables of the worker's environment that the settings are read from. */
  env?: Record<string, string>;
  /** Happens between the clone and the next need of its files. */
  between?(): void;
  /** The files are lost by then, as with another machine. */
  lose?: boolean;
  /** Looks at the files while they are there. */
  look?(directory: string): unknown;
}

export type Cloned = Pick<RanJob, "job" | "logs">;

export interface Cloning {
  url: string;
  /** Of this test file alone; gone at its end. */
  folder: string;
  scratch: string;
  server: FaultyGitServer;
  /** By a worker that all of the file's jobs share. */
  clone(options?: CloneOptions): Promise<Cloned>;
  /** By a worker of its own. */
  cloneAlone(options: CloneOptions, run: Partial<RunJobOptions>): Promise<RanJob>;
}

export async function cloning({ token }: { token?: string } = {}): Promise<Cloning> {
  const { url } = await freshDatabase();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-clone-"));
  const scratch = path.join(folder, "scratch");
  const root = path.join(folder, "repositories");
  for (const made of [scratch, root]) fs.mkdirSync(made);
  const server = await faultyGitServer({ root, ...(token && { token }) });
  const usual = {
    EXTRACTION_GITHUB_URL: server.url,
    EXTRACTION_GITLAB_URL: server.url,
    EXTRACTION_BITBUCKET_URL: server.url,
    EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
  };
  /** What was asked for, by the project it was asked for in. */
  const wishes = new Map<string, CloneOptions>();
  const wish = (options: CloneOptions): Input => {
    const projectId = randomUUID();
    wishes.set(projectId, options);
    return schema.parse({ projectId, organizationId: randomUUID(), repository: "acme/site", ...options.input });
  };
  const codeOf = (name: string, attempts: number) =>
    implement(
      pipeline(name, { input: schema, sealed: ["credential"], pool: name, retry: { attempts } }),
      (job, input) =>
        cloneAndLook(job, input, { ...usual, ...wishes.get(input.projectId)?.env }, wishes.get(input.projectId)),
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
      const { id } = await stillwake.enqueue(code.pipeline, wish(options));
      await stillwake.wait(id, { timeout: "25s" }).catch((error) => {
        if (!(error instanceof JobFailed)) throw error;
      });
      return { job: await stillwake.get(id), logs: await stillwake.logs(id) };
    },
    cloneAlone: (options, { worker: own, ...run }) =>
      // A pool of its own: a worker that is about to leave takes no other test's job along.
      runJob(codeOf(`alone-${randomUUID()}`, 2), wish(options), {
        url,
        worker: { sealKeys, scratch: `${scratch}-alone`, ...own },
        ...run,
      }),
  };
}

function cloneAndLook(job: JobContext, input: Input, env: Record<string, string>, options: CloneOptions = {}) {
  return saying(job, "Extraction", async () => {
    const source: Source = { input, settings: readSettings(env), hide: (value) => job.secret(value) };
    const words = { start: "Cloning repository...", end: "Repository cloned successfully" };
    const checkout = await job.step<Checkout>("cloning", words, (step: StepHandle) =>
      sayingIn(step, () => cloneRepository(step, source)),
    );
    options.between?.();
    if (options.lose) fs.rmSync(path.join(await job.scratch(), SOURCE), { recursive: true });
    await job.step("looking", (step: StepHandle) =>
      sayingIn(step, async () => {
        await options.look?.(await restoreCheckout(job, source, checkout));
      }),
    );
    return checkout;
  });
}

/** Every file below, by its path, with what is in it; links by their target. */
export function filesIn(directory: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const entry of fs.readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const place = path.join(entry.parentPath, entry.name);
    const name = path.relative(directory, place);
    if (entry.isSymbolicLink()) found[name] = `-> ${fs.readlinkSync(place)}`;
    else if (entry.isFile()) found[name] = fs.readFileSync(place, "utf8");
  }
  return found;
}

/** The lines of a job that are red or yellow. */
export function troubles({ logs }: Cloned): string[] {
  return logs
    .filter(({ level }) => level === "error" || level === "warning")
    .map(({ level, message }) => `${level}: ${message}`);
}
