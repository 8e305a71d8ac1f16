// The servers of a run, on 127.0.0.1: Stillwake's embedded Postgres and, if installed, Redis. Both stop with the run.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { startPostgres } from "../dist/postgres/index.js";
import { HOME } from "./install.mjs";
import { treeCpu } from "./machine.mjs";

const REDIS = "redis-server";
// fsync, full_page_writes and synchronous_commit are on. No timed checkpoints, which would affect only some peers.
const SETTINGS = {
  shared_buffers: "256MB",
  synchronous_commit: "on",
  max_connections: 100,
  max_wal_size: "4GB",
  checkpoint_timeout: "30min",
};

export async function openPostgres() {
  const dir = path.join(HOME, "postgres");
  const server = await startPostgres({ dir, settings: SETTINGS });
  if (!server.owner) throw new Error("Another benchmark is running; two at a time would disturb each other.");
  const admin = new pg.Pool({ connectionString: server.url, max: 2 });
  admin.on("error", () => {});
  const sql = async (text, values) => (await admin.query(text, values)).rows;
  let count = 0;
  return {
    version: server.version,
    sql,
    cpu: () => treeCpu(server.pid),
    /** An empty database for each measurement. */
    async database(name) {
      const database = `${name.replaceAll("-", "_")}_${++count}`;
      await sql(`create database ${database}`);
      const url = new URL(server.url);
      url.pathname = `/${database}`;
      const drop = () => sql(`drop database ${database} with (force)`);
      return { name: database, url: url.href, drop };
    },
    async walBytes() {
      const [row] = await sql("select pg_current_wal_lsn() - '0/0'::pg_lsn as bytes");
      return Number(row.bytes);
    },
    async counters(database) {
      const [row] = await sql(
        `select d.xact_commit::float8 as commits, w.wal_fpi::float8 as pages
         from pg_stat_database d, pg_stat_wal w where d.datname = $1`,
        [database],
      );
      return row;
    },
    async stop() {
      await admin.end();
      await server.stop();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Undefined if redis-server is not installed. */
export async function openRedis() {
  const found = spawnSync(REDIS, ["--version"], { encoding: "utf8" });
  if (found.status !== 0) return undefined;
  const dir = path.join(HOME, "redis");
  fs.rmSync(dir, { recursive: true, force: true });
  fs.mkdirSync(dir, { recursive: true });
  const port = await freePort();
  const settings = { bind: "127.0.0.1", port, dir, save: "", appendonly: "yes", appendfsync: "everysec" };
  const args = Object.entries({ ...settings, "maxmemory-policy": "noeviction", logfile: path.join(dir, "log") });
  // The shell's stdin closes with this process, however it exits, and then the shell stops Redis.
  const script = `${REDIS} "$@" & echo $!; cat >/dev/null; kill $!; wait`;
  const shell = spawn(
    "/bin/sh",
    ["-c", script, "sh", ...args.flatMap(([name, value]) => [`--${name}`, String(value)])],
    {
      stdio: ["pipe", "pipe", "ignore"],
      detached: true,
    },
  );
  const [line] = await once(shell.stdout, "data");
  const pid = Number(String(line).trim());
  await listening(port);
  return {
    url: `redis://127.0.0.1:${port}`,
    version: /v=([\d.]+)/.exec(found.stdout)?.[1] ?? "",
    cpu: () => treeCpu(pid),
    async stop() {
      const exited = once(shell, "exit");
      shell.stdin.end();
      await exited;
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

async function freePort() {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

async function listening(port) {
  for (let attempt = 0; attempt < 200; attempt++) {
    const socket = net.connect(port, "127.0.0.1");
    const connected = await once(socket, "connect").then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (connected) return;
    await delay(25);
  }
  throw new Error("redis-server did not start");
}
