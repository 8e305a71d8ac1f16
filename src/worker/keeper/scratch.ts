// The directory an attempt works in, and who cleans up when its worker could not. Beside each directory stands a record of the process that
// made it, written before the directory and removed after it, so that a directory whose process is gone can be told without a database.
//
//   <root>/jobs/<job>-<epoch>/          0700, the runner's
//   <root>/owners/<job>-<epoch>.json    0600, the keeper's: which process, of which start, boot, pid namespace and host
import { readFileSync, readlinkSync } from "node:fs";
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fromDisk, makeDirectory, removeTree } from "../../artifacts/disk.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { checkId } from "../../ids.ts";

/** How long a process that cannot be looked at (another container, another host) may give no sign before it counts as gone. */
const FOREIGN_MS = 24 * 3600_000;
const SIGN_MS = 3600_000;

export interface Scratch {
  readonly dir: string;
  /** Deletes everything in it, whatever user code has made of it. The runner has ended by then. */
  remove(): Promise<void>;
}

/** The directories of this process that are in use. */
const inUse = new Set<string>();

/** `runAs` is the user the runner runs as, if that is another one: it owns the directory and may pass, not list, those above. */
export async function openScratch(
  root: string,
  job: string,
  epoch: bigint | number | string,
  runAs?: { uid: number; gid: number },
): Promise<Scratch> {
  const name = scratchName(job, epoch);
  const { dir, record } = places(root, name);
  if (inUse.has(dir)) throw taken(name);
  inUse.add(dir);
  try {
    for (const above of [path.resolve(root), path.dirname(dir), path.dirname(record)]) await makeDirectory(above);
    if (runAs) for (const above of [root, path.dirname(dir)]) await fs.chmod(above, 0o711);
    if (!(await isLeftover(record))) throw taken(name);
    await removeTree(dir);
    await writeRecord(record);
    await fs.mkdir(dir, { mode: 0o700 });
    if (runAs) await fs.chown(dir, runAs.uid, runAs.gid);
  } catch (error) {
    inUse.delete(dir);
    throw fromDisk(error, "a scratch directory");
  }
  const sign = setInterval(() => void fs.utimes(record, new Date(), new Date()).catch(() => {}), SIGN_MS);
  sign.unref();
  return {
    dir,
    async remove() {
      clearInterval(sign);
      try {
        await removeTree(dir);
        await fs.rm(record, { force: true });
      } finally {
        // What could not be removed now is for the next sweep.
        inUse.delete(dir);
      }
    },
  };
}

/** What the directory of an attempt is called; `alive` of sweepScratch holds such names. */
export function scratchName(job: string, epoch: bigint | number | string): string {
  if (!/^\d{1,19}$/.test(String(epoch))) {
    throw new InvalidInput(`${JSON.stringify(String(epoch))} is no epoch`, {
      field: "epoch",
      remedy: "Give the claim's",
    });
  }
  return `${checkId(job, "job").toLowerCase()}-${epoch}`;
}

/**
 * Removes the directories whose process is gone, and those this process forgot. Those named in `alive` stay, whoever made them. Answers
 * the names of what was removed. Several workers may do this at once.
 */
export async function sweepScratch(root: string, alive: ReadonlySet<string> = new Set()): Promise<string[]> {
  const { jobs, owners } = places(root, "");
  const removed: string[] = [];
  const records = (await fs.readdir(owners).catch(none)) ?? [];
  const directories = (await fs.readdir(jobs).catch(none)) ?? [];
  for (const name of new Set([...directories, ...records.map((file) => file.replace(/\.(json|part)$/, ""))])) {
    // Only what has our shape is ours to remove.
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{1,19}$/.test(name)) continue;
    const { dir, record, part } = places(root, name);
    if (alive.has(name) || inUse.has(dir)) continue;
    if (await isOld(part)) await fs.rm(part, { force: true });
    if (!directories.includes(name) && !records.includes(path.basename(record))) continue;
    if (!(await isLeftover(record))) continue;
    await removeTree(dir);
    await fs.rm(record, { force: true });
    removed.push(name);
  }
  return removed;
}

interface Owner {
  pid: number;
  /** When the process started, in the kernel's words; a pid alone is given again to others. */
  started: string;
  boot: string;
  namespace: string;
  host: string;
}

/** Whether nobody works there any more. The record comes first and goes last, so without one there is no owner. */
async function isLeftover(record: string): Promise<boolean> {
  const text = await fs.readFile(record, "utf8").catch(none);
  const owner = text === undefined ? undefined : readOwner(text);
  // Records appear whole. One that cannot be read is from before a power cut.
  if (!owner) return true;
  const here = identity();
  if (owner.host !== here.host) return isOld(record);
  if (owner.boot !== here.boot) return true;
  if (owner.namespace !== here.namespace) return isOld(record);
  return (owner.pid === here.pid && owner.started === here.started) || !isRunning(owner);
}

async function isOld(file: string): Promise<boolean> {
  const stats = await fs.stat(file).catch(none);
  return stats !== undefined && Date.now() - stats.mtimeMs > FOREIGN_MS;
}

function isRunning({ pid, started }: Owner): boolean {
  if (process.platform === "linux") return startOf(pid) === started;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function identity(): Owner {
  return {
    pid: process.pid,
    started: startOf(process.pid),
    boot: orNothing(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    namespace: orNothing(() => readlinkSync("/proc/self/ns/pid")),
    host: os.hostname(),
  };
}

/** Field 22 of /proc/<pid>/stat, counted behind the program's name because that may contain anything. A zombie no longer runs. */
function startOf(pid: number): string {
  const stat = orNothing(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? "" : (fields[19] ?? "");
}

async function writeRecord(record: string): Promise<void> {
  const part = record.replace(/json$/, "part");
  await fs.writeFile(part, JSON.stringify(identity()), { mode: 0o600 });
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

function places(root: string, name: string) {
  const jobs = path.resolve(root, "jobs");
  const owners = path.resolve(root, "owners");
  return { jobs, owners, dir: path.join(jobs, name), record: `${owners}/${name}.json`, part: `${owners}/${name}.part` };
}

function taken(name: string): StillwakeError {
  return new StillwakeError("SCRATCH_IN_USE", `The scratch directory ${name} is in use`, {
    remedy: "An epoch belongs to one attempt only; see whether two workers share an identity",
  });
}

function orNothing(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

function none(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}
