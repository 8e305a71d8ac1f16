// Generates odd requests from the API description: mostly valid, then wrong somewhere. Writes JSON that JSON.stringify
// never produces (keys named __proto__, huge numbers, unpaired surrogates).
import fc from "fast-check";
import { type Described, operations, resolve, type Schema } from "./api-description.ts";

/** JSON text to be written unchanged. */
class Raw {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }
}

type Value = null | boolean | number | string | Raw | Value[] | { members: [string, Value][] };

function write(value: Value): string {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${value.members.map(([name, value]) => `${JSON.stringify(name)}:${write(value)}`).join()}}`;
}

const strange = [
  "",
  " ",
  "\0",
  "a\0b",
  "\ud800",
  "\udfff\ud800",
  "\u202e",
  "\ufeff",
  "💥",
  "é".repeat(300),
  "x".repeat(600),
  "x".repeat(5000),
  "__proto__",
  "constructor",
  "toString",
  "../../etc/passwd",
  "'; drop table stillwake.live_jobs; --",
  "%s%n%x",
  "{{7*7}}",
  "<script>alert(1)</script>",
  "\r\nx: y",
  "NaN",
  "-0",
  "null",
  "infinity",
  "-infinity",
  "epoch",
  "0000-01-01",
  "0000-01-01T00:00:00Z",
  "9999-12-31T23:59:59Z",
  "9999-12-31T23:59:59-23:59",
  "2024-02-30T00:00:00Z",
  "1e309s",
  "-5s",
  "0s",
  "365d",
  "99999999999999999999d",
  "* * * * *",
  "*/0 * * * *",
  "60 24 32 13 8",
  "UTC",
  "Mars/Phobos",
  "http://",
  "https://[::1",
  "https://user:pass@host/",
  "javascript:alert(1)",
  "https://hook.example/",
  "held",
  "work",
  "hook",
  "minutely",
  "api",
  "shop",
  "side",
  "swt_x",
  "swr_x.y",
  "00000000-0000-0000-0000-000000000000",
  "ffffffff-ffff-ffff-ffff-ffffffffffff",
];
const text = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...strange) },
  fc.string({ unit: "binary", maxLength: 40 }),
);
const numbers = [
  "1e400",
  "-1e400",
  "18446744073709551616",
  "9223372036854775808",
  "2147483648",
  "-2147483649",
  "0.1",
  "-1",
  "1e-400",
  "-0",
];
const number = fc.oneof(
  fc.constantFrom(...numbers).map((item) => new Raw(item)),
  fc.integer(),
);

const { odd } = fc.letrec<{ odd: Value }>((tie) => ({
  odd: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom<Value>(null, true, false, new Raw("[]"), new Raw("{}")),
    number,
    text,
    fc.array(tie("odd"), { maxLength: 4 }),
    fc.array(fc.tuple(text, tie("odd")), { maxLength: 4 }).map((members) => ({ members })),
  ),
}));

/** Values that pass the first checks: existing names and meaningful words. */
const hints: Record<string, Value[]> = {
  pipeline: ["held", "work"],
  pipelines: [["held"]],
  endpoint: ["hook"],
  webhook: ["https://hook.example/"],
  url: ["https://hook.example/"],
  cron: ["0 3 * * *", "* * * * *"],
  zone: ["UTC", "Europe/Berlin"],
  overlap: ["skip", "allow"],
  catchUp: ["one", "none"],
  pool: ["held", "side"],
  tenant: ["acme"],
  name: ["n"],
  event: ["go"],
  delay: ["1h"],
  expiresIn: ["2h"],
  runAt: ["2999-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"],
  expiresAt: ["2999-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00Z"],
  for: ["1h"],
  keep: ["1h"],
};

/** Mostly a value that fits the schema; sometimes, at any position, something else. */
function near(passed: Schema, oddness = 12): fc.Arbitrary<Value> {
  const schema = resolve(passed);
  return fc.oneof({ weight: oddness, arbitrary: fitting(schema, oddness) }, { weight: 1, arbitrary: odd });
}

function fitting(schema: Schema, oddness: number): fc.Arbitrary<Value> {
  if (schema.anyOf) return fc.oneof(...schema.anyOf.map((item) => near(item, oddness)));
  if (schema.enum) return fc.constantFrom(...(schema.enum as Value[]));
  if (schema.const !== undefined) return fc.constant(schema.const as Value);
  switch (schema.type) {
    case "object": {
      const { properties = {}, required = [] } = schema;
      const members = Object.entries(properties).map(([name, property]) => {
        const good = hints[name]
          ? fc.oneof(fc.constantFrom<Value>(...hints[name]), near(property, oddness))
          : near(property, oddness);
        const value = good.map((created): [string, Value][] => [[name, created]]);
        return fc.oneof(
          { weight: required.includes(name) ? 150 : 1, arbitrary: value },
          { weight: 7, arbitrary: fc.constant([]) },
        );
      });
      const more = fc.oneof(
        { weight: oddness, arbitrary: fc.constant<[string, Value][]>([]) },
        { weight: 1, arbitrary: fc.tuple(text, odd).map((item): [string, Value][] => [item]) },
      );
      return fc.tuple(...members, more).map((lists) => ({ members: lists.flat() }));
    }
    case "array":
      return fc.array(near(schema.items ?? {}, oddness), { maxLength: 4 });
    case "integer":
    case "number":
      return fc.integer({
        min: Math.max(schema.minimum ?? -10, -10_000),
        max: Math.min(schema.maximum ?? 100, 10_000),
      });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "string":
      if (schema.format === "uuid") return fc.uuid();
      if (schema.format === "date-time") return fc.date({ noInvalidDate: true }).map((date) => date.toISOString());
      return fc.oneof(text, fc.constantFrom("held", "hook", "30s", "1m", "reader", "k"));
    default:
      return odd;
  }
}

/** A body as bytes, and its headers. */
interface Body {
  bytes: Buffer;
  headers: Record<string, string>;
}

const json = { "content-type": "application/json" };
const bombs: [string, () => Buffer][] = [
  ["deep array", () => Buffer.from(`${"[".repeat(10_000)}${"]".repeat(10_000)}`)],
  ["deep object", () => Buffer.from(`${'{"a":'.repeat(10_000)}1${"}".repeat(10_000)}`)],
  ["never closed", () => Buffer.from("[".repeat(10_000))],
  ["many members", () => Buffer.from(`{${Array.from({ length: 100_000 }, (_, n) => `"${n}":1`).join()}}`)],
  ["one member many times", () => Buffer.from(`{${'"pipeline":"held",'.repeat(20_000)}"pipeline":"held"}`)],
  ["long number", () => Buffer.from(`{"pipeline":"held","input":${"9".repeat(100_000)}}`)],
  ["too large", () => Buffer.alloc(1024 * 1024 + 1, " ")],
];

function bodyOf(schema: Schema): fc.Arbitrary<Body> {
  const written = near(schema).map(write);
  const plain = (body: fc.Arbitrary<Buffer>, headers: Record<string, string> = json) =>
    body.map((bytes) => ({ bytes, headers }));
  const utf8 = written.map((item) => Buffer.from(item));
  return fc.oneof(
    { weight: 60, arbitrary: plain(utf8) },
    {
      weight: 2,
      arbitrary: plain(
        fc.tuple(utf8, fc.nat(100)).map(([text, cut]) => text.subarray(0, Math.max(0, text.length - 1 - cut))),
      ),
    },
    {
      weight: 2,
      arbitrary: plain(
        fc
          .tuple(utf8, fc.uint8Array({ minLength: 1, maxLength: 5 }))
          .map(([text, more]) => Buffer.concat([text.subarray(0, -1), more, text.subarray(-1)])),
      ),
    },
    { weight: 1, arbitrary: plain(written.map((item) => Buffer.from(`\ufeff${item}`))) },
    { weight: 1, arbitrary: plain(written.map((item) => Buffer.from(`\ufeff${item}`, "utf16le"))) },
    {
      weight: 1,
      arbitrary: plain(
        written.map((item) => Buffer.from(item, "utf16le")),
        { "content-type": "application/json; charset=utf-16" },
      ),
    },
    { weight: 1, arbitrary: plain(utf8, { ...json, "content-encoding": "gzip" }) },
    { weight: 1, arbitrary: plain(utf8, { "content-type": "text/plain" }) },
    { weight: 1, arbitrary: plain(utf8, {}) },
    {
      weight: 1,
      arbitrary: plain(
        fc.constantFrom(Buffer.alloc(0), Buffer.from("\0"), Buffer.from("null"), Buffer.from("[]"), Buffer.from('"x"')),
      ),
    },
    { weight: 2, arbitrary: plain(fc.constantFrom(...bombs).map(([, make]) => make())) },
  );
}

export interface OddRequest {
  operation: Described;
  method: string;
  path: string;
  headers: Record<string, string>;
  body: Buffer | undefined;
}

const garbage = [
  "%",
  "%zz",
  "%00",
  "%ff",
  "%c0%af",
  "%2e%2e",
  "%2F",
  "%F0%9F%92%A5",
  "%ED%A0%80",
  "..",
  ".",
  "a%2Fb",
  "-",
  "__proto__",
  "constructor",
  "x".repeat(3000),
];
/** A URL cannot contain unpaired surrogates; they become the replacement character. */
const escaped = (item: string) => encodeURIComponent(Buffer.from(item).toString());
const encoded = fc.oneof(
  fc.constantFrom(...garbage),
  text.map((item) => escaped(item) || "%20"),
);
const header = fc.oneof(
  fc.constantFrom("", "x", "0-00000000", "99999999999999999999-00000000-end", "é", "x".repeat(2000)),
  fc.string({ maxLength: 30 }),
);

/** Any operation, with an existing id or name, or another. */
export function oddRequest(real: Record<string, string[]>): fc.Arbitrary<OddRequest> {
  const ofOperation = (operation: Described): fc.Arbitrary<OddRequest> => {
    const at = (place: string) => operation.parameters.filter((item) => item.in === place);
    const noun = operation.path.split("/")[2] ?? "";
    const slot = (name: string) =>
      fc.oneof(
        { weight: 6, arbitrary: fc.constantFrom(...(real[name === "id" ? noun : `${noun} names`] ?? ["x"])) },
        { weight: 1, arbitrary: fc.uuid() },
        { weight: 3, arbitrary: encoded },
      );
    const path = fc
      .tuple(...at("path").map(({ name }) => slot(name)))
      .map((values) =>
        at("path").reduce((so, { name }, n) => so.replace(`{${name}}`, () => values[n]!), operation.path),
      );
    const pair = ({ name, schema }: { name: string; schema: Schema }) =>
      fc.oneof(
        {
          weight: 4,
          arbitrary: fitting(resolve(schema), 12).map((item) => `${name}=${escaped(String(item))}`),
        },
        { weight: 2, arbitrary: encoded.map((item) => `${name}=${item}`) },
        { weight: 1, arbitrary: encoded.map((item) => `${name}=${item}&${name}=${item}`) },
      );
    const requested = fc.tuple(
      ...at("query").map((item) =>
        fc.oneof({ weight: 3, arbitrary: fc.constant("") }, { weight: 1, arbitrary: pair(item) }),
      ),
      fc.oneof(
        { weight: 20, arbitrary: fc.constant("") },
        { weight: 1, arbitrary: fc.tuple(encoded, encoded).map((second) => second.join("=")) },
      ),
    );
    const query = requested.map((pairs) => pairs.filter(Boolean).join("&"));
    const headers = fc.record(
      {
        "last-event-id": header,
        "idempotency-key": header,
        cookie: header,
        accept: header,
        "x-forwarded-proto": header,
      },
      { requiredKeys: [] },
    );
    const method = fc.oneof(
      { weight: 25, arbitrary: fc.constant(operation.method) },
      {
        weight: 1,
        arbitrary: fc.constantFrom("HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "PUT", "POST", "DELETE", "GET"),
      },
    );
    const body: fc.Arbitrary<Body | undefined> = operation.body
      ? fc.oneof({ weight: 20, arbitrary: bodyOf(operation.body) }, { weight: 1, arbitrary: fc.constant(undefined) })
      : fc.oneof({ weight: 10, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: bodyOf({}) });
    return fc
      .record({
        path,
        query,
        headers: fc.oneof({ weight: 5, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: headers }),
        method,
        body,
      })
      .map((created) => ({
        operation,
        method: created.method,
        path: created.query ? `${created.path}?${created.query}` : created.path,
        headers: { ...created.body?.headers, ...(created.headers as Record<string, string>) },
        body: created.body?.bytes,
      }));
  };
  return fc.oneof(...operations.map(ofOperation));
}
