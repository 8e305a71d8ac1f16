// Creates a database per test file by cloning a template, in a few dozen milliseconds. NOTIFY is per database, so
// concurrent test files cannot wake each other's workers.
import { randomBytes } from "node:crypto";
import pg from "pg";

const IN_USE = "55006";

export interface TestDatabaseOptions {
  /** A connection string whose user may create databases. */
  server: string;
  /** The database to clone; it must have no connections. */
  template?: string;
  /** The prefix of the new database's name. */
  prefix?: string;
}

export interface TestDatabase extends AsyncDisposable {
  name: string;
  url: string;
  /** Drops the database. Closing connections have five seconds; then Postgres terminates the remaining ones. */
  drop(): Promise<void>;
}

export async function testDatabase(options: TestDatabaseOptions): Promise<TestDatabase> {
  const { server, template = "template1", prefix = "test" } = options;
  const name = `${prefix.replace(/\W+/g, "_").slice(0, 40)}_${randomBytes(5).toString("hex")}`;
  await runOn(server, `create database ${pg.escapeIdentifier(name)} template ${pg.escapeIdentifier(template)}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const dropSql = `drop database if exists ${pg.escapeIdentifier(name)}`;
  // pool.end() of pg resolves before its connections are closed, and one that is terminated by force then throws an
  // uncaught error. Without force Postgres itself waits up to five seconds.
  const drop = () =>
    runOn(server, dropSql).catch((error) => {
      if (error.code !== IN_USE) throw error;
      return runOn(server, `${dropSql} with (force)`);
    });
  return { name, url: url.href, drop, [Symbol.asyncDispose]: drop };
}

async function runOn(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
