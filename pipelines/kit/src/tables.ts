// Creates a system's roles, its tables and a login for its pipeline code. Called by servers, `npm start` and tests.
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import pg from "pg";
import { inTransaction } from "./database.ts";

export interface SystemTables {
  /** The schema, which has the name of the system. */
  schema: string;
  /** The SQL file; running it again must be safe. */
  file: string;
}

/**
 * The roles of a system, without login, which kit/deploy/login.sql grants to the logins of an installation:
 *   <system>_api       for the API, in addition to stillwake_app
 *   <system>_pipeline  for pipeline code, in addition to stillwake_worker
 * The SQL file gives them their rights.
 */
function createRoles(schema: string): string {
  return `do $$
declare
  v_role text;
begin
  foreach v_role in array array[${["api", "pipeline"].map((role) => pg.escapeLiteral(`${schema}_${role}`)).join(", ")}] loop
    begin
      if to_regrole(v_role) is null then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise notice 'Role % was not created because % may not create roles. The owner of the tables has all rights.', v_role, current_user;
    end;
  end loop;
end
$$;

`;
}

/**
 * Applies the SQL file once, however many processes start at the same time. It changes nothing in a database that is up to
 * date, so that a server's login without the right to create tables can start after the owner has migrated.
 */
export async function migrate(pool: pg.Pool, { schema, file }: SystemTables): Promise<void> {
  const text = createRoles(schema) + (await fs.readFile(file, "utf8"));
  const version = `tables ${createHash("sha256").update(text).digest("hex").slice(0, 16)}`;
  if ((await readVersion(pool, schema)) === version) return;
  try {
    await inTransaction(pool, async (tx) => {
      await tx.query("select pg_advisory_xact_lock(hashtext($1))", [`${schema}.tables`]);
      if ((await readVersion(tx, schema)) === version) return;
      await tx.query(text);
      await tx.query(`comment on schema ${pg.escapeIdentifier(schema)} is ${pg.escapeLiteral(version)}`);
    });
  } catch (error) {
    if ((error as { code?: string }).code !== "42501") throw error;
    throw new Error(
      `This login may not change the tables of the ${schema}. Run the server once with --migrate as the database owner`,
      { cause: error },
    );
  }
}

async function readVersion(queries: pg.Pool | pg.PoolClient, schema: string): Promise<string | undefined> {
  const { rows } = await queries.query(
    "select obj_description(to_regnamespace($1), 'pg_namespace') as version where to_regnamespace($1) is not null",
    [pg.escapeIdentifier(schema)],
  );
  return rows[0]?.version ?? undefined;
}

/**
 * Creates a login for pipeline code, with a new password each time, and returns its URL. It may write checkpoints of its
 * own attempt and has the given roles. For development and tests; deployments use kit/deploy/login.sql.
 */
export async function loginFor(pool: pg.Pool, name: string, roles: readonly string[]): Promise<string> {
  const role = pg.escapeIdentifier(name);
  const password = randomBytes(24).toString("base64url");
  const { rows } = await pool.query("select to_regrole($1) is not null as existing", [role]);
  // Postgres may log the statement with the password, which is valid for this development database only.
  await pool.query(
    `${rows[0].existing ? "alter" : "create"} role ${role} login password ${pg.escapeLiteral(password)}`,
  );
  const granted = ["stillwake_worker", ...roles].map((name) => pg.escapeIdentifier(name));
  await pool.query(`grant ${granted.join(", ")} to ${role}`);
  return loginUrl(pool, name, password);
}

function loginUrl(pool: pg.Pool, user: string, password: string): string {
  const { connectionString, host = "localhost", port = 5432, database = "" } = pool.options;
  const hostname = host.includes(":") && !host.startsWith("/") ? `[${host}]` : host;
  // A Unix socket directory cannot be the host part of a URL; it goes into the query.
  const address = host.startsWith("/") ? `localhost:${port}` : `${hostname}:${port}`;
  const url = new URL(connectionString ?? `postgres://${address}/${encodeURIComponent(database)}`);
  if (!connectionString && host.startsWith("/")) url.searchParams.set("host", host);
  url.username = encodeURIComponent(user);
  url.password = encodeURIComponent(password);
  return url.href;
}
