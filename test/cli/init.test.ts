// `stillwake init`: the starter project from the packed package, run to a completed job; existing files are kept.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { processesIn } from "../support/processes/fault-checks.ts";

const MINUTES = 60_000;
const base = temporaryDirectory("init");
const inBase = (...parts: string[]) => path.join(base, ...parts);

afterAll(() => {
  for (const pid of processesIn(base)) process.kill(pid, "SIGKILL");
});

describe("stillwake init", () => {
  it("creates a project and prints the next steps", async () => {
    const { code, stdout, stderr } = await runCommand(["init", inBase("My New Project!")]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(
      /^Created 8 files in .*My New Project!\. Next:\n\n {2}cd '.*My New Project!'\n {2}npm install\n {2}npm start\n$/,
    );
    const manifest = JSON.parse(fs.readFileSync(inBase("My New Project!/package.json"), "utf8"));
    expect(manifest).toMatchObject({ name: "my-new-project", private: true, type: "module" });
    expect(fs.readFileSync(inBase("My New Project!/.gitignore"), "utf8")).toContain(".stillwake/");
  });

  it("refuses a directory that is not empty, and keeps existing files with --force", async () => {
    fs.mkdirSync(inBase("full"));
    fs.writeFileSync(inBase("full/README.md"), "mine");
    const refused = await runCommand(["init", inBase("full")]);
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toMatch(/full is not empty: it has README\.md\. Name a new directory, or pass --force/);
    expect(fs.readdirSync(inBase("full"))).toEqual(["README.md"]);
    const forced = await runCommand(["init", inBase("full"), "--force"]);
    expect(forced).toMatchObject({ code: 0, stderr: "README.md exists and was kept.\n" });
    expect(fs.readFileSync(inBase("full/README.md"), "utf8")).toBe("mine");
    expect(fs.existsSync(inBase("full/pipelines/words.mjs"))).toBe(true);
  });

  it("accepts a directory with only .git, and refuses a file", async () => {
    fs.mkdirSync(inBase("repository/.git"), { recursive: true });
    expect((await runCommand(["init", inBase("repository")])).code).toBe(0);
    fs.writeFileSync(inBase("file"), "");
    expect(await runCommand(["init", inBase("file")])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/file cannot be used for a project: ENOTDIR\. Name a directory/),
    });
  });
});

describe("the starter project from the packed package", { timeout: 5 * MINUTES }, () => {
  const project = inBase("starter");

  beforeAll(async () => {
    buildPackage();
    const [packed] = JSON.parse(npm(["pack", "--json", "--pack-destination", base], ROOT));
    await runCommand(["init", project]);
    // Unchanged except for the source of the package, which is not published.
    const file = path.join(project, "package.json");
    const manifest = JSON.parse(fs.readFileSync(file, "utf8"));
    expect(manifest.dependencies.stillwake).toBe(`^${packed.version}`);
    manifest.dependencies.stillwake = `file:${inBase(packed.filename)}`;
    fs.writeFileSync(file, JSON.stringify(manifest));
    setPause(20);
    const startedAt = performance.now();
    npm(["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"], project);
    recordFigure("init: npm install", (performance.now() - startedAt) / 1000, "s");
  }, 2 * MINUTES);

  it("passes the type check of its editor", () => {
    const files = ["contracts.mjs", "enqueue.mjs", "stillwake.config.mjs", "pipelines/words.mjs"];
    const settings = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--skipLibCheck", "--target", "es2023"];
    const modules = ["--module", "nodenext", "--types", "node", "--typeRoots", path.join(ROOT, "node_modules/@types")];
    execFileSync(
      process.execPath,
      [path.join(ROOT, "node_modules/typescript/bin/tsc"), ...settings, ...modules, ...files],
      {
        cwd: project,
        stdio: "pipe",
      },
    );
  });

  it("npm start runs a job, serves the API, and leaves no process behind", async () => {
    const port = await freePort();
    const startedAt = performance.now();
    const { output, child } = start(["start"], { STILLWAKE_PORT: String(port) });
    await waitFor(() => /completed job/.test(output()) || child.exitCode !== null, { timeout: 2 * MINUTES });
    recordFigure("init: npm start to a completed job", (performance.now() - startedAt) / 1000, "s");
    expect(output()).toMatch(
      /is at http:\/\/127\.0\.0\.1:\d+\n[\s\S]*enqueued job [\s\S]*Reading "The harbour at night"\.\.\.\n[\s\S]*✓ Counted sentence 12 of 12\n[\s\S]*completed in [\s\S]*"longest":"switched"/,
    );
    const server = `http://127.0.0.1:${port}`;
    const { stdout } = await runCommand(["jobs", "--json", "--server", server]);
    const [job] = JSON.parse(stdout).jobs;
    expect(job).toMatchObject({ pipeline: "words", state: "completed", output: { sentences: 12 }, missing: [] });
    expect((await runCommand(["job", job.id, "--artifacts", "--server", server])).stdout).toContain("words.json");
    expect((await fetch(`${server}/`)).status).toBe(200);
    // A second job, enqueued from code.
    expect(npm(["run", "--silent", "enqueue"], project)).toMatch(
      /^enqueued job .*\ncompleted: \{.*"sentences":2.*\}\n$/,
    );

    // npm and its shell exit at once without forwarding the signal.
    child.kill("SIGTERM");
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "the end of all processes" });
    await expect(fetch(`${server}/health`)).rejects.toThrow();
  });

  it("resumes the same job after the kill that its README describes", async () => {
    setPause(500);
    const config = path.join(project, "stillwake.config.mjs");
    fs.writeFileSync(config, fs.readFileSync(config, "utf8").replace("pipelines:", 'lease: "3s",\n  pipelines:'));
    const [, kill = ""] = /^(kill -9 .*)$/m.exec(fs.readFileSync(path.join(project, "README.md"), "utf8")) ?? [];
    const port = { STILLWAKE_PORT: "0" };
    const first = start(["start"], port);
    await waitFor(() => first.output().includes("Counted sentence 4"), { timeout: 2 * MINUTES });
    execFileSync("sh", ["-c", kill], { cwd: project });
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "the end of all processes" });
    const [, id] = /enqueued job (\S+)/.exec(first.output()) ?? [];
    setPause(20);
    const second = start(["start"], port);
    await waitFor(() => second.output().includes("completed job"), { timeout: 2 * MINUTES });
    expect(second.output()).toContain(`resuming job ${id} of an earlier start`);
    // Sentences that were counted before the kill are not counted again.
    const counted = [...second.output().matchAll(/Counted sentence (\d+) of 12/g)].map(([, position]) =>
      Number(position),
    );
    expect(counted.filter((position) => position <= 4)).toEqual([1, 2, 3, 4]);
    expect(counted.at(-1)).toBe(12);
    second.child.kill("SIGTERM");
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "the end of all processes" });
  });

  it("keeps its data for the next start, and reports an invalid input", async () => {
    const { output, child } = start([
      "exec",
      "--",
      "stillwake",
      "dev",
      "--port",
      "0",
      "--enqueue",
      "words",
      "--input",
      '{"title":1}',
    ]);
    await waitFor(() => child.exitCode !== null, { timeout: 2 * MINUTES, what: "its exit" });
    expect(output()).toMatch(/INVALID_INPUT: .*title/);
    expect(child.exitCode).toBe(1);
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "the end of all processes" });
  });

  /** Changes the speed of the sample job. */
  function setPause(pauseMs: number) {
    const file = path.join(project, "sample.json");
    fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(fs.readFileSync(file, "utf8")), pauseMs }));
  }

  function start(args: string[], env: Record<string, string> = {}) {
    const child = spawn("npm", args, {
      cwd: project,
      env: { ...cleanEnv(), ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const parts: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => parts.push(data));
    return { child, output: () => Buffer.concat(parts).toString() };
  }
});

/** The environment without the settings of the outer npm and without our database. */
function cleanEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(npm_(?!config_(registry|cache|userconfig))|STILLWAKE_|DATABASE_URL$)/i.test(name),
    ),
  );
}

function npm(args: string[], cwd: string): string {
  return execFileSync("npm", args, { cwd, env: cleanEnv(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

async function freePort(): Promise<number> {
  const probe = net.createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as net.AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
