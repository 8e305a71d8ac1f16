// Reads and shows untrusted values: reports of tools, advisories, feeds. A value of the wrong type counts as missing; lists
// and texts are truncated.

const MAX_PURL = 2000;

export type Fields = Record<string, unknown>;

/** Undefined for anything but a plain object. */
export function fieldsOf(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : undefined;
}

/** The objects among the first `max` entries of a list. */
export function objectsIn(value: unknown, max: number): Fields[] {
  if (!Array.isArray(value)) return [];
  return (value.slice(0, max) as unknown[]).map(fieldsOf).filter((fields) => fields !== undefined);
}

/** The strings among the first `max` entries of a list. */
export function textsIn(value: unknown, max: number, maxLength: number): string[] {
  if (!Array.isArray(value)) return [];
  return value.slice(0, max).flatMap((entry) => textOf(entry, maxLength) ?? []);
}

/** A text for a jsonb column: Postgres rejects NUL and unpaired surrogates. Other control characters are kept. */
export function textOf(value: unknown, maxLength: number): string | undefined {
  if (typeof value !== "string") return undefined;
  const text = value
    .slice(0, maxLength)
    .replaceAll("\0", "")
    .replace(/\p{Surrogate}/gu, "")
    .trim();
  return text === "" ? undefined : text;
}

/** Package URLs are part of a key, and a B-tree key has at most 2,704 bytes. A truncated one would name another package. */
export function packageUrlOf(value: unknown): string | undefined {
  if (typeof value !== "string" || !value.startsWith("pkg:") || Buffer.byteLength(value) > MAX_PURL) return undefined;
  return textOf(value, MAX_PURL) === value ? value : undefined;
}

/** Text on one line; "…" marks that it was truncated. */
export function shortLine(value: unknown, maxLength: number): string | undefined {
  const text = textOf(value, maxLength * 4)?.replace(/\s+/g, " ");
  if (text === undefined || text.length <= maxLength) return text;
  return textOf(`${text.slice(0, maxLength - 1).trimEnd()}…`, maxLength);
}

/** Only http and https URLs may become links. */
export function webUrl(value: unknown): string | undefined {
  const text = textOf(value, 2000);
  if (text === undefined || text.length > 1000 || !/^https?:\/\//i.test(text)) return undefined;
  return URL.canParse(text) ? text : undefined;
}

export function numberOf(value: unknown, min: number, max: number): number | undefined {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && number >= min && number <= max ? number : undefined;
}

/** Text that Postgres and JSON accept: truncated, without NUL and unpaired surrogates. */
export function storable(text: unknown, maxLength: number): string {
  if (typeof text !== "string") return "";
  const cut = text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
  return Buffer.from(cut.replaceAll("\0", "\ufffd"), "utf8").toString("utf8");
}

/** Control characters, bidirectional marks and zero-width characters. */
const INVISIBLE = /[\p{Cc}\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/gu;

/** Invisible characters are written as <U+202E>, so that a text cannot look like another one. */
export function visibleText(text: unknown, maxLength: number): string {
  return storable(text, maxLength)
    .replace(/[\t\n\r]+/g, " ")
    .replace(INVISIBLE, (character) => `<U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}>`)
    .trim();
}

/** URI of a path within the repository. Undefined for a path that leads out of it. */
export function relativeUri(path: string): string | undefined {
  const parts = path.replaceAll("\\", "/").split("/");
  if (path === "" || path.length > 4_000 || parts.some((part) => part === "" || part === "." || part === ".."))
    return undefined;
  return storable(path, 4_000).split("/").map(encodeURIComponent).join("/");
}

/** A web URL in the normal form of browsers. */
export function webLink(url: string | null): string | undefined {
  const address = webUrl(url);
  return address === undefined ? undefined : new URL(address).href;
}
