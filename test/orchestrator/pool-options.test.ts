// What a pool of machines cannot be told, and what is said instead.
import { describe, expect, it } from "vitest";
import { local } from "../../src/orchestrator/providers/local/local.ts";
import { checkPools, type PoolOptions, readPoolOptions } from "../../src/orchestrator/settings.ts";

const provider = local();

describe("the settings of a pool", () => {
  it.each<[what: string, pool: string, options: unknown, message: RegExp, field: string]>([
    ["no provider", "scan", {}, /^Pool "scan" has no provider\. Give it what local\(\)/, "pools.scan.provider"],
    [
      "a provider by its name",
      "scan",
      { provider: "fly" },
      /^Pool "scan" has a provider that is none/,
      "pools.scan.provider",
    ],
    ["no settings", "scan", null, /^Pool "scan" has no settings/, "pools.scan.provider"],
    ["a name with capitals", "Scan", { provider }, /^"Scan" cannot name a pool\. Use lower-case letters/, "pools"],
    ["a name with a space", "big scan", { provider }, /^"big scan" cannot name a pool/, "pools"],
    [
      "an unknown option",
      "scan",
      { provider, size: 3 },
      /^Pool "scan" has an unknown option "size"/,
      "pools.scan.size",
    ],
  ])("are refused with %s", (_what, pool, options, message, field) => {
    expect(() => readPoolOptions(pool, options as PoolOptions, {})).toThrow(
      expect.objectContaining({ code: "INVALID_INPUT", message: expect.stringMatching(message), field }),
    );
  });

  it("name a larger pool that has machines, and is another one", () => {
    const check = (larger: string) => () => checkPools({ small: { provider, larger }, large: { provider } });
    expect(check("large")).not.toThrow();
    expect(check("small")).toThrow(
      /^Pool "small" names itself as the larger one\. Name another pool with machines: large$/,
    );
    expect(check("huge")).toThrow(/^Pool "small" names "huge" as the larger one, which has no machines\./);
  });
});
