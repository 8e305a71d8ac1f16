// npm run bench: the comparison with the peers. bench/README.md says what it measures and how.
import { spawn } from "node:child_process";
import { installPeers } from "../bench/install.mjs";
import { ensure, inRoot, root } from "./ensure.mjs";

await ensure();
const node = installPeers();
const bench = spawn(node, [inRoot("bench/run.mjs"), ...process.argv.slice(2)], { cwd: root, stdio: "inherit" });
// The bench ends its servers, so this process only passes a signal on and waits.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => bench.kill(signal));
bench.on("exit", (status) => process.exit(status ?? 1));
