// demo-survivor: a pipeline that kills its own runner once, in the middle of a list. The next attempt resumes from the checkpoints.

import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { pipeline } from "../../index.ts";
import { implement, type JobContext } from "../../worker/index.ts";

export const survivor = pipeline("demo-survivor", {
  input: z.object({
    seconds: z.number().min(2).max(600).default(15).meta({
      title: "Seconds",
      description: "Approximate duration. Its runner is killed in the middle.",
    }),
  }),
  // It crashes once by itself; users may kill it more often.
  retry: { attempts: 10, crashes: 10 },
});

interface Prepared {
  /** Random: proves in a later attempt that the step was not run again. */
  batch: string;
  runner: number;
  attempt: number;
}

interface Result {
  items: number;
  attempts: number;
  batch: string;
  startedBy: number;
  finishedBy: number;
}

const ITEMS = 10;
const CRASH_AT = 6;

export default implement(survivor, async (job, { seconds }) => {
  const attempt = job.fencingToken;
  const itemMs = (seconds * 1000) / (ITEMS + 2);

  const prepared = await job.step<Prepared>(
    "prepare",
    {
      start: `Preparing a batch of ${ITEMS} items...`,
      end: ({ batch }) => `Prepared batch ${batch}. The result of a step is saved`,
    },
    async (step) => {
      await delay(itemMs, undefined, { signal: step.signal });
      return { batch: randomBytes(3).toString("hex"), runner: process.pid, attempt };
    },
  );
  const { batch } = prepared;
  const isResumed = prepared.attempt !== attempt;
  if (isResumed) {
    job.log.info(
      `Attempt ${attempt} resumes in another runner, process ${process.pid}. Batch ${batch} was saved by process ${prepared.runner} and is not prepared again`,
      { batch, attempt, runner: process.pid, prepared_by: prepared.runner },
    );
  }

  await job.each(
    "items",
    Array.from({ length: ITEMS }, (_, index) => index + 1),
    {
      batch: 1,
      start: isResumed
        ? "Resuming after the last saved item..."
        : "Processing. The position is saved after each item...",
      end: `All ${ITEMS} items are done`,
    },
    async ([item], handle) => {
      await delay(itemMs / 2, undefined, { signal: handle.signal });
      if (item === CRASH_AT) await crashOnce(job, attempt);
      await delay(itemMs / 2, undefined, { signal: handle.signal });
      job.log.info(`Item ${item} of ${ITEMS} is done`);
    },
  );

  return job.step<Result>(
    "finish",
    {
      start: "Finishing...",
      end: ({ attempts }) =>
        `Finished batch ${batch} after ${attempts} ${attempts === 1 ? "attempt" : "attempts"}. No saved work was repeated`,
    },
    async (step) => {
      await delay(itemMs, undefined, { signal: step.signal });
      return { items: ITEMS, attempts: attempt, batch, startedBy: prepared.runner, finishedBy: process.pid };
    },
  );
});

/** The step is saved before the kill: an attempt that finds the step of another attempt does not crash again. */
async function crashOnce(job: JobContext, attempt: number): Promise<void> {
  const crash = await job.step("crash", () => ({ attempt, runner: process.pid }));
  if (crash.attempt !== attempt) {
    job.log.info("The crash is already saved as a step and does not happen again");
    return;
  }
  job.log.warning(
    `Item ${CRASH_AT}: this runner, process ${process.pid}, now kills itself with SIGKILL, like a crash. It cannot save anything more`,
    { runner: process.pid },
  );
  await job.flush();
  process.kill(process.pid, "SIGKILL");
  await delay(60_000);
}
