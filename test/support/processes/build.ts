// Builds dist/ for tests that start real processes; does nothing when it is up to date.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

export const ROOT = path.resolve(import.meta.dirname, "../../..");

export function buildPackage(): void {
  // The copies of the tree used for mutants contain a build but no build script.
  if (!fs.existsSync(path.join(ROOT, "scripts/build.mjs"))) return;
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.mjs")], { cwd: ROOT, stdio: "pipe" });
}
