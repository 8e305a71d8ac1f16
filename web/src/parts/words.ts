// Numbers, spans and moments as people say them, and text of strangers made harmless.
import { span } from "stillwake/react";

export { plain as inert, span } from "stillwake/react";

const counts = new Intl.NumberFormat("en");

export function count(value: number): string {
  return counts.format(value);
}

/** "1 job", "2 jobs". */
export function several(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const whole = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "medium",
  hourCycle: "h23",
} as never);
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const clockTime = (at: string | Date) => clock.format(new Date(at));
export const wholeTime = (at: string | Date) => whole.format(new Date(at));
export const dayTime = (at: string | Date) => `${day.format(new Date(at))} ${clockTime(at)}`;

/** "12 s ago", "in 3 min". */
export function distance(at: string | Date, now: number): string {
  const ms = new Date(at).getTime() - now;
  const size = Math.abs(ms);
  if (size < 1000) return "now";
  // What is to come is waited for, so its minutes count; what is past only grows older.
  if (ms >= 3600_000) return `in ${span(Math.round(ms / 60_000) * 60_000)}`;
  return ms > 0 ? `in ${coarse(size)}` : `${coarse(size)} ago`;
}

function coarse(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Enough of an id to know it again: the end, because the beginning is the time. */
export function shortId(id: string): string {
  return id.slice(-8);
}
