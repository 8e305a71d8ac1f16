// What a machine costs per second: dated tables, of which the newest one in force counts. They are data (prices.json), because they change more often than
// code does, and a user's own come before them. A machine whose price nobody knows has none: it is never taken for free.
import fs from "node:fs";
import { InvalidInput } from "../errors.ts";
import { nearest } from "../text/suggest.ts";
import type { ProviderFacts } from "./provider.ts";

/** The prices of one provider from a day on. How they are made up is told by which of them are given. */
export interface Price {
  provider: string;
  /** Kept with every cost, to tell by which prices it was worked out. */
  name: string;
  /** The first day (UTC), such as "2026-10-01". */
  from: string;
  note?: string;
  /** The same for every machine. */
  perSecond?: number;
  /** By the size of the machine. */
  sizes?: Readonly<Record<string, number>>;
  /** By the class that a size begins with, such as "performance": per vCPU, with so much memory included in each. */
  classes?: Readonly<Record<string, { vcpu: number; includedGb: number }>>;
  vcpuSecond?: number;
  gbSecond?: number;
  /** Times so much there. A region that is not named has no price. */
  regions?: Readonly<Record<string, number>>;
  /** Paid for at least, for each machine that is started. */
  leastSeconds?: number;
  /** Of the root file system of a machine that is stopped. */
  stoppedGbMonth?: number;
  /** Not charged for in a month. */
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
  /** Of a stopped machine that keeps so many GB. */
  idlePerSecond(diskGb: number): number;
  /** What perSecond is made of, for those who explain it. */
  formula: string;
  price: Price;
}

/** Months of prices have 30 days, as in the price lists. */
export const MONTH_SECONDS = 30 * 86_400;

/** Undefined where nobody knows: no table, or a size or region that it does not have. */
export function priceOf(
  provider: string,
  facts: ProviderFacts,
  { at = new Date(), prices }: { at?: Date; prices?: PriceTable } = {},
): MachinePrice | undefined {
  for (const price of [...inForce(prices?.tables ?? [], provider, at), ...inForce(ownPrices().tables, provider, at)]) {
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

let own: PriceTable | undefined;

/** The tables that come with this version. Read from src/ in both forms of the code: nothing is copied when it is built. */
export function ownPrices(): PriceTable {
  own ??= JSON.parse(fs.readFileSync(new URL("./prices.json", import.meta.url), "utf8"));
  return own!;
}

/** Checks tables of a user's own; `field` names where they stand. */
export function checkPrices(given: unknown, field = "prices"): PriceTable {
  const table = given as PriceTable;
  if (typeof given !== "object" || given === null || !Array.isArray(table.tables)) {
    throw refused(
      field,
      "has no tables",
      'Write { "tables": [{ "provider": "kubernetes", "name": "…", "from": "2026-01-01", … }] }',
    );
  }
  for (const [at, price] of table.tables.entries()) checkPrice(price, `${field}.tables[${at}]`);
  return table;
}

const known =
  "provider name from note perSecond sizes classes vcpuSecond gbSecond regions leastSeconds stoppedGbMonth free".split(
    " ",
  );
const amounts = ["perSecond", "vcpuSecond", "gbSecond", "leastSeconds", "stoppedGbMonth"] as const;

function checkPrice(price: Price, field: string): void {
  if (typeof price !== "object" || price === null) throw refused(field, "is no table", "Use an object");
  const unknown = Object.keys(price).find((key) => !known.includes(key));
  if (unknown) {
    const near = nearest(unknown, known);
    throw refused(`${field}.${unknown}`, "is unknown", near ? `Did you mean "${near}"?` : `Known: ${known.join(", ")}`);
  }
  for (const key of ["provider", "name"] as const) {
    if (typeof price[key] !== "string" || price[key] === "")
      throw refused(`${field}.${key}`, "is missing", "Use a text");
  }
  if (!/^\d{4}-\d\d-\d\d$/.test(price.from) || Number.isNaN(Date.parse(price.from))) {
    throw refused(
      `${field}.from`,
      `is ${JSON.stringify(price.from)}`,
      'Use the first day of these prices, such as "2026-10-01"',
    );
  }
  const numbers: [string, unknown][] = [
    ...amounts.flatMap((key): [string, unknown][] => (price[key] === undefined ? [] : [[key, price[key]]])),
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
      throw refused(`${field}.${key}`, `is ${JSON.stringify(value)}`, "Use a number, 0 or more");
    }
  }
  if (numbers.length === 0)
    throw refused(field, "has no price", "Give perSecond, sizes, classes, or vcpuSecond and gbSecond");
}

function refused(field: string, what: string, remedy: string): InvalidInput {
  return new InvalidInput(`${field} ${what}`, { field, remedy });
}

/** The newest first. */
function inForce(tables: readonly Price[], provider: string, at: Date): Price[] {
  return tables
    .filter((table) => table.provider === provider && Date.parse(table.from) <= at.getTime())
    .sort((one, two) => Date.parse(two.from) - Date.parse(one.from))
    .slice(0, 1);
}

function perSecondOf(price: Price, facts: ProviderFacts): { perSecond: number; formula: string } | undefined {
  const base = baseOf(price, facts);
  const markup = facts.region === undefined ? 1 : (price.regions ?? { [facts.region]: 1 })[facts.region];
  if (!base || markup === undefined) return undefined;
  const times = markup === 1 ? "" : ` × ${markup} in ${facts.region}`;
  return { perSecond: base.perSecond * markup, formula: times ? `(${base.formula})${times}` : base.formula };
}

function baseOf(
  price: Price,
  { size, cpus, memoryMb }: ProviderFacts,
): { perSecond: number; formula: string } | undefined {
  const bySize = size === undefined ? undefined : price.sizes?.[size];
  if (bySize !== undefined) return { perSecond: bySize, formula: `${size} at $${plain(bySize)}` };
  if (price.classes) {
    const [, word, count] = /^([a-z]+)(?:-[a-z]+)?-(\d+)x$/.exec(size ?? "") ?? [];
    const kind = price.classes[word ?? ""];
    if (!kind) return undefined;
    const vcpus = cpus ?? Number(count);
    const included = vcpus * kind.includedGb;
    const more = Math.max(0, (memoryMb === undefined ? included : memoryMb / 1024) - included);
    return {
      perSecond: vcpus * kind.vcpu + more * (price.gbSecond ?? 0),
      formula: `${vcpus} vCPU × $${plain(kind.vcpu)}${more > 0 ? ` + ${plain(more)} GB beyond ${plain(included)} × $${plain(price.gbSecond ?? 0)}` : ""}`,
    };
  }
  if (price.vcpuSecond !== undefined || price.gbSecond !== undefined) {
    if (cpus === undefined || memoryMb === undefined) return undefined;
    const gb = memoryMb / 1024;
    const { vcpuSecond = 0, gbSecond = 0 } = price;
    return {
      perSecond: cpus * vcpuSecond + gb * gbSecond,
      formula: `${plain(cpus)} vCPU × $${plain(vcpuSecond)} + ${plain(gb)} GB × $${plain(gbSecond)}`,
    };
  }
  if (price.perSecond === undefined) return undefined;
  return { perSecond: price.perSecond, formula: `$${plain(price.perSecond)}` };
}

/** Without an exponent: 0.0000008465. */
export function plain(value: number): string {
  const text = value.toFixed(12);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}
