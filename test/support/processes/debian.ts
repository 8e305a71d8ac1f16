// Installs Debian packages for tests of real programs. Test files run in parallel and apt-get does not wait for another
// apt-get, so a lock serializes the calls.
import { execFileSync } from "node:child_process";
import os from "node:os";
import path from "node:path";

const LOCK = path.join(os.tmpdir(), "stillwake-apt.lock");

export function install(...packages: string[]): void {
  apt(["install", "-y", "--no-install-recommends", ...packages]);
}

/** Runs apt-get with these arguments, in `cwd`. Throws on failure. */
export function apt(args: readonly string[], cwd = os.tmpdir()): void {
  // Run level 1 prevents packages from starting servers.
  const env = { ...process.env, RUNLEVEL: "1", DEBIAN_FRONTEND: "noninteractive" };
  const options = { cwd, env, stdio: "ignore", timeout: 300_000 } as const;
  for (const call of [["update"], args]) {
    execFileSync("flock", [LOCK, "apt-get", "-o", "DPkg::Lock::Timeout=240", ...call], options);
  }
}
