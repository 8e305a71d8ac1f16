// npm start: the whole product on this machine, from a fresh clone, with one command: the pipelines to look at, and the example systems with their pages.
// `npm start -- --port 5000` passes options on; with `--config` or `--pipelines` it is a project of somebody's own.
import { pathToFileURL } from "node:url";
import { ensure, inRoot } from "./ensure.mjs";

await ensure();
// The program runs in this process, so that a signal reaches it without a go-between.
const own = process.argv.slice(2).some((arg) => /^--(config|pipelines)(=|$)/.test(arg));
process.argv.splice(2, 0, "dev", ...(own ? [] : ["--demo", "--config", inRoot("pipelines/stillwake.config.mjs")]));
await import(pathToFileURL(inRoot("dist/cli/index.js")).href);
