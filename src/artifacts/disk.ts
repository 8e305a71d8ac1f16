// File system functions for scratch directories, artifacts, the file store and unpack: synced directories, files opened
// without following links, removal of trees that user code has created, and an error for a full disk.
import { constants, existsSync } from "node:fs";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { StillwakeError } from "../errors.ts";

const BLOCK_BYTES = 256 * 1024;
/** On Linux a path can start at an open directory, like openat(2): user code cannot swap a parent directory. */
const hasHandlePaths = existsSync("/proc/self/fd");

/** Opens a regular file; undefined for anything else. Does not follow a link at the end or block on a pipe. */
export async function openRegular(file: string): Promise<FileHandle | undefined> {
  let handle: FileHandle;
  try {
    handle = await fs.open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (["ELOOP", "EMLINK", "ENXIO", "EISDIR", "ENODEV"].includes((error as NodeJS.ErrnoException).code ?? "")) return;
    throw error;
  }
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
}

/** Reads a file from its beginning, regardless of the position of the handle. */
export async function* readBlocks(handle: FileHandle): AsyncGenerator<Buffer> {
  for (let position = 0; ; ) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(BLOCK_BYTES), 0, BLOCK_BYTES, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Creates a directory and its missing parents, and syncs each before it is used. */
export async function makeDirectory(directory: string, mode = 0o700): Promise<void> {
  try {
    await fs.mkdir(directory, { mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await fs.stat(directory)).isDirectory()) return;
    if (code !== "ENOENT") throw error;
    await makeDirectory(path.dirname(directory), mode);
    return makeDirectory(directory, mode);
  }
  await syncDirectory(path.dirname(directory));
}

/** Makes created and renamed entries of the directory survive a power failure. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await fs.open(directory, constants.O_RDONLY);
  try {
    await handle.sync();
  } catch (error) {
    // Some network file systems do not support it and offer no alternative.
    if (!["EINVAL", "ENOTSUP", "EPERM"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    await handle.close();
  }
}

/** Converts the error of a full disk into one with a remedy; returns any other error unchanged. */
export function explainDiskError(thrown: unknown, what: string): unknown {
  if (!["ENOSPC", "EDQUOT", "EFBIG"].includes((thrown as NodeJS.ErrnoException)?.code ?? "")) return thrown;
  return new StillwakeError("DISK_FULL", `The disk is full: no room for ${what}`, {
    cause: thrown,
    retryable: true,
    remedy: "Use a machine with a larger disk or a higher limit, or run fewer jobs at once.",
  });
}

/**
 * Deletes a file or a tree and returns the number of files. Never follows a link, even one created during the removal,
 * and handles directories without permissions and names that are not UTF-8. Nested directories are first moved to the
 * top, so that neither path length nor open files limit the depth.
 */
export async function removeTree(target: string): Promise<number> {
  const before = await fs.lstat(target).catch(ignoreMissing);
  if (!before) return 0;
  if (!before.isDirectory()) {
    await fs.unlink(target).catch(ignoreMissing);
    return 1;
  }
  const root = await openDirectory(Buffer.from(target));
  try {
    const base = pathOf(root, Buffer.from(target));
    let files = 0;
    let moved = 0;
    const moveToTop = async (directory: Buffer): Promise<Buffer> => {
      const top = join(base, Buffer.from(`.removed-${process.pid}-${moved++}`));
      await fs.rename(directory, top).catch(async (error) => {
        // Moving a directory requires write permission on it; openDirectory() adds that.
        if (error.code !== "EACCES") throw error;
        await (await openDirectory(directory)).close();
        await fs.rename(directory, top);
      });
      return top;
    };
    // A process may still be writing there: try a few times, then fail.
    for (let tries = 0; tries < 10; tries++) {
      const waiting: Buffer[] = [];
      files += await clear(base, async (directory) => void waiting.push(directory));
      for (let next = waiting.pop(); next; next = waiting.pop()) {
        const directory = next;
        const handle = await openDirectory(directory).catch(ignoreChanged);
        if (!handle) continue;
        try {
          files += await clear(pathOf(handle, directory), async (deeper) => void waiting.push(await moveToTop(deeper)));
        } finally {
          await handle.close();
        }
        await fs.rmdir(directory).catch(ignoreChanged);
      }
      if (await fs.rmdir(target).then(() => true, ignoreChanged)) break;
    }
    if (await fs.lstat(target).catch(ignoreMissing)) {
      throw new StillwakeError(
        "DIRECTORY_IN_USE",
        `${path.basename(target)} cannot be removed: a process is still writing to it`,
        {
          retryable: true,
          remedy: "Stop the processes that use it first",
        },
      );
    }
    return files;
  } finally {
    await root.close();
  }
}

/** Unlinks all files, calls back for directories, and returns the number of unlinked files. */
async function clear(directory: Buffer, onDirectory: (found: Buffer) => Promise<void>): Promise<number> {
  const entries = await fs.readdir(directory, { withFileTypes: true, encoding: "buffer" });
  const files = entries.filter((entry) => !entry.isDirectory());
  for (let from = 0; from < files.length; from += 64) {
    await Promise.all(
      files.slice(from, from + 64).map(({ name }) => fs.unlink(join(directory, name)).catch(ignoreChanged)),
    );
  }
  for (const entry of entries) if (entry.isDirectory()) await onDirectory(join(directory, entry.name));
  return files.length;
}

async function openDirectory(directory: Buffer): Promise<FileHandle> {
  const open = () => fs.open(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const handle = await open().catch(async (error) => {
    if (error.code !== "EACCES") throw error;
    // chmod follows links. Only reached without root privileges, where user code has the same rights as this process.
    await fs.chmod(directory, 0o700);
    return open();
  });
  await handle.chmod(0o700).catch(() => {});
  return handle;
}

function pathOf(handle: FileHandle, fallback: Buffer): Buffer {
  return hasHandlePaths ? Buffer.from(`/proc/self/fd/${handle.fd}`) : fallback;
}

function join(directory: Buffer, name: Buffer): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), name]);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

/** Ignores that an entry changed since it was listed: the next round lists again. */
function ignoreChanged(error: NodeJS.ErrnoException): undefined {
  if (!["ENOENT", "ENOTDIR", "ELOOP", "ENOTEMPTY", "EEXIST", "EISDIR"].includes(error.code ?? "")) throw error;
}
