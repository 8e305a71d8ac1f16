// `stillwake dev` in a project whose pools have machines: here they are processes of this computer, which come and go with the work.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { FULL } from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { processesWith } from "../support/providers/provider-cases.ts";

const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-dev-machines-")));
const LONG = 60_000;
const MARK = `DEV_OF_TEST=${dir}`;
const machines = () =>
  processesWith(MARK).filter(({ pid, session, variables }) => pid === session && "STILLWAKE_MACHINE" in variables);

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
export const here = implement(pipeline("here"), async () => process.env.PART_OF_TEST);
export const there = implement(pipeline("there", { pool: "heavy" }), async () => process.env.PART_OF_TEST);
`,
  );
  // Elsewhere its machines are somebody else's: here nobody asks that provider for anything.
  fs.writeFileSync(
    path.join(dir, "stillwake.config.mjs"),
    `const provider = () => { throw new Error("This provider is not for here"); };
export default { pipelines: "./pipelines.mjs", pools: { heavy: { provider, warm: 1, max: 2, idleExit: "500ms" } },
  dev: async ({ url, embedded, dir, stillwake, fetch: ask }) => {
    const answer = await ask(new Request("http://127.0.0.1/health"));
    const { jobs } = await stillwake.list();
    const fs = await import("node:fs/promises");
    return {
      env: { PART_OF_TEST: [new URL(url).protocol, embedded, answer.status, Array.isArray(jobs)].join(" ") },
      lines: ["The harbour is at its place"],
      close: () => fs.writeFile(dir + "/closed", "in good order"),
    };
  } };
`,
  );
});
afterAll(() => {
  for (const { pid } of processesWith(MARK)) process.kill(pid, "SIGKILL");
  fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
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

// biome-ignore lint/suspicious/noExplicitAny: what the API answers.
async function ask(url: string, body?: object): Promise<any> {
  const post = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  return (await fetch(url, post)).json();
}

describe("dev with machines", { timeout: 3 * LONG }, () => {
  it("starts them for the pools that have some, does the rest itself, and leaves none at Ctrl-C", async () => {
    const first = await start();
    expect(machines()).toEqual([]);
    const enqueue = async (pipeline: string, ms: number) =>
      (await ask(`${first.url}/v1/jobs`, { pipeline, input: { ms } })).id as string;
    const worker = async (id: string) => {
      const job = () => ask(`${first.url}/v1/jobs/${id}`);
      await waitFor(async () => (await job()).state === "completed", { timeout: LONG, what: `job ${id}` });
      return (await ask(`${first.url}/v1/jobs/${id}/attempts`)).attempts[0].worker as string;
    };
    const [small, large] = [await enqueue("small", 1), await enqueue("large", 1)];
    expect(await worker(small)).not.toMatch(/^sw-/);
    expect(await worker(large)).toMatch(/^sw-[a-z0-9]{8}-heavy-m1-/);
    await waitFor(() => machines().length === 0, { timeout: LONG, what: "the machine to leave" });

    // The project's own part of it is up before the workers, and what it gives them reaches code on machines as well.
    expect(first.output()).toMatch(/\n {2}The harbour is at its place\n {2}Stop with/);
    const output = async (id: string) => (await ask(`${first.url}/v1/jobs/${id}`)).output;
    const both = [await enqueue("here", 1), await enqueue("there", 1)];
    for (const id of both) {
      await worker(id);
      expect(await output(id)).toBe("postgres: true 200 true");
    }
    await waitFor(() => machines().length === 0, { timeout: LONG, what: "the machine to leave" });

    const long = await enqueue("large", 2000);
    const isRunning = async () => (await ask(`${first.url}/v1/jobs/${long}`)).state === "running";
    await waitFor(isRunning, { timeout: LONG });
    expect(machines()).toHaveLength(1);
    process.kill(-first.child.pid!, "SIGINT");
    expect(await first.closed).toEqual([0, null]);
    expect(first.output()).toMatch(/Handing back 1 job, which goes on at the next start\.\n$/);
    expect(fs.readFileSync(path.join(dir, ".stillwake/closed"), "utf8")).toBe("in good order");
    await waitFor(() => processesWith(MARK).length === 0, { timeout: LONG, what: "everything to end" });

    if (!FULL) return;
    const second = await start();
    const job = () => ask(`${second.url}/v1/jobs/${long}`);
    await waitFor(async () => (await job()).state === "completed", { timeout: LONG, what: "the job to go on" });
    const { attempts } = await ask(`${second.url}/v1/jobs/${long}/attempts`);
    expect(attempts).toMatchObject([{ outcome: "released" }, { outcome: "completed" }]);
    process.kill(-second.child.pid!, "SIGINT");
    await second.closed;
    await waitFor(() => processesWith(MARK).length === 0, { timeout: LONG, what: "everything to end" });
  });

  it("ends what one that was killed has left, and does its jobs on machines of its own", async () => {
    const killed = await start();
    const { id } = await ask(`${killed.url}/v1/jobs`, { pipeline: "large", input: { ms: 3000 } });
    const job = (url: string) => ask(`${url}/v1/jobs/${id}`);
    await waitFor(async () => (await job(killed.url)).state === "running", { timeout: LONG });
    killed.child.kill("SIGKILL");
    await killed.closed;
    // Its own, and perhaps that of the job that was handed back before.
    const orphans = machines().map(({ pid }) => pid);
    expect(orphans).not.toEqual([]);

    const next = await start();
    expect(next.output()).toMatch(/Ended (a machine|2 machines) that an earlier start has left\./);
    expect(machines().filter(({ pid }) => orphans.includes(pid))).toEqual([]);
    await waitFor(async () => (await job(next.url)).state === "completed", { timeout: LONG, what: "the job to go on" });
    const ended = (await ask(`${next.url}/v1/machines?ended=true`)).machines as { end: { how: string } | null }[];
    // Without a database it could not say good-bye; with one it could.
    expect(ended.filter(({ end }) => /^(was stopped|told to end)/.test(end?.how ?? ""))).not.toEqual([]);
    process.kill(-next.child.pid!, "SIGINT");
    await next.closed;
    await waitFor(() => processesWith(MARK).length === 0, { timeout: LONG, what: "everything to end" });
  });
});
