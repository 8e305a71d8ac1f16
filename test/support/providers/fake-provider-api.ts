// What the fakes of the providers' APIs have in common: a real HTTP server on this machine that holds every request and every answer to the API's
// description, counts calls, and fails as it is told, by name or by the throw of a seeded die. What machines are and do is for the fake that uses it.
import { once } from "node:events";
import http from "node:http";
import type net from "node:net";
import type { Clock } from "../../../src/orchestrator/provider.ts";
import { checkerOf, type Description } from "./schemas/check.ts";

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
  /** Once answered; 0 for a call whose answer never arrived. */
  status?: number;
  fault?: Fault["kind"];
  /** The fake shall begin what is asked and not finish it. */
  half: boolean;
}

export interface Reply {
  status: number;
  /** JSON; a string is sent as it is, as something in between would send it, and held to nothing. */
  body?: unknown;
  headers?: Record<string, string>;
}

/**
 *   status     is refused with it, and nothing is done; or, if it says so, all is done, as by something in between that gave up waiting
 *   reset      the connection breaks, and nothing is done
 *   hang       no answer until the client gives up, and nothing is done
 *   lost       it is done, and the connection breaks before the answer
 *   late       it is done at once, and answered after the client gave up
 *   belated    no answer until the client gives up; it is done when `calls` more calls have been answered, or when the fake is told to settle
 *   half       the fake begins it and does not finish: a machine that is made and never starts
 */
export type Fault =
  | { kind: "status"; status: number; message?: string; retryAfter?: number | string; body?: unknown; done?: boolean }
  | { kind: "belated"; calls?: number }
  | { kind: "reset" | "hang" | "lost" | "late" | "half" };

type Handlers<D extends Description> = Record<keyof D["operations"], (call: Call) => Reply | Promise<Reply>>;

export interface FakeOptions<D extends Description> {
  description: D;
  handlers: Handlers<D>;
  /** Before all else: undefined lets the call in. */
  admit?(call: Call): Reply | undefined;
  /** An error as this API words it. */
  error(status: number, message: string): unknown;
  /** Headers of every answer. */
  headers?(call: Call): Record<string, string>;
  now?(): number;
  /** A call gets no answer from now on, until its client gives up. */
  onStuck?(): void;
}

export interface Fake {
  url: string;
  /** What was not as described, of requests and answers: must be [] when a test ends. */
  violations: string[];
  /** Whether the official description is at hand. */
  official: boolean;
  calls: Call[];
  count(operation?: string, which?: (call: Call) => boolean): number;
  /** The next calls of this operation ("*": of any) fail so, one after another. */
  fail(operation: string, ...faults: Fault[]): void;
  /** From now on each call fails with this chance, in one of these ways. */
  chaos(options: { random: () => number; chance: number; faults: readonly Fault[]; only?: readonly string[] }): void;
  /** No more faults. Answers how many there were. */
  calm(): number;
  /** What clients gave up on and is still to be done is done now. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

export async function startFake<D extends Description>(options: FakeOptions<D>): Promise<Fake> {
  const { description, error } = options;
  const handlers = options.handlers as Record<string, (call: Call) => Reply | Promise<Reply>>;
  const checker = checkerOf(description);
  const routes = Object.entries(description.operations).map(([name, { method, path }]) => ({
    name,
    method,
    // Google's verbs stand behind a colon: "/jobs/{job}:run".
    pattern: new RegExp(`^${path.replaceAll(/[.:]/g, "\\$&").replaceAll(/\{(\w+)\}/g, "(?<$1>[^/:]+)")}$`),
  }));
  const planned = new Map<string, Fault[]>();
  let belated: { calls: number; act(): Promise<unknown> }[] = [];
  let chaos: Parameters<Fake["chaos"]>[0] | undefined;
  let faults = 0;

  const server = http.createServer((request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (data) => (text += data));
    request.on("error", () => {});
    request.on("end", () => void serve(request, response, text));
  });
  // A client that goes away closes its connection; keeping them alive would hide that from nobody, but closing takes longer.
  server.keepAliveTimeout = 1000;

  async function serve(request: http.IncomingMessage, response: http.ServerResponse, text: string): Promise<void> {
    const { pathname, searchParams } = new URL(request.url!, "http://fake");
    const route = routes.find(({ method, pattern }) => method === request.method && pattern.test(pathname));
    if (!route) {
      fake.violations.push(`${request.method} ${pathname}: there is no such operation`);
      return send(response, { status: 404, body: error(404, "no such route") }, {});
    }
    const call: Call = {
      operation: route.name,
      method: route.method,
      path: pathname,
      params: Object.fromEntries(
        Object.entries(route.pattern.exec(pathname)!.groups ?? {}).map(([key, one]) => [key, decodeURIComponent(one)]),
      ),
      query: searchParams,
      body: text === "" ? undefined : json(text),
      headers: request.headers,
      at: options.now?.() ?? Date.now(),
      half: false,
    };
    fake.calls.push(call);
    fake.violations.push(...checker.request(route.name, searchParams, call.body));
    const gone = new Promise<void>((resolve) => response.once("close", resolve));
    const fault = nextFault(route.name);
    if (fault) {
      faults += 1;
      call.fault = fault.kind;
    }
    const handle = async (): Promise<Reply> => options.admit?.(call) ?? (await handlers[route.name]!(call));
    const answer = (reply: Reply): void => {
      call.status = reply.status;
      if (typeof reply.body !== "string")
        fake.violations.push(...checker.answer(route.name, reply.status, throughJson(reply.body)));
      // Before the answer arrives: whoever asks next finds it done.
      for (const one of belated) one.calls -= 1;
      void settle((one) => one.calls <= 0);
      send(response, reply, options.headers?.(call) ?? {});
    };
    // Tests that do not want to wait for the client's own limit make it give up here.
    const givenUp = async (): Promise<void> => {
      options.onStuck?.();
      await gone;
    };
    switch (fault?.kind) {
      case "status":
        if (fault.done) await handle();
        return answer({
          status: fault.status,
          body: fault.body ?? error(fault.status, fault.message ?? `injected ${fault.status}`),
          ...(fault.retryAfter !== undefined && { headers: { "retry-after": String(fault.retryAfter) } }),
        });
      case "reset":
        call.status = 0;
        return void request.socket.destroy();
      case "hang":
        call.status = 0;
        return void (await givenUp());
      case "lost":
        await handle();
        call.status = 0;
        return void request.socket.destroy();
      case "late": {
        const reply = await handle();
        await givenUp();
        call.status = 0;
        return answer(reply);
      }
      case "belated": {
        call.status = 0;
        await givenUp();
        belated.push({ calls: fault.calls ?? Number.POSITIVE_INFINITY, act: handle });
        return;
      }
      default:
        call.half = fault?.kind === "half";
        return answer(await handle());
    }
  }

  async function settle(which: (one: (typeof belated)[number]) => boolean): Promise<void> {
    const due = belated.filter(which);
    belated = belated.filter((one) => !due.includes(one));
    await Promise.all(due.map(({ act }) => act()));
  }

  function nextFault(operation: string): Fault | undefined {
    const told = planned.get(operation)?.shift() ?? planned.get("*")?.shift();
    if (told || !chaos) return told;
    if (chaos.only && !chaos.only.includes(operation)) return undefined;
    if (chaos.random() >= chaos.chance) return undefined;
    return chaos.faults[Math.floor(chaos.random() * chaos.faults.length)];
  }

  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const fake: Fake = {
    url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`,
    violations: [],
    official: checker.official,
    calls: [],
    count: (operation, which = () => true) =>
      fake.calls.filter((call) => (operation === undefined || call.operation === operation) && which(call)).length,
    fail: (operation, ...list) => void planned.set(operation, [...(planned.get(operation) ?? []), ...list]),
    chaos(wanted) {
      chaos = wanted;
    },
    calm() {
      chaos = undefined;
      planned.clear();
      const had = faults;
      faults = 0;
      return had;
    },
    settled: () => settle(() => true),
    async close() {
      server.closeAllConnections();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
  return fake;
}

/** Random numbers from 0 to 1 that a seed repeats. */
export function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface TestTime extends Clock {
  /** Every wait that was asked for, in order. */
  waits: number[];
  /** What providers are to ask with: time stands still while a question is on its way. */
  fetch: typeof fetch;
  /** Whoever waits for an answer has waited for as long as it may. */
  giveUp(): void;
  advance(ms: number): void;
}

/**
 * A time in which nobody waits: when all that is asked is answered and somebody sleeps, it goes on to the next who wakes. Sleepers wake one by one and in order,
 * so that what a fake's clock says between calls is exactly what was waited.
 */
export function testTime(from = Date.UTC(2026, 0, 1)): TestTime {
  let now = from;
  let asking = 0;
  let pump: NodeJS.Immediate | undefined;
  const sleepers: { due: number; wake(): void }[] = [];
  let patience = new AbortController();
  const stir = (): void => {
    // Some turns of the event loop: whoever was woken or answered last gets to say what they do next.
    let turns = 5;
    const turn = (): void => {
      turns -= 1;
      pump = turns > 0 ? setImmediate(turn) : undefined;
      if (turns > 0) return;
      if (asking > 0) return;
      sleepers.sort((a, b) => a.due - b.due);
      const next = sleepers.shift();
      if (!next) return;
      now = Math.max(now, next.due);
      next.wake();
      stir();
    };
    if (pump) clearImmediate(pump);
    pump = setImmediate(turn);
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
        stir();
      }),
    async fetch(input, init) {
      asking += 1;
      try {
        const signals = [patience.signal, ...(init?.signal ? [init.signal] : [])];
        const response = await fetch(input, { ...init, signal: AbortSignal.any(signals) });
        const text = await response.text();
        const empty = response.status === 204 || response.status === 304;
        return new Response(empty ? null : text, { status: response.status, headers: response.headers });
      } finally {
        asking -= 1;
        stir();
      }
    },
    giveUp() {
      patience.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError"));
      patience = new AbortController();
    },
    advance(ms) {
      now += ms;
    },
  };
  return time;
}

function send(response: http.ServerResponse, { status, body, headers }: Reply, more: Record<string, string>): void {
  if (response.destroyed) return;
  const text = typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body);
  response
    .writeHead(status, {
      ...(text !== "" && { "content-type": typeof body === "string" ? "text/html" : "application/json" }),
      ...more,
      ...headers,
    })
    .end(text);
}

function json(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return { "not json": text };
  }
}

/** As it arrives: what is undefined is not there, and a Date is text. */
function throughJson(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}
