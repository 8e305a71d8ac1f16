// The files of test servers. They are in memory where the system has a file system for that: tests stop processes, not
// machines, so nothing they check depends on a disk, and a commit does not wait for one.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const MEMORY = "/dev/shm";
/** Containers often have a /dev/shm of 64 MB. */
const MIN_FREE_BYTES = 4 * 2 ** 30;

/** The name has the pid of this process, for `removeAbandonedDirectories`. */
export function scratchDirectory(name: string): string {
  const place = memoryIsLarge() ? MEMORY : os.tmpdir();
  const dir = fs.mkdtempSync(path.join(place, `stillwake-${name}-${process.pid}-`));
  fs.chmodSync(dir, 0o755);
  return dir;
}

/** Removes what killed runs have left in memory, and what failed ones have kept there. */
export function removeAbandonedDirectories(): void {
  if (!fs.existsSync(MEMORY)) return;
  for (const name of fs.readdirSync(MEMORY)) {
    const pid = /^stillwake-\w+-(\d+)-/.exec(name)?.[1];
    if (pid && !isAlive(Number(pid))) removeOwn(path.join(MEMORY, name));
  }
}

/** The directory of another user stays. */
function removeOwn(dir: string): void {
  const uid = process.getuid?.();
  const owner = fs.statSync(dir, { throwIfNoEntry: false })?.uid;
  if (uid === 0 || owner === uid) fs.rmSync(dir, { recursive: true, force: true });
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function memoryIsLarge(): boolean {
  try {
    fs.accessSync(MEMORY, fs.constants.W_OK);
    const { bavail, bsize } = fs.statfsSync(MEMORY);
    return bavail * bsize > MIN_FREE_BYTES;
  } catch {
    return false;
  }
}

/** Copies a stopped cluster with its owners and modes, in a fraction of the time that initdb takes. */
export function copyCluster(from: string, to: string): void {
  execFileSync("cp", ["-a", from, to]);
}
