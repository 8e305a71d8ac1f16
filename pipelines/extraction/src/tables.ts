// The application's tables in the database, and logins for the pipeline's code. Called when a server or `npm start` begins, and by tests.
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";

/** From src/ and from dist/ alike. */
const file = fileURLToPath(new URL("../tables.sql", import.meta.url));

/**
 * Brings the tables to what this version needs, once, however many begin at the same time. A database that has them already is only looked at, so that the
 * login of a server that may create nothing can start when the owner has been there before.
 */
export async function migrate(pool: pg.Pool): Promise<void> {
  const text = await fs.readFile(file, "utf8");
  const mark = `tables ${createHash("sha256").update(text).digest("hex").slice(0, 16)}`;
  if ((await markOf(pool)) === mark) return;
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("select pg_advisory_xact_lock(hashtext('extraction.tables'))");
    if ((await markOf(client)) !== mark) {
      await client.query(text);
      await client.query(`comment on schema extraction is ${pg.escapeLiteral(mark)}`);
    }
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch(() => {});
    if ((error as { code?: string }).code !== "42501") throw error;
    const who = "This login may not change the tables of the extraction";
    throw new Error(`${who}: start it once as the owner of the database, with --migrate`, { cause: error });
  } finally {
    client.release();
  }
}

async function markOf(queries: pg.Pool | pg.PoolClient): Promise<string | undefined> {
  const { rows } = await queries.query(
    "select obj_description(to_regnamespace('extraction'), 'pg_namespace') as mark where to_regnamespace('extraction') is not null",
  );
  return rows[0]?.mark ?? undefined;
}

/**
 * A login for the pipeline's code, with a new password each time: it may write findings and checkpoints of its own attempt, and reads no credential. For development and
 * tests; an installation makes its own with deploy/login.sql.
 */
export async function loginFor(pool: pg.Pool, name: string): Promise<string> {
  const role = pg.escapeIdentifier(name);
  const password = randomBytes(24).toString("base64url");
  const { rows } = await pool.query("select to_regrole($1) is not null as there", [role]);
  // The password stands in the statement, and would stand in a log of slow or failed ones: it is of no use beyond this database.
  await pool.query(`${rows[0].there ? "alter" : "create"} role ${role} login password ${pg.escapeLiteral(password)}`);
  await pool.query(`grant stillwake_worker, extraction_pipeline to ${role}`);
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
