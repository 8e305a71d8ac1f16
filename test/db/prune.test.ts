// Retention: every ended job is kept as long as its pipeline specifies for its outcome, and is dropped within a week after.
import { beforeAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, enqueue, first, outcomes, settle, writes } from "../model/actors.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const client = await connect(database.url);

const DAYS = { completed: 3, failed: 20, cancelled: 9 };

beforeAll(async () => {
  await stopClock(client);
  await client.query("select stillwake.register_pipeline('brief', $1)", [
    {
      keep_completed: `${DAYS.completed} days`,
      keep_failed: `${DAYS.failed} days`,
      keep_cancelled: `${DAYS.cancelled} days`,
    },
  ]);
  await client.query("select stillwake.watchdog()");
});

/** Runs a job to its end, with a checkpoint and a log line. */
async function endJob(pipeline: string, outcome: keyof typeof DAYS, options: object = {}): Promise<string> {
  await enqueue(client, pipeline, options);
  const [held] = await claim(client, "w1", [pipeline]);
  await writes.checkpoint!.send(client, held!);
  await writes["append logs"]!.send(client, held!);
  const ending = outcome === "failed" ? outcomes["failed for good"] : outcomes[outcome];
  expect(await settle(client, held!, ending)).toBe(outcome);
  return held!.job;
}

const exists = async (job: string) =>
  (await first(client, "select id from stillwake.jobs where id = $1", [job])) === job;

const left = async (job: string) =>
  Number(
    await first(
      client,
      `select (select count(*) from stillwake.feed where job_id = $1) + (select count(*) from stillwake.checkpoints where job_id = $1)
        + (select count(*) from stillwake.ended_attempts where job_id = $1)`,
      [job],
    ),
  );

/** A day passes, and the watchdog runs. Returns how many rows it deleted one by one. */
async function nextDay(): Promise<number> {
  await travel(client, "1d");
  const { rows } = await client.query("select count from stillwake.watchdog() where act = 'deleted'");
  return Number(rows[0].count);
}

describe("retention", () => {
  it("keeps a job of each outcome as long as its pipeline specifies, then drops it with its week", async () => {
    const jobs = {
      completed: await endJob("brief", "completed"),
      failed: await endJob("brief", "failed"),
      cancelled: await endJob("brief", "cancelled"),
    };
    const gone: Record<string, number> = {};
    let deleted = 0;
    for (let day = 1; day <= 60; day++) {
      deleted += await nextDay();
      for (const [outcome, job] of Object.entries(jobs)) {
        if (!gone[outcome] && !(await exists(job))) gone[outcome] = day;
      }
    }
    for (const [outcome, days] of Object.entries(DAYS)) {
      expect(gone[outcome], outcome).toBeGreaterThan(days);
      expect(gone[outcome], outcome).toBeLessThanOrEqual(days + 8);
    }
    expect(deleted).toBe(0);
    for (const job of Object.values(jobs)) expect(await left(job)).toBe(0);
  });

  it("moves rows of weeks without a partition into new partitions, and later drops these", async () => {
    await travel(client, "70d");
    const job = await endJob("brief", "failed");
    const strays = () => first(client, "select count(*)::int from stillwake.feed_default", []);
    expect(await strays()).toBe(1);
    await travel(client, "7d");
    let deleted = 0;
    for (let day = 0; day < 3; day++) deleted += await nextDay();
    expect(await strays()).toBe(0);
    expect(await exists(job)).toBe(true);
    for (let day = 0; day < DAYS.failed + 8; day++) deleted += await nextDay();
    expect(await exists(job)).toBe(false);
    expect(await left(job)).toBe(0);
    expect(deleted).toBe(0);
  });

  it("frees no idempotency key that another job has taken over", async () => {
    const key = { idempotency_key: "taken over" };
    const old = await endJob("brief", "failed", key);
    await travel(client, `${DAYS.failed + 8}d`);
    const young = await enqueue(client, "brief", key);
    expect(young).not.toBe(old);
    await client.query("select stillwake.retry($1)", [old]);
    await client.query("select stillwake.cancel($1)", [old]);
    const text = "select job_id from stillwake.idempotency_keys where key = 'taken over' and forget_on is null";
    expect(await first(client, text, [])).toBe(young);
    await client.query("select stillwake.cancel($1)", [young]);
  });

  it("knows an idempotency key as long as the job it created, and not longer", async () => {
    const key = { idempotency_key: "order 7" };
    const job = await endJob("brief", "failed", key);
    for (let day = 1; day <= DAYS.failed; day++) {
      await nextDay();
      expect(await enqueue(client, "brief", key)).toBe(job);
    }
    for (let day = 1; day <= 8; day++) await nextDay();
    expect(await exists(job)).toBe(false);
    expect(await enqueue(client, "brief", key)).not.toBe(job);
  });

  it("keeps the children of a parent that still waits, and drops them when it has ended", async () => {
    await client.query(
      `select stillwake.register_pipeline('parent'), stillwake.register_pipeline('child', '{"keep_completed": "3 days"}')`,
    );
    await enqueue(client, "parent");
    const [parent] = await claim(client, "w1", ["parent"]);
    await client.query(
      `select stillwake.spawn($1, $2, $3, 'parts', 'child', '[1, 2, 3]', '{}', array(select stillwake.new_id() from generate_series(1, 3)),
        0, 3, 'fail')`,
      [parent!.job, parent!.epoch, parent!.lease],
    );
    const waits = { outcome: "slept", waiting_for: "children", awaits: "parts" } as const;
    expect(await settle(client, parent!, waits)).toBe("queued");
    const ended = await claim(client, "w1", ["child"], { limit: 2 });
    for (const child of ended) expect(await settle(client, child, outcomes.completed)).toBe("completed");
    for (let day = 1; day <= 40; day++) await nextDay();
    for (const { job } of ended) expect(await exists(job)).toBe(true);

    const [last] = await claim(client, "w1", ["child"]);
    expect(await settle(client, last!, outcomes.completed)).toBe("completed");
    const [resumed] = await claim(client, "w1", ["parent"]);
    expect(resumed!.job).toBe(parent!.job);
    expect(await settle(client, resumed!, outcomes.completed)).toBe("completed");
    for (let day = 1; day <= 25; day++) await nextDay();
    for (const { job } of ended) expect(await exists(job)).toBe(false);
  });

  it("keeps the feed, the checkpoints and the attempts of a job as long as the job itself, however old", async () => {
    await client.query("select stillwake.register_pipeline('lasting', $1)", [{ keep_completed: "100 years" }]);
    const job = await endJob("lasting", "completed");
    const waiting = await enqueue(client, "lasting", { delay: "1 year" });
    await client.query("select stillwake.pause($1)", [waiting]);
    for (let week = 0; week < 8; week++) {
      await travel(client, "7d");
      await client.query("select stillwake.watchdog()");
    }
    expect(await exists(job)).toBe(true);
    expect(await left(job)).toBe(2);
    expect(await exists(waiting)).toBe(true);
    expect(await left(waiting)).toBe(1);
  });

  it("keeps permanent jobs outside the partition that is scanned each week", async () => {
    const job = await endJob("lasting", "completed");
    expect(await first(client, "select id from stillwake.ended_jobs_forever where id = $1", [job])).toBe(job);
  });
});
