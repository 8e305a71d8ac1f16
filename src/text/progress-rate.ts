// Progress rate and remaining time of a job, from the progress reports of the last 30 seconds. The reports carry the
// time of the database: a burst of reports after a reconnect does not distort the rate.

/** What a job reports with job.progress(). */
export interface Progress {
  at?: string | undefined;
  fraction?: number | undefined;
  done?: number | undefined;
  total?: number | undefined;
  sentence?: string | undefined;
}

export interface ProgressRate {
  /** From 0 to 1; null when the job reports only a sentence. */
  fraction: number | null;
  done: number | null;
  total: number | null;
  sentence: string | null;
  perSecond: number | null;
  /** Counted from `receivedAt`; null when it cannot be estimated. */
  leftMs: number | null;
  /** When the last report was received, by the local clock. */
  receivedAt: number;
}

const WINDOW_MS = 30_000;
/** Below this distance between the first and the last report the rate is noise. */
const MIN_MS = 500;

export class ProgressMeter {
  #reports: { at: number; fraction: number; done: number | undefined }[] = [];
  #current: ProgressRate | null = null;

  get current(): ProgressRate | null {
    return this.#current;
  }

  reset(): void {
    this.#reports = [];
    this.#current = null;
  }

  update(progress: Progress, receivedAt = Date.now()): void {
    const reportedAt = progress.at === undefined ? Number.NaN : Date.parse(progress.at);
    const at = Number.isNaN(reportedAt) ? receivedAt : reportedAt;
    const fraction = toFraction(progress);
    if (fraction !== undefined && at !== this.#reports.at(-1)?.at) {
      // Progress that goes backwards belongs to a new attempt.
      const last = this.#reports.at(-1);
      if (last && (fraction < last.fraction || at < last.at)) this.#reports = [];
      this.#reports.push({ at, fraction, done: progress.done });
      while (this.#reports.length > 2 && at - this.#reports[0]!.at > WINDOW_MS) this.#reports.shift();
    }
    const rate = fraction === undefined || fraction >= 1 ? undefined : this.#rate();
    this.#current = {
      fraction: fraction ?? null,
      done: progress.done ?? null,
      total: progress.total ?? null,
      sentence: progress.sentence ?? null,
      perSecond: rate && rate.done > 0 ? rate.done : null,
      leftMs: rate ? ((1 - fraction!) / rate.fraction) * 1000 : null,
      receivedAt,
    };
  }

  /** Per second. */
  #rate(): { fraction: number; done: number } | undefined {
    const [first, last] = [this.#reports[0], this.#reports.at(-1)];
    if (!first || !last || last.at - first.at < MIN_MS || last.fraction <= first.fraction) return undefined;
    const seconds = (last.at - first.at) / 1000;
    return {
      fraction: (last.fraction - first.fraction) / seconds,
      done: ((last.done ?? 0) - (first.done ?? 0)) / seconds,
    };
  }
}

/** From 0 to 1; undefined when the job reports neither a fraction nor a total. */
export function toFraction({ fraction, done, total }: Progress): number | undefined {
  const value = fraction ?? (done !== undefined && total ? done / total : undefined);
  return value === undefined || Number.isNaN(value) ? undefined : Math.min(1, Math.max(0, value));
}
