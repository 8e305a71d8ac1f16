// Limits the size of a repository while it is transferred; the size that a server announces cannot be trusted.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { userError } from "../failures.ts";

export interface GitLimits {
  cloneBytes: number;
  cloneMs: number;
  /** A transfer slower than slowBytes per second for slowSeconds has stalled. */
  slowBytes: number;
  slowSeconds: number;
}

export interface SizeLimit {
  limits: Pick<GitLimits, "cloneBytes">;
  /** Verb for the message: "scan". */
  purpose: string;
}

const GB = 2 ** 30;
/** On a fast network a clone exceeds its limit by some tens of megabytes before the next check. */
const CHECK_MS = 250;
/** Kept free for other files on the disk. */
export const RESERVE_BYTES = 16 * 2 ** 20;

export function tooLarge({ limits, purpose }: SizeLimit, cause?: unknown): Error {
  const limit = Number((limits.cloneBytes / GB).toPrecision(3));
  return userError(`Repository is too large to ${purpose} (>${limit}GB)`, {
    code: "CLONE_TOO_LARGE",
    fatal: true,
    cause,
  });
}

/** Never yields. Throws when the folder exceeds its limit or the disk is nearly full; returns when the signal aborts. */
export async function* watchSize(folder: string, size: SizeLimit, signal: AbortSignal): AsyncGenerator<never> {
  while (!signal.aborted) {
    if ((await sizeOf(folder)) > size.limits.cloneBytes || (await freeBytes(folder)) < RESERVE_BYTES)
      throw tooLarge(size);
    await delay(CHECK_MS, undefined, { signal }).catch(() => {});
  }
}

/** Infinity if the file system does not report it. */
export async function freeBytes(folder: string): Promise<number> {
  const disk = await fs.statfs(folder).catch(() => undefined);
  return disk ? disk.bavail * disk.bsize : Number.POSITIVE_INFINITY;
}

/** Files may disappear while it runs; they count as 0 bytes. */
async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await fs.readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) bytes += await sizeOf(file);
    else bytes += (await fs.lstat(file).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}
