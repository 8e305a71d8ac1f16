// Finds the tools of an extraction: optional ones on a PATH, and those that come with this package. The result is an absolute
// path, so that a file of an untrusted repository can never be started instead.
import fs from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

/** Skips relative entries of the PATH: they would refer to the current directory, which may be a checkout. */
export async function findTool(name: string, searchPath: string): Promise<string | undefined> {
  for (const directory of searchPath.split(path.delimiter)) {
    if (!path.isAbsolute(directory)) continue;
    const file = path.join(directory, name);
    if (await isProgram(file)) return file;
  }
  return undefined;
}

/** Tools of this package: a script for Node, or for ast-grep the program itself. */
const PACKAGED = {
  cdxgen: { package: "@cyclonedx/cdxgen", program: "cdxgen" },
  secretlint: { package: "secretlint", program: "secretlint" },
  // Its launcher would start a second process; the program is in a separate package per platform.
  "ast-grep": {
    package: `@ast-grep/cli-${platform()}`,
    file: process.platform === "win32" ? "ast-grep.exe" : "ast-grep",
  },
} as const;

/** Undefined on a platform for which the package has no program. */
export async function packagedTool(name: keyof typeof PACKAGED): Promise<string | undefined> {
  const tool = PACKAGED[name];
  const home = await packageDirectory(tool.package);
  if (!home) return undefined;
  if ("file" in tool) return path.join(home, tool.file);
  const { bin } = JSON.parse(await fs.readFile(path.join(home, "package.json"), "utf8")) as { bin?: unknown };
  const file = typeof bin === "string" ? bin : (bin as Record<string, string> | undefined)?.[tool.program];
  return file && path.join(home, file);
}

const require = createRequire(import.meta.url);

/** Like require.resolve, which cannot find a package.json that the package's `exports` hide. */
async function packageDirectory(name: string): Promise<string | undefined> {
  for (const modules of require.resolve.paths(name) ?? []) {
    const home = path.join(modules, name);
    const found = await fs.stat(path.join(home, "package.json")).catch(() => undefined);
    if (found) return home;
  }
  return undefined;
}

function platform(): string {
  const { platform, arch } = process;
  if (platform === "linux") return `linux-${arch}-gnu`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await fs.access(file, fs.constants.X_OK);
    return (await fs.stat(file)).isFile();
  } catch {
    return false;
  }
}
