// Produces an artifact in the runner: user code writes it, and it appears in the scratch directory complete or not at
// all. The keeper then stores it (store-artifact.ts) and writes its row last.
//
//   <scratch>/artifacts.part/<random>/<file name>   while it is written; tools depend on the extension
//   <scratch>/artifacts/<name>                      when it is complete and synced; mode 0400, it must not change
import { createHash, type Hash, randomUUID } from "node:crypto";
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { explainDiskError, makeDirectory, openRegular, readBlocks, syncDirectory } from "../../artifacts/disk.ts";
import { checkArtifactName, isInside, resolveInside } from "../../artifacts/names.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";

const BUFFER_BYTES = 64 * 1024;

type Piece = string | Uint8Array;
type Pieces = AsyncIterable<Piece> | Iterable<Piece>;

/**
 * Text, bytes, a stream of either (of Node, of the web, any async iterable), a file in the scratch directory, or
 * nothing when the producer wrote to `path`.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: a producer that writes to its path returns nothing.
export type ArtifactContent = Piece | Pieces | { file: string } | void;

/** Produces the content of an artifact: it writes to `path`, or returns the content. */
export type ArtifactProducer = (path: string, signal: AbortSignal) => ArtifactContent | Promise<ArtifactContent>;

export interface ProducedArtifact {
  path: string;
  size: number;
  sha256: string;
}

export async function produceArtifact(
  scratch: string,
  rawName: string,
  producer: ArtifactProducer,
  signal: AbortSignal,
): Promise<ProducedArtifact> {
  const name = checkArtifactName(rawName);
  const top = await fs.realpath(scratch);
  const workDirectory = path.join(top, "artifacts.part", randomUUID());
  const part = path.join(workDirectory, path.basename(name));
  try {
    signal.throwIfAborted();
    await fs.mkdir(workDirectory, { recursive: true, mode: 0o700 });
    const content = await unlessAborted(async () => producer(part, signal), signal);
    const file = fileOf(content, part);
    const made = await unlessAborted(
      () =>
        file === undefined
          ? writeContent(name, content as Pieces, part, signal)
          : takeFile(name, top, path.resolve(top, file), part, signal),
      signal,
    ).finally(() => signal.aborted && (content as { destroy?: () => void } | undefined)?.destroy?.());
    if (made.size === 0) throw emptyArtifact(name, "is empty");
    const target = await makeTarget(top, name);
    signal.throwIfAborted();
    await fs.rename(part, target);
    await syncDirectory(path.dirname(target));
    return { path: target, ...made };
  } catch (error) {
    throw explainDiskError(error, name);
  } finally {
    await fs.rm(workDirectory, { recursive: true, force: true });
  }
}

/** Moves a fetched artifact to the path it would have if this attempt had produced it, and returns that path. */
export async function moveIntoArtifacts(scratch: string, name: string, fetched: string): Promise<string> {
  try {
    const target = await makeTarget(await fs.realpath(scratch), name);
    await fs.rename(fetched, target);
    return target;
  } catch (error) {
    await fs.rm(fetched, { force: true });
    throw explainDiskError(error, name);
  }
}

/** The file that the producer wrote, or undefined when it returned the content. */
function fileOf(content: ArtifactContent, part: string): string | undefined {
  if (content === undefined || content === null) return part;
  return typeof (content as { file?: unknown }).file === "string" ? (content as { file: string }).file : undefined;
}

/** Rejects when the signal aborts even if the work continues; what it writes then is in a removed directory. */
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
  if (!isIterable) throw unsupportedContent(name, pieces);
  let size = 0;
  // Small pieces are collected. They are copied at once, because some producers reuse their buffer.
  const collected = Buffer.allocUnsafe(BUFFER_BYTES);
  let used = 0;
  const flush = async () => {
    if (used > 0) await handle.writeFile(collected.subarray(0, used));
    used = 0;
  };
  for await (const piece of pieces) {
    signal.throwIfAborted();
    if (typeof piece !== "string" && !(piece instanceof Uint8Array)) throw unsupportedContent(name, piece);
    const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
    hash.update(bytes);
    size += bytes.length;
    if (used + bytes.length > BUFFER_BYTES) await flush();
    if (bytes.length > BUFFER_BYTES) await handle.writeFile(bytes);
    else {
      collected.set(bytes, used);
      used += bytes.length;
    }
  }
  await flush();
  return size;
}

/** Takes a regular file of the scratch directory that user code wrote: moves it to `part` and syncs it. */
async function takeFile(name: string, top: string, file: string, part: string, signal: AbortSignal) {
  const missing = (error: NodeJS.ErrnoException) => {
    throw error.code === "ENOENT" || error.code === "ENOTDIR" ? emptyArtifact(name, "was not written") : error;
  };
  const real = path.join(await fs.realpath(path.dirname(file)).catch(missing), path.basename(file));
  const handle = isInside(top, real) ? await openRegular(real).catch(missing) : undefined;
  if (!handle) {
    throw new StillwakeError(
      "OUTSIDE_SCRATCH",
      `The file of artifact ${name} is not a regular file in the scratch directory`,
      {
        remedy: "Write it to the path that the producer receives, or elsewhere in the scratch directory, not as a link",
      },
    );
  }
  try {
    // A file with several hard links could be changed through another one, so it is copied. The keeper rejects such files.
    if ((await handle.stat()).nlink > 1) {
      await fs.rm(part, { force: true });
      return await writeContent(name, readBlocks(handle), part, signal);
    }
    // Fails if a program wrote it as another user.
    await handle.chmod(0o400).catch(() => {});
    await handle.sync();
    const hash = createHash("sha256");
    let size = 0;
    for await (const block of readBlocks(handle)) {
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

async function makeTarget(top: string, name: string): Promise<string> {
  const root = path.join(top, "artifacts");
  await makeDirectory(root);
  const target = await resolveInside(root, name);
  try {
    await makeDirectory(path.dirname(target));
    if (!(await fs.lstat(target).catch(() => undefined))?.isDirectory()) return target;
  } catch (error) {
    if (!["EEXIST", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
  throw new InvalidInput(
    `Artifact ${name} conflicts with an artifact that has the name of its directory, or a directory that has its name`,
    {
      field: "name",
      remedy: "Use a name either as a file or as a directory",
    },
  );
}

function emptyArtifact(name: string, problem: string): StillwakeError {
  return new StillwakeError("EMPTY_ARTIFACT", `Artifact ${name} ${problem}`, {
    retryable: true,
    remedy: "Check why its producer wrote nothing; an artifact has at least one byte",
  });
}

function unsupportedContent(name: string, content: unknown): InvalidInput {
  return new InvalidInput(
    `The producer of ${name} returned ${content === null ? "null" : `a value of type ${typeof content}`}`,
    {
      field: "producer",
      remedy: "Return text, bytes, a stream of either or { file }, or write to the path it receives",
    },
  );
}

/** A stored file of a job. */
export interface Artifact {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  /** True when an earlier attempt stored it. */
  existing: boolean;
}

export function toArtifact(row: ArtifactRow, existing: boolean): Artifact {
  return { name: row.name, size: Number(row.size), sha256: row.sha256, contentType: row.content_type, existing };
}
