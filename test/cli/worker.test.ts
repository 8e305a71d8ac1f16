// `stillwake worker` as somebody meets it who has just installed it: what it says when it was called wrongly, and what a config file does.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { commandOf } from "../../src/cli/commands.ts";
import { pipeline } from "../../src/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { rig } from "../support/processes/in-process.ts";

const database = await freshDatabase();
const { stillwake } = rig(database);
const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-cli-")));
const dist = `${ROOT}/dist`;
/** Nobody is there; a worker that gets this far has accepted everything else. */
const nowhere = "postgres://user:hidden-password@127.0.0.1:1/nothing";
const stripsTypes = Boolean((process.features as { typescript?: unknown }).typescript);

beforeAll(() => {
  buildPackage();
  return () => fs.rmSync(dir, { recursive: true });
});

/** Writes a file beneath the test's directory and answers its path. `STILLWAKE` in it stands for the package. */
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

interface Said {
  code: number | null;
  stdout: string;
  stderr: string;
}

async function cli(
  args: string[],
  { env = {}, cwd = dir }: { env?: Record<string, string>; cwd?: string } = {},
): Promise<Said> {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [`${dist}/cli/index.js`, ...args], { cwd, env: { PATH, HOME, ...env } });
  const said: Said = { code: null, stdout: "", stderr: "" };
  child.stdout.on("data", (data) => (said.stdout += data));
  child.stderr.on("data", (data) => (said.stderr += data));
  [said.code] = await once(child, "close");
  return said;
}

const worker = (args: string[], options?: Parameters<typeof cli>[1]) =>
  cli(["worker", "--scratch", `${dir}/scratch`, ...args], options);

describe("--help", () => {
  it("names every flag of the worker, and ends with 0", async () => {
    const { code, stdout, stderr } = await cli(["worker", "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const flags = Object.keys(commandOf("worker")!.flags).map((name) => `--${name}`);
    expect(flags.length).toBeGreaterThan(18);
    expect(flags.filter((flag) => !stdout.includes(flag))).toEqual([]);
    // It fits a terminal.
    expect(stdout.split("\n").filter((line) => line.length > 130)).toEqual([]);
  });

  it("is in the answer to no command at all", async () => {
    expect(await cli([])).toMatchObject({ code: 2, stdout: expect.stringContaining("stillwake worker") });
  });
});

interface Wrong {
  what: string;
  args: (() => string[]) | string[];
  code?: 1 | 2;
  says: RegExp;
  env?: Record<string, string>;
  without?: "pipelines" | "url";
}

const good = () => ["--pipelines", file("good/good.mjs", module("good"))];
const pipelines = (name: string, text: string) => () => ["--pipelines", file(name, text)];

const wrong: Wrong[] = [
  {
    what: "a flag that does not exist",
    args: ["--slot", "3"],
    says: /Unknown option '--slot' for worker\. Did you mean --slots\? See stillwake worker --help/,
  },
  { what: "a word too many", args: ["now"], says: /Unexpected "now" after worker\. See stillwake worker --help/ },
  {
    what: "a flag without its value",
    args: ["--pool"],
    says: /--pool.*argument missing.*See stillwake worker --help/s,
  },
  {
    what: "no pipelines",
    args: [],
    without: "pipelines",
    says: /No pipelines are given\. Pass --pipelines \.\/dir, or set pipelines in stillwake\.config\.ts/,
  },
  {
    what: "no database",
    args: [],
    without: "url",
    says: /A worker needs the URL of its Postgres\. Pass url, or set STILLWAKE_DATABASE_URL/,
  },
  {
    what: "a URL that is none",
    args: ["--url", "localhost:hidden-password"],
    says: /url is not the URL of a Postgres\. Write it as postgres:\/\//,
  },
  {
    what: "slots that are no number",
    args: ["--slots", "many"],
    says: /slots "?many"? is not a whole number from 1 to 10000/,
  },
  { what: "no slots", args: ["--slots", "0"], says: /slots 0 is not a whole number from 1/ },
  { what: "half a slot", args: ["--slots", "1.5"], says: /slots 1\.5 is not a whole number/ },
  {
    what: "a pool that cannot be one",
    args: ["--pool", "My Pool"],
    says: /"My Pool" cannot name a pool\. Use lower-case letters/,
  },
  {
    what: "a name that cannot be one",
    args: ["--name", "my worker"],
    says: /"my worker" cannot name a worker\. Use 1 to 100/,
  },
  {
    what: "a lease that is no duration",
    args: ["--lease", "15"],
    says: /lease "15" is not a duration\. Write a number and a unit/,
  },
  {
    what: "a lease that is too short",
    args: ["--lease", "10ms"],
    says: /A lease of 10ms is out of range\. Use 1s to 1d/,
  },
  { what: "a grace that is no duration", args: ["--grace", "soon"], says: /grace "soon" is not a duration/ },
  {
    what: "a cancel grace that is no duration",
    args: ["--cancel-grace", "at once"],
    says: /cancelGrace "at once" is not a duration/,
  },
  { what: "a drain limit that is no duration", args: ["--drain-timeout", "-5s"], says: /drain-timeout/ },
  {
    what: "an idle time that is no duration",
    args: ["--idle-exit", "never"],
    says: /idleExit "never" is not a duration/,
  },
  {
    what: "two ways to end",
    args: ["--drain", "--once"],
    says: /--idle-exit, --drain and --once exclude one another\. Give one of them/,
  },
  {
    what: "a store that is none",
    args: ["--store", "ftp://host"],
    says: /begins with neither file: nor s3:\. Write file:/,
  },
  {
    what: "a level that does not exist",
    args: ["--log-level", "loud"],
    says: /Log level "loud" does not exist\. Levels: trace, debug, info, warn, error/,
  },
  {
    what: "a port that is none",
    args: ["--metrics-port", "http"],
    says: /Metrics port "http" is not a port\. Use a whole number from 0 to 65535/,
  },
  { what: "a port past the last", args: ["--metrics-port", "99999"], says: /Metrics port "99999" is not a port/ },
  {
    what: "a config file that is not there",
    args: ["--config", "nowhere.mjs"],
    says: /There is no .*nowhere\.mjs\. Check --config/,
  },
  {
    what: "a config file without a default export",
    args: () => ["--config", file("c1.mjs", "export const slots = 2;")],
    says: /c1\.mjs has no default export\. export default defineConfig\(\{ … \}\)/,
  },
  {
    what: "a config file with a key nearly right",
    args: () => [
      "--config",
      file("c2.mjs", 'import { defineConfig } from "STILLWAKE/index.js";\nexport default defineConfig({ slot: 2 });'),
    ],
    says: /The configuration has an unknown key "slot"\. Did you mean "slots"\?/,
  },
  {
    what: "a config file with a key that is far off",
    args: () => [
      "--config",
      file(
        "c3.mjs",
        'import { defineConfig } from "STILLWAKE/index.js";\nexport default defineConfig({ parallelism: 2 });',
      ),
    ],
    says: /unknown key "parallelism"\. Keys: url, directUrl/,
  },
  {
    what: "a plain config file with a wrong key",
    args: () => ["--config", file("c4.mjs", "export default { slot: 2 };")],
    says: /"slot".*slots/,
  },
  {
    what: "a config file with a wrong value",
    args: () => ["--config", file("c5.mjs", 'export default { lease: "long" };')],
    says: /lease "long" is not a duration/,
  },
  {
    what: "a config file that throws",
    args: () => ["--config", file("c6.mjs", 'throw new Error("not today");')],
    code: 1,
    says: /not today[\s\S]*c6\.mjs/,
  },
  {
    what: "pipelines that are not there",
    args: ["--pipelines", "nowhere"],
    without: "pipelines",
    says: /Pipelines "nowhere" do not exist at .*\/nowhere\. Give a module or a directory/,
  },
  {
    what: "a directory without modules",
    args: () => ["--pipelines", path.dirname(file("empty/readme.md", "#"))],
    without: "pipelines",
    says: /No pipeline is exported by .*empty.*Export what implement\(contract/,
  },
  {
    what: "a module that exports none",
    args: pipelines("none.mjs", "export const answer = 42;"),
    without: "pipelines",
    says: /No pipeline is exported by .*none\.mjs\. Export what implement\(contract/,
  },
  {
    what: "a module that exports the function without implement()",
    args: pipelines("bare.mjs", "export default async function run(job) {}"),
    without: "pipelines",
    says: /No pipeline is exported by .*bare\.mjs/,
  },
  {
    what: "two pipelines of one name",
    args: () => [
      "--pipelines",
      file("twice/a.mjs", module("twice")),
      "--pipelines",
      file("twice/b.mjs", module("twice")),
    ],
    without: "pipelines",
    says: /Pipeline "twice" is implemented twice: in .*a\.mjs and in .*b\.mjs\. Give one of them another name/,
  },
  {
    what: "a contract that is wrong",
    args: pipelines(
      "contract.mjs",
      'import { pipeline } from "STILLWAKE/index.js";\nexport default pipeline("Bad Name");',
    ),
    without: "pipelines",
    says: /"Bad Name" cannot name a pipeline/,
  },
  {
    what: "a module that throws",
    args: pipelines("throws.mjs", "const setting = undefined;\nsetting.value;\n"),
    without: "pipelines",
    code: 1,
    says: /throws\.mjs[\s\S]*Cannot read properties of undefined \(reading 'value'\)/,
  },
  {
    what: "a module that cannot be parsed",
    args: pipelines("broken.mjs", "export default {;"),
    without: "pipelines",
    code: 1,
    says: /broken\.mjs[\s\S]*Unexpected token/,
  },
  {
    what: "a module that needs what is not installed",
    args: pipelines("needs.mjs", 'import "left-pad-of-nobody";'),
    without: "pipelines",
    code: 1,
    says: /needs\.mjs cannot be loaded: .*left-pad-of-nobody/,
  },
  {
    what: "a module that ends the process",
    args: pipelines("exits.mjs", "process.exit(7);"),
    without: "pipelines",
    code: 1,
    says: /A runner could not start: The runner ended with exit code 7/,
  },
  {
    what: "a database without Stillwake",
    args: () => [...good(), "--url", database.url.replace(/\/[^/]*$/, "/postgres")],
    without: "pipelines",
    code: 1,
    says: /Stillwake.*stillwake migrate/s,
  },
];

describe("called wrongly, it says what and how to mend it", () => {
  it.concurrent.each(wrong)("$what", async ({ args, code = 2, says, env, without }) => {
    const given = typeof args === "function" ? args() : args;
    const rest = [...(without === "pipelines" ? [] : good()), ...(without === "url" ? [] : ["--url", nowhere])];
    const said = await worker([...rest, ...given], env && { env });
    expect(said.stderr).toMatch(says);
    expect(said.code).toBe(code);
    expect(said.stderr + said.stdout).not.toContain("hidden-password");
    // Who called it wrongly needs no stack of ours.
    if (code === 2) expect(said.stderr).not.toMatch(/\n {4}at /);
  });

  afterAll(() => recordFigure("wrong calls of the worker that are answered with a remedy", wrong.length));

  it.skipIf(stripsTypes)("TypeScript where Node cannot read it", async () => {
    const args = ["--url", nowhere, "--pipelines", file("typed.ts", "export const answer: number = 42;")];
    expect(await worker(args)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /This Node \(v20\.[\d.]+\) cannot read TypeScript: .*typed\.ts\. Use Node 22\.18 or later, start with NODE_OPTIONS="--import tsx", or build/,
      ),
    });
    const config = ["--config", file("typed.config.ts", "export default { slots: 2 as number };")];
    expect(await worker(config)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/cannot read TypeScript: .*or write stillwake\.config\.mjs/),
    });
  });
});

describe("a config file", () => {
  const runs = async (name: string, more: object = {}) => {
    const { id } = await stillwake.enqueue(pipeline(name, { retry: { attempts: 1 } }), null, more);
    return async () => stillwake.get(id);
  };

  it("in the working directory says what there is to say; paths in it are seen from it", async () => {
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
    // Not pipelines: a test beside them, types, and a module in a directory below.
    file("home/jobs/one.test.mjs", "throw new Error('a test');");
    file("home/jobs/one.d.ts", "export default 1;");
    file("home/jobs/below/two.mjs", "throw new Error('below');");
    const job = await runs("from.file");
    const said = await cli(["worker", "--drain"], { cwd: home });
    expect(said).toMatchObject({ code: 0, stderr: "" });
    expect(await job()).toMatchObject({ state: "completed", worker: "from-the-file", output: `${dir}/home/scratch` });
    expect(said.stdout).toContain('"slots":1');
    expect(fs.readdirSync(path.join(home, "kept"))).not.toEqual([]);
  });

  it("elsewhere is seen from where it stands; the environment goes before it, and flags before both", async () => {
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
    const said = await worker(["--config", elsewhere, "--drain", "--name", "from-the-flags"], { env });
    expect(said).toMatchObject({ code: 0, stderr: "" });
    expect(await job()).toMatchObject({ state: "completed", worker: "from-the-flags" });
    expect(fs.readdirSync(path.join(dir, "far/kept files"))).not.toEqual([]);
  });
});

describe("--pipelines", () => {
  it("may be given again, as modules and as directories; the build beside its source counts once", async () => {
    const one = file("many/one.mjs", module("many.one"));
    file("many/dir/two.js", module("many.two"));
    file("many/dir/two.ts", "export const source: string = 'of two.js';");
    file("many/dir/package.json", '{ "type": "module" }');
    const contracts = ["many.one", "many.two"].map((name) => pipeline(name));
    const jobs = await Promise.all(contracts.map((contract) => stillwake.enqueue(contract, null)));
    const said = await worker([
      "--url",
      database.url,
      "--drain",
      "--pipelines",
      one,
      "--pipelines",
      path.join(dir, "many/dir"),
    ]);
    expect(said).toMatchObject({ code: 0, stderr: "" });
    for (const { id } of jobs) expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
  });
});

describe("what it prints", () => {
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
