// One database for each test file, cloned from a template in a few dozen milliseconds. NOTIFY is per database, so
// files that run side by side cannot wake one another.
import { randomBytes } from "node:crypto";
import pg from "pg";

export interface TestDatabaseOptions {
  /** A connection string whose user may create databases. */
  server: string;
  /** The database to clone; nobody may be connected to it. */
  template?: string;
  /** How the new database's name begins. */
  prefix?: string;
}

export interface TestDatabase extends AsyncDisposable {
  name: string;
  url: string;
  /** Ends every connection to the database and removes it. */
  drop(): Promise<void>;
}

export async function testDatabase(options: TestDatabaseOptions): Promise<TestDatabase> {
  const { server, template = "template1", prefix = "test" } = options;
  const name = `${prefix.replace(/\W+/g, "_").slice(0, 40)}_${randomBytes(5).toString("hex")}`;
  await runOn(server, `create database ${pg.escapeIdentifier(name)} template ${pg.escapeIdentifier(template)}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const drop = () => runOn(server, `drop database if exists ${pg.escapeIdentifier(name)} with (force)`);
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
