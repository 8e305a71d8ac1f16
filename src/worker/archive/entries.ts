// Reads the entries of a .zip, .tar or .tar.gz in order, for unpack.ts. The first bytes decide the format, not the name. The libraries only
// parse headers: nothing is written here, and every decompressed byte is reported before it is yielded.
import { constants } from "node:fs";
import fs, { type FileHandle } from "node:fs/promises";
import { Readable, type Transform } from "node:stream";
import zlib from "node:zlib";
import { Header, Parser, type ReadEntry } from "tar";
import yauzl, { type Entry, type ZipFile } from "yauzl";
import { readBlocks } from "../../artifacts/disk.ts";
import { StillwakeError } from "../../errors.ts";

export interface ArchiveEntry {
  name: string;
  kind: "file" | "directory" | "link" | "device" | "pipe" | "socket" | "special file";
  executable: boolean;
  /** Must be read to its end, or not at all, before the next entry is requested. */
  content(): AsyncIterable<Uint8Array>;
}

export interface Meters {
  onEntry(): void;
  onBytes(count: number): void;
}

export async function* readArchive(archive: string, meters: Meters): AsyncGenerator<ArchiveEntry> {
  const handle = await fs.open(archive, "r");
  try {
    for await (const entry of translateErrors(await openEntries(archive, handle, meters))) {
      yield { ...entry, content: () => translateErrors(entry.content()) };
    }
  } finally {
    await handle.close();
  }
}

async function openEntries(archive: string, handle: FileHandle, meters: Meters): Promise<AsyncIterable<ArchiveEntry>> {
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(4), 0, 4, 0);
  const magic = buffer.toString("latin1", 0, bytesRead);
  if (magic === "PK\x03\x04" || magic === "PK\x05\x06") return zipEntries(archive, meters);
  const bytes = readBlocks(handle);
  const isGzip = magic.startsWith("\x1f\x8b");
  return tarEntries(isGzip ? pipeThrough(Readable.from(bytes), zlib.createGunzip(ZLIB_OPTIONS)) : bytes, meters);
}

const ZLIB_OPTIONS = { chunkSize: 64 * 1024 };

async function* zipEntries(archive: string, meters: Meters): AsyncGenerator<ArchiveEntry> {
  // The library would convert backslashes in names to slashes, so names are decoded below. Sizes are counted below too.
  const zip = await yauzl.openPromise(archive, { decodeStrings: false, validateEntrySizes: false, autoClose: false });
  try {
    for await (const entry of zip.eachEntry()) {
      meters.onEntry();
      const { generalPurposeBitFlag, fileNameRaw, extraFields } = entry;
      const name = yauzl.getFileNameLowLevel(generalPurposeBitFlag, fileNameRaw, extraFields, true);
      const mode = entry.externalFileAttributes >>> 16;
      const kind = kindOfMode.get(mode & constants.S_IFMT) ?? "special file";
      const isDirectory = kind === "file" && (name.endsWith("/") || (entry.externalFileAttributes & 0x10) !== 0);
      yield {
        name,
        kind: isDirectory ? "directory" : kind,
        executable: (mode & 0o100) !== 0,
        content: () => zipContent(zip, entry, name, meters),
      };
    }
  } finally {
    zip.close();
  }
}

/** By the type bits of a Unix mode. Archives of other systems have none and contain files. */
const kindOfMode = new Map<number, ArchiveEntry["kind"]>([
  [0, "file"],
  [constants.S_IFREG, "file"],
  [constants.S_IFDIR, "directory"],
  [constants.S_IFLNK, "link"],
  [constants.S_IFCHR, "device"],
  [constants.S_IFBLK, "device"],
  [constants.S_IFIFO, "pipe"],
  [constants.S_IFSOCK, "socket"],
]);

async function* zipContent(zip: ZipFile, entry: Entry, name: string, meters: Meters): AsyncGenerator<Uint8Array> {
  if (!entry.canDecodeFileData())
    throw broken(`${JSON.stringify(name)} is encrypted, or compressed with an unknown method`);
  const raw = await zip.openReadStreamPromise(entry, { decodeFileData: false });
  let size = 0;
  let crc = 0;
  try {
    for await (const block of entry.compressionMethod === 8
      ? pipeThrough(raw, zlib.createInflateRaw(ZLIB_OPTIONS))
      : raw) {
      meters.onBytes(block.length);
      size += block.length;
      if (size > entry.uncompressedSize) break;
      // zlib.crc32 exists since Node 20.15.
      crc = zlib.crc32?.(block, crc) ?? entry.crc32;
      yield block;
    }
  } finally {
    raw.destroy();
  }
  if (size !== entry.uncompressedSize || (size > 0 && crc !== entry.crc32)) {
    throw broken(`the content of ${JSON.stringify(name)} does not match its header`);
  }
}

type TarEvent = { entry: ReadEntry } | { data: Buffer } | "end";

/**
 * The parser emits events synchronously while a block is written to it. They are queued, and the next block is written
 * only when the queue is empty, so that memory holds at most the events of one block.
 */
async function* tarEntries(source: AsyncIterable<Buffer>, meters: Meters): AsyncGenerator<ArchiveEntry> {
  const events: TarEvent[] = [];
  let failure: unknown;
  const parser = new Parser({ strict: true, zstd: false });
  parser.on("error", (error) => {
    failure ??= error;
  });
  parser.on("ignoredEntry", (entry: ReadEntry) => {
    if (entry.meta) failure ??= broken("a header is larger than 1 MB");
    events.push({ entry });
  });
  parser.on("entry", (entry: ReadEntry) => {
    events.push({ entry });
    entry.on("end", () => void events.push("end"));
    entry.on("data", (data) => void events.push({ data }));
  });
  const blocks = tarBlocks(source, meters);
  let ended = false;
  const next = async (): Promise<TarEvent | undefined> => {
    while (events.length === 0 && !failure && !ended) {
      const { done, value } = await blocks.next();
      if (done) parser.end();
      else parser.write(value);
      ended = done === true;
    }
    if (events.length === 0 && failure) throw failure;
    return events.shift();
  };
  async function* content() {
    for (let event = await next(); event && event !== "end"; event = await next())
      if ("data" in event) yield event.data;
  }
  try {
    for (let event = await next(); event; event = await next()) {
      // Belongs to an entry whose content was not read.
      if (event === "end" || "data" in event) continue;
      meters.onEntry();
      const { path, type, mode } = event.entry;
      yield { name: path, kind: kindOfType[type] ?? "special file", executable: (Number(mode) & 0o100) !== 0, content };
    }
  } finally {
    await blocks.return(undefined);
  }
}

const kindOfType: Partial<Record<ReadEntry["type"], ArchiveEntry["kind"]>> = {
  File: "file",
  OldFile: "file",
  ContiguousFile: "file",
  Directory: "directory",
  GNUDumpDir: "directory",
  Link: "link",
  SymbolicLink: "link",
  CharacterDevice: "device",
  BlockDevice: "device",
  FIFO: "pipe",
};

/** Checks that the source is a tar: the parser would otherwise decompress a nested format by itself. */
async function* tarBlocks(source: AsyncIterable<Buffer>, meters: Meters): AsyncGenerator<Buffer> {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const block of source) {
    meters.onBytes(block.length);
    if (start === undefined) yield block;
    else {
      start = Buffer.concat([start, block]);
      if (start.length < 512) continue;
      const header = new Header(start);
      if (!header.cksumValid && !header.nullBlock) break;
      yield start;
      start = undefined;
    }
  }
  if (start === undefined) return;
  throw new StillwakeError("UNKNOWN_ARCHIVE", "The file is not a .zip, .tar or .tar.gz", {
    remedy: "Pack it in one of these formats",
  });
}

async function* pipeThrough(source: Readable, transform: Transform): AsyncGenerator<Buffer> {
  source.on("error", (error) => transform.destroy(error));
  source.pipe(transform);
  try {
    yield* transform;
  } finally {
    source.destroy();
    transform.destroy();
  }
}

function broken(problem: string, cause?: unknown): StillwakeError {
  return new StillwakeError("BROKEN_ARCHIVE", `The archive cannot be read: ${problem}`, {
    cause,
    remedy: "Fetch or pack it again",
  });
}

/** Converts errors of the libraries; errors of the file system stay unchanged. */
async function* translateErrors<T>(source: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* source;
  } catch (error) {
    const { code = "", syscall, message } = error as NodeJS.ErrnoException;
    const isLibraryError = !(error instanceof StillwakeError) && !syscall && /^($|Z_|TAR_|ERR_)/.test(code);
    throw isLibraryError ? broken(message, error) : error;
  }
}
