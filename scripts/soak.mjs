// npm run soak -- --minutes 30 --seed 7: mixed faults for a while, then an audit (test/soak). Prints the seed and figures.
// --only "database crash,worker killed" restricts the faults.
import { spawn } from "node:child_process";
import { parseArgs } from "node:util";
import { ensure, inRoot, root } from "./ensure.mjs";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "30" },
    seed: { type: "string" },
    only: { type: "string" },
  },
});
if (!(Number(values.minutes) > 0)) throw new Error("--minutes must be a number greater than 0");
await ensure();
const env = { ...process.env, STILLWAKE_SOAK_MINUTES: values.minutes };
if (values.seed !== undefined) env.STILLWAKE_SOAK_SEED = values.seed;
if (values.only !== undefined) env.STILLWAKE_SOAK_ONLY = values.only;
const soak = spawn(process.execPath, [inRoot("node_modules/vitest/vitest.mjs"), "run", "test/soak"], {
  cwd: root,
  env,
  stdio: "inherit",
});
// Vitest stops the processes of a run, so this process forwards signals and waits.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => soak.kill(signal));
soak.on("exit", (code) => process.exit(code ?? 1));
