// The files of a stranger's checkout, as far as analysis and the search for secrets look at them: no links, nothing outside, nothing vendored, nothing huge.
import fs from "node:fs/promises";
import path from "node:path";

/** Folders of what others have written or a build has made: findings there are not this repository's to mend. */
export const SKIPPED_FOLDERS = [
  ".git",
  "node_modules",
  "bower_components",
  "vendor",
  "third_party",
  "dist",
  "build",
  "target",
  "site-packages",
  ".venv",
  "__pycache__",
  ".next",
];

/** Beyond these it is data or the work of a tool, and no code that a person wrote. */
export const LARGEST_FILE = 2_000_000;
const MOST_FILES = 200_000;
const LONGEST_LINE = 2_000;

export interface SourceFile {
  /** Seen from the checkout, with "/". */
  path: string;
  file: string;
  bytes: number;
}

/** Regular files in the order of their names, so that two extractions of one commit look at the same ones. */
export async function* sourceFiles(directory: string, signal: AbortSignal): AsyncGenerator<SourceFile> {
  const open = [directory];
  let seen = 0;
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    signal.throwIfAborted();
    const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => []);
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    const below: string[] = [];
    for (const entry of entries) {
      const file = path.join(folder, entry.name);
      // The type is that of the entry itself: a link is neither a folder nor a file here.
      if (entry.isDirectory() && !SKIPPED_FOLDERS.includes(entry.name)) below.push(file);
      if (!entry.isFile()) continue;
      const found = await fs.lstat(file).catch(() => undefined);
      if (!found?.isFile() || found.size === 0 || found.size > LARGEST_FILE) continue;
      seen += 1;
      if (seen > MOST_FILES) return;
      yield { path: posix(path.relative(directory, file)), file, bytes: found.size };
    }
    open.push(...below.reverse());
  }
}

/** The path that a tool has named, seen from the checkout. Undefined: it is not within it. */
export function within(directory: string, named: string): string | undefined {
  if (named === "" || named.includes("\0")) return undefined;
  const relative = path.relative(directory, path.resolve(directory, named));
  const outside = relative === "" || relative === ".." || relative.startsWith(`..${path.sep}`);
  return outside || path.isAbsolute(relative) ? undefined : posix(relative);
}

/** The text of a file within the checkout. Undefined where a link is on the way, or where it is too large to be of interest. */
export async function textOf(directory: string, relative: string): Promise<string | undefined> {
  const file = path.join(directory, relative);
  try {
    if ((await fs.realpath(file)) !== file) return undefined;
    const { size } = await fs.stat(file);
    return size > LARGEST_FILE ? undefined : await fs.readFile(file, "utf8");
  } catch {
    return undefined;
  }
}

/** No person reads a line of this length: a tool has pressed the program into it. */
export function isMinified(line: string): boolean {
  return line.length > LONGEST_LINE;
}

export function isSkipped(relative: string): boolean {
  return relative
    .split("/")
    .slice(0, -1)
    .some((folder) => SKIPPED_FOLDERS.includes(folder));
}

function posix(file: string): string {
  return path.sep === "/" ? file : file.replaceAll(path.sep, "/");
}
