// Limits the size of a checkout before its files are written. A small pack can contain a huge file, and a few trees can name
// a billion files, so neither the size of the transfer nor the number of objects is enough.

import { userError } from "@stillwake/kit/failures";
import { freeBytes, RESERVE_BYTES, tooLarge } from "@stillwake/kit/git/limits";
import type { Settings } from "../settings.ts";

type Limits = Settings["limits"];

/** Size of the checkout of a commit. */
export interface TreeSize {
  files: number;
  bytes: number;
  links: number;
  submodules: number;
}

/** Verb for messages: "too large to scan". */
export const PURPOSE = "scan";
/** Minimum disk usage of a file. */
const BLOCK_BYTES = 4096;

/**
 * Reads lines of `git ls-tree -t --format="%(objectmode) %(objectsize)"` and stops as soon as a limit is exceeded: a tree can
 * be practically endless, even without a single file.
 */
export async function countTree(lines: AsyncIterable<string>, limits: Limits): Promise<TreeSize> {
  const tree: TreeSize = { files: 0, bytes: 0, links: 0, submodules: 0 };
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
    if (tree.bytes > limits.cloneBytes) throw tooLarge({ limits, purpose: PURPOSE });
    if (tree.files + tree.submodules > limits.cloneFiles) throw tooMany("files", limits);
  }
  return tree;
}

function tooMany(what: "files" | "folders", { cloneFiles }: Limits): Error {
  return userError(`Repository has too many ${what} to scan (>${cloneFiles.toLocaleString("en-US")})`, {
    code: "CLONE_TOO_MANY_FILES",
    fatal: true,
  });
}

export async function checkDiskSpace(folder: string, tree: TreeSize, limits: Limits): Promise<void> {
  const needed = tree.bytes + tree.files * BLOCK_BYTES + RESERVE_BYTES;
  if ((await freeBytes(folder)) < needed) throw tooLarge({ limits, purpose: PURPOSE });
}
