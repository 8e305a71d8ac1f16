// Times in the short style of terminals ("3m ago", "1m 12s"), and the parser of --since and --until.
import { InvalidInput } from "../../errors.ts";
import * as format from "../../text/format.ts";
import { durationMs } from "../../time.ts";

/** "3m ago", "in 2h"; empty for no moment. */
export function formatAgo(at: string | null | undefined, now = Date.now()): string {
  return format.formatAgo(at, now, "short");
}

/** "850ms", "4.2s", "1m 12s", "2h 5m", "3d 4h". */
export function formatDuration(ms: number): string {
  return format.formatDuration(ms, "short");
}

export function formatElapsed(from: string | null, to: string | null): string {
  return format.formatElapsed(from, to, "short");
}

/** Parses a time ago ("2h") or a timestamp, and returns an ISO timestamp. */
export function parseMoment(text: string | undefined, field: string, now = Date.now()): string | undefined {
  if (text === undefined) return undefined;
  if (/^\s*\d/.test(text) && !/^\s*\d{4}-/.test(text)) return new Date(now - durationMs(text, field)).toISOString();
  const moment = Date.parse(text);
  if (!Number.isNaN(moment)) return new Date(moment).toISOString();
  throw new InvalidInput(`--${field} ${JSON.stringify(text)} is neither a duration nor a timestamp`, {
    field,
    remedy: "Write 2h, 30m or 7d for a time ago, or a timestamp such as 2030-01-31T12:00:00Z",
  });
}
