// Connections to a test database. They end with the test that opened them or, opened at the top of a file, after its tests.
import pg from "pg";
import { createStillwake, type Stillwake, type StillwakeOptions } from "../../../src/index.ts";
import type { TestDatabase } from "../../../src/testing/index.ts";
import { cleanUp } from "../cleanup.ts";
import { freshDatabase } from "./database.ts";

export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: "test" });
  // A lost connection shows in the next query.
  client.on("error", () => {});
  await client.connect();
  cleanUp(() => client.end());
  return client;
}

export function openStillwake(url: string, options: Omit<StillwakeOptions, "url"> = {}): Stillwake {
  const stillwake = createStillwake({ url, ...options });
  cleanUp(() => stillwake.close());
  return stillwake;
}

export interface ConnectedDatabase {
  database: TestDatabase;
  stillwake: Stillwake;
  client: pg.Client;
}

/** The database of a test file with a client and a plain connection. */
export async function connectedDatabase(options?: Omit<StillwakeOptions, "url">): Promise<ConnectedDatabase> {
  const database = await freshDatabase();
  return { database, stillwake: openStillwake(database.url, options), client: await connect(database.url) };
}
