// A primary and a streaming standby, for tests of failover. Both stop with the test that started them.
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import { inject } from "vitest";
import { migrate } from "../../../src/index.ts";
import { type EmbeddedPostgres, startPostgres } from "../../../src/postgres/index.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { cleanUp } from "../cleanup.ts";
import { copyCluster, scratchDirectory } from "./cluster-files.ts";

export interface ReplicatedServer {
  primary: ReplicatedNode;
  standby: ReplicatedNode;
  /** Makes the standby the primary, and resolves when it accepts writes. */
  promote(): Promise<void>;
}

interface ReplicatedNode {
  url: string;
  /** An immediate shutdown. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** `synchronous`: a commit waits until the standby has it. */
export async function startReplicatedServer({ synchronous }: { synchronous: boolean }): Promise<ReplicatedServer> {
  const home = scratchDirectory("replicated");
  const dirs = { primary: path.join(home, "primary"), standby: path.join(home, "standby") };
  const binaries = process.env.STILLWAKE_TEST_POSTGRES ? { binaries: process.env.STILLWAKE_TEST_POSTGRES } : {};
  const cluster = inject("cluster");
  if (cluster) copyCluster(cluster, dirs.primary);
  else {
    const first = await startPostgres({ dir: dirs.primary, ...binaries });
    await migrate({ url: first.url });
    await first.stop();
  }
  copyCluster(dirs.primary, dirs.standby);
  const signal = path.join(dirs.standby, "data/standby.signal");
  const { uid, gid } = fs.statSync(path.join(dirs.standby, "data"));
  fs.writeFileSync(signal, "");
  fs.chownSync(signal, uid, gid);
  cleanUp(() => fs.rmSync(home, { recursive: true, force: true }));

  const primary = await node({
    dir: dirs.primary,
    settings: { wal_keep_size: "512MB", ...(synchronous && { synchronous_standby_names: "*" }) },
    ...binaries,
  });
  const { port, password } = new URL(primary.url);
  const conninfo = `host=127.0.0.1 port=${port} user=postgres password=${password}`;
  const settings = { primary_conninfo: conninfo, wal_retrieve_retry_interval: "100ms" };
  const standby = await node({ dir: dirs.standby, settings, ...binaries });
  await ask(primary.url, "select count(*) = 1 from pg_stat_replication where state = 'streaming'", "replication");
  return {
    primary,
    standby,
    async promote() {
      await query(standby.url, "select pg_promote(wait => false)");
      await ask(standby.url, "select not pg_is_in_recovery()", "the promotion");
    },
  };
}

async function node(options: Parameters<typeof startPostgres>[0]): Promise<ReplicatedNode> {
  let postgres: EmbeddedPostgres = await startPostgres(options);
  const { url, port } = postgres;
  cleanUp(() => postgres.stop());
  return {
    url,
    async kill() {
      process.kill(postgres.pid, "SIGQUIT");
      await postgres.stop();
    },
    async start() {
      postgres = await startPostgres({ ...options, port });
    },
  };
}

async function query(url: string, text: string): Promise<unknown> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    const { rows } = await client.query({ text, rowMode: "array" });
    return rows[0]?.[0];
  } finally {
    await client.end();
  }
}

async function ask(url: string, text: string, what: string): Promise<void> {
  await waitFor(() => query(url, text).catch(() => false), { timeout: 30_000, interval: 20, what });
}
