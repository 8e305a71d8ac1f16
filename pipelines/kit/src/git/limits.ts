// How large a repository may be, held while it arrives: what it says of itself beforehand is worth nothing.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { tell } from "../user-error.ts";

export interface GitLimits {
  cloneBytes: number;
  cloneMs: number;
  /** Below so many bytes a second for so long, a transfer has stalled. */
  slowBytes: number;
  slowSeconds: number;
}

/** What a repository that is too large is too large for. */
export interface Size {
  limits: Pick<GitLimits, "cloneBytes">;
  /** What would be done with it: "scan". */
  purpose: string;
}

const GB = 2 ** 30;
/** Four looks a second: at the speed of a fast network a clone outgrows its limit by some tens of megabytes. */
const LOOK_MS = 250;
/** Left free for the job's own files and for everybody else on the disk. */
export const RESERVE_BYTES = 16 * 2 ** 20;

export function tooLarge({ limits, purpose }: Size, cause?: unknown): Error {
  const limit = Number((limits.cloneBytes / GB).toPrecision(3));
  return tell(`Repository is too large to ${purpose} (>${limit}GB)`, { code: "CLONE_TOO_LARGE", fatal: true, cause });
}

/** Never yields. Throws when the folder has outgrown its limit or the disk is nearly full; ends with the signal. */
export async function* watchSize(folder: string, size: Size, signal: AbortSignal): AsyncGenerator<never> {
  while (!signal.aborted) {
    if ((await sizeOf(folder)) > size.limits.cloneBytes || (await freeBytes(folder)) < RESERVE_BYTES)
      throw tooLarge(size);
    await delay(LOOK_MS, undefined, { signal }).catch(() => {});
  }
}

/** Where it cannot be told, a full disk is met when it is full. */
export async function freeBytes(folder: string): Promise<number> {
  const disk = await fs.statfs(folder).catch(() => undefined);
  return disk ? disk.bavail * disk.bsize : Number.POSITIVE_INFINITY;
}

/** Files come and go while it looks: what is gone has no size. */
async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await fs.readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const place = path.join(folder, entry.name);
    if (entry.isDirectory()) bytes += await sizeOf(place);
    else bytes += (await fs.lstat(place).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}
