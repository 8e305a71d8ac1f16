// Invalid calls of enqueue and their errors, through the client and through plain SQL.
import type pg from "pg";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import {
  createStillwake,
  InvalidInput,
  type Pipeline,
  pipeline,
  StillwakeError,
  UnknownPipeline,
  UnknownPool,
} from "../../src/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";

const { database, stillwake, client: sql } = await connectedDatabase();
const report = pipeline("report", { pool: "heavy" });
const INPUT_LIMIT = 262_144;

beforeAll(() => stillwake.register(report));

describe("a login that Postgres refuses is an error with a remedy, without retries:", () => {
  it.each([
    ["a wrong password", { password: "wrong" }, "LOGIN_REFUSED", /Check user and password in the database URL/],
    [
      "an unknown user",
      { username: "nobody" },
      "LOGIN_REFUSED",
      /Check (the user|user and password) in the database URL/,
    ],
    [
      "an unknown database",
      { pathname: "/elsewhere" },
      "DATABASE_MISSING",
      /Check the name after the last \/.*createdb/,
    ],
  ])("%s, for a client and a worker", async (_, change, code, remedy) => {
    const { href } = Object.assign(new URL(database.url), change);
    await using client = createStillwake({ url: href, retryTimeout: "1h" });
    await expect(client.list()).rejects.toMatchObject({
      code,
      retryable: false,
      message: expect.stringMatching(remedy),
    });
    const worker = createWorker({ url: href, pipelines: [implement(report, () => {})] });
    onTestFinished(() => worker.stop());
    await expect(worker.start()).rejects.toMatchObject({ code, message: expect.stringMatching(remedy) });
  });
});

describe("the client rejects", () => {
  const past = new Date(Date.now() - 60_000);
  it.each<[option: string, value: unknown, field?: string]>([
    ["delay", "soon"],
    ["delay", "-5s"],
    ["delay", "5"],
    ["delay", 5],
    ["delay", ""],
    ["delay", null],
    ["delay", "367d"],
    ["runAt", "2030-01-01"],
    ["runAt", 5],
    ["runAt", new Date("never")],
    ["runAt", null],
    ["expiresIn", "later"],
    ["expiresIn", "0s", "expires_at"],
    ["expiresAt", new Date(Number.NaN)],
    ["expiresAt", past, "expires_at"],
    ["priority", 1001],
    ["priority", -1001],
    ["priority", 1.5],
    ["priority", "5"],
    ["priority", Number.NaN],
    ["priority", Number.POSITIVE_INFINITY],
    ["priority", null],
    ["attempts", 0],
    ["attempts", 1001],
    ["attempts", "3"],
    ["attempts", Number.NaN],
    ["pool", 5],
    ["pool", ""],
    ["key", ""],
    ["key", "x".repeat(501)],
    ["key", 5],
    ["key", { a: 1 }],
    ["key", "a\u0000b"],
    ["key", "half \ud83d"],
    ["tenant", ""],
    ["tenant", true],
    ["tenant", "\u0000"],
    ["idempotencyKey", ""],
    ["idempotencyKey", "x".repeat(501)],
    ["idempotencyKey", 7],
    ["idempotencyKey", null],
    ["idempotencyKeys", ["one"]],
    ["tx", null],
    ["prioritty", 5],
    ["__proto__x", 5],
    ["constructor", 5],
    ["run_at", new Date()],
  ])("%s: %j", async (option, value, field = option) => {
    const refused = await caught(stillwake.enqueue(report, {}, { [option]: value }));
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ code: "INVALID_INPUT", retryable: false, field });
    expect(refused.remedy).toBeTruthy();
    expect(refused.message).toContain(refused.remedy);
  });

  it("an unknown option of the client itself", () => {
    const create = () => createStillwake({ url: database.url, maxConnections: 5 } as object);
    expect(create).toThrow(
      /^createStillwake\(\) has an unknown option "maxConnections"\. Known options: url, .*connections/,
    );
  });

  it("501 characters; 500 are allowed, counted as code points", async () => {
    const elephants = "🐘".repeat(500);
    const { id } = await stillwake.enqueue(
      report,
      {},
      { key: elephants, tenant: elephants, idempotencyKey: elephants },
    );
    expect(await stillwake.get(id)).toMatchObject({ key: elephants, tenant: elephants, idempotencyKey: elephants });
  });

  it.each<[inputs: unknown, options: object | undefined, field: string]>([
    ["text", undefined, "inputs"],
    [undefined, undefined, "inputs"],
    [[1, 2], { idempotencyKeys: ["one"] }, "idempotencyKeys"],
    [[1, 2], { idempotencyKeys: "ab" }, "idempotencyKeys"],
    [[1, 2], { idempotencyKeys: ["one", 2] }, "idempotencyKeys[1]"],
    [[1, 2], { idempotencyKeys: ["one", ""] }, "idempotencyKeys[1]"],
    [[1, 2], { idempotencyKeys: ["one", undefined] }, "idempotencyKeys[1]"],
    [[1, 2], { idempotencyKey: "one" }, "idempotencyKey"],
    [[1, undefined], undefined, "inputs[1]"],
  ])("many: %j with %j", async (inputs, options, field) => {
    const refused = await caught(stillwake.enqueueMany("report", inputs as never, options as never));
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ field, remedy: expect.any(String) });
  });

  it.each([[null], ["text"], [5]])("options that are %j", async (options) => {
    expect(await caught(stillwake.enqueue(report, {}, options as never))).toMatchObject({
      code: "INVALID_INPUT",
      field: "options",
    });
  });

  it.each([[undefined], [null], [5], [{}], [{ name: "report" }]])("a pipeline that is %j", async (bad) => {
    expect(await caught(stillwake.enqueue(bad as Pipeline, {}))).toMatchObject({
      code: "INVALID_INPUT",
      field: "pipeline",
    });
  });

  it("an unknown pipeline, and lists the known ones", async () => {
    const refused = await caught(stillwake.enqueue("reprot", {}));
    expect(refused).toBeInstanceOf(UnknownPipeline);
    expect(refused).toMatchObject({ code: "UNKNOWN_PIPELINE", field: "pipeline" });
    expect(refused.message).toMatch(
      /^Pipeline "reprot" is not registered\. Known pipelines: report\. Register it with/,
    );
    expect(await caught(stillwake.enqueue("nul\u0000", {}))).toMatchObject({ code: "INVALID_INPUT" });
  });

  it("an unknown pool, and lists the known ones", async () => {
    const refused = await caught(stillwake.enqueue(report, {}, { pool: "gpu" }));
    expect(refused).toBeInstanceOf(UnknownPool);
    expect(refused).toMatchObject({ code: "UNKNOWN_POOL", field: "pool" });
    expect(refused.message).toMatch(/^Pool "gpu" does not exist\. Known pools: heavy\./);
  });
});

describe("an input", () => {
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = [deep];

  it.each<[what: string, input: unknown, field: string, says: RegExp]>([
    ["undefined", undefined, "input", /^input is undefined, which JSON cannot represent\. Pass null/],
    ["a function", () => {}, "input", /^input is function, which JSON cannot represent/],
    ["a symbol", Symbol("s"), "input", /^input is symbol, which JSON cannot represent/],
    ["a BigInt", { n: 5n }, "input", /^input cannot be serialized as JSON: .*BigInt/],
    ["circular", circular, "input", /^input cannot be serialized as JSON: .*circular/],
    ["too deep", deep, "input", /^input cannot be serialized as JSON: .*stack/],
    [
      "NUL in a string",
      { a: { b: ["ok", "x\u0000y"] } },
      "input.a.b[1]",
      /^input\.a\.b\[1\] contains a NUL character, which Postgres cannot store\. /,
    ],
    ["NUL in a key", { a: { "k\u0000": 1 } }, "input.a (a key of it)", /NUL character/],
    ["an unpaired surrogate", { title: "\ud83d" }, "input.title", /^input\.title contains an unpaired surrogate/],
    ["the other half", ["\udc18"], "input[0]", /an unpaired surrogate/],
    ["a pair the wrong way round", "\udc18\ud83d", "input", /an unpaired surrogate/],
  ])("that is or has %s is rejected with its path", async (_what, input, field, says) => {
    const refused = await caught(stillwake.enqueue("report", input));
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ field, remedy: expect.any(String) });
    expect(refused.message).toMatch(says);
  });

  it("that only looks dangerous is stored unchanged", async () => {
    const input = { "\\u0000": "\\ud83d", "'; drop table": "$1 {x}", "🐘": "\u2028\u007f\ufffe" };
    const { id } = await stillwake.enqueue("report", input);
    expect((await stillwake.get(id)).input).toEqual(input);
  });

  // Postgres prints some of these 1.5 times as long, and the huge numbers 20 times as long.
  const atLimit: [what: string, input: unknown][] = [
    ["a text", "x".repeat(INPUT_LIMIT - 2)],
    ["a text of three-byte characters", `${"漢".repeat((INPUT_LIMIT - 4) / 3)}xx`],
    ["a text of quotes", `${'"'.repeat((INPUT_LIMIT - 2) / 2)}`],
    ["numbers", manyOf(1)],
    ["huge numbers", manyOf(1.5e200)],
    ["tiny numbers", manyOf(-1.5e-9)],
    ["short texts", manyOf(", : ")],
    ["objects", manyOf({ a: 1, b: [] })],
  ];

  it.each(atLimit)("of exactly the limit is accepted, in the client and in SQL: %s", async (_what, input) => {
    const json = JSON.stringify(input);
    expect(Buffer.byteLength(json)).toBe(INPUT_LIMIT);
    await stillwake.enqueue("report", input);
    await sql.query("select stillwake.enqueue('report', $1)", [json]);
  });

  it.each(["x", "漢", '"'])(
    "of one byte more is rejected by both, with the limit and the remedy (%s)",
    async (character) => {
      const size = Buffer.byteLength(JSON.stringify(character)) - 2;
      const text = character.repeat(Math.floor((INPUT_LIMIT - 2) / size));
      const input = text.padEnd(text.length + INPUT_LIMIT - 1 - text.length * size, "x");
      const json = JSON.stringify(input);
      expect(Buffer.byteLength(json)).toBe(INPUT_LIMIT + 1);
      const refused = await caught(stillwake.enqueue("report", input));
      expect(refused).toMatchObject({ code: "INVALID_INPUT", field: "input" });
      expect(refused.message).toMatch(/^input is 262145 bytes of JSON, the limit is 262144\. Store the data elsewhere/);
      expect(await sqlError("select stillwake.enqueue('report', $1)", [json])).toMatchObject({
        code: "SW001",
        detail: "inputs[0]",
        message: expect.stringContaining("262144 bytes"),
        hint: expect.stringContaining("Store the data elsewhere"),
      });
    },
  );

  it("cannot bypass the limit by compression in a table", async () => {
    await sql.query("create table parcels (inputs jsonb)");
    await sql.query("insert into parcels select jsonb_build_array(1, repeat('x', 1000000))");
    expect(await sqlError("select stillwake.enqueue_many('report', inputs) from parcels")).toMatchObject({
      code: "SW001",
      detail: "inputs[1]",
    });
  });
});

/** An array of copies and one text, exactly of the limit's length. */
function manyOf(element: unknown): unknown[] {
  const each = JSON.stringify(element).length + 1;
  const copies = Math.floor((INPUT_LIMIT - 4) / each);
  return [...Array(copies).fill(element), "x".repeat(INPUT_LIMIT - 4 - copies * each)];
}

async function caught(promise: Promise<unknown>): Promise<StillwakeError> {
  return promise.then(
    () => new StillwakeError("ACCEPTED", "it was accepted"),
    (error) => error,
  );
}

async function sqlError(text: string, values: unknown[] = []): Promise<pg.DatabaseError | undefined> {
  return sql.query(text, values).then(
    () => undefined,
    (error) => error,
  );
}
