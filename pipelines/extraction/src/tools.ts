// Finds the tools of an extraction that come with this package. Optional ones are found on a PATH: findTool of the kit.
import fs from "node:fs/promises";
import path from "node:path";
import { packageDirectory } from "@stillwake/kit/tools";

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
  const home = await packageDirectory(tool.package, import.meta.url);
  if (!home) return undefined;
  if ("file" in tool) return path.join(home, tool.file);
  const { bin } = JSON.parse(await fs.readFile(path.join(home, "package.json"), "utf8")) as { bin?: unknown };
  const file = typeof bin === "string" ? bin : (bin as Record<string, string> | undefined)?.[tool.program];
  return file && path.join(home, file);
}

function platform(): string {
  const { platform, arch } = process;
  if (platform === "linux") return `linux-${arch}-gnu`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}
