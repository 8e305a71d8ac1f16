// dist/ as it would be published, for tests that start real processes. Nothing happens when it is current.
import { execFileSync } from "node:child_process";
import path from "node:path";

export const ROOT = path.resolve(import.meta.dirname, "../..");

export function buildPackage(): void {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.mjs")], { cwd: ROOT, stdio: "pipe" });
}
