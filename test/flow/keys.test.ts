// Keys: at most N active jobs per pipeline and key, under any race.
import { describe, expect, it } from "vitest";
import { KeyTaken, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { claim, type HeldJob } from "../model/actors.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";

const { database, stillwake, client: sql } = await connectedDatabase();
let number = 0;

/** A new pipeline and pool, and calls for them. */
async function own(options: Parameters<typeof pipeline>[1] = {}) {
  const name = `keyed-${number++}`;
  const contract = pipeline(name, { pool: name, ...options });
  await stillwake.register(contract);
  return {
    name,
    contract,
    claim: (limit = 1) => claim(sql, "w", [name], { pool: name, limit, lease: "15s" }),
    complete: ({ job, epoch, lease }: HeldJob) =>
      sql.query("select stillwake.complete($1, $2, $3)", [job, epoch, lease]),
  };
}

describe("a key that is taken", () => {
  it("join: returns the active job, queued or running, and creates no other", async () => {
    const { contract, claim, complete } = await own({ key: (input) => (input as { id: string }).id });
    const first = await stillwake.enqueue(contract, { id: "a" });
    expect(first.existing).toBe(false);
    expect(await stillwake.enqueue(contract, { id: "a" })).toEqual({ id: first.id, existing: true });
    const [held] = await claim();
    expect(await stillwake.enqueue(contract, { id: "a" })).toEqual({ id: first.id, existing: true });
    const other = await stillwake.enqueue(contract, { id: "b" });
    expect(other.existing).toBe(false);
    await complete(held!);
    const next = await stillwake.enqueue(contract, { id: "a" });
    expect(next).toMatchObject({ existing: false });
    expect(next.id).not.toBe(first.id);
  });

  it("wait: jobs run in order of arrival, one at a time", async () => {
    const { contract, claim, complete } = await own({ key: () => "k", onConflict: "wait" });
    const jobs = await stillwake.enqueueMany(contract, [1, 2, 3, 4]);
    expect(new Set(jobs.map(({ id }) => id)).size).toBe(4);
    expect(await stillwake.get(jobs[1]!.id)).toMatchObject({ state: "queued", waitingFor: "key", runAt: null });
    for (const { id } of jobs) {
      const taken = await claim(10);
      expect(taken.map(({ job }) => job)).toEqual([id]);
      expect(await claim(10)).toEqual([]);
      await complete(taken[0]!);
    }
  });

  it("wait: up to keyLimit jobs run at the same time", async () => {
    const { contract, claim, complete } = await own({ key: () => "k", keyLimit: 3, onConflict: "wait" });
    const jobs = await stillwake.enqueueMany(contract, [1, 2, 3, 4, 5]);
    const taken = await claim(10);
    expect(taken.map(({ job }) => job)).toEqual(jobs.slice(0, 3).map(({ id }) => id));
    await complete(taken[1]!);
    expect((await claim(10)).map(({ job }) => job)).toEqual([jobs[3]!.id]);
    await complete(taken[0]!);
    expect((await claim(10)).map(({ job }) => job)).toEqual([jobs[4]!.id]);
  });

  it("replace: cancels the waiting job, and requests the running one to stop before the new one runs", async () => {
    const { contract, claim } = await own({ key: () => "k", onConflict: "replace" });
    const first = await stillwake.enqueue(contract, 1);
    const second = await stillwake.enqueue(contract, 2);
    expect(await stillwake.get(first.id)).toMatchObject({ state: "cancelled", cancel: { by: "stillwake" } });
    const [held] = await claim();
    expect(held!.job).toBe(second.id);
    const third = await stillwake.enqueue(contract, 3);
    expect(await stillwake.get(second.id)).toMatchObject({ state: "running", cancel: { by: "stillwake" } });
    expect(await stillwake.get(third.id)).toMatchObject({ state: "queued", waitingFor: "key" });
    await sql.query("select stillwake.settle($1)", [
      JSON.stringify([{ job: held!.job, epoch: held!.epoch, lease: held!.lease, outcome: "cancelled" }]),
    ]);
    expect((await claim()).map(({ job }) => job)).toEqual([third.id]);
  });

  it("reject: throws with the id of the active job", async () => {
    const { contract } = await own({ key: () => "k", onConflict: "reject" });
    const { id } = await stillwake.enqueue(contract, 1);
    const refusal = await stillwake.enqueue(contract, 2).catch((error) => error);
    expect(refusal).toBeInstanceOf(KeyTaken);
    expect(refusal).toMatchObject({ code: "KEY_TAKEN", jobId: id, field: "key" });
    expect(refusal.message).toContain(`is taken by job ${id} (queued)`);
  });

  it("a call can override the contract", async () => {
    const { contract } = await own({ key: () => "k" });
    const { id } = await stillwake.enqueue(contract, 1);
    expect(await stillwake.enqueue(contract, 2, { onConflict: "wait" })).toMatchObject({ existing: false });
    expect(await stillwake.enqueue(contract, 3, { key: "another" })).toMatchObject({ existing: false });
    expect(await stillwake.enqueue(contract, 4)).toEqual({ id, existing: true });
  });
});

describe("a key is released", () => {
  it("at any end of its job: failed, cancelled, expired, poisoned", async () => {
    const { contract, claim, name } = await own({ key: () => "k", onConflict: "wait", retry: { crashes: 1 } });
    const jobs = await stillwake.enqueueMany(contract, [1, 2, 3, 4]);
    const [one] = await claim();
    await sql.query("select stillwake.fail($1, $2, $3, '{}', true)", [one!.job, one!.epoch, one!.lease]);
    await stillwake.cancel(jobs[1]!.id);
    const [three] = await claim();
    expect(three!.job).toBe(jobs[2]!.id);
    await sql.query("update stillwake.leases set until = 'epoch' where id = $1", [three!.lease]);
    await waitFor(
      async () => {
        await sql.query("select stillwake.recover(100, $1)", [name]);
        return (await stillwake.get(three!.job)).state === "failed";
      },
      { timeout: 30_000 },
    );
    expect((await claim()).map(({ job }) => job)).toEqual([jobs[3]!.id]);
  });

  it("but not while its job sleeps, is paused, or waits for another attempt", async () => {
    const { contract, claim } = await own({ key: () => "k", onConflict: "wait", retry: { initial: "1h", max: "1h" } });
    const jobs = await stillwake.enqueueMany(contract, [1, 2]);
    const [one] = await claim();
    await sql.query("select stillwake.fail($1, $2, $3, '{}')", [one!.job, one!.epoch, one!.lease]);
    expect(await claim()).toEqual([]);
    await stillwake.pause(jobs[0]!.id);
    expect(await claim()).toEqual([]);
    await stillwake.cancel(jobs[0]!.id);
    expect((await claim()).map(({ job }) => job)).toEqual([jobs[1]!.id]);
  });

  it("but not to a paused job; a resumed job takes it if it is free", async () => {
    const { contract, claim, complete } = await own({ key: () => "k", onConflict: "wait" });
    const jobs = await stillwake.enqueueMany(contract, [1, 2, 3]);
    await stillwake.pause(jobs[1]!.id);
    await complete((await claim())[0]!);
    const [three] = await claim();
    expect(three!.job).toBe(jobs[2]!.id);
    await stillwake.resume(jobs[1]!.id);
    expect(await stillwake.get(jobs[1]!.id)).toMatchObject({ state: "queued", waitingFor: "key" });
    await complete(three!);
    expect((await claim()).map(({ job }) => job)).toEqual([jobs[1]!.id]);
  });

  it("also to a job that started to wait in a transaction committed after the end", async () => {
    const { contract, claim, complete } = await own({ key: () => "k", onConflict: "wait" });
    await stillwake.enqueue(contract, 1);
    const [held] = await claim();
    const tx = await connect(database.url);
    await tx.query("begin");
    const second = await stillwake.enqueue(contract, 2, { tx });
    await complete(held!);
    expect(await claim()).toEqual([]);
    await tx.query("commit");
    await tx.end();
    expect((await claim()).map(({ job }) => job)).toEqual([second.id]);
  });

  it("to a job of an old snapshot by the watchdog, which reports it", async () => {
    const { contract, claim, complete, name } = await own({ key: () => "k", onConflict: "wait" });
    await stillwake.enqueue(contract, 1);
    const [held] = await claim();
    const tx = await connect(database.url);
    await tx.query("begin isolation level repeatable read");
    const second = await stillwake.enqueue(contract, 2, { tx });
    const third = await stillwake.enqueue(contract, 3, { tx });
    await complete(held!);
    await tx.query("commit");
    await tx.end();
    const { rows } = await sql.query("select act, count, note from stillwake.watchdog()");
    expect(rows).toContainEqual({ act: "admitted", count: "1", note: `to key k of ${name}` });
    expect(rows).toContainEqual({
      act: "skipped",
      count: "1",
      note: `waiting for key k of ${name}, held by job ${second.id} (queued)`,
    });
    expect((await claim()).map(({ job }) => job)).toEqual([second.id]);
    expect(third.existing).toBe(false);
  });

  it("and a retried job waits for it like any other", async () => {
    const { contract, claim, complete } = await own({ key: () => "k", onConflict: "wait" });
    const first = await stillwake.enqueue(contract, 1);
    await stillwake.cancel(first.id);
    const second = await stillwake.enqueue(contract, 2);
    await stillwake.retry(first.id);
    expect(await stillwake.get(first.id)).toMatchObject({ state: "queued", waitingFor: "key" });
    const [held] = await claim(5);
    expect(held!.job).toBe(second.id);
    await complete(held!);
    expect((await claim(5)).map(({ job }) => job)).toEqual([first.id]);
  });
});

describe("concurrent calls", () => {
  it("are not rejected because another call's key is taken", async () => {
    const { contract } = await own({ key: (input) => input as string, onConflict: "reject" });
    await stillwake.enqueue(contract, "a");
    const calls = await Promise.allSettled(["x", "a", "y"].map((key) => stillwake.enqueue(contract, key)));
    expect(calls.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  });

  it("a call repeated after a lost response does not replace the job that replaced it", async () => {
    const { name } = await own({ key: () => "k", onConflict: "replace" });
    const first = (await sql.query("select stillwake.new_id() as id")).rows[0].id;
    const call = (ids: string[] | null, again: boolean) =>
      sql.query("select stillwake.enqueue_many($1, '[1]', $2, $3::uuid[]) as ids", [
        name,
        JSON.stringify({ key: "k", on_conflict: "replace", again }),
        ids,
      ]);
    await call([first], false);
    const second = (await call(null, false)).rows[0].ids[0];
    expect((await call([first], true)).rows[0].ids).toEqual([first]);
    expect(await stillwake.get(first)).toMatchObject({ state: "cancelled" });
    expect(await stillwake.get(second)).toMatchObject({ state: "queued", waitingFor: null });
  });

  it("a job with a stop request is not joined: the new job waits until it has stopped", async () => {
    const { contract, claim, complete } = await own({ key: () => "k" });
    const first = await stillwake.enqueue(contract, 1);
    const [held] = await claim();
    await stillwake.cancel(first.id);
    const second = await stillwake.enqueue(contract, 2);
    expect(second).toMatchObject({ existing: false });
    expect(await stillwake.get(second.id)).toMatchObject({ state: "queued", waitingFor: "key" });
    await complete(held!);
    expect((await claim()).map(({ job }) => job)).toEqual([second.id]);
  });

  it("many jobs that wait for a key with a large keyLimit do not take long", async () => {
    const { contract, claim } = await own({ key: () => "k", keyLimit: 500, onConflict: "wait" });
    await stillwake.enqueueMany(contract, new Array(1500).fill(0));
    expect(await claim(1000)).toHaveLength(500);
  }, 20_000);
});
