// `stillwake init` as a stranger meets it: from the packed package, in an empty folder, to a job that has run; and what it never does to what is there.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { command } from "../support/processes/cli-in-process.ts";

const MINUTES = 60_000;
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-init-")));
const inBase = (...parts: string[]) => path.join(base, ...parts);

afterAll(() => {
  for (const pid of processesIn(base)) process.kill(pid, "SIGKILL");
  fs.rmSync(base, { recursive: true, force: true, maxRetries: 5 });
});

describe("stillwake init", () => {
  it("makes a folder with a project and says what to do next", async () => {
    const { code, stdout, stderr } = await command(["init", inBase("My New Project!")]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(
      /^Made 8 files in .*My New Project!\. Next:\n\n {2}cd '.*My New Project!'\n {2}npm install\n {2}npm start\n$/,
    );
    const manifest = JSON.parse(fs.readFileSync(inBase("My New Project!/package.json"), "utf8"));
    expect(manifest).toMatchObject({ name: "my-new-project", private: true, type: "module" });
    expect(fs.readFileSync(inBase("My New Project!/.gitignore"), "utf8")).toContain(".stillwake/");
  });

  it("refuses a folder that is not empty and, when it is forced, keeps what is there", async () => {
    fs.mkdirSync(inBase("full"));
    fs.writeFileSync(inBase("full/README.md"), "mine");
    const refused = await command(["init", inBase("full")]);
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toMatch(/full is not empty: it has README\.md\. Name a new folder, or pass --force/);
    expect(fs.readdirSync(inBase("full"))).toEqual(["README.md"]);
    const forced = await command(["init", inBase("full"), "--force"]);
    expect(forced).toMatchObject({ code: 0, stderr: "README.md is there already and was kept.\n" });
    expect(fs.readFileSync(inBase("full/README.md"), "utf8")).toBe("mine");
    expect(fs.existsSync(inBase("full/pipelines/words.mjs"))).toBe(true);
  });

  it("takes a repository without files for an empty folder, and a file for no folder", async () => {
    fs.mkdirSync(inBase("repository/.git"), { recursive: true });
    expect((await command(["init", inBase("repository")])).code).toBe(0);
    fs.writeFileSync(inBase("file"), "");
    expect(await command(["init", inBase("file")])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/file cannot become a project: ENOTDIR\. Name a folder/),
    });
  });
});

describe("the starter project, from the packed package,", { timeout: 5 * MINUTES }, () => {
  const project = inBase("starter");

  beforeAll(async () => {
    buildPackage();
    const [packed] = JSON.parse(npm(["pack", "--json", "--pack-destination", base], ROOT));
    await command(["init", project]);
    // Everything as it was made, but for where the package comes from: it need not be published yet.
    const file = path.join(project, "package.json");
    const manifest = JSON.parse(fs.readFileSync(file, "utf8"));
    expect(manifest.dependencies.stillwake).toBe(`^${packed.version}`);
    manifest.dependencies.stillwake = `file:${inBase(packed.filename)}`;
    fs.writeFileSync(file, JSON.stringify(manifest));
    pace(20);
    const began = performance.now();
    npm(["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"], project);
    recordFigure("init: npm install", (performance.now() - began) / 1000, "s");
  }, 2 * MINUTES);

  it("has types that its editor finds nothing wrong with", () => {
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

  it("runs a job end to end with its own npm start, serves the API, and leaves nothing running", async () => {
    const port = await freePort();
    const began = performance.now();
    const { output, child } = start(["start"], { STILLWAKE_PORT: String(port) });
    await waitFor(() => /completed job/.test(output()) || child.exitCode !== null, { timeout: 2 * MINUTES });
    recordFigure("init: npm start to a completed job", (performance.now() - began) / 1000, "s");
    expect(output()).toMatch(
      /is at http:\/\/127\.0\.0\.1:\d+\n[\s\S]*enqueued job [\s\S]*Reading "The harbour at night"\.\.\.\n[\s\S]*✓ Counted sentence 12 of 12\n[\s\S]*completed in [\s\S]*"longest":"somebody"/,
    );
    const server = `http://127.0.0.1:${port}`;
    const { stdout } = await command(["jobs", "--json", "--server", server]);
    const [job] = JSON.parse(stdout).jobs;
    expect(job).toMatchObject({ pipeline: "words", state: "completed", output: { sentences: 12 }, missing: [] });
    expect((await command(["job", job.id, "--artifacts", "--server", server])).stdout).toContain("words.json");
    expect((await fetch(`${server}/`)).status).toBe(200);
    // Another, from code, beside it.
    expect(npm(["run", "--silent", "enqueue"], project)).toMatch(
      /^enqueued job .*\ncompleted: \{.*"sentences":2.*\}\n$/,
    );

    // npm and its shell die of this at once, without a word to the program below them.
    child.kill("SIGTERM");
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "everything to end" });
    await expect(fetch(`${server}/health`)).rejects.toThrow();
  });

  it("goes on with the same job, where it was, after the kill that its README tells of", async () => {
    pace(500);
    const config = path.join(project, "stillwake.config.mjs");
    fs.writeFileSync(config, fs.readFileSync(config, "utf8").replace("pipelines:", 'lease: "3s",\n  pipelines:'));
    const [, kill = ""] = /^(kill -9 .*)$/m.exec(fs.readFileSync(path.join(project, "README.md"), "utf8")) ?? [];
    const port = { STILLWAKE_PORT: "0" };
    const first = start(["start"], port);
    await waitFor(() => first.output().includes("Counted sentence 4"), { timeout: 2 * MINUTES });
    execFileSync("sh", ["-c", kill], { cwd: project });
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "everything to end" });
    const [, id] = /enqueued job (\S+)/.exec(first.output()) ?? [];
    pace(20);
    const second = start(["start"], port);
    await waitFor(() => second.output().includes("completed job"), { timeout: 2 * MINUTES });
    expect(second.output()).toContain(`going on with job ${id}, which had not ended`);
    // What was counted before the kill was not counted again.
    const counted = [...second.output().matchAll(/Counted sentence (\d+) of 12/g)].map(([, place]) => Number(place));
    expect(counted.filter((place) => place <= 4)).toEqual([1, 2, 3, 4]);
    expect(counted.at(-1)).toBe(12);
    second.child.kill("SIGTERM");
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "everything to end" });
  });

  it("goes on with its data the next time, and says what is wrong with an input before it begins", async () => {
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
    await waitFor(() => child.exitCode !== null, { timeout: 2 * MINUTES, what: "it to end" });
    expect(output()).toMatch(/INVALID_INPUT: .*title/);
    expect(child.exitCode).toBe(1);
    await waitFor(() => processesIn(project).length === 0, { timeout: 30_000, what: "everything to end" });
  });

  /** A sample that is quick, or slow enough to be met in the middle. */
  function pace(pauseMs: number) {
    const file = path.join(project, "sample.json");
    fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(fs.readFileSync(file, "utf8")), pauseMs }));
  }

  function start(args: string[], env: Record<string, string> = {}) {
    const child = spawn("npm", args, { cwd: project, env: { ...quiet(), ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const parts: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => parts.push(data));
    return { child, output: () => Buffer.concat(parts).toString() };
  }
});

/** What our own npm was called with must not shape this one, and no database of ours may be taken for the project's. */
function quiet(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(npm_(?!config_(registry|cache|userconfig))|STILLWAKE_|DATABASE_URL$)/i.test(name),
    ),
  );
}

function npm(args: string[], cwd: string): string {
  return execFileSync("npm", args, { cwd, env: quiet(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/** Every process whose working directory is in `dir`: npm, its shell, our program, its runners, and Postgres in its data. */
function processesIn(dir: string): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    try {
      return fs.readlinkSync(`/proc/${Number(entry)}/cwd`).startsWith(dir) ? [Number(entry)] : [];
    } catch {
      return [];
    }
  });
}

async function freePort(): Promise<number> {
  const probe = net.createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as net.AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
