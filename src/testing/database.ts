// One database for each test file, cloned from a template in a few dozen milliseconds. NOTIFY is per database, so
// files that run side by side cannot wake one another.
import { randomBytes } from "node:crypto";
import pg from "pg";

const IN_USE = "55006";

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
  /** Removes the database. Connections that are being closed have five seconds to go; what is connected then is ended. */
  drop(): Promise<void>;
}

export async function testDatabase(options: TestDatabaseOptions): Promise<TestDatabase> {
  const { server, template = "template1", prefix = "test" } = options;
  const name = `${prefix.replace(/\W+/g, "_").slice(0, 40)}_${randomBytes(5).toString("hex")}`;
  await runOn(server, `create database ${pg.escapeIdentifier(name)} template ${pg.escapeIdentifier(template)}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const removal = `drop database if exists ${pg.escapeIdentifier(name)}`;
  // A pool of pg's has ended before its connections have: one that is ended by force then throws where nobody catches it. Without force Postgres itself waits.
  const drop = () =>
    runOn(server, removal).catch((error) => {
      if (error.code !== IN_USE) throw error;
      return runOn(server, `${removal} with (force)`);
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
