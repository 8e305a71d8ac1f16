// Formats durations, times, counts, sizes and amounts of money. Used by the CLI, the live view and the dashboard.

/** "long" is for pages ("1 min 4 s"), "short" for terminals ("1m 4s"). */
export type UnitStyle = "long" | "short";

const UNITS = {
  long: { day: " days", hour: " h", minute: " min", second: " s", millisecond: " ms" },
  short: { day: "d", hour: "h", minute: "m", second: "s", millisecond: "ms" },
} as const;

/** The two largest units: "850 ms", "4.2 s", "1 min 4 s", "2 h 5 min", "3 days 4 h"; short: "850ms", "1m 4s". */
export function formatDuration(ms: number, style: UnitStyle = "long"): string {
  const units = UNITS[style];
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}${units.millisecond}`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)}${units.second}`;
  const seconds = Math.round(ms / 1000);
  const days = Math.floor(seconds / 86_400);
  const parts = [
    [days, days === 1 && style === "long" ? " day" : units.day],
    [Math.floor(seconds / 3600) % 24, units.hour],
    [Math.floor(seconds / 60) % 60, units.minute],
    [seconds % 60, units.second],
  ] as const;
  const first = parts.findIndex(([amount]) => amount !== 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount !== 0)
    .map((part) => part.join(""))
    .join(" ");
}

/** The time between two moments; empty when one of them is missing. */
export function formatElapsed(from: string | null, to: string | null, style: UnitStyle = "long"): string {
  return from && to ? formatDuration(Math.max(0, Date.parse(to) - Date.parse(from)), style) : "";
}

/** "3 min ago", "in 3 min" or "now", in the largest unit that fits; empty for no moment. */
export function formatAgo(at: string | Date | null | undefined, now = Date.now(), style: UnitStyle = "long"): string {
  if (!at) return "";
  const ms = now - new Date(at).getTime();
  const seconds = Math.floor(Math.abs(ms) / 1000);
  if (seconds === 0) return "now";
  const [length, unit] = (
    [
      [86_400, style === "long" ? " d" : "d"],
      [3600, UNITS[style].hour],
      [60, UNITS[style].minute],
      [1, UNITS[style].second],
    ] as const
  ).find(([one]) => seconds >= one)!;
  const text = `${Math.floor(seconds / length)}${unit}`;
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** The local time of day: "14:05:09". */
export function formatTime(at: string | number | Date): string {
  const date = new Date(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** The local time, with the date unless that is today: "14:05:09", "2030-01-02 14:05:09". */
export function formatDueTime(at: string | number | Date, now = Date.now()): string {
  const date = new Date(at);
  if (date.toDateString() === new Date(now).toDateString()) return formatTime(date);
  const day = [date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0"));
  return `${[date.getFullYear(), ...day].join("-")} ${formatTime(date)}`;
}

/** "1,234.5". */
export function formatCount(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

/** "1 job", "2 jobs". */
export function formatPlural(amount: number, one: string, many = `${one}s`): string {
  return `${formatCount(amount)} ${amount === 1 ? one : many}`;
}

/** "812 bytes", "1.5 kB", "3.4 MB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${formatCount(bytes / 1000 ** power)} ${["kB", "MB", "GB", "TB"][power - 1]}`;
}

/** Dollars with two digits; amounts below ten cents with up to six. */
export function formatMoney(dollars: number): string {
  if (dollars === 0 || dollars >= 0.1) return `$${dollars.toFixed(2)}`;
  return dollars < 0.000001 ? "under $0.000001" : `$${dollars.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}
