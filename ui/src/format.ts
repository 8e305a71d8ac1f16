// Numbers, sizes, durations and times as text, and untrusted text made safe to show.
import { escapeTextLine, formatDuration } from "stillwake/react";

export { escapeText, escapeTextLine as escapeLine, formatDuration } from "stillwake/react";

const numbers = new Intl.NumberFormat("en");

export function formatCount(value: number): string {
  return numbers.format(value);
}

/** "1 job", "2 jobs". */
export function plural(value: number, singular: string, many = `${singular}s`): string {
  return `${formatCount(value)} ${value === 1 ? singular : many}`;
}

export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Dollars and cents; more digits for amounts under ten cents. */
export function formatMoney(amount: number): string {
  if (amount === 0 || amount >= 0.1) return `$${amount.toFixed(2)}`;
  return amount < 0.000001 ? "under $0.000001" : `$${amount.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}

/** "44 %". */
export function formatShare(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const share = (part / whole) * 100;
  return share > 0 && share < 1 ? "under 1 %" : `${Math.round(share)} %`;
}

/** A fraction from 0 to 1 as a percentage with one decimal: "97.4 %". */
export function formatPercent(share: number): string {
  const value = share * 100;
  return value > 0 && value < 0.1 ? "under 0.1 %" : `${value.toFixed(1)} %`;
}

const time = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const dateTime = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "medium",
  hourCycle: "h23",
} as never);
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const formatTime = (at: string | Date) => time.format(new Date(at));
export const formatDateTime = (at: string | Date) => dateTime.format(new Date(at));
export const formatDayTime = (at: string | Date) => `${day.format(new Date(at))} ${formatTime(at)}`;

/** "12 s ago", "in 3 min". */
export function formatRelative(at: string | Date, now: number): string {
  const ms = new Date(at).getTime() - now;
  const distance = Math.abs(ms);
  if (distance < 1000) return "now";
  // A future time shows its minutes, because it is waited for; a past one needs only its largest unit.
  if (ms >= 3600_000) return `in ${formatDuration(Math.round(ms / 60_000) * 60_000)}`;
  return ms > 0 ? `in ${largestUnit(distance)}` : `${largestUnit(distance)} ago`;
}

function largestUnit(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** The end of an id: the beginning is a timestamp and the same for many ids. */
export function shortId(id: string): string {
  return id.slice(-8);
}

export function shortCommit(commit: string): string {
  return escapeTextLine(commit).slice(0, 10);
}

/** The URL if it is safe to link to, else undefined. */
export function safeLink(url: string | null): string | undefined {
  return url !== null && URL.canParse(url) && new URL(url).protocol === "https:" ? url : undefined;
}
