// Debian's packages, for tests of real programs. Test files run side by side and apt-get does not wait for itself, so all who want something wait in one line.
import { execFileSync } from "node:child_process";
import os from "node:os";
import path from "node:path";

const LOCK = path.join(os.tmpdir(), "stillwake-apt.lock");

export function install(...packages: string[]): void {
  apt(["install", "-y", "--no-install-recommends", ...packages]);
}

/** Runs apt-get with these words, in `cwd`. Throws when it cannot. */
export function apt(words: readonly string[], cwd = os.tmpdir()): void {
  // Run level 1 keeps packages from starting servers of their own.
  const env = { ...process.env, RUNLEVEL: "1", DEBIAN_FRONTEND: "noninteractive" };
  const options = { cwd, env, stdio: "ignore", timeout: 300_000 } as const;
  for (const call of [["update"], words]) {
    execFileSync("flock", [LOCK, "apt-get", "-o", "DPkg::Lock::Timeout=240", ...call], options);
  }
}
