// Times in a video, as users type them and as the page shows them.
import { expect, it } from "vitest";
import { formatLength, formatTimecode, parseTimecode } from "../../ui/src/timecode.ts";

it("reads seconds, minutes and hours, with a point or a comma", () => {
  for (const [text, seconds] of [
    ["0", 0],
    ["65.5", 65.5],
    [" 1:05,5 ", 65.5],
    ["0:07.", 7],
    ["1:02:03", 3723],
    ["90:00", 5400],
    ["604800", 604_800],
    ["0:00.0004", 0],
    ["0:59.9996", 60],
  ] as const) {
    expect(parseTimecode(text), text).toBe(seconds);
  }
});

it("reads nothing from a text that is no time", () => {
  for (const text of ["", "x", "1:60", "1:60:00", "1:2:3:4", "-1", "1e3", "1:-5", ".5", "1::2", "Infinity", "1 2"]) {
    expect(parseTimecode(text), text).toBeUndefined();
  }
});

it("shows what it reads", () => {
  for (const [seconds, text] of [
    [0, "0:00"],
    [7.25, "0:07.25"],
    [59.9996, "1:00"],
    [65.5, "1:05.5"],
    [3723.001, "1:02:03.001"],
    [-1, "0:00"],
  ] as const) {
    expect(formatTimecode(seconds)).toBe(text);
    if (seconds >= 0) expect(parseTimecode(text)).toBeCloseTo(seconds, 3);
  }
});

it("shows a length to a tenth of a second", () => {
  expect([10.238, 0.469, 59.97].map(formatLength)).toEqual(["0:10.2", "0:00.5", "1:00"]);
});
