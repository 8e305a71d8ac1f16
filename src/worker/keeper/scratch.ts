// Scratch directories of attempts, and their cleanup after a worker died. A record of the owning process is written
// before the directory and removed after it, so that an abandoned directory can be recognized without the database.
//
//   <root>/jobs/<job>-<epoch>/          0700, owned by the runner's user
//   <root>/owners/<job>-<epoch>.json    0600, owned by the keeper: pid, start time, boot id, pid namespace and host
import { readFileSync, readlinkSync } from "node:fs";
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { explainDiskError, makeDirectory, removeTree } from "../../artifacts/disk.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { checkId } from "../../ids.ts";

/** After this long without a touched record, a process in another container or on another host counts as dead. */
const FOREIGN_MS = 24 * 3600_000;
const TOUCH_MS = 3600_000;

export interface Scratch {
  readonly dir: string;
  /** Deletes the directory with everything in it, after the runner has ended. */
  remove(): Promise<void>;
}

/** The directories that this process uses. */
const inUse = new Set<string>();

/** `runAs`: the user of the runner, if another one. It owns the directory and may traverse, but not list, the parents. */
export async function openScratch(
  root: string,
  job: string,
  epoch: bigint | number | string,
  runAs?: { uid: number; gid: number },
): Promise<Scratch> {
  const name = scratchName(job, epoch);
  const { dir, record } = scratchPaths(root, name);
  if (inUse.has(dir)) throw scratchInUse(name);
  inUse.add(dir);
  try {
    for (const parent of [path.resolve(root), path.dirname(dir), path.dirname(record)]) await makeDirectory(parent);
    if (runAs) for (const parent of [root, path.dirname(dir)]) await fs.chmod(parent, 0o711);
    if (!(await isAbandoned(record))) throw scratchInUse(name);
    await removeTree(dir);
    await writeRecord(record);
    await fs.mkdir(dir, { mode: 0o700 });
    if (runAs) await fs.chown(dir, runAs.uid, runAs.gid);
  } catch (error) {
    inUse.delete(dir);
    throw explainDiskError(error, "a scratch directory");
  }
  const touch = setInterval(() => void fs.utimes(record, new Date(), new Date()).catch(() => {}), TOUCH_MS);
  touch.unref();
  return {
    dir,
    async remove() {
      clearInterval(touch);
      try {
        await removeTree(dir);
        await fs.rm(record, { force: true });
      } finally {
        // What could not be removed is left to the next sweep.
        inUse.delete(dir);
      }
    },
  };
}

/** The directory name of an attempt; the parameter `alive` of sweepScratch contains such names. */
export function scratchName(job: string, epoch: bigint | number | string): string {
  if (!/^\d{1,19}$/.test(String(epoch))) {
    throw new InvalidInput(`${JSON.stringify(String(epoch))} is not an epoch`, {
      field: "epoch",
      remedy: "Pass the epoch of the claim",
    });
  }
  return `${checkId(job, "job").toLowerCase()}-${epoch}`;
}

/**
 * Removes the directories whose process is dead, and those that this process no longer uses, except those in `alive`.
 * Returns the names of the removed ones. Several workers may sweep at once.
 */
export async function sweepScratch(root: string, alive: ReadonlySet<string> = new Set()): Promise<string[]> {
  const { jobs, owners } = scratchPaths(root, "");
  const removed: string[] = [];
  const records = (await fs.readdir(owners).catch(ignoreMissing)) ?? [];
  const directories = (await fs.readdir(jobs).catch(ignoreMissing)) ?? [];
  for (const name of new Set([...directories, ...records.map((file) => file.replace(/\.(json|part)$/, ""))])) {
    // Other names were not created by a worker.
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{1,19}$/.test(name)) continue;
    const { dir, record, part } = scratchPaths(root, name);
    if (alive.has(name) || inUse.has(dir)) continue;
    if (await isOld(part)) await fs.rm(part, { force: true });
    if (!directories.includes(name) && !records.includes(path.basename(record))) continue;
    if (!(await isAbandoned(record))) continue;
    await removeTree(dir);
    await fs.rm(record, { force: true });
    removed.push(name);
  }
  return removed;
}

interface Owner {
  pid: number;
  /** The kernel's start time of the process; pids are reused. */
  started: string;
  boot: string;
  namespace: string;
  host: string;
}

/** Without a record there is no owner, because the record is written first and removed last. */
async function isAbandoned(record: string): Promise<boolean> {
  const text = await fs.readFile(record, "utf8").catch(ignoreMissing);
  const owner = text === undefined ? undefined : readOwner(text);
  // Records are renamed into place complete. An unreadable one is left from a power failure.
  if (!owner) return true;
  const here = ownIdentity();
  if (owner.host !== here.host) return isOld(record);
  if (owner.boot !== here.boot) return true;
  if (owner.namespace !== here.namespace) return isOld(record);
  return (owner.pid === here.pid && owner.started === here.started) || !isRunning(owner);
}

async function isOld(file: string): Promise<boolean> {
  const stats = await fs.stat(file).catch(ignoreMissing);
  return stats !== undefined && Date.now() - stats.mtimeMs > FOREIGN_MS;
}

function isRunning({ pid, started }: Owner): boolean {
  if (process.platform === "linux") return readStartTime(pid) === started;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function ownIdentity(): Owner {
  return {
    pid: process.pid,
    started: readStartTime(process.pid),
    boot: tryRead(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    namespace: tryRead(() => readlinkSync("/proc/self/ns/pid")),
    host: os.hostname(),
  };
}

/** Field 22 of /proc/<pid>/stat, counted after the program's name, which may contain anything. Empty for a zombie. */
function readStartTime(pid: number): string {
  const stat = tryRead(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? "" : (fields[19] ?? "");
}

async function writeRecord(record: string): Promise<void> {
  const part = record.replace(/json$/, "part");
  await fs.writeFile(part, JSON.stringify(ownIdentity()), { mode: 0o600 });
  await fs.rename(part, record);
}

function readOwner(text: string): Owner | undefined {
  try {
    const owner = JSON.parse(text) as Owner;
    return typeof owner.pid === "number" && typeof owner.started === "string" ? owner : undefined;
  } catch {
    return undefined;
  }
}

function scratchPaths(root: string, name: string) {
  const jobs = path.resolve(root, "jobs");
  const owners = path.resolve(root, "owners");
  return { jobs, owners, dir: path.join(jobs, name), record: `${owners}/${name}.json`, part: `${owners}/${name}.part` };
}

function scratchInUse(name: string): StillwakeError {
  return new StillwakeError("SCRATCH_IN_USE", `The scratch directory ${name} is in use`, {
    remedy: "Only one attempt has this epoch; check whether two workers use the same name",
  });
}

function tryRead(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}
