// The pipeline of pipelines/noop.mjs inside the worker process: the baseline of stillwake-process.
import { createWorker } from "../../dist/worker/index.js";
import { noop } from "../pipelines/noop.mjs";
import { ISOLATION_SLOTS, sqlJudge } from "./index.mjs";

export { install, producer } from "./stillwake-verbs.mjs";

export async function worker(url) {
  const worker = createWorker({ url, pipelines: [noop], slots: ISOLATION_SLOTS, isolation: "none" });
  await worker.start();
  return worker;
}

/** Runners cannot call the bench, so the outputs of the jobs contain their ids and start times. */
export function judge(url) {
  const done =
    "from stillwake.ended_jobs where state = 'completed' and attempt = 1 and crashes = 0 and output -> 'id' = input -> 'id'";
  const judge = sqlJudge(url, "from stillwake.live_jobs", done);
  return { ...judge, firstMs: () => judge.ask(`select min((output ->> 'beganMs')::float8) ${done}`) };
}
