// Splitting output into lines: the same lines however the stream is chunked, constant memory, and fast skipping of unwanted lines.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type LineSplitterOptions,
  lineQueue,
  lineRate,
  lineSplitter,
  outputKeeper,
} from "../../src/worker/exec/lines.ts";
import { recordFigure } from "../support/figures.ts";

const MB = 1024 * 1024;

describe("the splitter", () => {
  it("ends lines at \\n, \\r\\n and a single \\r, and keeps empty ones", () => {
    expect(split(["one\ntwo\r\nthree\rfour\n\nsix"])).toEqual(["one", "two", "three", "four", "", "six"]);
    expect(split(["frame=1\r", "frame=2\r", "\ndone\r\n"])).toEqual(["frame=1", "frame=2", "done"]);
    expect(split(["a\r\r\nb"])).toEqual(["a", "", "b"]);
    expect(split([])).toEqual([]);
    expect(split(["\n"])).toEqual([""]);
  });

  it("delivers a line that ends with \\r at once, without waiting for the next byte", () => {
    const lines: string[] = [];
    const splitter = lineSplitter({ onLine: (text) => lines.push(text) });
    splitter.write(Buffer.from("10%\r"));
    expect(lines).toEqual(["10%"]);
    splitter.write(Buffer.from("\n20%\r"));
    expect(lines).toEqual(["10%", "20%"]);
  });

  it("delivers the same lines however the stream is chunked, also inside multi-byte characters", () => {
    const pieces = fc.constantFrom("a", "ü", "€", "😀", "\n", "\r", "\r\n", "\0", "xyz");
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 40 }), fc.array(fc.nat(60), { maxLength: 12 }), (parts, cuts) => {
        const bytes = Buffer.from(parts.join(""));
        const expected = parts
          .join("")
          .replaceAll("\0", "␀")
          .split(/\r\n|\r|\n/);
        if (expected.at(-1) === "") expected.pop();
        expect(split(cutAt(bytes, cuts))).toEqual(expected);
      }),
    );
  });

  it("replaces invalid UTF-8 by U+FFFD and NUL by U+2400, so that Postgres can store the line", () => {
    const [line] = split([Buffer.from([0x61, 0xff, 0xc3, 0x28, 0x00, 0xe2, 0x82, 0x0a])]);
    expect(line).toBe("a\ufffd\ufffd(␀\ufffd");
  });

  it("keeps the first bytes of a line of 500 MB, counts the rest, and uses no memory for it", () => {
    const lines: string[] = [];
    const splitter = lineSplitter({ onLine: (text) => lines.push(text) });
    const chunk = Buffer.alloc(62_500, "x");
    const before = process.memoryUsage();
    for (let sent = 0; sent < 500_000_000; sent += chunk.length) splitter.write(chunk);
    splitter.write(Buffer.from("\nnext\n"));
    const after = process.memoryUsage();
    expect(lines).toEqual([`${"x".repeat(16_384)}… (499983616 bytes omitted)`, "next"]);
    expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(MB);
  });

  it("cuts a long line between two characters", () => {
    const [line] = split(["😀".repeat(10)], { maxLine: 10 });
    expect(line).toBe("😀😀… (32 bytes omitted)");
  });

  it("applies the limit to the stored text, also where a byte becomes three", () => {
    for (const byte of [0x00, 0xff]) {
      const [line] = split([Buffer.alloc(16 * 1024, byte)]);
      expect(Buffer.byteLength(line!.replace(/… .*/, ""))).toBeLessThanOrEqual(16 * 1024);
      expect(/… \(\d+ bytes omitted\)$/.exec(line!)?.[0]).toBe("… (10923 bytes omitted)");
    }
    expect(split(["ü".repeat(8 * 1024)])).toEqual(["ü".repeat(8 * 1024)]);
  });

  it("counts unwanted lines exactly as it would have delivered them", () => {
    const pieces = fc.constantFrom("a", "bb", "\n", "\r", "\r\n");
    const answers = fc.array(fc.boolean(), { minLength: 1, maxLength: 10 });
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 40 }), fc.array(fc.nat(40)), answers, (parts, cuts, wanted) => {
        const chunks = cutAt(Buffer.from(parts.join("")), cuts);
        const all = split(chunks);
        let calls = 0;
        let skipped = 0;
        const delivered = split(chunks, {
          wanted: () => wanted[calls++ % wanted.length]!,
          onSkipped: (lines) => {
            skipped += lines;
          },
        });
        expect(delivered.length + skipped).toBe(all.length);
        // Delivered lines are complete and in order.
        let at = -1;
        for (const line of delivered) {
          at = all.indexOf(line, at + 1);
          expect(at).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });

  it("skips 1 GB of unwanted lines and counts every one", () => {
    for (const [name, line] of [
      ["y", "y\n"],
      ["100 bytes", `${"z".repeat(99)}\n`],
    ] as const) {
      const chunk = Buffer.from(line.repeat(Math.ceil(65_536 / line.length)));
      let skipped = 0;
      let bytes = 0;
      const splitter = lineSplitter({
        onLine: () => expect.unreachable(),
        wanted: () => false,
        onSkipped: (lines) => {
          skipped += lines;
        },
        onBytes: (count) => {
          bytes += count;
        },
      });
      const began = performance.now();
      while (bytes < 1024 * MB) splitter.write(chunk);
      const speed = bytes / MB / ((performance.now() - began) / 1000);
      recordFigure(`lines: unwanted lines of ${name}`, speed, "MB/s");
      expect(skipped).toBe(bytes / line.length);
    }
  });
});

describe("the output buffer", () => {
  it("returns the exact output while it fits, NULs and \\r\\n included", () => {
    const bytes = Buffer.from("a\0b\r\nü€😀\n".repeat(9));
    expect(keep([bytes], bytes.length, 0)).toBe(bytes.toString());
    expect(keep(cutAt(bytes, [3, 11, 12, 40]), 20, bytes.length - 20)).toBe(bytes.toString());
    expect(keep([], 10, 10)).toBe("");
  });

  it("keeps the first and the last lines, and counts the lines and bytes omitted between them", () => {
    const total = 100_000;
    const lines = Array.from({ length: total }, (_, index) => `line ${index}\n`);
    const bytes = Buffer.from(lines.join(""));
    for (const size of [1, 7, 1000, 65_536, bytes.length]) {
      const cuts = Array.from({ length: Math.floor(bytes.length / size) }, (_, index) => index * size);
      const text = keep(size === 1 ? cutAt(bytes, cuts.slice(0, 50_000)) : cutAt(bytes, cuts), 500, 700);
      const [head, missingLines, missingBytes, tail] = /^([\s\S]*)… \((.*) lines, (.*) bytes omitted\)\n([\s\S]*)$/
        .exec(text)!
        .slice(1) as [string, string, string, string];
      const first = head.split("\n").length - 1;
      const last = tail.split("\n").length - 1;
      expect(head).toBe(lines.slice(0, first).join(""));
      expect(tail).toBe(lines.slice(total - last).join(""));
      expect(head.length).toBeGreaterThan(450);
      expect(tail.length).toBeGreaterThan(650);
      expect(Number(missingLines.replaceAll(",", ""))).toBe(total - first - last);
      expect(Number(missingBytes.replaceAll(",", ""))).toBe(bytes.length - head.length - tail.length);
    }
  });

  it("cuts one endless line in the middle, between two characters", () => {
    const text = keep([Buffer.from("€".repeat(100_000))], 100, 100);
    expect(text).toBe(`${"€".repeat(33)}\n… (0 lines, 299,802 bytes omitted)\n${"€".repeat(33)}`);
  });

  it("can keep nothing at all", () => {
    expect(keep([Buffer.from("a\nb\n")], 0, 0)).toBe("… (2 lines, 4 bytes omitted)\n");
  });

  it("uses no more memory than it keeps", () => {
    const keeper = outputKeeper({ headBytes: MB / 2, tailBytes: MB / 2 });
    const chunk = Buffer.alloc(65_536, "0123456789\n");
    const before = process.memoryUsage().arrayBuffers;
    for (let sent = 0; sent < 256 * MB; sent += chunk.length) keeper.write(chunk);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(4 * MB);
  });
});

describe("the rate", () => {
  it("passes a burst and then a fixed number of lines per second", () => {
    const rate = lineRate({ perSecond: 10, burst: 5, bytesPerSecond: 1e9 });
    const passed = (ms: number) => Array.from({ length: 20 }, () => rate.take(1, ms)).filter(Boolean).length;
    expect(passed(1000)).toBe(5);
    expect(passed(1300)).toBe(3);
    expect(passed(1350)).toBe(0);
    expect(passed(1400)).toBe(1);
    expect(passed(9000)).toBe(5);
  });

  it("passes a fixed number of bytes per second, and lets one long line overdraw", () => {
    const rate = lineRate({ perSecond: 1e9, burst: 1e9, bytesPerSecond: 100 });
    expect(rate.take(250, 0)).toBe(true);
    expect(rate.ready(1000)).toBe(false);
    expect(rate.take(1, 1500)).toBe(false);
    expect(rate.take(1, 1600)).toBe(true);
  });

  it("tolerates a clock that goes back", () => {
    const rate = lineRate({ perSecond: 1, burst: 1, bytesPerSecond: 100 });
    expect(rate.take(1, 5000)).toBe(true);
    expect(rate.take(1, 1000)).toBe(false);
    expect(rate.take(1, 2000)).toBe(true);
  });
});

describe("the queue", () => {
  it("delivers the lines in order, waits for the next one, and ends", async () => {
    const queue = lineQueue({ maxSize: 1000, onRoom: () => {} });
    queue.push("a");
    queue.push("b");
    expect([await queue.next(), await queue.next()]).toEqual(["a", "b"]);
    const waiting = queue.next();
    queue.push("c");
    expect(await waiting).toBe("c");
    const last = queue.next();
    queue.end();
    expect(await last).toBeUndefined();
    expect(await queue.next()).toBeUndefined();
  });

  it("is full at its limit and has room again at half of it", async () => {
    let room = 0;
    const queue = lineQueue({ maxSize: 330, onRoom: () => room++ });
    for (let index = 0; index < 9; index++) queue.push("x");
    expect(queue.full()).toBe(false);
    queue.push("x");
    expect(queue.full()).toBe(true);
    for (let index = 0; index < 5; index++) await queue.next();
    expect([queue.full(), room]).toEqual([true, 0]);
    await queue.next();
    expect([queue.full(), room]).toEqual([false, 1]);
  });
});

function split(chunks: (string | Buffer)[], options: Partial<LineSplitterOptions> = {}): string[] {
  const lines: string[] = [];
  const splitter = lineSplitter({ onLine: (text) => lines.push(text), ...options });
  for (const chunk of chunks) splitter.write(Buffer.from(chunk as string));
  splitter.end();
  return lines;
}

function keep(chunks: Buffer[], headBytes: number, tailBytes: number): string {
  const keeper = outputKeeper({ headBytes, tailBytes });
  for (const chunk of chunks) keeper.write(chunk);
  return keeper.text();
}

function cutAt(bytes: Buffer, cuts: number[]): Buffer[] {
  const places = [...new Set([0, ...cuts.filter((cut) => cut < bytes.length), bytes.length])].sort((a, b) => a - b);
  return places.slice(1).map((to, index) => bytes.subarray(places[index], to));
}
