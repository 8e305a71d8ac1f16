// Where the programs of an extraction are: those an operator may have installed, looked up on a path, and those that come with this package.
// Every step is given an absolute path, so that nothing in a stranger's repository can stand in for a tool.
import fs from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

/** Relative entries of the path are passed over: they would be looked for in the directory of the moment, which may be a checkout. */
export async function findTool(name: string, searchPath: string): Promise<string | undefined> {
  for (const directory of searchPath.split(path.delimiter)) {
    if (!path.isAbsolute(directory)) continue;
    const file = path.join(directory, name);
    if (await isProgram(file)) return file;
  }
  return undefined;
}

/** What comes with the package: the file that node runs, or for ast-grep the program itself. */
const PACKAGED = {
  cdxgen: { package: "@cyclonedx/cdxgen", program: "cdxgen" },
  secretlint: { package: "secretlint", program: "secretlint" },
  // Its own launcher would start a second process; the program is in a package for each platform.
  "ast-grep": {
    package: `@ast-grep/cli-${platform()}`,
    file: process.platform === "win32" ? "ast-grep.exe" : "ast-grep",
  },
} as const;

/** The absolute path, from src/ and from dist/ alike. Undefined on a platform that the package has nothing for. */
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

/** As Node looks for packages, but for the directory: `exports` of a package may hide its package.json from require.resolve. */
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
