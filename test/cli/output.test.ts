// Text, time, progress and event streams, as the command line formats and parses them.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ProgressBar } from "../../src/cli/output/progress-bar.ts";
import { displayWidth, truncate } from "../../src/cli/output/table.ts";
import { formatAgo, formatDuration, parseMoment } from "../../src/cli/output/time.ts";
import { escapeControls, escapeJson, escapeLine } from "../../src/text/escape.ts";
import { readEvents } from "../../src/text/sse.ts";
import { findClosest } from "../../src/text/suggest.ts";

describe("untrusted text", () => {
  it.each([
    ["\x1b[31mred\x1b[0m", "␛[31mred␛[0m"],
    ["\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"],
    ["\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "␛]8;;http://evil␛\\click␛]8;;␛\\"],
    ["10%\rdone", "10%␍done"],
    ["\x9b31m", "\\u{9b}31m"],
    ["user\u202etxt.exe", "user\\u{202e}txt.exe"],
    ["a\u2066b\u2069", "a\\u{2066}b\\u{2069}"],
    ["pass\u200bword\ufeff", "pass\\u{200b}word\\u{feff}"],
    ["\ud800", "\\u{d800}"],
    ["\x7f", "␡"],
    ["\u{e0041}", "\\u{e0041}"],
    ["naïve 日本語 👩‍💻 ✓", "naïve 日本語 👩‍💻 ✓"],
    ["two\nlines\tand a tab", "two\nlines\tand a tab"],
  ])("%j is shown as %j", (text, shown) => {
    expect(escapeControls(text)).toBe(shown);
  });

  it("stays on one line where required", () => {
    expect(escapeLine("a\r\nb\nc\u2028d\u0085e\tf")).toBe("a⏎b⏎c⏎d⏎e f");
  });

  it("never contains a control sequence once escaped; escaped JSON keeps its value", () => {
    const active = /(?![\n\t])\p{Cc}|(?!\u200d)\p{Cf}|\p{Cs}|\p{Zl}|\p{Zp}/u;
    const nasty = fc.string({
      unit: fc.oneof(
        fc.constantFrom(..."\x1b\x07\r\n\x9b\u202e\u200b\x00[];".split("")),
        fc.string({ unit: "binary", maxLength: 2 }),
      ),
    });
    fc.assert(
      fc.property(nasty, fc.integer({ min: 1, max: 40 }), (text, columns) => {
        expect(escapeControls(text)).not.toMatch(active);
        expect(escapeLine(text)).not.toContain("\n");
        expect(escapeJson(JSON.stringify({ text }, null, 2))).not.toMatch(/(?!\n)\p{Cc}|\p{Cf}/u);
        expect(JSON.parse(escapeJson(JSON.stringify({ text })))).toEqual({ text });
        expect(displayWidth(truncate(escapeLine(text), columns))).toBeLessThanOrEqual(columns);
      }),
      { numRuns: 2000 },
    );
  });

  it("is measured and truncated in terminal columns", () => {
    expect(["abc", "日本", "é", "e\u0301", "👩‍💻", "…", ""].map(displayWidth)).toEqual([3, 4, 1, 1, 2, 1, 0]);
    expect(truncate("日本語です", 6)).toBe("日本…");
    expect(truncate("short", 5)).toBe("short");
    expect(truncate("longer", 5)).toBe("long…");
  });
});

describe("time", () => {
  it("is formatted in the short style", () => {
    const now = Date.parse("2030-01-31T12:00:00Z");
    const at = (ms: number) => formatAgo(new Date(now - ms).toISOString(), now);
    expect([0, 5000, 200_000, 7_300_000, 200_000_000, -90_000].map(at)).toEqual([
      "now",
      "5s ago",
      "3m ago",
      "2h ago",
      "2d ago",
      "in 1m",
    ]);
    expect(formatAgo(null)).toBe("");
    expect([0, 850, 4200, 72_000, 7_500_000, 273_600_000].map(formatDuration)).toEqual([
      "0ms",
      "850ms",
      "4.2s",
      "1m 12s",
      "2h 5m",
      "3d 4h",
    ]);
  });

  it("is parsed as a time ago or as a timestamp", () => {
    const now = Date.parse("2030-01-31T12:00:00Z");
    expect(parseMoment("2h", "since", now)).toBe("2030-01-31T10:00:00.000Z");
    expect(parseMoment("1h30m", "since", now)).toBe("2030-01-31T10:30:00.000Z");
    expect(parseMoment("2030-01-30", "since", now)).toBe("2030-01-30T00:00:00.000Z");
    expect(parseMoment("2030-01-30T10:00:00+02:00", "since", now)).toBe("2030-01-30T08:00:00.000Z");
    expect(parseMoment(undefined, "since")).toBeUndefined();
    expect(() => parseMoment("soon", "since")).toThrow(/neither a duration nor a timestamp/);
    expect(() => parseMoment("5 apples", "since")).toThrow(/is not a duration/);
  });
});

describe("the progress bar", () => {
  it("shows the recent rate and the remaining time", () => {
    const bar = new ProgressBar();
    expect(bar.text()).toBe("");
    for (let second = 0; second <= 10; second++) bar.update({ done: second * 100, total: 4000 }, second * 1000);
    expect(bar.text(10_000)).toMatch(/^█{6}░{18} 25% {2}1,000 of 4,000 {2}100\/s {2}30s left$/);
    // The remaining time counts down between two updates.
    expect(bar.text(15_000)).toContain("25s left");
    bar.update({ fraction: 1, sentence: "done" }, 20_000);
    expect(bar.text(20_000)).toBe(`${"█".repeat(24)} 100%  done`);
  });

  it("does not repeat the count and the rate that the sentence of a list contains", () => {
    const bar = new ProgressBar();
    for (let second = 0; second <= 10; second++) {
      bar.update({ done: second, total: 40, sentence: `${second} of 40, 60 per minute` }, second * 1000);
    }
    expect(bar.text(10_000)).toMatch(/^█{6}░{18} 25% {2}30s left {2}10 of 40, 60 per minute$/);
  });

  it("starts over when progress goes backwards, and accepts a sentence without a number", () => {
    const bar = new ProgressBar();
    bar.update({ fraction: 0.9 }, 0);
    bar.update({ fraction: 0.1 }, 1000);
    expect(bar.text(1000)).toBe("██░░░░░░░░░░░░░░░░░░░░░░ 10%");
    bar.update({ sentence: "Only a sentence" }, 2000);
    expect(bar.text()).toBe("Only a sentence");
  });

  it("deserves a line in a pipe once per tenth and per sentence", () => {
    const bar = new ProgressBar();
    const news = [0, 0.01, 0.05, 0.1, 0.15, 0.2].map((fraction) => {
      bar.update({ fraction });
      return bar.isNews();
    });
    expect(news).toEqual([true, false, false, true, false, true]);
  });
});

describe("the parser of event streams", () => {
  const text = [
    "retry: 1000\n\n",
    ":\n\n",
    'event: state\ndata: {"state":"running"}\n\n',
    'id: 7-abcdef01\nevent: log\ndata: {"message":"händchen 日本"}\n\n',
    'id: 9-abcdef01-end\nevent: end\ndata: {"state":"completed"}\n\n',
  ].join("");

  it("returns the same events however the bytes are split", async () => {
    const bytes = new TextEncoder().encode(text);
    const read = async (parts: Uint8Array[]) => {
      const events = [];
      for await (const event of readEvents(
        (async function* () {
          yield* parts;
        })(),
      ))
        events.push(event);
      return events;
    };
    const whole = await read([bytes]);
    expect(whole).toEqual([
      { event: "state", data: { state: "running" } },
      { event: "log", id: "7-abcdef01", data: { message: "händchen 日本" } },
      { event: "end", id: "9-abcdef01-end", data: { state: "completed" } },
    ]);
    for (let at = 0; at <= bytes.length; at++) expect(await read([bytes.slice(0, at), bytes.slice(at)])).toEqual(whole);
    expect(await read([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(whole);
    // An incomplete event is dropped.
    expect(await read([bytes.slice(0, -1)])).toEqual(whole.slice(0, 2));
  });
});

describe("a suggestion", () => {
  it.each([
    ["jbos", "jobs"],
    ["job", "job"],
    ["shcedules", "schedules"],
    ["tokn", "tokens"],
    ["CANCEL", "cancel"],
    ["xyz", undefined],
    ["dry", undefined],
  ])("%s: %s", (word, meant) => {
    expect(findClosest(word, ["jobs", "job", "schedules", "tokens", "cancel", "url"])).toBe(meant);
  });
});
