// Numbers, spans and moments as people say them, and text of strangers made harmless.

/** "3 s", "1 min 4 s", "2 h 5 min", "3 d 4 h". */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

function pair(large: number, one: string, small: number, other: string): string {
  return small === 0 ? `${large} ${one}` : `${large} ${one} ${small} ${other}`;
}

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
  const text = coarse(size);
  return ms > 0 ? `in ${text}` : `${text} ago`;
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

export { plain as inert } from "stillwake/react";
