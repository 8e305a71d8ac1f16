// The base of the provider API fakes: an HTTP server that checks every request and response against the API's schema,
// records calls, and injects failures, planned or random with a seed. The fakes that use it implement the machines.
import { once } from "node:events";
import http from "node:http";
import type net from "node:net";
import type { Clock } from "../../../src/orchestrator/provider.ts";
import { type Description, getChecker } from "./schemas/check.ts";

export interface Call {
  operation: string;
  method: string;
  path: string;
  params: Record<string, string>;
  query: URLSearchParams;
  body: Record<string, unknown> | undefined;
  headers: http.IncomingHttpHeaders;
  /** On the fake's clock. */
  at: number;
  /** Set with the response; 0 for a response that never arrived. */
  status?: number;
  fault?: Fault["kind"];
  /** The fake starts the operation and does not finish it. */
  half: boolean;
}

export interface Reply {
  status: number;
  /** JSON; a string is sent unchanged and unchecked, like the page of a proxy. */
  body?: unknown;
  headers?: Record<string, string>;
}

/**
 *   status     responds with it and does nothing; with `done` it executes the call first, like a proxy that timed out
 *   reset      closes the connection, does nothing
 *   hang       never responds, does nothing
 *   lost       executes the call, then closes the connection without a response
 *   late       executes the call, and responds after the client's timeout
 *   belated    never responds; executes the call after `calls` more responses, or with finishPending()
 *   half       starts the operation and does not finish it: a machine that is created and never starts
 */
export type Fault =
  | { kind: "status"; status: number; message?: string; retryAfter?: number | string; body?: unknown; done?: boolean }
  | { kind: "belated"; calls?: number }
  | { kind: "reset" | "hang" | "lost" | "late" | "half" };

type Handlers<D extends Description> = Record<keyof D["operations"], (call: Call) => Reply | Promise<Reply>>;

export interface FakeOptions<D extends Description> {
  description: D;
  handlers: Handlers<D>;
  /** Called first: undefined accepts the call. */
  authorize?(call: Call): Reply | undefined;
  /** An error body of this API. */
  error(status: number, message: string): unknown;
  /** Headers of every response. */
  headers?(call: Call): Record<string, string>;
  now?(): number;
  /** A call gets no response, so its client has to time out. */
  onNoResponse?(): void;
}

export interface Fake {
  url: string;
  /** Schema violations of requests and responses: must be [] at the end of a test. */
  violations: string[];
  /** Whether the official schema is available. */
  official: boolean;
  calls: Call[];
  count(operation?: string, filter?: (call: Call) => boolean): number;
  /** The next calls of this operation ("*": of any) fail this way, in order. */
  fail(operation: string, ...faults: Fault[]): void;
  /** Each call fails with this probability, in one of these ways. */
  failRandomly(options: {
    random: () => number;
    chance: number;
    faults: readonly Fault[];
    only?: readonly string[];
  }): void;
  /** Removes all faults. Returns the number of faults so far. */
  clearFaults(): number;
  /** Executes all belated calls. */
  finishPending(): Promise<void>;
  close(): Promise<void>;
}

export async function startFake<D extends Description>(options: FakeOptions<D>): Promise<Fake> {
  const { description, error } = options;
  const handlers = options.handlers as Record<string, (call: Call) => Reply | Promise<Reply>>;
  const checker = getChecker(description);
  const routes = Object.entries(description.operations).map(([name, { method, path }]) => ({
    name,
    method,
    // Google's custom methods follow a colon: "/jobs/{job}:run".
    pattern: new RegExp(`^${path.replaceAll(/[.:]/g, "\\$&").replaceAll(/\{(\w+)\}/g, "(?<$1>[^/:]+)")}$`),
  }));
  const planned = new Map<string, Fault[]>();
  let belated: { calls: number; act(): Promise<unknown> }[] = [];
  let randomFaults: Parameters<Fake["failRandomly"]>[0] | undefined;
  let faults = 0;

  const server = http.createServer((request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (data) => (text += data));
    request.on("error", () => {});
    request.on("end", () => void serve(request, response, text));
  });
  server.keepAliveTimeout = 1000;

  async function serve(request: http.IncomingMessage, response: http.ServerResponse, text: string): Promise<void> {
    const { pathname, searchParams } = new URL(request.url!, "http://fake");
    const route = routes.find(({ method, pattern }) => method === request.method && pattern.test(pathname));
    if (!route) {
      fake.violations.push(`${request.method} ${pathname}: no such operation`);
      return send(response, { status: 404, body: error(404, "no such route") }, {});
    }
    const call: Call = {
      operation: route.name,
      method: route.method,
      path: pathname,
      params: Object.fromEntries(
        Object.entries(route.pattern.exec(pathname)!.groups ?? {}).map(([key, value]) => [
          key,
          decodeURIComponent(value),
        ]),
      ),
      query: searchParams,
      body: text === "" ? undefined : parseJson(text),
      headers: request.headers,
      at: options.now?.() ?? Date.now(),
      half: false,
    };
    fake.calls.push(call);
    fake.violations.push(...checker.request(route.name, searchParams, call.body));
    const closed = new Promise<void>((resolve) => response.once("close", resolve));
    const fault = nextFault(route.name);
    if (fault) {
      faults += 1;
      call.fault = fault.kind;
    }
    const handle = async (): Promise<Reply> => options.authorize?.(call) ?? (await handlers[route.name]!(call));
    const respond = (reply: Reply): void => {
      call.status = reply.status;
      if (typeof reply.body !== "string")
        fake.violations.push(...checker.response(route.name, reply.status, throughJson(reply.body)));
      // Before the response, so that the next call already sees the effect.
      for (const pending of belated) pending.calls -= 1;
      void finish((pending) => pending.calls <= 0);
      send(response, reply, options.headers?.(call) ?? {});
    };
    // Lets a test abort the request instead of waiting for the client's timeout.
    const clientTimeout = async (): Promise<void> => {
      options.onNoResponse?.();
      await closed;
    };
    switch (fault?.kind) {
      case "status":
        if (fault.done) await handle();
        return respond({
          status: fault.status,
          body: fault.body ?? error(fault.status, fault.message ?? `injected ${fault.status}`),
          ...(fault.retryAfter !== undefined && { headers: { "retry-after": String(fault.retryAfter) } }),
        });
      case "reset":
        call.status = 0;
        return void request.socket.destroy();
      case "hang":
        call.status = 0;
        return void (await clientTimeout());
      case "lost":
        await handle();
        call.status = 0;
        return void request.socket.destroy();
      case "late": {
        const reply = await handle();
        await clientTimeout();
        call.status = 0;
        return respond(reply);
      }
      case "belated": {
        call.status = 0;
        await clientTimeout();
        belated.push({ calls: fault.calls ?? Number.POSITIVE_INFINITY, act: handle });
        return;
      }
      default:
        call.half = fault?.kind === "half";
        return respond(await handle());
    }
  }

  async function finish(isDue: (pending: (typeof belated)[number]) => boolean): Promise<void> {
    const due = belated.filter(isDue);
    belated = belated.filter((pending) => !due.includes(pending));
    await Promise.all(due.map(({ act }) => act()));
  }

  function nextFault(operation: string): Fault | undefined {
    const fault = planned.get(operation)?.shift() ?? planned.get("*")?.shift();
    if (fault || !randomFaults) return fault;
    if (randomFaults.only && !randomFaults.only.includes(operation)) return undefined;
    if (randomFaults.random() >= randomFaults.chance) return undefined;
    return randomFaults.faults[Math.floor(randomFaults.random() * randomFaults.faults.length)];
  }

  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const fake: Fake = {
    url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`,
    violations: [],
    official: checker.official,
    calls: [],
    count: (operation, filter = () => true) =>
      fake.calls.filter((call) => (operation === undefined || call.operation === operation) && filter(call)).length,
    fail: (operation, ...list) => void planned.set(operation, [...(planned.get(operation) ?? []), ...list]),
    failRandomly(faultOptions) {
      randomFaults = faultOptions;
    },
    clearFaults() {
      randomFaults = undefined;
      planned.clear();
      const count = faults;
      faults = 0;
      return count;
    },
    finishPending: () => finish(() => true),
    async close() {
      server.closeAllConnections();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
  return fake;
}

/** Reproducible random numbers from 0 to 1. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface TestTime extends Clock {
  /** Every requested wait, in order. */
  waits: number[];
  /** The fetch for providers: time stands still while a request is in progress. */
  fetch: typeof fetch;
  /** Aborts requests in progress, as a timeout does. */
  abortRequests(): void;
  advance(ms: number): void;
}

/**
 * A simulated clock: when no request is in progress, it advances to the next sleeper. Sleepers wake one by one and in order,
 * so that the fake's clock shows exactly the waited time between calls.
 */
export function createTestTime(from = Date.UTC(2026, 0, 1)): TestTime {
  let now = from;
  let requests = 0;
  let immediate: NodeJS.Immediate | undefined;
  const sleepers: { due: number; wake(): void }[] = [];
  let timeout = new AbortController();
  const advanceWhenIdle = (): void => {
    // Some turns of the event loop, in which resumed code can send its next request or sleep again.
    let turns = 5;
    const turn = (): void => {
      turns -= 1;
      immediate = turns > 0 ? setImmediate(turn) : undefined;
      if (turns > 0) return;
      if (requests > 0) return;
      sleepers.sort((a, b) => a.due - b.due);
      const next = sleepers.shift();
      if (!next) return;
      now = Math.max(now, next.due);
      next.wake();
      advanceWhenIdle();
    };
    if (immediate) clearImmediate(immediate);
    immediate = setImmediate(turn);
  };
  const time: TestTime = {
    waits: [],
    now: () => now,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        time.waits.push(ms);
        const sleeper = { due: now + ms, wake: resolve };
        sleepers.push(sleeper);
        signal?.addEventListener("abort", () => {
          const at = sleepers.indexOf(sleeper);
          if (at >= 0) sleepers.splice(at, 1);
          resolve();
        });
        advanceWhenIdle();
      }),
    async fetch(input, init) {
      requests += 1;
      try {
        const signals = [timeout.signal, ...(init?.signal ? [init.signal] : [])];
        const response = await fetch(input, { ...init, signal: AbortSignal.any(signals) });
        const text = await response.text();
        const empty = response.status === 204 || response.status === 304;
        return new Response(empty ? null : text, { status: response.status, headers: response.headers });
      } finally {
        requests -= 1;
        advanceWhenIdle();
      }
    },
    abortRequests() {
      timeout.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError"));
      timeout = new AbortController();
    },
    advance(ms) {
      now += ms;
    },
  };
  return time;
}

function send(
  response: http.ServerResponse,
  { status, body, headers }: Reply,
  extraHeaders: Record<string, string>,
): void {
  if (response.destroyed) return;
  const text = typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body);
  response
    .writeHead(status, {
      ...(text !== "" && { "content-type": typeof body === "string" ? "text/html" : "application/json" }),
      ...extraHeaders,
      ...headers,
    })
    .end(text);
}

function parseJson(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return { "not json": text };
  }
}

/** As it arrives: without undefined values, and with dates as text. */
function throughJson(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** What runs on a machine of a fake, such as a real worker. */
export interface MachineProcess {
  exited: Promise<ProcessExit>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

export interface ProcessExit {
  code: number;
  oom?: boolean;
  requested?: boolean;
}
