// The scales of a chart: ticks and bar heights. Pure functions; chart.tsx draws them.

/** The round number at the top of the axis, and its five whole-numbered ticks. */
export function countScale(max: number): { top: number; ticks: number[] } {
  const range = Math.max(max, 4);
  const power = 10 ** Math.floor(Math.log10(range / 4));
  const step = [1, 2, 2.5, 3, 4, 5, 10]
    .map((factor) => factor * power)
    .find((candidate) => candidate * 4 >= range && Number.isInteger(candidate))!;
  return { top: step * 4, ticks: [0, 1, 2, 3, 4].map((n) => n * step) };
}

const MINUTE = 60_000;
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440].map((minutes) => minutes * MINUTE);

/** At most `max` round times between two times, in the local time zone. */
export function timeTicks(from: number, to: number, max: number): number[] {
  const step = steps.find((candidate) => (to - from) / candidate <= max) ?? steps.at(-1)!;
  const shift = new Date(from).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((from - shift) / step) * step + shift;
  const ticks: number[] = [];
  for (let at = first; at < to; at += step) ticks.push(at);
  return ticks;
}

/** The segments of one column, from the bottom up. A count above 0 is at least two pixels high. */
export function stack(counts: readonly number[], top: number, height: number): { y: number; height: number }[] {
  let y = height;
  return counts.map((count) => {
    const segment = count === 0 ? 0 : Math.max(2, (count / top) * height);
    y = Math.max(0, y - segment);
    return { y, height: segment };
  });
}
