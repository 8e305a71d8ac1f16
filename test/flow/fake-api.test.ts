// Tests of the fake API, because the tests of limits rely on its counts.
import { expect, it } from "vitest";
import { rateLimitHeaders } from "../../src/contract/rate-limit-headers.ts";
import { waitFor } from "../../src/testing/index.ts";
import { type RateLimitedApi, startRateLimitedApi } from "../support/fakes/rate-limited-api.ts";

it("gives each window its own quota, the last one forever, and counts rejected calls", async () => {
  await using api = await startRateLimitedApi();
  api.latency(20);
  api.windows({ quotas: [3, 1, 2], windowMs: 2000 });
  const windows = new Map<string, { limits: Set<string>; remaining: string[]; refused: number }>();
  // Sequential calls until the fourth window is exhausted: each window has at least a second, enough for fifty calls.
  while ((api.refusedPerWindow()[3] ?? 0) === 0) {
    const { status, headers } = await fetch(api.url);
    const reset = headers.get("x-ratelimit-reset")!;
    const window = windows.get(reset) ?? { limits: new Set(), remaining: [], refused: 0 };
    windows.set(reset, window);
    window.limits.add(headers.get("x-ratelimit-limit")!);
    if (status === 403) window.refused += 1;
    else window.remaining.push(headers.get("x-ratelimit-remaining")!);
  }
  const seen = [...windows.values()];
  expect(seen.map(({ limits }) => [...limits])).toEqual([["3"], ["1"], ["2"], ["2"]]);
  expect(seen.map(({ remaining }) => remaining)).toEqual([["2", "1", "0"], ["0"], ["1", "0"], ["1", "0"]]);
  expect(seen.map(({ refused }) => refused)).toEqual(api.refusedPerWindow().slice(0, 4));
  expect(seen.every(({ refused }) => refused > 0)).toBe(true);
  expect(api.calls.filter(({ status }) => status === 200)).toHaveLength(8);
  const resets = [...windows.keys()].map(Number);
  expect(resets.map((reset) => reset - resets[0]!)).toEqual([0, 2, 4, 6]);
});

it("reports the end of its window, so that a caller that waits for it reaches the next one", async () => {
  await using api = await startRateLimitedApi();
  api.windows({ quotas: [0, 5], windowMs: 2000 });
  const refused = rateLimitHeaders(await fetch(api.url))!;
  const from = performance.now();
  expect(refused).toMatchObject({ limit: 0, remaining: 0 });
  expect(refused.refusedMs).toBeLessThanOrEqual(2000);
  await waitFor(() => performance.now() - from >= refused.refusedMs!, { what: "the end of the window" });
  expect((await fetch(api.url)).status).toBe(200);
  expect(api.refusedPerWindow()[0]).toBe(1);
});

it("rejects once by the secondary limit, which uses no quota", async () => {
  await using api = await startRateLimitedApi();
  api.windows({ quotas: [5], windowMs: 60_000 });
  api.refuseOnce(7);
  const refused = await fetch(`${api.url}/search`);
  expect(refused.status).toBe(403);
  expect(rateLimitHeaders(refused)).toMatchObject({ remaining: 5, refusedMs: 7000 });
  const { status, headers } = await fetch(`${api.url}/search`);
  expect([status, headers.get("retry-after"), headers.get("x-ratelimit-remaining")]).toEqual([200, null, "4"]);
  expect(api.refusedPerWindow()).toEqual([0]);
  expect(statuses(api)).toEqual([403, 200]);
  expect(api.calls.map(({ path }) => path)).toEqual(["/search", "/search"]);
});

it("fails until it recovers, with a status or without a response", async () => {
  await using api = await startRateLimitedApi();
  api.windows({ quotas: [1], windowMs: 60_000 });
  api.fail(502);
  expect((await fetch(api.url)).status).toBe(502);
  expect((await fetch(api.url, { method: "POST", body: "x".repeat(100_000) })).status).toBe(502);
  api.fail(0);
  await expect(fetch(api.url)).rejects.toThrow("fetch failed");
  api.heal();
  expect((await fetch(api.url)).status).toBe(200);
  expect(statuses(api)).toEqual([502, 502, 0, 200]);
  expect(api.refusedPerWindow()).toEqual([0]);
});

it("returns the maximum number of successful calls in any interval of a length", async () => {
  await using api = await startRateLimitedApi();
  expect(api.mostIn(1000)).toBe(0);
  const at = [0, 10, 500, 990, 1000, 1005, 1009, 1500];
  api.calls.push(...at.map((time) => ({ at: time, status: 200, path: "/" })));
  api.calls.push({ at: 1501, status: 403, path: "/" }, { at: 1502, status: 0, path: "/" });
  expect([1, 10, 20, 510, 1000, 1010].map((ms) => api.mostIn(ms))).toEqual([1, 3, 4, 5, 6, 7]);
  expect(api.mostIn(Number.POSITIVE_INFINITY)).toBe(8);
});

it("responds with a delay, counts calls on arrival, and closes while some are open", async () => {
  const api = await startRateLimitedApi();
  api.windows({ quotas: [1], windowMs: 60_000 });
  api.latency(600_000);
  const open = [fetch(api.url), fetch(api.url)].map((call) => expect(call).rejects.toThrow("fetch failed"));
  await waitFor(() => api.calls.length === 2, { what: "two calls" });
  expect(statuses(api)).toEqual([200, 403]);
  await api[Symbol.asyncDispose]();
  await Promise.all(open);
});

it("accepts only windows of whole seconds", async () => {
  await using api = await startRateLimitedApi();
  expect(() => api.windows({ quotas: [1], windowMs: 1500 })).toThrow("whole seconds");
  expect(api.refusedPerWindow()).toEqual([]);
});

function statuses(api: RateLimitedApi): number[] {
  return api.calls.map(({ status }) => status);
}
