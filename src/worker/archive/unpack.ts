// unpack(): extracts an untrusted archive. Only regular files and directories are created, inside one directory, within limits that are
// counted while writing and not taken from headers. Links and devices are skipped and listed. Names that lead outside or collide on some
// file system reject the whole archive. entries.ts reads the formats; only this file writes to disk.
import { constants } from "node:fs";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { explainDiskError, removeTree } from "../../artifacts/disk.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import type { ArchiveEntry } from "./entries.ts";

export interface UnpackLimits {
  /** Bytes of all files together. Default: 4 GB. */
  maxBytes: number;
  /** Entries of any kind. Default: 100,000. */
  maxFiles: number;
  /** Unpacked bytes per byte of the archive, checked beyond the first MB. Default: 200. */
  maxRatio: number;
  /** Directories above a file. Default: 64. */
  maxDepth: number;
}

export interface Unpacked {
  files: number;
  bytes: number;
  skipped: { name: string; why: string }[];
}

const DEFAULTS: UnpackLimits = { maxBytes: 4 * 1024 ** 3, maxFiles: 100_000, maxRatio: 200, maxDepth: 64 };
/** A small archive of repetitive files is not a bomb, whatever its ratio. */
const RATIO_CHECK_BYTES = 1024 ** 2;
const CREATE_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** Unpacks a .zip, .tar or .tar.gz into a directory that is empty or does not exist. An error restores that state. */
export async function unpack(
  archive: string,
  into: string,
  limits: Partial<UnpackLimits> = {},
  signal?: AbortSignal,
): Promise<Unpacked> {
  const isNew = await claimDirectory(into);
  try {
    const root = await fs.realpath(into);
    const { size } = await fs.stat(archive);
    return await unpackInto(root, archive, size, { ...DEFAULTS, ...limits }, signal);
  } catch (error) {
    for (const name of await fs.readdir(into)) await removeTree(path.join(into, name));
    if (isNew) await fs.rmdir(into);
    signal?.throwIfAborted();
    throw explainDiskError(error, `the content of ${path.basename(archive)}`);
  }
}

async function unpackInto(root: string, archive: string, size: number, limits: UnpackLimits, signal?: AbortSignal) {
  const names = new EntryNames(root, limits.maxDepth);
  const result: Unpacked = { files: 0, bytes: 0, skipped: [] };
  let entries = 0;
  let unpacked = 0;
  const tooLarge = (limit: string) =>
    new StillwakeError("ARCHIVE_TOO_LARGE", `${path.basename(archive)} unpacks to more than ${limit}`, {
      remedy: "Raise the limit if you trust the source of the archive",
    });
  /** Called for every decompressed byte, whether it is written or not. */
  const onBytes = (count: number) => {
    signal?.throwIfAborted();
    unpacked += count;
    if (unpacked > Math.max(RATIO_CHECK_BYTES, size * limits.maxRatio))
      throw tooLarge(`${limits.maxRatio} times its size`);
  };
  const onEntry = () => {
    if (++entries > limits.maxFiles) throw tooLarge(`${limits.maxFiles} entries`);
  };

  // Imported on demand: the format libraries would take a quarter of the start time of every runner.
  const { readArchive } = await import("./entries.ts");
  for await (const entry of readArchive(archive, { onBytes, onEntry })) {
    const parts = names.check(entry.name);
    if (entry.kind !== "file" && entry.kind !== "directory") {
      names.reserveLink(parts);
      result.skipped.push({ name: entry.name, why: `it is a ${entry.kind}` });
    } else if (parts.some((part) => /\p{Cc}/u.test(part))) {
      result.skipped.push({ name: entry.name, why: "its name has control characters" });
    } else if (entry.kind === "directory") {
      await names.makeDirectories(parts);
    } else {
      await names.makeDirectories(parts.slice(0, -1));
      await writeFile(names.reserveFile(parts), entry, (count) => {
        result.bytes += count;
        if (result.bytes > limits.maxBytes) throw tooLarge(`${limits.maxBytes} bytes`);
      });
      result.files++;
    }
  }
  return result;
}

async function writeFile(file: string, entry: ArchiveEntry, onWrite: (count: number) => void): Promise<void> {
  const handle: FileHandle = await fs.open(file, CREATE_FLAGS, entry.executable ? 0o700 : 0o600);
  try {
    for await (const block of entry.content()) {
      onWrite(block.length);
      await handle.writeFile(block);
    }
  } finally {
    await handle.close();
  }
}

/** Returns true when the directory was created. */
async function claimDirectory(into: string): Promise<boolean> {
  try {
    await fs.mkdir(into, { mode: 0o700 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  if (!(await fs.lstat(into)).isDirectory() || (await fs.readdir(into)).length > 0) {
    throw new InvalidInput(`${path.basename(into)} is not an empty directory`, {
      field: "into",
      remedy: "Unpack into a directory that is empty or does not exist",
    });
  }
  return false;
}

/** All names of the archive, by a form in which colliding names (case, Unicode forms) are equal. */
class EntryNames {
  readonly #root: string;
  readonly #maxDepth: number;
  readonly #seen = new Map<string, { name: string; kind: "file" | "directory" | "link" }>();

  constructor(root: string, maxDepth: number) {
    this.#root = root;
    this.#maxDepth = maxDepth;
  }

  /** Returns the path segments of a safe name; empty for the root itself. */
  check(name: string): string[] {
    if (/^[a-z]:/i.test(name) || name.startsWith("/")) throw unsafe(name, "is absolute");
    if (name.includes("\\")) throw unsafe(name, "contains a backslash");
    if (name.includes("\0")) throw unsafe(name, "contains a NUL");
    const parts = name.split("/").filter((part) => part !== "" && part !== ".");
    if (parts.includes("..")) throw unsafe(name, "contains ..");
    if (Buffer.byteLength(name) > 1024 || parts.some((part) => Buffer.byteLength(part) > 255)) {
      throw unsafe(`${name.slice(0, 100)}…`, "is longer than the maximum of a path");
    }
    if (parts.length - 1 > this.#maxDepth) {
      throw new StillwakeError("ARCHIVE_TOO_LARGE", `The archive has more than ${this.#maxDepth} nested directories`, {
        remedy: "Raise the limit if you trust the source of the archive",
      });
    }
    return parts;
  }

  /** Creates the directories one by one, so that each is known to be ours before anything is created inside. */
  async makeDirectories(parts: string[]): Promise<void> {
    for (let depth = 1; depth <= parts.length; depth++) {
      const name = parts.slice(0, depth).join("/");
      const known = this.#seen.get(fold(name));
      if (known?.name === name && known.kind === "directory") continue;
      if (known) throw collision(name, known.name);
      this.#seen.set(fold(name), { name, kind: "directory" });
      await fs.mkdir(path.join(this.#root, name), { mode: 0o700 });
    }
  }

  reserveFile(parts: string[]): string {
    return path.join(this.#root, this.#reserve(parts, "file"));
  }

  /** Links are not created, but nothing may use their name or be inside: the archive expects them followed. */
  reserveLink(parts: string[]): void {
    this.#reserve(parts, "link");
  }

  #reserve(parts: string[], kind: "file" | "link"): string {
    const name = parts.join("/");
    const known = this.#seen.get(fold(name));
    if (name === "") throw unsafe(name, "is empty");
    if (known) throw collision(name, known.name);
    this.#seen.set(fold(name), { name, kind });
    return name;
  }
}

/** Both case conversions are needed: ß and SS, or the Kelvin sign and k, become equal only after one of them. */
function fold(name: string): string {
  return name.normalize("NFD").toLowerCase().toUpperCase().normalize("NFD");
}

function unsafe(name: string, problem: string): StillwakeError {
  return new StillwakeError("UNSAFE_ARCHIVE", `The name ${JSON.stringify(name)} in the archive ${problem}`, {
    remedy: "Nothing was unpacked; do not trust the source of the archive",
  });
}

function collision(name: string, other: string): StillwakeError {
  return name === other
    ? unsafe(name, "occurs twice")
    : new StillwakeError(
        "UNSAFE_ARCHIVE",
        `${JSON.stringify(name)} and ${JSON.stringify(other)} are the same name on some file systems`,
        {
          remedy: "Nothing was unpacked; pack it again with names that differ by more than case or accents",
        },
      );
}
