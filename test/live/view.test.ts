// The live view without a browser: what it makes of what a server says, in which words, and what it never shows.
import { describe, expect, it } from "vitest";
import type { z } from "zod";
import type { EndEvent, FeedEvent, GapEvent, LogEvent, StateEvent, StepEvent } from "../../src/live/job-buffer.ts";
import type * as shapes from "../../src/server/shapes.ts";
import { JobStore } from "../../src/view/job-store.ts";
import { LineFilter } from "../../src/view/log/line-filter.ts";
import { textOf } from "../../src/view/log/line-text.ts";
import { Pace } from "../../src/view/pace.ts";
import { maskedJson, maskedText, plain, plainLine, veiled } from "../../src/view/plain.ts";
import type { Line, Snapshot } from "../../src/view/snapshot.ts";
import { eventReader } from "../../src/view/sse.ts";
import type * as wire from "../../src/view/wire.ts";
import { clock, emptyWords, eventSentence, headline, progressWords, span } from "../../src/view/words.ts";

const ID = "0198c0de-0000-7000-8000-00000000cafe";
const T0 = Date.parse("2030-01-01T12:00:00Z");
const moment = (seconds: number) => new Date(T0 + seconds * 1000).toISOString();

const running: wire.StateTold = {
  state: "running",
  waitingFor: null,
  attempt: 1,
  maxAttempts: 3,
  runAt: null,
  startedAt: moment(0),
  endedAt: null,
  progress: null,
  missing: [],
};

/** A store that has been told this, one after the other. */
function told(...events: wire.Told[]): Snapshot {
  const store = new JobStore({ id: ID });
  for (const event of events) store.tell(event);
  return store.getSnapshot();
}

const state = (change: Partial<wire.StateTold> = {}): wire.Told => ({
  event: "state",
  data: { ...running, ...change },
});
const log = (seq: number, message: string, change: Partial<wire.LogTold> = {}): wire.Told => ({
  event: "log",
  data: { seq: `${seq}`, at: moment(seq), epoch: "1", level: "info", step: null, message, data: null, ...change },
});
const event = (seq: number, kind: string, data: unknown = null): wire.Told => ({
  event: "event",
  data: { seq: `${seq}`, at: moment(seq), epoch: "1", kind, data },
});
const step = (name: string, from: number, to: number): wire.Told => ({
  event: "step",
  data: { name, startedAt: moment(from), savedAt: moment(to), tookMs: (to - from) * 1000, epoch: "1" },
});
const shown = ({ steps }: Snapshot) => steps.map((one) => [one.name, one.state]);

describe("the wire", () => {
  it("has the types of the server: of its shapes, and of what its streams tell", () => {
    type Sent<T> = T extends Date
      ? string
      : T extends (infer One)[]
        ? Sent<One>[]
        : T extends object
          ? { [Name in keyof T]: Sent<T[Name]> }
          : T;
    type Data<T> = Sent<Omit<T, "kind" | "id">>;
    const fits = <Wide>(..._narrow: Wide[]) => {};
    // Compiled, not run: each line is refused by the compiler when the two sides part.
    const compiled = () => {
      fits<wire.StateTold>(null! as z.infer<typeof shapes.Job>, null! as Data<StateEvent>);
      fits<wire.StepTold>(null! as z.infer<typeof shapes.Step>, null! as Data<StepEvent>);
      fits<Omit<wire.LogTold, "epoch">>(null! as z.infer<typeof shapes.LogLine>);
      fits<wire.LogTold>(null! as Data<LogEvent>);
      fits<Omit<wire.EventTold, "kind">>(null! as Data<FeedEvent>);
      fits<wire.GapTold>(null! as Data<GapEvent>);
      fits<wire.EndTold>(null! as Data<EndEvent>);
      fits<wire.Failure | null>(null! as z.infer<typeof shapes.Job>["failure"]);
      fits<wire.Artifact>(null! as z.infer<typeof shapes.Artifact>);
      fits<wire.Problem>(null! as z.infer<typeof shapes.Problem>);
    };
    expect(compiled).toBeTypeOf("function");
  });

  it("is read whole however the bytes are cut, also within a character", () => {
    const messages = ["plain", "ünïcode 😀 日本", "a\n\nevent: end\ndata: {}", "\u2028"];
    const text = messages
      .map(
        (message, n) => `id: ${n + 1}-0000cafe\nevent: log\ndata: ${JSON.stringify({ seq: `${n + 1}`, message })}\n\n`,
      )
      .join(":\n\nretry: 1000\n\n");
    const bytes = new TextEncoder().encode(text);
    for (let size = 1; size < 40; size++) {
      const heard: wire.Told[] = [];
      const take = eventReader((one) => heard.push(one));
      for (let at = 0; at < bytes.length; at += size) take(bytes.subarray(at, at + size));
      expect(heard.map(({ id, data }) => [id, (data as wire.LogTold).message])).toEqual(
        messages.map((message, n) => [`${n + 1}-0000cafe`, message]),
      );
    }
  });
});

describe("a store", () => {
  it("knows steps before they are kept, those that are, and those that were given up", () => {
    const beginning = [state(), log(1, "Cloning…", { step: "clone" })];
    expect(shown(told(...beginning))).toEqual([["clone", "running"]]);
    const kept = [...beginning, step("clone", 1, 2), log(3, "Scanning…", { step: "scan" })];
    expect(shown(told(...kept))).toEqual([
      ["clone", "kept"],
      ["scan", "running"],
    ]);
    const givenUp = log(4, "Scan failed", { step: "scan", level: "warning", data: { code: "X", error: "boom" } });
    expect(shown(told(...kept, givenUp))).toEqual([
      ["clone", "kept"],
      ["scan", "missing"],
    ]);
    const ended = state({ state: "completed", endedAt: moment(9), missing: ["scan", "upload"] });
    expect(shown(told(...kept, ended))).toEqual([
      ["clone", "kept"],
      ["scan", "missing"],
      ["upload", "missing"],
    ]);
  });

  it("sets aside what was under way when a worker is lost, and takes it up again with the next attempt", () => {
    const lost = [
      state(),
      log(1, "Cloning…", { step: "clone" }),
      event(2, "lost", { message: "The runner was killed" }),
    ];
    expect(shown(told(...lost))).toEqual([["clone", "interrupted"]]);
    const again = told(...lost, log(3, "Cloning…", { step: "clone", epoch: "2" }));
    expect(again.steps).toMatchObject([{ name: "clone", state: "running", startedAt: moment(3) }]);
    expect(again.lines.map(({ kind, message }) => `${kind} ${message}`)).toEqual([
      "log Cloning…",
      "event The runner was killed. The job goes on where it was.",
      "log Cloning…",
    ]);
  });

  it("forgets the steps of a job that begins anew, and no others", () => {
    const before = [state(), step("old", 1, 2), step("new", 11, 12), log(1, "x", { step: "half" })];
    expect(shown(told(...before, event(10, "retried", { from_start: true })))).toEqual([["new", "kept"]]);
    expect(shown(told(...before, event(10, "retried", { by: "ada" })))).toEqual([
      ["old", "kept"],
      ["half", "interrupted"],
      ["new", "kept"],
    ]);
  });

  it("says where lines are missing, and begins anew when the server has lost what was shown", () => {
    const gap = told(log(1, "one"), { event: "gap", data: { after: "1", next: "5" } }, log(5, "five"));
    expect(gap.lines.map(({ message }) => message)).toEqual([
      "one",
      "3 lines of this place are no longer kept.",
      "five",
    ]);
    const anew = told(log(7, "seven"), { event: "gap", data: { after: "7", next: "1" } }, log(1, "one again"));
    expect(anew.lines.map(({ message, no }) => [no, message])).toEqual([
      [0, "The server has lost lines that were shown here. What follows is what it has."],
      [1, "one again"],
    ]);
    expect(anew.counts).toEqual({ info: 1, success: 0, warning: 1, error: 0 });
  });

  it("has no end any more when the job was retried", () => {
    const end: wire.Told = { event: "end", data: { state: "failed", output: null, failure: { message: "boom" } } };
    const failed = [state({ state: "failed", endedAt: moment(5) }), end];
    expect(headline(told(...failed))).toBe("Failed: boom.");
    expect(told(...failed, state({ state: "queued" })).end).toBeNull();
  });

  it("says why a job has failed once: in its last line, or else at the end", () => {
    const sentence = "Extraction failed after 3 attempts (machine crash or timeout)";
    const failure = { code: "POISONED", message: "Set aside after 3 crashes", sentence };
    const failed = state({ state: "failed", startedAt: moment(0), endedAt: moment(64) });
    const end: wire.Told = { event: "end", data: { state: "failed", output: null, failure } };
    const shown = (...all: wire.Told[]) => told(...all).lines.map(({ level, message }) => `${level}: ${message}`);
    expect(shown(failed, end)).toEqual([`error: ${sentence}`]);
    const last = log(1, sentence, { level: "error" });
    expect(shown(last, failed, end)).toEqual([`error: ${sentence}`, "error: Failed after 1 min 4 s"]);
    expect(headline(told(last, failed, end))).toBe(`${sentence}.`);
    expect(shown(log(1, "something else"), failed, end)).toEqual(["info: something else", `error: ${sentence}`]);
  });

  it("tells its subscribers once for much that comes at once, and grows one list", async () => {
    const store = new JobStore({ id: ID, fetch: () => new Promise(() => {}) });
    let calls = 0;
    const next = () => new Promise<void>((resolve) => void store.subscribe(() => resolve(void calls++)));
    const heard = next();
    const before = store.getSnapshot();
    for (let n = 1; n <= 10_000; n++) store.tell(log(n, `${n}`));
    expect(store.getSnapshot()).toBe(before);
    await heard;
    expect(calls).toBe(1);
    const { lines, version } = store.getSnapshot();
    expect([lines.length, version]).toEqual([10_000, 10_000]);
    const again = next();
    store.tell(log(10_001, "more"));
    await again;
    expect(store.getSnapshot().lines).toBe(lines);
    store.close();
  });
});

describe("the pace", () => {
  it("comes from the moments at which the job spoke, not from those at which it was heard", () => {
    const pace = new Pace();
    pace.tell({ at: moment(0), done: 100, total: 1000 }, 0);
    pace.tell({ at: moment(10), done: 480, total: 1000 }, 1);
    expect(pace.now).toMatchObject({ perSecond: 38, done: 480, fraction: 0.48 });
    expect(pace.now!.leftMs).toBeCloseTo((520 / 38) * 1000);
    const words = { ...told(state()), progress: pace.now };
    expect(progressWords(words, 1)).toBe("480 of 1,000 · 38 a second · 14 s left");
    expect(progressWords(words, 5001)).toBe("480 of 1,000 · 38 a second · 9 s left");
  });

  it("is that of the last half minute, and none after a step back", () => {
    const pace = new Pace();
    for (let second = 0; second <= 60; second += 5) {
      const done = second <= 30 ? second : 30 + (second - 30) * 10;
      pace.tell({ at: moment(second), done, total: 1000 });
    }
    expect(pace.now!.perSecond).toBeCloseTo(10);
    pace.tell({ at: moment(61), done: 1, total: 1000 });
    expect(pace.now).toMatchObject({ perSecond: null, leftMs: null, fraction: 0.001 });
    pace.tell({ at: moment(71), done: 51, total: 1000 });
    expect(pace.now!.perSecond).toBeCloseTo(5);
    pace.tell({ at: moment(72), sentence: "Uploading" });
    expect(pace.now).toMatchObject({ fraction: null, sentence: "Uploading" });
  });
});

describe("the words", () => {
  it("say what is happening now", () => {
    const now = T0;
    const later = new Date(T0 + 60_000).toISOString();
    expect(headline(told(), now)).toBe("Looking for the job…");
    expect(headline(told(state()), now)).toBe("Working…");
    expect(headline(told(state({ attempt: 2 }), log(1, "Cloning…", { step: "c" })), now)).toBe(
      "Working: Cloning… (attempt 2 of 3)",
    );
    expect(headline(told(state({ state: "queued", startedAt: null })), now)).toBe("Waiting for a worker.");
    expect(headline(told(state({ state: "queued", waitingFor: "retry", runAt: later })), now)).toBe(
      `Waiting to try again, until ${clock(later)}.`,
    );
    const ended = { state: "completed", endedAt: moment(64), missing: ["scan"] } as const;
    expect(headline(told(state({ ...ended, missing: ["scan"] })), now)).toBe("Completed in 1 min 4 s, without scan.");
    expect(headline(told(state({ state: "cancelled", endedAt: moment(3) })), now)).toBe("Cancelled after 3.0 s.");
    expect(headline(told(state(), { event: "end", data: { state: null, output: null, failure: null } }), now)).toBe(
      "This job is no longer kept.",
    );
    expect(emptyWords(told(state({ state: "queued", startedAt: null })))).toBe(
      "Waiting for a worker. The first line comes when one has taken the job.",
    );
    expect([0, 999, 4200, 9999, 64_000, 3_600_000, 90_061_000].map(span)).toEqual([
      "0 ms",
      "999 ms",
      "4.2 s",
      "10 s",
      "1 min 4 s",
      "1 h",
      "1 day 1 h",
    ]);
  });

  it("say every change of state that the feed has, also to guests, who are told no more than its kind", () => {
    const kinds =
      "lost failed slept released paused pause_requested resumed retried restarted adopted cancel_requested";
    for (const kind of [...kinds.split(" "), "signalled", "spawned", "ghost", "handed_on", "aborted:shutdown"]) {
      const { message } = eventSentence({ kind, data: null });
      expect(message).toMatch(/^[\w ,:;.]{6,}$/);
      expect(message).not.toMatch(/undefined|null/);
    }
    // The worker that leaves says so in its own word.
    for (const kind of ["released", "aborted:shutdown"]) {
      expect(eventSentence({ kind, data: null }).message).toBe(
        "Handed back by its worker, which is leaving. The job goes on elsewhere.",
      );
    }
    expect(eventSentence({ kind: "paused", data: { by: "ada", reason: "too many" } }).message).toBe(
      "Paused by ada: too many",
    );
  });
});

describe("text of strangers", () => {
  it("T58: loses its colours, shows every other control, and turns nothing around", () => {
    expect(plain("\u001b[31;1mred\u001b[0m \u001b[38:2::1:2:3mtrue\u001b[m")).toBe("red true");
    expect(plain("\u001b]8;;http://evil\u0007link\u001b[2J\rover")).toBe("␛]8;;http://evil␇link␛[2J␍over");
    expect(plain("a\u202egnp.exe\u200b\u00ad")).toBe("a\\u{202e}gnp.exe\\u{200b}\\u{ad}");
    expect(plain("one\r\ntwo\tthree ünï 日本 👨‍👩‍👧")).toBe("one\ntwo\tthree ünï 日本 👨‍👩‍👧");
    expect(plainLine("one\ntwo\u2028three")).toBe("one ⏎ two ⏎ three");
  });

  it("is hidden where its field looks like a secret, and is JSON all the same", () => {
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
    const covered = (one: unknown) => maskedJson(one).flatMap((part) => (typeof part === "string" ? [] : part.secret));
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
    for (const key of keys) expect(covered({ note: key }), key).toEqual([JSON.stringify(key)]);
    expect(covered({ password: { value: "a", deep: ["b"] }, pwd: "c", PWD: "/home/ada" })).toEqual([
      '"a"',
      '"b"',
      '"c"',
    ]);
    expect(
      covered([
        { name: "API_KEY", value: "a" },
        { key: "colour", value: "red" },
      ]),
    ).toEqual(['"a"']);
    expect(covered({ args: ["--password", "a", "--user", "ada"], header: ["x-api-key", "b"] })).toEqual(['"a"', '"b"']);
    const counts = { prompt_tokens: 12, max_tokens: 100, token_count: 3, tokens: { prompt: 5 }, totalTokens: 9 };
    expect(covered({ usage: counts, words: "Bearer authentication failed, basic configuration" })).toEqual([]);
    expect(maskedJson("\u202e")).toEqual(['"\\u{202e}"']);
  });

  it("is cut where a line or a stack says something that opens doors, and nowhere else", () => {
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
    expect(veiled(text)).not.toMatch(/abc|hunter2/);
    const harmless = "The bearer of bad news: max_tokens=100, npm_config_cache, ask-me-anything-2024, PWD=/home/ada";
    expect(maskedText(harmless)).toEqual([harmless]);
    // No text makes the looking slow.
    const began = performance.now();
    for (const piece of ["sk-", "eyJ", "a:", "://a:", "Bearer ", "-----BEGIN PRIVATE KEY", "token=", "a-"]) {
      maskedText(piece.repeat(20_000));
    }
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  it("is copied as lines that none of them can forge", () => {
    const { lines } = told(
      log(1, "one\n12:00:00  error  forged", { level: "success", step: "s", data: { took_ms: 4200 } }),
    );
    expect(textOf(lines, () => "12:34:56")).toBe(
      `12:34:56  success  [s] one\n${" ".repeat(19)}12:00:00  error  forged (4.2 s)\n`,
    );
  });
});

describe("the filter", () => {
  const lines: Line[] = [
    ...told(log(1, "Alpha"), log(2, "beta", { level: "error", step: "s" }), log(3, "alphabet")).lines,
  ];

  it("shows what is asked for, and looks at new lines alone", () => {
    const filter = new LineFilter();
    filter.take(lines);
    expect(filter.count).toBe(3);
    filter.ask({ text: " ALPHA " });
    expect(filter.all().map(({ message }) => message)).toEqual(["Alpha", "alphabet"]);
    expect([filter.placeOf(2), filter.placeOf(1)]).toEqual([1, -1]);
    lines.push({ ...lines[0]!, no: 3, message: "alpha three" });
    expect(filter.take(lines)).toBe(false);
    expect(filter.count).toBe(3);
    filter.ask({ text: "", levels: new Set(["error"]) });
    expect(filter.all().map(({ message }) => message)).toEqual(["beta"]);
    filter.ask({ levels: new Set(["info", "error"]), step: "s" });
    expect(filter.count).toBe(1);
    expect(filter.take([])).toBe(true);
    expect(filter.count).toBe(0);
  });
});
