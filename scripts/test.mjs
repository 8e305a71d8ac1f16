// npm test: the static checks and then the tests. With arguments (npm test -- test/claim) only the named tests run.
import { spawn } from "node:child_process";
import { check } from "./check.mjs";
import { ensure, inRoot, root } from "./ensure.mjs";

await ensure();
const chosen = process.argv.slice(2);
const sound = chosen.length > 0 || check();

// In a pipe or a log the closing lines are plain text.
const env = process.stdout.isTTY || process.env.FORCE_COLOR ? process.env : { ...process.env, NO_COLOR: "1" };
const vitest = spawn(process.execPath, [inRoot("node_modules/vitest/vitest.mjs"), "run", ...chosen], {
  cwd: root,
  env,
  stdio: "inherit",
});
// The servers of a run end with vitest, so this process only passes a signal on and waits.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => vitest.kill(signal));
vitest.on("exit", (status) => {
  if (!sound) console.error("The tests ran, but a check before them failed; see above.");
  process.exit(status === 0 && sound ? 0 : status || 1);
});
