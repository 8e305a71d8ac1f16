// The files of a stranger's checkout, as far as analysis and the search for secrets look at them: no links, nothing outside, nothing huge, and for the former
// nothing vendored. What is passed over is counted and said: "nothing found" is worth no more than what was looked at.
import fs from "node:fs/promises";
import path from "node:path";
import type { StepHandle } from "stillwake/worker";

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
/** A key in built or vendored code opens the same door as one in source code. */
export const SKIPPED_FOR_SECRETS = [".git", "node_modules"];

/** Beyond these it is data or the work of a tool, and no code that a person wrote. */
export const LARGEST_FILE = 2_000_000;
const MAX_FILES = 200_000;
const MAX_LINE = 2_000;

export interface SourceFile {
  /** Seen from the checkout, with "/". */
  path: string;
  file: string;
  bytes: number;
}

/** What was not looked at. */
export interface PassedOver {
  large: number;
  unread: number;
  beyond: boolean;
}

interface Looking {
  signal: AbortSignal;
  skip: readonly string[];
  /** By the name of a file; every file unless said. */
  wanted?: (name: string) => boolean;
  passedOver: PassedOver;
}

/** Regular files in the order of their names, so that two extractions of one commit look at the same ones. */
export async function* sourceFiles(directory: string, looking: Looking): AsyncGenerator<SourceFile> {
  const { signal, skip, wanted = () => true, passedOver } = looking;
  const open = [directory];
  let seen = 0;
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    signal.throwIfAborted();
    const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => undefined);
    if (!entries) passedOver.unread += 1;
    entries?.sort((a, b) => (a.name < b.name ? -1 : 1));
    const below: string[] = [];
    for (const entry of entries ?? []) {
      const file = path.join(folder, entry.name);
      // The type is that of the entry itself: a link is neither a folder nor a file here.
      if (entry.isDirectory() && !skip.includes(entry.name)) below.push(file);
      if (!entry.isFile() || !wanted(entry.name)) continue;
      // A name that is no UTF-8 is another one here, and nothing is found by it.
      const found = await fs.lstat(file).catch(() => undefined);
      if (!found) passedOver.unread += 1;
      if (!found?.isFile() || found.size === 0) continue;
      if (found.size > LARGEST_FILE) {
        passedOver.large += 1;
        continue;
      }
      seen += 1;
      if (seen > MAX_FILES) {
        passedOver.beyond = true;
        return;
      }
      yield { path: posix(path.relative(directory, file)), file, bytes: found.size };
    }
    open.push(...below.reverse());
  }
}

export function nothingPassedOver(): PassedOver {
  return { large: 0, unread: 0, beyond: false };
}

export function sayPassedOver({ log }: Pick<StepHandle, "log">, { large, unread, beyond }: PassedOver): void {
  const were = (count: number, one: string, many: string) => `${count} ${count === 1 ? `${one} was` : `${many} were`}`;
  if (large > 0) log.info(`${were(large, "file over 2 MB", "files over 2 MB")} not searched`);
  if (unread > 0)
    log.info(`${were(unread, "file or folder", "files and folders")} not searched: the name cannot be read`);
  if (beyond) log.warn(`Only the first ${MAX_FILES.toLocaleString("en-US")} files were searched`);
}

/** For a program that walks the folders itself, and passes over large files without a word. */
export async function sayLargeFiles(
  step: Pick<StepHandle, "log" | "signal">,
  directory: string,
  skip: readonly string[],
): Promise<void> {
  const passedOver = nothingPassedOver();
  for await (const _ of sourceFiles(directory, { signal: step.signal, skip, passedOver }));
  sayPassedOver(step, { ...nothingPassedOver(), large: passedOver.large });
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
  return line.length > MAX_LINE;
}

/** Lines of that length are half of it or more. One of them alone, such as a picture in the form of text, makes no program of a tool. */
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

function posix(file: string): string {
  return path.sep === "/" ? file : file.replaceAll(path.sep, "/");
}
