// Opens an archive that somebody else made. Only regular files and directories come out of it, beneath one directory, within limits that
// are counted while writing and not believed from headers. Links and devices are left out and named; names that lead elsewhere or meet on
// some file system condemn the archive as a whole. archive-entries.ts reads the formats; everything that touches the disk is here.
import { constants } from "node:fs";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { fromDisk, removeTree } from "../../artifacts/disk.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import type { ArchiveEntry } from "./entries.ts";

export interface UnpackLimits {
  /** Bytes of all files together. Default: 4 GB. */
  maxBytes: number;
  /** Entries of any kind. Default: 100,000. */
  maxFiles: number;
  /** Bytes that come out for each byte of the archive, looked at from the first MB on. Default: 200. */
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
/** A small archive of small repetitive files is no bomb, whatever its ratio. */
const RATIO_FROM = 1024 ** 2;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** Unpacks a .zip, .tar or .tar.gz into a directory that is empty or does not exist. After an error it is so again. */
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
    throw fromDisk(error, `what is in ${path.basename(archive)}`);
  }
}

async function unpackInto(root: string, archive: string, size: number, limits: UnpackLimits, signal?: AbortSignal) {
  const names = new Names(root, limits.maxDepth);
  const done: Unpacked = { files: 0, bytes: 0, skipped: [] };
  let entries = 0;
  let unpacked = 0;
  const tooLarge = (limit: string) =>
    new StillwakeError("ARCHIVE_TOO_LARGE", `${path.basename(archive)} unpacks to more than ${limit}`, {
      remedy: "Raise the limit if you know where the archive comes from",
    });
  /** Told of every byte that came out of the decompressor, whether it is written or not. */
  const onBytes = (count: number) => {
    signal?.throwIfAborted();
    unpacked += count;
    if (unpacked > Math.max(RATIO_FROM, size * limits.maxRatio)) throw tooLarge(`${limits.maxRatio} times its size`);
  };
  const onEntry = () => {
    if (++entries > limits.maxFiles) throw tooLarge(`${limits.maxFiles} entries`);
  };

  // Loaded when it is needed: what reads the formats would otherwise be a quarter of the start of every runner.
  const { readArchive } = await import("./entries.ts");
  for await (const entry of readArchive(archive, { onBytes, onEntry })) {
    const parts = names.check(entry.name);
    if (entry.kind !== "file" && entry.kind !== "directory") {
      names.takeLink(parts);
      done.skipped.push({ name: entry.name, why: `it is a ${entry.kind}` });
    } else if (parts.some((part) => /\p{Cc}/u.test(part))) {
      done.skipped.push({ name: entry.name, why: "its name has control characters" });
    } else if (entry.kind === "directory") {
      await names.makeDirectories(parts);
    } else {
      await names.makeDirectories(parts.slice(0, -1));
      await writeFile(names.takeFile(parts), entry, (count) => {
        done.bytes += count;
        if (done.bytes > limits.maxBytes) throw tooLarge(`${limits.maxBytes} bytes`);
      });
      done.files++;
    }
  }
  return done;
}

async function writeFile(place: string, entry: ArchiveEntry, onWrite: (count: number) => void): Promise<void> {
  const handle: FileHandle = await fs.open(place, CREATE, entry.executable ? 0o700 : 0o600);
  try {
    for await (const block of entry.content()) {
      onWrite(block.length);
      await handle.writeFile(block);
    }
  } finally {
    await handle.close();
  }
}

/** Answers whether it was made. */
async function claimDirectory(into: string): Promise<boolean> {
  try {
    await fs.mkdir(into, { mode: 0o700 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  if (!(await fs.lstat(into)).isDirectory() || (await fs.readdir(into)).length > 0) {
    throw new InvalidInput(`${path.basename(into)} is no empty directory`, {
      field: "into",
      remedy: "Unpack into a directory that is empty or does not exist",
    });
  }
  return false;
}

/** Every name that was seen, by the form under which it would meet others on a file system that ignores case or Unicode's forms. */
class Names {
  readonly #root: string;
  readonly #maxDepth: number;
  readonly #seen = new Map<string, { name: string; kind: "file" | "directory" | "link" }>();

  constructor(root: string, maxDepth: number) {
    this.#root = root;
    this.#maxDepth = maxDepth;
  }

  /** The parts of a name that stays beneath the root; for the root itself, none. */
  check(name: string): string[] {
    if (/^[a-z]:/i.test(name) || name.startsWith("/")) throw unsafe(name, "is absolute");
    if (name.includes("\\")) throw unsafe(name, "has a backslash");
    if (name.includes("\0")) throw unsafe(name, "has a NUL");
    const parts = name.split("/").filter((part) => part !== "" && part !== ".");
    if (parts.includes("..")) throw unsafe(name, "leads upwards");
    if (Buffer.byteLength(name) > 1024 || parts.some((part) => Buffer.byteLength(part) > 255)) {
      throw unsafe(`${name.slice(0, 100)}…`, "is longer than a path may be");
    }
    if (parts.length - 1 > this.#maxDepth) {
      throw new StillwakeError(
        "ARCHIVE_TOO_LARGE",
        `The archive has more than ${this.#maxDepth} directories in each other`,
        {
          remedy: "Raise the limit if you know where the archive comes from",
        },
      );
    }
    return parts;
  }

  /** The directories are made one by one, so that each is known to be a directory of ours before anything is made in it. */
  async makeDirectories(parts: string[]): Promise<void> {
    for (let depth = 1; depth <= parts.length; depth++) {
      const name = parts.slice(0, depth).join("/");
      const known = this.#seen.get(fold(name));
      if (known?.name === name && known.kind === "directory") continue;
      if (known) throw clash(name, known.name);
      this.#seen.set(fold(name), { name, kind: "directory" });
      await fs.mkdir(path.join(this.#root, name), { mode: 0o700 });
    }
  }

  takeFile(parts: string[]): string {
    return path.join(this.#root, this.#take(parts, "file"));
  }

  /** A link is not made, but nothing may be put under its name or beneath it either: whoever made the archive expects it to be followed. */
  takeLink(parts: string[]): void {
    this.#take(parts, "link");
  }

  #take(parts: string[], kind: "file" | "link"): string {
    const name = parts.join("/");
    const known = this.#seen.get(fold(name));
    if (name === "") throw unsafe(name, "is empty");
    if (known) throw clash(name, known.name);
    this.#seen.set(fold(name), { name, kind });
    return name;
  }
}

/** Lower and upper case are both needed: ß and SS, or the Kelvin sign and k, meet only after one of them. */
function fold(name: string): string {
  return name.normalize("NFD").toLowerCase().toUpperCase().normalize("NFD");
}

function unsafe(name: string, problem: string): StillwakeError {
  return new StillwakeError("UNSAFE_ARCHIVE", `The name ${JSON.stringify(name)} in the archive ${problem}`, {
    remedy: "Nothing was unpacked; do not trust where the archive comes from",
  });
}

function clash(name: string, other: string): StillwakeError {
  return name === other
    ? unsafe(name, "is there twice")
    : new StillwakeError(
        "UNSAFE_ARCHIVE",
        `${JSON.stringify(name)} and ${JSON.stringify(other)} are one name on some disks`,
        {
          remedy: "Nothing was unpacked; pack it again with names that differ by more than case or accents",
        },
      );
}
