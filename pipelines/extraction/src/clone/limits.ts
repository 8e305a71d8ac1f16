// How large a repository may be, held while it arrives and once more before its files are written. A small pack can hold a huge file, and a dozen trees a
// billion names, so that neither the size of what came nor the number of objects says what a checkout would make of it.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Settings } from "../settings.ts";
import { tell } from "../told.ts";

type Limits = Settings["limits"];

/** What a checkout of the commit will be. */
export interface Tree {
  files: number;
  bytes: number;
  links: number;
  submodules: number;
}

const GB = 2 ** 30;
/** Four looks a second: at the speed of a fast network a clone outgrows its limit by some tens of megabytes. */
const LOOK_MS = 250;
/** Left free for the job's own files and for everybody else on the disk. */
const RESERVE_BYTES = 16 * 2 ** 20;
/** What a file takes at least, and its name with it. */
const BLOCK_BYTES = 4096;

export function tooLarge({ cloneBytes }: Limits, cause?: unknown): Error {
  const limit = Number((cloneBytes / GB).toPrecision(3));
  return tell(`Repository is too large to scan (>${limit}GB)`, { code: "CLONE_TOO_LARGE", fatal: true, cause });
}

/** Never yields. Throws when the folder has outgrown its limit or the disk is nearly full; ends with the signal. */
export async function* watchSize(folder: string, limits: Limits, signal: AbortSignal): AsyncGenerator<never> {
  while (!signal.aborted) {
    if ((await sizeOf(folder)) > limits.cloneBytes || (await freeBytes(folder)) < RESERVE_BYTES) throw tooLarge(limits);
    await delay(LOOK_MS, undefined, { signal }).catch(() => {});
  }
}

/**
 * Lines of `git ls-tree -t --format="%(objectmode) %(objectsize)"`. Left as soon as a limit is passed: a tree can be endless, and one of folders alone is so
 * without a single file.
 */
export async function countTree(lines: AsyncIterable<string>, limits: Limits): Promise<Tree> {
  const tree: Tree = { files: 0, bytes: 0, links: 0, submodules: 0 };
  let folders = 0;
  for await (const line of lines) {
    const [, mode, size] = /^(\d{6}) +(\d{1,15}|-)$/.exec(line) ?? [];
    if (!mode) continue;
    if (mode === "040000") {
      folders += 1;
      if (folders > limits.cloneFiles) throw tooMany("folders", limits);
      continue;
    }
    if (mode === "160000") tree.submodules += 1;
    else tree.files += 1;
    if (mode === "120000") tree.links += 1;
    if (size !== "-") tree.bytes += Number(size);
    if (tree.bytes > limits.cloneBytes) throw tooLarge(limits);
    if (tree.files + tree.submodules > limits.cloneFiles) throw tooMany("files", limits);
  }
  return tree;
}

function tooMany(what: "files" | "folders", { cloneFiles }: Limits): Error {
  return tell(`Repository has too many ${what} to scan (>${cloneFiles.toLocaleString("en-US")})`, {
    code: "CLONE_TOO_MANY_FILES",
    fatal: true,
  });
}

export async function checkRoom(folder: string, tree: Tree, limits: Limits): Promise<void> {
  const needed = tree.bytes + tree.files * BLOCK_BYTES + RESERVE_BYTES;
  if ((await freeBytes(folder)) < needed) throw tooLarge(limits);
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

/** Where it cannot be told, a full disk is met when it is full. */
async function freeBytes(folder: string): Promise<number> {
  const disk = await fs.statfs(folder).catch(() => undefined);
  return disk ? disk.bavail * disk.bsize : Number.POSITIVE_INFINITY;
}
