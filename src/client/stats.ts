// Statistics of the whole installation, for dashboards and metrics.
import { countEnded, countLive } from "../db/calls/reads.ts";
import type { Queries } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import { checkInteger } from "../validate.ts";

export interface StatsOptions {
  /** How far back, at most "24h". Default "1h". */
  span?: Duration;
  /** The number of equal parts of the span, 1 to 200. Default 60. */
  parts?: number;
}

export interface OutcomeCounts {
  completed: number;
  failed: number;
  cancelled: number;
}

export interface Stats {
  /** Live jobs by state. */
  live: { queued: number; running: number; paused: number };
  /** There are more live jobs than were counted. */
  more: boolean;
  /** Queued jobs by the reason they wait; "machine" means that a worker could claim them now. */
  waiting: Record<string, number>;
  /** When the oldest queued job was created. */
  oldest: Date | null;
  /** The same for jobs that a worker could claim now. */
  oldestReady: Date | null;
  spanMs: number;
  ended: OutcomeCounts;
  /** The same per part of the span, oldest first. */
  parts: (OutcomeCounts & { at: Date })[];
  /** By pipeline, with the total, mean and longest time from first start to end. */
  pipelines: (OutcomeCounts & {
    name: string;
    totalSeconds: number;
    meanSeconds: number | null;
    longestSeconds: number | null;
  })[];
}

const MAX_LIVE = 100_000;

export async function summarize(queries: Queries, options: StatsOptions): Promise<Stats> {
  const { span = "1h", parts = 60 } = options;
  const spanMs = durationMs(span, "span");
  if (spanMs < 1000 || spanMs > 86_400_000) {
    throw new InvalidInput(`span ${span} is not from 1s to 24h`, { field: "span", remedy: "Use a shorter span" });
  }
  checkInteger(parts, "parts", 1, 200);
  const [live, ended] = await Promise.all([
    countLive(queries, MAX_LIVE),
    countEnded(queries, `${spanMs} milliseconds`, parts),
  ]);
  const stats: Stats = {
    live: { queued: 0, running: 0, paused: 0 },
    more: false,
    waiting: {},
    oldest: null,
    oldestReady: null,
    spanMs,
    ended: none(),
    parts: [],
    pipelines: [],
  };
  let counted = 0;
  for (const { state, waiting_for, count, oldest } of live) {
    counted += Number(count);
    stats.live[state as keyof Stats["live"]] += Number(count);
    if (waiting_for !== null) stats.waiting[waiting_for] = Number(count);
    if (state === "queued" && (stats.oldest === null || oldest < stats.oldest)) stats.oldest = oldest;
    if (waiting_for === "machine") stats.oldestReady = oldest;
  }
  stats.more = counted >= MAX_LIVE;

  const begins = ended[0] ? ended[0].begins.getTime() - (ended[0].bucket * spanMs) / parts : Date.now() - spanMs;
  stats.parts = Array.from({ length: parts }, (_, n) => ({ at: new Date(begins + (n * spanMs) / parts), ...none() }));
  const byName = new Map<string, Stats["pipelines"][number] & { timed: number }>();
  for (const { bucket, pipeline: name, state, count, timed, seconds, longest } of ended) {
    stats.ended[state] += Number(count);
    stats.parts[bucket]![state] += Number(count);
    const all = byName.get(name) ?? {
      name,
      ...none(),
      totalSeconds: 0,
      meanSeconds: null,
      longestSeconds: null,
      timed: 0,
    };
    byName.set(name, all);
    all[state] += Number(count);
    if (seconds === null) continue;
    all.totalSeconds += seconds;
    all.timed += Number(timed);
    all.meanSeconds = all.totalSeconds / all.timed;
    all.longestSeconds = Math.max(all.longestSeconds ?? 0, longest ?? 0);
  }
  stats.pipelines = [...byName.values()]
    .map(({ timed, ...pipeline }) => pipeline)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  return stats;
}

function none(): OutcomeCounts {
  return { completed: 0, failed: 0, cancelled: 0 };
}
