// The forms in which a secret may stand in a text, and a quick way to find them there: by their first eight characters, looked up only where a table
// of the first three allows it. A pattern of thousands of alternatives would be slow, of a long one impossible, and its error would quote the secret.

/** Shorter ones would hide ordinary words. */
export const LEAST = 8;

export class SecretForms {
  readonly all = new Set<string>();
  readonly #starts = new Map<string, string[]>();
  readonly #first = new Uint8Array(4096);
  /** One bit for each hash of eight characters in a row of any form. */
  readonly #parts = new Uint32Array(8192);
  /** Characters of all forms. */
  size = 0;

  add(form: string): void {
    if (this.all.has(form)) return;
    this.all.add(form);
    this.size += form.length;
    const start = form.slice(0, LEAST);
    const sharing = this.#starts.get(start) ?? [];
    sharing.push(form);
    this.#starts.set(
      start,
      sharing.sort((a, b) => b.length - a.length),
    );
    this.#first[hashOfThree(form, 0)] = 1;
    for (let at = 0; at + LEAST <= form.length; at++) {
      const hash = hashOfEight(form, at);
      this.#parts[hash >>> 5]! |= 1 << (hash & 31);
    }
  }

  /** The text with each form in it replaced; of those that begin at the same place the longest. */
  replace(text: string, mask: string): string {
    let done = "";
    let from = 0;
    for (let at = 0; at + LEAST <= text.length; at++) {
      const form = this.#formAt(text, at);
      if (form === undefined) continue;
      done += text.slice(from, at) + mask;
      from = at + form.length;
      at = from - 1;
    }
    return from === 0 ? text : done + text.slice(from);
  }

  isIn(text: string): boolean {
    for (let at = 0; at + LEAST <= text.length; at++) if (this.#formAt(text, at) !== undefined) return true;
    return false;
  }

  /** How many characters at the end of the text are the beginning of a form, of those with at least so many. */
  beginningAt(text: string, least: (form: string) => number): number {
    const last = text.slice(-LEAST);
    let most = 0;
    if (!this.#isPart(last)) return most;
    for (const form of this.all) {
      for (let at = form.indexOf(last); at >= 0; at = form.indexOf(last, at + 1)) {
        const length = at + LEAST;
        if (length >= least(form) && length > most && text.endsWith(form.slice(0, length))) most = length;
      }
    }
    return most;
  }

  /** How many characters at the beginning of the text are the end of a form. */
  endAt(text: string, least: (form: string) => number): number {
    const first = text.slice(0, LEAST);
    let most = 0;
    if (!this.#isPart(first)) return most;
    for (const form of this.all) {
      for (let at = form.indexOf(first); at >= 0; at = form.indexOf(first, at + 1)) {
        const length = form.length - at;
        if (length >= least(form) && length > most && text.startsWith(form.slice(at))) most = length;
      }
    }
    return most;
  }

  /** Whether the whole text is a part of a form. */
  hold(text: string, least: (form: string) => number): boolean {
    if (!this.#isPart(text)) return false;
    for (const form of this.all) if (text.length >= least(form) && form.includes(text)) return true;
    return false;
  }

  #formAt(text: string, at: number): string | undefined {
    if (this.#first[hashOfThree(text, at)] === 0) return undefined;
    return this.#starts.get(text.slice(at, at + LEAST))?.find((form) => text.startsWith(form, at));
  }

  /** False when its first eight characters stand in no form; true when they may. */
  #isPart(text: string): boolean {
    if (text.length < LEAST) return false;
    const hash = hashOfEight(text, 0);
    return (this.#parts[hash >>> 5]! & (1 << (hash & 31))) !== 0;
  }
}

function hashOfThree(text: string, at: number): number {
  return ((text.charCodeAt(at) * 31 + text.charCodeAt(at + 1)) * 31 + text.charCodeAt(at + 2)) & 4095;
}

function hashOfEight(text: string, at: number): number {
  let hash = 0;
  for (let place = at; place < at + LEAST; place++) hash = (hash * 31 + text.charCodeAt(place)) | 0;
  return (hash ^ (hash >>> 15)) & 0x3ffff;
}

/** The texts of a secret that are looked for: itself, each of its lines, as a log shows them, and the long leaves of a structure. */
export function textsOf(secret: unknown): string[] {
  const leaves = typeof secret === "string" ? [secret, ...longLeaves(parsed(secret))] : longLeaves(secret);
  return leaves.flatMap((text) => [text, ...text.split(/[\r\n]+/)]);
}

function parsed(text: string): unknown {
  try {
    const inner: unknown = JSON.parse(text);
    return typeof inner === "object" ? inner : undefined;
  } catch {
    return undefined;
  }
}

/** Short values inside a structure (a type, a region) are no secrets. */
function longLeaves(value: unknown): string[] {
  if (typeof value === "string" || typeof value === "number") {
    return String(value).length >= LEAST ? [String(value)] : [];
  }
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(longLeaves) : [];
}

/** As it is and as it is written on its way. */
export function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  // Half a surrogate pair cannot be written in a URL.
  const url = encodeURIComponent((secret as string & { toWellFormed(): string }).toWellFormed());
  const inJson = (text: string) => JSON.stringify(text).slice(1, -1);
  const json = inJson(secret);
  // As console.log shows the text of an object: in whichever quotes need no escape.
  const shown = secret.replaceAll("\\", "\\\\");
  const forms = [secret, url, url.replaceAll("%20", "+"), json, inJson(json), shown, hex, hex.toUpperCase()];
  for (const offset of [0, 1, 2]) {
    // The characters at both ends also carry bits of their neighbours: only those in between are always the same.
    const first = offset === 0 ? 0 : offset + 1;
    const text = Buffer.concat([Buffer.alloc(offset), bytes])
      .toString("base64")
      .replaceAll("=", "");
    const kept = text.slice(first, (offset + bytes.length) % 3 === 0 ? undefined : -1);
    forms.push(kept, kept.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return forms.filter((form) => form.length >= LEAST);
}
