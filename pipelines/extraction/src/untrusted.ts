// Reading what others wrote: reports of tools, advisories, feeds. A value is what it should be or it is nothing, and lists and texts have an end.

const MAX_PURL = 2000;

export type Fields = Record<string, unknown>;

/** Undefined for everything that is not an object with fields. */
export function fieldsOf(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : undefined;
}

/** The objects of a list, the first `most` of them. */
export function objectsIn(value: unknown, most: number): Fields[] {
  if (!Array.isArray(value)) return [];
  return (value.slice(0, most) as unknown[]).map(fieldsOf).filter((fields) => fields !== undefined);
}

/** The texts of a list, the first `most` of them. */
export function textsIn(value: unknown, most: number, longest: number): string[] {
  if (!Array.isArray(value)) return [];
  return value.slice(0, most).flatMap((one) => textOf(one, longest) ?? []);
}

/**
 * A text that a jsonb column takes: Postgres refuses NUL and half a surrogate pair, and a cut may leave one. Other control characters are data; whoever
 * shows them escapes them.
 */
export function textOf(value: unknown, longest: number): string | undefined {
  if (typeof value !== "string") return undefined;
  const text = value
    .slice(0, longest)
    .replaceAll("\0", "")
    .replace(/\p{Surrogate}/gu, "")
    .trim();
  return text === "" ? undefined : text;
}

/** A package URL is part of a key, and a key of a B-tree has at most 2,704 bytes. One that would have to be cut names another package, so it is none. */
export function packageUrlOf(value: unknown): string | undefined {
  if (typeof value !== "string" || !value.startsWith("pkg:") || Buffer.byteLength(value) > MAX_PURL) return undefined;
  return textOf(value, MAX_PURL) === value ? value : undefined;
}

/** Text on one line, cut with a sign that it was. */
export function sentenceOf(value: unknown, longest: number): string | undefined {
  const text = textOf(value, longest * 4)?.replace(/\s+/g, " ");
  if (text === undefined || text.length <= longest) return text;
  return textOf(`${text.slice(0, longest - 1).trimEnd()}…`, longest);
}

/** For a link that people press: nothing but the web. */
export function webAddress(value: unknown): string | undefined {
  const text = textOf(value, 2000);
  if (text === undefined || text.length > 1000 || !/^https?:\/\//i.test(text)) return undefined;
  return URL.canParse(text) ? text : undefined;
}

export function numberOf(value: unknown, least: number, most: number): number | undefined {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && number >= least && number <= most ? number : undefined;
}
