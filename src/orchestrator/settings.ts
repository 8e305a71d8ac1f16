// What a pool of machines can be told, checked and converted once.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import type { ProviderFactory, ProviderFacts } from "./provider.ts";

export interface PoolOptions {
  /** Where its machines come from: local(…), fly(…), cloudRun(…), kubernetes(…). */
  provider: ProviderFactory;
  /** Jobs at once on one machine. Default: 1, so that N jobs have N machines. */
  slots?: number;
  /** Machines that are made beforehand and stopped: they start sooner. Default: 0. */
  warm?: number;
  /** Machines at once. Default: 5. */
  max?: number;
  /** Of which so many beyond the warm ones, made when those are busy and gone when they end. Default: max − warm. */
  burst?: number;
  /** A machine without a job ends after this time. Default: 60s; where a time is paid for at least, it stays that long. */
  idleExit?: Duration;
  /** From being told to end to being killed: how long jobs have to hand themselves back. Default: 30s. */
  grace?: Duration;
  /** How long a machine may take from its start until its worker is there. Default: 2m. */
  boot?: Duration;
  /** Per second, in dollars; instead of the price table's. */
  price?: number;
  /** GB of root file system that a stopped machine keeps, for its price. Default: 1. */
  disk?: number;
  /** A job that ran out of memory here goes on in this pool. */
  larger?: string;
}

export interface PoolSettings {
  slots: number;
  warm: number;
  max: number;
  burst: number;
  idleExitMs: number;
  /** It does not leave before it is so old: that time is paid for anyway. */
  minUptimeMs: number;
  graceMs: number;
  bootMs: number;
  price: number | undefined;
  disk: number;
  larger: string | undefined;
}

const known = "provider slots warm max burst idleExit grace boot price disk larger".split(" ");
/** A machine that ends this much before the paid time is over does not run into the next. */
const MARGIN_MS = 5000;

/** What can be seen only where all of them are known. */
export function checkPools(pools: Readonly<Record<string, PoolOptions>>): void {
  const names = Object.keys(pools);
  for (const [pool, options] of Object.entries(pools)) {
    const { larger } = options ?? {};
    if (larger === undefined || (larger !== pool && names.includes(larger))) continue;
    const elsewhere = names.filter((name) => name !== pool);
    refuse(
      pool,
      "larger",
      larger === pool
        ? "names itself as the larger one"
        : `names ${JSON.stringify(larger)} as the larger one, which has no machines`,
      elsewhere.length > 0
        ? `Name another pool with machines: ${elsewhere.join(", ")}`
        : "Add that pool, or leave larger out",
    );
  }
}

export function readPoolOptions(pool: string, options: PoolOptions, facts: ProviderFacts): PoolSettings {
  if (!/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(pool)) {
    const message = `${JSON.stringify(pool)} cannot name a pool`;
    throw new InvalidInput(message, { field: "pools", remedy: "Use lower-case letters, digits and _ . : -" });
  }
  if (typeof options !== "object" || options === null)
    refuse(pool, "provider", "has no settings", "Give it some: { provider: local() }");
  if (typeof options.provider !== "function")
    refuse(
      pool,
      "provider",
      options.provider === undefined ? "has no provider" : "has a provider that is none",
      "Give it what local(), fly({ … }), cloudRun({ … }) or kubernetes({ … }) of stillwake/orchestrator returns",
    );
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) refuse(pool, unknown, `has an unknown option "${unknown}"`, `Known options: ${known.join(", ")}`);
  const warm = whole(pool, "warm", options.warm ?? 0, 0);
  const max = whole(pool, "max", options.max ?? Math.max(5, warm), 1);
  if (warm > max) refuse(pool, "warm", `keeps ${warm} machines warm and may have ${max}`, "Raise max, or lower warm");
  if (options.price !== undefined && !(options.price >= 0))
    refuse(pool, "price", `has the price ${options.price}`, "Use dollars per second, 0 or more");
  const leastMs = (facts.leastSeconds ?? 0) * 1000;
  return {
    slots: whole(pool, "slots", options.slots ?? 1, 1),
    warm,
    max,
    burst: Math.min(whole(pool, "burst", options.burst ?? max - warm, 0), max - warm),
    idleExitMs: durationMs(options.idleExit ?? (leastMs > 0 ? "5s" : "60s"), "idleExit"),
    minUptimeMs: Math.max(0, leastMs - MARGIN_MS),
    graceMs: durationMs(options.grace ?? "30s", "grace"),
    bootMs: options.boot === undefined ? (facts.bootMs ?? 120_000) : durationMs(options.boot, "boot"),
    price: options.price,
    disk: options.disk ?? 1,
    larger: options.larger,
  };
}

function whole(pool: string, field: string, value: number, least: number): number {
  if (Number.isInteger(value) && value >= least && value <= 1000) return value;
  return refuse(pool, field, `has ${field} ${JSON.stringify(value)}`, `Use a whole number from ${least} to 1000`);
}

function refuse(pool: string, field: string, what: string, remedy: string): never {
  throw new InvalidInput(`Pool "${pool}" ${what}`, { field: `pools.${pool}.${field}`, remedy });
}
