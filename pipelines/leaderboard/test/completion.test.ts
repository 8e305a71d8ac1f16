// When a repository is complete, move by move: two sessions of the database, each with a transaction that the other one does not see yet. Whoever comes last finds nothing
// left and completes it; nobody else does, and nobody forgets to.
import pg from "pg";
import { waitFor } from "stillwake/testing";
import { afterAll, describe, expect, it } from "vitest";
import { stage } from "./support/leaderboards.ts";

const place = await stage({ build: false });
const { pool } = place;
const one = new pg.Client({ connectionString: place.url });
const two = new pg.Client({ connectionString: place.url });
await one.connect();
await two.connect();
afterAll(async () => {
  await one.end();
  await two.end();
});

const SETTLE = "select leaderboard.settle_email($1, $2, 'email', null, null, null, null) as completed";
const settle = async (by: pg.Client | pg.Pool, id: string, email: string): Promise<boolean> =>
  (await by.query(SETTLE, [id, email])).rows[0].completed;

/** Until a session waits for a lock. */
const waits = () =>
  waitFor(
    async () =>
      (await pool.query("select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"))
        .rowCount === 1,
    { what: "a session to wait" },
  );

async function statusOf(id: string): Promise<{ status: string; unprocessed: number }> {
  const { rows } = await pool.query(
    `select r.status, (select count(*)::integer from leaderboard.commit_data d where d.repository_id = r.id and not d.processed) as unprocessed
     from leaderboard.repositories r where r.id = $1`,
    [id],
  );
  return rows[0];
}

/** The job that has counted it is over, and another one begins. */
async function readAnew(repository: string): Promise<string> {
  await place.stillwake.cancel((await place.ask(repository)).reading);
  return (await place.ask(repository, true)).reading;
}

describe("two who mark the last two addresses at once", () => {
  it("are one after the other, and the second completes the repository", async () => {
    const { id } = await place.counted("acme/pair", { "a@example.com": 1, "b@example.com": 1 });
    await one.query("begin");
    expect(await settle(one, id, "a@example.com")).toBe(false);
    const second = settle(two, id, "b@example.com");
    await waits();
    await one.query("commit");
    expect(await second).toBe(true);
    expect(await statusOf(id)).toEqual({ status: "completed", unprocessed: 0 });
    expect((await place.history(id)).filter((became) => became === "completed")).toHaveLength(1);
  });

  it("of which the first comes to nothing, leave it in work", async () => {
    const { id } = await place.counted("acme/undone", { "a@example.org": 1, "b@example.org": 1 });
    await one.query("begin");
    await settle(one, id, "a@example.org");
    const second = settle(two, id, "b@example.org");
    await waits();
    await one.query("rollback");
    expect(await second).toBe(false);
    expect(await statusOf(id)).toEqual({ status: "users_processing", unprocessed: 1 });
    expect(await settle(pool, id, "a@example.org")).toBe(true);
  });

  it("and who share an address of one person, count each commit once", async () => {
    await place.counted("acme/first", { "same@users.noreply.github.com": 1 });
    const { id } = await place.counted("acme/person", { "x@example.net": 3, "y@example.net": 4 });
    const user = (by: pg.Client, email: string) =>
      by.query("select leaderboard.settle_email($1, $2, 'search', 'same', 5, 'Same', null)", [id, email]);
    await one.query("begin");
    await user(one, "x@example.net");
    const second = user(two, "y@example.net");
    await waits();
    await one.query("commit");
    await second;
    const { rows } = await pool.query(
      "select commit_count::integer from leaderboard.contributions where repository_id = $1",
      [id],
    );
    expect(rows).toEqual([{ commit_count: 7 }]);
  });
});

describe("a repository is not completed", () => {
  it("twice, when an address is marked once more", async () => {
    const { id } = await place.counted("acme/twice", { "once@example.com": 1 });
    expect(await settle(pool, id, "once@example.com")).toBe(true);
    expect(await settle(pool, id, "once@example.com")).toBe(false);
    expect((await place.history(id)).filter((became) => became === "completed")).toHaveLength(1);
  });

  it("by a batch of the reading before, while its commits are read anew", async () => {
    const { id } = await place.counted("acme/anew", { "old@example.com": 1 });
    const reading = await readAnew("acme/anew");
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
    expect(await settle(pool, id, "old@example.com")).toBe(false);
    expect((await statusOf(id)).status).toBe("commits_processing");
  });

  it("by a reading that stores while a batch of the one before is marked", async () => {
    const { id } = await place.counted("acme/both", { "p@example.com": 1, "q@example.com": 1 });
    await settle(pool, id, "p@example.com");
    const reading = await readAnew("acme/both");
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
    await pool.query(
      "insert into leaderboard.counted values ($1, 1, 'p@example.com', 'P', 5), ($1, 1, 'q@example.com', 'Q', 6)",
      [reading],
    );
    await one.query("begin");
    await settle(one, id, "q@example.com");
    const stored = two.query("select lookups from leaderboard.end_reading($1, $2, 1, true, 'head', null, 50)", [
      id,
      reading,
    ]);
    await waits();
    await one.query("commit");
    expect((await stored).rows).toEqual([{ lookups: 0 }]);
    expect(await statusOf(id)).toEqual({ status: "completed", unprocessed: 0 });
    const { rows } = await pool.query(
      "select sum(commit_count)::integer as linked from leaderboard.contributions where repository_id = $1",
      [id],
    );
    expect(rows).toEqual([{ linked: 11 }]);
  });
});

it("an attempt that was given up adds nothing to what its successor has counted", async () => {
  const { id, reading } = await place.ask("acme/zombie");
  await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
  await pool.query(
    "insert into leaderboard.counted values ($1, 1, 'unknown@example.com', 'A', 5), ($1, 2, 'unknown@example.com', 'A', 7)",
    [reading],
  );
  await pool.query("select leaderboard.end_reading($1, $2, 2, true, 'head', null, 50)", [id, reading]);
  // It wakes up, and ends its step too: its place is taken.
  await pool.query("insert into leaderboard.counted values ($1, 1, 'unknown@example.com', 'A', 5)", [reading]);
  const late = await pool.query("select * from leaderboard.end_reading($1, $2, 1, true, 'head', null, 50)", [
    id,
    reading,
  ]);
  expect(late.rows).toEqual([]);
  const { rows } = await pool.query(
    "select commit_count::integer from leaderboard.commit_data where repository_id = $1",
    [id],
  );
  expect(rows).toEqual([{ commit_count: 7 }]);
});
