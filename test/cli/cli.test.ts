// The command line: output, streams and exit codes, mostly as real processes.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { apiFlags } from "../../src/cli/command.ts";
import { commands, findCommand } from "../../src/cli/commands.ts";
import { readFlags } from "../../src/cli/flags.ts";
import { commandHelp } from "../../src/cli/help.ts";
import { printMigrations } from "../../src/index.ts";
import { testDatabase, waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { processesIn } from "../support/processes/fault-checks.ts";

const migrated = await freshDatabase();
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
const nowhere = "postgres://nobody@127.0.0.1:1/nothing";
const empty = await testDatabase({ server: inject("server"), prefix: "cli_empty" });
const wide = (text: string) => text.split("\n").filter((line) => line.length > 130);

beforeAll(buildPackage);
afterAll(() => empty.drop());

describe("stillwake", () => {
  it.each(["--help", "-h", "help"])("%s lists every command and exits 0", async (flag) => {
    const { code, stdout, stderr } = await runCli([flag]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const { name, summary } of commands) expect(stdout).toMatch(new RegExp(`stillwake ${name} +${summary}`));
    for (const word of ["--url", "--schema", "--server", "Examples"]) expect(stdout).toContain(word);
    expect(wide(stdout)).toEqual([]);
  });

  it("has a help for each command with every option and two to four examples, in lines that fit a terminal", () => {
    for (const command of commands) {
      const help = commandHelp(command);
      for (const flag of Object.keys(command.flags))
        expect(help).toMatch(new RegExp(`^ {2}(-\\w, )?--${flag}( <| {2})`, "m"));
      expect(command.examples.length, command.name).toBeGreaterThanOrEqual(2);
      expect(command.examples.length, command.name).toBeLessThanOrEqual(4);
      expect(wide(help), command.name).toEqual([]);
    }
  });

  it("accepts its own examples", () => {
    for (const {
      name,
      flags,
      examples,
      args: [min, max],
    } of commands) {
      for (const [example] of examples) {
        // Split like a shell does, without redirections and substitutions.
        const argv = [
          ...example
            .replace(/\$\(.*\)/, "x")
            .replace(/ [|<>] .*$/, "")
            .matchAll(/'([^']*)'|"([^"]*)"|\S+/g),
        ].map(([whole, single, double]) => single ?? double ?? whole);
        const { args } = readFlags(argv, name, flags);
        expect(args.length, example).toBeGreaterThanOrEqual(min);
        expect(args.length, example).toBeLessThanOrEqual(max);
      }
    }
  });

  it.each([
    ["migrate", "--help"],
    ["help", "migrate"],
    ["migrate", "-h"],
  ])("%s %s prints the help of one command", async (...args) => {
    const { code, stdout } = await runCli(args);
    expect(code).toBe(0);
    expect(stdout).toBe(`${commandHelp(findCommand("migrate")!)}\n`);
  });

  it("starts quickly: no database, server, worker or orchestrator is loaded before a command runs", async () => {
    const startedAt = performance.now();
    await runCli(["--version"]);
    recordFigure("stillwake --version", Math.round(performance.now() - startedAt), "ms");
    const loaded = staticImports(path.join(ROOT, "src/cli/index.ts"));
    for (const file of staticImports(path.join(ROOT, "src/cli/commands.ts"))) loaded.add(file);
    const light =
      /^(cli\/(commands\/|output\/|[\w-]+\.ts$)|text\/|(config|errors|time)\.ts$|node:(fs|net|path|tty|util|stream)$)/;
    const heavy = /^cli\/(connection|config-file|api-client)\.ts$/;
    expect(loaded).toContain("cli/commands/worker.ts");
    expect([...loaded].filter((file) => !light.test(file) || heavy.test(file))).toEqual([]);
  });

  it.each(["--version", "-v"])("%s prints the version of the package", async (flag) => {
    expect(await runCli([flag])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it("without a command prints the help and exits 2", async () => {
    const { code, stdout } = await runCli([]);
    expect(code).toBe(2);
    expect(stdout).toContain("stillwake migrate");
  });

  it.each<[args: string[], error: RegExp]>([
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
    [["--jsn"], /^INVALID_INPUT: Unknown option '--jsn'\. Put the command first\. See stillwake --help\n$/],
    [["migrate", "now"], /^INVALID_INPUT: Unexpected "now" after migrate\. See stillwake migrate --help\n$/],
    [["job"], /^INVALID_INPUT: job needs more arguments: stillwake job <id>\. See stillwake job --help\n$/],
    [
      ["cancel"],
      /^INVALID_INPUT: cancel needs more arguments: stillwake cancel <id> \[<id> …\]\. See stillwake cancel --help\n$/,
    ],
    [["job", "../tokens"], /^INVALID_INPUT: "\.\.\/tokens" is not a job id\. Job ids are UUIDs/],
    [["cancel", "01a1e107-2508-7182-ae66-db7bbe9aa49e", "x"], /^INVALID_INPUT: "x" is not a job id/],
    [["retry", "x"], /is not a job id/],
    [["pause", "x"], /is not a job id/],
    [["signal", "x", "approved"], /is not a job id/],
    [["read-token", "--job", "x"], /is not a job id/],
    [["webhooks", "--job", "x"], /is not a job id/],
    [["webhooks", "resend", "x"], /^INVALID_INPUT: "x" is not a webhook id\. Webhook ids start with msg_/],
    [["tokens", "revoke", "x"], /^INVALID_INPUT: "x" is not a token id\. A token's id is a UUID, not the token/],
    [["tokens", "revoke", "swt_abcdefgh"], /^INVALID_INPUT: A token is not a token id\. (?!.*abcd)/],
    [["tokens", "create", "--name", "x", "--role", "king"], /--role "king" is not allowed\. Allowed: reader, operator/],
    [["jobs", "--state", "complete"], /^INVALID_INPUT: --state "complete" is not allowed\. Did you mean completed\?/],
    [["webhooks", "--state", "queued"], /--state "queued" is not allowed\. Allowed: pending, delivered, failed/],
    [["enqueue", "x", "--on-conflict", "fight"], /--on-conflict "fight" is not allowed/],
    [["breakers", "opne", "x"], /^INVALID_INPUT: Unexpected "opne" after breakers\. Did you mean open\?/],
    [["breakers", "open"], /^INVALID_INPUT: breakers open needs a name\. Write stillwake breakers open <name>/],
    [["breakers", "--reason", "x"], /apply only to breakers open/],
    [["pause"], /^INVALID_INPUT: pause takes a job or a pool/],
    [["pause", "x", "--pool", "y"], /^INVALID_INPUT: pause takes a job or a pool/],
    [["tokens", "create", "--name", "x"], /^INVALID_INPUT: A token needs a name and a role/],
    [["read-token", "--pipeline", "x"], /^INVALID_INPUT: A read token is for one job, or for one key/],
    [["enqueue", "x", "{no"], /^INVALID_INPUT: The input is not JSON: .*Quote it for your shell/s],
    [["enqueue", "x", "@nowhere.json"], /^INVALID_INPUT: The input cannot be read from nowhere\.json: ENOENT/],
    [["enqueue", "x", "--follow", "--wait"], /are mutually exclusive/],
    [["jobs", "--since", "yesterdayish"], /--since "yesterdayish" is neither a duration nor a timestamp/],
    [["jobs", "--limit", "many"], /--limit "many" is not a whole number/],
    [["jobs", "--server", "localhost"], /^INVALID_INPUT: Invalid server URL/],
    [["jobs", "--url", "localhost/app"], /^INVALID_INPUT: url is not a Postgres URL/],
    [["server", "--url", "postgres://x@127.0.0.1:1/x", "--port", "99999"], /--port "99999" is not a port/],
    [
      ["server", "--url", "postgres://x@127.0.0.1:1/x", "--no-auth", "--host", "0.0.0.0"],
      /^INVALID_INPUT: A server without tokens cannot listen on 0\.0\.0\.0/,
    ],
    [["completion", "bsh"], /There is no completion for "bsh"\. Did you mean bash\?/],
    [["migrate"], /^INVALID_INPUT: No database is configured\. Pass --url postgres:\/\/… or set DATABASE_URL\n$/],
    [["doctor"], /^INVALID_INPUT: No database is configured/],
    [["migrate", "--url"], /^INVALID_INPUT: .*--url/],
    [["migrate", "--print", "--schema", "No Good"], /^INVALID_INPUT: "No Good" is not a valid schema name\. Use /],
    [
      ["migrate", "--print", "--schema", "user"],
      /^INVALID_INPUT: "user" is not a valid schema name: the word is reserved/,
    ],
    [["doctor", "--url", "localhost/app"], /^INVALID_INPUT: url is not a Postgres URL\. Use postgres:/],
    [["migrate", "--url", "postgres://u:sec#ret@host/app"], /^INVALID_INPUT: url is not a Postgres URL\. (?!.*ret)/],
  ])("%j is refused with exit code 2 and a remedy", async (args, error) => {
    const { code, stdout, stderr } = await runCommand(args);
    expect(stderr).toMatch(error);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });

  it("behaves the same as a process", async () => {
    expect(await runCli(["jbos"])).toEqual({
      code: 2,
      stdout: "",
      stderr: 'INVALID_INPUT: Unknown command "jbos". Did you mean jobs? See stillwake --help\n',
    });
  });

  it("without a server and a database uses a running stillwake dev, or explains how to configure one", async () => {
    const { code, stderr } = await runCommand(["jobs"], { STILLWAKE_DIR: "/nowhere" });
    const isDevRunning = await fetch("http://127.0.0.1:4700/health").then(
      () => true,
      () => false,
    );
    if (isDevRunning) return expect(stderr).toMatch(/^Using stillwake dev at /);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^INVALID_INPUT: Neither a server nor a database is configured\. .*start `stillwake dev`\n$/,
    );
  });
});

describe("stillwake completion", () => {
  it("for bash completes commands, subcommands, flags and values", async () => {
    const { stdout } = await runCommand(["completion", "bash"]);
    const complete = (line: string) => {
      const words = line.split(" ");
      const script = `${stdout}\nCOMP_WORDS=(${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length - 1}; _stillwake; echo "\${COMPREPLY[*]}"`;
      return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim().split(" ");
    };
    expect(complete("stillwake sch")).toEqual(["schedules"]);
    expect(complete("stillwake ")).toEqual(["help", ...commands.map(({ name }) => name)]);
    expect(complete("stillwake schedules ")).toEqual(["set", "pause", "resume", "remove", "upcoming"]);
    expect(complete("stillwake jobs --pi")).toEqual(["--pipeline"]);
    expect(complete("stillwake jobs --state c")).toEqual(["completed", "cancelled"]);
    expect(complete("stillwake jobs --pipeline ")).toEqual([""]);
  });

  it.each(["zsh", "fish"])(
    "for %s contains every command and flag, and is accepted where that shell is installed",
    async (shell) => {
      const { stdout } = await runCommand(["completion", shell]);
      for (const { name, flags } of commands) {
        expect(stdout).toContain(name);
        for (const flag of Object.keys(flags)) expect(stdout).toContain(shell === "fish" ? `-l ${flag}` : `--${flag}[`);
      }
      const isInstalled = spawnSync(shell, ["--version"]).status === 0;
      if (isInstalled) expect(spawnSync(shell, ["-n"], { input: stdout }).status).toBe(0);
    },
  );
});

describe("docs/reference/cli.md", () => {
  it("contains the help of every command, and once the options that most of them share", () => {
    const page = fs.readFileSync(path.join(ROOT, "docs/reference/cli.md"), "utf8");
    const sections = [...page.matchAll(/^### `stillwake ([\w-]+)`\n\n```text\n([\s\S]*?)\n```$/gm)].map(
      ([, name, text]) => [name, text],
    );
    for (const flag of Object.keys(apiFlags)) expect(page).toContain(`| \`--${flag}`);
    expect(sections).toEqual(commands.map((command) => [command.name, commandHelp(command, { brief: true })]));
  });
});

describe("stillwake migrate", () => {
  it("applies the schema, prints what it applied, and does nothing the second time", async () => {
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

  it("prefers flags over the environment", async () => {
    const env = { STILLWAKE_DATABASE_URL: empty.url, DATABASE_URL: nowhere, STILLWAKE_SCHEMA: "from_env" };
    expect((await runCli(["migrate"], env)).stdout).toContain('Schema "from_env" is up to date.');
    expect((await runCli(["migrate", "--schema", "from_flag"], env)).stdout).toContain(
      'Schema "from_flag" is up to date.',
    );
  });

  it("--print needs no database and prints the SQL", async () => {
    expect(await runCli(["migrate", "--print"])).toEqual({ code: 0, stdout: printMigrations(), stderr: "" });
    const other = await runCli(["migrate", "--print", "--schema", "other"]);
    expect(other.stdout).toBe(printMigrations("other"));
  });

  it("names the address it waits for, without the password, when nothing responds there", async () => {
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

  it("exits 1 with the reason of the database and no stack", async () => {
    const wrong = new URL(empty.url);
    wrong.pathname = "/no_such_database";
    const { code, stdout, stderr } = await runCli(["migrate", "--url", wrong.href]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(
      /^DATABASE_MISSING: database "no_such_database" does not exist\. Check the name after the last .*\n$/,
    );
  });
});

describe("stillwake dev", () => {
  it("on another database prints its URL, without the password", async () => {
    const url = new URL(migrated.url);
    url.searchParams.set("password", url.password);
    const { code, stdout, stderr } = await runCli(
      ["dev"],
      { DATABASE_URL: url.href, STILLWAKE_PORT: "0" },
      "Stop with Ctrl-C",
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain(`The data stays in postgres://${url.username}:***@${url.host}/${migrated.name}, and`);
    expect(stdout).not.toContain(url.password);
  });
});

describe("stillwake dev with the pipelines of a project", () => {
  const dir = temporaryDirectory("cli-dev");
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
    const output = { stdout: "", stderr: "" };
    child.stdout.on("data", (data) => (output.stdout += data));
    child.stderr.on("data", (data) => (output.stderr += data));
    const closed = once(child, "close");
    await waitFor(() => until.test(output.stdout) || child.exitCode !== null, { timeout: 30_000 });
    return { child, output, closed };
  };

  it("serves the pools of all pipelines, follows the job of --enqueue, and serves the API", async () => {
    for (const pool of ["default", "scan"]) {
      write(
        `pipelines/${pool}.mjs`,
        `import { pipeline } from "STILLWAKE/index.js";
         import { implement } from "STILLWAKE/worker/index.js";
         export default implement(pipeline("in-${pool}", { pool: "${pool}" }), (job) => { job.log.info("at work in ${pool}"); return "${pool}"; });`,
      );
    }
    write("stillwake.config.mjs", 'export default { pipelines: "./pipelines" };');
    const { child, output, closed } = await dev(["--enqueue", "in-scan"], /completed job/);
    expect(output.stdout).toMatch(/at work in scan\n[\s\S]*"scan"\n\ncompleted job/);
    const [, url = ""] = /is at (\S+)/.exec(output.stdout)!;
    const { stdout } = await runCommand(["enqueue", "in-default", "--follow", "--server", url]);
    expect(stdout).toMatch(/at work in default\n[\s\S]*completed in/);
    expect(JSON.parse((await runCommand(["machines", "--json", "--server", url])).stdout).machines).toHaveLength(2);
    // Commands in the same folder find it.
    const here = { STILLWAKE_DIR: path.join(dir, ".stillwake") };
    expect(await runCommand(["machines"], here)).toMatchObject({ code: 0, stderr: `Using stillwake dev at ${url}.\n` });
    // Only those of the project, not the demo pipelines.
    const { pipelines } = (await (await fetch(`${url}/v1/pipelines`)).json()) as { pipelines: { name: string }[] };
    expect(pipelines.map(({ name }) => name)).toEqual(["in-default", "in-scan"]);
    child.kill("SIGINT");
    expect(await closed).toEqual([0, null]);
    expect(output.stderr).toBe("");
    expect(fs.existsSync(path.join(dir, ".stillwake/dev.json"))).toBe(false);
  });

  it("releases a job on Ctrl-C although its code ignores the signal, and resumes it at the next start", async () => {
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
    expect(first.output.stdout).toContain("  Releasing 1 job; it resumes at the next start.\n");
    expect(first.output.stderr).toMatch(
      /^\S+patient\/helper\.mjs exports no pipeline: export the result of implement\(…\), .*\n$/,
    );
    const [, id = ""] = /enqueued job (\S+)/.exec(first.output.stdout) ?? [];
    const second = await dev(args, /resuming job/);
    expect(second.output.stdout).toContain(`resuming job ${id} of an earlier start`);
    write("go", "");
    await waitFor(() => second.output.stdout.includes("completed job"), { timeout: 20_000 });
    expect(second.output.stdout.match(/done once/g)).toHaveLength(1);
    const [, url = ""] = /is at (\S+)/.exec(second.output.stdout)!;
    const { attempts } = (await (await fetch(`${url}/v1/jobs/${id}/attempts`)).json()) as { attempts: object[] };
    expect(attempts).toMatchObject([
      { attempt: 1, outcome: "released" },
      { attempt: 1, outcome: "completed" },
    ]);
    second.child.kill("SIGTERM");
    expect(await second.closed).toEqual([0, null]);
  });

  it("exits at once on a second Ctrl-C, and leaves no runner behind", async () => {
    write(
      "stubborn/spins.mjs",
      `import { pipeline } from "STILLWAKE/index.js";
       import { implement } from "STILLWAKE/worker/index.js";
       export default implement(pipeline("spins"), async (job) => { job.log.info("spins"); await job.flush(); for (;;); });`,
    );
    const { child, output, closed } = await dev(["--pipelines", "./stubborn", "--enqueue", "spins"], /spins\n/);
    child.kill("SIGINT");
    await waitFor(() => output.stdout.includes("Releasing 1 job"), { timeout: 20_000 });
    // A second signal within half a second counts as the same one, because npm may forward it.
    await waitFor(() => !child.kill("SIGINT"), { timeout: 20_000, interval: 100, what: "it to end" });
    expect(await closed).toEqual([130, null]);
    await waitFor(() => processesIn(dir).length === 0, { timeout: 20_000, what: "its runners to end" });
  });

  it.each([
    [["--enqueue", "unknown"], /^UNKNOWN_PIPELINE: There is no pipeline "unknown"/],
    [["--pipelines", "./nowhere"], /^INVALID_INPUT: Pipelines "\.\/nowhere" do not exist/],
    [["--input", "{}"], /^INVALID_INPUT: --input requires --enqueue/],
  ])("%j: exits with an error, and leaves nothing running", async (args, error) => {
    const { output, closed } = await dev(args, /never/);
    expect((await closed)[0]).toBeGreaterThan(0);
    expect(output.stderr).toMatch(error);
    expect(output.stderr.trimEnd().split("\n")).toHaveLength(1);
  });
});

describe("stillwake doctor", () => {
  it("reports no problem of a healthy database, as text and as JSON", async () => {
    const text = await runCli(["doctor", "--url", migrated.url]);
    expect(text.stderr).toBe("");
    expect(text.stdout).toMatch(/^ok {4}connection/);
    expect(text.stdout).not.toMatch(/^(warn|BAD)/m);
    expect(text.code).toBe(0);

    const json = await runCli(["doctor", "--json"], { DATABASE_URL: migrated.url });
    const findings = JSON.parse(json.stdout);
    expect(json.code).toBe(0);
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

  it("exits 1 with a remedy when nothing responds", async () => {
    const { code, stdout, stderr } = await runCli(["doctor", "--url", nowhere]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(stdout).toMatch(
      /^BAD {3}connection +127\.0\.0\.1:1\/nothing: .*ECONNREFUSED.*\n +→ Start Postgres, or correct host/,
    );
  });

  it("exits 1 with a remedy when the password or the name of the database is wrong", async () => {
    const wrong = async (change: (url: URL) => void) => {
      const url = new URL(migrated.url);
      change(url);
      return (await runCli(["doctor", "--url", url.href])).stdout;
    };
    expect(await wrong((url) => (url.password = "wrong"))).toMatch(
      /password authentication failed.*\n +→ Check user and pass/,
    );
    expect(await wrong((url) => (url.pathname = "/elsewhere"))).toMatch(
      /"elsewhere" does not exist\n +→ Check the name after/,
    );
  });

  it("warns, and exits 0, when commits are asynchronous", async () => {
    const client = await connect(migrated.url);
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

/** The files that a module imports statically, directly or through others, relative to src/. Types are left out. */
function staticImports(file: string, found = new Set<string>()): Set<string> {
  const source = fs.readFileSync(file, "utf8");
  for (const [, from] of source.matchAll(/^import (?!type)[^;]*?"([^"]+)";$/gm)) {
    const full = from!.startsWith(".") ? path.resolve(path.dirname(file), from!) : from!;
    const name = from!.startsWith(".") ? path.relative(path.join(ROOT, "src"), full) : from!;
    if (found.has(name)) continue;
    found.add(name);
    if (from!.startsWith(".")) staticImports(full, found);
  }
  return found;
}
