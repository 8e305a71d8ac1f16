// Assignment of addresses to batches, without a worker: addresses of active batches, outdated ones, and those of a reading that
// ended before its batches were spawned.
import { describe, expect, it } from "vitest";
import { readRepository } from "../src/repositories.ts";
import { claimReading } from "./support/app-server.ts";
import { setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards({ build: false });
const { pool, stillwake } = setup;

/** How many unprocessed addresses each live job will look up. */
async function assigned(id: string): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    `select j.id, count(d.author_email)::integer as addresses from stillwake.jobs j
     left join leaderboard.commit_data d on d.repository_id::text = j.tenant and d.reading::text = j.input ->> 'reading' and d.batch::text = j.input ->> 'batch' and not d.processed
     where j.pipeline = 'leaderboard-users' and j.tenant = $1 and j.ended_at is null group by j.id`,
    [id],
  );
  return Object.fromEntries(rows.map((row) => [row.id, row.addresses]));
}

describe("addresses of active batches", () => {
  it("are not assigned again by repeated and concurrent requests", async () => {
    const emails = Object.fromEntries(Array.from({ length: 120 }, (_, n) => [`w${n}@example.com`, 200 - n]));
    const { id, jobs } = await setup.addCounted("acme/underway", emails);
    const before = { [jobs[0]!]: 50, [jobs[1]!]: 50, [jobs[2]!]: 20 };
    expect(await assigned(id)).toEqual(before);
    const requestAll = () => Promise.all(Array.from({ length: 5 }, () => setup.lookUpAgain(id)));
    for (const result of await requestAll()) expect(result).toEqual({ id, lookups: 0, jobs: 0 });
    expect(await assigned(id)).toEqual(before);

    // These fifty have no active job any more: one of the requests assigns them.
    await stillwake.cancel(jobs[1]!);
    expect((await requestAll()).filter((result) => result.jobs > 0)).toEqual([{ id, lookups: 50, jobs: 1 }]);
    expect(Object.values(await assigned(id)).sort()).toEqual([20, 50, 50]);
  });

  it("are kept, while outdated addresses are assigned", async () => {
    const { id, jobs } = await setup.addCounted("acme/grown", { "g1@example.com": 2, "g2@example.com": 1 });
    await pool.query("select leaderboard.settle_email($1, 'g1@example.com', 'email', null, null, null, null)", [id]);
    await pool.query(
      "update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours' where email = 'g1@example.com'",
    );
    expect(await setup.lookUpAgain(id)).toEqual({ id, lookups: 1, jobs: 1 });
    expect(await assigned(id)).toMatchObject({ [jobs[0]!]: 1 });
    expect(Object.values(await assigned(id))).toEqual([1, 1]);
  });
});

describe("a reading that fails or is cancelled after its commits are stored", () => {
  const recorded = async () => (await pool.query("select leaderboard.record_outcomes() as count")).rows[0].count;
  /** The look-up jobs of addCounted() are not children of the reading. */
  const endedReading = async (repository: string, outcome: "failed" | "cancelled") => {
    const { id, jobs } = await setup.addCounted(repository, { [`a@${repository}.example`]: 1 });
    const { reading } = await setup.request(repository);
    if (outcome === "cancelled") await stillwake.cancel(reading);
    else await claimReading(setup, reading, { outcome: "failed", fatal: true, failure: { message: "No room" } });
    return { id, reading, jobs };
  };
  const parent = (job: string, reading: string) =>
    pool.query("update stillwake.live_jobs set parent_id = $2 where id = $1", [job, reading]);

  it.each([
    ["failed", "No room"],
    ["cancelled", "Reading the commits was cancelled"],
  ] as const)("without batches has %s, and can be requested again", async (outcome, error) => {
    const { id } = await endedReading(`acme/${outcome}`, outcome);
    expect(await recorded()).toBe(1);
    expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error });
    await setup.request(`acme/${outcome}`);
    expect(await readRepository(pool, id)).toMatchObject({ status: "pending", error: null });
  });

  it("but has spawned its batches is in progress", async () => {
    const { id, reading, jobs } = await endedReading("acme/dealt", "failed");
    await parent(jobs[0]!, reading);
    expect(await recorded()).toBe(0);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
  });

  it("but whose contributors are looked up again is in progress", async () => {
    const { id, jobs } = await endedReading("acme/by-hand", "failed");
    await stillwake.cancel(jobs[0]!);
    expect(await setup.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
    expect(await recorded()).toBe(0);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
  });

  it("allows looking up again after it has failed, but not while its job is being retried", async () => {
    const { id, reading, jobs } = await endedReading("acme/failed-by-hand", "failed");
    await stillwake.cancel(jobs[0]!);
    expect(await recorded()).toBe(1);
    await stillwake.retry(reading);
    const refusal = { problem: { status: 409, code: "NOT_COUNTED" } };
    await expect(setup.lookUpAgain(id)).rejects.toMatchObject(refusal);
    await stillwake.cancel(reading);
    expect(await setup.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });

    // Without stored commits there is nothing to look up.
    const { id: unread, reading: never } = await setup.request("acme/never");
    await stillwake.cancel(never);
    await recorded();
    await expect(setup.lookUpAgain(unread)).rejects.toMatchObject(refusal);
  });

  const resume = (id: string, reading: string) =>
    pool.query("select leaderboard.resume_reading($1, $2)", [id, reading]);

  it("is in progress again when its retried job resumes, also after another request", async () => {
    const { id, reading } = await endedReading("acme/retried", "failed");
    expect(await recorded()).toBe(1);
    // Another reading cannot resume it.
    await resume(id, "00000000-0000-4000-8000-000000000000");
    expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error: "No room" });
    await stillwake.retry(reading);
    expect((await setup.request("acme/retried")).reading).toBe(reading);
    expect(await readRepository(pool, id)).toMatchObject({ status: "pending", error: null });
    await resume(id, reading);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
    expect(await setup.history(id)).toEqual([
      ...["pending", "commits_processing", "users_processing", "failed"],
      ...["pending", "users_processing"],
    ]);
  });

  it("is completed when it resumes and all contributors are known", async () => {
    const { id, reading } = await endedReading("acme/known-by-then", "failed");
    expect(await recorded()).toBe(1);
    await pool.query(
      "select leaderboard.settle_email($1, 'a@acme/known-by-then.example', 'email', null, null, null, null)",
      [id],
    );
    expect(await readRepository(pool, id)).toMatchObject({ status: "failed" });
    await resume(id, reading);
    expect(await readRepository(pool, id)).toMatchObject({ status: "completed", error: null });
  });
});

it("a pending record whose job has completed is failed", async () => {
  const { id, reading } = await setup.request("acme/lost");
  await claimReading(setup, reading, { outcome: "completed", output: null, missing: [] });
  await pool.query("select leaderboard.record_outcomes()");
  const error = "The job completed but its counts are missing";
  expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error });
});
