// A stored file on its way to a reader: its size and hash are compared with the row, and a stream that ends without an error was whole.
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { StillwakeError } from "../errors.ts";

export function verified(
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
    throw new StillwakeError("ARTIFACT_CHANGED", `What the store has of ${name} is not what the job stored`, {
      remedy: "Retry the job from the start to make it again",
    });
  }
  return Readable.from(blocks(), { objectMode: false });
}
