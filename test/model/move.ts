// The moves of a game. Each one does the same to the engine and to the model and then compares the two states. Actors keep
// every handle they ever got, use old ones at random, and sometimes forge one.
import assert from "node:assert/strict";
import fc from "fast-check";
import { expiredLeases } from "./calls.ts";
import type { Engine } from "./engine.ts";
import { describeWorld, type Handle, holds, type World } from "./world.ts";

/** What the moves of all games have hit; without these a passing test proves nothing. */
export interface Hits {
  refused: number;
  late: number;
  repeated: number;
  poisoned: number;
  exhausted: number;
  recovered: number;
  /** Jobs whose transaction committed after their pool got lanes. */
  strays: number;
  /** Outages that a recovery or a heartbeat has noticed. */
  outages: number;
  /** Jobs that found their key taken, by what happened to them. */
  joined: number;
  spared: number;
  waited: number;
  replaced: number;
  rejected: number;
  admitted: number;
}

export interface Real {
  engine: Engine;
  hits: Hits;
  /** The id of the nth job of a game: the same in each game, and not in the order of creation. */
  newId(n: number): string;
}

type Command = fc.AsyncCommand<World, Real>;

interface Move<Args> {
  name: string;
  args: fc.Arbitrary<Args>;
  /** False where the move makes no sense or more than one result would be correct. */
  ready?(world: World, args: Args): boolean;
  /** Makes the move on both sides and returns both results. */
  make(world: World, real: Real, args: Args): Promise<{ said: unknown; should: unknown; what: unknown }>;
}

export function commandOf<Args>(move: Move<Args>): fc.Arbitrary<Command> {
  return move.args.map((args) => {
    let told = "";
    return {
      check: (world) => move.ready?.(world, args) ?? true,
      async run(world, real) {
        told = "";
        const { said, should, what } = await move.make(world, real, args);
        told = `${JSON.stringify(what)} -> ${JSON.stringify(said)}`;
        assert.deepEqual(said, should, `${move.name} returned something else than the model`);
        await compareWorlds(world, real.engine);
      },
      toString: () => `${move.name}(${told || JSON.stringify(args)})`,
    };
  });
}

async function compareWorlds(world: World, engine: Engine): Promise<void> {
  const actual = await engine.snapshot();
  assert.deepEqual(actual.violations ?? [], [], "an invariant is violated");
  const found = actual.world as ReturnType<typeof describeWorld>;
  for (const [id, [min, max]] of world.drawn) {
    const job = world.jobs.get(id)!;
    const seen = found.jobs.find((candidate) => candidate.id === id);
    // A pause ends the back-off: a job that is resumed may run at once.
    if (job.state === "paused") continue;
    const drawn = seen?.runAt ?? Number.NaN;
    assert.ok(drawn >= min && drawn <= max, `back-off to ${drawn}, outside ${min}..${max}`);
    job.runAt = drawn;
  }
  world.drawn.clear();
  // Which jobs have a slot is specified, which slot is not: several that end at once pass theirs on in any order.
  for (const { id, slot, runAt } of found.jobs) {
    const job = world.jobs.get(id);
    if (job && job.slot !== null && slot !== null) job.slot = slot;
    if (job && job.key !== null && job.endedAt === world.now && job.startedAt === null) job.runAt = runAt;
  }
  assert.deepEqual(found, describeWorld(world), "the database differs from the model");
}

// Choosing handles and jobs.

export interface Pick {
  kind: "own" | "stale" | "wrong epoch" | "wrong lease";
  index: number;
}

export const pick: fc.Arbitrary<Pick> = fc.record({
  kind: fc.constantFrom<Pick["kind"][]>("own", "own", "own", "own", "stale", "stale", "wrong epoch", "wrong lease"),
  index: fc.nat(20),
});

export function chooseHandle(world: World, { kind, index }: Pick): Handle {
  const own = world.handles.filter((handle) => holds(world, handle));
  const stale = world.handles.filter((handle) => !holds(world, handle));
  const [wanted, other] = kind === "stale" ? [stale, own] : [own, stale];
  const from = wanted.length > 0 ? wanted : other;
  const handle = from[index % from.length]!;
  if (kind === "wrong epoch") return { ...handle, epoch: handle.epoch - 1 + 2 * (index % 2) };
  if (kind === "wrong lease") return { ...handle, lease: world.handles[index % world.handles.length]!.lease };
  return handle;
}

export const someJob = fc.nat(30);
const UNKNOWN = "00000000-0000-7000-8000-000000000000";

export function chooseJob(world: World, index: number): string {
  const ids = [...world.jobs.keys()];
  return index === 30 || ids.length === 0 ? UNKNOWN : ids[index % ids.length]!;
}

export function countHit(world: World, { hits }: Real, handle: Handle): void {
  if (!holds(world, handle)) hits.refused += 1;
  else if (world.leases.get(handle.lease)!.until < world.now) hits.late += 1;
}

/** A move of a worker with one handle. */
export function withHandle<Args>(
  name: string,
  args: fc.Arbitrary<Args>,
  make: (world: World, real: Real, handle: Handle, args: Args) => Promise<{ said: unknown; should: unknown }>,
): fc.Arbitrary<Command> {
  return commandOf({
    name,
    args: fc.tuple(pick, args),
    ready: (world) => world.handles.length > 0,
    async make(world, real, [which, rest]) {
      const handle = chooseHandle(world, which);
      countHit(world, real, handle);
      return { ...(await make(world, real, handle, rest)), what: { ...handle, kind: which.kind, rest } };
    },
  });
}

/** With a limit and a tie at it, which lease is recovered or which job expires is not specified. */
export function isDeterministic(world: World, limit: number, pool: string | null): boolean {
  const untils = expiredLeases(world, pool).map((lease) => lease.until);
  const ends = [...world.jobs.values()].flatMap((job) =>
    job.expiresAt !== null && job.expiresAt <= world.now ? [job.expiresAt] : [],
  );
  return [untils, ends].every((times) => times.length <= limit || new Set(times).size === times.length);
}

/** Counts the jobs that a move ended by retry limit, crash limit or expiry. */
export function countingEnds<Result>(world: World, { hits }: Real, change: () => Result): Result {
  const count = (code: string) => [...world.jobs.values()].filter((job) => job.failure === code).length;
  const before = [count("POISONED"), count("RETRIES_EXHAUSTED")];
  const result = change();
  hits.poisoned += Math.max(0, count("POISONED") - before[0]!);
  hits.exhausted += Math.max(0, count("RETRIES_EXHAUSTED") - before[1]!);
  return result;
}
