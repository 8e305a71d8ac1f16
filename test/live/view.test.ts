// The live view without a browser: its state, its texts, its escaping and masking.
import { describe, expect, it } from "vitest";
import type { z } from "zod";
import type { EndEvent, FeedEvent, GapEvent, LogEvent, StateEvent, StepEvent } from "../../src/live/job-buffer.ts";
import type * as schemas from "../../src/server/schemas.ts";
import { formatDuration, formatTime } from "../../src/text/format.ts";
import { ProgressMeter } from "../../src/text/progress-rate.ts";
import { createEventParser, type SseEvent } from "../../src/text/sse.ts";
import { JobStore } from "../../src/view/job-store.ts";
import { LineFilter } from "../../src/view/log/line-filter.ts";
import { escapeText, escapeTextLine, maskedJson, maskedText, maskSecrets } from "../../src/view/safe-text.ts";
import { formatEmptyLog, formatEvent, formatLines, formatProgress, headline } from "../../src/view/sentences.ts";
import type { Line, Snapshot } from "../../src/view/snapshot.ts";
import type * as wire from "../../src/view/wire.ts";

const ID = "0198c0de-0000-7000-8000-00000000cafe";
const T0 = Date.parse("2030-01-01T12:00:00Z");
const moment = (seconds: number) => new Date(T0 + seconds * 1000).toISOString();

const running: wire.StateEvent = {
  state: "running",
  waitingFor: null,
  awaitedEvent: null,
  attempt: 1,
  maxAttempts: 3,
  runAt: null,
  startedAt: moment(0),
  endedAt: null,
  progress: null,
  missing: [],
};

/** The snapshot of a store that received these events. */
function snapshotOf(...events: wire.StreamEvent[]): Snapshot {
  const store = new JobStore({ id: ID });
  for (const event of events) store.receive(event);
  return store.getSnapshot();
}

const state = (change: Partial<wire.StateEvent> = {}): wire.StreamEvent => ({
  event: "state",
  data: { ...running, ...change },
});
const log = (seq: number, message: string, change: Partial<wire.LogEvent> = {}): wire.StreamEvent => ({
  event: "log",
  data: { seq: `${seq}`, at: moment(seq), epoch: "1", level: "info", step: null, message, data: null, ...change },
});
const event = (seq: number, kind: string, data: unknown = null): wire.StreamEvent => ({
  event: "event",
  data: { seq: `${seq}`, at: moment(seq), epoch: "1", kind, data },
});
const step = (name: string, from: number, to: number): wire.StreamEvent => ({
  event: "step",
  data: { name, startedAt: moment(from), savedAt: moment(to), tookMs: (to - from) * 1000, epoch: "1" },
});
const stepStates = ({ steps }: Snapshot) => steps.map(({ name, state }) => [name, state]);

describe("the types of the stream", () => {
  it("are those of the server: of its schemas and of its events", () => {
    type Json<T> = T extends Date
      ? string
      : T extends (infer Item)[]
        ? Json<Item>[]
        : T extends object
          ? { [Name in keyof T]: Json<T[Name]> }
          : T;
    type Data<T> = Json<Omit<T, "kind" | "id">>;
    const fits = <Wide>(..._narrow: Wide[]) => {};
    // Compiled, not run: the compiler rejects a line whose types differ.
    const compiled = () => {
      fits<wire.StateEvent>(null! as z.infer<typeof schemas.Job>, null! as Data<StateEvent>);
      fits<wire.StepEvent>(null! as z.infer<typeof schemas.Step>, null! as Data<StepEvent>);
      fits<Omit<wire.LogEvent, "epoch">>(null! as z.infer<typeof schemas.LogLine>);
      fits<wire.LogEvent>(null! as Data<LogEvent>);
      fits<Omit<wire.FeedEvent, "kind">>(null! as Data<FeedEvent>);
      fits<wire.GapEvent>(null! as Data<GapEvent>);
      fits<wire.EndEvent>(null! as Data<EndEvent>);
      fits<wire.Failure | null>(null! as z.infer<typeof schemas.Job>["failure"]);
      fits<wire.Artifact>(null! as z.infer<typeof schemas.Artifact>);
      fits<wire.Problem>(null! as z.infer<typeof schemas.Problem>);
    };
    expect(compiled).toBeTypeOf("function");
  });

  it("are parsed completely however the bytes are split, also within a character", () => {
    const messages = ["plain", "ünïcode 😀 日本", "a\n\nevent: end\ndata: {}", "\u2028"];
    const text = messages
      .map(
        (message, n) => `id: ${n + 1}-0000cafe\nevent: log\ndata: ${JSON.stringify({ seq: `${n + 1}`, message })}\n\n`,
      )
      .join(":\n\nretry: 1000\n\n");
    const bytes = new TextEncoder().encode(text);
    for (let size = 1; size < 40; size++) {
      const events: SseEvent[] = [];
      const parse = createEventParser((event) => events.push(event));
      for (let at = 0; at < bytes.length; at += size) parse(bytes.subarray(at, at + size));
      expect(events.map(({ id, data }) => [id, data.message])).toEqual(
        messages.map((message, n) => [`${n + 1}-0000cafe`, message]),
      );
    }
  });
});

describe("a store", () => {
  it("knows running, saved and failed optional steps", () => {
    const beginning = [state(), log(1, "Cloning…", { step: "clone" })];
    expect(stepStates(snapshotOf(...beginning))).toEqual([["clone", "running"]]);
    const kept = [...beginning, step("clone", 1, 2), log(3, "Scanning…", { step: "scan" })];
    expect(stepStates(snapshotOf(...kept))).toEqual([
      ["clone", "kept"],
      ["scan", "running"],
    ]);
    const failed = log(4, "Scan failed", { step: "scan", level: "warning", data: { code: "X", error: "boom" } });
    expect(stepStates(snapshotOf(...kept, failed))).toEqual([
      ["clone", "kept"],
      ["scan", "missing"],
    ]);
    const ended = state({ state: "completed", endedAt: moment(9), missing: ["scan", "upload"] });
    expect(stepStates(snapshotOf(...kept, ended))).toEqual([
      ["clone", "kept"],
      ["scan", "missing"],
      ["upload", "missing"],
    ]);
  });

  it("marks running steps as interrupted when a worker is lost, and as running in the next attempt", () => {
    const lost = [
      state(),
      log(1, "Cloning…", { step: "clone" }),
      event(2, "lost", { message: "The runner was killed" }),
    ];
    expect(stepStates(snapshotOf(...lost))).toEqual([["clone", "interrupted"]]);
    const again = snapshotOf(...lost, log(3, "Cloning…", { step: "clone", epoch: "2" }));
    expect(again.steps).toMatchObject([{ name: "clone", state: "running", startedAt: moment(3) }]);
    expect(again.lines.map(({ kind, message }) => `${kind} ${message}`)).toEqual([
      "log Cloning…",
      "event The runner was killed. The job resumes from its last checkpoint.",
      "log Cloning…",
    ]);
  });

  it("drops the steps of a job that was restarted from the beginning, and no others", () => {
    const before = [state(), step("old", 1, 2), step("new", 11, 12), log(1, "x", { step: "half" })];
    expect(stepStates(snapshotOf(...before, event(10, "retried", { from_start: true })))).toEqual([["new", "kept"]]);
    expect(stepStates(snapshotOf(...before, event(10, "retried", { by: "ada" })))).toEqual([
      ["old", "kept"],
      ["half", "interrupted"],
      ["new", "kept"],
    ]);
  });

  it("marks missing lines, and starts over when the server has lost shown lines", () => {
    const gap = snapshotOf(log(1, "one"), { event: "gap", data: { after: "1", next: "5" } }, log(5, "five"));
    expect(gap.lines.map(({ message }) => message)).toEqual(["one", "3 lines are no longer stored.", "five"]);
    const startedOver = snapshotOf(
      log(7, "seven"),
      { event: "gap", data: { after: "7", next: "1" } },
      log(1, "one again"),
    );
    expect(startedOver.lines.map(({ message, no }) => [no, message])).toEqual([
      [0, "The server lost lines that were shown here. The remaining lines follow."],
      [1, "one again"],
    ]);
    expect(startedOver.counts).toEqual({ info: 1, success: 0, warning: 1, error: 0 });
  });

  it("has no outcome any more when the job was retried", () => {
    const end: wire.StreamEvent = {
      event: "end",
      data: { state: "failed", output: null, failure: { message: "boom" } },
    };
    const failed = [state({ state: "failed", endedAt: moment(5) }), end];
    expect(headline(snapshotOf(...failed))).toBe("Failed: boom.");
    expect(snapshotOf(...failed, state({ state: "queued" })).end).toBeNull();
  });

  it("shows the reason of a failure once: in the last line, or else in the outcome", () => {
    const sentence = "Extraction failed after 3 attempts (machine crash or timeout)";
    const failure = { code: "POISONED", message: "Failed after 3 crashes", sentence };
    const failed = state({ state: "failed", startedAt: moment(0), endedAt: moment(64) });
    const end: wire.StreamEvent = { event: "end", data: { state: "failed", output: null, failure } };
    const shown = (...events: wire.StreamEvent[]) =>
      snapshotOf(...events).lines.map(({ level, message }) => `${level}: ${message}`);
    expect(shown(failed, end)).toEqual([`error: ${sentence}`]);
    const last = log(1, sentence, { level: "error" });
    expect(shown(last, failed, end)).toEqual([`error: ${sentence}`, "error: Failed after 1 min 4 s"]);
    expect(headline(snapshotOf(last, failed, end))).toBe(`${sentence}.`);
    expect(shown(log(1, "something else"), failed, end)).toEqual(["info: something else", `error: ${sentence}`]);
  });

  it("calls its subscribers once for many events, and appends to one list", async () => {
    const store = new JobStore({ id: ID, fetch: () => new Promise(() => {}) });
    let calls = 0;
    const next = () => new Promise<void>((resolve) => void store.subscribe(() => resolve(void calls++)));
    const called = next();
    const before = store.getSnapshot();
    for (let n = 1; n <= 10_000; n++) store.receive(log(n, `${n}`));
    expect(store.getSnapshot()).toBe(before);
    await called;
    expect(calls).toBe(1);
    const { lines, version } = store.getSnapshot();
    expect([lines.length, version]).toEqual([10_000, 10_000]);
    const again = next();
    store.receive(log(10_001, "more"));
    await again;
    expect(store.getSnapshot().lines).toBe(lines);
    store.close();
  });
});

describe("the progress rate", () => {
  it("uses the times at which the job reported, not those at which the reports arrived", () => {
    const meter = new ProgressMeter();
    meter.update({ at: moment(0), done: 100, total: 1000 }, 0);
    meter.update({ at: moment(10), done: 480, total: 1000 }, 1);
    expect(meter.current).toMatchObject({ perSecond: 38, done: 480, fraction: 0.48 });
    expect(meter.current!.leftMs).toBeCloseTo((520 / 38) * 1000);
    const snapshot = { ...snapshotOf(state()), progress: meter.current };
    expect(formatProgress(snapshot, 1)).toBe("480 of 1,000 · 38 per second · 14 s left");
    expect(formatProgress(snapshot, 5001)).toBe("480 of 1,000 · 38 per second · 9 s left");
  });

  it("covers the last 30 seconds, and is unknown after a step back", () => {
    const meter = new ProgressMeter();
    for (let second = 0; second <= 60; second += 5) {
      const done = second <= 30 ? second : 30 + (second - 30) * 10;
      meter.update({ at: moment(second), done, total: 1000 });
    }
    expect(meter.current!.perSecond).toBeCloseTo(10);
    meter.update({ at: moment(61), done: 1, total: 1000 });
    expect(meter.current).toMatchObject({ perSecond: null, leftMs: null, fraction: 0.001 });
    meter.update({ at: moment(71), done: 51, total: 1000 });
    expect(meter.current!.perSecond).toBeCloseTo(5);
    meter.update({ at: moment(72), sentence: "Uploading" });
    expect(meter.current).toMatchObject({ fraction: null, sentence: "Uploading" });
  });
});

describe("the sentences", () => {
  it("describe the current state", () => {
    const now = T0;
    const later = new Date(T0 + 60_000).toISOString();
    expect(headline(snapshotOf(), now)).toBe("Loading the job…");
    expect(headline(snapshotOf(state()), now)).toBe("Running…");
    expect(headline(snapshotOf(state({ attempt: 2 }), log(1, "Cloning…", { step: "c" })), now)).toBe(
      "Running: Cloning… (attempt 2 of 3)",
    );
    expect(headline(snapshotOf(state({ state: "queued", startedAt: null })), now)).toBe("Waiting for a worker.");
    expect(headline(snapshotOf(state({ state: "queued", waitingFor: "retry", runAt: later })), now)).toBe(
      `Waiting for the next attempt, until ${formatTime(later)}.`,
    );
    const waits = { state: "queued", waitingFor: "event" } as const;
    expect(headline(snapshotOf(state(waits)), now)).toBe("Waiting for an external event.");
    expect(headline(snapshotOf(state({ ...waits, awaitedEvent: "approval", runAt: later })), now)).toBe(
      `Waiting for the event approval, until ${formatTime(later)}.`,
    );
    const tomorrow = new Date(T0 + 24 * 3_600_000);
    const day = `${tomorrow.getFullYear()}-${String(tomorrow.getMonth() + 1).padStart(2, "0")}-${String(tomorrow.getDate()).padStart(2, "0")}`;
    expect(headline(snapshotOf(state({ ...waits, runAt: tomorrow.toISOString() })), now)).toBe(
      `Waiting for an external event, until ${day} ${formatTime(tomorrow)}.`,
    );
    const ended = { state: "completed", endedAt: moment(64), missing: ["scan"] } as const;
    expect(headline(snapshotOf(state({ ...ended, missing: ["scan"] })), now)).toBe(
      "Completed in 1 min 4 s, without scan.",
    );
    expect(headline(snapshotOf(state({ state: "cancelled", endedAt: moment(3) })), now)).toBe("Cancelled after 3.0 s.");
    expect(
      headline(snapshotOf(state(), { event: "end", data: { state: null, output: null, failure: null } }), now),
    ).toBe("This job was pruned.");
    expect(formatEmptyLog(snapshotOf(state({ state: "queued", startedAt: null })))).toBe(
      "Waiting for a worker. Lines appear when the job starts.",
    );
    expect([0, 999, 4200, 9999, 64_000, 3_600_000, 90_061_000].map((ms) => formatDuration(ms))).toEqual([
      "0 ms",
      "999 ms",
      "4.2 s",
      "10 s",
      "1 min 4 s",
      "1 h",
      "1 day 1 h",
    ]);
  });

  it("describe what a job waits for", () => {
    const slept = (data: unknown) => formatEvent({ kind: "slept", data }).message;
    expect(slept({ waiting_for: "event", awaits: "approval" })).toBe(
      "The job waits for the event approval and occupies no worker until it resumes.",
    );
    expect(slept({ waiting_for: "children", awaits: "kids" })).toBe(
      "The job waits for its child jobs and occupies no worker until it resumes.",
    );
    expect(slept(null)).toBe("The job waits and occupies no worker until it resumes.");
  });

  it("describe every state change of the feed, also without data, as for a read token", () => {
    const kinds =
      "lost failed slept released paused pause_requested resumed retried restarted adopted cancel_requested";
    for (const kind of [
      ...kinds.split(" "),
      "signalled",
      "spawned",
      "completed_by_progress",
      "released:time",
      "aborted:shutdown",
    ]) {
      const { message } = formatEvent({ kind, data: null });
      expect(message).toMatch(/^[\w ,:;.]{6,}$/);
      expect(message).not.toMatch(/undefined|null/);
    }
    // A worker that shuts down releases with its own reason.
    for (const kind of ["released", "aborted:shutdown"]) {
      expect(formatEvent({ kind, data: null }).message).toBe(
        "Released: its worker is shutting down. The job resumes on another worker.",
      );
    }
    expect(formatEvent({ kind: "paused", data: { by: "ada", reason: "too many" } }).message).toBe(
      "Paused by ada: too many",
    );
  });
});

describe("untrusted text", () => {
  it("loses its colours, and every other control character is made visible", () => {
    expect(escapeText("\u001b[31;1mred\u001b[0m \u001b[38:2::1:2:3mtrue\u001b[m")).toBe("red true");
    expect(escapeText("\u001b]8;;http://evil\u0007link\u001b[2J\rover")).toBe("␛]8;;http://evil␇link␛[2J␍over");
    expect(escapeText("a\u202egnp.exe\u200b\u00ad")).toBe("a\\u{202e}gnp.exe\\u{200b}\\u{ad}");
    expect(escapeText("one\r\ntwo\tthree ünï 日本 👨‍👩‍👧")).toBe("one\ntwo\tthree ünï 日本 👨‍👩‍👧");
    expect(escapeTextLine("one\ntwo\u2028three")).toBe("one ⏎ two ⏎ three");
  });

  it("is masked where its field looks like a secret, and stays valid JSON", () => {
    const value = {
      user: "ada",
      password: "hunter2",
      nested: { apiKey: 12345, tokens: ["one", "two"], note: null, "x-authorization": "" },
      url: "postgres://ada:secret@db/app",
      list: [1, [], {}, "eyJhbGciOi.eyJzdWIiOi.x"],
      isSecret: true,
    };
    const parts = maskedJson(value);
    const whole = parts.map((part) => (typeof part === "string" ? part : part.secret)).join("");
    expect(whole).toBe(JSON.stringify(value, null, 2));
    const hidden = parts.flatMap((part) => (typeof part === "string" ? [] : part.secret));
    expect(hidden).toEqual([
      '"hunter2"',
      "12345",
      '"one"',
      '"two"',
      '"postgres://ada:secret@db/app"',
      '"eyJhbGciOi.eyJzdWIiOi.x"',
    ]);
    const masked = (value: unknown) =>
      maskedJson(value).flatMap((part) => (typeof part === "string" ? [] : part.secret));
    const keys = [
      "AKIAIOSFODNN7EXAMPLE",
      "sk-proj-a1b2c3d4e5f6g7h8",
      "sk-ant-api03-abcdefgh",
      `npm_${"a1".repeat(18)}`,
      `AIza${"Sy0_".repeat(9)}`,
      "xoxb-123456789012-abcdef",
      "curl -H 'Authorization: Bearer abcdef123456' https://api",
      "redis://:hunter2@cache:6379",
    ];
    for (const key of keys) expect(masked({ note: key }), key).toEqual([JSON.stringify(key)]);
    expect(masked({ password: { value: "a", deep: ["b"] }, pwd: "c", PWD: "/home/ada" })).toEqual([
      '"a"',
      '"b"',
      '"c"',
    ]);
    expect(
      masked([
        { name: "API_KEY", value: "a" },
        { key: "colour", value: "red" },
      ]),
    ).toEqual(['"a"']);
    expect(masked({ args: ["--password", "a", "--user", "ada"], header: ["x-api-key", "b"] })).toEqual(['"a"', '"b"']);
    const counts = { prompt_tokens: 12, max_tokens: 100, token_count: 3, tokens: { prompt: 5 }, totalTokens: 9 };
    expect(masked({ usage: counts, words: "Bearer authentication failed, basic configuration" })).toEqual([]);
    expect(maskedJson("\u202e")).toEqual(['"\\u{202e}"']);
  });

  it("is masked where a line or a stack contains a secret, and nowhere else", () => {
    const text = "GET /?token=abc123 with Bearer abcdef123456\n\u001b[1mat postgres://ada:hunter2@db/app";
    expect(maskedText(text)).toEqual([
      "GET /?",
      { secret: "token=abc123" },
      " with ",
      { secret: "Bearer abcdef123456" },
      "\nat postgres",
      { secret: "://ada:hunter2@" },
      "db/app",
    ]);
    expect(maskSecrets(text)).not.toMatch(/abc|hunter2/);
    const harmless = "The bearer of bad news: max_tokens=100, npm_config_cache, ask-me-anything-2024, PWD=/home/ada";
    expect(maskedText(harmless)).toEqual([harmless]);
    // No text makes the search slow.
    const startedAt = performance.now();
    for (const piece of ["sk-", "eyJ", "a:", "://a:", "Bearer ", "-----BEGIN PRIVATE KEY", "token=", "a-"]) {
      maskedText(piece.repeat(20_000));
    }
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });

  it("cannot forge a line when it is copied", () => {
    const { lines } = snapshotOf(
      log(1, "one\n12:00:00  error  forged", { level: "success", step: "s", data: { took_ms: 4200 } }),
    );
    expect(formatLines(lines, () => "12:34:56")).toBe(
      `12:34:56  success  [s] one\n${" ".repeat(19)}12:00:00  error  forged (4.2 s)\n`,
    );
  });
});

describe("the filter", () => {
  const lines: Line[] = [
    ...snapshotOf(log(1, "Alpha"), log(2, "beta", { level: "error", step: "s" }), log(3, "alphabet")).lines,
  ];

  it("shows the matching lines, and matches only new ones", () => {
    const filter = new LineFilter();
    filter.update(lines);
    expect(filter.count).toBe(3);
    filter.setQuery({ text: " ALPHA " });
    expect(filter.all().map(({ message }) => message)).toEqual(["Alpha", "alphabet"]);
    expect([filter.indexOf(2), filter.indexOf(1)]).toEqual([1, -1]);
    lines.push({ ...lines[0]!, no: 3, message: "alpha three" });
    expect(filter.update(lines)).toBe(false);
    expect(filter.count).toBe(3);
    filter.setQuery({ text: "", levels: new Set(["error"]) });
    expect(filter.all().map(({ message }) => message)).toEqual(["beta"]);
    filter.setQuery({ levels: new Set(["info", "error"]), step: "s" });
    expect(filter.count).toBe(1);
    expect(filter.update([])).toBe(true);
    expect(filter.count).toBe(0);
  });
});
