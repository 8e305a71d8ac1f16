// What an attempt costs its job, and when it is returned: crashes, failures, releases, sleep, pauses.
import { describe, expect, it } from "vitest";
import { travel } from "../../src/testing/index.ts";
import { claim, connect, enqueue, first, outcomes, prepareJobs, readJob, settle } from "../model/actors.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const { startJob, take, letLeaseRunOut } = await prepareJobs(client);

describe("the cost of a lost lease", () => {
  it("the third crash fails a job as POISONED, whether a heartbeat was missed or a keeper reported it", async () => {
    let held = await startJob();
    await letLeaseRunOut();
    held = await take("w2");
    expect(await readJob(client, held.job)).toMatchObject({ crashes: 1, attempt: 2, state: "running" });
    expect(await settle(client, held, outcomes.lost)).toBe("queued");
    held = await take("w3");
    await letLeaseRunOut();
    await client.query("select stillwake.recover()");
    expect(await readJob(client, held.job)).toMatchObject({
      crashes: 3,
      state: "failed",
      failure: { code: "POISONED" },
    });
  });

  it("a poisoned job that is retried and then cancelled does not count as lost again", async () => {
    let held = await startJob("frail");
    await settle(client, held, outcomes.lost);
    await client.query("select stillwake.retry($1)", [held.job]);
    held = await take("w1", "frail");
    expect(await settle(client, held, outcomes.cancelled)).toBe("cancelled");
    const { rows } = await client.query("select outcome from stillwake.attempts where job_id = $1 order by epoch", [
      held.job,
    ]);
    expect(rows).toEqual([{ outcome: "lost" }, { outcome: "cancelled" }]);
  });

  it("failures are counted separately from crashes and fail a job as RETRIES_EXHAUSTED", async () => {
    let held = await startJob("sturdy", { max_attempts: 3 });
    await settle(client, held, { ...outcomes.failed, retry_in: "0 seconds" });
    held = await take("w1");
    await settle(client, held, outcomes.lost);
    held = await take("w1");
    expect(await settle(client, held, outcomes.failed)).toBe("failed");
    const job = await readJob(client, held.job);
    expect(job).toMatchObject({
      attempt: 3,
      crashes: 1,
      failure: { code: "RETRIES_EXHAUSTED", cause: { code: "E_TEST" } },
    });
  });

  it("release, sleep and pause return the attempt, never the epoch, and do not count as crashes", async () => {
    let held = await startJob();
    const epochs = [held.epoch];
    for (const outcome of [
      outcomes.released,
      { ...outcomes.slept, for: "0 seconds" },
      outcomes.paused,
      outcomes.released,
    ]) {
      await settle(client, held, outcome);
      expect(await readJob(client, held.job)).toMatchObject({ attempt: 0, crashes: 0, epoch: held.epoch });
      await client.query("select stillwake.resume($1)", [held.job]);
      held = await take("w1");
      epochs.push(held.epoch);
    }
    expect(epochs).toEqual(["1", "2", "3", "4", "5"]);
  });

  it("a recovered or released job keeps its position in the queue order", async () => {
    const held = await startJob();
    const { run_at } = await readJob(client, held.job);
    await letLeaseRunOut();
    await enqueue(client, "sturdy");
    const again = await take("w2");
    expect(again.job).toBe(held.job);
    await settle(client, again, outcomes.released);
    expect((await readJob(client, held.job)).run_at).toEqual(run_at);
  });

  it("the lease is deleted with its last job", async () => {
    const held = await startJob();
    await settle(client, held, outcomes.released);
    await enqueue(client, "sturdy");
    const [one, two] = await claim(client, "w1", ["sturdy"], { limit: 2 });
    await settle(client, one!, outcomes.completed);
    expect(await first(client, "select job_ids from stillwake.leases", [])).toEqual([two!.job]);
    await settle(client, two!, outcomes.slept);
    expect(await first(client, "select count(*) from stillwake.leases", [])).toBe("0");
  });

  it("recovery takes only jobs that the lease still holds, whatever the lease lists", async () => {
    const held = await startJob();
    await client.query(
      `insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids)
       values (gen_random_uuid(), 'default', 'w0', stillwake.now(), stillwake.now() - interval '1s', '10s', array[$1::uuid])`,
      [held.job],
    );
    expect(await first(client, "select stillwake.recover()", [])).toBe(0);
    expect(await settle(client, held, outcomes.completed)).toBe("completed");
  });
});

describe("a running job with a pause request", () => {
  it("stays paused until it is resumed, even if its breaker would have resumed it earlier", async () => {
    const held = await startJob();
    await client.query("select stillwake.pause($1, 'looking into it')", [held.job]);
    expect(await settle(client, held, { ...outcomes.paused, resume_in: "1 minute" })).toBe("paused");
    await travel(client, "1h");
    expect(await claim(client, "w1", ["sturdy"])).toEqual([]);
    expect((await readJob(client, held.job)).pause).toMatchObject({ reason: "looking into it" });
    await client.query("select stillwake.resume($1)", [held.job]);
    expect(await claim(client, "w1", ["sturdy"])).toHaveLength(1);
  });
});

describe("an invalid settlement", () => {
  const settleText = "select state from stillwake.settle($1)";
  const refused = async (rest: object) => {
    const held = await startJob();
    const answer = await first(client, settleText, [JSON.stringify([{ ...held, ...rest }])]);
    expect((await readJob(client, held.job)).state).toBe("running");
    return answer;
  };

  it("is refused with the field: an unknown reason to wait, a negative time, an output beyond the limit", async () => {
    expect(await refused({ outcome: "slept", waiting_for: "rain" })).toBe("SW001");
    expect(await refused({ outcome: "slept", for: "-1 year" })).toBe("SW001");
    expect(await refused({ outcome: "completed", output: "x".repeat(1_100_000) })).toBe("SW001");
    expect(await refused({ outcome: "vanished" })).toBe("SW001");
  });
});

describe("next_due", () => {
  it("returns null to a worker that knows none of the pipelines with waiting jobs", async () => {
    const held = await startJob();
    await settle(client, held, outcomes.released);
    const due = (pipelines: string[]) => first(client, "select stillwake.next_due(null, $1)", [pipelines]);
    expect(await due(["sturdy"])).toBeInstanceOf(Date);
    expect(await due(["frail"])).toBeNull();
  });
});

describe("two jobs of one lease, each written and completed in a separate transaction", () => {
  it("wait for each other and do not deadlock", async () => {
    await startJob();
    await client.query("select stillwake.enqueue_many('sturdy', '[1, 2]')");
    const [one, two] = await claim(client, "w1", ["sturdy"], { limit: 2 });
    const other = await connect(database.url);
    const report = "select stillwake.progress($1, $2, $3, '{}')";
    await client.query("begin");
    await other.query("begin");
    await client.query(report, [one!.job, one!.epoch, one!.lease]);
    const waiting = other.query(report, [two!.job, two!.epoch, two!.lease]);
    expect(await settle(client, one!, outcomes.completed)).toBe("completed");
    await client.query("commit");
    await waiting;
    expect(await settle(other, two!, outcomes.completed)).toBe("completed");
    await other.query("commit");
  });
});
