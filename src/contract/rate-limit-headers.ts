// Parses the rate limit headers of a response: GitHub's, the IETF drafts', OpenAI's and Anthropic's. The headers are
// untrusted: anything that cannot be parsed is ignored. Part of `stillwake/contract`.
import { parseRetryAfter, parseTimestamp } from "../time.ts";

/** The caller's quota as reported by a response. All times are relative, because only the database's clock decides. */
export interface Observation {
  /** Calls per window. */
  limit?: number;
  /** Calls left in this window. */
  remaining?: number;
  /** Milliseconds until the window ends. */
  resetMs?: number;
  /**
   * The service rejected the call because the quota is exhausted (429; 403 or 503 with a retry-after or an empty
   * quota): no call is allowed for this long.
   */
  refusedMs?: number;
}

export type Learn = (response: {
  status: number;
  headers: { get(name: string): string | null };
}) => Observation | undefined;

/** For rejected calls without a time; GitHub's documented wait. */
const REFUSED_MS = 60_000;
/** Resets are rounded to seconds: the reset of a rejected call that is already past is off by at most this much. */
const SECOND_MS = 1000;
const MAX_MS = 86_400_000;
/** 31 years: a time further away is an error of the service. */
const ABSURD_MS = 1e12;
/** More calls than any window allows; services send such numbers for "unlimited". */
const ABSURD_COUNT = 1e9;

const MAX_TEXT = 2000;

/** The star is replaced by limit, remaining and reset. */
const requestHeaders = [
  "x-ratelimit-*",
  "x-rate-limit-*",
  "ratelimit-*",
  "x-ratelimit-*-requests",
  "anthropic-ratelimit-requests-*",
];
const tokenHeaders = [
  "x-ratelimit-*-tokens",
  "anthropic-ratelimit-tokens-*",
  "anthropic-ratelimit-input-tokens-*",
  "anthropic-ratelimit-output-tokens-*",
];

export const rateLimitHeaders: Learn = ({ status, headers }) => {
  const read = createReader(headers);
  // Relative to the service's clock, which rounds down to seconds, so that a window never seems to end too early.
  const now = parseTimestamp(read("date")) ?? Date.now();
  const { limit, remaining, resetMs } = bindingQuota([
    ...requestHeaders.map((pattern) => readHeaders(read, pattern, now, true)),
    ...tokenHeaders.map((pattern) => readHeaders(read, pattern, now, false)),
    ...readPolicies(read, now),
  ]);
  const refusedMs = rejectedMs(status, remaining, resetMs, retryAfterMs(read, now));
  const observation: Observation = {
    ...(limit !== undefined && { limit }),
    ...(remaining !== undefined && { remaining }),
    ...(resetMs !== undefined && { resetMs }),
    ...(refusedMs !== undefined && { refusedMs }),
  };
  return Object.keys(observation).length > 0 ? observation : undefined;
};

interface Quota {
  limit: number | undefined;
  remaining: number | undefined;
  resetMs: number | undefined;
  /** False for quotas in another unit, such as a language model's tokens: they limit calls only when they are empty. */
  countsCalls: boolean;
}

type Read = (name: string) => string;

/** Missing and overlong headers read as "". Some HTTP clients' headers return other types than strings, or throw. */
function createReader(headers: { get(name: string): unknown }): Read {
  return (name) => {
    try {
      const value = headers.get(name);
      const text = typeof value === "string" || typeof value === "number" ? String(value).trim() : "";
      return text.length > MAX_TEXT ? "" : text;
    } catch {
      return "";
    }
  };
}

function readHeaders(read: Read, pattern: string, now: number, countsCalls: boolean): Quota {
  const field = (name: string) => read(pattern.replace("*", name));
  return {
    // Older drafts append policies: "100, 100;w=60".
    limit: parseCount(field("limit").split(/[,;]/)[0]),
    remaining: parseCount(field("remaining")),
    resetMs: clamp(untilMs(field("reset"), now)),
    countsCalls,
  };
}

/** `RateLimit: "default";r=50;t=30` with its quota in RateLimit-Policy, and the earlier `limit=100, remaining=50, reset=30`. */
function readPolicies(read: Read, now: number): Quota[] {
  const policies = new Map(parseItems(read("ratelimit-policy")).map(({ name, parameters }) => [name, parameters]));
  const states = parseItems(read("ratelimit"));
  const flat = new Map(states.map(({ name }) => parsePair(name)));
  const quotas = states.map(({ name, parameters }) => {
    const policy = policies.get(name);
    const unit = policy?.get("qu") ?? "requests";
    return {
      limit: parseCount(policy?.get("q")),
      remaining: parseCount(parameters.get("r")),
      resetMs: clamp(untilMs(parameters.get("t"), now)),
      countsCalls: /^requests?$/.test(unit),
      // A limit on concurrent calls has no window.
      hasWindow: unit !== "concurrent-requests",
    };
  });
  return [
    ...quotas.filter(({ hasWindow }) => hasWindow),
    {
      limit: parseCount(flat.get("limit")),
      remaining: parseCount(flat.get("remaining")),
      resetMs: clamp(untilMs(flat.get("reset"), now)),
      countsCalls: true,
    },
  ];
}

/** The quota with the least remaining. If several are empty, calls are blocked until the last of them resets. */
function bindingQuota(quotas: Quota[]): Partial<Quota> {
  const left = ({ remaining = Number.MAX_VALUE }: Quota) => remaining;
  const [tightest] = quotas
    .filter(({ limit, remaining, resetMs }) => limit !== undefined || remaining !== undefined || resetMs !== undefined)
    .filter(({ countsCalls }) => countsCalls)
    .sort((a, b) => left(a) - left(b) || (b.resetMs ?? -1) - (a.resetMs ?? -1));
  const empty = quotas.filter(({ remaining }) => remaining === 0);
  if (empty.length === 0) return tightest ?? {};
  const last = Math.max(...empty.map(({ resetMs }) => resetMs ?? -1));
  return { limit: tightest?.limit, remaining: 0, resetMs: last < 0 ? undefined : last };
}

/** A 403 or 503 can have other reasons: it counts as a rate limit only with a retry-after or an empty quota. */
function rejectedMs(status: number, remaining?: number, resetMs?: number, retryMs?: number): number | undefined {
  const refused = status === 429 || ((status === 403 || status === 503) && (remaining === 0 || retryMs !== undefined));
  if (!refused || retryMs !== undefined) return refused ? retryMs : undefined;
  // With calls left another limit rejected the call; this window's reset does not apply to it.
  if (resetMs === undefined || (remaining ?? 0) > 0) return REFUSED_MS;
  return Math.max(resetMs, SECOND_MS);
}

function retryAfterMs(read: Read, now: number): number | undefined {
  const exact = parseNumber(read("retry-after-ms"));
  if (exact !== undefined && exact < ABSURD_MS) return clamp(exact);
  const text = read("retry-after");
  if (text.startsWith("-")) return undefined;
  // Some services send a Go duration or a Unix time instead of a valid Retry-After.
  const ms = parseRetryAfter(text, now) ?? untilMs(text, now);
  return ms !== undefined && ms < ABSURD_MS ? clamp(ms) : undefined;
}

/** Parses a number, a Go duration, an RFC 3339 time or an HTTP date. Negative when the time has passed. */
function untilMs(text = "", now: number): number | undefined {
  const timestamp = parseTimestamp(text);
  const ms = secondsMs(text, now) ?? goDurationMs(text) ?? (timestamp === undefined ? undefined : timestamp - now);
  return ms !== undefined && ms < ABSURD_MS ? ms : undefined;
}

/** Small numbers are seconds from now, larger ones seconds since 1970, the largest milliseconds since then. */
function secondsMs(text: string, now: number): number | undefined {
  const value = parseNumber(text.replace(/^-/, ""));
  if (value === undefined || text.startsWith("-")) return value === undefined ? undefined : -value;
  if (value < 1e9) return value * 1000;
  return (value < 1e12 ? value * 1000 : value) - now;
}

const unitMs: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** "1h2m3.5s". Units below a millisecond count as 0; Go's micro sign arrives in a header as two characters. */
function goDurationMs(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:d|h|m?s|m|(?:n|u|Â?µ)s))+$/.test(text)) return undefined;
  const parts = [...text.matchAll(/([\d.]+)([^\d.]+)/g)];
  return parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * (unitMs[unit!] ?? 0), 0);
}

function clamp(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.min(Math.max(Math.round(ms), 0), MAX_MS);
}

function parseCount(text: string | undefined): number | undefined {
  const value = parseNumber(text?.trim());
  return value !== undefined && value < ABSURD_COUNT ? Math.floor(value) : undefined;
}

function parseNumber(text = ""): number | undefined {
  return /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : undefined;
}

/** The items of a structured field: names, in quotes or not, with their parameters. */
function parseItems(text: string): { name: string; parameters: Map<string, string> }[] {
  return (
    text.match(outsideQuotes[","])?.map((item) => {
      const [name = "", ...parameters] = item.match(outsideQuotes[";"]) ?? [];
      return { name: unquote(name), parameters: new Map(parameters.map(parsePair)) };
    }) ?? []
  );
}

/** The parts between separators outside of quotes. */
const outsideQuotes = { ",": /(?:"(?:\\.|[^"\\])*"|[^,"])+/g, ";": /(?:"(?:\\.|[^"\\])*"|[^;"])+/g };

function parsePair(text: string): [key: string, value: string] {
  const at = text.indexOf("=");
  return at < 0 ? [text.trim(), ""] : [text.slice(0, at).trim(), unquote(text.slice(at + 1))];
}

function unquote(text: string): string {
  return text.trim().replace(/^"(.*)"$/s, "$1");
}
