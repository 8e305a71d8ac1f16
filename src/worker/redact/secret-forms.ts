// The encodings in which a secret can appear in a text, and a fast search for them: by their first eight characters,
// looked up only where a table of the first three characters allows it. A regular expression with thousands of
// alternatives would be slow or too large, and its error would quote the secret.

/** Shorter secrets would match ordinary words. */
export const MIN_SECRET_LENGTH = 8;

export class SecretForms {
  readonly all = new Set<string>();
  readonly #starts = new Map<string, string[]>();
  readonly #first = new Uint8Array(4096);
  /** A bloom filter: one bit per hash of eight consecutive characters of any form. */
  readonly #parts = new Uint32Array(8192);
  /** Characters of all forms. */
  size = 0;

  constructor(forms: Iterable<string> = []) {
    for (const form of forms) this.add(form);
  }

  add(form: string): void {
    if (this.all.has(form)) return;
    this.all.add(form);
    this.size += form.length;
    const start = form.slice(0, MIN_SECRET_LENGTH);
    const sharing = this.#starts.get(start) ?? [];
    sharing.push(form);
    this.#starts.set(
      start,
      sharing.sort((a, b) => b.length - a.length),
    );
    this.#first[hashOfThree(form, 0)] = 1;
    for (let at = 0; at + MIN_SECRET_LENGTH <= form.length; at++) {
      const hash = hashOfEight(form, at);
      this.#parts[hash >>> 5]! |= 1 << (hash & 31);
    }
  }

  /** Replaces each form; of several that start at the same position, the longest. */
  replace(text: string, mask: string): string {
    let replaced = "";
    let from = 0;
    for (let at = 0; at + MIN_SECRET_LENGTH <= text.length; at++) {
      const form = this.#formAt(text, at);
      if (form === undefined) continue;
      replaced += text.slice(from, at) + mask;
      from = at + form.length;
      at = from - 1;
    }
    return from === 0 ? text : replaced + text.slice(from);
  }

  isFoundIn(text: string): boolean {
    for (let at = 0; at + MIN_SECRET_LENGTH <= text.length; at++) if (this.#formAt(text, at) !== undefined) return true;
    return false;
  }

  /** Length of the longest start of a form at the end of the text; 0 if it is shorter than minLength(form). */
  matchAtEnd(text: string, minLength: (form: string) => number): number {
    const last = text.slice(-MIN_SECRET_LENGTH);
    let longest = 0;
    if (!this.#mayBePart(last)) return longest;
    for (const form of this.all) {
      for (let at = form.indexOf(last); at >= 0; at = form.indexOf(last, at + 1)) {
        const length = at + MIN_SECRET_LENGTH;
        if (length >= minLength(form) && length > longest && text.endsWith(form.slice(0, length))) longest = length;
      }
    }
    return longest;
  }

  /** Length of the longest end of a form at the start of the text; 0 if it is shorter than minLength(form). */
  matchAtStart(text: string, minLength: (form: string) => number): number {
    const first = text.slice(0, MIN_SECRET_LENGTH);
    let longest = 0;
    if (!this.#mayBePart(first)) return longest;
    for (const form of this.all) {
      for (let at = form.indexOf(first); at >= 0; at = form.indexOf(first, at + 1)) {
        const length = form.length - at;
        if (length >= minLength(form) && length > longest && text.startsWith(form.slice(at))) longest = length;
      }
    }
    return longest;
  }

  /** Whether the whole text is a part of a form. */
  containPart(text: string, minLength: (form: string) => number): boolean {
    if (!this.#mayBePart(text)) return false;
    for (const form of this.all) if (text.length >= minLength(form) && form.includes(text)) return true;
    return false;
  }

  #formAt(text: string, at: number): string | undefined {
    if (this.#first[hashOfThree(text, at)] === 0) return undefined;
    return this.#starts.get(text.slice(at, at + MIN_SECRET_LENGTH))?.find((form) => text.startsWith(form, at));
  }

  /** False when the first eight characters occur in no form; true when they may. */
  #mayBePart(text: string): boolean {
    if (text.length < MIN_SECRET_LENGTH) return false;
    const hash = hashOfEight(text, 0);
    return (this.#parts[hash >>> 5]! & (1 << (hash & 31))) !== 0;
  }
}

function hashOfThree(text: string, at: number): number {
  return ((text.charCodeAt(at) * 31 + text.charCodeAt(at + 1)) * 31 + text.charCodeAt(at + 2)) & 4095;
}

function hashOfEight(text: string, at: number): number {
  let hash = 0;
  for (let index = at; index < at + MIN_SECRET_LENGTH; index++) hash = (hash * 31 + text.charCodeAt(index)) | 0;
  return (hash ^ (hash >>> 15)) & 0x3ffff;
}

/** The texts to search for: the secret, each of its lines, as a log shows them, and the long leaves of a structure. */
export function textsOf(secret: unknown): string[] {
  const leaves = typeof secret === "string" ? [secret, ...longLeaves(parseObject(secret))] : longLeaves(secret);
  return leaves.flatMap((text) => [text, ...text.split(/[\r\n]+/)]);
}

function parseObject(text: string): unknown {
  try {
    const inner: unknown = JSON.parse(text);
    return typeof inner === "object" ? inner : undefined;
  } catch {
    return undefined;
  }
}

/** Short values in a structure, such as a type or a region, are not secrets. */
function longLeaves(value: unknown): string[] {
  if (typeof value === "string" || typeof value === "number") {
    return String(value).length >= MIN_SECRET_LENGTH ? [String(value)] : [];
  }
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(longLeaves) : [];
}

/** The secret as it is, and URL-, JSON-, hex- and base64-encoded. */
export function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  // An unpaired surrogate cannot be written in a URL.
  const url = encodeURIComponent((secret as string & { toWellFormed(): string }).toWellFormed());
  const inJson = (text: string) => JSON.stringify(text).slice(1, -1);
  const json = inJson(secret);
  // As console.log prints a string inside an object: it chooses quotes that need no escape.
  const shown = secret.replaceAll("\\", "\\\\");
  const forms = [secret, url, url.replaceAll("%20", "+"), json, inJson(json), shown, hex, hex.toUpperCase()];
  for (const offset of [0, 1, 2]) {
    // The first and last characters contain bits of the surrounding bytes: only those in between are always the same.
    const first = offset === 0 ? 0 : offset + 1;
    const text = Buffer.concat([Buffer.alloc(offset), bytes])
      .toString("base64")
      .replaceAll("=", "");
    const kept = text.slice(first, (offset + bytes.length) % 3 === 0 ? undefined : -1);
    forms.push(kept, kept.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return forms.filter((form) => form.length >= MIN_SECRET_LENGTH);
}
