// Reads a large JSON file element by element: an SBOM of 50,000 components has tens of megabytes of text, and several times
// that as objects. The scanner only finds where an element begins and ends; JSON.parse reads each one.
import fs from "node:fs";

/** A value under a key of the outermost object: each element of a list, or the value itself if it is an object. */
export interface Element {
  key: string;
  value: unknown;
}

export class InvalidJson extends Error {
  override readonly name = "NotJson";
}

/** Far above real elements; bounds the memory. */
const MAX_ELEMENT_BYTES = 16 * 2 ** 20;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const BRACE = 0x7b;
const END_BRACE = 0x7d;
const BRACKET = 0x5b;
const END_BRACKET = 0x5d;

/** Skips elements under other keys. */
export async function* readElements(
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
  /** The chunk ended after a backslash. */
  #escaped = false;
  /** The last string of the outermost object; it is a key if a colon follows. */
  #text = "";
  #key = "";
  /** Elements start with a brace at this depth: 1 below a key, 2 in its list. */
  #elementDepth = 1;
  #ended = false;
  /** The current element: its parts in earlier chunks. */
  #parts: Buffer[] = [];
  #collected = 0;
  #collecting = false;

  constructor(keys: ReadonlySet<string>) {
    this.#keys = keys;
  }

  /** Uses locals instead of fields for speed: the loop runs for every byte. */
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
      if (this.#ended) throw new InvalidJson("text after the end of the document");
      if (byte === QUOTE) {
        inString = true;
        if (depth === 1) from = at - 1;
      } else if (byte === BRACE || byte === BRACKET) {
        if (depth === 0 && byte !== BRACE) throw new InvalidJson("it does not start with {");
        if (depth === 1) this.#elementDepth = byte === BRACKET ? 2 : 1;
        if (byte === BRACE && depth === this.#elementDepth && this.#keys.has(this.#key)) from = at - 1;
        depth++;
      } else if (byte === END_BRACE || byte === END_BRACKET) {
        depth--;
        if (depth < 0) throw new InvalidJson("unbalanced brackets");
        if (depth === 0) this.#ended = true;
        if (from >= 0 && depth === this.#elementDepth) {
          yield { key: this.#key, value: JSON.parse(this.#take(chunk, from, at)) };
          from = -1;
        }
      } else if (depth <= 1) {
        if (depth === 0) throw new InvalidJson("it does not start with {");
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
    if (!this.#ended) throw new InvalidJson("unexpected end of the document");
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
    if (this.#collected > MAX_ELEMENT_BYTES) throw new InvalidJson("an element is too large");
    this.#parts.push(part);
  }
}
