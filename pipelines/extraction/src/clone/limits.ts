// How large what is written of a repository may be, held before its files are. A small pack can hold a huge file, and a dozen trees a billion names, so that neither the
// size of what came nor the number of objects says what a checkout would make of it.
import { freeBytes, RESERVE_BYTES, tooLarge } from "@stillwake/kit/git/limits";
import { tell } from "@stillwake/kit/user-error";
import type { Settings } from "../settings.ts";

type Limits = Settings["limits"];

/** What a checkout of the commit will be. */
export interface Tree {
  files: number;
  bytes: number;
  links: number;
  submodules: number;
}

/** What a repository is fetched for, and may be too large to do with. */
export const PURPOSE = "scan";
/** What a file takes at least, and its name with it. */
const BLOCK_BYTES = 4096;

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
    if (tree.bytes > limits.cloneBytes) throw tooLarge({ limits, purpose: PURPOSE });
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
  if ((await freeBytes(folder)) < needed) throw tooLarge({ limits, purpose: PURPOSE });
}
