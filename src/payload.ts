// Values on their way into jsonb columns. What Postgres would refuse, or what is too large, is refused here with the place it stands at.
import { InvalidInput } from "./errors.ts";

const INPUT_LIMIT = 256 * 1024;
/** Of a job and of a step. sql/functions hold the same limit. */
export const OUTPUT_LIMIT = 1024 * 1024;

/** The compact JSON of a value, at most `limit` bytes. `at` is how its path begins in errors. */
export function toJson(value: unknown, at: string, limit: number = INPUT_LIMIT): string {
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (cause) {
    throw new InvalidInput(`${at} cannot be written as JSON: ${(cause as Error).message}`, {
      cause,
      field: at,
      remedy: "Pass plain data: objects, arrays, strings, numbers, booleans and null",
    });
  }
  if (json === undefined) {
    throw new InvalidInput(`${at} is ${typeof value}, which JSON does not have`, {
      field: at,
      remedy: "Pass null or leave it out",
    });
  }
  // UTF-8 takes at most three bytes per UTF-16 unit, so short texts need no count.
  const bytes = json.length * 3 > limit ? Buffer.byteLength(json) : 0;
  if (bytes > limit) {
    throw new InvalidInput(`${at} is ${bytes} bytes of JSON, the limit is ${limit}`, {
      field: at,
      remedy: "Store the data elsewhere (object storage, a table of yours) and pass a reference",
    });
  }
  if (/\\u(?:0000|d[89a-f])/i.test(json)) refuseBadText(JSON.parse(json), at);
  return json;
}

/** Says what Postgres cannot store in a text, neither as jsonb nor, for NUL, at all. */
export function unstorable(text: string): string | undefined {
  if (text.includes("\u0000")) return "a NUL character";
  const unpaired = /[\ud800-\udfff]/.test(text.replaceAll(/[\ud800-\udbff][\udc00-\udfff]/g, ""));
  return unpaired ? "half a surrogate pair" : undefined;
}

function refuseBadText(value: unknown, at: string): void {
  if (typeof value === "string") {
    const bad = unstorable(value);
    if (!bad) return;
    throw new InvalidInput(`${at} contains ${bad}, which Postgres cannot store`, {
      field: at,
      remedy: "Remove it, or pass binary data as base64",
    });
  }
  if (typeof value !== "object" || value === null) return;
  for (const [key, child] of Object.entries(value)) {
    refuseBadText(key, `${at} (a key of it)`);
    refuseBadText(child, Array.isArray(value) ? `${at}[${key}]` : `${at}.${key}`);
  }
}

/** A text of 1 to 500 characters that Postgres can store. */
export function checkLabel(value: unknown, field: string): string {
  if (typeof value !== "string" || value === "" || (value.length > 500 && [...value].length > 500)) {
    throw new InvalidInput(`${field} must be a text of 1 to 500 characters`, {
      field,
      remedy: "Use a shorter one or a hash of it, or leave it out",
    });
  }
  const bad = unstorable(value);
  if (bad) {
    throw new InvalidInput(`${field} contains ${bad}, which Postgres cannot store`, {
      field,
      remedy: "Remove it, or use a hash",
    });
  }
  return value;
}
