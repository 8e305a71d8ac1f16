// What cdxgen writes to its output when something is wrong: the only sign of it, since its exit code is 0 all the same. It writes names from the
// repository too, so a line is believed only as far as it names a file that can be there.
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { sentenceOf } from "../untrusted.ts";

/** Longer than any path. Expressions may take the square of a line's length, and the names in it are a stranger's. */
const MAX_LINE = 8 * 1024;

const COMPLAINTS = [
  /^Unable to parse (?:the pnpm lock file )?(.+?)(?: in legacy and non-legacy mode\b.*| with utf-8 encoding!| \{.*| [A-Z]\w*Error\b.*|\.)?$/s,
  /^Error while parsing the (?:lock|pyproject) file (.+?)\. \w/s,
  /^Invalid composer\.lock file: (.+)$/s,
];

/** Files below `place` that it could not read, as seen from there, each once. */
export function unreadableIn(output: string, place: string): string[] {
  const found = new Set<string>();
  for (const line of linesOf(output)) {
    // It tries the same file once more in another way.
    if (/ Retrying \.\.\.$/.test(line)) continue;
    for (const complaint of COMPLAINTS) {
      const said = complaint.exec(line)?.[1];
      const file = said === undefined ? "" : path.normalize(said);
      if (!file.startsWith(place + path.sep)) continue;
      const name = sentenceOf(path.relative(place, file), 200);
      if (name) found.add(name);
    }
  }
  return [...found];
}

/** What a crashed program said of itself: the line of its exception, else its first, without the paths of this machine. */
export function crashLine(output: string, scratch: string): string | undefined {
  const lines = linesOf(output).filter((line) => !/^\s*$|^[+|].*[+|]$|SECURE MODE|^\(node:|^\(Use `node/.test(line));
  const line = lines.find((one) => /^(?:<ref \*\d+> )?[A-Z]?\w*Error\b/.test(one)) ?? lines[0];
  return line === undefined ? undefined : sentenceOf(withoutPaths(line.replace(/^<ref \*\d+> /, ""), scratch), 300);
}

/** Those in the scratch directory are seen from there; of the others only the last part is left. */
function withoutPaths(line: string, scratch: string): string {
  return line
    .replaceAll(scratch + path.sep, "")
    .replace(/(?:file:\/\/)?(?<![\w.])(?:\/[^\s/'":()]+)+\/([^\s/'":()]+)/g, "$1");
}

function linesOf(output: string): string[] {
  const lines = output.slice(0, 4 * 2 ** 20).split("\n");
  return lines
    .filter((line) => line.length <= MAX_LINE)
    .map((line) => stripVTControlCharacters(line.replace(/\r$/, "")));
}
