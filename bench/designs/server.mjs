// A temporary Postgres for the design experiments, and the counters read from it.
// Durable settings stay on (fsync, synchronous_commit): commits are a large part of what is measured.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { startPostgres } from "../../dist/postgres/index.js";

const TICKS_PER_SECOND = 100;
let server;

/** Starts Postgres in a temporary directory. */
export async function startServer() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-designs-"));
  fs.chmodSync(dir, 0o755);
  server = await startPostgres({ dir: path.join(dir, "data"), settings: { shared_buffers: "256MB" } });
  return {
    pid: server.pid,
    async stop() {
      await server.stop();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

function url(database) {
  const address = new URL(server.url);
  address.pathname = `/${database}`;
  return address.href;
}

export async function connect(database, options = {}) {
  const client = new pg.Client({ connectionString: url(database), ...options });
  client.on("error", () => {}); // the query in flight reports it
  await client.connect();
  return client;
}
export async function within(database, text, values) {
  const client = await connect(database);
  try {
    return (await client.query(text, values)).rows;
  } finally {
    await client.end();
  }
}
export async function freshDatabase(name) {
  await within("postgres", `drop database if exists "${name}" with (force)`);
  await within("postgres", `create database "${name}"`);
}

function cpuTicks(pid) {
  const text = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
  const field = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { parent: Number(field[1]), ticks: field.slice(11, 15).reduce((sum, f) => sum + Number(f), 0) };
}
/** CPU seconds of the postmaster and its child processes, including ended ones. */
export function serverCpu(pid) {
  let ticks = cpuTicks(pid).ticks;
  for (const entry of fs.readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const child = cpuTicks(entry);
      if (child.parent === pid) ticks += child.ticks;
    } catch {
      /* it has exited */
    }
  }
  return ticks / TICKS_PER_SECOND;
}
/** CPU seconds that the whole machine was busy, including other processes. */
export function machineCpu() {
  const [user, nice, system, , , irq, soft, steal] = fs
    .readFileSync("/proc/stat", "utf8")
    .split("\n")[0]
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + soft + steal) / TICKS_PER_SECOND;
}
export async function workCounters(client, database) {
  const {
    rows: [row],
  } = await client.query(
    `select xact_commit::float8 as commits, (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 as wal
       from pg_stat_database where datname = $1`,
    [database],
  );
  return row;
}
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const nowMs = () => Number(process.hrtime.bigint()) / 1e6;
export const median = (xs) => quantile(xs, 0.5);
export function quantile(xs, q) {
  const s = [...xs].filter((x) => x != null).sort((a, b) => a - b);
  return s.length ? s[Math.min(s.length - 1, Math.max(0, Math.ceil(q * s.length) - 1))] : NaN;
}
/** Waits until the machine is mostly idle, at most maxMs; the result shows the CPU time of other processes. */
export async function quiet(maxMs = Number(process.env.BENCH_QUIET_MS ?? 8000)) {
  const end = nowMs() + maxMs;
  for (;;) {
    const busy = machineCpu();
    await sleep(400);
    if ((machineCpu() - busy) / 0.4 / os.cpus().length < 0.2 || nowMs() > end) return;
  }
}
