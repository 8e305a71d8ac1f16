// The command line, as real processes: what it prints, where, and with which exit code.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { doorFlags } from "../../src/cli/command.ts";
import { commandOf, commands } from "../../src/cli/commands.ts";
import { readFlags } from "../../src/cli/flags.ts";
import { helpOf } from "../../src/cli/help.ts";
import { printMigrations } from "../../src/index.ts";
import { type TestDatabase, testDatabase, waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";
import { command } from "../support/processes/cli-in-process.ts";

const migrated = await freshDatabase();
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
const nowhere = "postgres://nobody@127.0.0.1:1/nothing";
let empty: TestDatabase;
const wide = (text: string) => text.split("\n").filter((line) => line.length > 130);

beforeAll(async () => {
  buildPackage();
  empty = await testDatabase({ server: inject("server"), prefix: "cli_empty" });
});
afterAll(() => empty.drop());

describe("stillwake", () => {
  it.each(["--help", "-h", "help"])("%s tells every command and exits 0", async (flag) => {
    const { code, stdout, stderr } = await runCli([flag]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const { name, summary } of commands) expect(stdout).toMatch(new RegExp(`stillwake ${name} +${summary}`));
    for (const word of ["--url", "--schema", "--server", "Examples"]) expect(stdout).toContain(word);
    expect(wide(stdout)).toEqual([]);
  });

  it("tells of every command each of its options, and two to four examples, in lines that fit", () => {
    for (const command of commands) {
      const help = helpOf(command);
      for (const flag of Object.keys(command.flags))
        expect(help).toMatch(new RegExp(`^ {2}(-\\w, )?--${flag}( <| {2})`, "m"));
      expect(command.examples.length, command.name).toBeGreaterThanOrEqual(2);
      expect(command.examples.length, command.name).toBeLessThanOrEqual(4);
      expect(wide(help), command.name).toEqual([]);
    }
  });

  it("shows examples that it would accept", () => {
    for (const {
      name,
      flags,
      examples,
      words: [least, most],
    } of commands) {
      for (const [example] of examples) {
        // As a shell would cut it, without what is meant for the shell.
        const args = [
          ...example
            .replace(/\$\(.*\)/, "x")
            .replace(/ [|<>] .*$/, "")
            .matchAll(/'([^']*)'|"([^"]*)"|\S+/g),
        ].map(([whole, single, double]) => single ?? double ?? whole);
        const { words } = readFlags(args, name, flags);
        expect(words.length, example).toBeGreaterThanOrEqual(least);
        expect(words.length, example).toBeLessThanOrEqual(most);
      }
    }
  });

  it.each([
    ["migrate", "--help"],
    ["help", "migrate"],
    ["migrate", "-h"],
  ])("%s %s tells of one command", async (...args) => {
    const { code, stdout } = await runCli(args);
    expect(code).toBe(0);
    expect(stdout).toBe(`${helpOf(commandOf("migrate")!)}\n`);
  });

  it("starts quickly: before the command is known, no database, no server and no worker is loaded", async () => {
    const began = performance.now();
    await runCli(["--version"]);
    recordFigure("stillwake --version", Math.round(performance.now() - began), "ms");
    for (const name of ["index", "main", "commands", "process-commands", "job-commands", "flow-commands"]) {
      const source = fs.readFileSync(path.join(ROOT, "src/cli", `${name}.ts`), "utf8");
      const imports = [...source.matchAll(/^import (?!type).* from "(.*)";$/gm)].map(([, from]) => from!);
      const light = /(main|command|commands|flags|inert|screen|config|errors|nearest)\.ts$|^node:util$/;
      expect(
        imports.filter((from) => !light.test(from)),
        name,
      ).toEqual([]);
    }
  });

  it.each(["--version", "-v"])("%s is the version of the package", async (flag) => {
    expect(await runCli([flag])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it("without a command tells how to use it and exits 2", async () => {
    const { code, stdout } = await runCli([]);
    expect(code).toBe(2);
    expect(stdout).toContain("stillwake migrate");
  });

  it.each<[args: string[], says: RegExp]>([
    [["migrat"], /^INVALID_INPUT: Unknown command "migrat"\. Did you mean migrate\? See stillwake --help\n$/],
    [
      ["frobnicate"],
      /^INVALID_INPUT: Unknown command "frobnicate"\. Commands: init, dev, .*audit\. See stillwake --help\n$/,
    ],
    [["help", "jbo"], /Unknown command "jbo"\. Did you mean job\?/],
    [
      ["migrate", "--dry"],
      /^INVALID_INPUT: Unknown option '--dry' for migrate\. migrate takes --print, .*--schema\. See stillwake migrate --help\n$/s,
    ],
    [
      ["migrate", "--prnt"],
      /Unknown option '--prnt' for migrate\. Did you mean --print\? See stillwake migrate --help\n$/,
    ],
    [["migrate", "--slots", "3"], /Unknown option '--slots' for migrate\. migrate takes /],
    [["jobs", "--follow"], /Unknown option '--follow' for jobs/],
    [["--jsn"], /^INVALID_INPUT: Unknown option '--jsn'\. Give the command first\. See stillwake --help\n$/],
    [["migrate", "now"], /^INVALID_INPUT: Unexpected "now" after migrate\. See stillwake migrate --help\n$/],
    [["job"], /^INVALID_INPUT: job needs more: stillwake job <id>\. See stillwake job --help\n$/],
    [
      ["cancel"],
      /^INVALID_INPUT: cancel needs more: stillwake cancel <id> \[<id> …\]\. See stillwake cancel --help\n$/,
    ],
    [["job", "../tokens"], /^INVALID_INPUT: "\.\.\/tokens" is not a job id\. It is a UUID/],
    [["cancel", "01a1e107-2508-7182-ae66-db7bbe9aa49e", "x"], /^INVALID_INPUT: "x" is not a job id/],
    [["retry", "x"], /is not a job id/],
    [["pause", "x"], /is not a job id/],
    [["signal", "x", "approved"], /is not a job id/],
    [["read-token", "--job", "x"], /is not a job id/],
    [["webhooks", "--job", "x"], /is not a job id/],
    [["webhooks", "resend", "x"], /^INVALID_INPUT: "x" is not a webhook id\. It begins with msg_/],
    [["tokens", "revoke", "x"], /^INVALID_INPUT: "x" is not a token id\. It is a UUID and not the token/],
    [["tokens", "revoke", "swt_abcdefgh"], /^INVALID_INPUT: A token is not a token id\. (?!.*abcd)/],
    [
      ["tokens", "create", "--name", "x", "--role", "king"],
      /--role "king" does not exist\. There is: reader, operator/,
    ],
    [["jobs", "--state", "complete"], /^INVALID_INPUT: --state "complete" does not exist\. Did you mean completed\?/],
    [["webhooks", "--state", "queued"], /--state "queued" does not exist\. There is: pending, delivered, failed/],
    [["enqueue", "x", "--on-conflict", "fight"], /--on-conflict "fight" does not exist/],
    [["breakers", "opne", "x"], /^INVALID_INPUT: Unexpected "opne" after breakers\. Did you mean open\?/],
    [["breakers", "open"], /^INVALID_INPUT: breakers open needs a name\. Write stillwake breakers open <name>/],
    [["breakers", "--reason", "x"], /belong to breakers open/],
    [["pause"], /^INVALID_INPUT: pause takes a job or a pool/],
    [["pause", "x", "--pool", "y"], /^INVALID_INPUT: pause takes a job or a pool/],
    [["tokens", "create", "--name", "x"], /^INVALID_INPUT: A token has a name and a role/],
    [["read-token", "--pipeline", "x"], /^INVALID_INPUT: A read token is for one job, or for one key/],
    [["enqueue", "x", "{no"], /^INVALID_INPUT: The input is not JSON: .*Quote it for your shell/s],
    [["enqueue", "x", "@nowhere.json"], /^INVALID_INPUT: The input cannot be read from nowhere\.json: ENOENT/],
    [["enqueue", "x", "--follow", "--wait"], /exclude one another/],
    [["jobs", "--since", "yesterdayish"], /--since "yesterdayish" is neither a time ago nor a moment/],
    [["jobs", "--limit", "many"], /--limit "many" is not a whole number/],
    [["jobs", "--server", "localhost"], /^INVALID_INPUT: The server's address is not one/],
    [["jobs", "--url", "localhost/app"], /^INVALID_INPUT: url is not the URL of a Postgres/],
    [["server", "--url", "postgres://x@127.0.0.1:1/x", "--port", "99999"], /--port "99999" is not a port/],
    [
      ["server", "--url", "postgres://x@127.0.0.1:1/x", "--no-auth", "--host", "0.0.0.0"],
      /^INVALID_INPUT: A server without tokens cannot listen on 0\.0\.0\.0/,
    ],
    [["completion", "bsh"], /There is no completion for "bsh"\. Did you mean bash\?/],
    [["migrate"], /^INVALID_INPUT: No database is named\. Pass --url postgres:\/\/… or set DATABASE_URL\n$/],
    [["doctor"], /^INVALID_INPUT: No database is named/],
    [["migrate", "--url"], /^INVALID_INPUT: .*--url/],
    [["migrate", "--print", "--schema", "No Good"], /^INVALID_INPUT: "No Good" cannot name a schema\. Use /],
    [["migrate", "--print", "--schema", "user"], /^INVALID_INPUT: "user" cannot name a schema: the word is reserved/],
    [["doctor", "--url", "localhost/app"], /^INVALID_INPUT: url is not the URL of a Postgres\. Write it as postgres:/],
    [
      ["migrate", "--url", "postgres://u:sec#ret@host/app"],
      /^INVALID_INPUT: url is not the URL of a Postgres\. (?!.*ret)/,
    ],
  ])("%j is refused with exit code 2 and a remedy", async (args, says) => {
    const { code, stdout, stderr } = await command(args);
    expect(stderr).toMatch(says);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });

  it("does the same as a process", async () => {
    expect(await runCli(["jbos"])).toEqual({
      code: 2,
      stdout: "",
      stderr: 'INVALID_INPUT: Unknown command "jbos". Did you mean jobs? See stillwake --help\n',
    });
  });

  it("without a server and a database says what can be done, or asks stillwake dev where that is at its usual place", async () => {
    const { code, stderr } = await command(["jobs"], { STILLWAKE_DIR: "/nowhere" });
    const atItsPlace = await fetch("http://127.0.0.1:4700/health").then(
      () => true,
      () => false,
    );
    if (atItsPlace) return expect(stderr).toMatch(/^Asking stillwake dev at /);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^INVALID_INPUT: Neither a server nor a database is named\. .*start `stillwake dev`\n$/);
  });
});

describe("stillwake completion", () => {
  it("for bash is a script that bash accepts, and completes commands, words, flags and values", async () => {
    const { stdout } = await command(["completion", "bash"]);
    const complete = (line: string) => {
      const words = line.split(" ");
      const script = `${stdout}\nCOMP_WORDS=(${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length - 1}; _stillwake; echo "\${COMPREPLY[*]}"`;
      return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim().split(" ");
    };
    expect(complete("stillwake sch")).toEqual(["schedules"]);
    expect(complete("stillwake ")).toEqual(["help", ...commands.map(({ name }) => name)]);
    expect(complete("stillwake schedules ")).toEqual(["pause", "resume", "remove", "upcoming"]);
    expect(complete("stillwake jobs --pi")).toEqual(["--pipeline"]);
    expect(complete("stillwake jobs --state c")).toEqual(["completed", "cancelled"]);
    expect(complete("stillwake jobs --pipeline ")).toEqual([""]);
  });

  it.each(["zsh", "fish"])("for %s names everything, and is accepted where that shell is installed", async (shell) => {
    const { stdout } = await command(["completion", shell]);
    for (const { name, flags } of commands) {
      expect(stdout).toContain(name);
      for (const flag of Object.keys(flags)) expect(stdout).toContain(shell === "fish" ? `-l ${flag}` : `--${flag}[`);
    }
    const there = spawnSync(shell, ["--version"]).status === 0;
    if (there) expect(spawnSync(shell, ["-n"], { input: stdout }).status).toBe(0);
  });
});

describe("docs/reference/cli.md", () => {
  it("tells of every command what its help tells, in the same words, and once what most of them share", () => {
    const page = fs.readFileSync(path.join(ROOT, "docs/reference/cli.md"), "utf8");
    const told = [...page.matchAll(/^### `stillwake ([\w-]+)`\n\n```text\n([\s\S]*?)\n```$/gm)].map(
      ([, name, text]) => [name, text],
    );
    for (const flag of Object.keys(doorFlags)) expect(page).toContain(`| \`--${flag}`);
    expect(told).toEqual(commands.map((command) => [command.name, helpOf(command, { brief: true })]));
  });
});

describe("stillwake migrate", () => {
  it("brings the schema in, says what it did, and does nothing the second time", async () => {
    const first = await runCli(["migrate", "--url", empty.url]);
    expect(first).toEqual({
      code: 0,
      stdout: expect.stringMatching(
        /^applied 0001_jobs\n(applied \d+.*\n)*applied functions\nSchema "stillwake" is up to date\.\n$/,
      ),
      stderr: "",
    });
    const second = await runCli(["migrate"], { DATABASE_URL: empty.url });
    expect(second).toEqual({ code: 0, stdout: 'Schema "stillwake" is up to date.\n', stderr: "" });
  });

  it("takes its settings from flags before the environment", async () => {
    const env = { STILLWAKE_DATABASE_URL: empty.url, DATABASE_URL: nowhere, STILLWAKE_SCHEMA: "from_env" };
    expect((await runCli(["migrate"], env)).stdout).toContain('Schema "from_env" is up to date.');
    expect((await runCli(["migrate", "--schema", "from_flag"], env)).stdout).toContain(
      'Schema "from_flag" is up to date.',
    );
  });

  it("--print needs no database and prints what can be applied by hand", async () => {
    expect(await runCli(["migrate", "--print"])).toEqual({ code: 0, stdout: printMigrations(), stderr: "" });
    const other = await runCli(["migrate", "--print", "--schema", "other"]);
    expect(other.stdout).toBe(printMigrations("other"));
  });

  it("says for whom it waits, without the password, when nobody answers", async () => {
    const url = "postgres://nobody:hidden@127.0.0.1:1/nothing";
    const { PATH = "", HOME = "" } = process.env;
    const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), "migrate"], {
      env: { PATH, HOME, DATABASE_URL: url },
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    let stderr = "";
    child.stderr.on("data", (data) => (stderr += data));
    await waitFor(() => stderr !== "", { timeout: 30_000 });
    expect(stderr).toBe("Waiting for Postgres at 127.0.0.1:1…\n");
  });

  it("exits 1 when the database refuses, with its reason and no stack", async () => {
    const wrong = new URL(empty.url);
    wrong.pathname = "/no_such_database";
    const { code, stdout, stderr } = await runCli(["migrate", "--url", wrong.href]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toBe('3D000: database "no_such_database" does not exist\n');
  });
});

describe("stillwake dev", () => {
  it("on a database of yours says which, without the password", async () => {
    const url = new URL(migrated.url);
    url.searchParams.set("password", url.password);
    const { code, stdout, stderr } = await runCli(
      ["dev"],
      { DATABASE_URL: url.href, STILLWAKE_PORT: "0" },
      "Stop with Ctrl-C",
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain(`Everything is kept in postgres://${url.username}:***@${url.host}/${migrated.name}, and`);
    expect(stdout).not.toContain(url.password);
  });
});

describe("stillwake dev, with pipelines of a project,", () => {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-cli-dev-")));
  afterAll(() => fs.rmSync(dir, { recursive: true, force: true }));
  const write = (name: string, text: string) => {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), text.replaceAll("STILLWAKE", path.join(ROOT, "dist")));
  };
  const dev = async (args: string[], until: RegExp) => {
    const { PATH = "", HOME = "" } = process.env;
    const program = [path.join(ROOT, "dist/cli/index.js"), "dev", "--port", "0", ...args];
    const env = { PATH, HOME, DATABASE_URL: migrated.url, STILLWAKE_SCHEMA: "project", NO_COLOR: "1" };
    const child = spawn(process.execPath, program, { cwd: dir, env });
    onTestFinished(() => void child.kill("SIGKILL"));
    const said = { stdout: "", stderr: "" };
    child.stdout.on("data", (data) => (said.stdout += data));
    child.stderr.on("data", (data) => (said.stderr += data));
    const closed = once(child, "close");
    await waitFor(() => until.test(said.stdout) || child.exitCode !== null, { timeout: 30_000 });
    return { child, said, closed };
  };

  it("serves every pool they name, shows the job that was asked for, and answers as a server", async () => {
    for (const pool of ["default", "scan"]) {
      write(
        `pipelines/${pool}.mjs`,
        `import { pipeline } from "STILLWAKE/index.js";
         import { implement } from "STILLWAKE/worker/index.js";
         export default implement(pipeline("in-${pool}", { pool: "${pool}" }), (job) => { job.log.info("at work in ${pool}"); return "${pool}"; });`,
      );
    }
    write("stillwake.config.mjs", 'export default { pipelines: "./pipelines" };');
    const { child, said, closed } = await dev(["--enqueue", "in-scan"], /completed job/);
    expect(said.stdout).toMatch(/at work in scan\n[\s\S]*"scan"\n\ncompleted job/);
    const [, url = ""] = /is at (\S+)/.exec(said.stdout)!;
    const { stdout } = await command(["enqueue", "in-default", "--follow", "--server", url]);
    expect(stdout).toMatch(/at work in default\n[\s\S]*completed in/);
    expect(JSON.parse((await command(["machines", "--json", "--server", url])).stdout).machines).toHaveLength(2);
    // Commands in the same folder find it.
    const here = { STILLWAKE_DIR: path.join(dir, ".stillwake") };
    expect(await command(["machines"], here)).toMatchObject({ code: 0, stderr: `Asking stillwake dev at ${url}.\n` });
    // Those of the project, and none to look at.
    const { pipelines } = (await (await fetch(`${url}/v1/pipelines`)).json()) as { pipelines: { name: string }[] };
    expect(pipelines.map(({ name }) => name)).toEqual(["in-default", "in-scan"]);
    child.kill("SIGINT");
    expect(await closed).toEqual([0, null]);
    expect(said.stderr).toBe("");
    expect(fs.existsSync(path.join(dir, ".stillwake/dev.json"))).toBe(false);
  });

  it("hands a job back on Ctrl-C although its code takes no notice, and goes on with it at the next start", async () => {
    write("patient/helper.mjs", "export const answer = 42;");
    write(
      "patient/waits.mjs",
      `import fs from "node:fs";
       import { setTimeout as delay } from "node:timers/promises";
       import { pipeline } from "STILLWAKE/index.js";
       import { implement } from "STILLWAKE/worker/index.js";
       export default implement(pipeline("waits"), async (job) => {
         await job.step("once", { end: "done once" }, () => {});
         job.log.info("waits for a file");
         while (!fs.existsSync("${dir}/go")) await delay(50);
       });`,
    );
    const args = ["--pipelines", "./patient", "--enqueue", "waits"];
    const first = await dev(args, /waits for a file/);
    first.child.kill("SIGINT");
    expect(await first.closed).toEqual([0, null]);
    expect(first.said.stdout).toContain("  Handing back 1 job, which goes on at the next start.\n");
    expect(first.said.stderr).toMatch(
      /^\S+patient\/helper\.mjs exports no pipeline: export what implement\(…\) returns, .*\n$/,
    );
    write("go", "");
    const [, id = ""] = /enqueued job (\S+)/.exec(first.said.stdout) ?? [];
    const second = await dev(args, /completed job/);
    expect(second.said.stdout).toContain(`going on with job ${id}, which had not ended`);
    expect(second.said.stdout.match(/done once/g)).toHaveLength(1);
    const [, url = ""] = /is at (\S+)/.exec(second.said.stdout)!;
    const { attempts } = (await (await fetch(`${url}/v1/jobs/${id}/attempts`)).json()) as { attempts: object[] };
    expect(attempts).toMatchObject([
      { attempt: 1, outcome: "released" },
      { attempt: 1, outcome: "completed" },
    ]);
    second.child.kill("SIGTERM");
    expect(await second.closed).toEqual([0, null]);
  });

  it("ends at once on a second Ctrl-C, and leaves no runner behind", async () => {
    write(
      "stubborn/spins.mjs",
      `import { pipeline } from "STILLWAKE/index.js";
       import { implement } from "STILLWAKE/worker/index.js";
       export default implement(pipeline("spins"), async (job) => { job.log.info("spins"); await job.flush(); for (;;); });`,
    );
    const { child, said, closed } = await dev(["--pipelines", "./stubborn", "--enqueue", "spins"], /spins\n/);
    child.kill("SIGINT");
    await waitFor(() => said.stdout.includes("Handing back 1 job"), { timeout: 20_000 });
    // Soon after the first it counts as the same one, as npm may send it on; later it does not.
    await waitFor(() => !child.kill("SIGINT"), { timeout: 20_000, interval: 100, what: "it to end" });
    expect(await closed).toEqual([130, null]);
    await waitFor(() => processesIn(dir).length === 0, { timeout: 20_000, what: "its runners to end" });
  });

  it.each([
    [["--enqueue", "nobody"], /^UNKNOWN_PIPELINE: There is no pipeline "nobody"/],
    [["--pipelines", "./nowhere"], /^INVALID_INPUT: Pipelines "\.\/nowhere" do not exist/],
    [["--input", "{}"], /^INVALID_INPUT: --input belongs to --enqueue/],
  ])("%j: ends with what is wrong, and leaves nothing running", async (args, says) => {
    const { said, closed } = await dev(args, /never/);
    expect((await closed)[0]).toBeGreaterThan(0);
    expect(said.stderr).toMatch(says);
    expect(said.stderr.trimEnd().split("\n")).toHaveLength(1);
  });
});

describe("stillwake doctor", () => {
  it("finds a healthy database healthy, for people and for programs", async () => {
    const people = await runCli(["doctor", "--url", migrated.url]);
    expect(people.stderr).toBe("");
    expect(people.stdout).toMatch(/^ok {4}connection/);
    expect(people.stdout).not.toMatch(/^(warn|BAD)/m);
    expect(people.code).toBe(0);

    const programs = await runCli(["doctor", "--json"], { DATABASE_URL: migrated.url });
    const findings = JSON.parse(programs.stdout);
    expect(programs.code).toBe(0);
    expect(findings.map((finding: { check: string }) => finding.check)).toEqual(
      expect.arrayContaining(["connection", "version", "fsync", "synchronous_commit", "schema", "roles"]),
    );
    expect(findings.filter((finding: { level: string }) => finding.level !== "ok")).toEqual([]);
  });

  it("shows no password", async () => {
    const { stdout } = await runCli(["doctor", "--url", migrated.url]);
    expect(new URL(migrated.url).password.length).toBeGreaterThan(3);
    expect(stdout).not.toContain(new URL(migrated.url).password);
  });

  it("exits 1 with a remedy when the schema is missing", async () => {
    const { code, stdout } = await runCli(["doctor", "--url", migrated.url, "--schema", "elsewhere"]);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^BAD {3}schema +"elsewhere" does not exist\n +→ Run `stillwake migrate`, or name the schema with --schema\.$/m,
    );
  });

  it("exits 1 with a remedy when nobody answers", async () => {
    const { code, stdout, stderr } = await runCli(["doctor", "--url", nowhere]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(stdout).toMatch(
      /^BAD {3}connection +127\.0\.0\.1:1\/nothing: .*ECONNREFUSED.*\n +→ Start Postgres, or correct host/,
    );
  });

  it("warns, and exits 0, when commits are not waited for", async () => {
    const client = new pg.Client({ connectionString: migrated.url });
    await client.connect();
    await client.query(`alter database ${migrated.name} set synchronous_commit = off`);
    const { code, stdout } = await runCli(["doctor", "--url", migrated.url]);
    await client.query(`alter database ${migrated.name} reset synchronous_commit`);
    await client.end();
    expect(stdout).toMatch(
      /^warn {2}synchronous_commit +off: .*\n +→ alter role <user> set synchronous_commit = on\.$/m,
    );
    expect(code).toBe(0);
  });
});

/** Every process whose working directory is in `dir`. */
function processesIn(dir: string): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    try {
      return fs.readlinkSync(`/proc/${Number(entry)}/cwd`).startsWith(dir) ? [Number(entry)] : [];
    } catch {
      return [];
    }
  });
}
