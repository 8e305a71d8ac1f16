// Artifacts in a directory of this machine or of a shared volume. A file is written aside, made durable, and then linked to its final name:
// a link comes to be as a whole and never replaces anything, so a late writer cannot overwrite and a dead one leaves nothing half.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { addAbortSignal, type Readable } from "node:stream";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { blocksOf, fromDisk, makeDirectory, openRegular, removeTree, syncDirectory } from "./disk.ts";
import {
  type ArtifactFile,
  type ArtifactStore,
  artifactExists,
  artifactMissing,
  checkKey,
  contentOf,
} from "./store.ts";

/** A writer that has not written for an hour is dead, or so slow that its retry is cheaper. Either way nothing half becomes visible. */
const UNFINISHED_MS = 3600_000;
const REMEMBERED = 1000;

/** `root` is absolute. It is made, for this user only, with the first artifact. */
export function fileStore(root: string): ArtifactStore {
  const incoming = path.join(root, ".incoming");
  const place = (key: string) => path.join(root, ...checkKey(key).split("/"));
  // Hashes are remembered as long as the file is the same to the last nanosecond.
  const hashes = new Map<string, { version: string; sha256: string }>();
  let swept = false;

  async function stat(key: string): Promise<{ size: number; sha256: string } | undefined> {
    const handle = await openRegular(place(key)).catch(absent);
    if (!handle) return undefined;
    try {
      const { ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
      const version = [ino, size, mtimeNs, ctimeNs].join();
      let known = hashes.get(key);
      if (known?.version !== version) {
        const hash = createHash("sha256");
        for await (const block of blocksOf(handle)) hash.update(block);
        known = { version, sha256: hash.digest("hex") };
        if (hashes.size >= REMEMBERED) hashes.delete(hashes.keys().next().value!);
        hashes.set(key, known);
      }
      return { size: Number(size), sha256: known.sha256 };
    } finally {
      await handle.close();
    }
  }

  async function sweep(olderThanMs = UNFINISHED_MS): Promise<number> {
    let removed = 0;
    for (const name of (await fs.readdir(incoming).catch(absent)) ?? []) {
      const part = path.join(incoming, name);
      const stats = await fs.lstat(part).catch(absent);
      if (stats && Date.now() - stats.mtimeMs >= olderThanMs) removed += await removeTree(part);
    }
    return removed;
  }

  async function write(part: string, file: ArtifactFile, signal?: AbortSignal): Promise<void> {
    const copy = await fs.open(part, "wx", 0o600);
    try {
      for await (const block of contentOf(file)) {
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
      const target = place(key);
      const part = path.join(incoming, randomUUID());
      try {
        const there = await stat(key);
        if (there) return sameOrRefuse(key, there, file);
        await makeDirectory(incoming);
        if (!swept) await sweep();
        swept = true;
        await write(part, file, signal);
        await makeDirectory(path.dirname(target));
        const lost = await linkOrRename(part, target);
        if (lost) sameOrRefuse(key, await stat(key), file);
        await syncDirectory(path.dirname(target));
      } catch (error) {
        throw fromStore(fromDisk(error, file.name));
      } finally {
        await fs.rm(part, { force: true });
      }
    },

    stat: (key) => stat(key).catch(rethrow),

    async get(key, signal): Promise<Readable> {
      const handle = await openRegular(place(key)).catch(absent).catch(rethrow);
      if (!handle) throw artifactMissing(key);
      const stream = handle.createReadStream({ start: 0 });
      return signal ? addAbortSignal(signal, stream) : stream;
    },

    async link() {
      return undefined;
    },

    async remove(prefix) {
      return removeTree(place(prefix)).catch(rethrow);
    },

    sweep: (olderThanMs) => sweep(olderThanMs).catch(rethrow),
  };
}

export function fileStoreAt(url: string): ArtifactStore {
  const rest = url.slice("file:".length);
  const host = /^\/\/([^/]*)/.exec(rest)?.[1] ?? "";
  const written = rest.startsWith("//") ? rest.slice(2 + host.length) : rest;
  if (host !== "" || written === "" || /[?#]/.test(written)) {
    throw new InvalidInput("The URL of the artifact store names no directory of this machine", {
      field: "store",
      remedy: "Write file:///absolute/directory or file:./relative/directory, without host, query or fragment",
    });
  }
  return fileStore(path.resolve(decodeURIComponent(written)));
}

/** Answers true when somebody else was first. */
async function linkOrRename(part: string, target: string): Promise<boolean> {
  try {
    await fs.link(part, target);
    return false;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return true;
    // File systems without hard links. What could be overwritten here has the same key and so, in our use, the same content.
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"].includes(code ?? "")) throw error;
    await fs.rename(part, target);
    return false;
  }
}

function sameOrRefuse(key: string, there: { size: number; sha256: string } | undefined, file: ArtifactFile): void {
  if (there?.size !== file.size || there.sha256 !== file.sha256) throw artifactExists(key);
}

/** The messages of the operating system name paths, and those are nobody's business but the operator's; they stay in the cause. */
function fromStore(thrown: unknown): unknown {
  const { code } = (thrown ?? {}) as NodeJS.ErrnoException;
  if (thrown instanceof StillwakeError || !code || !/^E[A-Z]+$/.test(code)) return thrown;
  if (["EACCES", "EPERM", "EROFS"].includes(code)) {
    return new StillwakeError("STORE_DENIED", `The directory of the artifact store may not be used (${code})`, {
      cause: thrown,
      remedy: "Give the worker's user the right to write there, or name another directory",
    });
  }
  return new StillwakeError("STORE_UNAVAILABLE", `The directory of the artifact store cannot be used (${code})`, {
    cause: thrown,
    retryable: true,
    remedy: "See whether its disk is mounted and sound",
  });
}

function rethrow(error: unknown): never {
  throw fromStore(error);
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
}
