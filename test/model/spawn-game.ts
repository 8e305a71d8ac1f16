// The moves of the game of spawns, events and places. Each is made on the model and on the database, and then the two are held against each other.
import assert from "node:assert/strict";
import fc from "fast-check";
import type { SpawnEngine } from "./spawn-engine.ts";
import {
  FOREVER,
  type Handle,
  type Job,
  newJob,
  type OnError,
  type Outcome,
  PART,
  RETRY_IN,
  type SpawnWorld,
} from "./spawn-world.ts";

/** What the games have hit; of what none of them hit nothing is proven. */
export const shots = {
  ...{ spawned: 0, replayed: 0, otherTotal: 0, inParts: 0, joined: 0, woken: 0, wokenEarly: 0, wentOn: 0 },
  ...{ stale: 0, cascades: 0, asked: 0, broughtBack: 0, forgotten: 0, poisonedParents: 0, resumed: 0 },
  ...{ heard: 0, taken: 0, refused: 0, timeouts: 0, kept: 0, gaps: 0, stalePlaces: 0, recovered: 0 },
};

interface Real {
  engine: SpawnEngine;
  newId(n: number): string;
}

type Command = fc.AsyncCommand<SpawnWorld, Real>;
type Said = { said: unknown; should: unknown; what?: unknown };

function move<Args>(
  name: string,
  args: fc.Arbitrary<Args>,
  make: (world: SpawnWorld, real: Real, args: Args) => Promise<Said>,
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
        assert.deepEqual(said, should, `${name} answered otherwise than the model`);
        const { state, violations } = await real.engine.snapshot();
        assert.deepEqual(violations ?? [], [], "an invariant is violated");
        assert.deepEqual(state, describeSpawns(world), "the database is not as the model has it");
        shots.poisonedParents += Math.max(0, poisonedParents(world) - poisoned);
        for (const job of before) {
          if (job.state !== "queued" || job.waitingFor !== null) continue;
          shots.woken += 1;
          if ([...job.spawns.keys()].some((spawn) => world.childrenOf(job.id, spawn).some((one) => world.isLive(one))))
            shots.wokenEarly += 1;
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

/** The world as spawn-engine.ts reads it from the database. */
function describeSpawns(world: SpawnWorld) {
  const jobs: Record<string, unknown> = {};
  const spawns: Record<string, unknown> = {};
  const signals: [string, string, string, string | null][] = [];
  const steps: Record<string, unknown> = {};
  for (const job of world.jobs.values()) {
    const { parent, state, epoch, attempt, crashes, cancel, pause, lease, waitingFor, awaits, runAt, place } = job;
    const live = world.isLive(job);
    jobs[job.id] = {
      ...{ parent: parent && `${parent.job}/${parent.spawn}/${parent.no}`, state, epoch, attempt, crashes },
      ...{ cancel, pause, lease, runAt: live ? runAt : null, place: live ? place : null },
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
        place: () => kept.kind === "place" && ["place", rangesOf(kept.done), kept.lasts, kept.over],
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

// Who acts, on what.

const someHandle = fc.record({ index: fc.nat(20), stale: fc.constantFrom(false, false, false, false, false, true) });
const spawnName = fc.constantFrom("a", "a", "b");
/** Nobody who is late acts in place of nobody: such moves are passed over, unless one who is late was asked for. */
const hasHandle = (world: SpawnWorld, { handle }: { handle: { stale: boolean } }) =>
  world.handles.some((each) => handle.stale !== (world.holds(each) !== undefined));
const hasJob = (world: SpawnWorld) => world.jobs.size > 0;

/** Of those that hold their job, parents first now and then: most jobs are children. */
function choose(
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

function chooseJob(world: SpawnWorld, index: number): Job {
  const jobs = [...world.jobs.values()];
  const parents = jobs.filter(({ spawns }) => spawns.size > 0);
  const from = index % 2 === 0 && parents.length > 0 ? parents : jobs;
  return from[(index >> 1) % from.length]!;
}

/** Only who holds the job is let in. */
function fenced<Answer>(world: SpawnWorld, handle: Handle, act: (job: Job) => Answer): Answer | "SW005" {
  const job = world.holds(handle);
  if (job) return act(job);
  shots.stale += 1;
  return "SW005";
}

// Workers.

const enqueue = move(
  "enqueue",
  fc.constant(null),
  async (world, { engine, newId }) => {
    const id = newId(world.ids++);
    world.jobs.set(id, newJob(id, world.now, null));
    return { said: await engine.enqueue(id), should: [id] };
  },
  (world) => world.jobs.size < 9 && [...world.jobs.values()].filter(({ parent }) => parent === null).length < 3,
);

const claim = move(
  "claim",
  fc.constantFrom(1, 2, 3, 10, 10, 200),
  async (world, { engine }, limit) => {
    const recovered = world.recover();
    shots.recovered += recovered;
    const span = 60_000 + ++world.claims;
    const answer = [await engine.recover(), await engine.claim(limit, span)] as const;
    const due = world.due(limit).map(({ id, epoch }) => ({ job: id, epoch: epoch + 1 }));
    world.claim(answer[1], span);
    return { said: [answer[0], answer[1].map(({ job, epoch }) => ({ job, epoch }))], should: [recovered, due] };
  },
  (world) => world.due(1).length > 0 || [...world.leases.values()].some(({ until }) => until < world.now),
);

const depthOf = (world: SpawnWorld, job: Job): number =>
  job.parent ? 1 + depthOf(world, world.jobs.get(job.parent.job)!) : 0;

const spawn = move(
  "spawn",
  fc.record({
    handle: someHandle,
    name: spawnName,
    total: fc.constantFrom(0, 1, 1, 2, 2, 3, 5),
    onError: fc.constantFrom<OnError[]>("fail", "collect", "ignore"),
    otherTotal: fc.constantFrom(false, false, false, true),
    from: fc.constantFrom("next", "next", "next", "start"),
  }),
  async (world, { engine, newId }, args) => {
    const handle = choose(world, args.handle, (job) => depthOf(world, job) < 2 && job.spawns.size < 2);
    const parent = world.jobs.get(handle.job)!;
    const { name } = args;
    const known = parent.spawns.get(name);
    const wide = world.isWide && depthOf(world, parent) === 0 && world.jobs.size < 9;
    const wanted = wide ? PART + 1 + args.total : world.jobs.size > 12 ? 0 : args.total;
    const total = known && !args.otherTotal ? known.total : wanted;
    const from = args.from === "start" ? 0 : Math.floor((known?.spawned ?? 0) / PART) * PART;
    // In a game a batch is one part, so that a wide spawn comes in several.
    const count = Math.max(0, Math.min(PART, total - from));
    const ids = Array.from({ length: count }, () => newId(world.ids++));
    if (from + count > total) return { said: 0, should: 0 };
    // Now and then the code has changed its mind.
    const onError = args.otherTotal ? args.onError : (known?.onError ?? args.onError);
    const should = fenced(world, handle, (job) => {
      if (job.cancel) return -1;
      const spawn = known ?? { total, spawned: 0, onError: args.onError };
      if (spawn.total !== total) {
        shots.otherTotal += 1;
        return "SW006";
      }
      spawn.onError = onError;
      job.spawns.set(name, spawn);
      if (from < spawn.spawned || count === 0) {
        shots.replayed += Number(spawn.spawned > 0);
        return spawn.spawned;
      }
      for (const [n, id] of ids.entries()) {
        world.jobs.set(id, newJob(id, world.now, { job: job.id, spawn: name, no: from + n }));
      }
      shots.spawned += count;
      if (from > 0) shots.inParts += 1;
      spawn.spawned = from + count;
      return spawn.spawned;
    });
    return {
      said: await engine.spawn(handle, name, ids, from, total, onError),
      should,
      what: { handle, name, from, total, onError },
    };
  },
  hasHandle,
);

const endings: Outcome[] = [
  ...[{ outcome: "completed" }, { outcome: "completed" }, { outcome: "failed" }, { outcome: "failed", fatal: true }],
  ...[{ outcome: "lost" }, { outcome: "cancelled" }, { outcome: "released" }],
];

async function settleAll(world: SpawnWorld, { engine }: Real, settlements: (Handle & Outcome)[]): Promise<Said> {
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

const settle = move(
  "settle",
  fc.record({ handle: someHandle, how: fc.constantFrom(...endings), child: fc.constantFrom(true, true, true, false) }),
  (world, real, { handle, how, child }) =>
    settleAll(world, real, [{ ...choose(world, handle, (job) => (job.parent !== null) === child), ...how }]),
  hasHandle,
);

/** What does not end a job: it comes back and goes on from what it has kept. */
const comeBack = move(
  "come back",
  fc.record({ handle: someHandle, outcome: fc.constantFrom("failed", "released", "released", "lost") }),
  (world, real, { handle, outcome }) => settleAll(world, real, [{ ...choose(world, handle), outcome }]),
  hasHandle,
);

/** A worker that ends several attempts at once; parents that want to wait may be among them. */
const settleMany = move(
  "settle many",
  fc.array(fc.constantFrom<Outcome[]>(...endings, { outcome: "completed" }, { outcome: "slept" }), {
    minLength: 3,
    maxLength: 8,
  }),
  (world, real, hows) => {
    const own = world.handles.filter((handle) => world.holds(handle)).slice(-hows.length - (world.now % 3));
    const many = own.length > 20 ? own : own.slice(0, hows.length);
    const settlements = many.map((handle, n) => {
      const how = hows[n % hows.length]!;
      const [awaits] = world.holds(handle)!.spawns.keys();
      if (how.outcome !== "slept") return { ...handle, ...how };
      return awaits ? { ...handle, ...how, waitingFor: "children", awaits } : { ...handle, outcome: "released" };
    });
    return settleAll(world, real, settlements);
  },
  (world) => world.handles.filter((handle) => world.holds(handle)).length > 1,
);

/** All children that run are done, as when a fleet goes through them. */
const finish = move(
  "finish",
  fc.constantFrom("completed", "completed", "failed"),
  (world, real, outcome) => {
    const own = world.handles.filter((handle) => world.holds(handle)?.parent);
    return settleAll(
      world,
      real,
      own.map((handle) => ({ ...handle, outcome, ...(outcome === "failed" && { fatal: true }) })),
    );
  },
  (world) => world.handles.some((handle) => world.holds(handle)?.parent),
);

const join = move(
  "wait for children",
  fc.record({ handle: someHandle, any: fc.nat(7), other: spawnName }),
  async (world, real, { handle: which, any, other }) => {
    const open = (job: Job) => [...job.spawns.keys()].find((spawn) => !world.isOver(job, spawn));
    const handle = choose(world, which, (job) => (any > 0 ? open(job) !== undefined : job.spawns.size > 0));
    const job = world.jobs.get(handle.job)!;
    const name = (any > 0 && open(job)) || other;
    const over = world.holds(handle) && job.spawns.has(name) && world.isOver(job, name);
    const settlement = { ...handle, outcome: "slept", waitingFor: "children", awaits: name };
    const answer = await settleAll(world, real, [settlement]);
    if (over) shots.wentOn += 1;
    else if (job.waitingFor === "children") shots.joined += 1;
    return answer;
  },
  hasHandle,
);

const ask = move(
  "how far are they",
  fc.record({ handle: someHandle, name: spawnName, failed: fc.boolean() }),
  async (world, { engine }, { handle: which, name, failed }) => {
    const handle = choose(world, which, (job) => job.spawns.has(name));
    const said = [
      await engine.spawnState(handle, name),
      await engine.loadChildren(handle, name, failed),
      await engine.children(handle.job),
    ];
    const job = world.jobs.get(handle.job)!;
    const stateOf = (children: Job[]) =>
      ["completed", "failed", "cancelled"].map((state) => children.filter((child) => child.state === state).length);
    const children = world.childrenOf(job.id, name);
    const ended = children.filter((child) => !world.isLive(child) && !(failed && child.state === "completed"));
    const [completed, failures, cancelled] = stateOf(world.childrenOf(job.id));
    const total = [...job.spawns.values()].reduce((sum, each) => sum + each.total, 0);
    const seen = () => {
      const spawn = job.spawns.get(name);
      return spawn ? [world.isOver(job, name), spawn.total, ...stateOf(children)] : null;
    };
    const numbers = ended.map(({ parent, state }) => `${parent!.no} ${state}`);
    const should = [
      fenced(world, handle, seen),
      fenced(world, handle, () => (numbers.length > 0 ? numbers : null)),
      job.spawns.size > 0 ? { total, completed, failed: failures, cancelled } : null,
    ];
    return { said, should };
  },
  hasHandle,
);

// People.

const control = move(
  "control",
  fc.record({
    verb: fc.constantFrom("cancel", "cancel", "retry", "retry", "retry", "pause", "resume", "resume", "from start"),
    index: fc.nat(60),
  }),
  async (world, { engine }, { verb, index }) => {
    const fits: Record<string, (job: Job) => boolean> = {
      retry: (job) => job.state === "failed" || job.state === "cancelled",
      "from start": (job) => (job.state === "failed" || job.state === "cancelled") && job.spawns.size > 0,
      resume: (job) => job.pause,
    };
    const fitting = [...world.jobs.values()].filter(fits[verb] ?? (() => false));
    const job = fitting.length > 0 && index % 5 > 0 ? fitting[index % fitting.length]! : chooseJob(world, index);
    const said =
      verb === "from start"
        ? await engine.retryFromStart(job.id)
        : await engine.control(verb as "cancel" | "retry" | "pause" | "resume", job.id);
    const live = world.childrenOf(job.id).filter((child) => world.isLive(child));
    if (verb === "cancel" && world.isLive(job) && live.length > 0) {
      shots.cascades += 1;
      shots.asked += live.filter(({ lease }) => lease !== null).length;
    }
    if (verb === "resume" && job.state === "paused" && job.waitingFor === "children") shots.resumed += 1;
    const children = world.childrenOf(job.id).filter((child) => !world.isLive(child));
    const verbs: Record<string, () => string> = {
      cancel: () => world.cancel(job),
      retry: () => world.retry(job),
      pause: () => world.pause(job),
      resume: () => world.resume(job),
      "from start": () => world.retry(job, true),
    };
    const should = verbs[verb]!();
    if (verb === "retry") shots.broughtBack += children.filter((child) => world.isLive(child)).length;
    if (verb === "from start" && should === "queued") shots.forgotten += children.length;
    return { said, should, what: { verb, job: job.id } };
  },
  hasJob,
);

const travelling = (name: string, ...by: number[]) =>
  move(name, fc.constantFrom(...by), async (world, { engine }, ms) => {
    await engine.travel(ms);
    world.now += ms;
    return { said: null, should: null };
  });
const travel = travelling("travel", 1000, 3000, 6000);
/** All leases run out. */
const longTravel = travelling("travel far", 61_000);

// Events and places.

const eventName = fc.constantFrom("go", "go", "stop");
const stepName = fc.constantFrom("one", "two");

const signal = move(
  "signal",
  fc.record({ index: fc.nat(60), name: eventName, again: fc.constantFrom(false, false, false, true) }),
  async (world, { engine, newId }, { index, name, again }) => {
    const waits = [...world.jobs.values()].filter((job) => job.waitingFor === "event");
    const job = waits.length > 0 && index % 3 > 0 ? waits[index % waits.length]! : chooseJob(world, index);
    const id = (again && job.signals.at(-1)?.id) || newId(world.ids++);
    const said = await engine.signal(job.id, name, id);
    if (job.waitingFor === "event" && job.awaits === name) shots.heard += 1;
    return { said, should: world.signal(job, name, id), what: { job: job.id, name, id } };
  },
  hasJob,
);

const look = move(
  "look",
  fc.record({ handle: someHandle, name: eventName, step: stepName, timeout: fc.constantFrom(null, 5000) }),
  async (world, { engine }, { handle: which, name, step, timeout }) => {
    const handle = choose(world, which, (job) => job.steps.size > 0);
    const said = await engine.look(handle, name, step, timeout);
    const should = fenced(world, handle, (job) => world.look(job, name, step, timeout));
    if (should[0] === "timeout") shots.timeouts += 1;
    return { said, should, what: { handle, name, step, timeout } };
  },
  hasHandle,
);

/** As a worker does: it looks, and ends its attempt if there is nothing. Somebody may have spoken in between. */
const listen = move(
  "wait for an event",
  fc.record({ handle: someHandle, name: eventName, step: stepName }),
  (world, real, { handle: which, name, step }) => {
    const handle = choose(world, which, (job) => job.steps.get(step)?.kind === "wait");
    const kept = world.jobs.get(handle.job)!.steps.get(step);
    const until = kept?.kind === "wait" && kept.until !== null ? { until: kept.until } : {};
    return settleAll(world, real, [{ ...handle, outcome: "slept", waitingFor: "event", awaits: name, ...until }]);
  },
  hasHandle,
);

const take = move(
  "take",
  fc.record({
    handle: someHandle,
    step: stepName,
    index: fc.nat(3),
    accepted: fc.constantFrom(true, true, true, false),
  }),
  async (world, { engine, newId }, { handle: which, step, index, accepted }) => {
    const handle = choose(world, which, (job) => job.signals.length > 0 && job.steps.get(step)?.kind === "wait");
    const { signals } = world.jobs.get(handle.job)!;
    const id = signals[index % Math.max(1, signals.length)]?.id ?? newId(world.ids++);
    const said = await engine.take(handle, step, id, accepted);
    const should = fenced(world, handle, (job) => world.take(job, step, id, accepted));
    if (should === "taken" || should === "refused") shots[should] += 1;
    return { said, should, what: { handle, step, id, accepted } };
  },
  hasHandle,
);

const savePlace = move(
  "save place",
  fc.record({
    handle: someHandle,
    step: fc.constantFrom("list", "list", "rows"),
    from: fc.constantFrom<("next" | number)[]>("next", "next", 0, 4, 8, 12),
    size: fc.constantFrom(0, 2, 4, 4, 5),
    told: fc.boolean(),
    over: fc.constantFrom(false, false, false, false, true),
  }),
  async (world, { engine }, { handle: which, step, from: wanted, size, told, over }) => {
    const handle = choose(world, which, (job) => job.steps.has(step));
    const kept = world.jobs.get(handle.job)!.steps.get(step);
    const done = kept?.kind === "place" ? kept.done : new Set<number>();
    const from = wanted === "next" ? Math.max(-1, ...done) + 1 : wanted;
    const last = told ? { id: from + size, name: null } : null;
    const said = await engine.savePlace(handle, step, from, from + size, last, over);
    const should = fenced(world, handle, (job) => world.savePlace(job, step, from, from + size, last, over));
    if (should === "kept") shots.kept += 1;
    else if (should === "SW005") shots.stalePlaces += 1;
    else if (from > 0 && !done.has(from - 1)) shots.gaps += 1;
    return { said, should, what: { handle, step, from, size, last, over } };
  },
  hasHandle,
);

const talk = [signal, signal, signal, look, look, look, listen, listen, take, take, take, savePlace, savePlace];
const common = [enqueue, claim, claim, claim, claim, travel];

/** Games about one thing hit more of it. */
export const games = {
  "parents and children": [
    ...[...common, claim, claim, spawn, spawn, spawn, spawn, join, join, join, join, join],
    ...[settle, settle, settle, settleMany, finish, control, control, control, ask, longTravel],
  ],
  "events and places": [...common, ...talk, ...talk, comeBack, comeBack, control, settle, longTravel],
  "all together": [...common, ...talk, spawn, spawn, join, join, settle, comeBack, finish, control, control, ask],
};
