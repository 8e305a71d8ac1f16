// npm test: the static checks, then all tests. npm test -- test/claim: only the named files, without the checks.
// npm run test:quick: the checks and the tests that start no processes and no browser. npm run test:long: the large forms of the tests that have one.
//
// The tests kill real processes and measure time on a machine that may be busy. Up to MAX_REPEATED files that failed in a whole run are run once more, alone. A file that
// fails again has failed; one that passes is listed at the end with its first failure, because it needs attention.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { check } from "./check.mjs";
import { ensure, inRoot, root } from "./ensure.mjs";

/** More failures than this are not a coincidence. */
const MAX_REPEATED = 3;

/** The folders of test:quick: everything in one process, on a real Postgres. */
const QUICK = [
  ...["enqueue", "client", "refusals", "reader", "transaction"].map((name) => `test/enqueue/${name}.test.ts`),
  ...["claim", "lease", "attempts", "recovery", "worker-calls"].map((name) => `test/claim/${name}.test.ts`),
  ...["keys", "lanes", "breakers", "children", "events", "schedules"].map((name) => `test/flow/${name}.test.ts`),
  ...["steps", "failures", "checkpoint-codec"].map((name) => `test/attempt/${name}.test.ts`),
  ...["live/feed", "live/view", "server/server", "server/access", "db/prune"].map((name) => `test/${name}.test.ts`),
  ...["orchestrator/plan", "orchestrator/prices", "package/boundaries"].map((name) => `test/${name}.test.ts`),
  "test/web/",
];

const [mode] = process.argv.slice(2).filter((arg) => arg === "--quick" || arg === "--long");
const chosen = process.argv.slice(2).filter((arg) => arg !== mode);
if (mode === "--quick") chosen.push(...QUICK);
if (mode === "--long" && chosen.length === 0) chosen.push(...longFiles());

await ensure();
const whole = chosen.length === 0;
const checked = whole || mode === "--quick" ? check() : true;
const runFiles = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-tests-"));
const failedFiles = path.join(runFiles, "failed.json");
const env = {
  ...process.env,
  // In a pipe or a log file the summary is plain text.
  ...(process.stdout.isTTY || process.env.FORCE_COLOR ? {} : { NO_COLOR: "1" }),
  ...(mode === "--long" && { STILLWAKE_FULL: "1" }),
  STILLWAKE_FAILED_FILES: failedFiles,
  STILLWAKE_TEST_PROCESSES: runFiles,
};
const reporters = ["default", inRoot("scripts/stalled-files.mjs"), inRoot("scripts/failed-files.mjs")].map(
  (reporter) => `--reporter=${reporter}`,
);

let status = await run([...(mode === "--long" ? [] : reporters), ...chosen]);
const failures = status === 1 && whole ? readFailures() : {};
const repeated = Object.keys(failures);
if (repeated.length > 0 && repeated.length <= MAX_REPEATED && !repeated.includes("")) {
  console.error(`\nRunning again, alone: ${repeated.join(", ")}\n`);
  status = await run([...reporters, "--maxWorkers=1", ...repeated]);
  if (status === 0) console.error("\nFailed beside other tests and passed alone:");
}
// Printed last, where readers of a long log look first.
for (const [file, errors] of Object.entries(failures)) console.error(`\n${[file, ...errors].join("\n")}`);
fs.rmSync(runFiles, { recursive: true, force: true });
if (!checked) console.error("The tests ran, but a static check failed; see above.");
process.exit(status === 0 && checked ? 0 : status || 1);

function run(args) {
  return new Promise((resolve) => {
    const vitest = spawn(process.execPath, [inRoot("node_modules/vitest/vitest.mjs"), "run", ...args], {
      cwd: root,
      env,
      stdio: "inherit",
    });
    // Vitest stops the servers of a run, so this process forwards signals and waits.
    const forward = (signal) => vitest.kill(signal);
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, forward);
    vitest.on("exit", (code, signal) => {
      for (const one of ["SIGINT", "SIGTERM", "SIGHUP"]) process.off(one, forward);
      resolve(signal ? 130 : code);
    });
  });
}

/** Errors by file; those that belong to no file are under "". */
function readFailures() {
  try {
    return JSON.parse(fs.readFileSync(failedFiles, "utf8"));
  } catch {
    return {};
  }
}

/** The test files that have a long form: they read FULL. */
function longFiles() {
  const folders = ["test", ...fs.readdirSync(inRoot("pipelines")).map((name) => `pipelines/${name}/test`)];
  return folders
    .filter((folder) => fs.existsSync(inRoot(folder)))
    .flatMap((folder) =>
      fs
        .readdirSync(inRoot(folder), { recursive: true, encoding: "utf8" })
        .map((name) => `${folder}/${name}`)
        .filter((name) => name.endsWith(".test.ts") && /\bFULL\b/.test(fs.readFileSync(inRoot(name), "utf8"))),
    );
}
