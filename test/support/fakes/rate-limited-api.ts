// A fake API with a rate limit, for tests of limits and breakers. It counts and decides when a call arrives, and responds after its
// latency. Its only clock is performance.now(), also for the `date` header. Windows follow each other without calls too.
import http from "node:http";
import type { AddressInfo } from "node:net";

export interface RateLimitedApi extends AsyncDisposable {
  url: string;
  /** Every call in order of arrival: time (performance.now()), status, path. */
  readonly calls: { at: number; status: number; path: string }[];
  /**
   * Like GitHub: a number of calls per window, reported in x-ratelimit-*; further calls get 403 with nothing remaining. The
   * first window starts at the current whole second, because a reset is given in seconds, so up to a second of it has passed.
   * Each window uses the next of `quotas`; the last one stays.
   */
  windows(options: { quotas: number[]; windowMs: number }): void;
  /** The next call is rejected by the secondary limit: 403 with retry-after. It does not count in any window. */
  refuseOnce(retryAfterSeconds: number): void;
  /** All calls get this status until healed, without counting; 0 destroys the connection. */
  fail(status: number): void;
  heal(): void;
  /** The latency of a response. */
  latency(ms: number): void;
  /** The number of rejected calls per window, from the first to the current one. */
  refusedPerWindow(): number[];
  /** The largest number of successful calls that arrived within any interval of this length; Infinity for all. */
  mostIn(ms: number): number;
}

interface Answer {
  status: number;
  headers?: Record<string, string | number>;
}

export async function startRateLimitedApi(): Promise<RateLimitedApi> {
  const calls: RateLimitedApi["calls"] = [];
  const secondary: number[] = [];
  const answering = new Set<NodeJS.Timeout>();
  let quota: Quota | undefined;
  let failing: number | undefined;
  let latencyMs = 0;

  const decide = (): Answer => {
    if (failing !== undefined) return { status: failing };
    const retryAfter = secondary.shift();
    if (retryAfter !== undefined) return { status: 403, headers: { "retry-after": retryAfter, ...quota?.headers() } };
    return quota?.spend() ?? { status: 200 };
  };
  const server = http.createServer((request, response) => {
    request.resume();
    const { status, headers } = decide();
    calls.push({ at: performance.now(), status, path: request.url ?? "" });
    const answer = () => {
      if (status === 0) return void request.socket.destroy();
      response.writeHead(status, {
        date: new Date(wallMs()).toUTCString(),
        "content-type": "application/json",
        ...headers,
      });
      response.end(status === 204 || status === 304 ? undefined : "{}");
    };
    if (latencyMs === 0) return answer();
    const timer = setTimeout(() => {
      answering.delete(timer);
      answer();
    }, latencyMs);
    answering.add(timer);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    windows: (options) => {
      quota = quotaOf(options);
    },
    refuseOnce: (retryAfterSeconds) => void secondary.push(retryAfterSeconds),
    fail: (status) => {
      failing = status;
    },
    heal: () => {
      failing = undefined;
    },
    latency: (ms) => {
      latencyMs = ms;
    },
    refusedPerWindow: () => quota?.refusedPerWindow() ?? [],
    mostIn: (ms) =>
      mostWithin(
        calls.filter(({ status }) => status > 0 && status < 400).map(({ at }) => at),
        ms,
      ),
    async [Symbol.asyncDispose]() {
      for (const timer of answering) clearTimeout(timer);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Quota {
  spend(): Answer;
  headers(): Record<string, number>;
  refusedPerWindow(): number[];
}

function quotaOf({ quotas, windowMs }: { quotas: number[]; windowMs: number }): Quota {
  if (quotas.length === 0 || windowMs < 1000 || windowMs % 1000 !== 0) {
    throw new Error("A fake API needs a quota, and windows of whole seconds");
  }
  const began = Math.floor(wallMs() / 1000) * 1000;
  const windows: { limit: number; used: number; refused: number }[] = [];
  const present = () => {
    const index = Math.floor((wallMs() - began) / windowMs);
    while (windows.length <= index) {
      windows.push({ limit: quotas[Math.min(windows.length, quotas.length - 1)]!, used: 0, refused: 0 });
    }
    return windows.at(-1)!;
  };
  const headers = () => {
    const { limit, used } = present();
    return {
      "x-ratelimit-limit": limit,
      "x-ratelimit-remaining": limit - used,
      "x-ratelimit-used": used,
      "x-ratelimit-reset": (began + windows.length * windowMs) / 1000,
    };
  };
  return {
    headers,
    spend() {
      const window = present();
      const refused = window.used >= window.limit;
      if (refused) window.refused += 1;
      else window.used += 1;
      return { status: refused ? 403 : 200, headers: headers() };
    },
    refusedPerWindow() {
      present();
      return windows.map(({ refused }) => refused);
    },
  };
}

function wallMs(): number {
  return performance.timeOrigin + performance.now();
}

/** `times` is ascending. Of two that are exactly this far apart only one counts. */
function mostWithin(times: number[], ms: number): number {
  let most = 0;
  let first = 0;
  for (const [index, time] of times.entries()) {
    while (time - times[first]! >= ms) first += 1;
    most = Math.max(most, index - first + 1);
  }
  return most;
}
