// The axis of a timeline: attempts, the gaps between them, and the position of a time when long gaps are shortened.

export type Outcome = "completed" | "failed" | "cancelled" | "slept" | "paused" | "released" | "lost";

export interface Band {
  from: number;
  to: number;
  /** Its number among all attempts, from 1. */
  attempt: number;
  outcome: Outcome | null;
  /** A lost attempt lost its runner, not its worker. */
  runnerLost: boolean;
  /** The job ended with it and was retried later. */
  endedJob: boolean;
}

/** A time without an attempt. */
export interface Gap {
  from: number;
  to: number;
  /** The outcome of the attempt before it; "ended" if the job ended with that attempt and was retried by hand. */
  after: Outcome | "ended";
  /** That attempt lost its runner, not its worker. */
  runnerLost: boolean;
  /** Drawn shorter than it was. */
  shortened: boolean;
}

export interface Axis {
  /** The position of a time, from 0 to 1. */
  position(time: number): number;
  /** Milliseconds since the start. There is no tick near the end, which has its own label. */
  ticks: { ms: number; position: number }[];
}

export function findGaps(bands: readonly Band[], to: number): Gap[] {
  const gaps: Gap[] = [];
  for (const [index, { to: end, outcome, runnerLost, endedJob }] of bands.entries()) {
    const next = bands[index + 1]?.from ?? to;
    // The next claim takes some milliseconds, which is not a wait.
    if (outcome === null || next - end <= 50) continue;
    gaps.push({ from: end, to: next, after: endedJob ? "ended" : outcome, runnerLost, shortened: false });
  }
  return gaps;
}

/** Long gaps are shortened: next to a wait of hours, minutes of work would be too narrow to see. */
export function buildAxis(from: number, to: number, gaps: Gap[]): Axis {
  const waited = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const worked = Math.max(1, to - from - waited);
  const maxGap = Math.max(1, worked * Math.min(0.15, 0.6 / Math.max(1, gaps.length)));
  const segments: { from: number; to: number; drawn: number; before: number; shortened: boolean }[] = [];
  let at = from;
  let before = 0;
  const add = (end: number, drawn: number, shortened: boolean) => {
    if (end <= at) return;
    segments.push({ from: at, to: end, drawn, before, shortened });
    at = end;
    before += drawn;
  };
  for (const gap of gaps) {
    add(gap.from, gap.from - at, false);
    gap.shortened = gap.to - gap.from > maxGap;
    add(gap.to, Math.min(gap.to - gap.from, maxGap), gap.shortened);
  }
  add(to, to - at, false);
  const total = before;
  const position = (time: number) => {
    const clamped = Math.min(to, Math.max(from, time));
    const segment = segments.find((candidate) => clamped <= candidate.to) ?? segments.at(-1)!;
    return (segment.before + ((clamped - segment.from) / (segment.to - segment.from)) * segment.drawn) / total;
  };
  const step = roundDuration(total / 5);
  const ticks: Axis["ticks"] = [];
  for (const segment of segments) {
    if (segment.shortened) continue;
    for (let tick = Math.ceil((segment.from - from) / step) * step; from + tick < segment.to; tick += step) {
      const where = position(from + tick);
      if (where <= 0.82 && (ticks.length === 0 || where - ticks.at(-1)!.position > 0.1)) {
        ticks.push({ ms: tick, position: where });
      }
    }
  }
  return { position, ticks };
}

const ROUND_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

function roundDuration(ms: number): number {
  const small = ROUND_MS.find((step) => step >= ms);
  const large = small ?? ROUND_SECONDS.map((step) => step * 1000).find((step) => step >= ms);
  return large ?? Math.ceil(ms / 86_400_000) * 86_400_000;
}
