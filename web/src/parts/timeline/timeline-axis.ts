// The axis of a timeline: attempts, the gaps between them, and where a moment lies when long gaps are drawn short.

export type Outcome = "completed" | "failed" | "cancelled" | "slept" | "paused" | "released" | "lost";

export interface Band {
  from: number;
  to: number;
  /** Its place among all attempts, from 1. */
  attempt: number;
  outcome: Outcome | null;
  /** Of a lost one: not the worker was lost, but the runner that it had started for the job. */
  runner: boolean;
  /** The job had ended with it, and somebody has retried it since. */
  last: boolean;
}

/** Nobody worked on it. */
export interface Gap {
  from: number;
  to: number;
  /** How the attempt before it ended; "ended" when the job ended with it, so that nothing but a person brought it back. */
  after: Outcome | "ended";
  /** That attempt lost its runner, and kept its worker. */
  runner: boolean;
  /** It is drawn shorter than it was. */
  short: boolean;
}

export interface Axis {
  /** Where a moment lies, from 0 to 1. */
  place(moment: number): number;
  /** Milliseconds since the beginning, and where that lies. The end has a mark of its own, and room for it. */
  ticks: { at: number; place: number }[];
}

export function gapsOf(bands: readonly Band[], to: number): Gap[] {
  const gaps: Gap[] = [];
  for (const [at, { to: end, outcome, runner, last }] of bands.entries()) {
    const next = bands[at + 1]?.from ?? to;
    // Handing over takes some milliseconds, which is no wait.
    if (outcome === null || next - end <= 50) continue;
    gaps.push({ from: end, to: next, after: last ? "ended" : outcome, runner, short: false });
  }
  return gaps;
}

/** A wait of hours would press minutes of work into a line: it is drawn as long as a good part of the work at most. */
export function axisOf(from: number, to: number, gaps: Gap[]): Axis {
  const waited = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const worked = Math.max(1, to - from - waited);
  const most = Math.max(1, worked * Math.min(0.15, 0.6 / Math.max(1, gaps.length)));
  const segments: { from: number; to: number; drawn: number; before: number; short: boolean }[] = [];
  let at = from;
  let before = 0;
  const add = (end: number, drawn: number, short: boolean) => {
    if (end <= at) return;
    segments.push({ from: at, to: end, drawn, before, short });
    at = end;
    before += drawn;
  };
  for (const gap of gaps) {
    add(gap.from, gap.from - at, false);
    gap.short = gap.to - gap.from > most;
    add(gap.to, Math.min(gap.to - gap.from, most), gap.short);
  }
  add(to, to - at, false);
  const total = before;
  const place = (moment: number) => {
    const held = Math.min(to, Math.max(from, moment));
    const segment = segments.find((one) => held <= one.to) ?? segments.at(-1)!;
    return (segment.before + ((held - segment.from) / (segment.to - segment.from)) * segment.drawn) / total;
  };
  const step = roundSpan(total / 5);
  const ticks: Axis["ticks"] = [];
  for (const segment of segments) {
    if (segment.short) continue;
    for (let tick = Math.ceil((segment.from - from) / step) * step; from + tick < segment.to; tick += step) {
      const where = place(from + tick);
      if (where <= 0.82 && (ticks.length === 0 || where - ticks.at(-1)!.place > 0.1)) {
        ticks.push({ at: tick, place: where });
      }
    }
  }
  return { place, ticks };
}

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

function roundSpan(ms: number): number {
  const small = ROUND.find((one) => one >= ms);
  const seconds = small ?? ROUND_SECONDS.map((one) => one * 1000).find((one) => one >= ms);
  return seconds ?? Math.ceil(ms / 86_400_000) * 86_400_000;
}
