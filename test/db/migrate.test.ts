// Migrations: several at once, killed, under load, next to another Stillwake, and from every earlier state to the same result.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import type pg from "pg";
import { describe, expect, inject, it } from "vitest";
import { NEWEST_MIGRATION } from "../../src/db/schema-check.ts";
import { createStillwake, migrate, printMigrations, SchemaMismatch } from "../../src/index.ts";
import { faultProxy, testDatabase, waitFor } from "../../src/testing/index.ts";
import { version } from "../../src/version.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { dumpSchema } from "../support/database/schema-dump.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const fresh = await dumpSchema(await connect((await freshDatabase()).url), "stillwake");

describe("concurrent migrations", () => {
  it("of five at once, one does the work, all succeed, and no lock is left", async () => {
    const { url, client } = await emptyDatabase();
    const results = await Promise.all([1, 2, 3, 4, 5].map(() => migrate({ url })));
    expect(results.filter(({ applied }) => applied.length > 0)).toHaveLength(1);
    expect(results.filter(({ functions }) => functions)).toHaveLength(1);
    expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    expect(await advisoryLocks(client)).toBe(0);
    expect(await migrate({ url })).toEqual({ schema: "stillwake", applied: [], functions: false });
  });

  it("a killed one leaves nothing behind, and the next one succeeds", async () => {
    buildPackage();
    const { url, client } = await emptyDatabase();
    const holder = await connect(url);
    // Tables can be created, functions cannot: the migration stops half-way.
    await holder.query("begin; lock table pg_catalog.pg_proc in share mode");
    const cli = path.join(ROOT, "dist/cli/index.js");
    const migrator = spawn(process.execPath, [cli, "migrate", "--url", url], { stdio: "ignore" });
    await waitFor(() => isBlocked(client), { what: "the migrator to be blocked" });
    expect(await advisoryLocks(client)).toBe(1);
    migrator.kill("SIGKILL");
    await once(migrator, "exit");
    await holder.query("commit");
    await migrate({ url });
    expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    await waitFor(async () => (await advisoryLocks(client)) === 0, { what: "the killed migrator's lock to go" });
    recordFigure("migrate: locks left by a killed migrator", await advisoryLocks(client));
  });

  it("one that loses its connection starts again", async () => {
    const { url, client } = await emptyDatabase();
    const holder = await connect(url);
    await using proxy = await faultProxy(url);
    await holder.query("begin; lock table pg_catalog.pg_proc in share mode");
    const migrating = migrate({ url: proxy.url });
    await waitFor(() => isBlocked(client), { what: "the migrator to be blocked" });
    proxy.reset();
    await holder.query("commit");
    await migrating;
    expect(await dumpSchema(client, "stillwake")).toBe(fresh);
  });
});

describe("without a database", () => {
  it("migrate throws DatabaseUnavailable after its retry timeout", async () => {
    await expect(migrate({ url: "postgres://x@127.0.0.1:1/x", retryTimeoutMs: 50 })).rejects.toMatchObject({
      code: "DATABASE_UNAVAILABLE",
      retryable: true,
      message: expect.stringMatching(
        /^Postgres could not be reached for 50 ms: .*ECONNREFUSED.*\. Check that it is running/,
      ),
    });
  });

  it.each(["", "localhost/app", "http://localhost", "postgres://u:p#w@host/app"])(
    "that is named so: %j",
    async (url) => {
      await expect(migrate({ url })).rejects.toMatchObject({ code: "INVALID_INPUT", field: "url" });
      expect(() => createStillwake({ url })).toThrow(expect.objectContaining({ code: "INVALID_INPUT", field: "url" }));
    },
  );
});

describe("the printed script", () => {
  it("applied once or twice creates what migrate creates", async () => {
    const { url, client } = await emptyDatabase();
    await client.query(printMigrations());
    expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    const id = await client.query("select id from stillwake.installation");
    await client.query(printMigrations());
    expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    expect((await client.query("select id from stillwake.installation")).rows).toEqual(id.rows);
    expect(await migrate({ url })).toMatchObject({ applied: [], functions: false });
  });

  it("refuses a database that is ahead of it and leaves its functions alone", async () => {
    const { client } = await migratedDatabase();
    await fromTheFuture(client, false);
    await expect(client.query(printMigrations())).rejects.toThrow(/migration 9999/);
    await client.query("rollback");
    expect(await nowComesFrom(client)).toBe("future");
  });
});

describe("functions of a later release", () => {
  it.each([
    ["9.9.9", "future"],
    ["0.10.0", "future"],
    ["0.1.1-rc.1", "future"],
    [`${version}-rc.1`, "here"],
    ["0.0.99", "here"],
    ["unknown", "here"],
  ])("installed by %s, then migrate by this version: now() comes from %s", async (installed, from) => {
    const { url, client } = await migratedDatabase();
    await laterFunctions(client);
    await client.query("update stillwake.installation set version = $1", [installed]);
    expect(await migrate({ url })).toEqual({ schema: "stillwake", applied: [], functions: from === "here" });
    expect(await nowComesFrom(client)).toBe(from);
    const { rows } = await client.query("select version from stillwake.installation");
    expect(rows).toEqual([{ version: from === "here" ? version : installed }]);
  });

  it("are not overwritten by a printed script, which names their version", async () => {
    const { client } = await migratedDatabase();
    await laterFunctions(client);
    await client.query("update stillwake.installation set version = '9.9.9'");
    await expect(client.query(printMigrations())).rejects.toThrow(
      `Schema "stillwake" has the functions of stillwake 9.9.9, this script has those of ${version}`,
    );
    await client.query("rollback");
    expect(await nowComesFrom(client)).toBe("future");
  });
});

describe("from every earlier state", () => {
  it("the first migrations of each number, then migrate: the same as a fresh database", async () => {
    const blocks = printMigrations().split(/(?=^do \$migrate\$)/m);
    const [head, ...rest] = blocks;
    expect(rest).toHaveLength(NEWEST_MIGRATION);
    for (let count = 0; count <= NEWEST_MIGRATION; count++) {
      const { url, client } = await emptyDatabase();
      const migrations = rest.slice(0, count).map((block) => block.slice(0, block.indexOf("end $migrate$;") + 14));
      await client.query([head, ...migrations, "commit;"].join("\n"));
      const { applied } = await migrate({ url });
      expect(applied).toHaveLength(NEWEST_MIGRATION - count);
      expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    }
  });

  it("every release, then migrate: the same as a fresh database", async () => {
    const releases = fs.readdirSync(path.join(ROOT, "test/releases")).filter((file) => file.endsWith(".sql"));
    for (const release of releases) {
      const { url, client } = await emptyDatabase();
      await client.query(fs.readFileSync(path.join(ROOT, "test/releases", release), "utf8"));
      await migrate({ url });
      expect(await dumpSchema(client, "stillwake")).toBe(fresh);
    }
  });

  it("the newest migration that the client knows is the newest file", () => {
    const files = fs.readdirSync(path.join(ROOT, "sql/migrations")).sort();
    expect(files.map((file) => Number(file.slice(0, 4)))).toEqual(files.map((_, index) => index + 1));
    expect(NEWEST_MIGRATION).toBe(files.length);
  });
});

describe("another version in the database", () => {
  it("ahead by a breaking migration: client and migrate refuse, with a remedy", async () => {
    const { url, client } = await migratedDatabase();
    await fromTheFuture(client, true);
    await using stillwake = createStillwake({ url });
    for (const refused of [await stillwake.list().catch((e) => e), await migrate({ url }).catch((e) => e)]) {
      expect(refused).toBeInstanceOf(SchemaMismatch);
      expect(refused).toMatchObject({
        code: "SCHEMA_TOO_NEW",
        remedy: expect.stringContaining("Upgrade the stillwake package"),
      });
      expect(refused.message).toContain(
        `has breaking migration 9999, this version of stillwake knows only up to ${NEWEST_MIGRATION}`,
      );
    }
    expect(await nowComesFrom(client)).toBe("future");
  });

  it("ahead by a compatible migration: both work, and the newer functions stay", async () => {
    const { url, client } = await migratedDatabase();
    await fromTheFuture(client, false);
    await using stillwake = createStillwake({ url });
    expect((await stillwake.list()).jobs).toEqual([]);
    expect(await migrate({ url })).toEqual({ schema: "stillwake", applied: [], functions: false });
    expect(await nowComesFrom(client)).toBe("future");
  });

  it("too old, or missing: the client refuses and names the command", async () => {
    const { url, client } = await migratedDatabase();
    await client.query("delete from stillwake.migrations");
    await using stillwake = createStillwake({ url });
    expect(await stillwake.list().catch((e) => e)).toMatchObject({
      code: "SCHEMA_TOO_OLD",
      remedy: expect.stringContaining("stillwake migrate"),
    });
    await client.query("drop schema stillwake cascade");
    expect(await stillwake.list().catch((e) => e)).toMatchObject({
      code: "SCHEMA_MISSING",
      remedy: expect.stringContaining("stillwake migrate"),
    });
    await migrate({ url });
    expect((await stillwake.list()).jobs).toEqual([]);
  });
});

describe("two Stillwakes in one database", () => {
  it("are equal except for the name, independent of each other, and can be dropped separately", async () => {
    const { url, client } = await migratedDatabase();
    await migrate({ url, schema: "schema_two" });
    expect(await dumpSchema(client, "schema_two")).toBe(fresh);
    for (const [schema, foreign] of [
      ["stillwake", "schema_two"],
      ["schema_two", "stillwake"],
    ]) {
      const definitions = await client.query(
        `select pg_get_functiondef(p.oid) as text from pg_proc p where p.pronamespace = to_regnamespace($1)
        union all select pg_get_viewdef(c.oid) from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind = 'v'`,
        [schema],
      );
      expect(definitions.rows.length).toBeGreaterThan(40);
      expect(definitions.rows.filter(({ text }) => new RegExp(`\\b${foreign}[._]`).test(text))).toEqual([]);
    }
    await using stillwake = createStillwake({ url, schema: "schema_two" });
    await stillwake.database.query("select schema_two.register_pipeline('report')");
    const { id } = await stillwake.enqueue("report", 1);
    await client.query("drop schema stillwake cascade");
    expect(await stillwake.cancel(id)).toBe("cancelled");
  });

  it.each(["public", "information_schema", "pg_toast", "Stillwake", "a b", "a;b", "", "x".repeat(41)])(
    "%j is not a valid schema name",
    async (schema) => {
      expect(() => printMigrations(schema)).toThrow(/is not a valid schema name/);
      await expect(migrate({ url: inject("server"), schema })).rejects.toMatchObject({
        code: "INVALID_INPUT",
        field: "schema",
      });
      expect(() => createStillwake({ url: "postgres://x", schema })).toThrow(/is not a valid schema name/);
    },
  );
});

describe("a reserved word of SQL", () => {
  it("is not a valid schema name, for all reserved words of this server", async () => {
    const { client } = await emptyDatabase();
    const { rows } = await client.query("select word from pg_get_keywords() where catcode in ('R', 'T', 'C')");
    for (const { word } of [...rows, { word: "loop" }]) {
      expect(() => printMigrations(word)).toThrow(
        `"${word}" is not a valid schema name: the word is reserved in SQL. Use another, such as "${word}_jobs"`,
      );
    }
    expect(printMigrations("user_jobs")).toContain("create schema if not exists user_jobs;");
  });
});

async function emptyDatabase() {
  return openDatabase({});
}

async function migratedDatabase() {
  return openDatabase({ template: inject("template") });
}

async function openDatabase(options: { template?: string }): Promise<{ url: string; client: pg.Client }> {
  const database = await testDatabase({ server: inject("server"), prefix: "migrate", ...options });
  cleanUp(() => database.drop());
  return { url: database.url, client: await connect(database.url) };
}

/** A later release was installed: its migration is recorded, its functions are in place. */
async function fromTheFuture(client: pg.Client, breaking: boolean): Promise<void> {
  await client.query("insert into stillwake.migrations (id, name, breaking) values (9999, '9999_future', $1)", [
    breaking,
  ]);
  await laterFunctions(client);
}

async function laterFunctions(client: pg.Client): Promise<void> {
  await client.query("update stillwake.installation set functions = 'future'");
  await client.query(
    "create or replace function stillwake.now() returns timestamptz language sql as $$ select clock_timestamp() /* future */ $$",
  );
}

async function nowComesFrom(client: pg.Client): Promise<string> {
  const { rows } = await client.query(
    "select prosrc ~ 'future' as future from pg_proc where oid = 'stillwake.now()'::regprocedure",
  );
  return rows[0].future ? "future" : "here";
}

async function isBlocked(client: pg.Client): Promise<boolean> {
  const { rowCount } = await client.query(
    "select from pg_stat_activity where datname = current_database() and application_name = 'stillwake migrate' and wait_event_type = 'Lock'",
  );
  return rowCount === 1;
}

async function advisoryLocks(client: pg.Client): Promise<number> {
  const { rows } = await client.query(
    "select count(*)::int as count from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
  );
  return rows[0].count;
}
