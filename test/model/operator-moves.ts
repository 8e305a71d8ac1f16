// The moves of everybody else: clients, operators, the watchdog, and time.
import fc from "fast-check";
import * as control from "./control.ts";
import { chooseJob, commandOf, countingEnds, isSettledWho, someJob } from "./move.ts";
import * as verbs from "./verbs.ts";

const enqueue = commandOf({
  name: "enqueue",
  args: fc.record({
    pipeline: fc.constantFrom("alpha", "alpha", "beta", "gamma"),
    delay: fc.option(fc.constantFrom(0, 1000, 10_000), { freq: 2 }),
    priority: fc.option(fc.constantFrom(-1, 0, 5, 9), { freq: 2 }),
    idempotencyKey: fc.option(fc.constantFrom("a", "b"), { freq: 2 }),
    expiresIn: fc.option(fc.constantFrom(5000, 10_000, 30_000), { freq: 2 }),
    maxAttempts: fc.option(fc.constantFrom(1, 2, 3), { freq: 2 }),
  }),
  ready: (world) => world.jobs.size < 7,
  async make(world, { engine, newId }, { pipeline, ...options }) {
    const id = newId(world.jobs.size);
    const said = await engine.enqueue(id, pipeline, options);
    return { said, should: verbs.enqueue(world, id, pipeline, options), what: { pipeline, ...options } };
  },
});

const cancel = commandOf({
  name: "cancel",
  args: someJob,
  async make(world, { engine }, index) {
    const id = chooseJob(world, index);
    const said = await engine.ask("stillwake.cancel($1, $2)", [id, "no longer wanted"]);
    return { said, should: control.cancel(world, id, "no longer wanted"), what: id };
  },
});

const pause = commandOf({
  name: "pause",
  args: someJob,
  async make(world, { engine }, index) {
    const id = chooseJob(world, index);
    const said = await engine.ask("stillwake.pause($1, $2)", [id, "looking into it"]);
    return { said, should: control.pause(world, id, "looking into it"), what: id };
  },
});

const resume = commandOf({
  name: "resume",
  args: someJob,
  async make(world, { engine }, index) {
    const id = chooseJob(world, index);
    return { said: await engine.ask("stillwake.resume($1)", [id]), should: control.resume(world, id), what: id };
  },
});

const retry = commandOf({
  name: "retry",
  args: fc.tuple(someJob, fc.boolean()),
  async make(world, { engine }, [index, fromStart]) {
    const id = chooseJob(world, index);
    const said = await engine.ask("stillwake.retry($1, $2)", [id, fromStart]);
    return { said, should: control.retry(world, id, fromStart), what: { id, fromStart } };
  },
});

const holdPool = commandOf({
  name: "pause or resume a pool",
  args: fc.record({ pool: fc.constantFrom("default", "gpu", "unheard-of"), paused: fc.boolean() }),
  ready: (world, { pool, paused }) => paused !== world.pausedPools.has(pool),
  async make(world, { engine }, { pool, paused }) {
    const said = await engine.ask(`stillwake.${paused ? "pause_pool" : "resume_pool"}($1)`, [pool]);
    const known = pool !== "unheard-of";
    if (known && paused) world.pausedPools.add(pool);
    else world.pausedPools.delete(pool);
    return { said, should: known ? "" : "SW003", what: { pool, paused } };
  },
});

const sweep = { limit: fc.integer({ min: 1, max: 4 }), pool: fc.constantFrom(null, "default", "gpu") };

const recover = commandOf({
  name: "recover",
  args: fc.record(sweep),
  ready: (world, { limit, pool }) => isSettledWho(world, limit, pool),
  async make(world, real, { limit, pool }) {
    const said = await real.engine.ask("stillwake.recover($1, $2)", [limit, pool]);
    const should = countingEnds(world, real, () => verbs.recover(world, limit, pool));
    real.shots.recovered += should;
    return { said, should, what: { limit, pool } };
  },
});

const expire = commandOf({
  name: "expire",
  args: fc.record(sweep),
  ready: (world, { limit, pool }) => isSettledWho(world, limit, pool),
  async make(world, { engine }, { limit, pool }) {
    const said = await engine.ask("stillwake.expire($1, $2)", [limit, pool]);
    return { said, should: verbs.expire(world, limit, pool), what: { limit, pool } };
  },
});

const nextDue = commandOf({
  name: "next due",
  args: fc.constantFrom(null, "default", "gpu"),
  async make(world, { engine }, pool) {
    const said = await engine.ask("since_start(stillwake.next_due($1))", [pool && [pool]]);
    return { said, should: verbs.nextDue(world, pool), what: pool };
  },
});

// The spans of leases, delays and back-offs, exactly and a little more: what is due at a moment is due at that moment.
const travel = commandOf({
  name: "travel",
  args: fc.constantFrom(1, 1000, 5000, 5001, 5001, 10_000, 10_001, 30_001),
  async make(world, { engine }, ms) {
    await engine.travel(ms);
    world.now += ms;
    return { said: ms, should: ms, what: ms };
  },
});

export const otherMoves = [
  ...[enqueue, enqueue, enqueue, enqueue, travel, travel, travel, travel, recover, recover],
  ...[cancel, pause, resume, retry, retry, expire, holdPool, nextDue],
];
