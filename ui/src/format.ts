// Numbers, sizes, durations and times as text, and untrusted text made safe to show.
import { escapeTextLine, formatAgo, formatDuration, formatTime } from "stillwake/react";

export {
  escapeText,
  escapeTextLine as escapeLine,
  formatBytes,
  formatCount,
  formatDuration,
  formatMoney,
  formatPlural as plural,
  formatTime,
} from "stillwake/react";

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

const dateTime = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "medium",
  hourCycle: "h23",
} as never);
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const formatDateTime = (at: string | Date) => dateTime.format(new Date(at));
export const formatDayTime = (at: string | Date) => `${day.format(new Date(at))} ${formatTime(at)}`;

/** "12 s ago", "in 3 min". */
export function formatRelative(at: string | Date, now: number): string {
  const ms = new Date(at).getTime() - now;
  // A future time shows its minutes, because it is waited for; a past one needs only its largest unit.
  return ms >= 3600_000 ? `in ${formatDuration(Math.round(ms / 60_000) * 60_000)}` : formatAgo(at, now);
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
