// Verifies the content of artifacts against size and hash, on the way into a store and out of it, and what all stores
// share: the format of keys and the errors about one artifact.
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { readBlocks } from "./disk.ts";
import type { ArtifactFile } from "./store.ts";

/** Reads a file for a store. Yields the last block only if the content matches: a wrong copy is never complete. */
export async function* readVerified(file: ArtifactFile): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  let size = 0;
  let pending: Buffer | undefined;
  for await (const block of readBlocks(file.handle)) {
    if (pending) yield pending;
    pending = block;
    hash.update(block);
    size += block.length;
    if (size > file.size) break;
  }
  if (size !== file.size || hash.digest("hex") !== file.sha256) throw artifactChanged(file.name);
  if (pending) yield pending;
}

/** Wraps stored content for a reader: the stream fails at its end if the content does not match its row. */
export function verifyContent(
  content: ReadableStream<Uint8Array> | Readable,
  name: string,
  { size, sha256 }: { size: string; sha256: string },
): Readable {
  async function* blocks() {
    const hash = createHash("sha256");
    let bytes = 0;
    for await (const block of content as AsyncIterable<Uint8Array>) {
      hash.update(block);
      bytes += block.length;
      if (bytes > Number(size)) break;
      yield block;
    }
    if (bytes === Number(size) && hash.digest("hex") === sha256) return;
    throw new StillwakeError("ARTIFACT_CHANGED", `The stored content of ${name} differs from what the job stored`, {
      remedy: "Retry the job from the start to produce it again",
    });
  }
  return Readable.from(blocks(), { objectMode: false });
}

/** Rejects keys that could leave the root of a store. */
export function checkKey(key: string): string {
  if (/^[a-z0-9][a-z0-9-]*(\/[a-z0-9][a-z0-9-]*)*$/i.test(key) && key.length <= 512) return key;
  throw new InvalidInput(`${JSON.stringify(key.slice(0, 100))} is not a valid artifact key`, {
    field: "key",
    remedy: "Use letters, digits and dashes, separated by single slashes",
  });
}

export function artifactChanged(name: string, cause?: unknown): StillwakeError {
  return new StillwakeError("ARTIFACT_CHANGED", `${name} changed while it was being stored`, {
    cause,
    retryable: true,
    remedy: "Do not write to an artifact after its producer has returned",
  });
}

export function artifactExists(key: string): StillwakeError {
  return new StillwakeError(
    "ARTIFACT_EXISTS",
    `The store has other content under ${key}, and stored content is never overwritten`,
    {
      remedy: "Let only Stillwake write to this store; if the object is damaged, remove it by hand",
    },
  );
}

export function artifactMissing(key: string): StillwakeError {
  return new StillwakeError("ARTIFACT_MISSING", `The store has no content under ${key}`, {
    remedy: "The store's retention may have removed it; run the job again to produce it",
  });
}
