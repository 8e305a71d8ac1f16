// What a place for artifacts can do, and what all of them share: keys that cannot leave their root, and content that is compared with its
// hash before its last block is handed out. file-store.ts and s3-store.ts implement it, stores.ts chooses, artifact-keeper.ts calls it.
import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import type { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { blocksOf } from "./disk.ts";

/** An open file and what it is said to contain. */
export interface ArtifactFile {
  /** For messages. */
  name: string;
  handle: FileHandle;
  size: number;
  sha256: string;
  contentType: string;
}

export interface ArtifactStore {
  readonly kind: string;
  /**
   * Whole or absent: stores the file under the key; nobody sees a part of it. Storing the same content again under the same key is no error,
   * other content is refused with ARTIFACT_EXISTS, and a file that is not what it is said to be with ARTIFACT_CHANGED.
   */
  put(key: string, file: ArtifactFile, signal?: AbortSignal): Promise<void>;
  /** Size and hash of what is there; undefined when absent. */
  stat(key: string, signal?: AbortSignal): Promise<{ size: number; sha256: string } | undefined>;
  /** Throws ARTIFACT_MISSING when there is nothing. */
  get(key: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array> | Readable>;
  /** For a browser, at most five minutes valid; undefined when the store has no such links. */
  link(key: string, options: { fileName: string; seconds: number }): Promise<string | undefined>;
  /** Removes a key, or all keys that continue it after a slash. Answers how many there were. */
  remove(prefix: string): Promise<number>;
  /** Removes what writers that died have left unfinished for so long. Answers how many there were. */
  sweep(olderThanMs?: number): Promise<number>;
}

/** The content as it really is. The last block comes only if all of it agrees with what was said, so a copy of something else is never complete. */
export async function* contentOf(file: ArtifactFile): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  let size = 0;
  let held: Buffer | undefined;
  for await (const block of blocksOf(file.handle)) {
    if (held) yield held;
    held = block;
    hash.update(block);
    size += block.length;
    if (size > file.size) break;
  }
  if (size !== file.size || hash.digest("hex") !== file.sha256) throw artifactChanged(file.name);
  if (held) yield held;
}

export function checkKey(key: string): string {
  if (/^[a-z0-9][a-z0-9-]*(\/[a-z0-9][a-z0-9-]*)*$/i.test(key) && key.length <= 512) return key;
  throw new InvalidInput(`${JSON.stringify(key.slice(0, 100))} is not a key of an artifact`, {
    field: "key",
    remedy: "Keys are made of letters, digits and dashes, with single slashes between",
  });
}

export function artifactChanged(name: string, cause?: unknown): StillwakeError {
  return new StillwakeError("ARTIFACT_CHANGED", `${name} changed after it was handed over`, {
    cause,
    retryable: true,
    remedy: "Let nothing write to an artifact once its producer has returned",
  });
}

export function artifactExists(key: string): StillwakeError {
  return new StillwakeError(
    "ARTIFACT_EXISTS",
    `The store has something else under ${key}, and nothing is overwritten`,
    {
      remedy: "Let `stillwake` alone write to this store; if the object is damaged, remove it by hand",
    },
  );
}

export function artifactMissing(key: string): StillwakeError {
  return new StillwakeError("ARTIFACT_MISSING", `The store has nothing under ${key}`, {
    remedy: "It may have been removed by the store's retention; run the job again to make it anew",
  });
}
