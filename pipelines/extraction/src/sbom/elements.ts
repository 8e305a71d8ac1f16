// Reads a large JSON file element by element: a bill of materials of 50,000 components is tens of megabytes of text and several times that as objects.
// The scanner only finds where an element begins and ends; JSON.parse reads each one. components.ts is its only reader.
import fs from "node:fs";

/** What stands under a key of the outermost object: each element of a list, or the value itself if it is an object. */
export interface Element {
  key: string;
  value: unknown;
}

export class NotJson extends Error {
  override readonly name = "NotJson";
}

/** No element that a tool writes is near this; one that is would be the whole file in memory again. */
const LONGEST = 16 * 2 ** 20;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const BRACE = 0x7b;
const END_BRACE = 0x7d;
const BRACKET = 0x5b;
const END_BRACKET = 0x5d;

/** Elements under other keys are passed over unread. */
export async function* elementsOf(
  file: string,
  keys: readonly string[],
  chunkBytes = 256 * 1024,
): AsyncGenerator<Element> {
  const scanner = new Scanner(new Set(keys));
  for await (const chunk of fs.createReadStream(file, { highWaterMark: chunkBytes })) yield* scanner.read(chunk);
  scanner.end();
}

class Scanner {
  readonly #keys: ReadonlySet<string>;
  #depth = 0;
  #inString = false;
  /** The chunk ended behind a backslash. */
  #escaped = false;
  /** The last text of the outermost object; a key once a colon follows. */
  #text = "";
  #key = "";
  /** Elements are the braces opened at this depth: 1 below a key, 2 in its list. */
  #elementDepth = 1;
  #ended = false;
  /** What is being collected: its parts in earlier chunks, and whether it goes on. */
  #parts: Buffer[] = [];
  #collected = 0;
  #collecting = false;

  constructor(keys: ReadonlySet<string>) {
    this.#keys = keys;
  }

  /** Locals instead of fields, because it is done for every byte. */
  *read(chunk: Buffer): Generator<Element> {
    let from = this.#collecting ? 0 : -1;
    let depth = this.#depth;
    let inString = this.#inString;
    let at = this.#escaped ? 1 : 0;
    const { length } = chunk;
    while (at < length) {
      if (inString) {
        let byte = chunk[at]!;
        while (byte !== QUOTE && at < length) {
          at += byte === BACKSLASH ? 2 : 1;
          byte = chunk[at]!;
        }
        if (at >= length) break;
        at++;
        inString = false;
        if (depth === 1) {
          this.#text = JSON.parse(this.#take(chunk, from, at)) as string;
          from = -1;
        }
        continue;
      }
      const byte = chunk[at++]!;
      if (byte <= 0x20) continue;
      if (this.#ended) throw new NotJson("something follows the end of it");
      if (byte === QUOTE) {
        inString = true;
        if (depth === 1) from = at - 1;
      } else if (byte === BRACE || byte === BRACKET) {
        if (depth === 0 && byte !== BRACE) throw new NotJson("it does not begin with {");
        if (depth === 1) this.#elementDepth = byte === BRACKET ? 2 : 1;
        if (byte === BRACE && depth === this.#elementDepth && this.#keys.has(this.#key)) from = at - 1;
        depth++;
      } else if (byte === END_BRACE || byte === END_BRACKET) {
        depth--;
        if (depth < 0) throw new NotJson("it closes more than it opens");
        if (depth === 0) this.#ended = true;
        if (from >= 0 && depth === this.#elementDepth) {
          yield { key: this.#key, value: JSON.parse(this.#take(chunk, from, at)) };
          from = -1;
        }
      } else if (depth <= 1) {
        if (depth === 0) throw new NotJson("it does not begin with {");
        if (byte === COLON) this.#key = this.#text;
      }
    }
    this.#depth = depth;
    this.#inString = inString;
    this.#escaped = at > length;
    this.#collecting = from >= 0;
    if (this.#collecting) this.#keep(chunk.subarray(from));
  }

  end(): void {
    if (!this.#ended) throw new NotJson("it ends in the middle");
  }

  #take(chunk: Buffer, from: number, to: number): string {
    this.#keep(chunk.subarray(from, to));
    const text = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts, this.#collected);
    this.#parts = [];
    this.#collected = 0;
    return text.toString();
  }

  #keep(part: Buffer): void {
    this.#collected += part.length;
    if (this.#collected > LONGEST) throw new NotJson("an element of it is too long");
    this.#parts.push(part);
  }
}
