import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Segment, toSrt, toVtt } from "../../src/asr/index.ts";
import { FFMPEG, ffmpeg } from "../support/speech.ts";

const HOSTILE = [
  "<i>",
  "</c>",
  "-->",
  "{\\an8}",
  "\\N",
  "&amp;",
  "&",
  "NOTE",
  "\n\n2\n",
  "\0",
  "\u202e",
  "WEBVTT",
  "𝄞",
];
const word = fc.oneof(fc.stringMatching(/^[a-z]{1,12}$/), fc.constantFrom(...HOSTILE), fc.string({ maxLength: 60 }));
const text = fc.array(word, { minLength: 0, maxLength: 60 }).map((words) => words.join(" "));
const segments = fc
  .array(fc.record({ gap: fc.nat(3_700_000), length: fc.integer({ min: 500, max: 20_000 }), text }), { maxLength: 8 })
  .map((parts) => {
    let ms = 0;
    return parts.map((part): Segment => {
      const start = ms + part.gap;
      ms = start + part.length;
      return { start: start / 1000, end: ms / 1000, text: part.text };
    });
  });
/** The words that captions show: everything but white space, control and format characters. */
const visible = (shown: string) => shown.replaceAll(/[\s\p{C}\p{Z}]+/gu, "");
const unescapeVtt = (line: string) => line.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

interface Cue {
  start: number;
  end: number;
  lines: string[];
}

const FORMATS = {
  SRT: {
    write: toSrt,
    header: "",
    cue: /^(\d+)\n([\d:,]+) --> ([\d:,]+)\n/,
    time: /^(\d{2,}):([0-5]\d):([0-5]\d),(\d{3})$/,
  },
  WebVTT: {
    write: toVtt,
    header: "WEBVTT\n\n",
    cue: /^()([\d:.]+) --> ([\d:.]+)\n/,
    time: /^(\d{2,}):([0-5]\d):([0-5]\d)\.(\d{3})$/,
  },
};

describe.each(Object.entries(FORMATS))("captions as %s", (name, format) => {
  function parse(file: string): Cue[] {
    if (file === format.header.trimEnd() || file === "WEBVTT\n") return [];
    expect(file.startsWith(format.header)).toBe(true);
    expect(file.endsWith("\n")).toBe(true);
    return file
      .slice(format.header.length, -1)
      .split("\n\n")
      .map((block, index) => {
        const [head, number, start, end] = format.cue.exec(block)!;
        if (name === "SRT") expect(number).toBe(String(index + 1));
        return { start: toMs(start!), end: toMs(end!), lines: block.slice(head.length).split("\n") };
      });
  }

  function toMs(time: string): number {
    const [hours, minutes, seconds, ms] = format.time.exec(time)!.slice(1).map(Number);
    return ((hours! * 60 + minutes!) * 60 + seconds!) * 1000 + ms!;
  }

  it("have at most two lines of 42 characters each, and none that is empty", () => {
    fc.assert(
      fc.property(segments, (said) => {
        for (const { lines } of parse(format.write(said))) {
          expect(lines.length).toBeLessThanOrEqual(2);
          for (const line of lines.map(name === "WebVTT" ? unescapeVtt : String)) {
            expect(line.trim()).not.toBe("");
            expect(line.length).toBeLessThanOrEqual(42);
            expect(line).not.toMatch(/\p{Surrogate}/u);
          }
        }
      }),
    );
  });

  it("are in order within the time of their segment, without a gap and without an overlap", () => {
    fc.assert(
      fc.property(segments, (said) => {
        const cues = parse(format.write(said));
        for (const { start, end, text } of said.filter((one) => visible(one.text) !== "")) {
          const [startMs, endMs] = [Math.round(start * 1000), Math.round(end * 1000)];
          const own = cues.filter((cue) => cue.start >= startMs && cue.end <= endMs);
          expect(own[0]?.start, text).toBe(startMs);
          expect(own.at(-1)?.end, text).toBe(endMs);
          expect(own.slice(1).map((cue) => cue.start)).toEqual(own.slice(0, -1).map((cue) => cue.end));
        }
        const times = cues.flatMap((cue) => [cue.start, cue.end]);
        expect(times).toEqual(times.toSorted((a, b) => a - b));
      }),
    );
  });

  it("contain all that was said, and no markup", () => {
    fc.assert(
      fc.property(segments, (said) => {
        const lines = parse(format.write(said)).flatMap((cue) => cue.lines);
        expect(lines.filter((line) => /[<>]|-->/.test(line))).toEqual([]);
        const shown = visible(lines.map(name === "WebVTT" ? unescapeVtt : String).join(""));
        const plain = visible(said.map((one) => one.text).join(""));
        if (name === "WebVTT") expect(shown).toBe(plain);
        else expect(shown).toBe(plain.replaceAll(/[<>{}\\]/g, (found) => "‹›()/"["<>{}\\".indexOf(found)]!));
      }),
    );
  });

  it.skipIf(!FFMPEG)(`are read by ffmpeg as they were said${FFMPEG ? "" : " (skipped: no ffmpeg)"}`, async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-captions-"));
    try {
      const file = path.join(folder, name === "SRT" ? "captions.srt" : "captions.vtt");
      const said = [
        { start: 0.5, end: 2, text: "Two & three, <b>not bold</b>" },
        { start: 3661.0004, end: 3662.25, text: "1\n\n00:00:01,000 --> 00:00:02,000\n{\\an8}up" },
      ];
      fs.writeFileSync(file, format.write(said));
      const read = await ffmpeg("-i", file, "-c:s", "text", "-f", "srt", "-");
      expect(read.match(/^[\d:,]{12} --> [\d:,]{12}$/gm)).toEqual([
        "00:00:00,500 --> 00:00:02,000",
        "01:01:01,000 --> 01:01:02,250",
      ]);
      expect(read).toMatch(/Two & three, .b.not bold.\/b./);
    } finally {
      fs.rmSync(folder, { recursive: true });
    }
  });
});

it("a text of three lines becomes two cues of similar length", () => {
  const text = "Today we will learn how a computer can write down every word that people say in a video.";
  expect(toSrt([{ start: 0, end: 8, text }])).toBe(
    [
      "1\n00:00:00,000 --> 00:00:04,047\nToday we will learn how\na computer can write\n",
      "2\n00:00:04,047 --> 00:00:08,000\ndown every word that\npeople say in a video.\n",
    ].join("\n"),
  );
});
