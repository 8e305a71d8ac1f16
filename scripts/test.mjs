// npm test: the static checks and then the tests. With arguments (npm test -- test/claim) only the named tests run.
//
// The tests kill processes and watch clocks, two files beside one another on whatever processors there are. When a few files have failed in a whole run they are
// run once more, alone: what fails then has failed. What passes then is named at the end, with its first failure, because it wants looking after.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { check } from "./check.mjs";
import { ensure, inRoot, root } from "./ensure.mjs";

/** More than these is no accident. */
const MAX_AGAIN = 3;

await ensure();
const chosen = process.argv.slice(2);
const sound = chosen.length > 0 || check();
// In a pipe or a log the closing lines are plain text.
const plain = process.stdout.isTTY || process.env.FORCE_COLOR ? {} : { NO_COLOR: "1" };
const found = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-tests-")), "failed.json");
const env = { ...process.env, ...plain, STILLWAKE_FAILED_FILES: found };

let status = await run(
  chosen.length > 0 ? chosen : ["--reporter=default", `--reporter=${inRoot("scripts/failed-files.mjs")}`],
);
const first = status === 1 && chosen.length === 0 ? failures() : {};
const again = Object.keys(first);
if (again.length > 0 && again.length <= MAX_AGAIN && !again.includes("")) {
  console.error(`\nOnce more, alone: ${again.join(", ")}\n`);
  status = await run(["--maxWorkers=1", ...again]);
  if (status === 0) console.error("\nFailed beside other tests and passed alone:");
}
// At the end, where whoever reads the end of a log finds them.
for (const [file, errors] of Object.entries(first)) console.error(`\n${[file, ...errors].join("\n")}`);
fs.rmSync(path.dirname(found), { recursive: true, force: true });
if (!sound) console.error("The tests ran, but a check before them failed; see above.");
process.exit(status === 0 && sound ? 0 : status || 1);

function run(args) {
  return new Promise((resolve) => {
    const vitest = spawn(process.execPath, [inRoot("node_modules/vitest/vitest.mjs"), "run", ...args], {
      cwd: root,
      env,
      stdio: "inherit",
    });
    // The servers of a run end with vitest, so this process only passes a signal on and waits.
    const pass = (signal) => vitest.kill(signal);
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, pass);
    vitest.on("exit", (code, signal) => {
      for (const one of ["SIGINT", "SIGTERM", "SIGHUP"]) process.off(one, pass);
      resolve(signal ? 130 : code);
    });
  });
}

/** What went wrong in which file; under "" what went wrong in none of them. */
function failures() {
  try {
    return JSON.parse(fs.readFileSync(found, "utf8"));
  } catch {
    return {};
  }
}
