// The pipeline of pipelines/noop.mjs in runner processes, one per slot.
import { fileURLToPath } from "node:url";
import { createWorker } from "../../dist/worker/index.js";
import { ISOLATION_SLOTS } from "./index.mjs";

export { install, judge, producer } from "./stillwake-none.mjs";

const pipelines = fileURLToPath(new URL("../pipelines/noop.mjs", import.meta.url));

export async function worker(url) {
  const worker = createWorker({ url, pipelines, slots: ISOLATION_SLOTS, isolation: "process" });
  await worker.start();
  return worker;
}
