// Encoding and decoding the results of steps: the codec alone, and through Postgres.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidInput } from "../../src/index.ts";
import { decodeCheckpoint, encodeCheckpoint } from "../../src/worker/attempt/checkpoint-codec.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { query } = await inProcessFixture();

/** Like a checkpoint of a first attempt that a second one reads. */
async function throughPostgres(value: unknown): Promise<unknown> {
  const [row] = await query<{ output: unknown }>("select $1::jsonb as output", [encodeCheckpoint(value, "it")]);
  return decodeCheckpoint(row!.output);
}

const kept: [string, unknown][] = [
  ["nothing", undefined],
  ["null", null],
  ["a text", "plain"],
  ["an empty text", ""],
  ["every script and a pair of surrogates", "ünïcödé 🐘 漢字 \u2028"],
  ["a whole number", 42],
  ["a fraction", 0.1 + 0.2],
  ["the largest number", Number.MAX_VALUE],
  ["the smallest number", Number.MIN_VALUE],
  ["a number past 2^53", 2 ** 60],
  ["true", true],
  ["a bigint", 123456789012345678901234567890n],
  ["a negative bigint", -1n],
  ["a Date", new Date("2024-02-29T12:34:56.789Z")],
  ["a Date before year 0", new Date(-8e15)],
  ["bytes", new Uint8Array([0, 255, 128])],
  ["no bytes", new Uint8Array()],
  ["an empty object", {}],
  ["an empty array", []],
  ["an object that looks like a packed Date", { $stillwake: ["date", "2024-01-01"] }],
  ["an object that looks like packed nothing", { $stillwake: ["nothing"] }],
  ["an object that looks packed and has more", { $stillwake: ["plain", {}], more: 1 }],
  ["packed within packed", { $stillwake: { $stillwake: [new Date(5), 7n] } }],
  ["a key that is also a part of every object", JSON.parse('{"__proto__": {"admin": true}, "constructor": 1}')],
  ["nested", { list: [new Date(0), { deep: [1n, new Uint8Array([1])] }], "key with ünïcödé 🐘": null }],
];

describe("a supported result", () => {
  it.each(kept)("%s is decoded unchanged", async (_, value) => {
    expect(await throughPostgres(value)).toStrictEqual(value);
  });

  it("any plain value is decoded unchanged, also from Postgres", async () => {
    const text = fc.string({ unit: "binary" }).filter((one) => !one.includes("\u0000"));
    const leaf = fc.oneof(
      text,
      fc.double({ noNaN: true, noDefaultInfinity: true }).map((one) => one + 0),
      fc.boolean(),
      fc.constant(null),
      fc.bigInt(),
      fc.date({ noInvalidDate: true }),
      fc.uint8Array(),
    );
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof({ maxDepth: 4 }, leaf, fc.array(tie("value")), fc.dictionary(text, tie("value"))),
    }));
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(value, async (one) => {
        runs += 1;
        const plain = withoutNullPrototypes(one);
        expect(decodeCheckpoint(JSON.parse(encodeCheckpoint(plain, "it")))).toStrictEqual(plain);
        expect(await throughPostgres(plain)).toStrictEqual(plain);
      }),
      { numRuns: 300 },
    );
    recordFigure("step results that came back from a checkpoint as they were", runs, "", "generated values");
  });

  it("a value that cannot be restored exactly is already changed the first time: nested undefined, subclasses, Buffer, -0", async () => {
    class Instant extends Date {}
    for (const value of [
      { gone: undefined, list: [undefined, 1] },
      { when: new Instant(5) },
      { bytes: Buffer.from("abc") },
      -0,
      [-0],
      new Array(2),
    ]) {
      const first = decodeCheckpoint(JSON.parse(encodeCheckpoint(value, "it")));
      expect(await throughPostgres(value)).toStrictEqual(first);
    }
    expect(decodeCheckpoint(JSON.parse(encodeCheckpoint({ gone: undefined, list: [undefined] }, "it")))).toStrictEqual({
      list: [null],
    });
  });

  it("the keys of an object have the same order the first time and after a crash", async () => {
    const value = { zebra: 1, apple: { longest: 1, b: 2 }, "10": 1, bb: 2, a: 3, é: 4 };
    const first = decodeCheckpoint(JSON.parse(encodeCheckpoint(value, "it")));
    expect(JSON.stringify(await throughPostgres(value))).toBe(JSON.stringify(first));
  });
});

class Account {
  owner = "me";
}
const circle: Record<string, unknown> = {};
circle.list = [{ circle }];
const shared = { a: 1 };

const rejected: [string, unknown, string, RegExp][] = [
  ["a function", { run() {} }, "result.run", /is a function\. Return plain data/],
  ["a symbol", [Symbol("x")], "result[0]", /is a symbol/],
  ["NaN", { ratio: Number.NaN }, "result.ratio", /is NaN, which JSON cannot represent\. Return null instead/],
  ["Infinity", Number.POSITIVE_INFINITY, "result", /is Infinity/],
  ["an invalid Date", { at: new Date("never") }, "result.at", /is an invalid Date/],
  ["a class instance", { a: [new Account()] }, "result.a[0]", /is a Account\. Return a plain object/],
  ["a Map", new Map(), "result", /is a Map/],
  ["a Set", { seen: new Set() }, "result.seen", /is a Set/],
  ["an Error", { error: new TypeError("no") }, "result.error", /is a TypeError/],
  ["floats as bytes", new Float32Array(2), "result", /is a Float32Array/],
  ["a promise that was not awaited", [Promise.resolve(1)], "result[0]", /is a Promise/],
  [
    "an object within itself",
    circle,
    "result.list[0].circle",
    /contains itself\. Return a value without circular references/,
  ],
  ["a NUL character", { text: "a\u0000b" }, "result.text", /a NUL character.*Remove it, or return a Uint8Array/],
  ["an unpaired surrogate", ["\ud83d"], "result[0]", /an unpaired surrogate/],
  ["a key with a NUL character", { "\u0000": 1 }, "result (a key of it)", /a NUL character/],
];

describe("an unsupported result", () => {
  it.each(rejected)("%s is rejected with its path and a remedy", (_, value, field, message) => {
    const error = refusalOf(value);
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field, retryable: false, remedy: expect.stringMatching(/./) });
    expect(error.message).toMatch(message);
    expect(error.message.startsWith(field)).toBe(true);
  });

  it("the same object twice, but not inside itself, is supported", async () => {
    expect(await throughPostgres([shared, shared])).toStrictEqual([{ a: 1 }, { a: 1 }]);
  });

  it("1 MB of JSON is accepted and one byte more is rejected, in bytes and not in characters", async () => {
    const limit = 1024 * 1024;
    expect(encodeCheckpoint("x".repeat(limit - 2), "it")).toHaveLength(limit);
    expect(refusalOf("x".repeat(limit - 1)).message).toBe(
      "result is 1048577 bytes of JSON, the limit is 1048576. Store it with job.artifact() and return a reference",
    );
    expect(refusalOf("é".repeat(limit / 2)).message).toMatch("1048578 bytes");
    expect(refusalOf(new Uint8Array(limit)).message).toMatch("the limit is 1048576");
  });
});

function refusalOf(value: unknown): InvalidInput {
  try {
    encodeCheckpoint(value, "result");
  } catch (error) {
    return error as InvalidInput;
  }
  throw new Error("It was kept");
}

/** fast-check sometimes creates dictionaries without a prototype; decoded objects have one. */
function withoutNullPrototypes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNullPrototypes);
  if (typeof value !== "object" || value === null || value instanceof Date || value instanceof Uint8Array) return value;
  return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, withoutNullPrototypes(child)]));
}
