// Which parts of the audio are recognized: what is between silences, and at most MAX_SECONDS at once.
import { type Audio, SAMPLE_RATE, type Span } from "./audio.ts";

/** Memory and the time until an abort is noticed grow with it. The model is made for short recordings. */
const MAX_SECONDS = 15;
/** A long part is cut at its quietest point after this time. */
const MIN_SECONDS = 5;
/** Words begin and end below the threshold of silence. Twice this is less than the shortest silence. */
const MARGIN = 0.15;
/** Shorter sounds are clicks. */
const MIN_SOUND = 0.1;
const WINDOW = SAMPLE_RATE / 5;

export async function* speechSegments(audio: Audio): AsyncGenerator<Span> {
  for (const span of soundsBetween(audio.silences, audio.seconds)) {
    let { start } = span;
    while (span.end - start > MAX_SECONDS) {
      // The rest has at least a second, which is a word.
      const choice = { start: start + MIN_SECONDS, end: Math.min(start + MAX_SECONDS, span.end - 1) };
      const cut = choice.start + quietestPoint(await audio.read(choice));
      yield { start, end: cut };
      start = cut;
    }
    yield { start, end: span.end };
  }
}

/** The complement of the silences, with a margin. */
export function soundsBetween(silences: readonly Span[], seconds: number): Span[] {
  const sounds: Span[] = [];
  let start = 0;
  for (const silence of [...silences, { start: seconds, end: seconds }]) {
    if (silence.start - start >= MIN_SOUND) {
      sounds.push({ start: Math.max(start - MARGIN, 0), end: Math.min(silence.start + MARGIN, seconds) });
    }
    start = silence.end;
  }
  return sounds;
}

/** In seconds: the middle of the window with the least energy. */
function quietestPoint(samples: Float32Array): number {
  let quietest = 0;
  let least = Number.POSITIVE_INFINITY;
  for (let from = 0; from + WINDOW <= samples.length; from += WINDOW / 4) {
    const energy = samples.subarray(from, from + WINDOW).reduce((sum, value) => sum + value * value, 0);
    if (energy < least) [quietest, least] = [from, energy];
  }
  return (quietest + WINDOW / 2) / SAMPLE_RATE;
}
