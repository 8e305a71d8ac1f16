// Moments and spans as people say them: "3m ago", "in 2h", "1m 12s". And back: what --since and --until are given.
import { InvalidInput } from "../../errors.ts";
import { durationMs } from "../../time.ts";

const steps: readonly (readonly [unit: string, ms: number])[] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
];

/** "3m ago" or "in 3m"; nothing for nothing. */
export function ago(moment: string | null | undefined, now = Date.now()): string {
  if (!moment) return "";
  const ms = now - Date.parse(moment);
  const text = roughly(Math.abs(ms));
  return text === "0s" ? "now" : ms > 0 ? `${text} ago` : `in ${text}`;
}

/** In the largest unit that fits. */
function roughly(ms: number): string {
  const [unit, length] = steps.find(([, one]) => ms >= one) ?? ["s", 1000];
  return `${Math.floor(ms / length)}${unit}`;
}

/** "850ms", "4.2s", "1m 12s", "2h 5m", "3d 4h". */
export function span(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)}s`;
  const seconds = Math.round(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ].filter(([amount]) => amount !== 0);
  return parts
    .slice(0, 2)
    .map((part) => part.join(""))
    .join(" ");
}

export function between(from: string | null, to: string | null): string {
  return from && to ? span(Math.max(0, Date.parse(to) - Date.parse(from))) : "";
}

/** The time of day here. */
export function clock(moment: string): string {
  const date = new Date(moment);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** "2h" is two hours ago; anything else must be a moment. */
export function momentOf(text: string | undefined, field: string, now = Date.now()): string | undefined {
  if (text === undefined) return undefined;
  if (/^\s*\d/.test(text) && !/^\s*\d{4}-/.test(text)) return new Date(now - durationMs(text, field)).toISOString();
  const moment = Date.parse(text);
  if (!Number.isNaN(moment)) return new Date(moment).toISOString();
  throw new InvalidInput(`--${field} ${JSON.stringify(text)} is neither a time ago nor a moment`, {
    field,
    remedy: "Write 2h, 30m or 7d for so long ago, or a moment such as 2030-01-31T12:00:00Z",
  });
}
