// The live view when what it talks to misbehaves: proxies that answer for the server, tokens that run out or never come, pages that nobody looks at, components
// that come and go. The answers are scripted, since a real server gives none of them on request.
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { hold, renew, sharedStore } from "../../src/react/shared.ts";
import { waitFor } from "../../src/testing/index.ts";
import { JobStore, type JobStoreOptions } from "../../src/view/job-store.ts";
import { headline } from "../../src/view/words.ts";

const ID = "0198c0de-0000-7000-8000-00000000cafe";
const patience = { first: 2, most: 10 };

type Answer = (request: { headers: Record<string, string>; signal: AbortSignal }) => Response | Promise<Response>;

const problem =
  (status: number, detail = "No.") =>
  () =>
    Response.json({ code: "X", detail }, { status, headers: { "content-type": "application/problem+json" } });
const page = (status: number) => () =>
  new Response("<h1>Sorry</h1>", { status, headers: { "content-type": "text/html" } });
const bare = (status: number) => () => Response.json({ error: "blocked" }, { status });
const away = () => Promise.reject(new TypeError("fetch failed"));

const running = 'event: state\ndata: {"state":"running","attempt":1,"maxAttempts":3,"endedAt":null,"missing":[]}\n\n';
const ended = `event: state\ndata: {"state":"completed","attempt":1,"maxAttempts":3,"endedAt":"2030-01-01T12:00:00Z","missing":[]}\n\n`;
const end = 'id: 9-0000cafe-end\nevent: end\ndata: {"state":"completed","output":null,"failure":null}\n\n';
const line = (seq: number) =>
  `id: ${seq}-0000cafe\nevent: log\ndata: {"seq":"${seq}","at":"2030-01-01T12:00:00Z","epoch":"1","level":"info","step":null,"message":"line ${seq}","data":null}\n\n`;
const gap = (after: number, next: number) => `event: gap\ndata: {"after":"${after}","next":"${next}"}\n\n`;

/** A stream that says this, and then is over, or silent until it is cut. */
const says =
  (text: string, { stays = false } = {}): Answer =>
  ({ signal }) => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        if (!stays) controller.close();
        else signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
  };

/** Gives these answers one after the other, the last one for good. */
function script(...answers: Answer[]) {
  const asked: { at: number; headers: Record<string, string>; signal: AbortSignal }[] = [];
  const ask = async (_address: unknown, init: unknown) => {
    const request = init as { headers: Record<string, string>; signal: AbortSignal };
    asked.push({ at: performance.now(), ...request });
    return answers[Math.min(asked.length, answers.length) - 1]!(request);
  };
  return { asked, fetch: ask as typeof fetch };
}

function follow(options: Partial<JobStoreOptions>): JobStore {
  const store = new JobStore({ id: ID, token: "t", patience, ...options });
  const leave = store.subscribe(() => {});
  onTestFinished(() => {
    leave();
    store.close();
  });
  return store;
}

const reaches = (store: JobStore, connection: string) =>
  waitFor(() => store.getSnapshot().connection === connection, { what: connection, interval: 5 });
const messages = (store: JobStore) => store.getSnapshot().lines.map(({ message }) => message);

/** A page that is there for as long as the test is. */
function pageAround(visibilityState = "visible") {
  const around = Object.assign(new EventTarget(), { visibilityState });
  Object.assign(globalThis, { document: around });
  onTestFinished(() => void Reflect.deleteProperty(globalThis, "document"));
  return (now: string) => {
    around.visibilityState = now;
    around.dispatchEvent(new Event("visibilitychange"));
  };
}

describe("a refusal", () => {
  it("is what the page says, in place of what was true when it was last told", async () => {
    const { fetch } = script(says(running + line(1)), problem(403));
    const store = follow({ fetch });
    await reaches(store, "refused");
    expect(messages(store)).toEqual(["line 1"]);
    expect(headline(store.getSnapshot())).toBe("This page is not allowed to show the job.");
  });

  it("shows what the server says of it as text that cannot hide or turn around", async () => {
    const store = follow({ fetch: script(problem(400, "not\u202egnp.exe\nforged")).fetch });
    await reaches(store, "refused");
    expect(store.getSnapshot().problem).toBe("not\\u{202e}gnp.exe ⏎ forged");
  });

  it("comes from the server alone: what stands between may answer anything for a while", async () => {
    const between = [
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
      away,
    ];
    const { asked, fetch } = script(...between, says(running + line(1), { stays: true }));
    const said: string[] = [];
    const store = follow({ fetch });
    store.subscribe(() => said.push(store.getSnapshot().connection));
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(asked).toHaveLength(between.length + 1);
    expect(said).not.toContain("refused");
  });

  it("needs two answers that a job is gone which was there a moment ago, and one for a job that never was", async () => {
    const heard = says(running + line(1));
    const stray = follow({ fetch: script(heard, problem(404), heard, problem(404), says("", { stays: true })).fetch });
    await reaches(stray, "live");
    const gone = script(heard, problem(404));
    await reaches(follow({ fetch: gone.fetch }), "refused");
    expect(gone.asked).toHaveLength(3);
    const never = script(problem(404));
    await reaches(follow({ fetch: never.fetch }), "refused");
    expect(never.asked).toHaveLength(1);
  });

  it("is asked about once more when somebody comes back to the page", async () => {
    const turn = pageAround();
    const { asked, fetch } = script(problem(403), problem(403), says(running + line(1), { stays: true }));
    const store = follow({ fetch });
    await reaches(store, "refused");
    turn("hidden");
    expect(asked).toHaveLength(1);
    turn("visible");
    await waitFor(() => asked.length === 2, { what: "the second time" });
    await waitFor(() => store.getSnapshot().connection === "refused" && asked.length === 2);
    turn("visible");
    await reaches(store, "live");
    expect(asked).toHaveLength(3);
  });
});

describe("a function that gives tokens", () => {
  it("is asked again after a 401, whatever went wrong before", async () => {
    const { asked, fetch } = script(away, page(502), away, page(500), problem(401), says(line(1), { stays: true }));
    let given = 0;
    const store = follow({ fetch, token: () => `token-${++given}` });
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(asked.map(({ headers }) => headers.authorization)).toEqual([
      ...Array(5).fill("Bearer token-1"),
      "Bearer token-2",
    ]);
  });

  it("is not asked for ever when none of its tokens opens anything", async () => {
    const { fetch } = script(problem(401));
    let given = 0;
    const store = follow({ fetch, token: () => `token-${++given}` });
    await reaches(store, "refused");
    expect(given).toBe(3);
  });

  it("that never answers is asked again when the patience is over", async () => {
    const { fetch } = script(says(line(1), { stays: true }));
    let given = 0;
    const token = () => (++given === 1 ? new Promise<string>(() => {}) : "t");
    const store = follow({ fetch, token, patience: { ...patience, silence: 60 } });
    await waitFor(() => messages(store).length === 1, { what: "the line" });
    expect(given).toBeGreaterThanOrEqual(2);
  });
});

describe("a stream", () => {
  it("that brings bytes and tells nothing is asked for less and less often", async () => {
    const { asked, fetch } = script(says(":\n\n"));
    follow({ fetch, patience: { first: 10, most: 10_000 } });
    await waitFor(() => asked.length >= 7, { what: "seven connections", interval: 5 });
    expect(asked[6]!.at - asked[5]!.at).toBeGreaterThan(150);
  });

  it("that is cut behind a gap tells the gap once", async () => {
    const { fetch } = script(
      says(line(1) + gap(1, 5)),
      says(gap(1, 5)),
      says(gap(1, 5) + line(5) + gap(5, 8) + line(8), { stays: true }),
    );
    const store = follow({ fetch });
    await waitFor(() => messages(store).includes("line 8"), { what: "the last line" });
    expect(messages(store)).toEqual([
      "line 1",
      "3 lines of this place are no longer kept.",
      "line 5",
      "2 lines of this place are no longer kept.",
      "line 8",
    ]);
  });

  it("is let go twenty seconds after the page was last looked at, and asked for at once when it is again", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const turn = pageAround();
    const { asked, fetch } = script(says(running, { stays: true }));
    const store = follow({ fetch, patience: {} });
    await vi.advanceTimersByTimeAsync(10_000);
    turn("hidden");
    await vi.advanceTimersByTimeAsync(4000);
    expect(asked.map(({ signal }) => signal.aborted)).toEqual([false]);
    await vi.advanceTimersByTimeAsync(16_500);
    expect(asked.map(({ signal }) => signal.aborted)).toEqual([true]);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(asked).toHaveLength(1);
    turn("visible");
    await vi.advanceTimersByTimeAsync(300);
    expect(asked).toHaveLength(2);
    expect(store.getSnapshot().connection).toBe("live");
  });

  it("that is over is looked at again by the first who comes after nobody was there", async () => {
    const over = () => new Response(null, { status: 204 });
    const { asked, fetch } = script(says(line(1) + ended + end), over, says(running + line(10), { stays: true }));
    const store = new JobStore({ id: ID, token: "t", patience, fetch });
    onTestFinished(() => store.close());
    const leave = store.subscribe(() => {});
    await reaches(store, "over");
    store.subscribe(() => {})();
    expect(asked).toHaveLength(1);
    leave();
    store.close();
    const said: string[] = [];
    const again = store.subscribe(() => said.push(store.getSnapshot().connection));
    await waitFor(() => asked.length === 2, { what: "the second look" });
    expect(asked[1]!.headers["last-event-id"]).toBe("9-0000cafe-end");
    again();
    store.close();
    // It is not said to be connecting meanwhile: most jobs that have ended stay so.
    expect(said.filter((one) => one !== "over")).toEqual([]);
    store.subscribe(() => {});
    await waitFor(() => store.getSnapshot().end === null, { what: "the end to be none any more" });
    expect(messages(store)).toEqual(["line 1", "Completed", "line 10"]);
  });
});

describe("stories of a page", () => {
  const of = (token: JobStoreOptions["token"], id = ID) => sharedStore({ id, server: "http://127.0.0.1:9", token });

  it("are shared by those who give the same token or the same function, and by nobody else", () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    pageAround();
    const ada = () => "ada's";
    expect(of("one")).toBe(of("one"));
    expect(of(ada)).toBe(of(ada));
    const all = [of("one"), of("two"), of(undefined), of(ada), of(() => "ada's"), of(ada, "another job")];
    expect(new Set(all).size).toBe(all.length);
  });

  it("ask the function that was given last, and are gone a second after the last who showed them", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    pageAround();
    const first = () => "first";
    const store = of(first);
    const [one, two] = [hold(store), hold(store)];
    expect(await (store.token as () => Promise<string>)()).toBe("first");
    renew(store, () => "second");
    expect(await (store.token as () => Promise<string>)()).toBe("second");
    one();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(of(first)).toBe(store);
    two();
    await vi.advanceTimersByTimeAsync(500);
    // Mounted twice, as in a strict mode.
    const again = hold(of(first));
    await vi.advanceTimersByTimeAsync(5000);
    expect(of(first)).toBe(store);
    again();
    await vi.advanceTimersByTimeAsync(1500);
    expect(of(first)).not.toBe(store);
  });
});
