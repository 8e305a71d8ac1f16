// Encodes the results of steps as JSON for checkpoints, and decodes them. A step returns the decoded value both when it runs and when its
// checkpoint is read. Plain data, Date, bigint and bytes are supported; anything else is rejected with its path.
import { InvalidInput } from "../../errors.ts";
import { findUnstorable, OUTPUT_LIMIT } from "../../payload.ts";

/** The only key of a special value: { $stillwake: [kind, value] }. SQL writes position, wait and timeout. */
const TAG = "$stillwake";
const UNDEFINED = `{"${TAG}":["nothing"]}`;
/** The checkpoint of an optional step that failed; SQL replaces it when the step has a result. */
export const FAILED = `{"${TAG}":["failed"]}`;

/** `at` is the start of the path in error messages. */
export function encodeCheckpoint(value: unknown, at: string): string {
  if (value === undefined) return UNDEFINED;
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  const json = JSON.stringify(pack(value, at, new Set()));
  const bytes = json.length * 3 > OUTPUT_LIMIT ? Buffer.byteLength(json) : 0;
  if (bytes > OUTPUT_LIMIT) {
    throw new InvalidInput(`${at} is ${bytes} bytes of JSON, the limit is ${OUTPUT_LIMIT}`, {
      field: at,
      remedy: "Store it with job.artifact() and return a reference",
    });
  }
  return json;
}

export function decodeCheckpoint(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return json;
  if (Array.isArray(json)) return json.map(decodeCheckpoint);
  const entries = Object.entries(json);
  if (entries.length === 1 && entries[0]![0] === TAG) return decodeTagged(entries[0]![1]);
  return plain(entries);
}

/** The kind of a checkpoint that is not a result: "position" of each(), "wait" or "timeout" of waitFor(), "failed" of optional(). */
export function checkpointKind(raw: unknown): string | undefined {
  const tagged = (raw as { [TAG]?: [string] } | null | undefined)?.[TAG];
  return Array.isArray(tagged) ? tagged[0] : undefined;
}

/** jsonb does not preserve the order of keys. Sorting gives the same order before and after a crash. */
function plain(entries: [string, unknown][]): unknown {
  return Object.fromEntries(
    entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, child]) => [key, decodeCheckpoint(child)]),
  );
}

function decodeTagged(packed: unknown): unknown {
  const [kind, value] = packed as [string, string];
  if (kind === "nothing") return undefined;
  if (kind === "date") return new Date(value);
  if (kind === "bigint") return BigInt(value);
  if (kind === "bytes") return new Uint8Array(Buffer.from(value, "base64"));
  // The other kinds are not results: see each.ts and wait-for.ts.
  return kind === "plain" ? plain(Object.entries(value)) : undefined;
}

function pack(value: unknown, at: string, parents: Set<unknown>): unknown {
  switch (typeof value) {
    case "string": {
      const bad = findUnstorable(value);
      if (bad) reject(at, `contains ${bad}, which Postgres cannot store`, "Remove it, or return a Uint8Array");
      return value;
    }
    case "number":
      if (!Number.isFinite(value)) reject(at, `is ${value}, which JSON cannot represent`, "Return null instead");
      return value;
    case "boolean":
      return value;
    case "bigint":
      return { [TAG]: ["bigint", String(value)] };
    case "undefined":
      return null;
    case "object":
      return value === null ? null : packObject(value, at, parents);
    default:
      return reject(at, `is a ${typeof value}`, "Return plain data");
  }
}

function packObject(value: object, at: string, parents: Set<unknown>): unknown {
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) reject(at, "is an invalid Date", "Return null instead");
    return { [TAG]: ["date", value.toISOString()] };
  }
  if (value instanceof Uint8Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return { [TAG]: ["bytes", bytes.toString("base64")] };
  }
  if (parents.has(value)) reject(at, "contains itself", "Return a value without circular references");
  parents.add(value);
  try {
    if (Array.isArray(value)) return value.map((child, index) => pack(child, `${at}[${index}]`, parents));
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) {
      reject(
        at,
        `is a ${prototype.constructor?.name ?? "class instance"}`,
        "Return a plain object, array, Date, bigint or Uint8Array",
      );
    }
    // fromEntries, because assigning the key "__proto__" would set the prototype.
    const packed = Object.fromEntries(
      Object.entries(value)
        .filter(([, child]) => child !== undefined)
        .map(([key, child]) => [pack(key, `${at} (a key of it)`, parents), pack(child, `${at}.${key}`, parents)]),
    );
    // A user object with our tag as a key must not be decoded as a special value.
    return Object.hasOwn(packed, TAG) ? { [TAG]: ["plain", packed] } : packed;
  } finally {
    parents.delete(value);
  }
}

function reject(at: string, what: string, remedy: string): never {
  throw new InvalidInput(`${at} ${what}`, { field: at, remedy });
}
