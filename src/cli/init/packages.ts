// The package manager of a project: which one it is, how it runs a script, and the installation.
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { installEnvironment } from "../../config.ts";
import { StillwakeError } from "../../errors.ts";

export type PackageManager = "npm" | "pnpm" | "yarn" | "bun";

const LOCK_FILES: Readonly<Record<string, PackageManager>> = {
  "package-lock.json": "npm",
  "pnpm-lock.yaml": "pnpm",
  "yarn.lock": "yarn",
  "bun.lock": "bun",
  "bun.lockb": "bun",
};
const OUTPUT_CHARS = 4000;

/** By its lock file here or, in a workspace, above; then by package.json; then the one that runs this program; else npm. */
export function detectManager(dir: string, declared: unknown, userAgent: string | undefined): PackageManager {
  const byName = (text: unknown) =>
    Object.values(LOCK_FILES).find((name) => new RegExp(`^${name}[@/]`).test(String(text)));
  return findLockFile(dir) ?? byName(declared) ?? byName(userAgent) ?? "npm";
}

/** Up to the root of the repository. */
function findLockFile(dir: string): PackageManager | undefined {
  const found = Object.keys(LOCK_FILES).find((name) => fs.existsSync(path.join(dir, name)));
  if (found) return LOCK_FILES[found];
  const parent = path.dirname(dir);
  // Only a directory with a package.json is a part of what is above it.
  const isPart = fs.existsSync(path.join(dir, "package.json")) && !fs.existsSync(path.join(dir, ".git"));
  return isPart && parent !== dir && fs.existsSync(path.join(parent, "package.json"))
    ? findLockFile(parent)
    : undefined;
}

/** The command that runs a script of package.json. */
export function runScript(manager: PackageManager, name: string): string {
  // `bun test` is its own test runner.
  const isShort = manager !== "bun" && ["start", "test"].includes(name);
  return isShort ? `${manager} ${name}` : `${manager} run ${name}`;
}

/** Installs the packages of a directory. The output of the package manager is part of the error if it fails. */
export async function install(dir: string, manager: PackageManager): Promise<void> {
  const args = ["install", ...(manager === "npm" ? ["--no-audit", "--no-fund"] : [])];
  const remedy = `Run ${manager} install there yourself`;
  const fail = (problem: string) => new StillwakeError("INSTALL_FAILED", `${problem} in ${dir}`, { remedy });
  const { code, output } = await new Promise<{ code: number | null; output: string }>((resolve, reject) => {
    const child = spawn(manager, args, {
      cwd: dir,
      env: installEnvironment(),
      stdio: ["ignore", "pipe", "pipe"],
      // npm is a script there.
      shell: process.platform === "win32",
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        output = (output + text).slice(-OUTPUT_CHARS);
      });
    }
    child.once("error", (error: { code?: string }) => reject(fail(`${manager} cannot be started: ${error.code}`)));
    child.once("close", (code) => resolve({ code, output }));
  });
  if (code !== 0) throw fail(`${output.trim()}\n${manager} install failed`);
}
