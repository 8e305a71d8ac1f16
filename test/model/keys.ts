// Keys in the model: which jobs have a slot of a key, which wait for one, and which is next.
import { INFINITY, isLive, type Job, pipelines, type World } from "./world.ts";

type Keyed = Pick<Job, "pipeline" | "tenant" | "key">;

/** The live jobs of a key of one tenant, or of none; a job without a slot waits for one, queued or paused. */
export function jobsOfKey(world: World, { pipeline, tenant, key }: Keyed): Job[] {
  return [...world.jobs.values()].filter(
    (job) => isLive(job) && job.pipeline === pipeline && job.tenant === tenant && job.key === key,
  );
}

export function holdersOf(world: World, keyed: Keyed): Job[] {
  return jobsOfKey(world, keyed)
    .filter((job) => job.slot !== null)
    .sort((a, b) => a.slot! - b.slot!);
}

export function freeSlots(world: World, keyed: Keyed): number[] {
  const taken = holdersOf(world, keyed).map((job) => job.slot);
  const slots = Array.from({ length: pipelines[keyed.pipeline]!.keyLimit }, (_, index) => index + 1);
  return slots.filter((slot) => !taken.includes(slot));
}

/** Not claimable, with its position kept. */
export function waitForKey(job: Job): void {
  job.orderAt = job.runAt;
  job.runAt = INFINITY;
  job.waitingFor = "key";
}

/** First come, first served; paused jobs are skipped. */
function nextOf(world: World, keyed: Keyed): Job | undefined {
  return jobsOfKey(world, keyed)
    .filter((job) => job.slot === null && job.state === "queued")
    .sort((a, b) => a.orderAt! - b.orderAt! || (a.id < b.id ? -1 : 1))[0];
}

function admit(world: World, job: Job, slot: number): void {
  job.slot = slot;
  job.waitingFor = job.orderAt! > world.now ? "time" : null;
  job.runAt = job.orderAt!;
  job.orderAt = null;
  world.admitted += 1;
}

export function fillKey(world: World, keyed: Keyed): void {
  for (const slot of freeSlots(world, keyed)) {
    const next = nextOf(world, keyed);
    if (next) admit(world, next, slot);
  }
}

/** An ended job passes its slot to the next job of its key. */
export function passKey(world: World, job: Job): void {
  const { slot } = job;
  job.slot = null;
  const next = slot === null ? undefined : nextOf(world, job);
  if (next) admit(world, next, slot!);
}
