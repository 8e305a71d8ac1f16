// Writes the log lines and the progress of an attempt, in order. It truncates long texts, redacts registered secrets before anything leaves
// the process, enforces the log size of an attempt (beyond it only the last lines are kept, after a line that counts the dropped ones) and
// throttles progress. In a runner, lines are batched to save messages over the pipe.

import { InvalidInput } from "../../errors.ts";
import { formatPlural } from "../../text/format.ts";
import type { Redactor } from "../redact/redact.ts";
import type { LogLine, Port, Progress } from "../runner/port.ts";
import { toStorableText } from "./failure.ts";

export interface LogWriterOptions {
  port: Port;
  redactor: Redactor;
  /** How long lines are collected before they are sent. */
  lingerMs: number;
  /** Maximum bytes of log per attempt. */
  maxBytes?: number;
}

/** Maximum length that SQL stores of a message. */
const MAX_LINE = 16 * 1024;
/** Leaves room for the suffix "… (123 more)". */
const MAX_MESSAGE = MAX_LINE - 32;
const MAX_SENTENCE = 1000;
const BATCH_BYTES = 64 * 1024;
const TAIL_LINES = 200;
/** Lines of an attempt that are compared with those of earlier ones: each comparison reads the feed. */
const MAX_COMPARED = 1000;
const PROGRESS_MS = 500;
const PROGRESS_STEP = 0.01;

export class LogWriter {
  readonly #options: LogWriterOptions;
  #lines: LogLine[] = [];
  #bytes = 0;
  #remaining: number;
  #tail: LogLine[] = [];
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #progress: Progress | undefined;
  #sentFraction = -1;
  #sentAt = Number.NEGATIVE_INFINITY;
  #progressTimer: NodeJS.Timeout | undefined;
  #closed = false;
  #replayed: Map<string, number> | undefined;
  #compared = 0;

  constructor(options: LogWriterOptions) {
    this.#options = options;
    this.#remaining = options.maxBytes ?? 50 * 1024 * 1024;
  }

  /** `replay`: an earlier attempt may have logged the same line; the database drops it then. */
  write(level: LogLine["level"], message: string, step?: string, data?: unknown, replay = false): void {
    if (this.#closed) return;
    const line: LogLine = {
      level,
      message: toStorableText(this.#options.redactor.redact(toText(message)), MAX_MESSAGE),
      at: performance.now(),
    };
    if (step !== undefined) line.step = step;
    let size = line.message.length + 64;
    if (data !== undefined) {
      line.data = this.#dataOf(data);
      size += JSON.stringify(line.data)?.length ?? 0;
    }
    if (replay && this.#compared < MAX_COMPARED) line.replayed = this.#countEqual(line);
    if (this.#remaining < size) {
      this.#dropped += 1;
      if (this.#tail.push(line) > TAIL_LINES) this.#tail.shift();
      return;
    }
    this.#remaining -= size;
    this.#add(line, size);
  }

  get redactor(): Redactor {
    return this.#options.redactor;
  }

  /** Names cannot be redacted: two different names could become equal. */
  rejectSecretInName(name: string, owner: string): void {
    if (!this.redactor.containsSecret(name)) return;
    throw new InvalidInput(`The name of ${owner} contains a secret of this job`, {
      field: "name",
      remedy: "Remove it from the name: names are stored and displayed",
    });
  }

  /** Results are not redacted, because a later attempt must read the same value. */
  warnOfSecretInResult(step: string, json: string): void {
    if (!this.redactor.containsSecret(json)) return;
    this.write("warning", `The result of step "${step}" contains a secret of this job and is stored unredacted`, step);
  }

  /** Sends progress when it changed by 1% or 500 ms after the last one. close() sends the last value in any case. */
  progress(progress: Progress): void {
    const isInvalid = [progress.fraction, progress.done, progress.total].some(Number.isNaN);
    if (this.#closed || isInvalid) return;
    const { sentence } = progress;
    this.#progress =
      sentence === undefined
        ? progress
        : { ...progress, sentence: toStorableText(this.redactor.redact(String(sentence)), MAX_SENTENCE) };
    const fraction = fractionOf(progress);
    const waitMs = this.#sentAt + PROGRESS_MS - performance.now();
    if (Math.abs(fraction - this.#sentFraction) >= PROGRESS_STEP || waitMs <= 0) {
      this.#sendProgress();
    } else {
      this.#progressTimer ??= setTimeout(() => this.#sendProgress(), waitMs);
    }
  }

  /** Sends all lines to the port. They are stored when Port.flush() resolves. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#lines.length === 0) return;
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    this.#options.port.log(lines);
  }

  /** Sends the last lines that exceeded the log size, and the latest progress. */
  close(): void {
    if (this.#closed) return;
    if (this.#dropped > this.#tail.length) {
      const message = `… ${formatPlural(this.#dropped - this.#tail.length, "line")} omitted: the job's log is full`;
      this.#lines.push({ level: "warning", message, at: performance.now() });
    }
    this.#lines.push(...this.#tail);
    this.#tail = [];
    if (this.#progressTimer) this.#sendProgress();
    this.flush();
    this.#closed = true;
  }

  /** How often this line was written in this attempt, with this time. */
  #countEqual({ level, message, data }: LogLine): number {
    const key = JSON.stringify([level, message, data]);
    this.#compared += 1;
    this.#replayed ??= new Map();
    const count = (this.#replayed.get(key) ?? 0) + 1;
    this.#replayed.set(key, count);
    return count;
  }

  #add(line: LogLine, size: number): void {
    this.#lines.push(line);
    this.#bytes += size;
    if (this.#options.lingerMs === 0 || this.#bytes >= BATCH_BYTES) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), this.#options.lingerMs);
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

  /** Logging never fails a job: data that cannot be stored is replaced by its description. */
  #dataOf(data: unknown): unknown {
    try {
      return this.#storableData(data);
    } catch {
      return { unreadable: toStorableText(this.redactor.redact(toText(data)), 200) };
    }
  }

  #storableData(data: unknown): unknown {
    const json = JSON.stringify(data, (_, value) => (typeof value === "bigint" ? String(value) : value));
    if (json === undefined) return undefined;
    if (json.length > MAX_LINE) return { dropped: `larger than ${MAX_LINE} bytes`, bytes: json.length };
    // Redacted value by value: a mask inside the JSON text could break it, and escapes could hide a secret.
    const redacted = (text: string) => toStorableText(this.#options.redactor.redact(text), MAX_LINE);
    return JSON.parse(json, (_, value) => {
      if (typeof value === "string") return redacted(value);
      if (typeof value === "number") return redacted(String(value)) === String(value) ? value : redacted(String(value));
      if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
      return Object.fromEntries(Object.entries(value).map(([key, child]) => [redacted(key), child]));
    });
  }
}

function fractionOf({ fraction, done, total }: Progress): number {
  return fraction ?? (total ? (done ?? 0) / total : 0);
}

/** Conversion runs code of the value, which can throw, and recursion, which can exceed the stack. */
function toText(value: unknown): string {
  try {
    return String(value);
  } catch {
    return typeof value;
  }
}
