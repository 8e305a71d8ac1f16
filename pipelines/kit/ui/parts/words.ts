// Numbers and moments as people say them, and text of strangers made harmless.
import { plainLine, span } from "stillwake/react";

export { clock, plainLine as inLine, span } from "stillwake/react";

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

/** "97.4 %", and never a round figure that it is not. */
export function percent(part: number): string {
  const value = part * 100;
  if (value > 0 && value < 0.1) return "under 0.1 %";
  return `${value.toFixed(1)} %`;
}

/** An address for people, if it is one that may be followed. */
export function safeLink(url: string | null): string | undefined {
  return url !== null && URL.canParse(url) && new URL(url).protocol === "https:" ? url : undefined;
}

export function shortCommit(commit: string): string {
  return plainLine(commit).slice(0, 10);
}
