// pipeline() rejects invalid policies where they are written, with field and remedy, by the same rules as the database.
import { describe, expect, it } from "vitest";
import { duration, InvalidInput, pipeline } from "../../src/contract/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";

const { client } = await connectedDatabase();

describe("pipeline() rejects", () => {
  it.each([
    ["pool", { pool: "My Pool" }, /^"My Pool" is not a valid pool name\. Use 1 to 100 lower-case letters/],
    ["pool", { pool: "" }, /is not a valid pool name/],
    ["priority", { priority: 5000 }, /^priority 5000 .* Use a whole number from -1000 to 1000/],
    ["retry.attempts", { retry: { attempts: 0 } }, /^retry\.attempts 0 .* Use a whole number from 1 to 1000/],
    ["retry.attempts", { retry: { attempts: 2.5 } }, /^retry\.attempts 2\.5/],
    ["retry.crashes", { retry: { crashes: 0 } }, /^retry\.crashes 0/],
    [
      "retry.initial",
      { retry: { initial: "soon" } },
      /^retry\.initial "soon" is not a duration\. Write a number and a unit/,
    ],
    ["retry.initial", { retry: { initial: "forever" } }, /^retry\.initial "forever" is not a duration/],
    ["retry.max", { retry: { initial: "1h" } }, /^retry\.max "15m" .* Make it at least as long as retry\.initial/],
    ["retry.max", { retry: { max: "1s" } }, /^retry\.max "1s" /],
    ["timeout", { timeout: "5 minuts" }, /^timeout "5 minuts" is not a duration/],
    ["silence", { silence: "10" }, /^silence "10" is not a duration/],
    ["releaseAfter", { releaseAfter: 5 }, /^releaseAfter 5 is not a duration/],
    [
      "retry",
      { retry: 3 },
      /^Pipeline "p": retry must be an object, not 3\. Pass an object with some of these: attempts,/,
    ],
    ["keep", { keep: "7d" }, /^Pipeline "p": keep must be an object, not "7d"/],
    ["input", { input: { a: "string" } }, /^The input of pipeline "p" is not a Standard Schema\. .*zod/],
    ["output", { output: null }, /^The output of pipeline "p" is not a Standard Schema/],
    ["keep.failed", { keep: { failed: "always" } }, /^keep\.failed "always" is not a duration/],
  ])("an invalid %s: %j", (field, options, message) => {
    const create = () => pipeline("p", options as object);
    expect(create).toThrow(InvalidInput);
    expect(create).toThrow(message);
    expect(create).toThrow(expect.objectContaining({ field, remedy: expect.any(String) }));
  });

  it.each(["scan", "a", "0", "a.b:c-d_e", "x".repeat(100), "Scan", "-a", "a b", "x".repeat(101), "ä", ""])(
    "the same pools as the database: %j",
    async (pool) => {
      const registered = await client
        .query("select stillwake.register_pipeline('pools', jsonb_build_object('pool', $1::text))", [pool])
        .then(() => true)
        .catch(() => false);
      const accepted = (() => {
        try {
          return Boolean(pipeline("pools", { pool }));
        } catch {
          return false;
        }
      })();
      expect(accepted).toBe(registered);
    },
  );
});

describe("duration()", () => {
  it("returns a text that is a duration, and rejects any other with the name of its field", () => {
    expect(duration("1h 30m")).toBe("1h 30m");
    expect(() => duration("5 minuts", "TIMEOUT")).toThrow(/^TIMEOUT "5 minuts" is not a duration/);
    expect(() => duration(undefined, "TIMEOUT")).toThrow(/^TIMEOUT undefined is not a duration/);
  });
});
