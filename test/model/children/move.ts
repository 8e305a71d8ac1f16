// The moves of the game of spawns, events and positions: made on the model and on the database, which are then compared.
import assert from "node:assert/strict";
import fc from "fast-check";
import type { SpawnEngine } from "./engine.ts";
import { FOREVER, type Handle, type Job, type Outcome, PART, RETRY_IN, type SpawnWorld } from "./world.ts";

/** What the games have hit; a case that none of them hit is not tested. */
export const hits = {
  ...{ spawned: 0, replayed: 0, otherTotal: 0, inParts: 0, joined: 0, woken: 0, wokenEarly: 0, wentOn: 0 },
  ...{ stale: 0, cascades: 0, asked: 0, broughtBack: 0, forgotten: 0, poisonedParents: 0, resumed: 0 },
  ...{ heard: 0, taken: 0, refused: 0, timeouts: 0, kept: 0, gaps: 0, stalePlaces: 0, recovered: 0 },
};

export interface Real {
  engine: SpawnEngine;
  newId(n: number): string;
}

type Command = fc.AsyncCommand<SpawnWorld, Real>;
export type Comparison = { said: unknown; should: unknown; what?: unknown };

export function move<Args>(
  name: string,
  args: fc.Arbitrary<Args>,
  make: (world: SpawnWorld, real: Real, args: Args) => Promise<Comparison>,
  ready: (world: SpawnWorld, args: Args) => boolean = () => true,
): fc.Arbitrary<Command> {
  return args.map((given) => {
    let told = "";
    return {
      check: (world) => ready(world as SpawnWorld, given),
      async run(world, real) {
        told = "";
        const before = waiting(world);
        const poisoned = poisonedParents(world);
        const { said, should, what = given } = await make(world, real, given);
        told = `${JSON.stringify(what)} -> ${JSON.stringify(said)}`;
        assert.deepEqual(said, should, `${name} returned something else than the model`);
        const { state, violations } = await real.engine.snapshot();
        assert.deepEqual(violations ?? [], [], "an invariant is violated");
        assert.deepEqual(state, describeSpawns(world), "the database differs from the model");
        hits.poisonedParents += Math.max(0, poisonedParents(world) - poisoned);
        for (const job of before) {
          if (job.state !== "queued" || job.waitingFor !== null) continue;
          hits.woken += 1;
          if ([...job.spawns.keys()].some((spawn) => world.childrenOf(job.id, spawn).some((one) => world.isLive(one))))
            hits.wokenEarly += 1;
        }
      },
      toString: () => `${name}(${told || JSON.stringify(given)})`,
    };
  });
}

function waiting(world: SpawnWorld): Job[] {
  return [...world.jobs.values()].filter((job) => job.state === "queued" && job.waitingFor === "children");
}

function poisonedParents(world: SpawnWorld): number {
  return [...world.jobs.values()].filter(
    ({ state, outcome, spawns }) => state === "failed" && outcome === "lost" && spawns.size > 0,
  ).length;
}

/** The world as engine.ts reads it from the database. */
function describeSpawns(world: SpawnWorld) {
  const jobs: Record<string, unknown> = {};
  const spawns: Record<string, unknown> = {};
  const signals: [string, string, string, string | null][] = [];
  const steps: Record<string, unknown> = {};
  for (const job of world.jobs.values()) {
    const { parent, state, epoch, attempt, crashes, cancel, pause, lease, waitingFor, awaits, runAt, orderAt } = job;
    const live = world.isLive(job);
    jobs[job.id] = {
      ...{ parent: parent && `${parent.job}/${parent.spawn}/${parent.no}`, state, epoch, attempt, crashes },
      ...{ cancel, pause, lease, runAt: live ? runAt : null, orderAt: live ? orderAt : null },
      waits: state === "queued" && (runAt === FOREVER || runAt > world.now) ? [waitingFor, awaits] : null,
    };
    for (const [name, { total, spawned, onError }] of job.spawns) {
      const parts = partsOf(world, job, name);
      spawns[`${job.id}/${name}`] = {
        ...{ total, spawned, onError, over: world.isOver(job, name), parts },
        openParts: parts.filter(([open]) => open! > 0).length,
      };
    }
    for (const signal of job.signals) signals.push([job.id, signal.id, signal.name, signal.takenBy]);
    for (const [step, kept] of job.steps) {
      steps[`${job.id}/${step}`] = {
        wait: () => ["wait", kept.kind === "wait" && kept.until],
        timeout: () => ["timeout"],
        taken: () => ["taken", kept.kind === "taken" && kept.output],
        position: () =>
          kept.kind === "position" && ["position", rangesOf(kept.done), kept.lasts, kept.over, kept.value],
      }[kept.kind]();
    }
  }
  signals.sort(([, a], [, b]) => (a < b ? -1 : 1));
  return { jobs, spawns, signals, steps };
}

function partsOf(world: SpawnWorld, job: Job, name: string): number[][] {
  const parts: number[][] = [];
  for (const child of world.childrenOf(job.id, name)) {
    const at = Math.floor(child.parent!.no / PART);
    parts[at] ??= [0, 0, 0, 0];
    parts[at][Math.max(0, ["live", "completed", "failed", "cancelled"].indexOf(child.state))]! += 1;
  }
  return parts;
}

function rangesOf(done: Set<number>): string {
  const ranges: [number, number][] = [];
  for (const item of [...done].sort((a, b) => a - b)) {
    if (ranges.at(-1)?.[1] === item) ranges.at(-1)![1] += 1;
    else ranges.push([item, item + 1]);
  }
  return `{${ranges.map(([from, to]) => `[${from},${to})`).join(",")}}`;
}

// Choosing handles and jobs.

export const someHandle = fc.record({
  index: fc.nat(20),
  stale: fc.constantFrom(false, false, false, false, false, true),
});
export const spawnName = fc.constantFrom("a", "a", "b");
/** Without a held job, a move is skipped unless it asks for a stale handle. */
export const hasHandle = (world: SpawnWorld, { handle }: { handle: { stale: boolean } }) =>
  world.handles.some((each) => handle.stale !== (world.holds(each) !== undefined));
export const hasJob = (world: SpawnWorld) => world.jobs.size > 0;

/** Of the handles that hold their job, sometimes parents first: most jobs are children. */
export function choose(
  world: SpawnWorld,
  { index, stale }: { index: number; stale: boolean },
  fits = (_: Job) => true,
): Handle {
  const own = world.handles.filter((handle) => world.holds(handle));
  const old = world.handles.filter((handle) => !world.holds(handle));
  const fitting = own.filter((handle) => fits(world.holds(handle)!));
  const from = [stale ? old : [], fitting, own, old].find((handles) => handles.length > 0)!;
  return from[index % from.length]!;
}

export function chooseJob(world: SpawnWorld, index: number): Job {
  const jobs = [...world.jobs.values()];
  const parents = jobs.filter(({ spawns }) => spawns.size > 0);
  const from = index % 2 === 0 && parents.length > 0 ? parents : jobs;
  return from[(index >> 1) % from.length]!;
}

/** Runs only for a handle that holds the job. */
export function fenced<Answer>(world: SpawnWorld, handle: Handle, act: (job: Job) => Answer): Answer | "SW005" {
  const job = world.holds(handle);
  if (job) return act(job);
  hits.stale += 1;
  return "SW005";
}

// Settling.

export async function settleAll(
  world: SpawnWorld,
  { engine }: Real,
  settlements: (Handle & Outcome)[],
): Promise<Comparison> {
  const sent = settlements.map(({ waitingFor, ...rest }) => ({
    ...rest,
    ...(waitingFor && { waiting_for: waitingFor }),
    failure: {},
    retry_in: `${RETRY_IN} milliseconds`,
  }));
  const should = world.settle([...settlements]);
  return {
    said: await engine.settle(sent),
    should: settlements.map(({ job }) => should.get(job)),
    what: settlements,
  };
}
