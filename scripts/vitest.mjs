// Runs vitest for test.mjs and matrix.mjs. The tests kill real processes and measure time on a machine that may be busy. Up to MAX_REPEATED files that failed in a
// whole run are run once more, alone. A file that fails again has failed; one that passes is listed at the end with its first failure, because it needs attention.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { inRoot, root } from "./ensure.mjs";

/** More failures than this are not a coincidence. */
const MAX_REPEATED = 3;

const REPORTERS = ["stalled-files", "failed-files"].map((name) => `--reporter=${inRoot(`scripts/${name}.mjs`)}`);
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** Runs the tests with the given arguments of vitest. Returns the exit code and the files that were run again. */
export async function runVitest(args, { program = process.execPath, env = {}, repeat = true } = {}) {
  const runFiles = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-tests-"));
  const failedFiles = path.join(runFiles, "failed.json");
  const settings = { ...process.env, ...env, STILLWAKE_FAILED_FILES: failedFiles, STILLWAKE_TEST_PROCESSES: runFiles };
  const run = (more) => spawnVitest(program, ["run", ...REPORTERS, ...more], settings);
  let status = await run(args);
  const failures = status === 1 && repeat ? readFailures(failedFiles) : {};
  const failed = Object.keys(failures);
  const repeated = failed.length <= MAX_REPEATED && !failed.includes("") ? failed : [];
  if (repeated.length > 0) {
    console.error(`\nRunning again, alone: ${repeated.join(", ")}\n`);
    status = await run(["--reporter=default", "--maxWorkers=1", ...repeated]);
    if (status === 0) console.error("\nFailed beside other tests and passed alone:");
  }
  // Printed last, where readers of a long log look first.
  for (const [file, errors] of Object.entries(failures)) console.error(`\n${[file, ...errors].join("\n")}`);
  fs.rmSync(runFiles, { recursive: true, force: true });
  return { status, repeated };
}

function spawnVitest(program, args, env) {
  return new Promise((resolve) => {
    const vitest = spawn(program, [inRoot("node_modules/vitest/vitest.mjs"), ...args], {
      cwd: root,
      env,
      stdio: "inherit",
    });
    // Vitest stops the servers of a run, so this process forwards signals and waits.
    const forward = (signal) => vitest.kill(signal);
    for (const signal of SIGNALS) process.on(signal, forward);
    vitest.on("exit", (code, signal) => {
      for (const one of SIGNALS) process.off(one, forward);
      resolve(signal ? 130 : code);
    });
  });
}

/** Errors by file; those that belong to no file are under "". */
function readFailures(file) {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch {
    return {};
  }
}
