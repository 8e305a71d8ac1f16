// A pooler between Stillwake and Postgres. Through one that shares sessions everything works except hints and presence,
// which is reported once; with an additional direct URL, or through one that keeps sessions, those work too. No lock of a worker stays in the pool.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import {
  type Found,
  findPgBouncer,
  type PgBouncer,
  type PgBouncerOptions,
  startPgBouncer,
} from "../support/database/pgbouncer.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

const found = findPgBouncer();
const database = await freshDatabase();
const sql = await connect(database.url);

beforeAll(() => sql.query("create table notes (id serial primary key, text text)"));

const poolers: {
  title: string;
  shared: boolean;
  since?: number[];
  options: Pick<PgBouncerOptions, "mode" | "settings">;
}[] = [
  { title: "transaction mode", shared: true, options: { mode: "transaction" } },
  {
    title: "transaction mode with max_prepared_statements",
    shared: true,
    since: [1, 21],
    options: { mode: "transaction", settings: { max_prepared_statements: 100 } },
  },
  { title: "session mode", shared: false, options: { mode: "session" } },
];

describe.each(poolers)("PgBouncer in $title", ({ title, shared, since, options }) => {
  const reason = typeof found === "string" ? found : tooOld(found, since);
  const label = `${title}${typeof found === "string" ? "" : `, ${found.version.join(".")}`}`;
  let pooler: PgBouncer;

  beforeAll(async () => {
    if (reason === undefined)
      pooler = await startPgBouncer({
        program: (found as Found).program,
        url: database.url,
        size: shared ? 6 : 40,
        ...options,
      });
  });
  afterAll(async () => {
    await pooler?.[Symbol.asyncDispose]();
  });
  const passes = (what: string, test: () => Promise<void>) =>
    it(what, { timeout: 40_000 }, async (context) => {
      if (reason !== undefined) context.skip(reason);
      await test();
      recordFigure(`pooler: ${label}: ${what}`, 1, "", "passes");
    });

  passes("a client enqueues, enqueues many, joins a transaction, cancels, pauses and lists", async () => {
    await using stillwake = createStillwake({ url: pooler.url });
    const mail = pipeline<number>("mail", { pool: "nobody" });
    const one = await stillwake.enqueue(mail, 1, { idempotencyKey: `${label} 1` });
    expect(await stillwake.enqueue(mail, 1, { idempotencyKey: `${label} 1` })).toEqual({ id: one.id, existing: true });
    const many = await stillwake.enqueueMany(mail, [...new Array(2_000).keys()]);
    expect(new Set(many.map(({ id }) => id)).size).toBe(2_000);
    const crowd = await Promise.all(Array.from({ length: 50 }, (_, n) => stillwake.enqueue(mail, n)));
    expect(crowd.every(({ existing }) => !existing)).toBe(true);

    const pool = new pg.Pool({ connectionString: pooler.url });
    const outcomes: Record<string, string> = {};
    for (const end of ["commit", "rollback"]) {
      const tx = await pool.connect();
      await tx.query("begin");
      await tx.query("insert into notes (text) values ($1)", [`${label} ${end}`]);
      outcomes[end] = (await stillwake.enqueue(mail, 7, { tx })).id;
      await tx.query(end);
      tx.release();
    }
    await pool.end();
    expect((await stillwake.get(outcomes.commit!)).state).toBe("queued");
    await expect(stillwake.get(outcomes.rollback!)).rejects.toMatchObject({ code: "JOB_NOT_FOUND" });
    const { rows } = await sql.query("select text from notes where text like $1 || '%'", [label]);
    expect(rows).toEqual([{ text: `${label} commit` }]);

    expect(await stillwake.pause(one.id)).toBe("paused");
    expect(await stillwake.resume(one.id)).toBe("queued");
    expect(await stillwake.cancel(one.id)).toBe("cancelled");
    expect(await stillwake.retry(one.id)).toBe("queued");
    expect((await stillwake.list({ pool: "nobody", limit: 200 })).jobs).toHaveLength(200);
    await Promise.all(many.slice(0, 100).map(({ id }) => stillwake.cancel(id)));
  });

  passes(
    shared
      ? "a worker without a direct URL reports it once, polls, and leaves no session lock in the pool"
      : "a worker without a direct URL has hints and presence, and its lock ends with its session",
    async () => {
      const pool = `pooled-${options.mode}${options.settings ? "-prepared" : ""}`;
      const counted = countedEffects(pool, { pool, steps: 2 });
      await using stillwake = createStillwake({ url: pooler.url });
      const worker = await startRecordedWorker({
        url: pooler.url,
        pool,
        pipelines: [counted.implementation],
        slots: 4,
        connections: 3,
        poll: "200ms",
        pollWithHints: "5m",
      });
      await worker.waitForEvent(shared ? "hints.unavailable" : "hints.ready");
      const jobs = await stillwake.enqueueMany(pool, new Array(40).fill({}));
      await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "20s" })));
      expect(counted.repeats()).toBe(0);
      await waitFor(() => worker.worker.health().active === 0);
      // Idle again: a poll wakes it in the one case and a hint in the other.
      const { id } = await stillwake.enqueue(pool, {});
      await stillwake.wait(id, { timeout: "20s" });
      expect(worker.worker.health().hints).toBe(shared ? "unavailable" : "ready");
      expect(worker.eventsOf("hints.unavailable")).toHaveLength(shared ? 1 : 0);
      expect(worker.eventsOf("hints.lost")).toEqual([]);
      expect(await sessionLocks()).toBe(shared ? 0 : 1);
      expect(worker.eventsOf("claim.failed")).toEqual([]);
      await worker.worker.stop();
      await waitFor(async () => (await sessionLocks()) === 0, { what: "the worker's lock to be gone" });
    },
  );

  passes("a worker with a direct URL has hints and presence", async () => {
    const pool = `direct-${options.mode}${options.settings ? "-prepared" : ""}`;
    const { promise: until, resolve: finish } = deferred();
    const run = implement(pipeline(pool, { pool }), () => until);
    const worker = await startRecordedWorker({
      url: pooler.url,
      directUrl: database.url,
      pool,
      pipelines: [run],
      slots: 2,
      poll: "5m",
      pollWithHints: "5m",
    });
    await worker.waitForEvent("hints.ready");
    await worker.waitForEvent("claim.empty", { after: performance.now() - 500 });
    await using stillwake = createStillwake({ url: pooler.url });
    const { id } = await stillwake.enqueue(pool, {});
    await worker.waitForEvent("attempt.started");
    const { rows } = await sql.query(
      "select presence is not null as named, pg_try_advisory_xact_lock_shared(presence) as free from stillwake.leases where pool = $1",
      [pool],
    );
    expect(rows).toEqual([{ named: true, free: false }]);
    expect(await sessionLocks()).toBe(1);
    finish();
    await stillwake.wait(id, { timeout: "20s" });
    expect(worker.eventsOf("hints.unavailable")).toEqual([]);
    await worker.worker.stop();
    await waitFor(async () => (await sessionLocks()) === 0, { what: "the worker's lock to be gone" });
  });

  if (shared) {
    passes(
      "20 workers that start at once all detect that sessions are shared, and no lock is left in the pool",
      async () => {
        const pool = `crowd${options.settings ? "-prepared" : ""}`;
        const counted = countedEffects(pool, { pool, steps: 1 });
        const start = () =>
          startRecordedWorker(
            {
              url: pooler.url,
              pool,
              pipelines: [counted.implementation],
              slots: 2,
              connections: 2,
              poll: "100ms",
            },
            true,
          );
        const workers = await Promise.all(Array.from({ length: 20 }, start));
        await using stillwake = createStillwake({ url: pooler.url });
        await stillwake.register(counted.implementation.pipeline as never);
        const jobs = await stillwake.enqueueMany(pool, new Array(400).fill({}));
        await Promise.all(workers.map(({ worker }) => worker.start()));
        await Promise.all(
          workers.map((worker) => waitFor(() => worker.events.find(({ kind }) => kind.startsWith("hints.")))),
        );
        await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "30s" })));
        const said = workers.map((worker) =>
          worker.events.filter(({ kind }) => kind.startsWith("hints.")).map(({ kind }) => kind),
        );
        const locks = await sessionLocks();
        recordFigure(`pooler: ${label}: session locks left in the pool by 20 workers`, locks);
        expect({ locks, said }).toEqual({ locks: 0, said: workers.map(() => ["hints.unavailable"]) });
        expect(counted.repeats()).toBe(0);
      },
    );
  }
});

/** Advisory locks that outlive their transaction, in this database. */
async function sessionLocks(): Promise<number> {
  const { rows } = await sql.query(
    "select count(*)::int from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.datname = current_database() and a.xact_start is null",
  );
  return rows[0].count;
}

function tooOld({ version }: Found, since: number[] | undefined): string | undefined {
  if (!since || version[0]! > since[0]! || (version[0] === since[0] && version[1]! >= since[1]!)) return undefined;
  return `PgBouncer ${version.join(".")} has no max_prepared_statements: it came with ${since.join(".")}`;
}
