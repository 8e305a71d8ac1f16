// Captions as SRT and WebVTT. Moonshine reports no times of words: a segment with more text than fits on the screen
// becomes several cues that share its time by length of text.
import type { Segment } from "./index.ts";

/** What subtitle guidelines of broadcasters allow for Latin script. */
const MAX_LINE = 42;
const MAX_LINES = 2;

interface Cue {
  startMs: number;
  endMs: number;
  lines: string[];
}

export function toSrt(segments: readonly Segment[]): string {
  const blocks = toCues(segments).map(
    ({ startMs, endMs, lines }, index) =>
      `${index + 1}\n${formatTime(startMs, ",")} --> ${formatTime(endMs, ",")}\n${lines.map(escapeSrt).join("\n")}\n`,
  );
  return blocks.join("\n");
}

export function toVtt(segments: readonly Segment[]): string {
  const blocks = toCues(segments).map(
    ({ startMs, endMs, lines }) =>
      `\n${formatTime(startMs, ".")} --> ${formatTime(endMs, ".")}\n${lines.map(escapeVtt).join("\n")}\n`,
  );
  return `WEBVTT\n${blocks.join("")}`;
}

function toCues(segments: readonly Segment[]): Cue[] {
  return segments.flatMap(({ start, end, text }) => {
    const lines = breakLines(text);
    const total = lines.join("").length;
    const startMs = Math.round(start * 1000);
    const durationMs = Math.round(end * 1000) - startMs;
    const cues: Cue[] = [];
    for (let first = 0, before = 0; first < lines.length; first += MAX_LINES) {
      const shown = lines.slice(first, first + MAX_LINES);
      const after = before + shown.join("").length;
      const timeAt = (length: number) => startMs + Math.round((durationMs * length) / total);
      cues.push({ startMs: timeAt(before), endMs: timeAt(after), lines: shown });
      before = after;
    }
    return cues;
  });
}

/** Lines of similar length, as many as fill whole cues. Control characters would end a cue or hide text. */
function breakLines(text: string): string[] {
  const words = text
    .replaceAll(/[\s\p{C}\p{Z}]+/gu, " ")
    .split(" ")
    .flatMap(cutLongWord);
  const longest = Math.max(1, ...words.map((word) => word.length));
  let lines = fillLines(words, MAX_LINE);
  const count = lines.length === 1 ? 1 : Math.ceil(lines.length / MAX_LINES) * MAX_LINES;
  for (let width = MAX_LINE - 1; width >= longest; width--) {
    const narrower = fillLines(words, width);
    if (narrower.length > count) break;
    lines = narrower;
  }
  return lines;
}

/** A code point has one or two units, so half as many code points always fit. */
const PART_OF_LONG_WORD = new RegExp(`.{1,${MAX_LINE / 2}}`, "gu");

function cutLongWord(word: string): string[] {
  if (word === "") return [];
  return word.length > MAX_LINE ? word.match(PART_OF_LONG_WORD)! : [word];
}

function fillLines(words: readonly string[], width: number): string[] {
  const lines: string[] = [];
  for (const word of words) {
    const longer = `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && longer.length <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

function escapeVtt(line: string): string {
  return line.replaceAll(/[&<>]/g, (found) => ENTITIES[found]!);
}

/** SRT has no escapes. Players read tags in angle brackets, and commands of ASS in braces and after backslashes. */
const LOOKALIKES: Record<string, string> = { "<": "‹", ">": "›", "{": "(", "}": ")", "\\": "/" };

function escapeSrt(line: string): string {
  return line.replaceAll(/[<>{}\\]/g, (found) => LOOKALIKES[found]!);
}

function formatTime(ms: number, separator: "," | "."): string {
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
  const clock = [ms / 3_600_000, (ms / 60_000) % 60, (ms / 1000) % 60].map(two).join(":");
  return `${clock}${separator}${String(ms % 1000).padStart(3, "0")}`;
}
