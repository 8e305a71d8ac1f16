import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Audio, SAMPLE_RATE, type Span } from "../../src/asr/audio.ts";
import { soundsBetween, speechSegments } from "../../src/asr/segments.ts";

/** Noise everywhere but in `silences`, and quiet from `quietAt` on for 0.3 s. */
function noise(seconds: number, { silences = [], quietAt }: { silences?: Span[]; quietAt?: number } = {}): Audio {
  return {
    seconds,
    silences,
    read: async ({ start, end }) =>
      Float32Array.from({ length: Math.round((end - start) * SAMPLE_RATE) }, (_, index) => {
        const time = start + index / SAMPLE_RATE;
        const quiet = quietAt !== undefined && time >= quietAt && time < quietAt + 0.3;
        return (quiet ? 0.01 : 0.5) * (index % 2 === 0 ? 1 : -1);
      }),
    close: async () => {},
  };
}

async function segmentsOf(audio: Audio): Promise<Span[]> {
  const found: Span[] = [];
  for await (const span of speechSegments(audio)) found.push(span);
  return found;
}

describe("the segments to recognize", () => {
  it("are all that is not silent, with a margin, in order and without overlap", () => {
    const parts = fc.array(
      fc.record({ sound: fc.integer({ min: 150, max: 20_000 }), silence: fc.integer({ min: 500, max: 9_000 }) }),
      { minLength: 1, maxLength: 10 },
    );
    fc.assert(
      fc.property(parts, fc.boolean(), (lengths, endsSilent) => {
        let ms = 0;
        const sounds: Span[] = [];
        const silences: Span[] = [];
        for (const { sound, silence } of lengths) {
          sounds.push({ start: ms / 1000, end: (ms + sound) / 1000 });
          silences.push({ start: (ms + sound) / 1000, end: (ms + sound + silence) / 1000 });
          ms += sound + silence;
        }
        const seconds = endsSilent ? ms / 1000 : silences.pop()!.start;
        const found = soundsBetween(silences, seconds);
        expect(found).toHaveLength(sounds.length);
        for (const [index, { start, end }] of found.entries()) {
          expect(start).toBeLessThanOrEqual(sounds[index]!.start);
          expect(end).toBeGreaterThanOrEqual(sounds[index]!.end);
          expect(start).toBeGreaterThanOrEqual(found[index - 1]?.end ?? 0);
          expect(end).toBeLessThanOrEqual(seconds);
        }
      }),
    );
  });

  it("leave out clicks, and are none in silence and in an empty file", () => {
    expect(soundsBetween([{ start: 0.05, end: 4 }], 4)).toEqual([]);
    expect(soundsBetween([{ start: 0, end: 4 }], 4)).toEqual([]);
    expect(soundsBetween([], 0)).toEqual([]);
  });

  it("are at most 15 seconds long and contain every moment of sound once", async () => {
    for (const seconds of [14.9, 15.1, 16, 29, 61.7]) {
      const found = await segmentsOf(noise(seconds));
      expect(found[0]!.start).toBe(0);
      expect(found.at(-1)!.end).toBe(seconds);
      expect(found.slice(1).map(({ start }) => start)).toEqual(found.slice(0, -1).map(({ end }) => end));
      for (const { start, end } of found) {
        expect(end - start).toBeLessThanOrEqual(15);
        expect(end - start).toBeGreaterThanOrEqual(1);
      }
    }
  });

  it("are cut where it is quiet", async () => {
    const [first] = await segmentsOf(noise(20, { quietAt: 9 }));
    expect(first!.end).toBeGreaterThanOrEqual(9);
    expect(first!.end).toBeLessThanOrEqual(9.3);
  });
});
