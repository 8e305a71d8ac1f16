// job.tx(): rows and checkpoint commit together or not at all, with every supported library and every connection failure.
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Transaction } from "../../src/db/transaction.ts";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement, type JobContext, type StepHandle } from "../../src/worker/index.ts";
import { type Library, libraries, type Opened } from "../support/database/transaction-libraries.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const {
  database,
  run,
  query,
  checkpoints,
  attempts,
  logs: readLogs,
  start,
  until,
  name,
  stillwake,
} = await inProcessFixture();
const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;
let nextRow = 1;

beforeAll(() => query("create table own_rows (id integer primary key)"));

const rowIsThere = async (id: number) => (await query("select from own_rows where id = $1", [id])).length === 1;

/** Removes the lease, as after an expiry that another worker has noticed, before the job is claimed again. */
const takeLease = (job: string) =>
  query("select stillwake.recover_lease(l, 1000) from stillwake.leases l where $1 = any (l.job_ids)", [job]);

/** Passes the library's own transaction function to job.tx(), as a user would. */
function insertIn<T>(
  library: Opened,
  job: JobContext,
  row: number,
  then: (step: StepHandle) => T | Promise<T>,
): Promise<T> {
  let insert: (id: number) => Promise<unknown> = async () => {};
  const begin = (work: (tx: Transaction) => Promise<unknown>) =>
    library.transaction((tx, insertRow) => {
      insert = insertRow;
      return work(tx);
    });
  return job.tx("insert", { start: "Inserting...", end: "Inserted" }, begin, async (_, step) => {
    await insert(row);
    return then(step);
  });
}

describe.each(libraries)("in a transaction of $name", ({ open }) => {
  let library: Opened;
  beforeAll(async () => {
    library = await open(database.url);
  });
  afterAll(() => library?.close());

  it("the row and the checkpoint commit together, neither is visible before, and a second attempt finds the step done", async () => {
    const row = nextRow++;
    const before: unknown[] = [];
    const seen: unknown[] = [];
    let calls = 0;
    const { job, id, logs } = await run({ pipeline: twice }, async (context) => {
      const result = await insertIn(library, context, row, async () => {
        calls += 1;
        before.push(await rowIsThere(row), await checkpoints(context.id));
        return { at: new Date(5), size: 7n };
      });
      seen.push(result, await rowIsThere(row));
      if (context.attempt === 1) throw new Error("after the step");
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(before).toEqual([false, []]);
    expect(calls).toBe(1);
    expect(seen).toEqual([{ at: new Date(5), size: 7n }, true, { at: new Date(5), size: 7n }, true]);
    expect(await checkpoints(id)).toMatchObject([{ step: "insert", epoch: "1" }]);
    expect(logs.map(({ message }) => message)).toEqual(["Inserting...", "Inserted", "after the step"]);
  });

  it("a function that passes the database instead of a transaction fails the job before the step's code runs", async () => {
    let calls = 0;
    const { job, id } = await run(async (context) => {
      await context.tx(
        "insert",
        {},
        (work: (tx: Transaction) => Promise<unknown>) => work(library.outside),
        () => {
          calls += 1;
        },
      );
    });
    expect(job).toMatchObject({ state: "failed", failure: { code: "INVALID_INPUT" } });
    expect(job.failure!.message).toMatch(/^tx is .*: the call would not be part of a transaction\. Pass /);
    expect(calls).toBe(0);
    expect(await checkpoints(id)).toEqual([]);
  });

  it("an error rolls both back, and the next attempt runs the step again", async () => {
    const row = nextRow++;
    const left: unknown[] = [];
    const { job, id } = await run({ pipeline: twice }, async (context) => {
      if (context.attempt === 2) left.push(await rowIsThere(row), await checkpoints(context.id));
      await insertIn(library, context, row, () => {
        if (context.attempt === 1) throw new Error("changed my mind");
      });
    });
    expect(left).toEqual([false, []]);
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(await rowIsThere(row)).toBe(true);
    expect((await attempts(id))[0]!.failure).toMatchObject({ message: "changed my mind", step: "insert" });
  });

  it("an attempt without its lease cannot commit", async () => {
    const row = nextRow++;
    let calls = 0;
    const left: unknown[] = [];
    const { job, id, events } = await run({ worker: { lease: "1h", slots: 1, poll: "20ms" } }, async (context) => {
      if (context.attempt === 2) left.push(await rowIsThere(row), await checkpoints(context.id));
      await insertIn(library, context, row, async () => {
        calls += 1;
        if (context.attempt === 1) await takeLease(context.id);
      });
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
    expect(left).toEqual([false, []]);
    expect(calls).toBe(2);
    expect(await rowIsThere(row)).toBe(true);
    expect(events.filter(({ kind }) => kind === "write.refused").length).toBeGreaterThan(0);
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["lost", "completed"]);
    expect((await readLogs(id)).filter(({ epoch, level }) => epoch === "1" && level === "error")).toEqual([]);
  });
});

/** A pool with an error listener: a broken connection must not crash the process. */
function poolAt(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

/** Opened so that a broken connection does not crash the process. Without Prisma, which cannot be closed after one. */
const breaking: Library[] = [
  ...libraries.filter(({ name }) => name === "Knex"),
  {
    name: "postgres.js",
    async open(url) {
      const db = postgres(url, { onnotice: () => {} });
      const transaction: Opened["transaction"] = (work) =>
        db.begin((tx) => work(tx, async (id) => tx`insert into own_rows values (${id})`)) as never;
      return { transaction, outside: {} as never, close: () => db.end({ timeout: 0 }) };
    },
  },
  {
    name: "Drizzle",
    async open(url) {
      const pool = poolAt(url);
      const transaction: Opened["transaction"] = (work) =>
        drizzle(pool).transaction((tx) => work(tx, (id) => tx.execute(sql`insert into own_rows values (${id})`)));
      return { transaction, outside: {} as never, close: () => pool.end() };
    },
  },
  {
    name: "Kysely",
    async open(url) {
      const db = new Kysely<{ own_rows: { id: number } }>({ dialect: new PostgresDialect({ pool: poolAt(url) }) });
      const transaction: Opened["transaction"] = (work) =>
        db.transaction().execute((tx) => work(tx, (id) => tx.insertInto("own_rows").values({ id }).execute()));
      return { transaction, outside: {} as never, close: () => db.destroy() };
    },
  },
];

let counted = 0;

describe("when the response to COMMIT is lost", () => {
  it.each(breaking)("$name: the step is done, in the same attempt, once", async ({ open }) => {
    await using proxy = await faultProxy(database.url);
    const library = await open(proxy.url);
    const row = nextRow++;
    let calls = 0;
    const cut = proxy.cutAfterServerReceives((sent) => /commit/i.test(sent.toString("latin1")));
    const { job, id } = await run({ pipeline: { retry: { attempts: 1 } } }, (context) =>
      insertIn(library, context, row, () => {
        calls += 1;
        return "inserted";
      }),
    );
    await cut;
    await library.close();
    expect(job).toMatchObject({ state: "completed", output: "inserted", attempt: 1, failure: null });
    expect(calls).toBe(1);
    expect(await rowIsThere(row)).toBe(true);
    expect(await checkpoints(id)).toHaveLength(1);
    counted += 1;
  });

  it("pg.Pool: the step is done, in the same attempt, once, and the broken connection is not used again", async () => {
    await using proxy = await faultProxy(database.url);
    const pool = new pg.Pool({ connectionString: proxy.url, max: 1 });
    pool.on("error", () => {});
    const rows = [nextRow++, nextRow++];
    const cut = proxy.cutAfterServerReceives((sent) => /commit/i.test(sent.toString("latin1")));
    const { job, id } = await run({ pipeline: { retry: { attempts: 1 } } }, async (context) => {
      for (const row of rows) {
        await context.tx(`insert ${row}`, {}, pool, async (tx) => {
          expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>();
          await tx.query("insert into own_rows values ($1)", [row]);
        });
      }
    });
    await cut;
    await pool.end();
    expect(job).toMatchObject({ state: "completed", attempt: 1, failure: null });
    for (const row of rows) expect(await rowIsThere(row)).toBe(true);
    expect(await checkpoints(id)).toHaveLength(2);
    counted += 1;
    recordFigure(
      "transactions counted once although the response to COMMIT was lost",
      counted,
      "",
      "of as many libraries",
    );
  });

  it("and COMMIT never arrived, the step is not done and the next attempt runs it", async () => {
    await using proxy = await faultProxy(database.url);
    const pool = new pg.Pool({ connectionString: proxy.url, max: 1 });
    pool.on("error", () => {});
    const row = nextRow++;
    let calls = 0;
    const { job } = await run({ pipeline: twice }, (context) =>
      context.tx("insert", {}, pool, async (tx) => {
        calls += 1;
        await tx.query("insert into own_rows values ($1)", [row]);
        if (calls === 1) proxy.reset();
      }),
    );
    await pool.end();
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(calls).toBe(2);
    expect(await rowIsThere(row)).toBe(true);
  });
});

describe("a transaction whose connection breaks between two statements", () => {
  it("fails the attempt and not the process", async () => {
    await using proxy = await faultProxy(database.url);
    const pool = new pg.Pool({ connectionString: proxy.url, max: 1 });
    pool.on("error", () => {});
    const row = nextRow++;
    let calls = 0;
    const { job, id } = await run({ pipeline: twice }, (context) =>
      context.tx("insert", {}, pool, async (tx) => {
        calls += 1;
        await tx.query("insert into own_rows values ($1)", [row]);
        if (calls > 1) return;
        proxy.reset();
        await waitFor(async () => proxy.connections() === 0);
        // No statement is in flight: the connection can only emit an error event.
        await new Promise((resolve) => setImmediate(resolve));
      }),
    );
    await pool.end();
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(await rowIsThere(row)).toBe(true);
    expect((await attempts(id))[0]!.outcome).toBe("failed");
  });
});

describe("a transaction step", () => {
  it("whose checkpoint another connection has saved is not done twice: its rows are rolled back", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 2 });
    const row = nextRow++;
    const { job, id } = await run((context) =>
      context.tx("insert", {}, pool, async (tx) => {
        await tx.query("insert into own_rows values ($1)", [row]);
        await query(
          "insert into stillwake.checkpoints (job_id, step, epoch, saved_at, output) values ($1, 'insert', 1, now(), to_jsonb('first'::text))",
          [context.id],
        );
        return "second";
      }),
    );
    await pool.end();
    expect(job).toMatchObject({ state: "completed", output: "first" });
    expect(await rowIsThere(row)).toBe(false);
    expect(await checkpoints(id)).toHaveLength(1);
  });

  it("whose result is unsupported commits nothing", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 2 });
    const row = nextRow++;
    const { job } = await run((context) =>
      context.tx("insert", {}, pool, async (tx) => {
        await tx.query("insert into own_rows values ($1)", [row]);
        return new Map();
      }),
    );
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT", step: "insert" } });
    expect(await rowIsThere(row)).toBe(false);
    expect(pool.idleCount).toBe(pool.totalCount);
    await pool.end();
  });

  it("without a transaction is rejected with the list of supported libraries", async () => {
    const { job } = await run((context) =>
      context.tx("insert", {}, (async (work: (tx: unknown) => Promise<unknown>) => work({})) as never, () => 1),
    );
    expect(job.failure).toMatchObject({ code: "INVALID_INPUT", message: expect.stringContaining("Kysely") });
  });

  it("without a pool or a function that begins one is rejected, without retries", async () => {
    const { job } = await run((context) => context.tx("insert", {}, {} as never, () => 1));
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(job.failure).toMatchObject({
      code: "INVALID_INPUT",
      message: expect.stringMatching(/^The third argument of job\.tx\("insert", …\) begins no transaction.* pg\.Pool/),
    });
  });

  it("has the limits and retries of a step", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 2 });
    const row = nextRow++;
    let tries = 0;
    const { job, logs } = await run({ pipeline: { retry: { attempts: 1 } } }, (context) =>
      context.tx("insert", { retry: { attempts: 3, initial: "1ms" }, timeout: "100ms" }, pool, async (tx, step) => {
        tries += 1;
        await tx.query("insert into own_rows values ($1)", [row]);
        if (tries === 1) throw new Error("flaky");
        if (tries === 2)
          await new Promise((_, reject) => step.signal.addEventListener("abort", () => reject(step.signal.reason)));
        return tries;
      }),
    );
    await pool.end();
    expect(job).toMatchObject({ state: "completed", attempt: 1, output: 3 });
    expect(logs.map(({ message }) => message.replace(/again in .*/, "…"))).toEqual([
      "flaky (try 1 of 3, …",
      'Step "insert" was still running after 100 ms (try 2 of 3, …',
    ]);
    expect(await rowIsThere(row)).toBe(true);
  });
});

describe.each(["repeatable read", "serializable"])("in a transaction under %s", (level) => {
  /** A job that inserts the row in such a transaction and, before the checkpoint, runs `across`. */
  const insertAcross = (row: number, across: (job: JobContext) => Promise<unknown>) => async (job: JobContext) => {
    const client = new pg.Client({ connectionString: database.url });
    client.on("error", () => {});
    await client.connect();
    const begin = async (work: (tx: pg.Client) => Promise<unknown>) => {
      await client.query(`begin isolation level ${level}`);
      await work(client);
      await client.query("commit");
    };
    try {
      await job.tx("insert", {}, begin, async (tx) => {
        await tx.query("insert into own_rows values ($1)", [row]);
        await across(job);
      });
    } finally {
      await client.end();
    }
  };
  const leaseEnd = async (id: string) =>
    (await query<{ until: Date }>("select until from stillwake.leases where $1 = any (job_ids)", [id]))[0]!.until;
  /** Two jobs that are claimed together: the first has the code, the second waits for the promise. */
  const runTwo = async (code: (job: JobContext) => Promise<unknown>, second: Promise<unknown>) => {
    const contract = pipeline(name(), { retry: { attempts: 2, initial: "1ms", max: "1ms" } });
    const [one, two] = await stillwake.enqueueMany(contract as never, [1, 2] as never);
    const implementation = implement(contract, (job) => (job.id === one!.id ? code(job) : second) as never);
    const { events } = await start([implementation], { slots: 8 });
    return { one: one!.id, two: two!.id, events };
  };

  it("that lasts longer than a heartbeat interval, rows and checkpoint commit together at the first attempt", async () => {
    const row = nextRow++;
    const across = async ({ id }: JobContext) => {
      const before = await leaseEnd(id);
      await waitFor(async () => (await leaseEnd(id)) > before, { what: "a heartbeat" });
    };
    const { job, id } = await run({ worker: { lease: "1s" } }, insertAcross(row, across));
    expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    expect(await rowIsThere(row)).toBe(true);
    expect(await checkpoints(id)).toMatchObject([{ step: "insert", epoch: "1" }]);
  });

  it("a settlement of another job of the same lease is a conflict: the next attempt commits", async () => {
    const rows = [nextRow++, nextRow++];
    const { promise: inserted, resolve } = deferred();
    const across = async ({ id, attempt }: JobContext) => {
      if (attempt > 1) return;
      const alone = "select from stillwake.leases where job_ids = array[$1::uuid]";
      expect(await query(alone, [id])).toEqual([]);
      resolve();
      await waitFor(async () => (await query(alone, [id])).length === 1, { what: "the other job to be settled" });
    };
    const { one } = await runTwo((job) => insertAcross(rows[job.attempt - 1]!, across)(job), inserted);
    expect(await until(one)).toMatchObject({ state: "completed", attempt: 2, crashes: 0 });
    expect((await attempts(one))[0]!.failure).toMatchObject({ code: "40001" });
    expect([await rowIsThere(rows[0]!), await rowIsThere(rows[1]!)]).toEqual([false, true]);
  });

  it("an attempt whose job was settled meanwhile commits nothing, although its snapshot shows the job as its own", async () => {
    const rows = [nextRow++, nextRow++];
    // As a keeper does that gives up an attempt. The lease stays, because it holds the other job.
    const release = `select stillwake.settle(jsonb_build_array(jsonb_build_object('job', id, 'epoch', epoch, 'lease', lease_id,
      'outcome', 'released'))) from stillwake.live_jobs where id = $1`;
    const { promise: over, resolve: finish } = deferred();
    const { promise: second, resolve: claimedAgain } = deferred();
    let attempts = 0;
    const { one, events } = await runTwo(async (job) => {
      attempts += 1;
      if (attempts > 1) claimedAgain();
      await insertAcross(rows[attempts - 1]!, () => (attempts > 1 ? over : query(release, [job.id])))(job);
    }, over);
    await waitFor(() => events.some(({ kind }) => kind === "write.refused"), { what: "the write to be refused" });
    await second;
    expect(await rowIsThere(rows[0]!)).toBe(false);
    finish();
    expect(await until(one)).toMatchObject({ state: "completed" });
    expect(await checkpoints(one)).toMatchObject([{ step: "insert", epoch: "2" }]);
    expect([await rowIsThere(rows[0]!), await rowIsThere(rows[1]!)]).toEqual([false, true]);
  });
});
