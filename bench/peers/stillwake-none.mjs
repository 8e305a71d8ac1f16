// The pipeline of pipelines/noop.mjs inside the worker's own process: what stillwake-process is compared with.
import { createWorker } from "../../dist/worker/index.js";
import { noop } from "../pipelines/noop.mjs";
import { ISOLATION_SLOTS, sqlJudge } from "./index.mjs";

export { install, producer } from "./stillwake-verbs.mjs";

export async function worker(url) {
  const worker = createWorker({ url, pipelines: [noop], slots: ISOLATION_SLOTS, isolation: "none" });
  await worker.start();
  return worker;
}

/** Runners cannot call the bench, so the jobs say in their outputs that they were done, and when they began. */
export function judge(url) {
  const done =
    "from stillwake.ended_jobs where state = 'completed' and attempt = 1 and crashes = 0 and output -> 'id' = input -> 'id'";
  const judge = sqlJudge(url, "from stillwake.live_jobs", done);
  return { ...judge, firstMs: () => judge.ask(`select min((output ->> 'beganMs')::float8) ${done}`) };
}
