// How far a job is, how fast, and how long it will take: from what it said lately, since the beginning may have been another pace.
import { span } from "./moments.ts";

interface Progress {
  fraction?: number;
  done?: number;
  total?: number;
  sentence?: string;
}

const WIDTH = 24;
const WINDOW_MS = 30_000;

export class ProgressBar {
  #now: Progress | undefined;
  #seen: { at: number; fraction: number; done: number | undefined }[] = [];
  #told = { tenth: -1, sentence: undefined as string | undefined };

  tell(progress: Progress | null | undefined, at = performance.now()): void {
    if (!progress) return;
    this.#now = progress;
    const fraction = fractionOf(progress);
    if (fraction === undefined) return;
    // One that goes back has begun again.
    if (fraction < (this.#seen.at(-1)?.fraction ?? 0)) this.#seen = [];
    this.#seen.push({ at, fraction, done: progress.done });
    while (this.#seen.length > 2 && at - this.#seen[0]!.at > WINDOW_MS) this.#seen.shift();
  }

  /** Empty before anything was told. */
  text(at = performance.now()): string {
    const { total, done, sentence } = this.#now ?? {};
    const fraction = this.#now && fractionOf(this.#now);
    if (fraction === undefined) return sentence ?? "";
    const full = Math.round(fraction * WIDTH);
    const parts = [`${"█".repeat(full)}${"░".repeat(WIDTH - full)} ${Math.floor(fraction * 100)}%`];
    if (done !== undefined && total !== undefined) parts.push(`${count(done)} of ${count(total)}`);
    const pace = this.#pace();
    if (pace && fraction < 1) {
      if (pace.done > 0) parts.push(`${rate(pace.done)}/s`);
      const leftMs = ((1 - fraction) / pace.fraction) * 1000 - (at - this.#seen.at(-1)!.at);
      parts.push(`${leftMs < 10_000 ? `${Math.max(1, Math.ceil(leftMs / 1000))}s` : span(leftMs)} left`);
    }
    if (sentence) parts.push(sentence);
    return parts.join("  ");
  }

  /** Whether it is worth a line where lines stay: another tenth, or another sentence. */
  isNews(): boolean {
    const fraction = (this.#now && fractionOf(this.#now)) ?? 0;
    const tenth = Math.floor(fraction * 10);
    const sentence = this.#now?.sentence;
    const news = tenth !== this.#told.tenth || sentence !== this.#told.sentence;
    this.#told = { tenth, sentence };
    return news;
  }

  /** A second's worth of each. */
  #pace(): { fraction: number; done: number } | undefined {
    const [first, last] = [this.#seen[0], this.#seen.at(-1)];
    if (!first || !last || last.at - first.at < 500 || last.fraction <= first.fraction) return undefined;
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

function rate(value: number): string {
  return value >= 10 ? count(Math.round(value)) : value.toFixed(1);
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
