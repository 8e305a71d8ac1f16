// Durations are written as strings ("30s", "5m", "1h30m") and converted once; inside, names end in Ms.
import { InvalidInput } from "./errors.ts";

export type Duration = string;

const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** `field` names the setting in the error. A year is the longest duration anything here needs. */
export function durationMs(value: Duration, field: string): number {
  const parts = typeof value === "string" ? [...value.trim().matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*/gy)] : [];
  const read = parts.reduce((length, part) => length + part[0].length, 0);
  if (parts.length === 0 || read !== value.trim().length) {
    throw new InvalidInput(`${field} ${JSON.stringify(value)} is not a duration`, {
      field,
      remedy: 'Write a number and a unit, such as "500ms", "30s", "5m", "1h30m" or "7d"',
    });
  }
  const ms = parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * unitMs[unit!]!, 0);
  if (ms > 366 * unitMs.d!) {
    throw new InvalidInput(`${field} ${JSON.stringify(value)} is longer than the limit of 366 days`, {
      field,
      remedy: 'Use a shorter duration, or "forever" where a retention is asked for',
    });
  }
  return ms;
}

/** The same where an absent one means that there is no limit. */
export function limitMs(value: Duration | undefined, field: string): number {
  return value === undefined ? Number.POSITIVE_INFINITY : durationMs(value, field);
}

/** For SQL, which reads "1500 milliseconds" as an interval. */
export function toInterval(value: Duration, field: string): string {
  return `${durationMs(value, field)} milliseconds`;
}

/** Exponential from `firstMs` to `mostMs`, the upper half of each step random, so that many clients do not come back together. */
export function backoffMs(
  attempt: number,
  firstMs: number,
  mostMs: number,
  random: () => number = Math.random,
): number {
  return Math.min(firstMs * 2 ** Math.min(attempt, 30), mostMs) * (0.5 + random() / 2);
}
