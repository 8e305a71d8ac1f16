// Global setup of a test run: one Postgres with one migrated template database, which every test file clones; and the
// files of a stopped Postgres with migrated tables, which tests that need a separate server copy.
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { migrate } from "../../src/db/migrate.ts";
import { startPostgres } from "../../src/postgres/index.ts";
import { testDatabase } from "../../src/testing/index.ts";
import { copyCluster, removeAbandonedDirectories, scratchDirectory } from "./database/cluster-files.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The superuser's connection string of the run's Postgres. */
    server: string;
    /** The files of a stopped Postgres whose database "postgres" is migrated. Empty if the run uses DATABASE_URL. */
    cluster: string;
    /** The name of the migrated database that `freshDatabase` clones. */
    template: string;
    /** When the run started; shared by the figures of a run. */
    run: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await openServer();
  const template = await testDatabase({ server: server.url, prefix: "stillwake_template" });
  const close = async () => {
    try {
      await template.drop();
    } finally {
      await server.close();
    }
  };
  try {
    await migrate({ url: template.url });
  } catch (error) {
    await close();
    throw error;
  }
  project.provide("server", server.url);
  project.provide("cluster", server.cluster);
  project.provide("template", template.name);
  project.provide("run", new Date().toISOString());
  return () =>
    close().catch((error) => {
      // Vitest prints an error of the teardown but reports success.
      process.exitCode = 1;
      throw error;
    });
}

/** DATABASE_URL takes precedence, for machines where the embedded Postgres cannot run. */
async function openServer(): Promise<{ url: string; cluster: string; close(): Promise<void> }> {
  const { DATABASE_URL } = process.env;
  if (DATABASE_URL) return { url: DATABASE_URL, cluster: "", close: async () => {} };
  removeAbandonedDirectories();
  const home = scratchDirectory("test");
  try {
    return await startIn(home);
  } catch (error) {
    fs.rmSync(home, { recursive: true, force: true, maxRetries: 5 });
    throw error;
  }
}

async function startIn(home: string): Promise<{ url: string; cluster: string; close(): Promise<void> }> {
  const { STILLWAKE_TEST_POSTGRES } = process.env;
  const binaries = STILLWAKE_TEST_POSTGRES && { binaries: STILLWAKE_TEST_POSTGRES };
  const cluster = path.join(home, "migrated");
  const first = await startPostgres({ dir: cluster, ...binaries });
  try {
    await migrate({ url: first.url });
  } finally {
    await first.stop();
  }
  fs.rmSync(path.join(cluster, "server.log"));
  const dir = path.join(home, "server");
  copyCluster(cluster, dir);
  const postgres = await startPostgres({ dir, settings: { max_connections: 200 }, ...binaries });
  // Tests use the database "postgres" of the run's server as one without Stillwake.
  await queryServer(postgres.url, "drop schema stillwake cascade");
  console.log(`Postgres ${postgres.version} on Node ${process.versions.node}`);
  return {
    url: postgres.url,
    cluster,
    async close() {
      const kept = await leftoverDatabases(postgres.url);
      await postgres.stop();
      if (kept.length === 0) fs.rmSync(home, { recursive: true, force: true, maxRetries: 5 });
      else
        console.error(`Kept ${kept.join(", ")} until the next run. To look inside: node scripts/postgres.mjs ${dir}`);
    },
  };
}

/** Databases of failed test files; see `freshDatabase`. */
async function leftoverDatabases(url: string): Promise<string[]> {
  const rows = await queryServer(
    url,
    "select datname from pg_database where not datistemplate and datname <> 'postgres'",
  );
  return rows.map(({ datname }) => datname);
}

async function queryServer(url: string, statement: string): Promise<{ datname: string }[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(statement);
  await client.end();
  return rows;
}
