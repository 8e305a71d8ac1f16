// The moves of the game of limits and breakers. Each is made on the model and on the database, then the two are compared.
import assert from "node:assert/strict";
import fc from "fast-check";
import { type FlowEngine, pipelines } from "./engine.ts";
import { FOREVER, type Handle, type Told, type Use, useWithin } from "./limit-and-breaker.ts";
import { checkFlow, describeFlow, type FlowWorld, hits, type OpenGrant, round } from "./world.ts";

interface Real {
  engine: FlowEngine;
}

type Command = fc.AsyncCommand<FlowWorld, Real>;

function move<Args>(
  name: string,
  args: fc.Arbitrary<Args>,
  make: (
    world: FlowWorld,
    engine: FlowEngine,
    args: Args,
  ) => Promise<{ said: unknown; should: unknown; what?: unknown }>,
  ready: (world: FlowWorld, args: Args) => boolean = () => true,
): fc.Arbitrary<Command> {
  return args.map((given) => {
    let told = "";
    return {
      check: (world) => ready(world, given),
      async run(world, { engine }) {
        const { said, should, what = given } = await make(world, engine, given);
        told = `${JSON.stringify(what)} -> ${JSON.stringify(said)}`;
        assert.deepEqual(said, should, `${name} returned something else than the model`);
        assert.deepEqual(await engine.snapshot(), describeFlow(world), "the database differs from the model");
        checkFlow(world);
      },
      toString: () => `${name}(${told || JSON.stringify(given)})`,
    };
  });
}

// Choosing actors.

const someHandle = fc.record({ index: fc.nat(20), stale: fc.constantFrom(false, false, false, false, true) });

function choose(world: FlowWorld, { index, stale }: { index: number; stale: boolean }): Handle {
  const own = world.handles.filter((handle) => world.holds(handle));
  const old = world.handles.filter((handle) => !world.holds(handle));
  const from = (stale ? old : own).length > 0 ? (stale ? old : own) : world.handles;
  return from[index % from.length]!;
}

const hasHandle = (world: FlowWorld) => world.handles.length > 0;
const hasOwn = (world: FlowWorld) => world.handles.some((handle) => world.holds(handle));

const claim = move(
  "claim",
  fc.record({ pipeline: fc.constantFrom(...pipelines), limit: fc.integer({ min: 1, max: 3 }) }),
  async (world, engine, { pipeline, limit }) => {
    const taken = await engine.claim(pipeline, limit);
    world.recover(pipeline);
    const due = [...world.jobs].filter(
      ([, job]) => job.pipeline === pipeline && job.lease === null && job.dueAt <= world.now,
    );
    const quotas = {
      plain: () => FOREVER,
      guarded: () => world.breaker.quota(world.now, world.isProbing()),
      metered: () => world.limit.quota(world.now, world.outstanding()).free,
    };
    const quota = quotas[pipeline]();
    if (quota < Math.min(limit, due.length)) hits.held += 1;
    const ids = due.map(([id]) => id);
    assert.ok(
      taken.every(({ job }) => ids.includes(job)),
      "a job was claimed that is not due",
    );
    for (const handle of taken) {
      Object.assign(world.jobs.get(handle.job)!, { lease: handle.lease, epoch: handle.epoch, state: "running" });
      world.leases.set(handle.lease, { until: world.now + 60_000, pipeline });
      world.handles.push(handle);
      if (pipeline !== "guarded" || world.breaker.resumeAt === null) continue;
      world.letThrough(handle);
      world.breaker.probe = { job: handle.job, lease: handle.lease };
    }
    return { said: taken.length, should: Math.min(limit, due.length, quota) };
  },
);

const settle = move(
  "settle",
  fc.record({ index: fc.nat(20), outcome: fc.constantFrom("released", "lost", "paused") }),
  async (world, engine, { index, outcome }) => {
    const handle = choose(world, { index, stale: false });
    const job = world.jobs.get(handle.job)!;
    const more = { lost: { failure: {} }, paused: { breaker: "guard", resume_in: "15 seconds" }, released: {} }[
      outcome
    ];
    const said = await engine.settle(handle, { outcome, ...more });
    // Jobs of a pipeline that names the breaker are held back without a write, and a breaker that was closed in between holds none.
    const aside = outcome === "paused" && job.pipeline !== "guarded" && world.breaker.resumeAt !== null;
    if (aside) hits.setAside += 1;
    world.leave(handle.job, aside ? "paused" : "queued", aside ? world.now + 15_000 : job.dueAt);
    return { said, should: aside ? "paused" : "queued", what: { handle, outcome } };
  },
  hasOwn,
);

const recover = move("recover", fc.constant(null), async (world, engine) => ({
  said: await engine.recover(),
  should: world.recover(null),
}));

const wild: fc.Arbitrary<Told> = fc.record(
  {
    remaining: fc.constantFrom(0, 1, 2, 5),
    limit: fc.constantFrom(4, 5),
    reset_ms: fc.constantFrom(0, 1000, 2000, 5000),
    refused_ms: fc.constantFrom(0, 3000),
  },
  { requiredKeys: [] },
);

const use = move(
  "use",
  fc.record({
    handle: someHandle,
    take: fc.constantFrom(0, 1, 1, 1, 2, 3),
    few: fc.boolean(),
    /** Of the open grants: how many calls got their response, and how many uses of one grant are returned. */
    done: fc.nat(3),
    unused: fc.constantFrom(0, 0, 0, 1, 2),
    told: fc.option(wild, { freq: 2 }),
    slack: fc.constantFrom(0, 0, 0, 150),
    late: fc.boolean(),
  }),
  async (world, engine, { handle, ...args }) => {
    const { limit, now, server } = world;
    const by = choose(world, handle);
    const mine = world.grants.filter(
      (grant) => grant.by.job === by.job && grant.by.lease === by.lease && grant.left > 0,
    );
    const back = mine[0];
    const unused = Math.min(args.unused, back?.left ?? 0);
    const done = server
      ? Math.min(args.done, mine.length > 0 && !unused ? 1 : 0)
      : Math.min(args.done, open(mine) - unused);
    // A call whose lease is lost is not continued, so its response is not reported.
    const told = server ? (done > 0 && world.holds(by) ? server.call(now) : null) : args.told;
    const least = server || args.few ? Math.min(1, args.take) : args.take;
    const wanted: Use = { take: args.take, least, done, unused, told, slack: args.slack, bin: back?.bin ?? null };
    const unknown = limit.isUnknown(now);

    const answer = await engine.use(by, wanted, back?.text ?? null);
    const should = limit.use(now, world.origin, by, world.holds(by), world.isLive, wanted);
    if (typeof answer === "string" || typeof should === "string") {
      if (answer === "SW005") hits.stale += 1;
      return { said: answer, should, what: { by, ...wanted } };
    }
    if (back) giveBack(world, back, unused);
    answered(mine, done);
    count(world, wanted, answer.granted, unknown, world.outstanding() - should.granted);
    world.waitUntil = answer.waitUntil;
    if (answer.granted > 0) {
      const arrives = now + (args.late && limit.settings.period ? useWithin(limit.settings.period) + args.slack : 0);
      const made = Array.from({ length: answer.granted }, () => arrives);
      world.grants.push({
        by,
        left: answer.granted,
        bin: answer.bin && (should.bin ?? null),
        text: answer.text,
        made,
      });
      world.made.push(...made);
    }
    return {
      said: [answer.granted, round(answer.waitUntil), round(answer.bin)],
      should: [should.granted, round(should.waitUntil), round(should.bin)],
      what: { by, ...wanted },
    };
  },
  hasHandle,
);

function open(grants: OpenGrant[]): number {
  return grants.reduce((sum, { left }) => sum + left, 0);
}

function giveBack(world: FlowWorld, grant: OpenGrant, unused: number): void {
  for (let each = 0; each < unused; each++) {
    world.made.splice(world.made.indexOf(grant.made.pop()!), 1);
    grant.left -= 1;
    hits.unused += 1;
  }
}

function answered(grants: OpenGrant[], done: number): void {
  for (let left = done; left > 0; left--) {
    const grant = grants.find((each) => each.left > 0);
    if (grant) grant.left -= 1;
  }
}

function count(
  { limit, now }: FlowWorld,
  { take, least, told }: Use,
  granted: number,
  unknown: boolean,
  before: number,
): void {
  const { max, concurrency } = limit.settings;
  hits.granted += granted;
  if (told?.remaining !== undefined && limit.settings.learn) hits.learned += 1;
  if (granted > 0 && unknown && told === null) {
    hits.scouts += 1;
    assert.ok(
      before === 0 && granted <= Math.max(1, least),
      "several calls go first into a window of which nothing is known",
    );
  }
  if (take === 0 || granted > 0) return;
  if ((limit.blockedUntil ?? 0) > now) hits.blocked += 1;
  else if (concurrency !== undefined && before >= concurrency) hits.busy += 1;
  else if (max !== undefined) hits.full += 1;
}

const forget = move(
  "reset the limit",
  fc.constant(null),
  async (world, engine) => {
    await engine.forget();
    Object.assign(world.limit, { blockedUntil: null, resetAt: null, turnAt: null, remaining: null });
    return { said: null, should: null };
  },
  (world) => world.server === undefined,
);

const ask = move(
  "ask",
  someHandle,
  async (world, engine, which) => {
    const by = choose(world, which);
    const answer = await engine.ask(by);
    const said = typeof answer === "string" ? answer : answer.resumeAt;
    if (world.breaker.resumeAt === null) assert.equal(said, null, "a closed breaker holds a job");
    const should = world.breaker.ask(world.now, by, world.holds(by), world.isProbing());
    if (said === null && world.holds(by)) world.letThrough(by);
    return { said, should, what: by };
  },
  hasHandle,
);

const tell = move(
  "tell",
  fc.record({ handle: someHandle, succeeded: fc.constantFrom(true, false, false, false) }),
  async (world, engine, { handle, succeeded }) => {
    const by = choose(world, handle);
    const answer = await engine.tell(by, succeeded);
    const { breaker } = world;
    const was = breaker.resumeAt;
    if (was !== null && !succeeded && breaker.isProbe(by)) hits.probeFailed += 1;
    if (succeeded && was !== null && !(breaker.byHand && was > world.now)) world.closeBreaker();
    world.probing = world.probing.filter((each) => each.job !== by.job || each.lease !== by.lease);
    const should = breaker.tell(world.now, by, succeeded);
    if (was === null && should !== null) hits.opened += 1;
    return { said: typeof answer === "string" ? answer : answer.resumeAt, should, what: { by, succeeded } };
  },
  hasHandle,
);

const openByHand = move("open", fc.constantFrom(null, 5000), async (world, engine, forMs) => {
  await engine.openBreaker(forMs);
  world.breaker.open(world.now, forMs);
  world.probing = [];
  return { said: null, should: null };
});

const closeByHand = move("close", fc.constant(null), async (world, engine) => {
  await engine.closeBreaker();
  if (world.breaker.resumeAt !== null) world.closeBreaker();
  world.breaker.close();
  return { said: null, should: null };
});

const travel = move(
  "travel",
  fc.constantFrom("wait", "wait", "resume", 1, 40, 500, 1000, 5000, 10_200, 61_000),
  async (world, engine, to) => {
    const moments = { wait: world.waitUntil, resume: world.breaker.resumeAt };
    const target = typeof to === "number" ? world.now + to : moments[to as "wait" | "resume"];
    // To the exact millisecond, or the first one after.
    const by = target === null || target === FOREVER ? 20 : Math.max(0, Math.ceil(target - world.now));
    await engine.travel(by);
    world.now += by;
    return { said: by, should: by };
  },
);

export const flowMoves = [
  ...[claim, claim, claim, claim, use, use, use, use, use, use, use, use, travel, travel, travel, travel],
  ...[settle, settle, recover, ask, ask, ask, tell, tell, tell, tell, openByHand, closeByHand, forget],
];
