// Reads from a response how much its caller may still call: GitHub's headers, the IETF's in their several drafts, OpenAI's, Anthropic's. They are
// written by strangers, so what cannot be understood is as if it were not there. Imports nothing, so that it can stand in a web bundle.

/** What a response says about the budget of whoever called. All times are relative, because the clock that decides is the database's. */
export interface Observation {
  /** Calls per window, when told. */
  limit?: number;
  /** Calls left in this window, when told. */
  remaining?: number;
  /** Milliseconds until the window ends, when told. */
  resetMs?: number;
  /** The call was refused for want of budget (429; 403 or 503 with a retry-after or an empty budget): nothing may be called for this long. */
  refusedMs?: number;
}

export type Learn = (response: {
  status: number;
  headers: { get(name: string): string | null };
}) => Observation | undefined;

/** For refusals that do not say how long; it is what GitHub asks for. */
const REFUSED_MS = 60_000;
/** Resets are told in whole seconds: one that has passed already, on a call that was refused, is at most this wrong. */
const SECOND_MS = 1000;
const MAX_MS = 86_400_000;
/** 31 years: a time so far away is an error of whoever wrote it. */
const ABSURD_MS = 1e12;
/** More calls than any window has; services write such numbers for "unlimited". */
const ABSURD_COUNT = 1e9;

const MAX_TEXT = 2000;

/** The star stands for limit, remaining and reset. */
const fieldsOfCalls = [
  "x-ratelimit-*",
  "x-rate-limit-*",
  "ratelimit-*",
  "x-ratelimit-*-requests",
  "anthropic-ratelimit-requests-*",
];
const otherFields = [
  "x-ratelimit-*-tokens",
  "anthropic-ratelimit-tokens-*",
  "anthropic-ratelimit-input-tokens-*",
  "anthropic-ratelimit-output-tokens-*",
];

export const rateLimitHeaders: Learn = ({ status, headers }) => {
  const read = readerOf(headers);
  // Moments are taken relative to the server's own clock, which cuts to whole seconds, so a window is never thought to end too early.
  const now = momentMs(read("date")) ?? Date.now();
  const { limit, remaining, resetMs } = binding([
    ...fieldsOfCalls.map((pattern) => inFields(read, pattern, now, true)),
    ...otherFields.map((pattern) => inFields(read, pattern, now, false)),
    ...inPolicies(read, now),
  ]);
  const refusedMs = refusal(status, remaining, resetMs, retryAfterMs(read, now));
  const told: Observation = {
    ...(limit !== undefined && { limit }),
    ...(remaining !== undefined && { remaining }),
    ...(resetMs !== undefined && { resetMs }),
    ...(refusedMs !== undefined && { refusedMs }),
  };
  return Object.keys(told).length > 0 ? told : undefined;
};

interface Budget {
  limit: number | undefined;
  remaining: number | undefined;
  resetMs: number | undefined;
  /** False for what is counted otherwise, such as language models' tokens: it tells nothing of calls until it is empty. */
  ofCalls: boolean;
}

type Read = (name: string) => string;

/** An absent header is empty, and so is one that is too long to be honest. Some clients' headers answer with other things than texts, or throw. */
function readerOf(headers: { get(name: string): unknown }): Read {
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

function inFields(read: Read, pattern: string, now: number, ofCalls: boolean): Budget {
  const field = (name: string) => read(pattern.replace("*", name));
  return {
    // Older drafts write policies after it: "100, 100;w=60".
    limit: count(field("limit").split(/[,;]/)[0]),
    remaining: count(field("remaining")),
    resetMs: within(untilMs(field("reset"), now)),
    ofCalls,
  };
}

/** `RateLimit: "default";r=50;t=30` with its quota in RateLimit-Policy, and the draft before: `limit=100, remaining=50, reset=30`. */
function inPolicies(read: Read, now: number): Budget[] {
  const policies = new Map(items(read("ratelimit-policy")).map(({ name, parameters }) => [name, parameters]));
  const states = items(read("ratelimit"));
  const flat = new Map(states.map(({ name }) => pair(name)));
  const budgets = states.map(({ name, parameters }) => {
    const policy = policies.get(name);
    const unit = policy?.get("qu") ?? "requests";
    return {
      limit: count(policy?.get("q")),
      remaining: count(parameters.get("r")),
      resetMs: within(untilMs(parameters.get("t"), now)),
      ofCalls: /^requests?$/.test(unit),
      // How many calls may be open at once is no matter of time.
      ofTime: unit !== "concurrent-requests",
    };
  });
  return [
    ...budgets.filter(({ ofTime }) => ofTime),
    {
      limit: count(flat.get("limit")),
      remaining: count(flat.get("remaining")),
      resetMs: within(untilMs(flat.get("reset"), now)),
      ofCalls: true,
    },
  ];
}

/** The budget with the least left binds. Those that are empty bind together, until the last of them is filled. */
function binding(budgets: Budget[]): Partial<Budget> {
  const left = ({ remaining = Number.MAX_VALUE }: Budget) => remaining;
  const [tightest] = budgets
    .filter(({ limit, remaining, resetMs }) => limit !== undefined || remaining !== undefined || resetMs !== undefined)
    .filter(({ ofCalls }) => ofCalls)
    .sort((a, b) => left(a) - left(b) || (b.resetMs ?? -1) - (a.resetMs ?? -1));
  const empty = budgets.filter(({ remaining }) => remaining === 0);
  if (empty.length === 0) return tightest ?? {};
  const last = Math.max(...empty.map(({ resetMs }) => resetMs ?? -1));
  return { limit: tightest?.limit, remaining: 0, resetMs: last < 0 ? undefined : last };
}

/** A 403 or 503 has many reasons. Without a word about time or budget it is not taken for a refusal. */
function refusal(status: number, remaining?: number, resetMs?: number, retryMs?: number): number | undefined {
  const refused = status === 429 || ((status === 403 || status === 503) && (remaining === 0 || retryMs !== undefined));
  if (!refused || retryMs !== undefined) return refused ? retryMs : undefined;
  // With calls left it was another limit, of which the window says nothing.
  if (resetMs === undefined || (remaining ?? 0) > 0) return REFUSED_MS;
  return Math.max(resetMs, SECOND_MS);
}

function retryAfterMs(read: Read, now: number): number | undefined {
  const exact = number(read("retry-after-ms"));
  if (exact !== undefined && exact < ABSURD_MS) return within(exact);
  const text = read("retry-after");
  return text.startsWith("-") ? undefined : within(untilMs(text, now));
}

/** From a number, a Go duration, an RFC 3339 time or an HTTP date. Below 0 when it has passed. */
function untilMs(text = "", now: number): number | undefined {
  const ms = secondsMs(text, now) ?? goDurationMs(text) ?? sinceMs(momentMs(text), now);
  return ms !== undefined && ms < ABSURD_MS ? ms : undefined;
}

/** Small numbers are seconds from now, larger ones seconds since 1970, the largest milliseconds since then. */
function secondsMs(text: string, now: number): number | undefined {
  const value = number(text.replace(/^-/, ""));
  if (value === undefined || text.startsWith("-")) return value === undefined ? undefined : -value;
  if (value < 1e9) return value * 1000;
  return (value < 1e12 ? value * 1000 : value) - now;
}

const unitMs: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** "1h2m3.5s". Units below a millisecond count as nothing; Go's micro sign comes out of a header as two characters. */
function goDurationMs(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:d|h|m?s|m|(?:n|u|Â?µ)s))+$/.test(text)) return undefined;
  const parts = [...text.matchAll(/([\d.]+)([^\d.]+)/g)];
  return parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * (unitMs[unit!] ?? 0), 0);
}

/** Only these two forms: Date.parse finds a date in almost any text. */
function momentMs(text: string): number | undefined {
  const known =
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text) ||
    /^\w{3,9}, \d\d[ -]\w{3}[ -]\d{2,4} \d\d:\d\d:\d\d GMT$/.test(text);
  const ms = known ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}

function sinceMs(moment: number | undefined, now: number): number | undefined {
  return moment === undefined ? undefined : moment - now;
}

function within(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.min(Math.max(Math.round(ms), 0), MAX_MS);
}

function count(text: string | undefined): number | undefined {
  const value = number(text?.trim());
  return value !== undefined && value < ABSURD_COUNT ? Math.floor(value) : undefined;
}

function number(text = ""): number | undefined {
  return /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : undefined;
}

/** The items of a structured field: names, in quotes or not, with their parameters. */
function items(text: string): { name: string; parameters: Map<string, string> }[] {
  return (
    text.match(outsideQuotes[","])?.map((item) => {
      const [name = "", ...parameters] = item.match(outsideQuotes[";"]) ?? [];
      return { name: unquoted(name), parameters: new Map(parameters.map(pair)) };
    }) ?? []
  );
}

/** What stands between the separators. */
const outsideQuotes = { ",": /(?:"(?:\\.|[^"\\])*"|[^,"])+/g, ";": /(?:"(?:\\.|[^"\\])*"|[^;"])+/g };

function pair(text: string): [key: string, value: string] {
  const at = text.indexOf("=");
  return at < 0 ? [text.trim(), ""] : [text.slice(0, at).trim(), unquoted(text.slice(at + 1))];
}

function unquoted(text: string): string {
  return text.trim().replace(/^"(.*)"$/s, "$1");
}
