// Numbers, moments and money as people say them, and text of strangers made harmless.
import { plainLine, span } from "stillwake/react";

export { plainLine as inLine, span } from "stillwake/react";

const numbers = new Intl.NumberFormat("en");
const whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const short = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});

export const count = (value: number) => numbers.format(value);
export const several = (value: number, one: string, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const wholeTime = (at: string) => whole.format(new Date(at));
export const dayTime = (at: string) => short.format(new Date(at));

export function distance(at: string, now: number): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(at)) / 1000));
  if (seconds < 60) return seconds < 5 ? "now" : `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} d ago`;
}

/** From its start to its end, or to now. */
export function took(from: string | null, to: string | null, now: number): string | null {
  return from === null ? null : span((to ? Date.parse(to) : now) - Date.parse(from));
}

export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Cents; for what is less than ten of them as many digits as tell something. */
export function money(amount: number): string {
  if (amount === 0 || amount >= 0.1) return `$${amount.toFixed(2)}`;
  return amount < 0.000001 ? "under $0.000001" : `$${amount.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}

/** "97.4 %", and never a round figure that it is not. */
export function percent(part: number): string {
  const value = part * 100;
  if (value > 0 && value < 0.1) return "under 0.1 %";
  return `${value.toFixed(1)} %`;
}

/** "99th percentile". */
export function percentile(part: number): string {
  const value = Math.floor(part * 100);
  const tens = value % 100;
  const end = tens > 10 && tens < 14 ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th");
  return `${value}${end} percentile`;
}

/** An address for people, if it is one that may be followed. */
export function safeLink(url: string | null): string | undefined {
  return url !== null && URL.canParse(url) && new URL(url).protocol === "https:" ? url : undefined;
}

export function shortCommit(commit: string): string {
  return plainLine(commit).slice(0, 10);
}
