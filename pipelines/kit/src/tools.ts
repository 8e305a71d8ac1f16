// Finds programs on a PATH and in npm packages. The result is an absolute path, so that a file of an untrusted directory can never
// be started instead.
import fs from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

/** Skips relative entries of the PATH: they would refer to the current directory. */
export async function findTool(name: string, searchPath: string): Promise<string | undefined> {
  for (const directory of searchPath.split(path.delimiter)) {
    if (!path.isAbsolute(directory)) continue;
    const file = path.join(directory, name);
    if (await isProgram(file)) return file;
  }
  return undefined;
}

/** `from`: import.meta.url of the module that needs the package. Unlike require.resolve, it ignores the package's `exports`. */
export async function packageDirectory(name: string, from: string): Promise<string | undefined> {
  for (const modules of createRequire(from).resolve.paths(name) ?? []) {
    const home = path.join(modules, name);
    const found = await fs.stat(path.join(home, "package.json")).catch(() => undefined);
    if (found) return home;
  }
  return undefined;
}

export async function isProgram(file: string): Promise<boolean> {
  try {
    await fs.access(file, fs.constants.X_OK);
    return (await fs.stat(file)).isFile();
  } catch {
    return false;
  }
}
