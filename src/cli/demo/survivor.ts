// demo-survivor, a pipeline that loses its runner: in the middle of its list it kills the process it runs in, once, and the next attempt goes on
// where it was. What it would otherwise take a crash to see.
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { pipeline } from "../../index.ts";
import { implement, type JobContext } from "../../worker/index.ts";

export const survivor = pipeline("demo-survivor", {
  input: z.object({
    seconds: z.number().min(2).max(600).default(15).meta({
      title: "Seconds",
      description: "How long the crossing takes, about. Half-way its runner is killed.",
    }),
  }),
  // It kills itself once. People may want to help.
  retry: { attempts: 10, crashes: 10 },
});

interface Departure {
  /** Made by chance: whoever has the same was there. */
  logbook: string;
  runner: number;
  attempt: number;
}

interface Arrival {
  miles: number;
  attempts: number;
  logbook: string;
  castOffBy: number;
  mooredBy: number;
}

const MILES = 10;
const STORM = 6;

export default implement(survivor, async (job, { seconds }) => {
  const attempt = Number(job.fencingToken);
  const mileMs = (seconds * 1000) / (MILES + 2);

  const departure = await job.step<Departure>(
    "casting-off",
    {
      start: `Casting off for a crossing of ${MILES} miles...`,
      end: ({ logbook }) => `Cast off with logbook ${logbook} on board. What a step returns is kept`,
    },
    async (step) => {
      await delay(mileMs, undefined, { signal: step.signal });
      return { logbook: randomBytes(3).toString("hex"), runner: process.pid, attempt };
    },
  );
  const { logbook } = departure;
  const goesOn = departure.attempt !== attempt;
  if (goesOn) {
    job.log.info(
      `Attempt ${attempt} goes on in another runner, process ${process.pid}. Nobody cast off again: logbook ${logbook}, written by process ${departure.runner}, is still on board`,
      { logbook, attempt, runner: process.pid, cast_off_by: departure.runner },
    );
  }

  await job.each(
    "crossing",
    Array.from({ length: MILES }, (_, index) => index + 1),
    {
      batch: 1,
      start: goesOn ? "Going on after the last mile that is kept..." : "Crossing. Each mile is kept when it is done...",
      end: `All ${MILES} miles are behind`,
    },
    async ([mile], handle) => {
      await delay(mileMs / 2, undefined, { signal: handle.signal });
      if (mile === STORM) await meetStorm(job, attempt);
      await delay(mileMs / 2, undefined, { signal: handle.signal });
      job.log.info(`Mile ${mile} of ${MILES} is done`);
    },
  );

  return job.step<Arrival>(
    "mooring",
    {
      start: "Mooring...",
      end: ({ attempts }) =>
        `Moored after ${attempts} attempts, with logbook ${logbook} still on board. Nothing that was kept was done again`,
    },
    async (step) => {
      await delay(mileMs, undefined, { signal: step.signal });
      return { miles: MILES, attempts: attempt, logbook, castOffBy: departure.runner, mooredBy: process.pid };
    },
  );
});

/** The storm is kept before it strikes: whichever attempt finds one that is not its own knows that it has been. */
async function meetStorm(job: JobContext, attempt: number): Promise<void> {
  const storm = await job.step("storm", () => ({ attempt, runner: process.pid }));
  if (storm.attempt !== attempt) {
    job.log.info("The storm that took the other runner has passed");
    return;
  }
  job.log.warn(
    `A storm at mile ${STORM}: this runner, process ${process.pid}, now kills itself with SIGKILL, as a crash would. It gets to save nothing more`,
    { runner: process.pid },
  );
  await job.flush();
  process.kill(process.pid, "SIGKILL");
  await delay(60_000);
}
