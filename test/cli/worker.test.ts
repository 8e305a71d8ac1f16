// `stillwake worker`: errors of invalid calls, and the configuration file.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findCommand } from "../../src/cli/commands.ts";
import { pipeline } from "../../src/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake } = await inProcessFixture();
const dir = temporaryDirectory("cli");
const dist = `${ROOT}/dist`;
/** Nothing listens there: a worker that tries to connect has accepted all other settings. */
const nowhere = "postgres://user:hidden-password@127.0.0.1:1/nothing";
const stripsTypes = Boolean((process.features as { typescript?: unknown }).typescript);

beforeAll(() => {
  buildPackage();
});

/** Writes a file in the test's directory and returns its path. `STILLWAKE` in the text is replaced by the package. */
function file(name: string, text: string): string {
  const full = path.join(dir, name);
  fs.mkdirSync(path.dirname(full), { recursive: true });
  fs.writeFileSync(full, text.replaceAll("STILLWAKE", dist));
  return full;
}

const module = (name: string, returns = `"${name}"`) => `
import { pipeline } from "STILLWAKE/index.js";
import { implement } from "STILLWAKE/worker/index.js";
export default implement(pipeline("${name}", { retry: { attempts: 1 } }), () => ${returns});
`;

interface Result {
  code: number | null;
  stdout: string;
  stderr: string;
}

async function cli(
  args: string[],
  { env = {}, cwd = dir }: { env?: Record<string, string>; cwd?: string } = {},
): Promise<Result> {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [`${dist}/cli/index.js`, ...args], { cwd, env: { PATH, HOME, ...env } });
  const result: Result = { code: null, stdout: "", stderr: "" };
  child.stdout.on("data", (data) => (result.stdout += data));
  child.stderr.on("data", (data) => (result.stderr += data));
  [result.code] = await once(child, "close");
  return result;
}

const worker = (args: string[], options?: Parameters<typeof cli>[1]) =>
  cli(["worker", "--scratch", `${dir}/scratch`, ...args], options);

describe("--help", () => {
  it("lists every flag of the worker, and exits 0", async () => {
    const { code, stdout, stderr } = await cli(["worker", "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const flags = Object.keys(findCommand("worker")!.flags).map((name) => `--${name}`);
    expect(flags.length).toBeGreaterThan(18);
    expect(flags.filter((flag) => !stdout.includes(flag))).toEqual([]);
    // It fits a terminal.
    expect(stdout.split("\n").filter((line) => line.length > 130)).toEqual([]);
  });

  it("the overview without a command lists the worker", async () => {
    expect(await cli([])).toMatchObject({ code: 2, stdout: expect.stringContaining("stillwake worker") });
  });
});

interface InvalidCall {
  what: string;
  args: (() => string[]) | string[];
  code?: 1 | 2;
  error: RegExp;
  env?: Record<string, string>;
  without?: "pipelines" | "url";
}

const good = () => ["--pipelines", file("good/good.mjs", module("good"))];
const pipelines = (name: string, text: string) => () => ["--pipelines", file(name, text)];

const invalidCalls: InvalidCall[] = [
  {
    what: "a flag that does not exist",
    args: ["--slot", "3"],
    error: /Unknown option '--slot' for worker\. Did you mean --slots\? See stillwake worker --help/,
  },
  { what: "an extra argument", args: ["now"], error: /Unexpected "now" after worker\. See stillwake worker --help/ },
  {
    what: "a flag without its value",
    args: ["--pool"],
    error: /--pool.*argument missing.*See stillwake worker --help/s,
  },
  {
    what: "no pipelines",
    args: [],
    without: "pipelines",
    error:
      /No pipelines are configured: \S+ has no stillwake\.config file\. Pass --pipelines \.\/dir, or set pipelines in stillwake\.config\.ts/,
  },
  {
    what: "no database",
    args: [],
    without: "url",
    error: /A worker needs the URL of its Postgres\. Pass url, or set STILLWAKE_DATABASE_URL/,
  },
  {
    what: "an invalid URL",
    args: ["--url", "localhost:hidden-password"],
    error: /url is not a Postgres URL\. Use postgres:\/\//,
  },
  {
    what: "slots that are not a number",
    args: ["--slots", "many"],
    error: /slots must be a whole number from 1 to 10000, not "?many"?/,
  },
  { what: "no slots", args: ["--slots", "0"], error: /slots must be a whole number from 1 to 10000, not 0/ },
  { what: "half a slot", args: ["--slots", "1.5"], error: /slots must be a whole number from 1 to 10000, not 1\.5/ },
  {
    what: "an invalid pool name",
    args: ["--pool", "My Pool"],
    error: /"My Pool" is not a valid pool name\. Use lower-case letters/,
  },
  {
    what: "a variable to withhold that is not a name",
    args: ["--withhold", "DATABASE_URL, P*G"],
    error: /env\.withhold contains "P\*G", which is not the name of a variable\. Write a list of names/,
  },
  {
    what: "an invalid worker name",
    args: ["--name", "my worker"],
    error: /"my worker" is not a valid worker name\. Use 1 to 100/,
  },
  {
    what: "a lease that is not a duration",
    args: ["--lease", "15"],
    error: /lease "15" is not a duration\. Write a number and a unit/,
  },
  {
    what: "a lease that is too short",
    args: ["--lease", "10ms"],
    error: /A lease of 10ms is out of range\. Use 1s to 1d/,
  },
  { what: "a grace that is not a duration", args: ["--grace", "soon"], error: /grace "soon" is not a duration/ },
  {
    what: "a cancel grace that is not a duration",
    args: ["--cancel-grace", "at once"],
    error: /cancelGrace "at once" is not a duration/,
  },
  { what: "a drain timeout that is not a duration", args: ["--drain-timeout", "-5s"], error: /drain-timeout/ },
  {
    what: "an idle time that is not a duration",
    args: ["--idle-exit", "never"],
    error: /idleExit "never" is not a duration/,
  },
  {
    what: "two conditions to exit",
    args: ["--drain", "--once"],
    error: /--idle-exit, --drain and --once are mutually exclusive\. Pass one of them/,
  },
  {
    what: "an invalid store",
    args: ["--store", "ftp://host"],
    error: /must start with file: or s3:\. Use file:/,
  },
  {
    what: "an unknown log level",
    args: ["--log-level", "loud"],
    error: /Log level "loud" does not exist\. Levels: trace, debug, info, warn, error/,
  },
  {
    what: "an invalid port",
    args: ["--metrics-port", "http"],
    error: /Metrics port "http" is not a port\. Use a whole number from 0 to 65535/,
  },
  { what: "a port out of range", args: ["--metrics-port", "99999"], error: /Metrics port "99999" is not a port/ },
  {
    what: "a config file that does not exist",
    args: ["--config", "nowhere.mjs"],
    error: /nowhere\.mjs does not exist\. Check --config/,
  },
  {
    what: "a config file without a default export",
    args: () => ["--config", file("c1.mjs", "export const slots = 2;")],
    error: /c1\.mjs has no default export\. export default defineConfig\(\{ … \}\)/,
  },
  {
    what: "a config file with a misspelled key",
    args: () => [
      "--config",
      file("c2.mjs", 'import { defineConfig } from "STILLWAKE/index.js";\nexport default defineConfig({ slot: 2 });'),
    ],
    error: /The configuration has an unknown key "slot"\. Did you mean "slots"\?/,
  },
  {
    what: "a config file with an unknown key",
    args: () => [
      "--config",
      file(
        "c3.mjs",
        'import { defineConfig } from "STILLWAKE/index.js";\nexport default defineConfig({ parallelism: 2 });',
      ),
    ],
    error: /unknown key "parallelism"\. Keys: url, directUrl/,
  },
  {
    what: "a plain config file with a wrong key",
    args: () => ["--config", file("c4.mjs", "export default { slot: 2 };")],
    error: /"slot".*slots/,
  },
  {
    what: "a config file with a wrong value",
    args: () => ["--config", file("c5.mjs", 'export default { lease: "long" };')],
    error: /lease "long" is not a duration/,
  },
  {
    what: "a config file that throws",
    args: () => ["--config", file("c6.mjs", 'throw new Error("not today");')],
    code: 1,
    error: /not today[\s\S]*c6\.mjs/,
  },
  {
    what: "pipelines that do not exist",
    args: ["--pipelines", "nowhere"],
    without: "pipelines",
    error: /Pipelines "nowhere" do not exist at .*\/nowhere\. Pass a module or a directory/,
  },
  {
    what: "a directory without modules",
    args: () => ["--pipelines", path.dirname(file("empty/readme.md", "#"))],
    without: "pipelines",
    error: /No pipeline is exported by .*empty.*Export the result of implement\(contract/,
  },
  {
    what: "a module that exports none",
    args: pipelines("none.mjs", "export const answer = 42;"),
    without: "pipelines",
    error: /No pipeline is exported by .*none\.mjs\. Export the result of implement\(contract/,
  },
  {
    what: "a module that exports the function without implement()",
    args: pipelines("bare.mjs", "export default async function run(job) {}"),
    without: "pipelines",
    error: /No pipeline is exported by .*bare\.mjs/,
  },
  {
    what: "two pipelines with the same name",
    args: () => [
      "--pipelines",
      file("twice/a.mjs", module("twice")),
      "--pipelines",
      file("twice/b.mjs", module("twice")),
    ],
    without: "pipelines",
    error: /Pipeline "twice" is implemented twice: in .*a\.mjs and in .*b\.mjs\. Rename one of them/,
  },
  {
    what: "an invalid contract",
    args: pipelines(
      "contract.mjs",
      'import { pipeline } from "STILLWAKE/index.js";\nexport default pipeline("Bad Name");',
    ),
    without: "pipelines",
    error: /"Bad Name" is not a valid pipeline name/,
  },
  {
    what: "a module that throws",
    args: pipelines("throws.mjs", "const setting = undefined;\nsetting.value;\n"),
    without: "pipelines",
    code: 1,
    error: /throws\.mjs[\s\S]*Cannot read properties of undefined \(reading 'value'\)/,
  },
  {
    what: "a module that cannot be parsed",
    args: pipelines("broken.mjs", "export default {;"),
    without: "pipelines",
    code: 1,
    error: /broken\.mjs[\s\S]*Unexpected token/,
  },
  {
    what: "a module with a missing dependency",
    args: pipelines("needs.mjs", 'import "a-missing-package";'),
    without: "pipelines",
    code: 1,
    error: /needs\.mjs cannot be loaded: .*a-missing-package/,
  },
  {
    what: "a module that exits the process",
    args: pipelines("exits.mjs", "process.exit(7);"),
    without: "pipelines",
    code: 1,
    error: /A runner could not start: The runner exited with code 7/,
  },
  {
    what: "a database without Stillwake",
    args: () => [...good(), "--url", database.url.replace(/\/[^/]*$/, "/postgres")],
    without: "pipelines",
    code: 1,
    error: /Stillwake.*stillwake migrate/s,
  },
];

describe("an invalid call exits with an error and a remedy", () => {
  it.concurrent.each(invalidCalls)("$what", async ({ args, code = 2, error, env, without }) => {
    const own = typeof args === "function" ? args() : args;
    const rest = [...(without === "pipelines" ? [] : good()), ...(without === "url" ? [] : ["--url", nowhere])];
    const result = await worker([...rest, ...own], env && { env });
    expect(result.stderr).toMatch(error);
    expect(result.code).toBe(code);
    expect(result.stderr + result.stdout).not.toContain("hidden-password");
    expect(result.stderr + result.stdout).not.toContain("stopped (");
    // Invalid arguments need no stack.
    if (code === 2) expect(result.stderr).not.toMatch(/\n {4}at /);
  });

  afterAll(() => recordFigure("invalid calls of the worker that exit with a remedy", invalidCalls.length));

  it.skipIf(stripsTypes)("TypeScript that this Node cannot run", async () => {
    const args = ["--url", nowhere, "--pipelines", file("typed.ts", "export const answer: number = 42;")];
    expect(await worker(args)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /This Node \(v20\.[\d.]+\) cannot load TypeScript: .*typed\.ts\. Run npm install --save-dev tsx, or use Node 22\.18/,
      ),
    });
    const config = ["--config", file("typed.config.ts", "export default { slots: 2 as number };")];
    expect(await worker(config)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/cannot run TypeScript: .*typed\.config\.ts\. Run npm install --save-dev tsx/),
    });
  });
});

describe("a project in TypeScript", () => {
  it("runs its configuration and its pipelines with tsx where Node cannot run them itself", async () => {
    const project = path.join(dir, "typed-project");
    file(
      "typed-project/stillwake.config.mts",
      'const folder: string = "./pipelines"; export default { pipelines: folder };',
    );
    file(
      "typed-project/contracts.mts",
      `import { pipeline } from "STILLWAKE/index.js";
export const typed = pipeline("typed", { retry: { attempts: 1 } });`,
    );
    file(
      "typed-project/pipelines/typed.mts",
      `import { implement } from "STILLWAKE/worker/index.js";
import { typed } from "../contracts.mts";
export default implement(typed, (): string => "typed");`,
    );
    fs.mkdirSync(path.join(project, "node_modules"));
    fs.symlinkSync(path.join(ROOT, "node_modules/tsx"), path.join(project, "node_modules/tsx"));
    const { id } = await stillwake.enqueue(pipeline("typed", { retry: { attempts: 1 } }), null);
    const result = await worker(["--url", database.url, "--drain"], { cwd: project });
    expect(result).toMatchObject({ code: 0, stderr: "" });
    expect(await stillwake.get(id)).toMatchObject({ state: "completed", output: "typed" });
  });
});

describe("a .env file", () => {
  it("in the working directory sets what the environment does not set, also for pipelines", async () => {
    const project = path.join(dir, "with-env");
    file("with-env/pipelines/env.mjs", module("env", "[process.env.GREETING, process.env.PLACE]"));
    file("with-env/.env", `DATABASE_URL=${database.url}\nGREETING="hello from .env"\nPLACE=.env # a comment`);
    const { id } = await stillwake.enqueue(pipeline("env", { retry: { attempts: 1 } }), null);
    const options = { cwd: project, env: { PLACE: "environment" } };
    expect(await worker(["--pipelines", "./pipelines", "--drain"], options)).toMatchObject({ code: 0 });
    expect((await stillwake.get(id)).output).toEqual(["hello from .env", "environment"]);
  });

  it("does not send a token of the environment to a server that the file names", async () => {
    const project = path.join(dir, "untrusted");
    const calls: (string | undefined)[] = [];
    const server = http.createServer((request, response) => {
      calls.push(request.headers.authorization);
      response.setHeader("content-type", "application/json").end('{"jobs":[],"cursor":null}');
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    fs.mkdirSync(project);
    fs.writeFileSync(path.join(project, ".env"), `STILLWAKE_SERVER=${url}\nDATABASE_URL=${nowhere}`);
    await cli(["jobs"], { cwd: project, env: { STILLWAKE_TOKEN: "secret" } });
    expect(calls).toEqual([]);
    await cli(["jobs"], { cwd: project });
    expect(calls).toEqual([undefined]);
    server.close();
  });

  it("that cannot be read ends the command", async () => {
    fs.mkdirSync(path.join(dir, "unreadable/.env"), { recursive: true });
    expect(await cli(["jobs"], { cwd: path.join(dir, "unreadable") })).toMatchObject({
      code: 2,
      stderr: "INVALID_INPUT: .env cannot be read: EISDIR. Check the file and its permissions\n",
    });
  });
});

describe("a config file", () => {
  const runs = async (name: string, more: object = {}) => {
    const { id } = await stillwake.enqueue(pipeline(name, { retry: { attempts: 1 } }), null, more);
    return async () => stillwake.get(id);
  };

  it("in the working directory is loaded; its paths are relative to it", async () => {
    const home = path.dirname(
      file(
        "home/stillwake.config.mjs",
        `import { defineConfig } from "STILLWAKE/index.js";
export default defineConfig({ url: ${JSON.stringify(database.url)}, pipelines: ["./jobs"], scratch: "./scratch", store: "file:./kept", slots: 1, name: "from-the-file", logLevel: "debug" });`,
      ),
    );
    file(
      "home/jobs/one.mjs",
      `import { pipeline } from "STILLWAKE/index.js";
import { implement } from "STILLWAKE/worker/index.js";
export default implement(pipeline("from.file", { retry: { attempts: 1 } }), async (job) => {
  await job.artifact("one.txt", () => "one");
  return (await job.scratch()).slice(0, ${JSON.stringify(dir)}.length + 13);
});`,
    );
    // Not loaded as pipelines: tests, type declarations, and modules in subdirectories.
    file("home/jobs/one.test.mjs", "throw new Error('a test');");
    file("home/jobs/one.d.ts", "export default 1;");
    file("home/jobs/below/two.mjs", "throw new Error('below');");
    const job = await runs("from.file");
    const result = await cli(["worker", "--drain"], { cwd: home });
    expect(result).toMatchObject({ code: 0, stderr: "" });
    expect(await job()).toMatchObject({ state: "completed", worker: "from-the-file", output: `${dir}/home/scratch` });
    expect(result.stdout).toContain('"slots":1');
    expect(fs.readdirSync(path.join(home, "kept"))).not.toEqual([]);
  });

  it("elsewhere has paths relative to itself; the environment overrides it, and flags override both", async () => {
    const elsewhere = file(
      "far/away.config.mjs",
      `export default { url: "${nowhere}", pipelines: "./jobs", name: "from-the-file", slots: 1, store: "file:./kept files" };`,
    );
    file(
      "far/jobs/one.mjs",
      `import { pipeline } from "STILLWAKE/index.js";
import { implement } from "STILLWAKE/worker/index.js";
export default implement(pipeline("from.elsewhere", { retry: { attempts: 1 } }), (job) => job.artifact("one.txt", () => "one"));`,
    );
    const job = await runs("from.elsewhere");
    const env = { STILLWAKE_DATABASE_URL: database.url };
    const result = await worker(["--config", elsewhere, "--drain", "--name", "from-the-flags"], { env });
    expect(result).toMatchObject({ code: 0, stderr: "" });
    expect(await job()).toMatchObject({ state: "completed", worker: "from-the-flags" });
    expect(fs.readdirSync(path.join(dir, "far/kept files"))).not.toEqual([]);
  });
});

describe("--pipelines", () => {
  it("is repeatable, with modules and directories; a build beside its source is loaded once", async () => {
    const one = file("many/one.mjs", module("many.one"));
    file("many/dir/two.js", module("many.two"));
    file("many/dir/two.ts", "export const source: string = 'of two.js';");
    file("many/dir/package.json", '{ "type": "module" }');
    const contracts = ["many.one", "many.two"].map((name) => pipeline(name));
    const jobs = await Promise.all(contracts.map((contract) => stillwake.enqueue(contract, null)));
    const result = await worker([
      "--url",
      database.url,
      "--drain",
      "--pipelines",
      one,
      "--pipelines",
      path.join(dir, "many/dir"),
    ]);
    expect(result).toMatchObject({ code: 0, stderr: "" });
    for (const { id } of jobs) expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
  });
});

describe("--pool", () => {
  it("ends the worker if the pool exists nowhere, with the nearest one", async () => {
    const result = await worker([...good(), "--url", database.url, "--pool", "defualt"]);
    expect(result).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^UNKNOWN_POOL: Pool "defualt" does not exist\. Did you mean "default"\? Known pools: /,
      ),
    });
  });
});

describe("its log", () => {
  it("is one JSON object per line, without the password of the database", async () => {
    const { stdout } = await worker([...good(), "--url", nowhere, "--idle-exit", "2s"]);
    const lines = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.every(({ level, time, msg }) => level && time && msg)).toBe(true);
    expect(lines.map(({ event }) => event)).toContain("database.lost");
    expect(stdout).not.toContain("hidden-password");
  });
});
