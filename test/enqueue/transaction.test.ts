// { tx }: a job is stored in the caller's transaction, with each supported library against a real Postgres.
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, InvalidInput, pipeline, UnknownPipeline } from "../../src/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { libraries, type Opened } from "../support/database/transaction-libraries.ts";

const { database, stillwake, client: watcher } = await connectedDatabase();
const report = pipeline<{ note: string }>("report");

beforeAll(async () => {
  await watcher.query("create table own_rows (id integer primary key)");
  await stillwake.register(report);
});

describe.each(libraries)("in a transaction of $name", ({ name, open }) => {
  const first = libraries.findIndex((library) => library.name === name) * 1000;
  let library: Opened;
  beforeAll(async () => {
    library = await open(database.url);
  });
  afterAll(() => library?.close());

  it("a job and a user's row commit together and are invisible before", async () => {
    const id = await library.transaction(async (tx, insert) => {
      await insert(first + 1);
      const enqueued = await stillwake.enqueue(report, { note: "together" }, { tx });
      expect(enqueued.existing).toBe(false);
      expect(await seen(enqueued.id, first + 1)).toEqual({ job: false, row: false });
      return enqueued.id;
    });
    expect(await seen(id, first + 1)).toEqual({ job: true, row: true });
  });

  it("a rollback removes both", async () => {
    let id = "";
    const rolledBack = library.transaction(async (tx, insert) => {
      await insert(first + 2);
      id = (await stillwake.enqueue(report, { note: "never" }, { tx, idempotencyKey: `${name} rolled back` })).id;
      throw new Error("changed my mind");
    });
    await expect(rolledBack).rejects.toThrow("changed my mind");
    expect(await seen(id, first + 2)).toEqual({ job: false, row: false });

    const again = await stillwake.enqueue(report, { note: "now" }, { idempotencyKey: `${name} rolled back` });
    expect(again.existing).toBe(false);
  });

  it("an idempotency key returns the job of an earlier transaction", async () => {
    const enqueue = () =>
      library.transaction((tx) => stillwake.enqueue(report, { note: "once" }, { tx, idempotencyKey: name }));
    const first = await enqueue();
    const second = await enqueue();
    expect(second).toEqual({ id: first.id, existing: true });
    expect((await watcher.query("select from stillwake.jobs where idempotency_key = $1", [name])).rowCount).toBe(1);
  });

  it("many jobs are stored in order, with unchanged inputs", async () => {
    const notes = [
      "plain",
      `it's "quoted" \\ $1 ? ?? :name {braces} ; -- /* */`,
      "line\nbreak\ttab",
      "ünïcödé 🐘 漢字",
    ];
    const enqueued = await library.transaction((tx) =>
      stillwake.enqueueMany(
        report,
        notes.map((note) => ({ note })),
        { tx, tenant: "o'hara ?", idempotencyKeys: [null, `${name} ?1`, null, `${name} $2`] },
      ),
    );
    const jobs = await Promise.all(enqueued.map(({ id }) => stillwake.get(id)));
    expect(jobs.map((job) => job.input)).toEqual(notes.map((note) => ({ note })));
    expect(jobs.map((job) => job.idempotencyKey)).toEqual([null, `${name} ?1`, null, `${name} $2`]);
    expect(jobs.every((job) => job.tenant === "o'hara ?")).toBe(true);
  });

  it("an unregistered contract is registered in the transaction, and rolled back with it", async () => {
    await using starting = createStillwake({ url: database.url });
    const contract = pipeline(`new.${first}`, { retry: { attempts: 7 } });
    const rolledBack = library.transaction(async (tx) => {
      await starting.enqueue(contract, 1, { tx });
      throw new Error("changed my mind");
    });
    await expect(rolledBack).rejects.toThrow("changed my mind");
    expect((await watcher.query("select from stillwake.pipelines where name = $1", [contract.name])).rowCount).toBe(0);
    const [job] = await library.transaction((tx) => starting.enqueueMany(contract, [1], { tx }));
    expect(await starting.get(job!.id)).toMatchObject({ pipeline: contract.name, maxAttempts: 7 });
    const second = await starting.enqueue(contract, 2);
    expect(await starting.get(second.id)).toMatchObject({ pipeline: contract.name, maxAttempts: 7 });
  });

  it("an unknown pipeline is an UnknownPipeline that names it, the field and the remedy", async () => {
    const refused = await caught(
      library.transaction(async (tx, insert) => {
        await insert(first + 3);
        await stillwake.enqueue("reprot", { note: "secret" }, { tx });
      }),
    );
    expect(refused).toBeInstanceOf(UnknownPipeline);
    expect(refused).toMatchObject({ code: "UNKNOWN_PIPELINE", field: "pipeline" });
    expect(refused.message).toMatch(/^Pipeline "reprot" is not registered\. Known pipelines: .*report\./);
    expect((await watcher.query("select from own_rows where id = $1", [first + 3])).rowCount).toBe(0);
  });

  it("the database itself is refused, because its statements are not part of a transaction", async () => {
    const calls = [
      stillwake.enqueue(report, { note: "outside" }, { tx: library.outside }),
      stillwake.enqueueMany(report, [{ note: "outside" }], { tx: library.outside }),
    ];
    for (const call of calls) {
      const refused = await caught(call);
      expect(refused).toBeInstanceOf(InvalidInput);
      expect(refused).toMatchObject({ field: "tx", remedy: expect.stringMatching(/^Pass .*, or leave out tx$/) });
      expect(refused.message).toMatch(/^tx is .*: the call would not be part of a transaction\. Pass /);
    }
    expect((await watcher.query("select from stillwake.jobs where input->>'note' = 'outside'")).rowCount).toBe(0);
  });

  it("of another database a job is refused, with and without a Stillwake there", async () => {
    const other = await freshDatabase();
    const elsewhere = await open(other.url);
    const there = await connect(other.url);
    try {
      await there.query("select stillwake.register_pipeline('report')");
      // The caller's transaction commits: the refused call has stored nothing in it.
      const committed = await elsewhere.transaction((tx) =>
        stillwake.enqueue(report, { note: "there" }, { tx }).catch((error) => error),
      );
      expect(committed).toBeInstanceOf(InvalidInput);
      expect(committed.message).toMatch(
        /^tx is a transaction of another database than the one that this client uses\. Pass /,
      );
      expect((await there.query("select from stillwake.jobs")).rowCount).toBe(0);
      await there.query("drop schema stillwake cascade");
      const missing = await caught(elsewhere.transaction((tx) => stillwake.enqueue(report, { note: "there" }, { tx })));
      expect(missing).toMatchObject({ code: "SCHEMA_MISSING", field: "tx" });
      expect(missing.message).toMatch(
        /^The database of tx does not have the Stillwake schema .*Pass a transaction of the database/,
      );
    } finally {
      await elsewhere.close();
    }
  });

  it("an option that only the database can check is InvalidInput", async () => {
    const late = { runAt: new Date("2030-01-02T00:00:00Z"), expiresAt: new Date("2030-01-01T00:00:00Z") };
    const refused = await caught(
      library.transaction((tx) => stillwake.enqueue(report, { note: "late" }, { tx, ...late })),
    );
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused.message).toMatch(/^expires_at .* is not after run_at /);
  });
});

describe("a pool whose only connection is in the transaction", () => {
  it("is enough to enqueue a new contract: the pool is not used", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    await using starting = createStillwake({ pool });
    const client = await pool.connect();
    await client.query("begin");
    const first = await starting.enqueue(pipeline("lonely"), 1, { tx: client });
    const [two] = await starting.enqueueMany(pipeline("lonely.too"), [2], { tx: client });
    await client.query("commit");
    client.release();
    expect(await starting.get(first.id)).toMatchObject({ pipeline: "lonely", input: 1 });
    expect(await starting.get(two!.id)).toMatchObject({ pipeline: "lonely.too", input: 2 });
    await pool.end();
  });
});

describe("a connection of pg", () => {
  it("is accepted while a begin that was not awaited is on its way", async () => {
    const client = await connect(database.url);
    void client.query("begin");
    const { id } = await stillwake.enqueue(report, { note: "begun" }, { tx: client });
    await client.query("rollback");
    await expect(stillwake.get(id)).rejects.toMatchObject({ code: "JOB_NOT_FOUND" });
  });

  it("under Drizzle is accepted in a transaction, and refused outside of one", async () => {
    const client = await connect(database.url);
    const db = drizzle(client);
    expect(await caught(stillwake.enqueue(report, { note: "" }, { tx: db }))).toMatchObject({ field: "tx" });
    await client.query("begin");
    const { id } = await stillwake.enqueue(report, { note: "by hand" }, { tx: db });
    await client.query("commit");
    expect(await stillwake.get(id)).toMatchObject({ input: { note: "by hand" } });
  });
});

describe("a database that has moved to another cluster", () => {
  it("is recognized again", async () => {
    const client = await connect(database.url);
    await using moved = createStillwake({ url: database.url });
    const enqueue = async () => {
      await client.query("begin");
      const { id } = await moved.enqueue("report", { note: "moved" }, { tx: client });
      await client.query("commit");
      return id;
    };
    await enqueue();
    const [body] = (await watcher.query("select pg_get_functiondef('stillwake.cluster_id'::regproc) as text")).rows;
    await watcher.query(
      "create or replace function stillwake.cluster_id() returns text language sql as $$ select 'another cluster' $$",
    );
    expect(await moved.get(await enqueue())).toMatchObject({ input: { note: "moved" } });
    await watcher.query(body.text);
  });
});

describe("a value that is not a transaction", () => {
  it.each([null, 5, "tx", {}, [], new Date()])("%j is rejected before anything is sent", async (tx) => {
    const refused = await caught(stillwake.enqueue(report, { note: "" }, { tx: tx as never }));
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ field: "tx", remedy: expect.stringContaining("Kysely") });
  });
});

/** Whether the job and the row are visible outside the transaction. */
async function seen(job: string, row: number): Promise<{ job: boolean; row: boolean }> {
  const { rows } = await watcher.query(
    "select exists (select from stillwake.jobs where id = $1) as job, exists (select from own_rows where id = $2) as row",
    [job, row],
  );
  return rows[0];
}

async function caught(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => new Error("it was accepted"),
    (error) => error,
  );
}
