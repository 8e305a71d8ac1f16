// Controls the database's time in tests. All SQL functions use stillwake.now(); the first call here replaces that
// function, in one database, by a clock that reads a row. All connections and processes of that database see the new
// time, including workers in other processes; transactions in flight see it at their next statement. A migration that
// applies the functions again restores the real clock until the next call.
import pg from "pg";
import { schemaName } from "../db/schema-check.ts";
import { type Duration, toInterval } from "../time.ts";

/** A connection, a pool, or the URL of the database. Its user must own the schema. */
export type ClockOwner = string | pg.ClientBase | pg.Pool;

/** Moves the database's time forward by a duration such as "5m", or back by "-5s". The clock keeps running. */
export async function travel(where: ClockOwner, by: Duration | `-${Duration}`, schema?: string): Promise<void> {
  const back = by.startsWith("-");
  const interval = `${back ? "-" : ""}${toInterval(back ? by.slice(1) : by, "by")}`;
  await onClock(where, schema, (table) => `update ${table} set shift = shift + interval '${interval}'`);
}

/** Stops the database's time. Until `startClock` only `travel` moves it, so that a test can use exact times. */
export async function stopClock(where: ClockOwner, schema?: string): Promise<void> {
  await onClock(where, schema, (table) => `update ${table} set stopped_at = coalesce(stopped_at, clock_timestamp())`);
}

/** Starts the clock again from where it stopped. */
export async function startClock(where: ClockOwner, schema?: string): Promise<void> {
  await onClock(
    where,
    schema,
    (table) => `update ${table} set shift = shift + coalesce(stopped_at - clock_timestamp(), '0'), stopped_at = null`,
  );
}

async function onClock(where: ClockOwner, schema: string | undefined, change: (table: string) => string) {
  if (typeof where !== "string") return changeClock(where, schemaName(schema), change);
  const client = new pg.Client({ connectionString: where });
  await client.connect();
  try {
    await changeClock(client, schemaName(schema), change);
  } finally {
    await client.end();
  }
}

async function changeClock(client: pg.ClientBase | pg.Pool, schema: string, change: (table: string) => string) {
  const table = `${schema}.test_clock`;
  const { rows } = await client.query(
    `select from pg_proc where oid = to_regprocedure('${schema}.now()') and prosrc like '%${table}%'`,
  );
  if (rows.length === 0) await client.query(installationSql(schema, table));
  await client.query(change(table));
}

// A query with several statements is one transaction. The lock allows two processes to install it at the same time.
function installationSql(schema: string, table: string): string {
  return `
select pg_advisory_xact_lock(hashtextextended('stillwake test clock ${schema}', 0));
create table if not exists ${table} (
  singleton boolean primary key default true check (singleton), shift interval not null default '0', stopped_at timestamptz
);
insert into ${table} default values on conflict do nothing;
create or replace function ${schema}.now() returns timestamptz
language sql volatile parallel safe security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(stopped_at, clock_timestamp()) + shift from ${table}
$$;`;
}
