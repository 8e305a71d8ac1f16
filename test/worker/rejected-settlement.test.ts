// Settlements that Postgres rejects for good: only the job at fault is affected, its neighbours are settled and new jobs are claimed.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { stillwake, start, until, query, name } = await inProcessFixture();

/** A trigger of the application that refuses rows of one pipeline, until the test ends or removes it. */
async function refuseRows(table: string, condition: string): Promise<() => Promise<unknown>> {
  const guard = `guard_${name()}`;
  await query(`create function ${guard}() returns trigger language plpgsql as
    $$ begin if ${condition} then raise exception 'not in this table'; end if; return new; end $$`);
  await query(
    `create trigger ${guard} before insert or update on stillwake.${table} for each row execute function ${guard}()`,
  );
  const remove = () => query(`drop trigger if exists ${guard} on stillwake.${table}`);
  cleanUp(remove);
  return remove;
}

describe("a job whose end Postgres rejects", () => {
  it("fails with a clear code, while its neighbours complete and new jobs are claimed", async () => {
    const [bad, good] = [name(), name()];
    await refuseRows("ended_jobs", `new.pipeline = '${bad}' and new.state = 'completed'`);
    const open = deferred();
    const { worker, events } = await start(
      [implement(pipeline(bad), () => open.promise), implement(pipeline(good), () => open.promise)],
      { slots: 8 },
    );
    const [rejected] = await stillwake.enqueueMany(bad, [1]);
    const neighbours = await stillwake.enqueueMany(good, [1, 2, 3]);
    await waitFor(() => worker.health().active === 4, { what: "all four to run" });
    open.resolve();
    const failed = await until(rejected!.id);
    expect(failed).toMatchObject({ state: "failed", attempt: 1, failure: { code: "SETTLEMENT_REJECTED" } });
    expect(failed.failure!.message).toContain("not in this table");
    for (const { id } of neighbours) expect((await until(id)).state).toBe("completed");
    const later = await stillwake.enqueue(good, 4);
    expect((await until(later.id)).state).toBe("completed");
    expect(events.filter(({ kind }) => kind === "settlement.rejected")).toMatchObject([{ job: rejected!.id }]);
    expect(worker.health().rejectedSettlements).toBe(0);
  });

  it("is paused if it cannot fail either, and completes once the cause is removed and it is resumed", async () => {
    const bad = name();
    const remove = await refuseRows("ended_jobs", `new.pipeline = '${bad}'`);
    await start([implement(pipeline(bad), async () => 1)]);
    const { id } = await stillwake.enqueue(bad, 1);
    const paused = await until(id, ({ state }) => state === "paused");
    expect(paused.pause!.reason).toMatch(/^Postgres rejected the outcome of this attempt: not in this table/);
    await remove();
    await stillwake.resume(id);
    expect(await until(id)).toMatchObject({ state: "completed", output: 1 });
  });

  it("is retried alone if it cannot be settled at all, reported by health, and loses nothing", async () => {
    const [bad, good] = [name(), name()];
    const condition = `new.pipeline = '${bad}' and tg_op = 'UPDATE' and new.lease_id is null`;
    const remove = await refuseRows("live_jobs", condition);
    const removeOther = await refuseRows("ended_jobs", `new.pipeline = '${bad}'`);
    const { worker } = await start([implement(pipeline(bad), async () => 1), implement(pipeline(good), async () => 2)]);
    const { id } = await stillwake.enqueue(bad, 1);
    await waitFor(() => worker.health().rejectedSettlements === 1, { what: "the rejected settlement" });
    const neighbour = await stillwake.enqueue(good, 1);
    expect((await until(neighbour.id)).state).toBe("completed");
    expect((await stillwake.get(id)).state).toBe("running");
    await remove();
    await removeOther();
    expect(await until(id)).toMatchObject({ state: "completed", output: 1, attempt: 1, crashes: 0 });
    expect(worker.health().rejectedSettlements).toBe(0);
  });
});

describe("outputs that together exceed what Postgres takes in one statement", () => {
  it("are settled in several statements", async () => {
    const large = name();
    const output = Array.from({ length: 400 }, () => "x".repeat(2500)).join(" ");
    const open = deferred();
    const { worker, events } = await start([implement(pipeline(large), () => open.promise.then(() => output))], {
      slots: 40,
    });
    const jobs = await stillwake.enqueueMany(
      large,
      Array.from({ length: 40 }, (_, n) => n),
    );
    await waitFor(() => worker.health().active === 40, { what: "all to run" });
    open.resolve();
    for (const { id } of jobs) expect((await until(id)).state).toBe("completed");
    const [ended] = await query<{ commits: number }>(
      "select count(distinct xmin::text)::integer as commits from stillwake.ended_jobs where pipeline = $1",
      [large],
    );
    expect(ended!.commits).toBeGreaterThanOrEqual(5);
    expect(events.filter(({ kind }) => kind === "claim.failed" || kind === "settlement.rejected")).toEqual([]);
  });
});
