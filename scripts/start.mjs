// npm start: the whole product on this machine, from a fresh clone, with one command. `npm start -- --port 5000` passes options on.
import { pathToFileURL } from "node:url";
import { ensure, inRoot } from "./ensure.mjs";

await ensure();
// The program runs in this process, so that a signal reaches it without a go-between.
process.argv.splice(2, 0, "dev");
await import(pathToFileURL(inRoot("dist/cli/index.js")).href);
