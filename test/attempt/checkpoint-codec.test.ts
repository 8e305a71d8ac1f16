// What steps return, on its way into a checkpoint and back: the codec by itself, and then through Postgres.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidInput } from "../../src/index.ts";
import { decode, encode } from "../../src/worker/attempt/checkpoint-codec.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { rig } from "../support/processes/in-process.ts";

const database = await freshDatabase();
const { query } = rig(database);

/** As the checkpoint of a first attempt is read by a second one. */
async function throughPostgres(value: unknown): Promise<unknown> {
  const [row] = await query<{ output: unknown }>("select $1::jsonb as output", [encode(value, "it")]);
  return decode(row!.output);
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

describe("a result that can be kept", () => {
  it.each(kept)("%s comes back as it was", async (_, value) => {
    expect(await throughPostgres(value)).toStrictEqual(value);
  });

  it("any plain value comes back as it was, from Postgres too", async () => {
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
        expect(decode(JSON.parse(encode(plain, "it")))).toStrictEqual(plain);
        expect(await throughPostgres(plain)).toStrictEqual(plain);
      }),
      { numRuns: 300 },
    );
    recordFigure("step results that came back from a checkpoint as they were", runs, "", "generated values");
  });

  it("what cannot come back as it was is the same the first time: undefined within, subclasses, Buffer, -0", async () => {
    class Instant extends Date {}
    for (const value of [
      { gone: undefined, list: [undefined, 1] },
      { when: new Instant(5) },
      { bytes: Buffer.from("abc") },
      -0,
      [-0],
      new Array(2),
    ]) {
      const first = decode(JSON.parse(encode(value, "it")));
      expect(await throughPostgres(value)).toStrictEqual(first);
    }
    expect(decode(JSON.parse(encode({ gone: undefined, list: [undefined] }, "it")))).toStrictEqual({ list: [null] });
  });

  it("the keys of an object stand in the same order the first time as after a crash", async () => {
    const value = { zebra: 1, apple: { longest: 1, b: 2 }, "10": 1, bb: 2, a: 3, é: 4 };
    const first = decode(JSON.parse(encode(value, "it")));
    expect(JSON.stringify(await throughPostgres(value))).toBe(JSON.stringify(first));
  });
});

class Account {
  owner = "me";
}
const circle: Record<string, unknown> = {};
circle.list = [{ circle }];
const shared = { a: 1 };

const refused: [string, unknown, string, RegExp][] = [
  ["a function", { run() {} }, "result.run", /is a function\. Return plain data/],
  ["a symbol", [Symbol("x")], "result[0]", /is a symbol/],
  ["NaN", { ratio: Number.NaN }, "result.ratio", /is NaN, which JSON does not have\. Return null instead/],
  ["Infinity", Number.POSITIVE_INFINITY, "result", /is Infinity/],
  ["an invalid Date", { at: new Date("never") }, "result.at", /is an invalid Date/],
  ["a class instance", { a: [new Account()] }, "result.a[0]", /is a Account\. Return a plain object/],
  ["a Map", new Map(), "result", /is a Map/],
  ["a Set", { seen: new Set() }, "result.seen", /is a Set/],
  ["an Error", { error: new TypeError("no") }, "result.error", /is a TypeError/],
  ["floats as bytes", new Float32Array(2), "result", /is a Float32Array/],
  ["a promise nobody awaited", [Promise.resolve(1)], "result[0]", /is a Promise/],
  ["an object within itself", circle, "result.list[0].circle", /contains itself\. Return a tree/],
  ["a NUL character", { text: "a\u0000b" }, "result.text", /a NUL character.*Remove it, or return a Uint8Array/],
  ["half a surrogate pair", ["\ud83d"], "result[0]", /half a surrogate pair/],
  ["a key with a NUL character", { "\u0000": 1 }, "result (a key of it)", /a NUL character/],
];

describe("a result that cannot be kept", () => {
  it.each(refused)("%s is refused with its place and a remedy", (_, value, field, message) => {
    const error = refusalOf(value);
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field, retryable: false, remedy: expect.stringMatching(/./) });
    expect(error.message).toMatch(message);
    expect(error.message.startsWith(field)).toBe(true);
  });

  it("the same object twice, but not within itself, is kept", async () => {
    expect(await throughPostgres([shared, shared])).toStrictEqual([{ a: 1 }, { a: 1 }]);
  });

  it("1 MB of JSON is kept and one byte more is refused, in bytes and not in characters", async () => {
    const limit = 1024 * 1024;
    expect(encode("x".repeat(limit - 2), "it")).toHaveLength(limit);
    expect(refusalOf("x".repeat(limit - 1)).message).toBe(
      "result is 1048577 bytes of JSON, the limit is 1048576. Store it with job.artifact() and return a reference",
    );
    expect(refusalOf("é".repeat(limit / 2)).message).toMatch("1048578 bytes");
    expect(refusalOf(new Uint8Array(limit)).message).toMatch("the limit is 1048576");
  });
});

function refusalOf(value: unknown): InvalidInput {
  try {
    encode(value, "result");
  } catch (error) {
    return error as InvalidInput;
  }
  throw new Error("It was kept");
}

/** fast-check makes dictionaries without a prototype now and then; what comes back has one. */
function withoutNullPrototypes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNullPrototypes);
  if (typeof value !== "object" || value === null || value instanceof Date || value instanceof Uint8Array) return value;
  return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, withoutNullPrototypes(child)]));
}
