// The interface of artifact stores: a directory (file-store.ts) or a bucket (s3-store.ts), opened by open-store.ts.
import type { FileHandle } from "node:fs/promises";
import type { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";

/** An open file, and the size and hash that its content must have. */
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
   * Stores the file under the key, complete or not at all. Storing the same content again under the same key succeeds; other content is
   * rejected with ARTIFACT_EXISTS, and a file that does not match its size and hash with ARTIFACT_CHANGED.
   */
  put(key: string, file: ArtifactFile, signal?: AbortSignal): Promise<void>;
  /** Size and hash of the stored content; undefined if there is none. */
  stat(key: string, signal?: AbortSignal): Promise<{ size: number; sha256: string } | undefined>;
  /** Throws ARTIFACT_MISSING if there is no content. */
  get(key: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array> | Readable>;
  /** A download link for browsers, valid for at most five minutes; undefined if the store has no such links. */
  link(key: string, options: { fileName: string; seconds: number }): Promise<string | undefined>;
  /** Removes a key, or all keys that continue it after a slash. Returns the number of removed files. */
  remove(prefix: string): Promise<number>;
  /** Removes unfinished files of dead writers that are older than this. Returns the number of removed files. */
  sweep(olderThanMs?: number): Promise<number>;
}
