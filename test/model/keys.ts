// Keys in the model: who has a place of a key, who waits for one, and who is next.
import { INFINITY, isLive, type Job, pipelines, type World } from "./world.ts";

type Keyed = Pick<Job, "pipeline" | "key">;

/** The live jobs of a key; whoever has no place waits for one, in line or paused. */
export function jobsOfKey(world: World, { pipeline, key }: Keyed): Job[] {
  return [...world.jobs.values()].filter((job) => isLive(job) && job.pipeline === pipeline && job.key === key);
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

/** Out of the line, with its place kept. */
export function waitForKey(job: Job): void {
  job.place = job.runAt;
  job.runAt = INFINITY;
  job.waitingFor = "key";
}

/** First come, first served; who is paused is passed over. */
function nextOf(world: World, keyed: Keyed): Job | undefined {
  return jobsOfKey(world, keyed)
    .filter((job) => job.slot === null && job.state === "queued")
    .sort((a, b) => a.place! - b.place! || (a.id < b.id ? -1 : 1))[0];
}

function admit(world: World, job: Job, slot: number): void {
  job.slot = slot;
  job.waitingFor = job.place! > world.now ? "time" : null;
  job.runAt = job.place!;
  job.place = null;
  world.admitted += 1;
}

export function fillKey(world: World, keyed: Keyed): void {
  for (const slot of freeSlots(world, keyed)) {
    const next = nextOf(world, keyed);
    if (next) admit(world, next, slot);
  }
}

/** An ended job gives up its place, to the next of its key. */
export function passKey(world: World, job: Job): void {
  const { slot } = job;
  job.slot = null;
  const next = slot === null ? undefined : nextOf(world, job);
  if (next) admit(world, next, slot!);
}
