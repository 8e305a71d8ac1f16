// The moves of clients, operators, the watchdog, and time.
import fc from "fast-check";
import * as calls from "./calls.ts";
import * as control from "./control.ts";
import type { EnqueueOptions } from "./enqueue.ts";
import * as model from "./enqueue.ts";
import { chooseJob, commandOf, countingEnds, isDeterministic, someJob } from "./move.ts";
import { pipelines, type World } from "./world.ts";

/** How many jobs a game may have, how many arrive at once, and with which keys and tenants. */
export interface Arrivals {
  maxJobs: number;
  atOnce: number;
  keys: (string | null)[];
  tenants: (string | null)[];
}

const label = (labels: string[]) => fc.option(fc.constantFrom(...labels), { freq: 2 });

const enqueueOf = ({ maxJobs, atOnce, keys, tenants }: Arrivals) =>
  commandOf({
    name: "enqueue",
    args: fc.record({
      pipeline: fc.constantFrom("alpha", "alpha", "beta", "gamma"),
      delay: fc.option(fc.constantFrom(0, 1000, 10_000), { freq: 2 }),
      priority: fc.option(fc.constantFrom(-1, 0, 5, 9), { freq: 2 }),
      expiresIn: fc.option(fc.constantFrom(5000, 10_000, 30_000), { freq: 2 }),
      maxAttempts: fc.option(fc.constantFrom(1, 2, 3), { freq: 2 }),
      onConflict: fc.constantFrom(null, "join", "wait", "wait", "replace", "reject"),
      labels: fc.array(
        fc.record({
          key: fc.constantFrom(...keys),
          tenant: fc.constantFrom(...tenants),
          idempotencyKey: label(["a", "b"]),
        }),
        { minLength: 1, maxLength: atOnce },
      ),
    }),
    ready: (world, { labels }) => world.jobs.size + labels.length <= maxJobs,
    async make(world, { engine, newId, hits }, { pipeline, labels, ...options }) {
      const entries = labels.map((each) => ({ id: newId(world.ids++), ...each }));
      const ids = entries.map(({ id }) => id);
      const said = await engine.enqueue(pipeline, entries, options as EnqueueOptions);
      const before = countReplaced(world);
      const should = model.enqueue(world, pipeline, entries, options as EnqueueOptions);
      if (should === "SW007") hits.rejected += 1;
      hits.replaced += countReplaced(world) - before;
      hits.joined += entries.filter(({ id }, index) => id !== ids[index]).length;
      // With join, only jobs whose key is held by a job that is being cancelled wait.
      if ((options.onConflict ?? pipelines[pipeline]!.onConflict) === "join")
        hits.spared += ids.filter((id) => world.jobs.get(id)?.waitingFor === "key").length;
      hits.waited += ids.filter((id) => world.jobs.get(id)?.waitingFor === "key").length;
      return {
        said,
        should,
        what: { pipeline, entries: entries.map((entry, n) => ({ ...entry, id: ids[n] })), ...options },
      };
    },
  });

function countReplaced(world: World): number {
  return [...world.jobs.values()].filter((job) => job.cancel?.startsWith("Replaced")).length;
}

const enqueueOpen = ({ maxJobs }: Arrivals) =>
  commandOf({
    name: "enqueue in an open transaction",
    args: fc.constantFrom("alpha", "beta", "gamma", "gamma"),
    ready: (world) => world.open === null && world.jobs.size < maxJobs,
    async make(world, { engine, newId }, pipeline) {
      const id = newId(world.ids++);
      await engine.enqueueOpen(pipeline, id);
      world.open = { pipeline, id, at: world.now, laned: world.lanedPools.has(pipelines[pipeline]!.pool) };
      return { said: null, should: null, what: { pipeline, id } };
    },
  });

const commitOpen = commandOf({
  name: "commit it",
  args: fc.constant(null),
  ready: (world) => world.open !== null,
  async make(world, { engine, hits }) {
    const { pipeline, id, at, laned } = world.open!;
    await engine.commitOpen();
    model.enqueue(
      { ...world, now: at },
      pipeline,
      [{ id, key: null, idempotencyKey: null, tenant: null }],
      model.noOptions,
    );
    if (!laned && world.lanedPools.has(pipelines[pipeline]!.pool)) hits.strays += 1;
    world.open = null;
    return { said: null, should: null, what: id };
  },
});

const giveLanes = commandOf({
  name: "give a pool lanes",
  args: fc.constantFrom("default", "gpu", "gpu"),
  ready: (world, pool) => !world.lanedPools.has(pool),
  async make(world, { engine }, pool) {
    await engine.giveLanes(pool);
    world.lanedPools.add(pool);
    return { said: null, should: null, what: pool };
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
  ready: (world, { limit, pool }) => isDeterministic(world, limit, pool),
  async make(world, real, { limit, pool }) {
    const said = await real.engine.ask("stillwake.recover($1, $2)", [limit, pool]);
    const should = countingEnds(world, real, () => calls.recover(world, limit, pool));
    real.hits.recovered += should;
    return { said, should, what: { limit, pool } };
  },
});

/** A signal or pause whose transaction is open while leases are recovered, and is rolled back. */
const recoverBesideTransaction = commandOf({
  name: "recover beside an open transaction",
  args: fc.record({ ...sweep, job: someJob }),
  ready: (world, { limit, pool }) => isDeterministic(world, limit, pool),
  async make(world, real, { limit, pool, job: index }) {
    const job = chooseJob(world, index);
    const said = await real.engine.besideTransaction("select stillwake.lock_job($1)", [job], () =>
      real.engine.ask("stillwake.recover($1, $2)", [limit, pool]),
    );
    const locked = world.jobs.get(job)?.lease ?? null;
    const should = countingEnds(world, real, () => calls.recover(world, limit, pool, false, locked));
    return { said, should, what: { limit, pool, job } };
  },
});

const expire = commandOf({
  name: "expire",
  args: fc.record(sweep),
  ready: (world, { limit, pool }) => isDeterministic(world, limit, pool),
  async make(world, { engine }, { limit, pool }) {
    const said = await engine.ask("stillwake.expire($1, $2)", [limit, pool]);
    return { said, should: calls.expire(world, limit, pool), what: { limit, pool } };
  },
});

const watchdog = commandOf({
  name: "watchdog",
  args: fc.constant(null),
  async make(world, real) {
    const rows = await real.engine.call<{ act: string; count: string; note: string }>(
      "select * from stillwake.watchdog()",
      [],
    );
    const acts = (rows as { act: string; count: string; note: string }[]).filter(({ count }) => count !== "0");
    const { recovered, expired } = countingEnds(world, real, () => calls.watchdog(world));
    real.hits.recovered += recovered;
    const wanted = { recovered, expired, admitted: 0 };
    const counts = Object.keys(wanted).map((act) => [act, Number(acts.find((row) => row.act === act)?.count ?? 0)]);
    return { said: Object.fromEntries(counts), should: wanted, what: null };
  },
});

const nextDue = commandOf({
  name: "next due",
  args: fc.constantFrom(null, "default", "gpu"),
  async make(world, { engine }, pool) {
    const said = await engine.ask<number | null>("since_start(stillwake.next_due($1))", [pool && [pool]]);
    // With lanes the first job that is due ends the search: since when it is due is not specified.
    const past = (due: number | string | null) =>
      typeof due === "number" && world.lanedPools.size > 0 ? Math.max(due, world.now) : due;
    return { said: past(said), should: past(calls.nextDue(world, pool)), what: pool };
  },
});

/** The server is another one on a new timeline. The next recovery notices it. */
const promotion = commandOf({
  name: "promotion",
  args: fc.constant(null),
  async make(world, { engine }) {
    await engine.promote();
    world.promoted = true;
    return { said: null, should: null, what: null };
  },
});

// The spans of leases, delays and back-offs, exactly and a little more: boundaries are inclusive.
const travel = commandOf({
  name: "travel",
  args: fc.constantFrom(1, 1000, 5000, 5001, 5001, 10_000, 10_001, 30_001),
  async make(world, { engine }, ms) {
    await engine.travel(ms);
    world.now += ms;
    return { said: ms, should: ms, what: ms };
  },
});

export const otherMoves = (arrivals: Arrivals) => {
  const enqueue = enqueueOf(arrivals);
  return [
    ...[enqueue, enqueue, enqueue, enqueue, travel, travel, travel, travel, recover, recover],
    ...[enqueueOpen(arrivals), commitOpen, giveLanes],
    ...[cancel, cancel, pause, pause, resume, resume, retry, retry, expire, holdPool, nextDue, watchdog, promotion],
    recoverBesideTransaction,
  ];
};
