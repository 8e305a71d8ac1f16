// A line of a job for people.
import { inert } from "./escape.ts";
import { clock } from "./moments.ts";
import type { Colour, Screen } from "./screen.ts";

const marks: Record<string, readonly [mark: string, colour?: Colour]> = {
  info: ["  "],
  success: ["✓ ", "green"],
  warning: ["! ", "yellow"],
  error: ["✗ ", "red"],
};

export function printLine(
  screen: Screen,
  { at, level, message }: { at: string; level: string; message: string },
): void {
  const [mark, colour] = marks[level] ?? marks.info!;
  // What follows a line break is moved in, so that it cannot look like a line of its own.
  const text = message
    .split(/\r\n|\n/)
    .map(inert)
    .join(`\n${" ".repeat(12)}`);
  screen.print(`${screen.paint(clock(at), "dim")}  ${screen.paint(mark + text, colour)}`);
}
