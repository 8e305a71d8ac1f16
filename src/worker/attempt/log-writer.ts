// What an attempt says while it works: log lines and progress, in order. It cuts what is too long, hides registered secrets before anything
// leaves the process, keeps within the job's budget of log bytes (beyond it only the last lines are kept, behind a marker) and thins progress.
// In a runner lines are gathered for a moment, because each message over the pipe has its price.
import { InvalidInput } from "../../errors.ts";
import type { Redactor } from "../redact/redact.ts";
import type { LogLine, Port, Progress } from "../runner/port.ts";
import { clean } from "./failure.ts";

export interface JournalOptions {
  port: Port;
  redactor: Redactor;
  /** How long lines are gathered before they are handed over. */
  lingerMs: number;
  /** Bytes of log a job may write in one attempt. */
  budget?: number;
}

/** What SQL stores of a message. */
const MAX_LINE = 16 * 1024;
/** The words "… (123 more)" must be within. */
const MAX_MESSAGE = MAX_LINE - 32;
const MAX_SENTENCE = 1000;
const BATCH_BYTES = 64 * 1024;
const TAIL_LINES = 200;
const PROGRESS_MS = 500;
const PROGRESS_STEP = 0.01;

export class Journal {
  readonly #options: JournalOptions;
  #lines: LogLine[] = [];
  #bytes = 0;
  #left: number;
  #tail: LogLine[] = [];
  #leftOut = 0;
  #timer: NodeJS.Timeout | undefined;
  #progress: Progress | undefined;
  #sentFraction = -1;
  #sentAt = Number.NEGATIVE_INFINITY;
  #progressTimer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: JournalOptions) {
    this.#options = options;
    this.#left = options.budget ?? 50 * 1024 * 1024;
  }

  write(level: LogLine["level"], message: string, step?: string, data?: unknown): void {
    if (this.#closed) return;
    const line: LogLine = {
      level,
      message: clean(this.#options.redactor.hide(String(message)), MAX_MESSAGE),
      at: performance.now(),
    };
    if (step !== undefined) line.step = step;
    let size = line.message.length + 64;
    if (data !== undefined) {
      line.data = this.#dataOf(data);
      size += JSON.stringify(line.data)?.length ?? 0;
    }
    if (this.#left < size) {
      this.#leftOut += 1;
      if (this.#tail.push(line) > TAIL_LINES) this.#tail.shift();
      return;
    }
    this.#left -= size;
    this.#add(line, size);
  }

  /** Words that go elsewhere than into the log. */
  get redactor(): Redactor {
    return this.#options.redactor;
  }

  /** A name is stored as it is, or two could become one. */
  refuseName(name: string, of: string): void {
    if (!this.redactor.finds(name)) return;
    throw new InvalidInput(`The name of ${of} carries a secret of this job`, {
      field: "name",
      remedy: "Leave it out of the name: names are stored and shown",
    });
  }

  /** What a step returns is data, and comes back as it was: it is not touched, but the person who reads the log is told. */
  checkResult(step: string, json: string): void {
    if (!this.redactor.finds(json)) return;
    this.write("warning", `The result of step "${step}" carries a secret of this job and is stored as it is`, step);
  }

  /** Says the latest value when it moved by a hundredth or half a second has passed, and the last one in any case. */
  progress(progress: Progress): void {
    // Nothing is known by 0 of an amount that could not be read.
    const unreadable = [progress.fraction, progress.done, progress.total].some((one) => Number.isNaN(one));
    if (this.#closed || unreadable) return;
    const { sentence } = progress;
    this.#progress =
      sentence === undefined
        ? progress
        : { ...progress, sentence: clean(this.redactor.hide(String(sentence)), MAX_SENTENCE) };
    const fraction = fractionOf(progress);
    const waitMs = this.#sentAt + PROGRESS_MS - performance.now();
    if (Math.abs(fraction - this.#sentFraction) >= PROGRESS_STEP || waitMs <= 0) {
      this.#sendProgress();
    } else {
      this.#progressTimer ??= setTimeout(() => this.#sendProgress(), waitMs);
    }
  }

  /** Hands everything over. What the port then does with it is its own affair: see Port.flush. */
  handOver(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#lines.length === 0) return;
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    this.#options.port.log(lines);
  }

  /** The last words: the tail of what the budget had no room for, and the latest progress. */
  close(): void {
    if (this.#closed) return;
    if (this.#leftOut > this.#tail.length) {
      const message = `… ${this.#leftOut - this.#tail.length} lines left out: the job's log is full`;
      this.#lines.push({ level: "warning", message, at: performance.now() });
    }
    this.#lines.push(...this.#tail);
    this.#tail = [];
    if (this.#progressTimer) this.#sendProgress();
    this.handOver();
    this.#closed = true;
  }

  get leftOut(): number {
    return this.#leftOut;
  }

  #add(line: LogLine, size: number): void {
    this.#lines.push(line);
    this.#bytes += size;
    if (this.#options.lingerMs === 0 || this.#bytes >= BATCH_BYTES) this.handOver();
    else this.#timer ??= setTimeout(() => this.handOver(), this.#options.lingerMs);
  }

  #sendProgress(): void {
    clearTimeout(this.#progressTimer);
    this.#progressTimer = undefined;
    if (!this.#progress || this.#closed) return;
    this.#sentFraction = fractionOf(this.#progress);
    this.#sentAt = performance.now();
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    this.#options.port.log(lines, this.#progress);
    this.#progress = undefined;
  }

  #dataOf(data: unknown): unknown {
    let json: string | undefined;
    try {
      json = JSON.stringify(data, (_, value) => (typeof value === "bigint" ? String(value) : value));
    } catch {
      return { unreadable: clean(this.redactor.hide(String(data)), 200) };
    }
    if (json === undefined) return undefined;
    if (json.length > MAX_LINE) return { dropped: `larger than ${MAX_LINE} bytes`, bytes: json.length };
    // Text by text: in the JSON itself a mask could stand where none is allowed, and an escape be taken for what it escapes.
    const said = (text: string) => clean(this.#options.redactor.hide(text), MAX_LINE);
    return JSON.parse(json, (_, value) => {
      if (typeof value === "string") return said(value);
      if (typeof value === "number") return said(String(value)) === String(value) ? value : said(String(value));
      if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
      return Object.fromEntries(Object.entries(value).map(([key, child]) => [said(key), child]));
    });
  }
}

function fractionOf({ fraction, done, total }: Progress): number {
  return fraction ?? (total ? (done ?? 0) / total : 0);
}
