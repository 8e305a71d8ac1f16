// Stores artifacts in a directory of this machine or of a shared volume. A file is written to .incoming, synced and then hard-linked to its
// final name: linking is atomic and never replaces a file, so a late writer cannot overwrite and a dead one leaves nothing incomplete.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { addAbortSignal, type Readable } from "node:stream";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { explainDiskError, makeDirectory, openRegular, readBlocks, removeTree, syncDirectory } from "./disk.ts";
import type { ArtifactFile, ArtifactStore } from "./store.ts";
import { artifactExists, artifactMissing, checkKey, readVerified } from "./verify-content.ts";

/** A writer without a write for an hour is dead, or so slow that a retry is cheaper. */
const UNFINISHED_MS = 3600_000;
const MAX_CACHED_HASHES = 1000;

/** `root` is absolute. It is created with the first artifact, readable only by this user. */
export function fileStore(root: string): ArtifactStore {
  const incoming = path.join(root, ".incoming");
  const pathOf = (key: string) => path.join(root, ...checkKey(key).split("/"));
  // Valid while inode, size and timestamps of the file are unchanged.
  const hashes = new Map<string, { version: string; sha256: string }>();
  let swept = false;

  async function stat(key: string): Promise<{ size: number; sha256: string } | undefined> {
    const handle = await openRegular(pathOf(key)).catch(ignoreMissing);
    if (!handle) return undefined;
    try {
      const { ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
      const version = [ino, size, mtimeNs, ctimeNs].join();
      let cached = hashes.get(key);
      if (cached?.version !== version) {
        const hash = createHash("sha256");
        for await (const block of readBlocks(handle)) hash.update(block);
        cached = { version, sha256: hash.digest("hex") };
        if (hashes.size >= MAX_CACHED_HASHES) hashes.delete(hashes.keys().next().value!);
        hashes.set(key, cached);
      }
      return { size: Number(size), sha256: cached.sha256 };
    } finally {
      await handle.close();
    }
  }

  async function sweep(olderThanMs = UNFINISHED_MS): Promise<number> {
    let removed = 0;
    for (const name of (await fs.readdir(incoming).catch(ignoreMissing)) ?? []) {
      const part = path.join(incoming, name);
      const stats = await fs.lstat(part).catch(ignoreMissing);
      if (stats && Date.now() - stats.mtimeMs >= olderThanMs) removed += await removeTree(part);
    }
    return removed;
  }

  async function write(part: string, file: ArtifactFile, signal?: AbortSignal): Promise<void> {
    const copy = await fs.open(part, "wx", 0o600);
    try {
      for await (const block of readVerified(file)) {
        signal?.throwIfAborted();
        await copy.writeFile(block);
      }
      await copy.sync();
    } finally {
      await copy.close();
    }
  }

  return {
    kind: "file",

    async put(key, file, signal) {
      const target = pathOf(key);
      const part = path.join(incoming, randomUUID());
      try {
        const stored = await stat(key);
        if (stored) return rejectDifferent(key, stored, file);
        await makeDirectory(incoming);
        if (!swept) await sweep();
        swept = true;
        await write(part, file, signal);
        await makeDirectory(path.dirname(target));
        const existed = await linkOrRename(part, target);
        if (existed) rejectDifferent(key, await stat(key), file);
        await syncDirectory(path.dirname(target));
      } catch (error) {
        throw toStoreError(explainDiskError(error, file.name));
      } finally {
        await fs.rm(part, { force: true });
      }
    },

    stat: (key) => stat(key).catch(rethrow),

    async get(key, signal): Promise<Readable> {
      const handle = await openRegular(pathOf(key)).catch(ignoreMissing).catch(rethrow);
      if (!handle) throw artifactMissing(key);
      const stream = handle.createReadStream({ start: 0 });
      return signal ? addAbortSignal(signal, stream) : stream;
    },

    async link() {
      return undefined;
    },

    async remove(prefix) {
      return removeTree(pathOf(prefix)).catch(rethrow);
    },

    sweep: (olderThanMs) => sweep(olderThanMs).catch(rethrow),
  };
}

export function fileStoreAt(url: string): ArtifactStore {
  const rest = url.slice("file:".length);
  const host = /^\/\/([^/]*)/.exec(rest)?.[1] ?? "";
  const directory = rest.startsWith("//") ? rest.slice(2 + host.length) : rest;
  if (host !== "" || directory === "" || /[?#]/.test(directory)) {
    throw new InvalidInput("The URL of the artifact store is not a directory of this machine", {
      field: "store",
      remedy: "Use file:///absolute/directory or file:./relative/directory, without host, query or fragment",
    });
  }
  return fileStore(path.resolve(decodeURIComponent(directory)));
}

/** Returns true when the target already exists. */
async function linkOrRename(part: string, target: string): Promise<boolean> {
  try {
    await fs.link(part, target);
    return false;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return true;
    // The file system has no hard links. A file overwritten here has the same key, and keys are derived from the content.
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"].includes(code ?? "")) throw error;
    await fs.rename(part, target);
    return false;
  }
}

function rejectDifferent(key: string, stored: { size: number; sha256: string } | undefined, file: ArtifactFile): void {
  if (stored?.size !== file.size || stored.sha256 !== file.sha256) throw artifactExists(key);
}

/** Messages of the operating system contain paths that only operators may see: they stay in the cause. */
function toStoreError(thrown: unknown): unknown {
  const { code } = (thrown ?? {}) as NodeJS.ErrnoException;
  if (thrown instanceof StillwakeError || !code || !/^E[A-Z]+$/.test(code)) return thrown;
  if (["EACCES", "EPERM", "EROFS"].includes(code)) {
    return new StillwakeError("STORE_DENIED", `No permission to use the directory of the artifact store (${code})`, {
      cause: thrown,
      remedy: "Give the worker's user write permission, or choose another directory",
    });
  }
  return new StillwakeError("STORE_UNAVAILABLE", `The directory of the artifact store cannot be used (${code})`, {
    cause: thrown,
    retryable: true,
    remedy: "Check that its disk is mounted and healthy",
  });
}

function rethrow(error: unknown): never {
  throw toStoreError(error);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
}
