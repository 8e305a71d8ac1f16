// The files of test servers. They are in memory where the system has a file system for that: tests stop processes, not
// machines, so nothing they check depends on a disk, and a commit does not wait for one.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const MEMORY = "/dev/shm";
/** Containers often have a /dev/shm of 64 MB. */
const MIN_FREE_BYTES = 4 * 2 ** 30;

export function scratchDirectory(prefix: string): string {
  const dir = fs.mkdtempSync(path.join(memoryIsLarge() ? MEMORY : os.tmpdir(), prefix));
  fs.chmodSync(dir, 0o755);
  return dir;
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
