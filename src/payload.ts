// Checks values before they go into jsonb and text columns: size, and characters that Postgres cannot store.
import { InvalidInput } from "./errors.ts";

const INPUT_LIMIT = 256 * 1024;
/** For the outputs of jobs and steps, in bytes. sql/functions enforce the same limit. */
export const OUTPUT_LIMIT = 1024 * 1024;

/** The compact JSON of a value, at most `limit` bytes. `at` is the start of the path in errors. */
export function toJson(value: unknown, at: string, limit: number = INPUT_LIMIT): string {
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (cause) {
    throw new InvalidInput(`${at} cannot be serialized as JSON: ${(cause as Error).message}`, {
      cause,
      field: at,
      remedy: "Pass plain data: objects, arrays, strings, numbers, booleans and null",
    });
  }
  if (json === undefined) {
    throw new InvalidInput(`${at} is ${typeof value}, which JSON cannot represent`, {
      field: at,
      remedy: "Pass null or leave it out",
    });
  }
  // UTF-8 takes at most three bytes per UTF-16 unit, so short texts need not be measured.
  const bytes = json.length * 3 > limit ? Buffer.byteLength(json) : 0;
  if (bytes > limit) {
    throw new InvalidInput(`${at} is ${bytes} bytes of JSON, the limit is ${limit}`, {
      field: at,
      remedy: "Store the data elsewhere (object storage, your own table) and pass a reference",
    });
  }
  if (/\\u(?:0000|d[89a-f])/i.test(json)) rejectUnstorable(JSON.parse(json), at);
  return json;
}

/** What in a text Postgres cannot store: NUL in any type, an unpaired surrogate in jsonb. Undefined when it can. */
export function findUnstorable(text: string): string | undefined {
  if (text.includes("\u0000")) return "a NUL character";
  const unpaired = /[\ud800-\udfff]/.test(text.replaceAll(/[\ud800-\udbff][\udc00-\udfff]/g, ""));
  return unpaired ? "an unpaired surrogate" : undefined;
}

function rejectUnstorable(value: unknown, at: string): void {
  if (typeof value === "string") {
    const bad = findUnstorable(value);
    if (!bad) return;
    throw new InvalidInput(`${at} contains ${bad}, which Postgres cannot store`, {
      field: at,
      remedy: "Remove it, or pass binary data as base64",
    });
  }
  if (typeof value !== "object" || value === null) return;
  for (const [key, child] of Object.entries(value)) {
    rejectUnstorable(key, `${at} (a key of it)`);
    rejectUnstorable(child, Array.isArray(value) ? `${at}[${key}]` : `${at}.${key}`);
  }
}

/** A string of 1 to 500 characters that Postgres can store. */
export function checkLabel(value: unknown, field: string): string {
  if (typeof value !== "string" || value === "" || (value.length > 500 && [...value].length > 500)) {
    throw new InvalidInput(`${field} must be a string of 1 to 500 characters`, {
      field,
      remedy: "Use a shorter string or its hash, or leave it out",
    });
  }
  const bad = findUnstorable(value);
  if (bad) {
    throw new InvalidInput(`${field} contains ${bad}, which Postgres cannot store`, {
      field,
      remedy: "Remove it, or use a hash",
    });
  }
  return value;
}
