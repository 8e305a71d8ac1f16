// Stillwake's worker without runner processes. Checkpoints of all slots share commits; a job continues when its checkpoint is durable.
import { createWorker, implement } from "../../../dist/worker/index.js";
import { STEP_SLOTS, STEPS, sqlJudge } from "../index.mjs";
import { bench } from "../stillwake-verbs.mjs";

export { install, producer } from "../stillwake-verbs.mjs";

export async function worker(url, handle, { begin, between }) {
  const steps = implement(bench, async (job, input) => {
    begin();
    for (let i = 1; i <= STEPS; i++) {
      await job.step(`s${i}`, () => i);
      if (between) await between();
    }
    handle(input);
  });
  const worker = createWorker({ url, pipelines: [steps], slots: STEP_SLOTS, isolation: "none" });
  await worker.start();
  return worker;
}

export function judge(url) {
  return sqlJudge(
    url,
    "from stillwake.live_jobs",
    "from stillwake.ended_jobs where state = 'completed' and attempt = 1",
    "from stillwake.checkpoints where step = 's' || output::text",
  );
}
