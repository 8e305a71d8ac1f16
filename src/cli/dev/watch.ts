// Watches the sources of a project's pipelines for `stillwake dev`: the modules, what they import by relative path, and the
// configuration file. It waits for events of the file system and reads nothing while nothing changes.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

export interface SourceWatch {
  close(): void;
}

interface WatchOptions {
  /** The modules and the configuration file; called again after each event. */
  entries(): Promise<string[]>;
  /** The files whose content has changed. The next call waits until this one has ended. Returns whether `entries` has changed by it. */
  onChange(files: string[]): Promise<boolean>;
}

/** Editors write a file in several steps. */
const SETTLE_MS = 100;
const IMPORT = /(?:\bfrom|\bimport|\bimport\(|\brequire\()\s*["'](\.{1,2}\/[^"'\n?]+)/g;
const EXTENSIONS = [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs"];

/** Resolves when a change that is made from now on is noticed. */
export async function watchSources({ entries, onChange }: WatchOptions): Promise<SourceWatch> {
  let known = readSources(await entries());
  let watchers = new Map<string, fs.FSWatcher>();
  let timer: NodeJS.Timeout | undefined;
  let isChecking = false;
  let isDue = false;
  let isClosed = false;

  const schedule = () => {
    isDue = true;
    if (isChecking || isClosed) return;
    clearTimeout(timer);
    timer = setTimeout(() => void check(), SETTLE_MS);
  };

  const check = async () => {
    isChecking = true;
    isDue = false;
    try {
      // A directory that is missing for a moment, as during a checkout, comes back with another event.
      const found = await entries().then(readSources, () => known);
      const names = new Set([...known.keys(), ...found.keys()]);
      const changed = [...names].filter((file) => known.get(file) !== found.get(file));
      known = found;
      watchDirectories();
      if (changed.length > 0 && !isClosed && (await onChange(changed))) {
        known = new Map([...readSources(await entries()), ...known]);
        watchDirectories();
      }
    } finally {
      isChecking = false;
      if (isDue) schedule();
    }
  };

  /** Directories, not files: editors replace a file by renaming another one. */
  const watchDirectories = () => {
    const wanted = new Set([...known.keys()].map((file) => path.dirname(file)));
    for (const [dir, watcher] of watchers) if (!wanted.has(dir)) watcher.close();
    const kept = [...watchers].filter(([dir]) => wanted.has(dir));
    watchers = new Map(kept);
    for (const dir of wanted) {
      if (watchers.has(dir) || isClosed) continue;
      try {
        const watcher = fs.watch(dir, schedule);
        watcher.on("error", () => watchers.delete(dir));
        watchers.set(dir, watcher);
      } catch {
        // The directory is gone, or the system allows no more watches. Its files are not watched.
      }
    }
  };

  watchDirectories();
  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
      for (const watcher of watchers.values()) watcher.close();
    },
  };
}

/** The entries and what they import by relative path, with a hash of each content. */
function readSources(entries: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  const pending = [...entries];
  for (let file = pending.pop(); file !== undefined; file = pending.pop()) {
    if (found.has(file)) continue;
    let text: string;
    try {
      text = fs.readFileSync(file, "utf8");
    } catch {
      continue;
    }
    found.set(file, createHash("sha256").update(text).digest("base64"));
    for (const [, specifier] of text.matchAll(IMPORT)) {
      const target = resolveImport(path.resolve(path.dirname(file), specifier!));
      if (target) pending.push(target);
    }
  }
  return found;
}

/** TypeScript may name the compiled file, or leave out the extension. */
function resolveImport(base: string): string | undefined {
  const candidates = [
    base,
    base.replace(/\.([cm]?)js$/, ".$1ts"),
    ...EXTENSIONS.map((extension) => `${base}${extension}`),
    ...EXTENSIONS.map((extension) => path.join(base, `index${extension}`)),
  ];
  return candidates.find((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile());
}
