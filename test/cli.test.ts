// The command line, as real processes: what it prints, where, and with which exit code.
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { printMigrations } from "../src/index.ts";
import { type TestDatabase, testDatabase } from "../src/testing/index.ts";
import { buildPackage, ROOT } from "./setup/build.ts";
import { runCli } from "./setup/cli.ts";
import { freshDatabase } from "./setup/database.ts";

const migrated = await freshDatabase();
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
const nowhere = "postgres://nobody@127.0.0.1:1/nothing";
let empty: TestDatabase;

beforeAll(async () => {
  buildPackage();
  empty = await testDatabase({ server: inject("server"), prefix: "cli_empty" });
});
afterAll(() => empty.drop());

describe("stillwake", () => {
  it.each([["--help"], ["-h"], ["migrate", "--help"]])("%s %s tells every command and exits 0", async (...args) => {
    const { code, stdout, stderr } = await runCli(args.filter(Boolean));
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const word of ["stillwake dev", "stillwake migrate", "stillwake doctor", "--url", "--schema", "Examples"])
      expect(stdout).toContain(word);
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
    [
      ["migrat"],
      /^INVALID_INPUT: Unknown command "migrat"\. Commands: dev, worker, migrate, doctor, watchdog, webhooks\. See stillwake --help\n$/,
    ],
    [["migrate", "--dry"], /^INVALID_INPUT: Unknown option '--dry'.*See stillwake --help\n$/s],
    [["migrate", "now"], /^INVALID_INPUT: Unexpected "now" after migrate\. See stillwake --help\n$/],
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
    const { code, stdout, stderr } = await runCli(args);
    expect(stderr).toMatch(says);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
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
      "completed job",
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain(`  Postgres: postgres://${url.username}:***@${url.host}/${migrated.name}\n`);
    expect(stdout).not.toContain(url.password);
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
