// What the command line makes of text, time and streams before it prints them.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cutTo, inert, inertJson, inLine, widthOf } from "../../src/cli/output/escape.ts";
import { ago, momentOf, span } from "../../src/cli/output/moments.ts";
import { ProgressBar } from "../../src/cli/output/progress-bar.ts";
import { readEvents } from "../../src/cli/sse.ts";
import { nearest } from "../../src/text/suggest.ts";

describe("T58: text of strangers", () => {
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
    expect(inert(text)).toBe(shown);
  });

  it("stays on its line where it must", () => {
    expect(inLine("a\r\nb\nc\u2028d\u0085e\tf")).toBe("a⏎b⏎c⏎d⏎e f");
  });

  it("never reaches the terminal as anything but text, whatever it is; and JSON stays the same JSON", () => {
    const active = /(?![\n\t])\p{Cc}|(?!\u200d)\p{Cf}|\p{Cs}|\p{Zl}|\p{Zp}/u;
    const nasty = fc.string({
      unit: fc.oneof(
        fc.constantFrom(..."\x1b\x07\r\n\x9b\u202e\u200b\x00[];".split("")),
        fc.string({ unit: "binary", maxLength: 2 }),
      ),
    });
    fc.assert(
      fc.property(nasty, fc.integer({ min: 1, max: 40 }), (text, columns) => {
        expect(inert(text)).not.toMatch(active);
        expect(inLine(text)).not.toContain("\n");
        expect(inertJson(JSON.stringify({ text }, null, 2))).not.toMatch(/(?!\n)\p{Cc}|\p{Cf}/u);
        expect(JSON.parse(inertJson(JSON.stringify({ text })))).toEqual({ text });
        expect(widthOf(cutTo(inLine(text), columns))).toBeLessThanOrEqual(columns);
      }),
      { numRuns: 2000 },
    );
  });

  it("is as wide as a terminal makes it", () => {
    expect(["abc", "日本", "é", "e\u0301", "👩‍💻", "…", ""].map(widthOf)).toEqual([3, 4, 1, 1, 2, 1, 0]);
    expect(cutTo("日本語です", 6)).toBe("日本…");
    expect(cutTo("short", 5)).toBe("short");
    expect(cutTo("longer", 5)).toBe("long…");
  });
});

describe("time", () => {
  it("is said as people say it", () => {
    const now = Date.parse("2030-01-31T12:00:00Z");
    const at = (ms: number) => ago(new Date(now - ms).toISOString(), now);
    expect([0, 5000, 200_000, 7_300_000, 200_000_000, -90_000].map(at)).toEqual([
      "now",
      "5s ago",
      "3m ago",
      "2h ago",
      "2d ago",
      "in 1m",
    ]);
    expect(ago(null)).toBe("");
    expect([0, 850, 4200, 72_000, 7_500_000, 273_600_000].map(span)).toEqual([
      "0ms",
      "850ms",
      "4.2s",
      "1m 12s",
      "2h 5m",
      "3d 4h",
    ]);
  });

  it("is read as so long ago, or as a moment", () => {
    const now = Date.parse("2030-01-31T12:00:00Z");
    expect(momentOf("2h", "since", now)).toBe("2030-01-31T10:00:00.000Z");
    expect(momentOf("1h30m", "since", now)).toBe("2030-01-31T10:30:00.000Z");
    expect(momentOf("2030-01-30", "since", now)).toBe("2030-01-30T00:00:00.000Z");
    expect(momentOf("2030-01-30T10:00:00+02:00", "since", now)).toBe("2030-01-30T08:00:00.000Z");
    expect(momentOf(undefined, "since")).toBeUndefined();
    expect(() => momentOf("soon", "since")).toThrow(/neither a time ago nor a moment/);
    expect(() => momentOf("5 apples", "since")).toThrow(/is not a duration/);
  });
});

describe("a bar", () => {
  it("knows the rate of late and the time left", () => {
    const bar = new ProgressBar();
    expect(bar.text()).toBe("");
    for (let second = 0; second <= 10; second++) bar.tell({ done: second * 100, total: 4000 }, second * 1000);
    expect(bar.text(10_000)).toMatch(/^█{6}░{18} 25% {2}1,000 of 4,000 {2}100\/s {2}30s left$/);
    // A pause is not forgotten, an old pace is.
    expect(bar.text(15_000)).toContain("25s left");
    bar.tell({ fraction: 1, sentence: "done" }, 20_000);
    expect(bar.text(20_000)).toBe(`${"█".repeat(24)} 100%  done`);
  });

  it("begins anew with a job that begins anew, and takes a sentence without a number", () => {
    const bar = new ProgressBar();
    bar.tell({ fraction: 0.9 }, 0);
    bar.tell({ fraction: 0.1 }, 1000);
    expect(bar.text(1000)).toBe("██░░░░░░░░░░░░░░░░░░░░░░ 10%");
    bar.tell({ sentence: "Only words" }, 2000);
    expect(bar.text()).toBe("Only words");
  });

  it("is news in a pipe once for each tenth and each sentence", () => {
    const bar = new ProgressBar();
    const news = [0, 0.01, 0.05, 0.1, 0.15, 0.2].map((fraction) => {
      bar.tell({ fraction });
      return bar.isNews();
    });
    expect(news).toEqual([true, false, false, true, false, true]);
  });
});

describe("a stream of events", () => {
  const text = [
    "retry: 1000\n\n",
    ":\n\n",
    'event: state\ndata: {"state":"running"}\n\n',
    'id: 7-abcdef01\nevent: log\ndata: {"message":"händchen 日本"}\n\n',
    'id: 9-abcdef01-end\nevent: end\ndata: {"state":"completed"}\n\n',
  ].join("");

  it("is the same however it is cut", async () => {
    const bytes = new TextEncoder().encode(text);
    const read = async (parts: Uint8Array[]) => {
      const told = [];
      for await (const one of readEvents(
        (async function* () {
          yield* parts;
        })(),
      ))
        told.push(one);
      return told;
    };
    const whole = await read([bytes]);
    expect(whole).toEqual([
      { event: "state", data: { state: "running" } },
      { event: "log", id: "7-abcdef01", data: { message: "händchen 日本" } },
      { event: "end", id: "9-abcdef01-end", data: { state: "completed" } },
    ]);
    for (let at = 0; at <= bytes.length; at++) expect(await read([bytes.slice(0, at), bytes.slice(at)])).toEqual(whole);
    expect(await read([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(whole);
    // What was cut off is no event.
    expect(await read([bytes.slice(0, -1)])).toEqual(whole.slice(0, 2));
  });
});

describe("did you mean", () => {
  it.each([
    ["jbos", "jobs"],
    ["job", "job"],
    ["shcedules", "schedules"],
    ["tokn", "tokens"],
    ["CANCEL", "cancel"],
    ["xyz", undefined],
    ["dry", undefined],
  ])("%s: %s", (word, meant) => {
    expect(nearest(word, ["jobs", "job", "schedules", "tokens", "cancel", "url"])).toBe(meant);
  });
});
