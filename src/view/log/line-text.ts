// Lines as text, to be copied or kept in a file. What a terminal would obey is inert here too: text that was copied is pasted somewhere.
import { plain } from "../plain.ts";
import type { Line } from "../snapshot.ts";
import { clock, span } from "../words.ts";

/** "14:05:09  warning  [cloning] message (4.2 s)"; what follows a line break is moved in, so that it cannot look like a line of its own. */
export function textOf(lines: readonly Line[], moment: (at: string) => string = clock): string {
  return lines.map((line) => `${lineText(line, moment)}\n`).join("");
}

function lineText({ at, level, step, message, tookMs }: Line, moment: (at: string) => string): string {
  const when = at === null ? "" : moment(at);
  const head = `${when.padEnd(8)}  ${level.padEnd(7)}  ${step === null ? "" : `[${plain(step).replaceAll("\n", " ")}] `}`;
  const took = tookMs === null ? "" : ` (${span(tookMs)})`;
  return `${head}${plain(message).replaceAll("\n", `\n${" ".repeat(when.length + 11)}`)}${took}`;
}
