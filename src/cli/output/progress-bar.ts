// The progress bar of a followed job: a bar, the rate and the remaining time.
import { formatCount } from "../../text/format.ts";
import { type Progress, ProgressMeter } from "../../text/progress-rate.ts";
import { formatDuration } from "./time.ts";

const WIDTH = 24;

export class ProgressBar {
  readonly #meter = new ProgressMeter();
  #printed = { tenth: -1, sentence: null as string | null };

  update(progress: Progress | null | undefined, at = Date.now()): void {
    if (progress) this.#meter.update(progress, at);
  }

  /** Empty before the first update. */
  text(now = Date.now()): string {
    const rate = this.#meter.current;
    if (!rate) return "";
    const { fraction, done, total, sentence, perSecond, leftMs, receivedAt } = rate;
    if (fraction === null) return sentence ?? "";
    const filled = Math.round(fraction * WIDTH);
    const parts = [`${"█".repeat(filled)}${"░".repeat(WIDTH - filled)} ${Math.floor(fraction * 100)}%`];
    // The sentence of a list contains its count and its rate.
    const isRepeated = done !== null && sentence?.startsWith(`${done} of ${total}, `);
    if (done !== null && total !== null && !isRepeated) parts.push(`${formatCount(done)} of ${formatCount(total)}`);
    if (perSecond !== null && !isRepeated)
      parts.push(`${perSecond >= 10 ? formatCount(Math.round(perSecond)) : perSecond.toFixed(1)}/s`);
    if (leftMs !== null) {
      const left = leftMs - (now - receivedAt);
      parts.push(`${left < 10_000 ? `${Math.max(1, Math.ceil(left / 1000))}s` : formatDuration(left)} left`);
    }
    if (sentence) parts.push(sentence);
    return parts.join("  ");
  }

  /** Where lines cannot be redrawn: whether this update deserves a line (another tenth, or another sentence). */
  isNews(): boolean {
    const { fraction, sentence } = this.#meter.current ?? { fraction: 0, sentence: null };
    const tenth = Math.floor((fraction ?? 0) * 10);
    const isNew = tenth !== this.#printed.tenth || sentence !== this.#printed.sentence;
    this.#printed = { tenth, sentence };
    return isNew;
  }
}
