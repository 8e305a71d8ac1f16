// Runs the command line as a process of the built package, with a clean environment.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { ROOT } from "./build.ts";

export interface Run {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** `until` is for a command that keeps running: it is stopped once it has printed this. `cwd`: its working directory. */
export async function runCli(
  args: string[],
  env: Record<string, string> = {},
  until?: string,
  cwd?: string,
): Promise<Run> {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
    env: { PATH, HOME, ...env },
    ...(cwd !== undefined && { cwd }),
  });
  const run: Run = { code: null, stdout: "", stderr: "" };
  child.stdout.on("data", (data) => {
    run.stdout += data;
    if (until && run.stdout.includes(until)) child.kill("SIGTERM");
  });
  child.stderr.on("data", (data) => (run.stderr += data));
  [run.code] = await once(child, "close");
  return run;
}
