// Invalid options of a pool of machines and their error messages.
import { describe, expect, it } from "vitest";
import { local } from "../../src/orchestrator/providers/local/local.ts";
import { checkPools, type PoolOptions, readPoolOptions } from "../../src/orchestrator/settings.ts";

const provider = local();

describe("pool options", () => {
  it.each<[what: string, pool: string, options: unknown, message: RegExp, field: string]>([
    ["no provider", "scan", {}, /^Pool "scan" has no provider\. Use local\(\)/, "pools.scan.provider"],
    [
      "a provider by its name",
      "scan",
      { provider: "fly" },
      /^Pool "scan" has an invalid provider/,
      "pools.scan.provider",
    ],
    ["no settings", "scan", null, /^Pool "scan" has no settings/, "pools.scan.provider"],
    [
      "a name with capitals",
      "Scan",
      { provider },
      /^"Scan" is not a valid pool name\. Use lower-case letters/,
      "pools",
    ],
    ["a name with a space", "big scan", { provider }, /^"big scan" is not a valid pool name/, "pools"],
    [
      "an unknown option",
      "scan",
      { provider, size: 3 },
      /^Pool "scan" has an unknown option "size"/,
      "pools.scan.size",
    ],
  ])("are rejected with %s", (_what, pool, options, message, field) => {
    expect(() => readPoolOptions(pool, options as PoolOptions, {})).toThrow(
      expect.objectContaining({ code: "INVALID_INPUT", message: expect.stringMatching(message), field }),
    );
  });

  it("must name another pool with machines as largerPool", () => {
    const check = (largerPool: string) => () => checkPools({ small: { provider, largerPool }, large: { provider } });
    expect(check("large")).not.toThrow();
    expect(check("small")).toThrow(/^Pool "small" names itself as largerPool\. Use one of: large$/);
    expect(check("huge")).toThrow(/^Pool "small" names "huge" as largerPool, which is not a pool with machines\./);
  });
});
