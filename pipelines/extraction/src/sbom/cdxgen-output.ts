// Finds errors in cdxgen's output, which is the only sign of them: its exit code is 0 all the same. The output contains names
// from the repository, so a line counts only if it names a file below the scanned folder.
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { shortLine } from "../untrusted.ts";

/** Longer than any path. Bounds the time of the regular expressions on untrusted lines. */
const MAX_LINE = 8 * 1024;

const PARSE_ERRORS = [
  /^Unable to parse (?:the pnpm lock file )?(.+?)(?: in legacy and non-legacy mode\b.*| with utf-8 encoding!| \{.*| [A-Z]\w*Error\b.*|\.)?$/s,
  /^Error while parsing the (?:lock|pyproject) file (.+?)\. \w/s,
  /^Invalid composer\.lock file: (.+)$/s,
];

/** Files that cdxgen could not read, relative to `folder`, each once. */
export function unreadableFiles(output: string, folder: string): string[] {
  const found = new Set<string>();
  for (const line of linesOf(output)) {
    // cdxgen tries the file once more in another way.
    if (/ Retrying \.\.\.$/.test(line)) continue;
    for (const pattern of PARSE_ERRORS) {
      const named = pattern.exec(line)?.[1];
      const file = named === undefined ? "" : path.normalize(named);
      if (!file.startsWith(folder + path.sep)) continue;
      const name = shortLine(path.relative(folder, file), 200);
      if (name) found.add(name);
    }
  }
  return [...found];
}

/** The line with the exception of a crashed program, else its first line, without paths of this machine. */
export function crashLine(output: string, scratch: string): string | undefined {
  const lines = linesOf(output).filter((line) => !/^\s*$|^[+|].*[+|]$|SECURE MODE|^\(node:|^\(Use `node/.test(line));
  const line = lines.find((candidate) => /^(?:<ref \*\d+> )?[A-Z]?\w*Error\b/.test(candidate)) ?? lines[0];
  return line === undefined ? undefined : shortLine(withoutPaths(line.replace(/^<ref \*\d+> /, ""), scratch), 300);
}

/** Paths in the scratch directory become relative; of others only the last part stays. */
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
