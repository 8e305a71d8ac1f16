// Installs the tables and functions of one Stillwake in a database, in one transaction under one advisory lock: several
// processes may start it at once, and an interrupted run leaves nothing behind. Migrations only go forward and are
// frozen once released; functions are applied again whenever their text differs.
import { createHash } from "node:crypto";
import fs from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { isConflict, isConnectionLoss } from "../errors.ts";
import { backoffMs } from "../time.ts";
import { version } from "../version.ts";
import { checkUrl, unavailableError } from "./database.ts";
import { clientFor } from "./hosts.ts";
import { type RealtimeOptions, realtimeSql } from "./realtime.ts";
import { NEWEST_MIGRATION, schemaName, schemaTooNew } from "./schema-check.ts";

export interface MigrateOptions {
  url: string;
  /** The schema of this Stillwake; a database may hold several. Default "stillwake". */
  schema?: string;
  /** How long to wait for concurrent migrations and for locks before giving up. Default 60 s. */
  retryTimeoutMs?: number;
  /** Also publishes the feed to tenants through Supabase Realtime. */
  realtime?: RealtimeOptions;
}

export interface MigrateResult {
  schema: string;
  /** Names of the migrations this call applied. */
  applied: string[];
  /** Whether the functions were applied. */
  functions: boolean;
}

interface Migration {
  id: number;
  name: string;
  /** Older clients cannot use the database after it. Declared by a first line `--! breaking`. */
  breaking: boolean;
  sql: string;
}

interface Source {
  migrations: Migration[];
  functions: string;
  fingerprint: string;
  /** Empty unless requested. */
  realtime: string;
}

const root = new URL("../../", import.meta.url);

/** SQL condition over a row of installation: is its version later than this one? A prerelease counts as its release. */
const isLater = `coalesce(string_to_array(substring(version from '^[0-9]+[.][0-9]+[.][0-9]+'), '.')::bigint[] > '{${version.replace(/[-+].*/, "").replaceAll(".", ",")}}', false)`;

export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const schema = schemaName(options.schema);
  const url = checkUrl(options.url);
  const source = readSource(schema, options.realtime);
  const retryTimeoutMs = options.retryTimeoutMs ?? 60_000;
  const deadline = performance.now() + retryTimeoutMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return await migrateOnce(url, schema, source);
    } catch (error) {
      const lost = isConnectionLoss(error);
      const locked = (error as { code?: string }).code === "55P03";
      if (!lost && !locked && !isConflict(error)) throw error;
      if (performance.now() > deadline) throw lost ? unavailableError(error, retryTimeoutMs, false) : error;
      await delay(backoffMs(attempt, 100, 2000));
    }
  }
}

/** All statements as one script, for operators who apply SQL themselves. */
export function printMigrations(schema?: string, realtime?: RealtimeOptions): string {
  const name = schemaName(schema);
  const source = readSource(name, realtime);
  const migrations = source.migrations.map(
    (migration) => `
do $migrate$ begin
if not exists (select from ${name}.migrations where id = ${migration.id}) then
execute $migration$
${migration.sql}
$migration$;
insert into ${name}.migrations (id, name, breaking) values (${migration.id}, '${migration.name}', ${migration.breaking});
end if;
end $migrate$;
`,
  );
  return [
    `-- Stillwake ${version}, schema ${name}. Safe to run again: existing objects and data are kept.`,
    "begin;",
    "set local lock_timeout = '10s';",
    `${lockStatement(name)};`,
    foundation(name),
    refuseDowngrade(name),
    ...migrations,
    source.functions,
    `select ${name}.make_partitions();`,
    recordFunctions(name, source),
    source.realtime,
    "commit;\n",
  ].join("\n");
}

async function migrateOnce(url: string, schema: string, source: Source): Promise<MigrateResult> {
  const { Client, connectionString } = clientFor(url);
  const client = new Client({ connectionString, application_name: "stillwake migrate" });
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query("begin");
    // Waits at most this long for a lock, so that the application never queues up behind a migration for long.
    await client.query("set local lock_timeout = '2s'");
    await client.query("set local client_min_messages = 'warning'");
    await client.query(lockStatement(schema));
    await client.query(foundation(schema));
    const { rows } = await client.query<{ id: number; breaking: boolean }>(
      `select id, breaking from ${schema}.migrations`,
    );
    const done = new Set(rows.map((row) => row.id));
    const newest = source.migrations.at(-1)!.id;
    const ahead = rows.filter((row) => row.id > newest);
    const breaking = ahead.find((row) => row.breaking);
    if (breaking) throw schemaTooNew(schema, breaking.id);

    const applied: string[] = [];
    for (const migration of source.migrations.filter(({ id }) => !done.has(id))) {
      await client.query(migration.sql);
      await client.query(`insert into ${schema}.migrations (id, name, breaking) values ($1, $2, $3)`, [
        migration.id,
        migration.name,
        migration.breaking,
      ]);
      applied.push(migration.name);
    }
    const installed = await client.query(
      // Roles that were created after the last migration still lack their grants.
      `select functions, ${isLater} as later,
        coalesce(not has_schema_privilege(to_regrole('${schema}_tenant'), '${schema}', 'usage'), false) as ungranted
      from ${schema}.installation`,
    );
    // A database that is ahead has the functions of a later release: keep them.
    const later = ahead.length > 0 || installed.rows[0]?.later;
    const { functions: installedFunctions, ungranted } = installed.rows[0] ?? {};
    const functions = !later && (installedFunctions !== source.fingerprint || ungranted);
    if (functions) {
      await client.query(source.functions);
      await client.query(recordFunctions(schema, source));
    }
    await client.query(`select ${schema}.make_partitions()`);
    if (source.realtime) await client.query(source.realtime);
    await client.query("commit");
    return { schema, applied, functions };
  } finally {
    await client.end();
  }
}

function readSource(schema: string, options?: RealtimeOptions): Source {
  const read = (file: string) => withSchema(fs.readFileSync(new URL(file, root), "utf8"), schema);
  const list = (dir: string) =>
    fs
      .readdirSync(new URL(dir, root), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".sql"))
      .map((file) => file.replaceAll("\\", "/"))
      .sort();
  const migrations = list("sql/migrations/").map((file): Migration => {
    const sql = read(`sql/migrations/${file}`);
    return { id: Number(file.slice(0, 4)), name: file.slice(0, -4), breaking: sql.startsWith("--! breaking"), sql };
  });
  const functions = [
    "set local check_function_bodies = off;",
    ...list("sql/functions/").map((file) => read(`sql/functions/${file}`)),
    read("sql/grants.sql"),
    read("sql/policies.sql"),
  ].join("\n");
  const realtime = options ? realtimeSql(read("sql/realtime.sql"), options) : "";
  return { migrations, functions, fingerprint: createHash("sha256").update(functions).digest("hex"), realtime };
}

/** The files use the schema name `stillwake`, so that they run unchanged; any other name is substituted here. */
function withSchema(sql: string, schema: string): string {
  return sql.replaceAll(/\bstillwake(?=\b|_(?:app|worker|reader|tenant)\b)/g, schema);
}

function lockStatement(schema: string): string {
  return `select pg_advisory_xact_lock(hashtextextended('stillwake migrate ${schema}', 0))`;
}

function foundation(schema: string): string {
  return `
create schema if not exists ${schema};
create table if not exists ${schema}.migrations (
  id integer primary key, name text not null, breaking boolean not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table if not exists ${schema}.installation (
  singleton boolean primary key default true check (singleton),
  id uuid not null default gen_random_uuid(), version text not null, functions text not null,
  migrated_at timestamptz not null default clock_timestamp()
);`;
}

/** Part of the printed script: aborts when the database is ahead, so that later functions are not overwritten. */
function refuseDowngrade(schema: string): string {
  return `
do $ahead$ begin
if exists (select from ${schema}.migrations where id > ${NEWEST_MIGRATION}) then
raise exception 'Schema "${schema}" has migration %, this script knows only up to ${NEWEST_MIGRATION}',
  (select max(id) from ${schema}.migrations)
using hint = 'Print the script with a newer stillwake.';
end if;
if exists (select from ${schema}.installation where ${isLater}) then
raise exception 'Schema "${schema}" has the functions of stillwake %, this script has those of ${version}',
  (select version from ${schema}.installation)
using hint = 'Print the script with a newer stillwake.';
end if;
end $ahead$;
`;
}

function recordFunctions(schema: string, source: Source): string {
  return `insert into ${schema}.installation (version, functions) values ('${version}', '${source.fingerprint}')
on conflict (singleton) do update set version = excluded.version, functions = excluded.functions,
  migrated_at = clock_timestamp();`;
}
