// The moves of the game of spawns, events and positions by workers and operators, and the composition of a game.
import fc from "fast-check";
import { eventMoves } from "./event-moves.ts";
import { choose, chooseJob, fenced, hasHandle, hasJob, hits, move, settleAll, someHandle, spawnName } from "./move.ts";
import { type Job, newJob, type OnError, type Outcome, PART, type SpawnWorld } from "./world.ts";

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
    hits.recovered += recovered;
    const span = 60_000 + ++world.claims;
    const answer = [await engine.recover(), await engine.claim(limit, span)] as const;
    world.returnDue();
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
    // In a game a batch is one part, so that a wide spawn needs several.
    const count = Math.max(0, Math.min(PART, total - from));
    const ids = Array.from({ length: count }, () => newId(world.ids++));
    if (from + count > total) return { said: 0, should: 0 };
    // Sometimes the code has changed.
    const onError = args.otherTotal ? args.onError : (known?.onError ?? args.onError);
    const should = fenced(world, handle, (job) => {
      if (job.cancel) return -1;
      const spawn = known ?? { total, spawned: 0, onError: args.onError };
      if (spawn.total !== total) {
        hits.otherTotal += 1;
        return "SW006";
      }
      spawn.onError = onError;
      job.spawns.set(name, spawn);
      if (from < spawn.spawned || count === 0) {
        hits.replayed += Number(spawn.spawned > 0);
        return spawn.spawned;
      }
      for (const [n, id] of ids.entries()) {
        world.jobs.set(id, newJob(id, world.now, { job: job.id, spawn: name, no: from + n }));
      }
      hits.spawned += count;
      if (from > 0) hits.inParts += 1;
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

const settle = move(
  "settle",
  fc.record({ handle: someHandle, how: fc.constantFrom(...endings), child: fc.constantFrom(true, true, true, false) }),
  (world, real, { handle, how, child }) =>
    settleAll(world, real, [{ ...choose(world, handle, (job) => (job.parent !== null) === child), ...how }]),
  hasHandle,
);

/** Outcomes that do not end a job: it is requeued and resumes from its checkpoints. */
const comeBack = move(
  "come back",
  fc.record({ handle: someHandle, outcome: fc.constantFrom("failed", "released", "released", "lost") }),
  (world, real, { handle, outcome }) => settleAll(world, real, [{ ...choose(world, handle), outcome }]),
  hasHandle,
);

/** A worker that settles several attempts at once; parents that want to wait may be among them. */
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

/** All running children complete. */
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
    if (over) hits.wentOn += 1;
    else if (job.waitingFor === "children") hits.joined += 1;
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

// Operators.

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
      hits.cascades += 1;
      hits.asked += live.filter(({ lease }) => lease !== null).length;
    }
    if (verb === "resume" && job.state === "paused" && job.waitingFor === "children") hits.resumed += 1;
    const children = world.childrenOf(job.id).filter((child) => !world.isLive(child));
    const verbs: Record<string, () => string> = {
      cancel: () => world.cancel(job),
      retry: () => world.retry(job),
      pause: () => world.pause(job),
      resume: () => world.resume(job),
      "from start": () => world.retry(job, true),
    };
    const should = verbs[verb]!();
    if (verb === "retry") hits.broughtBack += children.filter((child) => world.isLive(child)).length;
    if (verb === "from start" && should === "queued") hits.forgotten += children.length;
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
/** All leases expire. */
const longTravel = travelling("travel far", 61_000);

const common = [enqueue, claim, claim, claim, claim, travel];

/** Games about one thing hit more of it. */
export const games = {
  "parents and children": [
    ...[...common, claim, claim, spawn, spawn, spawn, spawn, join, join, join, join, join],
    ...[settle, settle, settle, settleMany, finish, control, control, control, ask, longTravel],
  ],
  "events and positions": [...common, ...eventMoves, ...eventMoves, comeBack, comeBack, control, settle, longTravel],
  "all together": [...common, ...eventMoves, spawn, spawn, join, join, settle, comeBack, finish, control, control, ask],
};
