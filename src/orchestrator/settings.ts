// Options of a pool of machines, checked and converted once.
import { InvalidInput } from "../errors.ts";
import type * as pool from "../pool-options.ts";
import { durationMs } from "../time.ts";
import type { ProviderFactory, ProviderFacts } from "./provider.ts";

export type PoolOptions = pool.PoolOptions<ProviderFactory>;

export interface PoolSettings {
  slots: number;
  warm: number;
  max: number;
  burst: number;
  idleExitMs: number;
  /** A machine does not exit earlier, because this time is billed anyway. */
  minUptimeMs: number;
  graceMs: number;
  bootMs: number;
  price: number | undefined;
  disk: number;
  largerPool: string | undefined;
}

const known = "provider slots warm max burst idleExit grace boot price disk largerPool".split(" ");
/** A machine exits this long before the end of the billed time. */
const MARGIN_MS = 5000;

/** Checks references between pools. */
export function checkPools(pools: Readonly<Record<string, PoolOptions>>): void {
  const names = Object.keys(pools);
  for (const [pool, options] of Object.entries(pools)) {
    const { largerPool } = options ?? {};
    if (largerPool === undefined || (largerPool !== pool && names.includes(largerPool))) continue;
    const others = names.filter((name) => name !== pool);
    rejectPool(
      pool,
      "largerPool",
      largerPool === pool
        ? "names itself as largerPool"
        : `names ${JSON.stringify(largerPool)} as largerPool, which is not a pool with machines`,
      others.length > 0 ? `Use one of: ${others.join(", ")}` : "Add that pool, or remove largerPool",
    );
  }
}

export function readPoolOptions(pool: string, options: PoolOptions, facts: ProviderFacts): PoolSettings {
  if (!/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(pool)) {
    const message = `${JSON.stringify(pool)} is not a valid pool name`;
    throw new InvalidInput(message, { field: "pools", remedy: "Use lower-case letters, digits and _ . : -" });
  }
  if (typeof options !== "object" || options === null)
    rejectPool(pool, "provider", "has no settings", "Add a provider: { provider: local() }");
  if (typeof options.provider !== "function")
    rejectPool(
      pool,
      "provider",
      options.provider === undefined ? "has no provider" : "has an invalid provider",
      "Use local(), fly({ … }), cloudRun({ … }) or kubernetes({ … }) from stillwake/orchestrator",
    );
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) rejectPool(pool, unknown, `has an unknown option "${unknown}"`, `Known options: ${known.join(", ")}`);
  const warm = checkInteger(pool, "warm", options.warm ?? 0, 0);
  const max = checkInteger(pool, "max", options.max ?? Math.max(5, warm), 1);
  if (warm > max) rejectPool(pool, "warm", `has warm ${warm}, above its max of ${max}`, "Raise max, or lower warm");
  if (options.price !== undefined && !(options.price >= 0))
    rejectPool(pool, "price", `has the price ${options.price}`, "Use dollars per second, 0 or more");
  const minBilledMs = (facts.leastSeconds ?? 0) * 1000;
  return {
    slots: checkInteger(pool, "slots", options.slots ?? 1, 1),
    warm,
    max,
    burst: Math.min(checkInteger(pool, "burst", options.burst ?? max - warm, 0), max - warm),
    idleExitMs: durationMs(options.idleExit ?? (minBilledMs > 0 ? "5s" : "60s"), "idleExit"),
    minUptimeMs: Math.max(0, minBilledMs - MARGIN_MS),
    graceMs: durationMs(options.grace ?? "30s", "grace"),
    bootMs: options.boot === undefined ? (facts.bootMs ?? 120_000) : durationMs(options.boot, "boot"),
    price: options.price,
    disk: options.disk ?? 1,
    largerPool: options.largerPool,
  };
}

function checkInteger(pool: string, field: string, value: number, min: number): number {
  if (Number.isInteger(value) && value >= min && value <= 1000) return value;
  return rejectPool(pool, field, `has ${field} ${JSON.stringify(value)}`, `Use a whole number from ${min} to 1000`);
}

function rejectPool(pool: string, field: string, problem: string, remedy: string): never {
  throw new InvalidInput(`Pool "${pool}" ${problem}`, { field: `pools.${pool}.${field}`, remedy });
}
