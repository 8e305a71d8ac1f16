// `stillwake dev` in a project whose code changes while it runs, as a real process with the embedded Postgres. The tests share
// one process and run in order.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { processesIn } from "../support/processes/fault-checks.ts";

const dir = temporaryDirectory("dev-reload");
const LONG = 60_000;
const inDir = (name: string) => path.join(dir, name);
const write = (name: string, text: string) => {
  fs.mkdirSync(path.dirname(inDir(name)), { recursive: true });
  fs.writeFileSync(inDir(name), text);
};
/** A pipeline that waits for a file, if its input names one, and returns the text of version.mjs. */
const pipelineCode = (name: string) => `import fs from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { pipeline } from "${ROOT}/dist/index.js";
import { implement } from "${ROOT}/dist/worker/index.js";
import { version } from "../version.mjs";
export default implement(pipeline("${name}"), (job, { file }) => job.step("wait", {}, async (step) => {
  while (file && !fs.existsSync(file)) await delay(20, undefined, { signal: step.signal });
  return version;
}));
`;

let dev: { child: ChildProcess; url: string; output(): string };

beforeAll(async () => {
  buildPackage();
  write("version.mjs", 'export const version = "old";');
  write("pipelines/answer.mjs", pipelineCode("answer"));
  write("stillwake.config.mjs", 'export default { pipelines: "./pipelines" };');
  write(".env", "GREETING=hello\n");
  dev = await start();
}, LONG);
afterAll(() => {
  for (const pid of processesIn(dir)) process.kill(pid, "SIGKILL");
});

describe("dev in a project whose code changes", { timeout: 2 * LONG }, () => {
  it("prints the names it has read from .env, and no value", () => {
    expect(dev.output()).toMatch(/^ {2}Read \.env: GREETING\n/);
    expect(dev.output()).not.toContain("hello");
  });

  it("runs the next job on the new code, and lets a running job end on the old code in the same attempt", async () => {
    const long = await enqueue("answer", inDir("go"));
    await waitFor(async () => (await read(long)).state === "running", { timeout: LONG });
    const startedAt = performance.now();
    // Two changes: the second one does not stop what the first one has left running.
    write("version.mjs", 'export const version = "between";');
    await prints("Reloaded version.mjs: new jobs run the new code; 1 running job ends on the old code.");
    recordFigure("dev: from a change of a file to the new code", (performance.now() - startedAt) / 1000, "s");
    write("version.mjs", 'export const version = "new";');
    await prints("Reloaded version.mjs: new jobs run the new code; 1 running job ends on the old code.");
    expect(await outputOf(await enqueue("answer"))).toBe("new");
    expect((await read(long)).state).toBe("running");
    write("go", "");
    expect(await outputOf(long)).toBe("old");
    expect(await read(long)).toMatchObject({ attempt: 1, state: "completed" });
    const { attempts } = await request(`/v1/jobs/${long}/attempts`);
    expect(attempts).toMatchObject([{ outcome: "completed" }]);
  });

  it("reports code that cannot be loaded, and keeps the old code until it is corrected", async () => {
    write("version.mjs", "export const version = ;");
    await prints(/version\.mjs cannot be used, so the old code stays: PIPELINES_BROKEN: .*SyntaxError/);
    expect(await outputOf(await enqueue("answer"))).toBe("new");
    write("version.mjs", 'export const version = "corrected";');
    await prints("Reloaded version.mjs: new jobs run the new code.");
    expect(await outputOf(await enqueue("answer"))).toBe("corrected");
  });

  it("loads a new module, and the pipelines that a changed configuration names", async () => {
    write("pipelines/question.mjs", pipelineCode("question"));
    await prints("Reloaded pipelines/question.mjs: new jobs run the new code.");
    expect(await outputOf(await enqueue("question"))).toBe("corrected");
    write("others/other.mjs", pipelineCode("other"));
    write("stillwake.config.mjs", 'export default { pipelines: ["./pipelines", "./others"] };');
    await prints(/Reloaded stillwake\.config\.mjs: new jobs run the new code\.\n/);
    expect(await outputOf(await enqueue("other"))).toBe("corrected");
    write("others/other.mjs", pipelineCode("other").replace("return version", "return version.length"));
    await prints("Reloaded others/other.mjs: new jobs run the new code.");
    expect(await outputOf(await enqueue("other"))).toBe("corrected".length);
  });

  it("says which parts of a changed configuration are used at the next start", async () => {
    const config = 'pipelines: ["./pipelines", "./others"]';
    write("stillwake.config.mjs", `export default { ${config}, dev: () => ({}), pools: { big: { max: 1 } } };`);
    await prints("new jobs run the new code. Its dev and pools will be used at the next start.");
    write("stillwake.config.mjs", `export default { ${config} };`);
    await prints(/Reloaded stillwake\.config\.mjs: new jobs run the new code\.\n/);
  });

  it("does not reload a file that was written without a change", async () => {
    const before = dev.output();
    write("version.mjs", fs.readFileSync(inDir("version.mjs"), "utf8"));
    // A later change is reported alone.
    write("others/other.mjs", pipelineCode("other"));
    await prints("Reloaded others/other.mjs", before.length);
    expect(dev.output().slice(before.length)).not.toContain("version.mjs");
  });

  it("releases the jobs of the old and of the new code on Ctrl-C, without counting their attempts", async () => {
    const old = await enqueue("answer", inDir("never"));
    await waitFor(async () => (await read(old)).state === "running", { timeout: LONG });
    write("version.mjs", 'export const version = "last";');
    await prints("Reloaded version.mjs: new jobs run the new code; 1 running job ends on the old code.");
    const young = await enqueue("answer", inDir("never"));
    await waitFor(async () => (await read(young)).state === "running", { timeout: LONG });
    const closed = once(dev.child, "close");
    dev.child.kill("SIGINT");
    expect(await closed).toEqual([0, null]);
    expect(dev.output()).toMatch(/Releasing 2 jobs; they resume at the next start\.\n$/);
    expect(processesIn(dir)).toEqual([]);

    write("never", "");
    dev = await start();
    for (const id of [old, young]) {
      expect(await outputOf(id)).toBe("last");
      expect(await read(id)).toMatchObject({ attempt: 1 });
    }
    dev.child.kill("SIGINT");
    await once(dev.child, "close");
  });

  it("keeps the address of its Postgres, and starts it when .env.local has that address", async () => {
    const [, url = ""] = /For your application, in its \.env: DATABASE_URL=(\S+)\n/.exec(dev.output()) ?? [];
    write(".env.local", `DATABASE_URL=${url}\nGREETING=local\n`);
    dev = await start();
    expect(dev.output()).toMatch(/^ {2}Read \.env\.local: DATABASE_URL, GREETING\n(?! {2}Read)/);
    expect(dev.output()).not.toContain("For your application");
    expect(JSON.parse(fs.readFileSync(inDir(".stillwake/dev.json"), "utf8"))).toMatchObject({ database: url });
    expect(await outputOf(await enqueue("answer"))).toBe("last");
    fs.rmSync(inDir(".env.local"));
    dev.child.kill("SIGINT");
    await once(dev.child, "close");
    dev = await start();
    expect(dev.output()).toContain(`in its .env: DATABASE_URL=${url}\n`);
    dev.child.kill("SIGINT");
    await once(dev.child, "close");
  });

  it("says after a kill -9 how many jobs wait for the lease of the dead worker, and resumes them", async () => {
    fs.rmSync(inDir("go"), { force: true });
    dev = await start();
    expect(dev.output()).not.toContain("that was killed");
    const id = await enqueue("answer", inDir("go"));
    await waitFor(async () => (await read(id)).state === "running", { timeout: LONG });
    dev.child.kill("SIGKILL");
    await waitFor(() => processesIn(dir).length === 0, { timeout: LONG, what: "the end of all processes" });
    dev = await start();
    expect(dev.output()).toContain("  1 job of a start that was killed resumes when the lease of the dead worker has");
    write("go", "");
    expect(await outputOf(id)).toBe("last");
    dev.child.kill("SIGINT");
    await once(dev.child, "close");
  });

  it("suggests the nearest name for an unknown pipeline of --enqueue, and reports an input that is not valid JSON", async () => {
    const misspelled = await run(["--enqueue", "answr"]);
    expect(misspelled).toMatchObject({ code: 1 });
    expect(misspelled.output).toMatch(/\nUNKNOWN_PIPELINE: There is no pipeline "answr"\. Did you mean answer\?\n$/);
    expect((await run(["--enqueue", "zebra"])).output).toMatch(
      /no pipeline "zebra"\. Pipelines: answer, other, question\n$/,
    );
    expect(await run(["--enqueue", "answer", "--input", "{"])).toMatchObject({ code: 2 });
    expect(processesIn(dir)).toEqual([]);
  });
});

function launch(args: string[] = []) {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), "dev", "--slots", "2", ...args], {
    cwd: dir,
    env: { PATH, HOME, NO_COLOR: "1", STILLWAKE_PORT: "0" },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  return { child, output: () => output };
}

async function start() {
  const { child, output } = launch();
  await waitFor(() => /Stop with Ctrl-C.*\n\n$/.test(output()) || child.exitCode !== null, { timeout: LONG });
  const [, url = ""] = /is at (\S+)\n/.exec(output()) ?? [];
  expect(url, output()).toMatch(/^http/);
  return { child, url, output };
}

async function run(args: string[]) {
  const { child, output } = launch(args);
  const [code] = await once(child, "close");
  return { code, output: output() };
}

/** Waits for this text after the given position of the output. Each text is expected once, unless a position is given. */
async function prints(text: string | RegExp, from = shown): Promise<void> {
  const pattern = typeof text === "string" ? new RegExp(text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")) : text;
  const isPrinted = () => pattern.test(dev.output().slice(from));
  await waitFor(() => isPrinted() || dev.child.exitCode !== null, { timeout: LONG, what: String(pattern) });
  expect(isPrinted(), dev.output()).toBe(true);
  shown = dev.output().length;
}
let shown = 0;

// biome-ignore lint/suspicious/noExplicitAny: the JSON of the API.
async function request(url: string, body?: object): Promise<any> {
  const post = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  return (await fetch(`${dev.url}${url}`, post)).json();
}

async function enqueue(pipeline: string, file?: string): Promise<string> {
  return (await request("/v1/jobs", { pipeline, input: { file } })).id;
}

const read = (id: string) => request(`/v1/jobs/${id}`);

async function outputOf(id: string): Promise<unknown> {
  await waitFor(async () => (await read(id)).state === "completed", { timeout: LONG, what: `the end of job ${id}` });
  return (await read(id)).output;
}
