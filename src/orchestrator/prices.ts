// What a machine costs per second, from dated price tables: the newest table in force applies. The bundled tables are
// data (prices.json); a user's tables take precedence. A machine in no table has no price: it is never treated as free.
import fs from "node:fs";
import { InvalidInput } from "../errors.ts";
import { findClosest } from "../text/suggest.ts";
import type { ProviderFacts } from "./provider.ts";

/** The prices of one provider from a day on. The fields that are set define how the price is computed. */
export interface Price {
  provider: string;
  /** Stored with every cost. */
  name: string;
  /** The first day (UTC), such as "2026-10-01". */
  from: string;
  note?: string;
  /** The same for every machine. */
  perSecond?: number;
  /** By the size of the machine. */
  sizes?: Readonly<Record<string, number>>;
  /** By the class a size begins with, such as "performance": price per vCPU, and the memory included with each. */
  classes?: Readonly<Record<string, { vcpu: number; includedGb: number }>>;
  vcpuSecond?: number;
  gbSecond?: number;
  /** Factor per region. A region that is not listed has no price. */
  regions?: Readonly<Record<string, number>>;
  /** Minimum billed time of each start. */
  leastSeconds?: number;
  /** Per GB of root file system of a stopped machine. */
  stoppedGbMonth?: number;
  /** Monthly free tier. */
  free?: { vcpuSeconds?: number; gbSeconds?: number };
}

export interface PriceTable {
  currency?: string;
  note?: string;
  tables: readonly Price[];
}

export interface MachinePrice {
  perSecond: number;
  /** The name of the table. */
  table: string;
  leastSeconds: number;
  /** Cost per second of a stopped machine with that much disk. */
  idlePerSecond(diskGb: number): number;
  /** How perSecond is computed, as text. */
  formula: string;
  price: Price;
}

/** A month has 30 days, as in the price lists. */
export const MONTH_SECONDS = 30 * 86_400;

/** Undefined if there is no table for the provider, or the table lacks the size or region. */
export function findPrice(
  provider: string,
  facts: ProviderFacts,
  { at = new Date(), prices }: { at?: Date; prices?: PriceTable } = {},
): MachinePrice | undefined {
  for (const price of [
    ...tableInForce(prices?.tables ?? [], provider, at),
    ...tableInForce(bundledPrices().tables, provider, at),
  ]) {
    const found = perSecondOf(price, facts);
    if (!found) continue;
    return {
      ...found,
      price,
      table: price.name,
      leastSeconds: price.leastSeconds ?? facts.leastSeconds ?? 0,
      idlePerSecond: (diskGb) => (diskGb * (price.stoppedGbMonth ?? 0)) / MONTH_SECONDS,
    };
  }
  return undefined;
}

let bundled: PriceTable | undefined;

/** The bundled tables, read from src/ by the sources and by the build. */
export function bundledPrices(): PriceTable {
  bundled ??= JSON.parse(fs.readFileSync(new URL("../../src/orchestrator/prices.json", import.meta.url), "utf8"));
  return bundled!;
}

/** Checks the tables of a user; `field` names their origin in messages. */
export function checkPrices(value: unknown, field = "prices"): PriceTable {
  const table = value as PriceTable;
  if (typeof value !== "object" || value === null || !Array.isArray(table.tables)) {
    throw invalidPrice(
      field,
      "has no tables",
      'Write { "tables": [{ "provider": "kubernetes", "name": "…", "from": "2026-01-01", … }] }',
    );
  }
  for (const [at, price] of table.tables.entries()) checkPrice(price, `${field}.tables[${at}]`);
  return table;
}

const KEYS =
  "provider name from note perSecond sizes classes vcpuSecond gbSecond regions leastSeconds stoppedGbMonth free".split(
    " ",
  );
const AMOUNTS = ["perSecond", "vcpuSecond", "gbSecond", "leastSeconds", "stoppedGbMonth"] as const;

function checkPrice(price: Price, field: string): void {
  if (typeof price !== "object" || price === null) throw invalidPrice(field, "is not a price table", "Use an object");
  const unknown = Object.keys(price).find((key) => !KEYS.includes(key));
  if (unknown) {
    const near = findClosest(unknown, KEYS);
    throw invalidPrice(
      `${field}.${unknown}`,
      "is unknown",
      near ? `Did you mean "${near}"?` : `Known: ${KEYS.join(", ")}`,
    );
  }
  for (const key of ["provider", "name"] as const) {
    if (typeof price[key] !== "string" || price[key] === "")
      throw invalidPrice(`${field}.${key}`, "is missing", "Use a string");
  }
  if (!/^\d{4}-\d\d-\d\d$/.test(price.from) || Number.isNaN(Date.parse(price.from))) {
    throw invalidPrice(
      `${field}.from`,
      `is ${JSON.stringify(price.from)}`,
      'Use the first day of these prices, such as "2026-10-01"',
    );
  }
  const numbers: [string, unknown][] = [
    ...AMOUNTS.flatMap((key): [string, unknown][] => (price[key] === undefined ? [] : [[key, price[key]]])),
    ...Object.entries(price.sizes ?? {}).map(([key, value]): [string, unknown] => [`sizes.${key}`, value]),
    ...Object.entries(price.regions ?? {}).map(([key, value]): [string, unknown] => [`regions.${key}`, value]),
    ...Object.entries(price.free ?? {}).map(([key, value]): [string, unknown] => [`free.${key}`, value]),
    ...Object.entries(price.classes ?? {}).flatMap(([key, value]): [string, unknown][] => [
      [`classes.${key}.vcpu`, value?.vcpu],
      [`classes.${key}.includedGb`, value?.includedGb],
    ]),
  ];
  for (const [key, value] of numbers) {
    if (typeof value !== "number" || !Number.isFinite(value) || value < 0) {
      throw invalidPrice(`${field}.${key}`, `is ${JSON.stringify(value)}`, "Use a number, 0 or more");
    }
  }
  if (numbers.length === 0)
    throw invalidPrice(field, "has no price", "Set perSecond, sizes, classes, or vcpuSecond and gbSecond");
}

function invalidPrice(field: string, problem: string, remedy: string): InvalidInput {
  return new InvalidInput(`${field} ${problem}`, { field, remedy });
}

/** At most one: the newest. */
function tableInForce(tables: readonly Price[], provider: string, at: Date): Price[] {
  return tables
    .filter((table) => table.provider === provider && Date.parse(table.from) <= at.getTime())
    .sort((a, b) => Date.parse(b.from) - Date.parse(a.from))
    .slice(0, 1);
}

function perSecondOf(price: Price, facts: ProviderFacts): { perSecond: number; formula: string } | undefined {
  const base = basePrice(price, facts);
  const markup = facts.region === undefined ? 1 : (price.regions ?? { [facts.region]: 1 })[facts.region];
  if (!base || markup === undefined) return undefined;
  const times = markup === 1 ? "" : ` × ${markup} in ${facts.region}`;
  return { perSecond: base.perSecond * markup, formula: times ? `(${base.formula})${times}` : base.formula };
}

function basePrice(
  price: Price,
  { size, cpus, memoryMb }: ProviderFacts,
): { perSecond: number; formula: string } | undefined {
  const bySize = size === undefined ? undefined : price.sizes?.[size];
  if (bySize !== undefined) return { perSecond: bySize, formula: `${size} at $${formatDecimal(bySize)}` };
  if (price.classes) {
    const [, className, count] = /^([a-z]+)(?:-[a-z]+)?-(\d+)x$/.exec(size ?? "") ?? [];
    const rate = price.classes[className ?? ""];
    if (!rate) return undefined;
    const vcpus = cpus ?? Number(count);
    const included = vcpus * rate.includedGb;
    const extraGb = Math.max(0, (memoryMb === undefined ? included : memoryMb / 1024) - included);
    return {
      perSecond: vcpus * rate.vcpu + extraGb * (price.gbSecond ?? 0),
      formula: `${vcpus} vCPU × $${formatDecimal(rate.vcpu)}${extraGb > 0 ? ` + ${formatDecimal(extraGb)} GB beyond ${formatDecimal(included)} × $${formatDecimal(price.gbSecond ?? 0)}` : ""}`,
    };
  }
  if (price.vcpuSecond !== undefined || price.gbSecond !== undefined) {
    if (cpus === undefined || memoryMb === undefined) return undefined;
    const gb = memoryMb / 1024;
    const { vcpuSecond = 0, gbSecond = 0 } = price;
    return {
      perSecond: cpus * vcpuSecond + gb * gbSecond,
      formula: `${formatDecimal(cpus)} vCPU × $${formatDecimal(vcpuSecond)} + ${formatDecimal(gb)} GB × $${formatDecimal(gbSecond)}`,
    };
  }
  if (price.perSecond === undefined) return undefined;
  return { perSecond: price.perSecond, formula: `$${formatDecimal(price.perSecond)}` };
}

/** Without an exponent: 0.0000008465. */
export function formatDecimal(value: number): string {
  const text = value.toFixed(12);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}
