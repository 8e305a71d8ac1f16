// Jobs that wait for a key which became free at a moment at which they could not be admitted: their row was locked, or
// their transaction had an older snapshot. A worker that lives starts them, without a poll and without the watchdog.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, startIdle, name, until, query } = await inProcessFixture();
const sql = await connect(database.url);
const other = await connect(database.url);

async function claim(own: string) {
  const { rows } = await sql.query("select job_id, epoch, lease_id from stillwake.claim('elsewhere', $1, array[$1])", [
    own,
  ]);
  return rows[0];
}

const complete = (held: { job_id: string; epoch: string; lease_id: string }) =>
  sql.query("select stillwake.complete($1, $2, $3)", [held.job_id, held.epoch, held.lease_id]);

const contractOf = (own: string, keyLimit = 1) => pipeline(own, { pool: own, onConflict: "wait", keyLimit });

describe("a job that waits for a key", () => {
  it("and is locked, when the key becomes free, by a pause that is rolled back, starts soon after", async () => {
    const own = name();
    const contract = contractOf(own);
    await stillwake.enqueue(contract, {}, { key: "k" });
    const held = await claim(own);
    const waiter = await stillwake.enqueue(contract, {}, { key: "k" });
    await startIdle(contract);
    await other.query("begin");
    await other.query("select stillwake.pause($1)", [waiter.id]);
    await complete(held);
    await waitFor(async () => (await query("select from stillwake.free_keys where tries > 2")).length > 0);
    expect((await stillwake.get(waiter.id)).state).toBe("queued");
    await other.query("rollback");
    expect(await until(waiter.id)).toMatchObject({ state: "completed" });
    expect(await query("select from stillwake.free_keys")).toEqual([]);
  });

  it("and is paused in that transaction is not started, and its key is not checked any more", async () => {
    const own = name();
    const contract = contractOf(own);
    await stillwake.enqueue(contract, {}, { key: "k" });
    const held = await claim(own);
    const waiter = await stillwake.enqueue(contract, {}, { key: "k" });
    await startIdle(contract);
    await other.query("begin");
    await other.query("select stillwake.pause($1)", [waiter.id]);
    await complete(held);
    await other.query("commit");
    await waitFor(async () => (await query("select from stillwake.free_keys")).length === 0);
    expect((await stillwake.get(waiter.id)).state).toBe("paused");
    await stillwake.resume(waiter.id);
    expect(await until(waiter.id)).toMatchObject({ state: "completed" });
  });

  it("of two slots starts, although the first in line is locked", async () => {
    const own = name();
    const contract = contractOf(own, 2);
    for (let n = 0; n < 2; n++) await stillwake.enqueue(contract, {}, { key: "k" });
    const held = [await claim(own), await claim(own)];
    const waiters = [];
    for (let n = 0; n < 2; n++) waiters.push(await stillwake.enqueue(contract, {}, { key: "k" }));
    await startIdle(contract);
    await other.query("begin");
    await other.query("select stillwake.pause($1)", [waiters[0]!.id]);
    for (const each of held) await complete(each);
    expect(await until(waiters[1]!.id)).toMatchObject({ state: "completed" });
    await other.query("rollback");
    expect(await until(waiters[0]!.id)).toMatchObject({ state: "completed" });
  });

  it("and was enqueued under REPEATABLE READ, before the key became free in another transaction, starts", async () => {
    const own = name();
    const contract = contractOf(own);
    await stillwake.enqueue(contract, {}, { key: "k" });
    const held = await claim(own);
    await startIdle(contract);
    await other.query("begin isolation level repeatable read");
    const options = { key: "k", on_conflict: "wait" };
    const { rows } = await other.query("select stillwake.enqueue($1, '{}', $2) as id", [own, options]);
    await complete(held);
    await other.query("commit");
    expect(await until(rows[0].id)).toMatchObject({ state: "completed" });
  });
});

describe("a claim", () => {
  it("does not wait long for a transaction that takes the slot of a key which it checks", async () => {
    const own = name();
    const contract = contractOf(own);
    await stillwake.enqueue(contract, {}, { key: "k" });
    const held = await claim(own);
    const waiter = await stillwake.enqueue(contract, {}, { key: "k" });
    await other.query("begin");
    await other.query("select stillwake.pause($1)", [waiter.id]);
    await complete(held);
    await other.query("rollback");
    await other.query("begin");
    const { rows } = await other.query(
      'select stillwake.enqueue($1, \'{}\', \'{"key": "k", "on_conflict": "wait"}\') as id',
      [own],
    );
    await sql.query("set statement_timeout = '5s'");
    expect(await claim(own)).toBeUndefined();
    await sql.query("reset statement_timeout");
    await other.query("commit");
    // The transaction has taken the slot.
    expect((await claim(own)).job_id).toBe(rows[0].id);
  });
});
