// The database of the soak: a primary with a synchronous standby, each behind a proxy and on a small file system if the
// system allows one. After a promotion the other server is made the standby of the new primary.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import pg from "pg";
import { inject } from "vitest";
import { migrate } from "../../src/index.ts";
import { type EmbeddedPostgres, startPostgres } from "../../src/postgres/index.ts";
import { type FaultProxy, faultProxy, waitFor } from "../../src/testing/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { copyCluster, scratchDirectory } from "../support/database/cluster-files.ts";

interface Node {
  dir: string;
  port: number;
  proxy: FaultProxy;
  postgres: EmbeddedPostgres | undefined;
}

const SIZE_MB = 1024;

export class SoakDatabase {
  /** Through the proxies, for processes that faults hit. */
  readonly url: string;
  /** Without a proxy, to the server that is the primary now. */
  get directUrl(): string {
    return this.#base.replace("@", `@127.0.0.1:${this.#primary.port}`);
  }
  /** Those of both servers, in a fixed order. */
  readonly directUrls: string[];
  readonly proxies: FaultProxy[];
  readonly #base: string;
  #primary: Node;
  #standby: Node;

  private constructor(base: string, primary: Node, standby: Node) {
    this.#base = base;
    this.#primary = primary;
    this.#standby = standby;
    this.proxies = [primary.proxy, standby.proxy];
    this.directUrls = [primary, standby].map(({ port }) => base.replace("@", `@127.0.0.1:${port}`));
    const hosts = this.proxies.map(({ port }) => `127.0.0.1:${port}`).join(",");
    this.url = `${base.replace("@", `@${hosts}`)}?target_session_attrs=read-write`;
  }

  static async start(): Promise<SoakDatabase> {
    const home = scratchDirectory("soak");
    cleanUp(() => fs.rmSync(home, { recursive: true, force: true }));
    const dirs = ["a", "b"].map((name) => smallFileSystem(path.join(home, name), SIZE_MB));
    const [first, second] = dirs as [string, string];
    const cluster = inject("cluster");
    fs.rmSync(first, { recursive: true, force: true });
    if (cluster) copyCluster(cluster, first);
    const [firstPort, secondPort] = [await fixedPort(), await fixedPort()];
    const started = await startPostgres({ dir: first, port: firstPort, settings });
    await migrate({ url: started.url });
    const { url } = started;
    await started.stop();
    const nodeOf = async (dir: string, nodePort: number): Promise<Node> => ({
      dir,
      port: nodePort,
      proxy: await faultProxy(`postgres://127.0.0.1:${nodePort}/`),
      postgres: undefined,
    });
    const base = url.replace(/@[^/]*/, "@");
    const database = new SoakDatabase(base, await nodeOf(first, firstPort), await nodeOf(second, secondPort));
    cleanUp(() => database.#close());
    await database.#form();
    return database;
  }

  async query<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client({ connectionString: this.directUrl, connectionTimeoutMillis: 5000 });
    client.on("error", () => {});
    await client.connect();
    try {
      return (await client.query<Row>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** Kills the primary in the given way and starts it again. */
  async crash(signal: "SIGKILL" | "SIGQUIT" | "SIGINT", downMs: number): Promise<void> {
    await this.#stop(this.#primary, signal);
    await wait(downMs);
    await this.#startNode(this.#primary, this.#primarySettings());
  }

  /** The primary dies, the standby takes over, and the old primary becomes its standby. */
  async promote(downMs: number): Promise<void> {
    await this.#stop(this.#primary, "SIGQUIT");
    await wait(downMs);
    [this.#primary, this.#standby] = [this.#standby, this.#primary];
    await this.query("select pg_promote()");
    await this.#form();
  }

  async standbyAway(ms: number): Promise<void> {
    await this.#stop(this.#standby, "SIGQUIT");
    await wait(ms);
    await this.#startNode(this.#standby, this.#standbySettings());
    await this.#untilStreaming();
  }

  /** Fills the file system of the primary. Postgres may stop; it is started again. */
  async fillDisk(ms: number): Promise<boolean> {
    const filler = path.join(this.#primary.dir, "filler");
    if (!isMounted(this.#primary.dir)) return false;
    fill(filler);
    await wait(ms);
    fs.rmSync(filler, { force: true });
    if (!this.#isUp(this.#primary)) await this.#startNode(this.#primary, this.#primarySettings());
    return true;
  }

  /** Starts what a fault has left stopped, and removes what it has set. */
  async heal(): Promise<void> {
    for (const proxy of this.proxies) {
      proxy.mode = "pass";
      proxy.latencyMs = 0;
      proxy.thaw();
    }
    fs.rmSync(path.join(this.#primary.dir, "filler"), { force: true });
    if (!this.#isUp(this.#primary)) await this.#startNode(this.#primary, this.#primarySettings());
    if (!this.#isUp(this.#standby)) await this.#startNode(this.#standby, this.#standbySettings());
    await this.#untilStreaming();
  }

  /** A clean copy of the primary becomes the standby: the embedded Postgres has no pg_basebackup. */
  async #form(): Promise<void> {
    await this.#stop(this.#primary, "SIGINT");
    await this.#stop(this.#standby, "SIGKILL");
    const [from, to] = [this.#primary.dir, this.#standby.dir];
    for (const entry of fs.existsSync(to) ? fs.readdirSync(to) : []) {
      fs.rmSync(path.join(to, entry), { recursive: true, force: true });
    }
    fs.mkdirSync(to, { recursive: true });
    for (const entry of fs.readdirSync(from)) {
      if (entry !== "filler") execFileSync("cp", ["-a", path.join(from, entry), to]);
    }
    const data = path.join(to, "data");
    const signal = path.join(data, "standby.signal");
    fs.writeFileSync(signal, "");
    const { uid, gid } = fs.statSync(data);
    fs.chownSync(signal, uid, gid);
    fs.rmSync(path.join(data, "postgresql.auto.conf"), { force: true });
    fs.rmSync(path.join(from, "data/postgresql.auto.conf"), { force: true });
    await this.#startNode(this.#primary, this.#primarySettings());
    await this.#startNode(this.#standby, this.#standbySettings());
    await this.#untilStreaming();
  }

  #primarySettings() {
    return { ...settings, synchronous_standby_names: "*" };
  }

  #standbySettings() {
    const { password } = new URL(this.directUrl);
    const conninfo = `host=127.0.0.1 port=${this.#primary.port} user=postgres password=${password}`;
    return { ...settings, primary_conninfo: conninfo, wal_retrieve_retry_interval: "100ms" };
  }

  async #startNode(node: Node, nodeSettings: Record<string, string | number>): Promise<void> {
    node.postgres = await startPostgres({ dir: node.dir, port: node.port, settings: nodeSettings });
  }

  async #stop(node: Node, signal: "SIGKILL" | "SIGQUIT" | "SIGINT"): Promise<void> {
    const { postgres } = node;
    if (!postgres) return;
    try {
      process.kill(postgres.pid, signal);
    } catch {}
    await postgres.stop();
    await waitFor(() => !this.#isUp(node), { timeout: 30_000, interval: 10, what: "Postgres to be gone" });
    node.postgres = undefined;
  }

  #isUp({ postgres }: Node): boolean {
    try {
      return postgres !== undefined && process.kill(postgres.pid, 0);
    } catch {
      return false;
    }
  }

  async #untilStreaming(): Promise<void> {
    const isStreaming = async () => {
      const text = "select count(*)::int as n from pg_stat_replication where sync_state in ('sync', 'quorum')";
      return (await this.query<{ n: number }>(text))[0]!.n === 1;
    };
    await waitFor(() => isStreaming().catch(() => false), {
      timeout: 60_000,
      interval: 50,
      what: "the standby to stream",
    });
  }

  async #close(): Promise<void> {
    for (const proxy of this.proxies) await proxy.close();
    await this.#stop(this.#standby, "SIGQUIT");
    await this.#stop(this.#primary, "SIGQUIT");
  }
}

const settings = {
  max_connections: 150,
  wal_keep_size: "64MB",
  max_wal_size: "128MB",
  min_wal_size: "32MB",
};

/** A mounted file system of this size if this user may mount one; otherwise a plain directory. */
export function smallFileSystem(dir: string, sizeMb: number): string {
  fs.mkdirSync(dir, { recursive: true, mode: 0o755 });
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMb}m,mode=755`, "tmpfs", dir], { stdio: "pipe" });
    cleanUp(() => void execFileSync("umount", ["--lazy", dir], { stdio: "pipe" }));
  } catch {}
  // Postgres needs a directory that does not exist or is its own.
  return path.join(dir, "files");
}

export function isMounted(dir: string): boolean {
  const parent = path.dirname(dir);
  return fs.readFileSync("/proc/mounts", "utf8").includes(` ${parent} tmpfs `);
}

/** Writes until there is no space left. */
export function fill(file: string): void {
  const block = Buffer.alloc(1024 * 1024, 1);
  const handle = fs.openSync(file, "w");
  try {
    for (;;) fs.writeSync(handle, block);
  } catch {
    // No space is left: that is the fault.
  } finally {
    fs.closeSync(handle);
  }
}

/** Below the range of ports that connections get, so that none takes it while its server is down. */
async function fixedPort(): Promise<number> {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 18_000);
    const probe = net.createServer().listen(port, "127.0.0.1");
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once("listening", () => resolve(true)).once("error", () => resolve(false));
    });
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
