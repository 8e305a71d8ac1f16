// Stillwake with its worker: jobs are fenced by epoch and lease, and ended jobs are kept. Jobs run in the worker process.
import { createWorker, implement } from "../../dist/worker/index.js";
import { bench } from "./stillwake-verbs.mjs";

export { install, judge, producer } from "./stillwake-verbs.mjs";

const SLOTS = 1000;

export async function worker(url, handle) {
  const pipelines = [implement(bench, (_job, input) => handle(input))];
  const worker = createWorker({ url, pipelines, slots: SLOTS, isolation: "none" });
  await worker.start();
  return worker;
}
