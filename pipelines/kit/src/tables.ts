// An application's tables in the database, and logins for its pipelines' code. Called when a server or `npm start` begins, and by tests.
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import pg from "pg";
import { inTransaction } from "./transaction.ts";

export interface Tables {
  /** The schema they all are in, which the system is called after. */
  schema: string;
  /** Their SQL, which can be run again and again. */
  file: string;
}

/**
 * Brings the tables to what this version needs, once, however many begin at the same time. A database that has them already is only looked at, so that the
 * login of a server that may create nothing can start when the owner has been there before.
 */
export async function migrate(pool: pg.Pool, { schema, file }: Tables): Promise<void> {
  const text = await fs.readFile(file, "utf8");
  const mark = `tables ${createHash("sha256").update(text).digest("hex").slice(0, 16)}`;
  if ((await markOf(pool, schema)) === mark) return;
  try {
    await inTransaction(pool, async (tx) => {
      await tx.query("select pg_advisory_xact_lock(hashtext($1))", [`${schema}.tables`]);
      if ((await markOf(tx, schema)) === mark) return;
      await tx.query(text);
      await tx.query(`comment on schema ${pg.escapeIdentifier(schema)} is ${pg.escapeLiteral(mark)}`);
    });
  } catch (error) {
    if ((error as { code?: string }).code !== "42501") throw error;
    const who = `This login may not change the tables of the ${schema}`;
    throw new Error(`${who}: start it once as the owner of the database, with --migrate`, { cause: error });
  }
}

async function markOf(queries: pg.Pool | pg.PoolClient, schema: string): Promise<string | undefined> {
  const { rows } = await queries.query(
    "select obj_description(to_regnamespace($1), 'pg_namespace') as mark where to_regnamespace($1) is not null",
    [pg.escapeIdentifier(schema)],
  );
  return rows[0]?.mark ?? undefined;
}

/**
 * A login for the pipeline's code, with a new password each time: it may write checkpoints of its own attempt, and what the roles may that the system has for it. For
 * development and tests; an installation makes its own with deploy/login.sql.
 */
export async function loginFor(pool: pg.Pool, name: string, roles: readonly string[]): Promise<string> {
  const role = pg.escapeIdentifier(name);
  const password = randomBytes(24).toString("base64url");
  const { rows } = await pool.query("select to_regrole($1) is not null as there", [role]);
  // The password stands in the statement, and would stand in a log of slow or failed ones: it is of no use beyond this database.
  await pool.query(`${rows[0].there ? "alter" : "create"} role ${role} login password ${pg.escapeLiteral(password)}`);
  const granted = ["stillwake_worker", ...roles].map((one) => pg.escapeIdentifier(one));
  await pool.query(`grant ${granted.join(", ")} to ${role}`);
  return urlOf(pool, name, password);
}

function urlOf(pool: pg.Pool, user: string, password: string): string {
  const { connectionString, host = "localhost", port = 5432, database = "" } = pool.options;
  const known = host.includes(":") && !host.startsWith("/") ? `[${host}]` : host;
  // A socket is a directory, which has no place in front of a path.
  const place = host.startsWith("/") ? `localhost:${port}` : `${known}:${port}`;
  const url = new URL(connectionString ?? `postgres://${place}/${encodeURIComponent(database)}`);
  if (!connectionString && host.startsWith("/")) url.searchParams.set("host", host);
  url.username = encodeURIComponent(user);
  url.password = encodeURIComponent(password);
  return url.href;
}
