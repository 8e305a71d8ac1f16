// The output of a command: data to stdout, notes and errors to stderr. Colours and a redrawn line only on a terminal.
import fs from "node:fs";
import type { Writable } from "node:stream";
import { isatty } from "node:tty";
import { escapeControls, escapeJson } from "../../text/escape.ts";

export type Colour = "green" | "red" | "yellow" | "blue" | "dim" | "bold";

const CODES: Record<Colour, readonly [on: number, off: number]> = {
  green: [32, 39],
  red: [31, 39],
  yellow: [33, 39],
  blue: [34, 39],
  dim: [2, 22],
  bold: [1, 22],
};

export interface ScreenOptions {
  stdout?: Writable & { isTTY?: boolean; columns?: number };
  stderr?: Writable;
  /** No colours and no redrawn line, even on a terminal. */
  plain?: boolean;
  verbose?: boolean;
}

export class Screen {
  /** For content that is streamed as it is. */
  get stdout(): Writable {
    return this.#stdout;
  }

  readonly #stdout: NonNullable<ScreenOptions["stdout"]>;
  readonly #stderr: Writable;
  readonly #verbose: boolean;
  /** stdout is a terminal: colours, and a last line that is redrawn. */
  readonly interactive: boolean;
  #status = "";

  constructor(options: ScreenOptions = {}) {
    this.#stdout = options.stdout ?? process.stdout;
    this.#stderr = options.stderr ?? process.stderr;
    this.#verbose = options.verbose ?? false;
    this.interactive = this.#stdout.isTTY === true && !options.plain;
  }

  /** The width of the terminal; undefined when stdout is not a terminal. */
  get columns(): number | undefined {
    return this.#stdout.isTTY ? this.#stdout.columns || 80 : undefined;
  }

  /** Prints a line of data. The caller escapes untrusted text. */
  print(line: string): void {
    const status = this.#status;
    this.#stdout.write(status ? `\r\x1b[2K${line}\n${status}` : `${line}\n`);
  }

  json(value: unknown, { lines = false }: { lines?: boolean } = {}): void {
    this.print(escapeJson(JSON.stringify(value, null, lines ? undefined : 2)));
  }

  /** Prints a note or an error, escaped. */
  printStderr(line: string): void {
    const status = this.#status;
    this.status("");
    this.#stderr.write(`${escapeControls(line)}\n`);
    this.status(status);
  }

  /** Prints to stderr with --verbose only. */
  printVerbose(line: string): void {
    if (this.#verbose) this.printStderr(line);
  }

  paint(text: string, ...colours: readonly (Colour | undefined)[]): string {
    if (!this.interactive) return text;
    return colours.reduce<string>((painted, colour) => {
      if (!colour) return painted;
      const [on, off] = CODES[colour];
      return `\x1b[${on}m${painted}\x1b[${off}m`;
    }, text);
  }

  /** Replaces the redrawn last line. Does nothing when stdout is not a terminal. */
  status(line: string): void {
    if (!this.interactive || line === this.#status) return;
    this.#stdout.write(`${this.#status ? "\r\x1b[2K" : ""}${line}`);
    this.#status = line;
  }
}

/** Handles a closed terminal and a closed pipe, for the whole process. */
export function handleOutputErrors(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: { code?: string }) => {
      if (error.code !== "EPIPE" && error.code !== "EIO") throw error;
      // A command that listens for SIGHUP shuts down by itself, without output.
      if (process.listenerCount("SIGHUP") > 0) return;
      // The reader of the pipe, such as head, has exited.
      process.exit(process.exitCode ?? 0);
    });
  }
  // Node resets the terminal on exit, and crashes if that terminal has been closed.
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  process.once("exit", () => {
    for (const fd of terminals) if (!isatty(fd)) fs.closeSync(fd);
  });
}
