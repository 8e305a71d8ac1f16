// The results of steps on their way into checkpoints and back. What a step returns the first time is exactly what it returns when its
// checkpoint is read: both come out of here. Plain data, Date, bigint and bytes are kept; everything else is refused with its place.
import { InvalidInput } from "../../errors.ts";
import { OUTPUT_LIMIT, unstorable } from "../../payload.ts";

const MARK = "$stillwake";
const NOTHING = `{"${MARK}":["nothing"]}`;

/** The JSON of a value, ready for a checkpoint. `at` is how its path begins in errors. */
export function encode(value: unknown, at: string): string {
  if (value === undefined) return NOTHING;
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

/** The value of a checkpoint, from its parsed JSON. */
export function decode(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return json;
  if (Array.isArray(json)) return json.map(decode);
  const entries = Object.entries(json);
  if (entries.length === 1 && entries[0]![0] === MARK) return unpack(entries[0]![1]);
  return plain(entries);
}

/** jsonb keeps no order of keys. Sorted, they stand in the same order the first time as after a crash. */
function plain(entries: [string, unknown][]): unknown {
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, child]) => [key, decode(child)]));
}

function unpack(packed: unknown): unknown {
  const [kind, value] = packed as [string, string];
  if (kind === "nothing") return undefined;
  if (kind === "date") return new Date(value);
  if (kind === "bigint") return BigInt(value);
  if (kind === "bytes") return new Uint8Array(Buffer.from(value, "base64"));
  // A place or a wait is no result: see each.ts and wait-for.ts.
  return kind === "plain" ? plain(Object.entries(value)) : undefined;
}

function pack(value: unknown, at: string, parents: Set<unknown>): unknown {
  switch (typeof value) {
    case "string": {
      const bad = unstorable(value);
      if (bad) refuse(at, `contains ${bad}, which Postgres cannot store`, "Remove it, or return a Uint8Array");
      return value;
    }
    case "number":
      if (!Number.isFinite(value)) refuse(at, `is ${value}, which JSON does not have`, "Return null instead");
      return value;
    case "boolean":
      return value;
    case "bigint":
      return { [MARK]: ["bigint", String(value)] };
    case "undefined":
      return null;
    case "object":
      return value === null ? null : packObject(value, at, parents);
    default:
      return refuse(at, `is a ${typeof value}`, "Return plain data");
  }
}

function packObject(value: object, at: string, parents: Set<unknown>): unknown {
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) refuse(at, "is an invalid Date", "Return null instead");
    return { [MARK]: ["date", value.toISOString()] };
  }
  if (value instanceof Uint8Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return { [MARK]: ["bytes", bytes.toString("base64")] };
  }
  if (parents.has(value)) refuse(at, "contains itself", "Return a tree");
  parents.add(value);
  try {
    if (Array.isArray(value)) return value.map((child, index) => pack(child, `${at}[${index}]`, parents));
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) {
      refuse(
        at,
        `is a ${prototype.constructor?.name ?? "class instance"}`,
        "Return a plain object, array, Date, bigint or Uint8Array",
      );
    }
    // Not by assignment: "__proto__" is a key like any other.
    const packed = Object.fromEntries(
      Object.entries(value)
        .filter(([, child]) => child !== undefined)
        .map(([key, child]) => [pack(key, `${at} (a key of it)`, parents), pack(child, `${at}.${key}`, parents)]),
    );
    // An object of the user's that looks like one of ours.
    return Object.hasOwn(packed, MARK) ? { [MARK]: ["plain", packed] } : packed;
  } finally {
    parents.delete(value);
  }
}

function refuse(at: string, what: string, remedy: string): never {
  throw new InvalidInput(`${at} ${what}`, { field: at, remedy });
}
