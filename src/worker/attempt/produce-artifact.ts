// The runner's half of an artifact: user code makes it, and it comes to stand in the scratch directory as a whole or not at all. The keeper
// stores it from there (artifact-keeper.ts); the row in the database comes last.
//
//   <scratch>/artifacts.part/<random>/<file name>     while it is made: the ending is kept, because tools go by it
//   <scratch>/artifacts/<name>                        when it is whole and durable: 0400, because it is as it is from then on

import { createHash, type Hash, randomUUID } from "node:crypto";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { blocksOf, fromDisk, makeDirectory, openRegular, syncDirectory } from "../../artifacts/disk.ts";
import { checkArtifactName, isInside, resolveInside } from "../../artifacts/names.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";

const BUFFER = 64 * 1024;

type Piece = string | Uint8Array;
type Pieces = AsyncIterable<Piece> | Iterable<Piece>;

/** Text, bytes, a stream of either (Node's, the web's, any async iterable), a file of the scratch directory, or nothing when `path` was written. */
// biome-ignore lint/suspicious/noConfusingVoidType: a producer that writes to its path returns nothing, with or without await.
export type ArtifactContent = Piece | Pieces | { file: string } | void;

/** Makes the content of an artifact. It may write to `path` itself, or return the content. */
export type ArtifactProducer = (path: string, signal: AbortSignal) => ArtifactContent | Promise<ArtifactContent>;

export interface ProducedArtifact {
  path: string;
  size: number;
  sha256: string;
}

export async function produce(
  scratch: string,
  given: string,
  producer: ArtifactProducer,
  signal: AbortSignal,
): Promise<ProducedArtifact> {
  const name = checkArtifactName(given);
  const top = await fs.realpath(scratch);
  const workshop = path.join(top, "artifacts.part", randomUUID());
  const part = path.join(workshop, path.basename(name));
  try {
    signal.throwIfAborted();
    await fs.mkdir(workshop, { recursive: true, mode: 0o700 });
    const content = await unlessAborted(async () => producer(part, signal), signal);
    const own = ownFile(content, part);
    const made = await unlessAborted(
      () =>
        own === undefined
          ? writeContent(name, content as Pieces, part, signal)
          : takeFile(name, top, path.resolve(top, own), part, signal),
      signal,
    ).finally(() => signal.aborted && (content as { destroy?: () => void } | undefined)?.destroy?.());
    if (made.size === 0) throw empty(name, "came out empty");
    const target = await makePlace(top, name);
    signal.throwIfAborted();
    await fs.rename(part, target);
    await syncDirectory(path.dirname(target));
    return { path: target, ...made };
  } catch (error) {
    throw fromDisk(error, name);
  } finally {
    await fs.rm(workshop, { recursive: true, force: true });
  }
}

/** Where an artifact that was fetched into the scratch directory stands from now on: where it would if it had been made here. */
export async function putInPlace(scratch: string, name: string, fetched: string): Promise<string> {
  try {
    const target = await makePlace(await fs.realpath(scratch), name);
    await fs.rename(fetched, target);
    return target;
  } catch (error) {
    await fs.rm(fetched, { force: true });
    throw fromDisk(error, name);
  }
}

/** The file the producer wrote itself, or undefined when it returned the content. */
function ownFile(content: ArtifactContent, part: string): string | undefined {
  if (content === undefined || content === null) return part;
  return typeof (content as { file?: unknown }).file === "string" ? (content as { file: string }).file : undefined;
}

/** Ends with the signal even if the work does not. Whatever it still writes goes into a directory that is gone. */
export async function unlessAborted<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    signal.throwIfAborted();
    return await Promise.race([work(), aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

async function writeContent(name: string, content: Piece | Pieces, part: string, signal: AbortSignal) {
  await fs.rm(part, { force: true });
  const handle = await fs.open(part, "wx", 0o400);
  try {
    const hash = createHash("sha256");
    const whole = typeof content === "string" || content instanceof Uint8Array;
    const size = await writePieces(name, whole ? [content] : content, handle, hash, signal);
    await handle.sync();
    return { size, sha256: hash.digest("hex") };
  } finally {
    await handle.close();
  }
}

async function writePieces(
  name: string,
  pieces: Pieces,
  handle: FileHandle,
  hash: Hash,
  signal: AbortSignal,
): Promise<number> {
  const isIterable = typeof pieces === "object" && (Symbol.asyncIterator in pieces || Symbol.iterator in pieces);
  if (!isIterable) throw strange(name, pieces);
  let size = 0;
  // Small pieces are gathered. They are copied at once, because some producers use one buffer again and again.
  const gathered = Buffer.allocUnsafe(BUFFER);
  let used = 0;
  const flush = async () => {
    if (used > 0) await handle.writeFile(gathered.subarray(0, used));
    used = 0;
  };
  for await (const piece of pieces) {
    signal.throwIfAborted();
    if (typeof piece !== "string" && !(piece instanceof Uint8Array)) throw strange(name, piece);
    const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
    hash.update(bytes);
    size += bytes.length;
    if (used + bytes.length > BUFFER) await flush();
    if (bytes.length > BUFFER) await handle.writeFile(bytes);
    else {
      gathered.set(bytes, used);
      used += bytes.length;
    }
  }
  await flush();
  return size;
}

/** A file user code wrote itself: a regular one of the scratch directory, moved to `part` and made durable. */
async function takeFile(name: string, top: string, file: string, part: string, signal: AbortSignal) {
  const missing = (error: NodeJS.ErrnoException) => {
    throw error.code === "ENOENT" || error.code === "ENOTDIR" ? empty(name, "was not written") : error;
  };
  const real = path.join(await fs.realpath(path.dirname(file)).catch(missing), path.basename(file));
  const handle = isInside(top, real) ? await openRegular(real).catch(missing) : undefined;
  if (!handle) {
    throw new StillwakeError(
      "OUTSIDE_SCRATCH",
      `The file given for ${name} is no regular file of the scratch directory`,
      {
        remedy: "Write it to the path the producer is given, or elsewhere in the scratch directory, not as a link",
      },
    );
  }
  try {
    // A file with a second name could be changed under that one, so it is copied. The keeper refuses such files.
    if ((await handle.stat()).nlink > 1) {
      await fs.rm(part, { force: true });
      return await writeContent(name, blocksOf(handle), part, signal);
    }
    // A program that ran as another user may own it.
    await handle.chmod(0o400).catch(() => {});
    await handle.sync();
    const hash = createHash("sha256");
    let size = 0;
    for await (const block of blocksOf(handle)) {
      signal.throwIfAborted();
      hash.update(block);
      size += block.length;
    }
    if (real !== part) await fs.rename(real, part);
    return { size, sha256: hash.digest("hex") };
  } finally {
    await handle.close();
  }
}

async function makePlace(top: string, name: string): Promise<string> {
  const root = path.join(top, "artifacts");
  await makeDirectory(root);
  const target = await resolveInside(root, name);
  try {
    await makeDirectory(path.dirname(target));
    if (!(await fs.lstat(target).catch(() => undefined))?.isDirectory()) return target;
  } catch (error) {
    if (!["EEXIST", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
  throw new InvalidInput(`The artifact ${name} cannot stand beside one that is named like its directory`, {
    field: "name",
    remedy: "Use a name either for a file or for a directory",
  });
}

function empty(name: string, what: string): StillwakeError {
  return new StillwakeError("EMPTY_ARTIFACT", `${name} ${what}`, {
    retryable: true,
    remedy: "See why its producer made nothing; an artifact has at least one byte",
  });
}

function strange(name: string, content: unknown): InvalidInput {
  return new InvalidInput(
    `The producer of ${name} gave ${content === null ? "null" : `a value of type ${typeof content}`}`,
    {
      field: "producer",
      remedy: "Return text, bytes, a stream of either or { file }, or write to the path that is given",
    },
  );
}

/** A file of a job, as its code sees it. */
export interface Artifact {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  /** True when an earlier attempt had made it. */
  existing: boolean;
}

export function artifactOf(row: ArtifactRow, existing: boolean): Artifact {
  return { name: row.name, size: Number(row.size), sha256: row.sha256, contentType: row.content_type, existing };
}
