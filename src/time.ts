// Durations: strings such as "30s", "5m", "1h30m" in the API, numbers with names ending in Ms inside.
import { InvalidInput } from "./errors.ts";

type Part = `${number}${"ms" | "s" | "m" | "h" | "d" | "w"}`;

/** "500ms", "30s", "1.5h", "1h30m", "7d", "2w". For a text that the compiler cannot read, such as a setting: `duration(text)`. */
export type Duration = Part | `${Part}${Part}` | `${Part} ${Part}`;

/** Checks a text at runtime, for values that are not written in the code: `timeout: duration(process.env.TIMEOUT)`. */
export function duration(text: string | undefined, field = "duration"): Duration {
  durationMs(text as string, field);
  return text as Duration;
}

const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** `field` names the setting in the error. The longest duration is 366 days. */
export function durationMs(value: string, field: string): number {
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
      remedy: 'Use a shorter duration, or "forever" for a retention',
    });
  }
  return ms;
}

/** Like durationMs; undefined means no limit. */
export function limitMs(value: string | undefined, field: string): number {
  return value === undefined ? Number.POSITIVE_INFINITY : durationMs(value, field);
}

/** A Postgres interval such as "1500 milliseconds". */
export function toInterval(value: string, field: string): string {
  return `${durationMs(value, field)} milliseconds`;
}

/** Exponential from `initialMs` to `maxMs`. The upper half of each wait is random, so that clients do not retry together. */
export function backoffMs(
  attempt: number,
  initialMs: number,
  maxMs: number,
  random: () => number = Math.random,
): number {
  return Math.min(initialMs * 2 ** Math.min(attempt, 30), maxMs) * (0.5 + random() / 2);
}

/** Milliseconds since 1970 of an RFC 3339 time or an HTTP date. Only these two formats: Date.parse accepts almost any text. */
export function parseTimestamp(text: string): number | undefined {
  const known =
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text) ||
    /^\w{3,9}, \d\d[ -]\w{3}[ -]\d{2,4} \d\d:\d\d:\d\d GMT$/.test(text);
  const ms = known ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}

/** The wait in milliseconds that a Retry-After header requests: seconds, or a date relative to `now`. Undefined if invalid. */
export function parseRetryAfter(header: string | null | undefined, now: number = Date.now()): number | undefined {
  const text = header?.trim() ?? "";
  if (/^\d{1,9}(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const date = parseTimestamp(text);
  return date === undefined ? undefined : Math.max(0, date - now);
}
