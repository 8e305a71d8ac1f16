// Texts about jobs that several commands print: state colours, wait reasons, failures and log lines.
import { escapeControls } from "../../text/escape.ts";
import { formatTime } from "../../text/format.ts";
import type { Colour, Screen } from "./screen.ts";

export const stateColours: Record<string, Colour | undefined> = {
  running: "blue",
  completed: "green",
  failed: "red",
  cancelled: "yellow",
  paused: "yellow",
};

/** What a queued job waits for. A job that could start now waits for a worker. */
export function formatWaitReason(
  { waitingFor, awaitedEvent }: { waitingFor: string | null; awaitedEvent?: string | null },
  worker = "a worker",
): string {
  // An earlier server does not name the event.
  if (awaitedEvent) return `event ${awaitedEvent}`;
  return waitingFor === null || waitingFor === "machine" ? worker : waitingFor === "key" ? "its key" : waitingFor;
}

/** The sentence for people if there is one, with the code for programs. */
export function formatFailure(failure: {
  sentence?: string | undefined;
  message?: string | undefined;
  code?: string | undefined;
}): string {
  const text = failure.sentence ?? failure.message ?? "failed";
  return failure.code ? `${text} (${failure.code})` : text;
}

const LEVELS: Record<string, readonly [symbol: string, colour?: Colour]> = {
  info: ["  "],
  success: ["✓ ", "green"],
  warning: ["! ", "yellow"],
  error: ["✗ ", "red"],
};

export function printLogLine(
  screen: Screen,
  { at, level, message }: { at: string; level: string; message: string },
): void {
  const [symbol, colour] = LEVELS[level] ?? LEVELS.info!;
  // Continuation lines are indented, so that a message cannot forge a log line.
  const text = message
    .split(/\r\n|\n/)
    .map(escapeControls)
    .join(`\n${" ".repeat(12)}`);
  screen.print(`${screen.paint(formatTime(at), "dim")}  ${screen.paint(symbol + text, colour)}`);
}
