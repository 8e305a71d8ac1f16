// The connections of an import: one transaction on Stillwake's database, and one on the source where it is another.
import type pg from "pg";
import { DatabaseUnavailable, fromDatabase, isConnectionLoss } from "../../errors.ts";
import { closeConnection } from "../connection.ts";
import { checkUrl, unavailableError } from "../database.ts";
import { clientFor } from "../hosts.ts";
import { checkSchema, schemaName } from "../schema-check.ts";

/** Connects without a statement timeout: an import of a large table is one transaction. */
export async function openImportConnection(url: string): Promise<pg.Client> {
  const { Client, connectionString } = clientFor(checkUrl(url));
  const client = new Client({
    connectionString,
    application_name: "stillwake import",
    connectionTimeoutMillis: 5000,
    keepAlive: true,
  });
  client.on("error", () => {});
  try {
    await client.connect();
  } catch (error) {
    await closeConnection(client);
    throw isConnectionLoss(error) ? unavailableError(error, 5000, false) : fromDatabase(error);
  }
  return client;
}

/** The schema of Stillwake, checked. */
export async function checkTarget(client: pg.Client, schema: string | undefined): Promise<string> {
  const name = schemaName(schema);
  await checkSchema(
    (text) =>
      client.query(text).catch((error) => {
        throw fromDatabase(error);
      }),
    name,
  );
  return name;
}

/** Runs `work` in a transaction, which is rolled back when it throws or when `keep` is false. */
export async function inTransaction<T>(client: pg.Client, keep: boolean, work: () => Promise<T>): Promise<T> {
  await client.query("begin");
  try {
    const result = await work();
    await client.query(keep ? "commit" : "rollback");
    return result;
  } catch (error) {
    await client.query("rollback").catch(() => {});
    if (!isConnectionLoss(error)) throw error;
    throw new DatabaseUnavailable(`The connection was lost: ${(error as Error).message}`, {
      cause: error,
      remedy: "Run the import again: it moves no job twice, whether or not the last transaction was committed",
    });
  }
}
