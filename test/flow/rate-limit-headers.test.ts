// rateLimitHeaders: the headers of real APIs, and malformed ones.
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { type Observation, rateLimitHeaders } from "../../src/contract/rate-limit-headers.ts";

const date = "Thu, 21 Aug 2025 12:40:00 GMT";
/** The same time in seconds. */
const now = 1_755_780_000;
const DAY_MS = 86_400_000;

type Case = [name: string, status: number, headers: Record<string, string>, told: Observation | undefined];

const github = { date, "x-ratelimit-limit": "5000", "x-ratelimit-used": "1", "x-ratelimit-resource": "core" };

describe("GitHub", () => {
  it.each<Case>([
    [
      "a call within the quota reports what is left, and until when",
      200,
      { ...github, "x-ratelimit-remaining": "4999", "x-ratelimit-reset": `${now + 3599}` },
      { limit: 5000, remaining: 4999, resetMs: 3_599_000 },
    ],
    [
      "a call beyond the quota is rejected until the window ends",
      403,
      { ...github, "x-ratelimit-remaining": "0", "x-ratelimit-reset": `${now + 90}` },
      { limit: 5000, remaining: 0, resetMs: 90_000, refusedMs: 90_000 },
    ],
    [
      "the same as a 429",
      429,
      { ...github, "x-ratelimit-remaining": "0", "x-ratelimit-reset": `${now + 90}` },
      { limit: 5000, remaining: 0, resetMs: 90_000, refusedMs: 90_000 },
    ],
    [
      "a window that ends in this second blocks for one more second",
      403,
      { ...github, "x-ratelimit-remaining": "0", "x-ratelimit-reset": `${now}` },
      { limit: 5000, remaining: 0, resetMs: 0, refusedMs: 1000 },
    ],
    [
      "the secondary limit blocks for its retry-after, whatever is left",
      403,
      { ...github, "x-ratelimit-remaining": "4000", "x-ratelimit-reset": `${now + 1800}`, "retry-after": "30" },
      { limit: 5000, remaining: 4000, resetMs: 1_800_000, refusedMs: 30_000 },
    ],
    [
      "the secondary limit without a time blocks for a minute",
      429,
      { ...github, "x-ratelimit-remaining": "4000", "x-ratelimit-reset": `${now + 1800}` },
      { limit: 5000, remaining: 4000, resetMs: 1_800_000, refusedMs: 60_000 },
    ],
    [
      "a forbidden call with quota left is not a rate limit",
      403,
      { ...github, "x-ratelimit-remaining": "4000", "x-ratelimit-reset": `${now + 1800}` },
      { limit: 5000, remaining: 4000, resetMs: 1_800_000 },
    ],
    ["a forbidden call without headers reports nothing", 403, { date }, undefined],
    [
      "an empty quota without a reset blocks for a minute",
      403,
      { "x-ratelimit-remaining": "0" },
      { remaining: 0, refusedMs: 60_000 },
    ],
    [
      "a response to the last call in the window is not a rejection",
      200,
      { ...github, "x-ratelimit-remaining": "0", "x-ratelimit-reset": `${now + 5}` },
      { limit: 5000, remaining: 0, resetMs: 5000 },
    ],
  ])("%s", observes);
});

describe("the headers of the IETF", () => {
  it.each<Case>([
    [
      "older drafts have seconds, and policies after the limit",
      200,
      { "ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "30" },
      { limit: 100, remaining: 50, resetMs: 30_000 },
    ],
    [
      "a limit may include its policy",
      200,
      { "ratelimit-limit": '10;w=1;name="burst"', "ratelimit-remaining": "9", "ratelimit-reset": "1" },
      { limit: 10, remaining: 9, resetMs: 1000 },
    ],
    [
      "an intermediate draft has one header for all three",
      200,
      { ratelimit: "limit=100, remaining=50, reset=30", "ratelimit-policy": "100;w=60" },
      { limit: 100, remaining: 50, resetMs: 30_000 },
    ],
    [
      "newer drafts name a policy",
      200,
      { ratelimit: '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60' },
      { limit: 100, remaining: 50, resetMs: 30_000 },
    ],
    [
      "names without quotes and with spaces are the same",
      200,
      { ratelimit: "default; r=50 ; t=30", "ratelimit-policy": '"default"; q=100; w=60; pk=:cHNk:' },
      { limit: 100, remaining: 50, resetMs: 30_000 },
    ],
    [
      "of several policies the one with the least left applies",
      200,
      { ratelimit: '"day";r=900;t=7200, "burst";r=3;t=1', "ratelimit-policy": '"burst";q=10;w=1,"day";q=1000;w=86400' },
      { limit: 10, remaining: 3, resetMs: 1000 },
    ],
    [
      "of several empty ones the one that ends last applies",
      429,
      { ratelimit: '"burst";r=0;t=1, "day";r=0;t=7200', "ratelimit-policy": '"burst";q=10;w=1,"day";q=1000;w=86400' },
      { limit: 1000, remaining: 0, resetMs: 7_200_000, refusedMs: 7_200_000 },
    ],
    [
      "a name may contain separators",
      200,
      { ratelimit: '"a,b;r=0;\\"t=9";r=50;t=30', "ratelimit-policy": '"x";q=1, "a,b;r=0;\\"t=9";q=100;w=60' },
      { limit: 100, remaining: 50, resetMs: 30_000 },
    ],
    [
      "a quota in bytes is ignored while some are left",
      200,
      {
        ratelimit: '"bytes";r=5;t=30, "calls";r=50;t=20',
        "ratelimit-policy": '"bytes";q=9000;qu="content-bytes", "calls";q=60;qu="requests"',
      },
      { limit: 60, remaining: 50, resetMs: 20_000 },
    ],
    [
      "and blocks calls when none are left",
      200,
      {
        ratelimit: '"bytes";r=0;t=30, "calls";r=50;t=20',
        "ratelimit-policy": '"bytes";q=9000;qu="content-bytes", "calls";q=60',
      },
      { limit: 60, remaining: 0, resetMs: 30_000 },
    ],
    [
      "a limit on concurrent calls is ignored",
      200,
      { ratelimit: '"open";r=0', "ratelimit-policy": '"open";q=9;qu="concurrent-requests"' },
      undefined,
    ],
    ["a policy alone says nothing of what is left", 200, { "ratelimit-policy": '"default";q=100;w=60' }, undefined],
    [
      "next to the older form the one with the least left applies",
      200,
      { "x-ratelimit-remaining": "7", "x-ratelimit-reset": "9", ratelimit: '"default";r=6;t=30' },
      { remaining: 6, resetMs: 30_000 },
    ],
  ])("%s", observes);
});

describe("OpenAI", () => {
  const openai = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-reset-requests": "1s",
  };

  it.each<Case>([
    [
      "requests are the quota while tokens are left",
      200,
      { ...openai, "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s" },
      { limit: 60, remaining: 59, resetMs: 1000 },
    ],
    [
      "without tokens there is no quota until the reset",
      200,
      { ...openai, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s" },
      { limit: 60, remaining: 0, resetMs: 360_000 },
    ],
    [
      "a rejection has its time twice, and milliseconds take precedence",
      429,
      { ...openai, "retry-after": "2", "retry-after-ms": "1203" },
      { limit: 60, remaining: 59, resetMs: 1000, refusedMs: 1203 },
    ],
    [
      "with both empty the later reset applies",
      429,
      {
        ...openai,
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "8.64s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "20ms",
      },
      { limit: 60, remaining: 0, resetMs: 8640, refusedMs: 8640 },
    ],
  ])("%s", observes);

  it.each([
    ["20ms", 20],
    ["1s", 1000],
    ["6m0s", 360_000],
    ["1h2m3.5s", 3_723_500],
    ["2m59.56s", 179_560],
    ["850µs", 0],
    ["1ms850Âµs", 1],
    ["0s", 0],
    ["1.1s", 1100],
    ["30h", DAY_MS],
    ["7", 7000],
  ])("its reset %s is %d ms", (reset, resetMs) => {
    expect(learn(200, { "x-ratelimit-reset-requests": reset })).toEqual({ resetMs });
  });
});

describe("Anthropic", () => {
  const anthropic = {
    date,
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
    "anthropic-ratelimit-requests-reset": "2025-08-21T12:40:02Z",
    "anthropic-ratelimit-tokens-limit": "96000",
    "anthropic-ratelimit-tokens-remaining": "96000",
    "anthropic-ratelimit-tokens-reset": "2025-08-21T12:39:59Z",
  };

  it.each<Case>([
    ["its resets are moments", 200, anthropic, { limit: 1000, remaining: 999, resetMs: 2000 }],
    [
      "a time that has passed is now",
      200,
      { ...anthropic, "anthropic-ratelimit-requests-reset": "2025-08-21T12:39:59Z" },
      { limit: 1000, remaining: 999, resetMs: 0 },
    ],
    ...["tokens", "input-tokens", "output-tokens"].map((kind): Case => {
      const headers = {
        ...anthropic,
        [`anthropic-ratelimit-${kind}-remaining`]: "0",
        [`anthropic-ratelimit-${kind}-reset`]: "2025-08-21T14:40:45.5+02:00",
      };
      return [`without ${kind} there is no quota`, 200, headers, { limit: 1000, remaining: 0, resetMs: 45_500 }];
    }),
    [
      "a rejection has a time",
      429,
      { ...anthropic, "anthropic-ratelimit-requests-remaining": "0", "retry-after": "17" },
      { limit: 1000, remaining: 0, resetMs: 2000, refusedMs: 17_000 },
    ],
  ])("%s", observes);
});

describe("a rejection", () => {
  it.each<Case>([
    ["that says nothing is for a minute", 429, {}, { refusedMs: 60_000 }],
    ["tells seconds", 429, { "retry-after": "120" }, { refusedMs: 120_000 }],
    ["tells parts of seconds", 429, { "retry-after": "0.25" }, { refusedMs: 250 }],
    ["may be over at once", 429, { "retry-after": "0" }, { refusedMs: 0 }],
    ["tells a date", 429, { date, "retry-after": "Thu, 21 Aug 2025 12:41:30 GMT" }, { refusedMs: 90_000 }],
    ["may have an HTTP date", 429, { date, "retry-after": "Thursday, 21-Aug-25 12:41:30 GMT" }, { refusedMs: 90_000 }],
    ["tells a date that has passed", 503, { date, "retry-after": "Thu, 21 Aug 2025 12:39:00 GMT" }, { refusedMs: 0 }],
    ["lasts a day at most", 429, { "retry-after": "604800" }, { refusedMs: DAY_MS }],
    ["tells only when the window ends", 429, { "ratelimit-reset": "5" }, { resetMs: 5000, refusedMs: 5000 }],
    ["may be a 503 with a time", 503, { "retry-after": "10" }, { refusedMs: 10_000 }],
    ["may be a 503 without quota", 503, { ratelimit: '"a";r=0;t=4' }, { remaining: 0, resetMs: 4000, refusedMs: 4000 }],
    ["is no 503 that says nothing", 503, {}, undefined],
    ["is no 500 with a time", 500, { "retry-after": "10" }, undefined],
    ["is no 202 with a time", 202, { "retry-after": "10" }, undefined],
    ...[
      "abc",
      "-5",
      "",
      "NaN",
      "Infinity",
      `1${"0".repeat(30)}`,
      "1e3",
      "soon, 1",
      "5 5",
      "Thu, 99 Aug 2025 12:41:30 GMT",
    ].flatMap((garbage): Case[] => [
      [`ignores a time of ${JSON.stringify(garbage)}`, 429, { "retry-after": garbage }, { refusedMs: 60_000 }],
      [`as a 403 needs more than ${JSON.stringify(garbage)}`, 403, { "retry-after": garbage }, undefined],
      [
        `ignores ${JSON.stringify(garbage)} ms`,
        429,
        { "retry-after-ms": garbage, "retry-after": "3" },
        { refusedMs: 3000 },
      ],
    ]),
  ])("%s", observes);
});

describe("a reset", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it.each<Case>([
    ["of a small number is in seconds from now", 200, { date, "x-ratelimit-reset": "42" }, { resetMs: 42_000 }],
    [
      "of a large number is in seconds since 1970",
      200,
      { date, "x-ratelimit-reset": `${now + 42}` },
      { resetMs: 42_000 },
    ],
    ["may have parts of seconds", 200, { date, "x-ratelimit-reset": `${now + 42}.125` }, { resetMs: 42_125 }],
    ["of a very large number is in milliseconds", 200, { date, "x-ratelimit-reset": `${now}042` }, { resetMs: 42 }],
    ["that has passed is now", 200, { date, "x-ratelimit-reset": `${now - 42}` }, { resetMs: 0 }],
    ["below zero is now", 200, { date, "x-ratelimit-reset": "-1" }, { resetMs: 0 }],
    ["is a day away at most", 200, { date, "x-ratelimit-reset": `${now + 1_000_000}` }, { resetMs: DAY_MS }],
    ["of more seconds than a day has is a day away", 200, { "x-ratelimit-reset": "999999999" }, { resetMs: DAY_MS }],
    ["in a far century is ignored", 200, { date, "x-ratelimit-reset": "99999999999" }, undefined],
    ["after a far century is ignored", 200, { date, "x-ratelimit-reset": `1${"0".repeat(30)}` }, undefined],
  ])("%s", observes);

  it("is relative to the service's clock, so that a wrong local clock does not matter", () => {
    vi.useFakeTimers({ now: new Date("1999-12-31T23:59:59Z"), toFake: ["Date"] });
    expect(learn(200, { date, "x-ratelimit-reset": `${now + 42}` })).toEqual({ resetMs: 42_000 });
  });

  it.each(["", "abc", "yesterday 1"])("is relative to the local clock when the service's date is %j", (unknown) => {
    vi.useFakeTimers({ now: now * 1000 + 250, toFake: ["Date"] });
    expect(learn(200, { date: unknown, "x-ratelimit-reset": `${now + 42}` })).toEqual({ resetMs: 41_750 });
  });
});

describe("anything else", () => {
  it.each<Case>([
    ["an ordinary answer tells nothing", 200, { date, "content-type": "text/plain" }, undefined],
    ["an ordinary failure tells nothing", 500, { date }, undefined],
    [
      "headers with additional hyphens are the same",
      200,
      { "x-rate-limit-limit": "900", "x-rate-limit-remaining": "899", "x-rate-limit-reset": "60" },
      { limit: 900, remaining: 899, resetMs: 60_000 },
    ],
    [
      "a malformed quota is ignored",
      200,
      { "x-ratelimit-limit": "unlimited", "x-ratelimit-remaining": "-1", "x-ratelimit-reset": "never" },
      undefined,
    ],
    ["a quota that no caller could use up is not reported", 200, { "x-ratelimit-remaining": "4294967295" }, undefined],
    [
      "valid values count beside malformed ones",
      200,
      { "x-ratelimit-limit": "", "x-ratelimit-remaining": "7" },
      { remaining: 7 },
    ],
  ])("%s", observes);

  it("headers that throw, or return other types than strings, are read as far as possible", () => {
    const headers = {
      get(name: string) {
        if (name === "x-ratelimit-remaining") return 7 as unknown as string;
        if (name === "x-ratelimit-limit") return ["1"] as unknown as string;
        throw new Error(name);
      },
    };
    expect(rateLimitHeaders({ status: 200, headers })).toEqual({ remaining: 7 });
  });

  it("returns an observation with finite non-negative numbers, or undefined, for any headers", () => {
    const parts = ["limit", "remaining", "reset"];
    const names = [
      ...["date", "retry-after", "retry-after-ms", "ratelimit", "ratelimit-policy"],
      ...parts.flatMap((part) => [`x-ratelimit-${part}`, `x-rate-limit-${part}`, `ratelimit-${part}`]),
      ...parts.flatMap((part) => [`x-ratelimit-${part}-requests`, `x-ratelimit-${part}-tokens`]),
      ...parts.flatMap((part) => ["requests", "tokens"].map((kind) => `anthropic-ratelimit-${kind}-${part}`)),
    ];
    const moment = fc.date({ noInvalidDate: true });
    const parameter = fc.tuple(fc.constantFrom("r", "t", "q", "w", "qu"), fc.oneof(fc.integer(), fc.string()));
    const item = fc
      .tuple(fc.string(), fc.array(parameter))
      .map(([name, all]) => [JSON.stringify(name), ...all.map(([key, value]) => `${key}=${value}`)].join(";"));
    const value = fc.oneof(
      fc.string(),
      fc.string({ unit: "binary" }),
      fc.nat().map(String),
      fc.double().map(String),
      fc.bigInt().map(String),
      fc.constantFrom(
        "0",
        "-0",
        "-1",
        "1s",
        "6m0s",
        "0.0",
        "NaN",
        `${"9".repeat(400)}`,
        '"'.repeat(1999),
        '"\\'.repeat(9999),
      ),
      moment.map((item) => item.toISOString()),
      moment.map((item) => item.toUTCString()),
      fc.array(item).map((all) => all.join(", ")),
      fc.constant(null),
    );
    const headers = fc.dictionary(fc.constantFrom(...names), value, { noNullPrototype: true });
    const status = fc.constantFrom(200, 403, 429, 503, 0, Number.NaN);
    fc.assert(
      fc.property(status, headers, (code, sent) => {
        const received = rateLimitHeaders({ status: code, headers: { get: (name) => sent[name] ?? null } });
        if (received === undefined) return code !== 429;
        expect(Object.keys(received).length).toBeGreaterThan(0);
        for (const [name, number] of Object.entries(received)) {
          expect(["limit", "remaining", "resetMs", "refusedMs"]).toContain(name);
          expect(Number.isInteger(number) && number >= 0 && number <= 1e9, `${name} ${number}`).toBe(true);
        }
        expect(Math.max(received.resetMs ?? 0, received.refusedMs ?? 0)).toBeLessThanOrEqual(DAY_MS);
        return true;
      }),
      { numRuns: 2000 },
    );
  });
});

function learn(status: number, headers: Record<string, string>): Observation | undefined {
  return rateLimitHeaders({ status, headers: { get: (name) => headers[name] ?? null } });
}

function observes(_: string, status: number, headers: Record<string, string>, received: Observation | undefined): void {
  expect(learn(status, headers)).toEqual(received);
  // Real headers are case-insensitive.
  const real = new Headers(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]));
  expect(rateLimitHeaders({ status, headers: real })).toEqual(received);
}
