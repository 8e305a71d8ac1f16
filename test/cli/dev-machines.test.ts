// `stillwake dev` in a project whose pools have machines: locally they are processes that start and stop with the work.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { findProcesses } from "../support/providers/provider-cases.ts";

const dir = temporaryDirectory("dev-machines");
const LONG = 60_000;
const MARK = `DEV_OF_TEST=${dir}`;
const machines = () =>
  findProcesses(MARK).filter(({ pid, session, variables }) => pid === session && "STILLWAKE_MACHINE" in variables);

beforeAll(() => {
  buildPackage();
  fs.writeFileSync(
    path.join(dir, "pipelines.mjs"),
    `import { pipeline } from "${ROOT}/dist/index.js";
import { implement } from "${ROOT}/dist/worker/index.js";
const wait = (job, { ms }) => job.step("wait", {}, (step) => new Promise((resolve, reject) => {
  setTimeout(resolve, ms, "waited");
  step.signal.addEventListener("abort", () => reject(step.signal.reason));
}));
export const small = implement(pipeline("small"), wait);
export const large = implement(pipeline("large", { pool: "heavy" }), wait);
const look = async () => [process.env.PART_OF_TEST, new URL(process.env.DATABASE_URL).protocol].join(" ");
export const here = implement(pipeline("here"), look);
export const there = implement(pipeline("there", { pool: "heavy" }), look);
`,
  );
  // The provider of the configuration is not called in `stillwake dev`.
  fs.writeFileSync(
    path.join(dir, "stillwake.config.mjs"),
    `const provider = () => { throw new Error("This provider must not be called"); };
export default { pipelines: "./pipelines.mjs", pools: { heavy: { provider, warm: 1, max: 2, idleExit: "500ms" } },
  dev: async ({ url, embedded, dir, stillwake, fetch: request }) => {
    const response = await request(new Request("http://127.0.0.1/health"));
    const { jobs } = await stillwake.list();
    const fs = await import("node:fs/promises");
    return {
      env: { PART_OF_TEST: [new URL(url).protocol, embedded, response.status, Array.isArray(jobs)].join(" ") },
      lines: ["The shop is at http://127.0.0.1:8080"],
      close: () => fs.writeFile(dir + "/closed", "closed"),
    };
  } };
`,
  );
});
afterAll(() => {
  for (const { pid } of findProcesses(MARK)) process.kill(pid, "SIGKILL");
});

async function start() {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), "dev"], {
    cwd: dir,
    env: { PATH, HOME, NO_COLOR: "1", STILLWAKE_PORT: "0", DEV_OF_TEST: dir },
    detached: true,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  await waitFor(() => /Stop with Ctrl-C.*\n\n$/.test(output) || child.exitCode !== null, { timeout: LONG });
  const [, url = ""] = /is at (\S+)\n/.exec(output) ?? [];
  expect(url, output).toMatch(/^http/);
  return { child, url, output: () => output, closed: once(child, "close") };
}

// biome-ignore lint/suspicious/noExplicitAny: the JSON of the API.
async function request(url: string, body?: object): Promise<any> {
  const post = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  return (await fetch(url, post)).json();
}

describe("dev with machines", { timeout: 3 * LONG }, () => {
  it("starts machines for pools that have them, runs other pools itself, and leaves no process after Ctrl-C", async () => {
    const first = await start();
    expect(machines()).toEqual([]);
    const enqueue = async (pipeline: string, ms: number) =>
      (await request(`${first.url}/v1/jobs`, { pipeline, input: { ms } })).id as string;
    const worker = async (id: string) => {
      const job = () => request(`${first.url}/v1/jobs/${id}`);
      await waitFor(async () => (await job()).state === "completed", { timeout: LONG, what: `job ${id}` });
      return (await request(`${first.url}/v1/jobs/${id}/attempts`)).attempts[0].worker as string;
    };
    const [small, large] = [await enqueue("small", 1), await enqueue("large", 1)];
    expect(await worker(small)).not.toMatch(/^sw-/);
    expect(await worker(large)).toMatch(/^sw-[a-z0-9]{8}-heavy-m1-/);
    await waitFor(() => machines().length === 0, { timeout: LONG, what: "the machine to stop" });

    // The dev function of the configuration runs before the workers; its env reaches machines too, as does the URL of the embedded Postgres.
    expect(first.output()).toMatch(/\n {2}The shop is at http:\/\/127\.0\.0\.1:8080\n {2}Stop with/);
    const output = async (id: string) => (await request(`${first.url}/v1/jobs/${id}`)).output;
    const both = [await enqueue("here", 1), await enqueue("there", 1)];
    for (const id of both) {
      await worker(id);
      expect(await output(id)).toBe("postgres: true 200 true postgres:");
    }
    await waitFor(() => machines().length === 0, { timeout: LONG, what: "the machine to stop" });

    const long = await enqueue("large", 2000);
    const isRunning = async () => (await request(`${first.url}/v1/jobs/${long}`)).state === "running";
    await waitFor(isRunning, { timeout: LONG });
    expect(machines()).toHaveLength(1);
    process.kill(-first.child.pid!, "SIGINT");
    expect(await first.closed).toEqual([0, null]);
    expect(first.output()).toMatch(/Releasing 1 job; it resumes at the next start\.\n$/);
    expect(fs.readFileSync(path.join(dir, ".stillwake/closed"), "utf8")).toBe("closed");
    await waitFor(() => findProcesses(MARK).length === 0, { timeout: LONG, what: "the end of all processes" });

    if (!FULL) return;
    const second = await start();
    const job = () => request(`${second.url}/v1/jobs/${long}`);
    await waitFor(async () => (await job()).state === "completed", { timeout: LONG, what: "the job to resume" });
    const { attempts } = await request(`${second.url}/v1/jobs/${long}/attempts`);
    expect(attempts).toMatchObject([{ outcome: "released" }, { outcome: "completed" }]);
    process.kill(-second.child.pid!, "SIGINT");
    await second.closed;
    await waitFor(() => findProcesses(MARK).length === 0, { timeout: LONG, what: "the end of all processes" });
  });

  it("stops the machines of a killed stillwake dev, and runs its jobs on new machines", async () => {
    const killed = await start();
    const { id } = await request(`${killed.url}/v1/jobs`, { pipeline: "large", input: { ms: 3000 } });
    const job = (url: string) => request(`${url}/v1/jobs/${id}`);
    await waitFor(async () => (await job(killed.url)).state === "running", { timeout: LONG });
    killed.child.kill("SIGKILL");
    await killed.closed;
    // Its machine, and perhaps that of the job that was released before.
    const orphans = machines().map(({ pid }) => pid);
    expect(orphans).not.toEqual([]);

    const next = await start();
    expect(next.output()).toMatch(/Stopped (1 machine|2 machines) of an earlier start\./);
    expect(machines().filter(({ pid }) => orphans.includes(pid))).toEqual([]);
    await waitFor(async () => (await job(next.url)).state === "completed", {
      timeout: LONG,
      what: "the job to resume",
    });
    const ended = (await request(`${next.url}/v1/machines?ended=true`)).machines as { end: { how: string } | null }[];
    // Without a database a machine cannot report its end; with one it can.
    expect(ended.filter(({ end }) => /^(was stopped|stopped on request)/.test(end?.how ?? ""))).not.toEqual([]);
    process.kill(-next.child.pid!, "SIGINT");
    await next.closed;
    await waitFor(() => findProcesses(MARK).length === 0, { timeout: LONG, what: "the end of all processes" });
  });
});
