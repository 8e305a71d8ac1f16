// What the worker needs of a disk beyond reading and writing: durable directories, files opened without following links, trees that vanish
// whatever user code has made of them, and a sentence for the day the disk is full. Scratch, artifacts, the file store and unpack use it.
import { constants, existsSync } from "node:fs";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { StillwakeError } from "../errors.ts";

const BLOCK = 256 * 1024;
/** Linux lets a path begin at an open directory, which is openat(2) in disguise: nobody can swap what lies above. */
const throughHandles = existsSync("/proc/self/fd");

/** Opens a regular file for reading, or answers undefined for anything else. A link at the end of the path is not followed; a pipe does not block. */
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

/** A file's content from its beginning, wherever the handle stands. */
export async function* blocksOf(handle: FileHandle): AsyncGenerator<Buffer> {
  for (let position = 0; ; ) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(BLOCK), 0, BLOCK, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Makes what is missing of a directory, each part known to the disk before it is used. */
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

/** After this, a name that was made or renamed in the directory survives a power cut. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await fs.open(directory, constants.O_RDONLY);
  try {
    await handle.sync();
  } catch (error) {
    // Some network file systems know no such thing, and have no better to offer.
    if (!["EINVAL", "ENOTSUP", "EPERM"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    await handle.close();
  }
}

/** Turns a full disk into an error for people; anything else is handed back as it is. */
export function fromDisk(thrown: unknown, what: string): unknown {
  if (!["ENOSPC", "EDQUOT", "EFBIG"].includes((thrown as NodeJS.ErrnoException)?.code ?? "")) return thrown;
  return new StillwakeError("DISK_FULL", `There is no room on the disk for ${what}`, {
    cause: thrown,
    retryable: true,
    remedy: "Give the machine a larger disk or a higher limit, or let it do fewer jobs at once.",
  });
}

/**
 * Deletes a file or a tree and answers how many files there were. No link is followed, not even one that is put in place meanwhile;
 * directories without permissions and names that are no UTF-8 are no obstacle. Directories that lie deeper are first moved up, so that
 * neither the length of a path nor the number of open files limits the depth.
 */
export async function removeTree(place: string): Promise<number> {
  const before = await fs.lstat(place).catch(gone);
  if (!before) return 0;
  if (!before.isDirectory()) {
    await fs.unlink(place).catch(gone);
    return 1;
  }
  const top = await openDirectory(Buffer.from(place));
  try {
    const base = pathOf(top, Buffer.from(place));
    let files = 0;
    let lifted = 0;
    const liftUp = async (directory: Buffer): Promise<Buffer> => {
      const target = join(base, Buffer.from(`.removed-${process.pid}-${lifted++}`));
      await fs.rename(directory, target).catch(async (error) => {
        // Only who may write to a directory can move it elsewhere.
        if (error.code !== "EACCES") throw error;
        await (await openDirectory(directory)).close();
        await fs.rename(directory, target);
      });
      return target;
    };
    // Whoever still writes there is given a few chances to end, not all the time there is.
    for (let tries = 0; tries < 10; tries++) {
      const waiting: Buffer[] = [];
      files += await clear(base, async (directory) => void waiting.push(directory));
      for (let next = waiting.pop(); next; next = waiting.pop()) {
        const directory = next;
        const handle = await openDirectory(directory).catch(swapped);
        if (!handle) continue;
        try {
          files += await clear(pathOf(handle, directory), async (deeper) => void waiting.push(await liftUp(deeper)));
        } finally {
          await handle.close();
        }
        await fs.rmdir(directory).catch(swapped);
      }
      if (await fs.rmdir(place).then(() => true, swapped)) break;
    }
    if (await fs.lstat(place).catch(gone)) {
      throw new StillwakeError(
        "DIRECTORY_IN_USE",
        `${path.basename(place)} cannot be removed: it is still written to`,
        {
          retryable: true,
          remedy: "End the processes that work in it first",
        },
      );
    }
    return files;
  } finally {
    await top.close();
  }
}

/** Unlinks what is no directory and hands over what is one. Answers how many files there were. */
async function clear(directory: Buffer, onDirectory: (found: Buffer) => Promise<void>): Promise<number> {
  const entries = await fs.readdir(directory, { withFileTypes: true, encoding: "buffer" });
  const files = entries.filter((entry) => !entry.isDirectory());
  for (let from = 0; from < files.length; from += 64) {
    await Promise.all(files.slice(from, from + 64).map(({ name }) => fs.unlink(join(directory, name)).catch(swapped)));
  }
  for (const entry of entries) if (entry.isDirectory()) await onDirectory(join(directory, entry.name));
  return files.length;
}

async function openDirectory(directory: Buffer): Promise<FileHandle> {
  const open = () => fs.open(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const handle = await open().catch(async (error) => {
    if (error.code !== "EACCES") throw error;
    // chmod follows links. It is only reached without root's rights, and then user code has the same rights as we.
    await fs.chmod(directory, 0o700);
    return open();
  });
  await handle.chmod(0o700).catch(() => {});
  return handle;
}

function pathOf(handle: FileHandle, otherwise: Buffer): Buffer {
  return throughHandles ? Buffer.from(`/proc/self/fd/${handle.fd}`) : otherwise;
}

function join(directory: Buffer, name: Buffer): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), name]);
}

function gone(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

/** What was found a moment ago is something else by now; the next look will tell. */
function swapped(error: NodeJS.ErrnoException): undefined {
  if (!["ENOENT", "ENOTDIR", "ELOOP", "ENOTEMPTY", "EEXIST", "EISDIR"].includes(error.code ?? "")) throw error;
}
