// npm start: the whole product on this machine, from a fresh clone, with one command.
import { pathToFileURL } from "node:url";
import { ensure, inRoot } from "./ensure.mjs";

await ensure();
followParent();
// The program runs in this process, so that a signal reaches it without a go-between.
const { dev } = await import(pathToFileURL(inRoot("dist/cli/dev.js")).href);
await dev();

/**
 * npm puts a shell between itself and us, and that shell dies of a SIGTERM without passing it on. When our parent
 * is gone we tell ourselves, so that closing npm closes the servers too.
 */
function followParent() {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    process.kill(process.pid, "SIGTERM");
  }, 500);
  timer.unref();
}
