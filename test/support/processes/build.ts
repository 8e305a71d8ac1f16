// dist/ as it would be published, for tests that start real processes. Nothing happens when it is current.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

export const ROOT = path.resolve(import.meta.dirname, "../../..");

export function buildPackage(): void {
  // A copy on which mutants are tried has what was built before it was made, and nothing to build with.
  if (!fs.existsSync(path.join(ROOT, "scripts/build.mjs"))) return;
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.mjs")], { cwd: ROOT, stdio: "pipe" });
}
