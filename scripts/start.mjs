// npm start: the whole product on this machine, from a fresh clone, with one command.
import { pathToFileURL } from "node:url";
import { ensure, inRoot } from "./ensure.mjs";

await ensure();
// The program runs in this process, so that a signal reaches it without a go-between.
const { dev } = await import(pathToFileURL(inRoot("dist/cli/dev.js")).href);
await dev();
