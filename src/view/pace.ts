// How fast a job goes and how long it will take: from what it said within the last half minute, since the beginning may have been another pace. The moments are
// those at which the job said it, by the clock of the database, so that lines which come in a burst after a reconnect do not look like a sprint.
import type { Progress } from "./wire.ts";

export interface PaceNow {
  /** From 0 to 1; null when the job only says a sentence. */
  fraction: number | null;
  done: number | null;
  total: number | null;
  sentence: string | null;
  perSecond: number | null;
  /** From the moment `toldAt`; null when nothing can be said about it. */
  leftMs: number | null;
  /** When it was heard, by the clock of the page. */
  toldAt: number;
}

const WINDOW_MS = 30_000;
const MIN_MS = 500;

export class Pace {
  #seen: { at: number; fraction: number; done: number | undefined }[] = [];
  #last: PaceNow | null = null;

  get now(): PaceNow | null {
    return this.#last;
  }

  forget(): void {
    this.#seen = [];
    this.#last = null;
  }

  tell(progress: Progress, heardAt = Date.now()): void {
    const said = progress.at === undefined ? Number.NaN : Date.parse(progress.at);
    const at = Number.isNaN(said) ? heardAt : said;
    const fraction = fractionOf(progress);
    if (fraction !== undefined && at !== this.#seen.at(-1)?.at) {
      // One that goes back has begun again.
      const last = this.#seen.at(-1);
      if (last && (fraction < last.fraction || at < last.at)) this.#seen = [];
      this.#seen.push({ at, fraction, done: progress.done });
      while (this.#seen.length > 2 && at - this.#seen[0]!.at > WINDOW_MS) this.#seen.shift();
    }
    const pace = fraction === undefined || fraction >= 1 ? undefined : this.#pace();
    this.#last = {
      fraction: fraction ?? null,
      done: progress.done ?? null,
      total: progress.total ?? null,
      sentence: progress.sentence ?? null,
      perSecond: pace && pace.done > 0 ? pace.done : null,
      leftMs: pace ? ((1 - fraction!) / pace.fraction) * 1000 : null,
      toldAt: heardAt,
    };
  }

  /** A second's worth of each. */
  #pace(): { fraction: number; done: number } | undefined {
    const [first, last] = [this.#seen[0], this.#seen.at(-1)];
    if (!first || !last || last.at - first.at < MIN_MS || last.fraction <= first.fraction) return undefined;
    const seconds = (last.at - first.at) / 1000;
    return {
      fraction: (last.fraction - first.fraction) / seconds,
      done: ((last.done ?? 0) - (first.done ?? 0)) / seconds,
    };
  }
}

function fractionOf({ fraction, done, total }: Progress): number | undefined {
  const value = fraction ?? (done !== undefined && total ? done / total : undefined);
  return value === undefined || Number.isNaN(value) ? undefined : Math.min(1, Math.max(0, value));
}
