// npm test: the static checks, then all tests. npm test -- test/claim: only the named files, without the checks.
// npm run test:quick: the checks and the tests that start no processes and no browser. npm run test:long: the large forms of the tests that have one.
import fs from "node:fs";
import { check } from "./check.mjs";
import { ensure, inRoot } from "./ensure.mjs";
import { runVitest } from "./vitest.mjs";

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
const env = {
  // In a pipe or a log file the summary is plain text.
  ...(process.stdout.isTTY || process.env.FORCE_COLOR ? {} : { NO_COLOR: "1" }),
  // A file of the long form may be silent for longer than the limit of stalled files.
  ...(mode === "--long" && { STILLWAKE_FULL: "1", STILLWAKE_TEST_STALL_MS: String(60 * 60_000) }),
};
const { status } = await runVitest(["--reporter=default", ...chosen], { env, repeat: whole });
if (!checked) console.error("The tests ran, but a static check failed; see above.");
process.exit(status === 0 && checked ? 0 : status || 1);

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
