// What is dealt out to whom, move by move and without a worker: addresses that a batch on its way has, those that have grown old, and those of a reading that ended before its
// batches were made.
import { describe, expect, it } from "vitest";
import { readRepository } from "../src/repositories.ts";
import { hand } from "./support/app-server.ts";
import { stage } from "./support/leaderboards.ts";

const place = await stage({ build: false });
const { pool, stillwake } = place;

/** How many unprocessed addresses each live job will look up. */
async function dealt(id: string): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    `select j.id, count(d.author_email)::integer as addresses from stillwake.jobs j
     left join leaderboard.commit_data d on d.repository_id::text = j.tenant and d.reading::text = j.input ->> 'reading' and d.batch::text = j.input ->> 'batch' and not d.processed
     where j.pipeline = 'leaderboard-users' and j.tenant = $1 and j.ended_at is null group by j.id`,
    [id],
  );
  return Object.fromEntries(rows.map((row) => [row.id, row.addresses]));
}

describe("look-ups that are on their way", () => {
  it("are not dealt out again, however often and by how many at once somebody asks", async () => {
    const emails = Object.fromEntries(Array.from({ length: 120 }, (_, n) => [`w${n}@example.com`, 200 - n]));
    const { id, jobs } = await place.counted("acme/underway", emails);
    const before = { [jobs[0]!]: 50, [jobs[1]!]: 50, [jobs[2]!]: 20 };
    expect(await dealt(id)).toEqual(before);
    const asking = () => Promise.all(Array.from({ length: 5 }, () => place.lookUpAgain(id)));
    for (const answer of await asking()) expect(answer).toEqual({ id, lookups: 0, jobs: 0 });
    expect(await dealt(id)).toEqual(before);

    // Nobody is at these fifty any more: one of those who ask has them looked up.
    await stillwake.cancel(jobs[1]!);
    expect((await asking()).filter((answer) => answer.jobs > 0)).toEqual([{ id, lookups: 50, jobs: 1 }]);
    expect(Object.values(await dealt(id)).sort()).toEqual([20, 50, 50]);
  });

  it("leave alone what has grown old since it was looked up: that is dealt out", async () => {
    const { id, jobs } = await place.counted("acme/grown", { "g1@example.com": 2, "g2@example.com": 1 });
    await pool.query("select leaderboard.settle_email($1, 'g1@example.com', 'email', null, null, null, null)", [id]);
    await pool.query(
      "update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours' where email = 'g1@example.com'",
    );
    expect(await place.lookUpAgain(id)).toEqual({ id, lookups: 1, jobs: 1 });
    expect(await dealt(id)).toMatchObject({ [jobs[0]!]: 1 });
    expect(Object.values(await dealt(id))).toEqual([1, 1]);
  });
});

describe("a reading that ends badly when the commits are stored", () => {
  const recorded = async () => (await pool.query("select leaderboard.record_ends() as count")).rows[0].count;
  /** Whatever jobs there are, they are not of this reading's making. */
  const ended = async (repository: string, end: "failed" | "cancelled") => {
    const { id, jobs } = await place.counted(repository, { [`a@${repository}.example`]: 1 });
    const { reading } = await place.ask(repository);
    if (end === "cancelled") await stillwake.cancel(reading);
    else await hand(place, reading, { outcome: "failed", fatal: true, failure: { message: "No room" } });
    return { id, reading, jobs };
  };
  const parent = (job: string, reading: string) =>
    pool.query("update stillwake.live_jobs set parent_id = $2 where id = $1", [job, reading]);

  it.each([
    ["failed", "No room"],
    ["cancelled", "Reading the commits was cancelled"],
  ] as const)("and has made no batches, has %s, and is asked for again", async (end, error) => {
    const { id } = await ended(`acme/${end}`, end);
    expect(await recorded()).toBe(1);
    expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error });
    await place.ask(`acme/${end}`);
    expect(await readRepository(pool, id)).toMatchObject({ status: "pending", error: null });
  });

  it("but has made its batches, is in work", async () => {
    const { id, reading, jobs } = await ended("acme/dealt", "failed");
    await parent(jobs[0]!, reading);
    expect(await recorded()).toBe(0);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
  });

  it("but whose contributors somebody has had looked up again, is in work", async () => {
    const { id, jobs } = await ended("acme/by-hand", "failed");
    await stillwake.cancel(jobs[0]!);
    expect(await place.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
    expect(await recorded()).toBe(0);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
  });

  it("can have its contributors looked up though it has failed, but not while its job is on its way again", async () => {
    const { id, reading, jobs } = await ended("acme/failed-by-hand", "failed");
    await stillwake.cancel(jobs[0]!);
    expect(await recorded()).toBe(1);
    await stillwake.retry(reading);
    const refusal = { problem: { status: 409, code: "NOT_COUNTED" } };
    await expect(place.lookUpAgain(id)).rejects.toMatchObject(refusal);
    await stillwake.cancel(reading);
    expect(await place.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });

    // One whose commits were never stored has nobody to look up.
    const { id: unread, reading: never } = await place.ask("acme/never");
    await stillwake.cancel(never);
    await recorded();
    await expect(place.lookUpAgain(unread)).rejects.toMatchObject(refusal);
  });

  const resume = (id: string, reading: string) =>
    pool.query("select leaderboard.resume_reading($1, $2)", [id, reading]);

  it("is in work again when its job was retried by hand and has come so far, also when somebody has asked for it meanwhile", async () => {
    const { id, reading } = await ended("acme/retried", "failed");
    expect(await recorded()).toBe(1);
    // Not by another reading.
    await resume(id, "00000000-0000-4000-8000-000000000000");
    expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error: "No room" });
    await stillwake.retry(reading);
    expect((await place.ask("acme/retried")).reading).toBe(reading);
    expect(await readRepository(pool, id)).toMatchObject({ status: "pending", error: null });
    await resume(id, reading);
    expect(await readRepository(pool, id)).toMatchObject({ status: "users_processing", error: null });
    expect(await place.history(id)).toEqual([
      ...["pending", "commits_processing", "users_processing", "failed"],
      ...["pending", "users_processing"],
    ]);
  });

  it("is complete when it is in work again and everybody is known by then", async () => {
    const { id, reading } = await ended("acme/known-by-then", "failed");
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

it("a record that still waits for a job which has completed is no longer in work", async () => {
  const { id, reading } = await place.ask("acme/lost");
  await hand(place, reading, { outcome: "completed", output: null, missing: [] });
  await pool.query("select leaderboard.record_ends()");
  const error = "Its job has ended, and what it has read is not here";
  expect(await readRepository(pool, id)).toMatchObject({ status: "failed", error });
});
