// The live view under faults: proxies that respond for the server, expired or missing tokens, hidden pages, components
// that mount and unmount. The responses are scripted, because a real server does not produce them on request.
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { getSharedStore, retainStore, updateToken } from "../../src/react/shared.ts";
import { waitFor } from "../../src/testing/index.ts";
import { JobStore, type JobStoreOptions } from "../../src/view/job-store.ts";
import { headline } from "../../src/view/sentences.ts";

const ID = "0198c0de-0000-7000-8000-00000000cafe";
const timing = { initialRetry: 2, maxRetry: 10 };

type Responder = (request: { headers: Record<string, string>; signal: AbortSignal }) => Response | Promise<Response>;

const problem =
  (status: number, detail = "No.") =>
  () =>
    Response.json({ code: "X", detail }, { status, headers: { "content-type": "application/problem+json" } });
const page = (status: number) => () =>
  new Response("<h1>Sorry</h1>", { status, headers: { "content-type": "text/html" } });
const bare = (status: number) => () => Response.json({ error: "blocked" }, { status });
const networkError = () => Promise.reject(new TypeError("fetch failed"));

const running = 'event: state\ndata: {"state":"running","attempt":1,"maxAttempts":3,"endedAt":null,"missing":[]}\n\n';
const ended = `event: state\ndata: {"state":"completed","attempt":1,"maxAttempts":3,"endedAt":"2030-01-01T12:00:00Z","missing":[]}\n\n`;
const end = 'id: 9-0000cafe-end\nevent: end\ndata: {"state":"completed","output":null,"failure":null}\n\n';
const line = (seq: number) =>
  `id: ${seq}-0000cafe\nevent: log\ndata: {"seq":"${seq}","at":"2030-01-01T12:00:00Z","epoch":"1","level":"info","step":null,"message":"line ${seq}","data":null}\n\n`;
const gap = (after: number, next: number) => `event: gap\ndata: {"after":"${after}","next":"${next}"}\n\n`;

/** A stream with this text that then ends, or, with `open`, stays silent until it is aborted. */
const streams =
  (text: string, { open = false } = {}): Responder =>
  ({ signal }) => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        if (!open) controller.close();
        else signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
  };

/** Responds with these one after the other, and with the last one from then on. */
function script(...responders: Responder[]) {
  const requests: { at: number; headers: Record<string, string>; signal: AbortSignal }[] = [];
  const send = async (_url: unknown, init: unknown) => {
    const request = init as { headers: Record<string, string>; signal: AbortSignal };
    requests.push({ at: performance.now(), ...request });
    return responders[Math.min(requests.length, responders.length) - 1]!(request);
  };
  return { requests, fetch: send as typeof fetch };
}

function follow(options: Partial<JobStoreOptions>): JobStore {
  const store = new JobStore({ id: ID, token: "t", timing, ...options });
  const unsubscribe = store.subscribe(() => {});
  onTestFinished(() => {
    unsubscribe();
    store.close();
  });
  return store;
}

const reaches = (store: JobStore, connection: string) =>
  waitFor(() => store.getSnapshot().connection === connection, { what: connection, interval: 5 });
const messages = (store: JobStore) => store.getSnapshot().lines.map(({ message }) => message);

/** Installs a document for the duration of the test. Returns a function that changes its visibility. */
function installPage(visibilityState = "visible") {
  const page = Object.assign(new EventTarget(), { visibilityState });
  Object.assign(globalThis, { document: page });
  onTestFinished(() => void Reflect.deleteProperty(globalThis, "document"));
  return (visibility: string) => {
    page.visibilityState = visibility;
    page.dispatchEvent(new Event("visibilitychange"));
  };
}

describe("a refusal", () => {
  it("replaces the last known state in the headline", async () => {
    const { fetch } = script(streams(running + line(1)), problem(403));
    const store = follow({ fetch });
    await reaches(store, "refused");
    expect(messages(store)).toEqual(["line 1"]);
    expect(headline(store.getSnapshot())).toBe("This page may not show the job.");
  });

  it("shows the detail of the server as escaped text", async () => {
    const store = follow({ fetch: script(problem(400, "not\u202egnp.exe\nforged")).fetch });
    await reaches(store, "refused");
    expect(store.getSnapshot().problem).toBe("not\\u{202e}gnp.exe ⏎ forged");
  });

  it("comes only from the server: a proxy may respond with anything for a while", async () => {
    const faults = [
      page(404),
      bare(404),
      bare(403),
      page(403),
      page(401),
      page(400),
      page(200),
      problem(408),
      problem(425),
      page(302),
      networkError,
    ];
    const { requests, fetch } = script(...faults, streams(running + line(1), { open: true }));
    const connections: string[] = [];
    const store = follow({ fetch });
    store.subscribe(() => connections.push(store.getSnapshot().connection));
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(requests).toHaveLength(faults.length + 1);
    expect(connections).not.toContain("refused");
  });

  it("needs two 404 responses for a job that existed, and one for a job that never did", async () => {
    const existing = streams(running + line(1));
    const flaky = follow({
      fetch: script(existing, problem(404), existing, problem(404), streams("", { open: true })).fetch,
    });
    await reaches(flaky, "live");
    const gone = script(existing, problem(404));
    await reaches(follow({ fetch: gone.fetch }), "refused");
    expect(gone.requests).toHaveLength(3);
    const never = script(problem(404));
    await reaches(follow({ fetch: never.fetch }), "refused");
    expect(never.requests).toHaveLength(1);
  });

  it("is checked once more when the page becomes visible", async () => {
    const setVisibility = installPage();
    const { requests, fetch } = script(problem(403), problem(403), streams(running + line(1), { open: true }));
    const store = follow({ fetch });
    await reaches(store, "refused");
    setVisibility("hidden");
    expect(requests).toHaveLength(1);
    setVisibility("visible");
    await waitFor(() => requests.length === 2, { what: "the second time" });
    await waitFor(() => store.getSnapshot().connection === "refused" && requests.length === 2);
    setVisibility("visible");
    await reaches(store, "live");
    expect(requests).toHaveLength(3);
  });
});

describe("a token function", () => {
  it("is called again after a 401, whatever failed before", async () => {
    const { requests, fetch } = script(
      networkError,
      page(502),
      networkError,
      page(500),
      problem(401),
      streams(line(1), { open: true }),
    );
    let calls = 0;
    const store = follow({ fetch, token: () => `token-${++calls}` });
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(requests.map(({ headers }) => headers.authorization)).toEqual([
      ...Array(5).fill("Bearer token-1"),
      "Bearer token-2",
    ]);
  });

  it("is not called forever when every token is rejected", async () => {
    const { fetch } = script(problem(401));
    let calls = 0;
    const store = follow({ fetch, token: () => `token-${++calls}` });
    await reaches(store, "refused");
    expect(calls).toBe(3);
  });

  it("that never resolves is called again after the silence timeout", async () => {
    const { fetch } = script(streams(line(1), { open: true }));
    let calls = 0;
    const token = () => (++calls === 1 ? new Promise<string>(() => {}) : "t");
    const store = follow({ fetch, token, timing: { ...timing, silence: 60 } });
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(calls).toBeGreaterThanOrEqual(2);
  });
});

describe("a stream", () => {
  it("that sends bytes but no event is retried with growing backoff", async () => {
    const { requests, fetch } = script(streams(":\n\n"));
    follow({ fetch, timing: { initialRetry: 10, maxRetry: 10_000 } });
    await waitFor(() => requests.length >= 7, { what: "seven connections", interval: 5 });
    expect(requests[6]!.at - requests[5]!.at).toBeGreaterThan(150);
  });

  it("that is cut after a gap reports the gap once", async () => {
    const { fetch } = script(
      streams(line(1) + gap(1, 5)),
      streams(gap(1, 5)),
      streams(gap(1, 5) + line(5) + gap(5, 8) + line(8), { open: true }),
    );
    const store = follow({ fetch });
    await waitFor(() => messages(store).includes("line 8"), { what: "the last line" });
    expect(messages(store)).toEqual([
      "line 1",
      "3 lines are no longer stored.",
      "line 5",
      "2 lines are no longer stored.",
      "line 8",
    ]);
  });

  it("is closed after the page was hidden for 20 seconds, and reopened when it becomes visible", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const setVisibility = installPage();
    const { requests, fetch } = script(streams(running, { open: true }));
    const store = follow({ fetch, timing: {} });
    await vi.advanceTimersByTimeAsync(10_000);
    setVisibility("hidden");
    await vi.advanceTimersByTimeAsync(4000);
    expect(requests.map(({ signal }) => signal.aborted)).toEqual([false]);
    await vi.advanceTimersByTimeAsync(16_500);
    expect(requests.map(({ signal }) => signal.aborted)).toEqual([true]);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(requests).toHaveLength(1);
    setVisibility("visible");
    await vi.advanceTimersByTimeAsync(300);
    expect(requests).toHaveLength(2);
    expect(store.getSnapshot().connection).toBe("live");
  });

  it("that is over is checked again by the first subscriber after a time without any", async () => {
    const over = () => new Response(null, { status: 204 });
    const { requests, fetch } = script(
      streams(line(1) + ended + end),
      over,
      streams(running + line(10), { open: true }),
    );
    const store = new JobStore({ id: ID, token: "t", timing, fetch });
    onTestFinished(() => store.close());
    const unsubscribe = store.subscribe(() => {});
    await reaches(store, "over");
    store.subscribe(() => {})();
    expect(requests).toHaveLength(1);
    unsubscribe();
    store.close();
    const connections: string[] = [];
    const again = store.subscribe(() => connections.push(store.getSnapshot().connection));
    await waitFor(() => requests.length === 2, { what: "the second request" });
    expect(requests[1]!.headers["last-event-id"]).toBe("9-0000cafe-end");
    again();
    store.close();
    // It does not show "connecting": most settled jobs stay settled.
    expect(connections.filter((connection) => connection !== "over")).toEqual([]);
    store.subscribe(() => {});
    await waitFor(() => store.getSnapshot().end === null, { what: "no outcome" });
    expect(messages(store)).toEqual(["line 1", "Completed", "line 10"]);
  });
});

describe("the shared stores of a page", () => {
  const storeOf = (token: JobStoreOptions["token"], id = ID) =>
    getSharedStore({ id, server: "http://127.0.0.1:9", token });

  it("are shared for the same token or the same token function only", () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    installPage();
    const ada = () => "ada's";
    expect(storeOf("one")).toBe(storeOf("one"));
    expect(storeOf(ada)).toBe(storeOf(ada));
    const all = [
      storeOf("one"),
      storeOf("two"),
      storeOf(undefined),
      storeOf(ada),
      storeOf(() => "ada's"),
      storeOf(ada, "another job"),
    ];
    expect(new Set(all).size).toBe(all.length);
  });

  it("call the latest token function, and are closed a second after the last component unmounted", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    installPage();
    const first = () => "first";
    const store = storeOf(first);
    const [one, two] = [retainStore(store), retainStore(store)];
    expect(await (store.token as () => Promise<string>)()).toBe("first");
    updateToken(store, () => "second");
    expect(await (store.token as () => Promise<string>)()).toBe("second");
    one();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(storeOf(first)).toBe(store);
    two();
    await vi.advanceTimersByTimeAsync(500);
    // Mounted twice, as in React's strict mode.
    const again = retainStore(storeOf(first));
    await vi.advanceTimersByTimeAsync(5000);
    expect(storeOf(first)).toBe(store);
    again();
    await vi.advanceTimersByTimeAsync(1500);
    expect(storeOf(first)).not.toBe(store);
  });
});
