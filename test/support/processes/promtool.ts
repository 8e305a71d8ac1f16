// Finds promtool, which checks metrics as Prometheus parses them: unpacked from the Debian package without installing
// it, so that no server is started. STILLWAKE_TEST_PROMTOOL is the path of another one.
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { apt } from "./debian.ts";

/** Kept between runs, because it is large. */
const DIR = path.join(os.tmpdir(), "stillwake-promtool");

/** Its path, or the reason why it is not available. */
export function findPromtool(): { program: string } | string {
  const { STILLWAKE_TEST_PROMTOOL: configured } = process.env;
  const candidates = configured ? [configured] : ["/usr/bin/promtool", path.join(DIR, "usr/bin/promtool")];
  const program = candidates.find((file) => fs.existsSync(file));
  if (program) return { program };
  if (configured) return `${configured} does not exist`;
  if (process.getuid?.() !== 0) return "promtool is not installed, and only root may fetch packages";
  const fetched = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-deb-"));
  try {
    apt(["download", "prometheus"], fetched);
    const [name] = fs.readdirSync(fetched).filter((one) => one.endsWith(".deb"));
    execFileSync("dpkg", ["-x", name!, DIR], { cwd: fetched, stdio: "ignore", timeout: 120_000 });
    return { program: candidates[1]! };
  } catch (error) {
    return `promtool is not installed, and apt-get could not fetch it: ${(error as Error).message}`;
  } finally {
    fs.rmSync(fetched, { recursive: true, force: true });
  }
}

/** Runs `promtool check metrics`. */
export function checkMetrics(program: string, metrics: string): { code: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(program, ["check", "metrics"], { input: metrics, encoding: "utf8" });
  return { code: status, output: `${stdout}${stderr}`.trim() };
}
