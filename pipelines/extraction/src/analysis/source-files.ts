// Walks the files of an untrusted checkout for static analysis and secret scans: no links, no large files, no vendored code.
// Skipped files are counted and logged.
import fs from "node:fs/promises";
import path from "node:path";
import type { StepHandle } from "stillwake/worker";

/** Vendored and built code: findings there are not for this repository to fix. */
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
/** A secret in built or vendored code is as valid as one in source code. */
export const SKIPPED_FOR_SECRETS = [".git", "node_modules"];

/** Larger files and longer lines are data or generated code. */
export const MAX_FILE_BYTES = 2_000_000;
const MAX_FILES = 200_000;
const MAX_LINE = 2_000;

export interface SourceFile {
  /** Relative to the checkout, with "/". */
  path: string;
  file: string;
  bytes: number;
}

/** Counts of files that were not searched. */
export interface Skipped {
  large: number;
  unread: number;
  beyond: boolean;
}

interface WalkOptions {
  signal: AbortSignal;
  skip: readonly string[];
  /** Filter by file name. Default: every file. */
  wanted?: (name: string) => boolean;
  skipped: Skipped;
}

/** Regular files sorted by name, so that every extraction of a commit reads the same ones. */
export async function* sourceFiles(directory: string, options: WalkOptions): AsyncGenerator<SourceFile> {
  const { signal, skip, wanted = () => true, skipped } = options;
  const open = [directory];
  let seen = 0;
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    signal.throwIfAborted();
    const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => undefined);
    if (!entries) skipped.unread += 1;
    entries?.sort((a, b) => (a.name < b.name ? -1 : 1));
    const below: string[] = [];
    for (const entry of entries ?? []) {
      const file = path.join(folder, entry.name);
      // The type of the entry itself: a link is neither a folder nor a file.
      if (entry.isDirectory() && !skip.includes(entry.name)) below.push(file);
      if (!entry.isFile() || !wanted(entry.name)) continue;
      // A name that is not UTF-8 was changed by readdir, so lstat does not find it.
      const found = await fs.lstat(file).catch(() => undefined);
      if (!found) skipped.unread += 1;
      if (!found?.isFile() || found.size === 0) continue;
      if (found.size > MAX_FILE_BYTES) {
        skipped.large += 1;
        continue;
      }
      seen += 1;
      if (seen > MAX_FILES) {
        skipped.beyond = true;
        return;
      }
      yield { path: toPosix(path.relative(directory, file)), file, bytes: found.size };
    }
    open.push(...below.reverse());
  }
}

export function noneSkipped(): Skipped {
  return { large: 0, unread: 0, beyond: false };
}

export function logSkipped({ log }: Pick<StepHandle, "log">, { large, unread, beyond }: Skipped): void {
  const were = (count: number, singular: string, plural: string) =>
    `${count} ${count === 1 ? `${singular} was` : `${plural} were`}`;
  if (large > 0) log.info(`${were(large, "file over 2 MB", "files over 2 MB")} not searched`);
  if (unread > 0)
    log.info(`${were(unread, "file or folder", "files and folders")} not searched: the name cannot be read`);
  if (beyond) log.warning(`Only the first ${MAX_FILES.toLocaleString("en-US")} files were searched`);
}

/** For programs that walk the folders themselves and skip large files silently. */
export async function logLargeFiles(
  step: Pick<StepHandle, "log" | "signal">,
  directory: string,
  skip: readonly string[],
): Promise<void> {
  const skipped = noneSkipped();
  for await (const _ of sourceFiles(directory, { signal: step.signal, skip, skipped }));
  logSkipped(step, { ...noneSkipped(), large: skipped.large });
}

/** A path that a tool reported, relative to the checkout. Undefined if it is outside. */
export function pathWithin(directory: string, reported: string): string | undefined {
  if (reported === "" || reported.includes("\0")) return undefined;
  const relative = path.relative(directory, path.resolve(directory, reported));
  const outside = relative === "" || relative === ".." || relative.startsWith(`..${path.sep}`);
  return outside || path.isAbsolute(relative) ? undefined : toPosix(relative);
}

/** The text of a file within the checkout. Undefined if its path contains a link, or if it is too large. */
export async function readText(directory: string, relative: string): Promise<string | undefined> {
  const file = path.join(directory, relative);
  try {
    if ((await fs.realpath(file)) !== file) return undefined;
    const { size } = await fs.stat(file);
    return size > MAX_FILE_BYTES ? undefined : await fs.readFile(file, "utf8");
  } catch {
    return undefined;
  }
}

export function isMinified(line: string): boolean {
  return line.length > MAX_LINE;
}

/** Minified lines are half of the file or more. A single one, such as an embedded image, does not count. */
export async function isMinifiedFile({ file, bytes }: SourceFile): Promise<boolean> {
  const content = await fs.readFile(file).catch(() => undefined);
  let long = 0;
  for (let from = 0, to = 0; content && from < content.length; from = to + 1) {
    to = content.indexOf("\n", from);
    if (to < 0) to = content.length;
    if (to - from > MAX_LINE && isMinified(content.toString("utf8", from, to))) long += to - from;
  }
  return long * 2 >= bytes;
}

export function isSkipped(relative: string, folders: readonly string[]): boolean {
  return relative
    .split("/")
    .slice(0, -1)
    .some((folder) => folders.includes(folder));
}

function toPosix(file: string): string {
  return path.sep === "/" ? file : file.replaceAll(path.sep, "/");
}
