// The price tables and the cost estimate: every number of the price lists is reproduced to its printed digits.
import { describe, expect, it } from "vitest";
import { estimate } from "../../src/orchestrator/cost-estimate.ts";
import {
  bundledPrices,
  checkPrices,
  findPrice,
  MONTH_SECONDS,
  type PriceTable,
} from "../../src/orchestrator/prices.ts";

const today = new Date("2026-11-16T00:00:00Z");
const before = new Date("2026-09-30T23:59:59Z");

/** Size, GB, and dollars per second, hour and 30 days, as printed. */
const FLY: [string, number, string, string, string][] = [
  ["shared-cpu-1x", 0.25, "0.00000085", "0.0030", "2.19"],
  ["shared-cpu-1x", 0.5, "0.00000143", "0.0051", "3.69"],
  ["shared-cpu-1x", 1, "0.00000258", "0.0093", "6.70"],
  ["shared-cpu-1x", 2, "0.00000490", "0.0176", "12.70"],
  ["shared-cpu-2x", 0.5, "0.00000169", "0.0061", "4.39"],
  ["shared-cpu-2x", 2, "0.00000517", "0.0186", "13.39"],
  ["shared-cpu-2x", 4, "0.00000980", "0.0353", "25.40"],
  ["shared-cpu-4x", 1, "0.00000339", "0.0122", "8.78"],
  ["shared-cpu-4x", 4, "0.00001033", "0.0372", "26.79"],
  ["shared-cpu-4x", 8, "0.00001960", "0.0706", "50.80"],
  ["shared-cpu-8x", 2, "0.00000677", "0.0244", "17.55"],
  ["shared-cpu-8x", 8, "0.00002067", "0.0744", "53.57"],
  ["shared-cpu-8x", 16, "0.00003920", "0.1411", "101.60"],
  ["performance-1x", 2, "0.00001273", "0.0458", "33.00"],
  ["performance-1x", 4, "0.00001736", "0.0625", "45.01"],
  ["performance-1x", 8, "0.00002663", "0.0959", "69.02"],
  ["performance-2x", 4, "0.00002546", "0.0917", "66.00"],
  ["performance-2x", 8, "0.00003473", "0.1250", "90.01"],
  ["performance-2x", 16, "0.00005326", "0.1917", "138.04"],
  ["performance-4x", 8, "0.00005093", "0.1833", "132.01"],
  ["performance-4x", 16, "0.00006946", "0.2500", "180.03"],
  ["performance-4x", 32, "0.00010651", "0.3834", "276.08"],
  ["performance-8x", 16, "0.00010186", "0.3667", "264.01"],
  ["performance-8x", 32, "0.00013891", "0.5001", "360.06"],
  ["performance-8x", 64, "0.00021302", "0.7669", "552.16"],
  ["performance-16x", 32, "0.00020371", "0.7334", "528.02"],
  ["performance-16x", 64, "0.00027782", "1.0002", "720.12"],
  ["performance-16x", 128, "0.00042605", "1.5338", "1104.32"],
];

describe("prices", () => {
  it.each(FLY)("of Fly: %s with %d GB", (size, gb, second, hour, month) => {
    const price = findPrice("fly", { size, memoryMb: gb * 1024, region: "iad" }, { at: today })!;
    expect(price.perSecond.toFixed(8)).toBe(second);
    expect((price.perSecond * 3600).toFixed(4)).toBe(hour);
    expect((price.perSecond * MONTH_SECONDS).toFixed(2)).toBe(month);
    expect(price.table).toBe("fly 2026-10-01");
  });

  it("come from the table in force", () => {
    const facts = { size: "performance-8x", memoryMb: 65536, region: "iad" };
    expect(findPrice("fly", facts, { at: before })).toMatchObject({ table: "fly before 2026-10-01" });
    expect(findPrice("fly", facts, { at: before })!.perSecond).toBeCloseTo(8 * 0.00001196 + 48 * 0.00000193, 12);
    expect(findPrice("fly", facts, { at: new Date("2026-10-01T00:00:00Z") })).toMatchObject({
      table: "fly 2026-10-01",
    });
  });

  it("include the factor of the region, and are undefined for an unknown region or size", () => {
    const size = "performance-1x";
    const base = findPrice("fly", { size, region: "ewr" }, { at: today })!.perSecond;
    expect(findPrice("fly", { size, region: "gru" }, { at: today })!.perSecond).toBeCloseTo(base * 1.6154, 15);
    expect(findPrice("fly", { size, region: "xyz" }, { at: today })).toBeUndefined();
    expect(findPrice("fly", { size: "huge-1x" }, { at: today })).toBeUndefined();
    expect(findPrice("kubernetes", { cpus: 2, memoryMb: 4096 }, { at: today })).toBeUndefined();
    expect(findPrice("cloud-run", { memoryMb: 512 }, { at: today })).toBeUndefined();
  });

  it("of Cloud Run are per vCPU and GB with a minimum of a minute; local machines are free", () => {
    const price = findPrice("cloud-run", { cpus: 2, memoryMb: 4096, region: "us-central1" }, { at: today })!;
    expect(price.perSecond).toBeCloseTo(2 * 0.000018 + 4 * 0.000002, 15);
    expect(price.leastSeconds).toBe(60);
    expect(findPrice("local", {})).toMatchObject({ perSecond: 0, leastSeconds: 0 });
  });

  it("of a stopped machine are for its disk", () => {
    const price = findPrice("fly", { size: "shared-cpu-1x" }, { at: today })!;
    expect(price.idlePerSecond(2) * MONTH_SECONDS).toBeCloseTo(0.3, 12);
    expect(findPrice("cloud-run", { cpus: 1, memoryMb: 512 })!.idlePerSecond(10)).toBe(0);
  });

  it("of a user take precedence, by size or for all; the bundled tables fill the gaps", () => {
    const prices: PriceTable = checkPrices({
      tables: [
        { provider: "kubernetes", name: "nodes 2026", from: "2026-01-01", perSecond: 0.00002, leastSeconds: 10 },
        { provider: "kubernetes", name: "nodes 2027", from: "2027-01-01", perSecond: 0.00003 },
        { provider: "fly", name: "contract", from: "2026-01-01", sizes: { "performance-8x": 0.0002153 } },
      ],
    });
    const at = today;
    expect(findPrice("kubernetes", {}, { at, prices })).toMatchObject({
      perSecond: 0.00002,
      table: "nodes 2026",
      leastSeconds: 10,
    });
    expect(findPrice("fly", { size: "performance-8x", region: "iad" }, { at, prices })).toMatchObject({
      perSecond: 0.0002153,
      table: "contract",
    });
    expect(findPrice("fly", { size: "performance-1x", region: "iad" }, { at, prices })).toMatchObject({
      table: "fly 2026-10-01",
    });
  });

  it("that are invalid are rejected with their field", () => {
    const price = { provider: "fly", name: "x", from: "2026-01-01", perSecond: 1 };
    for (const [given, field] of [
      [null, "prices"],
      [{}, "prices"],
      [{ tables: [null] }, "prices.tables[0]"],
      [{ tables: [{ ...price, provider: "" }] }, "prices.tables[0].provider"],
      [{ tables: [price, { ...price, from: "soon" }] }, "prices.tables[1].from"],
      [{ tables: [{ ...price, perSecond: -1 }] }, "prices.tables[0].perSecond"],
      [{ tables: [{ ...price, regions: { iad: "1" } }] }, "prices.tables[0].regions.iad"],
      [{ tables: [{ ...price, perSeconds: 1 }] }, "prices.tables[0].perSeconds"],
      [{ tables: [{ provider: "fly", name: "x", from: "2026-01-01" }] }, "prices.tables[0]"],
    ] as const)
      expect(() => checkPrices(given)).toThrow(expect.objectContaining({ code: "INVALID_INPUT", field }));
  });

  it("of the bundled tables pass the same check, and each names its source", () => {
    expect(checkPrices(bundledPrices()).tables.every(({ note }) => (note ?? "").length > 20)).toBe(true);
  });
});

describe("the cost estimate", () => {
  const text = (lines: { what: string; reckoning: string }[]) =>
    lines.map(({ what, reckoning }) => `${what}: ${reckoning}`);

  it("computes 5 minutes at $0.0002153 per second, and a stopped pool of 3 at $0.15 per GB and month", () => {
    const five = estimate({ jobs: 1, minutes: 5, perSecond: 0.0002153, warm: 3, stoppedGbMonth: 0.15, diskGb: 1 });
    expect(five.amount).toBeCloseTo(0.06459, 10);
    expect(five.amount.toFixed(3)).toBe("0.065");
    expect(five.monthly).toBeCloseTo(0.45, 12);
    expect(text(five.lines)).toContain("all jobs: 300 s × $0.0002153");
    expect(text(five.lines)).toContain("stopped machines: 3 × 1 GB × $0.15 per GB and month");
  });

  it("computes the same with the current table", () => {
    const five = estimate({
      ...{ jobs: 1, minutes: 5, provider: "fly", size: "performance-8x", memoryMb: 65536, region: "iad", at: today },
      ...{ warm: 3, diskGb: 2 },
    });
    expect(five.perSecond.toFixed(8)).toBe("0.00021302");
    expect(five.amount).toBeCloseTo(0.0639072, 10);
    expect(five.monthly).toBeCloseTo(0.9, 12);
    expect(text(five.lines)[0]).toBe(
      "a second of a machine (fly 2026-10-01): 8 vCPU × $0.000012732 + 48 GB beyond 16 × $0.000002316",
    );
  });

  it("computes a scheduled drain: 8,820 executions of 15 s a month are 132,300 vCPU-s", () => {
    // One pipeline every 5 minutes, another every 4 hours, for 30 days.
    expect((30 * 24 * 60) / 5 + (30 * 24) / 4).toBe(8820);
    const drain = estimate({ jobs: 8820, minutes: 0.25, perSecond: 0.000019, cpus: 1 });
    expect(drain.vcpuSeconds).toBe(132_300);
  });

  it("computes the billed time: at least a minute each, 529,200 vCPU-s, more than the free tier", () => {
    const drain = estimate({
      ...{ jobs: 8820, minutes: 0.25, provider: "cloud-run", cpus: 1, memoryMb: 512, at: today, freeTier: true },
    });
    expect(drain.vcpuSeconds).toBe(529_200);
    expect(text(drain.lines)).toContain("each is billed for: at least 60 s");
    expect(text(drain.lines)).toContain("beyond the free tier: 529200 − 240000 free in a month");
    expect(drain.amount).toBeCloseTo((529_200 - 240_000) * 0.000018, 10);
  });

  it("includes startup and idle time, and concurrent and sequential jobs", () => {
    const many = estimate({
      jobs: 100,
      minutes: 5,
      perSecond: 0.001,
      slots: 2,
      jobsPerMachine: 10,
      bootSeconds: 4,
      idleSeconds: 60,
    });
    expect(many.machines).toBe(5);
    expect(many.seconds).toBe(5 * (10 * 300 + 64));
    expect(many.amount).toBeCloseTo(15.32, 10);
    expect(many.perJob).toBeCloseTo(0.1532, 10);
  });

  it("rejects missing and invalid values", () => {
    expect(() => estimate({ jobs: 1, minutes: 1 })).toThrow("Neither a price nor a provider is set");
    expect(() => estimate({ jobs: 1, minutes: 1, provider: "kubernetes" })).toThrow("There is no price for kubernetes");
    expect(() => estimate({ jobs: -1, minutes: 1, perSecond: 1 })).toThrow("jobs cannot be -1");
    expect(() => estimate({ jobs: 1, minutes: Number.NaN, perSecond: 1 })).toThrow("minutes cannot be NaN");
  });
});
