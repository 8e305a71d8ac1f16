// promtool, which reads metrics as Prometheus does: out of the Debian package, without installing it, so that no server is started. Where this user may
// not fetch packages the test says why it is skipped. STILLWAKE_TEST_PROMTOOL names another one.
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { apt } from "./debian.ts";

/** Kept from one run to the next: it is large. */
const DIR = path.join(os.tmpdir(), "stillwake-promtool");

/** Its path, or the reason why there is none. */
export function findPromtool(): { program: string } | string {
  const { STILLWAKE_TEST_PROMTOOL: given } = process.env;
  const places = given ? [given] : ["/usr/bin/promtool", path.join(DIR, "usr/bin/promtool")];
  const program = places.find((place) => fs.existsSync(place));
  if (program) return { program };
  if (given) return `there is no ${given}`;
  if (process.getuid?.() !== 0) return "promtool is not installed, and only root may fetch packages";
  const fetched = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-deb-"));
  try {
    apt(["download", "prometheus"], fetched);
    const [name] = fs.readdirSync(fetched).filter((one) => one.endsWith(".deb"));
    execFileSync("dpkg", ["-x", name!, DIR], { cwd: fetched, stdio: "ignore", timeout: 120_000 });
    return { program: places[1]! };
  } catch (error) {
    return `promtool is not installed, and apt-get could not fetch it: ${(error as Error).message}`;
  } finally {
    fs.rmSync(fetched, { recursive: true, force: true });
  }
}

/** What it has against these metrics. */
export function checkMetrics(program: string, metrics: string): { code: number | null; said: string } {
  const { status, stdout, stderr } = spawnSync(program, ["check", "metrics"], { input: metrics, encoding: "utf8" });
  return { code: status, said: `${stdout}${stderr}`.trim() };
}
