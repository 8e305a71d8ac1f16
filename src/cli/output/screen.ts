// Where a command writes to: data to the standard output, talk to the standard error output. Colours and a redrawn last line only for people.
import fs from "node:fs";
import type { Writable } from "node:stream";
import { isatty } from "node:tty";
import { inert, inertJson } from "./escape.ts";

export type Colour = "green" | "red" | "yellow" | "blue" | "dim" | "bold";

const codes: Record<Colour, readonly [on: number, off: number]> = {
  green: [32, 39],
  red: [31, 39],
  yellow: [33, 39],
  blue: [34, 39],
  dim: [2, 22],
  bold: [1, 22],
};

export interface ScreenOptions {
  out?: Writable & { isTTY?: boolean; columns?: number };
  talk?: Writable;
  plain?: boolean;
  verbose?: boolean;
}

export class Screen {
  readonly #out: NonNullable<ScreenOptions["out"]>;
  readonly #talk: Writable;
  readonly #verbose: boolean;
  /** Somebody looks on: colours, and a last line that is redrawn. */
  readonly live: boolean;
  #status = "";

  constructor(options: ScreenOptions = {}) {
    this.#out = options.out ?? process.stdout;
    this.#talk = options.talk ?? process.stderr;
    this.#verbose = options.verbose ?? false;
    this.live = this.#out.isTTY === true && !options.plain;
  }

  /** Columns there are; undefined when nobody counts them. */
  get columns(): number | undefined {
    return this.#out.isTTY ? this.#out.columns || 80 : undefined;
  }

  /** A line of data. It must be inert already where it holds what strangers wrote. */
  print(line: string): void {
    this.#write(`${line}\n`);
  }

  json(value: unknown, { lines = false }: { lines?: boolean } = {}): void {
    this.print(inertJson(JSON.stringify(value, null, lines ? undefined : 2)));
  }

  /** To people, whatever becomes of the data. */
  say(line: string): void {
    const status = this.#status;
    this.status("");
    this.#talk.write(`${inert(line)}\n`);
    this.status(status);
  }

  /** Only with --verbose. */
  mention(line: string): void {
    if (this.#verbose) this.say(line);
  }

  paint(text: string, ...colours: readonly (Colour | undefined)[]): string {
    if (!this.live) return text;
    return colours.reduce<string>((painted, colour) => {
      if (!colour) return painted;
      const [on, off] = codes[colour];
      return `\x1b[${on}m${painted}\x1b[${off}m`;
    }, text);
  }

  /** The last line, which the next one takes the place of. Nothing where nobody looks on. */
  status(line: string): void {
    if (!this.live || line === this.#status) return;
    this.#out.write(`${this.#status ? "\r\x1b[2K" : ""}${line}`);
    this.#status = line;
  }

  #write(text: string): void {
    const status = this.#status;
    this.#out.write(status ? `\r\x1b[2K${text}${status}` : text);
  }
}

/** For the program as a whole: its terminal may be closed, and whoever reads its output may leave. */
export function surviveLostOutputs(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: { code?: string }) => {
      if (error.code !== "EPIPE" && error.code !== "EIO") throw error;
      // What listens for the end of its terminal has something to end in good order, and does so unseen.
      if (process.listenerCount("SIGHUP") > 0) return;
      // Whoever read our output, such as head, has seen enough.
      process.exit(process.exitCode ?? 0);
    });
  }
  // Node restores the terminal as it ends, and crashes where that terminal has been closed.
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  process.once("exit", () => {
    for (const fd of terminals) if (!isatty(fd)) fs.closeSync(fd);
  });
}
