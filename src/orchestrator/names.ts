// The names of machines: which fleet, which pool, which place. A machine of another fleet can never have one of ours, and one name means one machine.
import { createHash } from "node:crypto";

/**
 * Such as "sw-1a2b3c4d-scan-m3". Providers take lower-case letters, digits and dashes, 63 at most, and a burst machine gets a number behind it: a pool whose name
 * does not fit is shortened and told apart by a piece of its hash.
 */
export function machineName(fleet: string, pool: string, slot: number): string {
  return `${poolPrefix(fleet, pool)}m${slot}`;
}

/** What all machines of a pool begin with. One may be the beginning of another's: slotOf() tells whose a machine is. */
export function poolPrefix(fleet: string, pool: string): string {
  const plain = pool.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-+|-+$/g, "");
  const fits = plain === pool && pool.length <= 24;
  const word = fits ? pool : `${plain.slice(0, 16)}-x${createHash("sha256").update(pool).digest("hex").slice(0, 7)}`;
  return `sw-${fleet}-${word}-`;
}

/** The place in the pool, or undefined when the name is no name of a machine of it. */
export function slotOf(fleet: string, pool: string, name: string): number | undefined {
  const prefix = poolPrefix(fleet, pool);
  const rest = name.startsWith(prefix) ? /^m(\d{1,6})(-\d+)?$/.exec(name.slice(prefix.length)) : null;
  return rest ? Number(rest[1]) : undefined;
}
