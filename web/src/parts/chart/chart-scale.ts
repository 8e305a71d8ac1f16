// Where lines and words of a chart stand. Pure: chart.tsx draws them.

/** The round number at which the axis ends, and the whole numbers at its lines. */
export function countScale(most: number): { top: number; ticks: number[] } {
  const least = Math.max(most, 4);
  const power = 10 ** Math.floor(Math.log10(least / 4));
  const step = [1, 2, 2.5, 3, 4, 5, 10]
    .map((one) => one * power)
    .find((one) => one * 4 >= least && Number.isInteger(one))!;
  return { top: step * 4, ticks: [0, 1, 2, 3, 4].map((n) => n * step) };
}

const MINUTE = 60_000;
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440].map((minutes) => minutes * MINUTE);

/** Round moments between two, at most so many, on the clock of whoever looks. */
export function timeTicks(from: number, to: number, most: number): number[] {
  const step = steps.find((one) => (to - from) / one <= most) ?? steps.at(-1)!;
  const shift = new Date(from).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((from - shift) / step) * step + shift;
  const ticks: number[] = [];
  for (let at = first; at < to; at += step) ticks.push(at);
  return ticks;
}

/** Heights of the parts of one column, from the bottom up. What is there is seen: nothing is less than two pixels high. */
export function stack(counts: readonly number[], top: number, height: number): { y: number; height: number }[] {
  let y = height;
  return counts.map((count) => {
    const high = count === 0 ? 0 : Math.max(2, (count / top) * height);
    y = Math.max(0, y - high);
    return { y, height: high };
  });
}
