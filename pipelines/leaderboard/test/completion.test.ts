// Completion of a repository by two concurrent transactions: exactly one of them, the last, completes it.
import pg from "pg";
import { waitFor } from "stillwake/testing";
import { afterAll, describe, expect, it } from "vitest";
import { setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards({ build: false });
const { pool } = setup;
const one = new pg.Client({ connectionString: setup.url });
const two = new pg.Client({ connectionString: setup.url });
await one.connect();
await two.connect();
afterAll(async () => {
  await one.end();
  await two.end();
});

const SETTLE = "select leaderboard.settle_email($1, $2, 'email', null, null, null, null) as completed";
const settle = async (session: pg.Client | pg.Pool, id: string, email: string): Promise<boolean> =>
  (await session.query(SETTLE, [id, email])).rows[0].completed;

const waitForLock = () =>
  waitFor(
    async () =>
      (await pool.query("select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"))
        .rowCount === 1,
    { what: "a session that waits for a lock" },
  );

async function statusOf(id: string): Promise<{ status: string; unprocessed: number }> {
  const { rows } = await pool.query(
    `select r.status, (select count(*)::integer from leaderboard.commit_data d where d.repository_id = r.id and not d.processed) as unprocessed
     from leaderboard.repositories r where r.id = $1`,
    [id],
  );
  return rows[0];
}

/** Cancels the current reading and requests another one. */
async function readAgain(repository: string): Promise<string> {
  await setup.stillwake.cancel((await setup.request(repository)).reading);
  return (await setup.request(repository, true)).reading;
}

describe("two transactions that settle the last two addresses", () => {
  it("are serialized, and the second completes the repository", async () => {
    const { id } = await setup.addCounted("acme/pair", { "a@example.com": 1, "b@example.com": 1 });
    await one.query("begin");
    expect(await settle(one, id, "a@example.com")).toBe(false);
    const second = settle(two, id, "b@example.com");
    await waitForLock();
    await one.query("commit");
    expect(await second).toBe(true);
    expect(await statusOf(id)).toEqual({ status: "completed", unprocessed: 0 });
    expect((await setup.history(id)).filter((became) => became === "completed")).toHaveLength(1);
  });

  it("leave it in progress if the first one rolls back", async () => {
    const { id } = await setup.addCounted("acme/undone", { "a@example.org": 1, "b@example.org": 1 });
    await one.query("begin");
    await settle(one, id, "a@example.org");
    const second = settle(two, id, "b@example.org");
    await waitForLock();
    await one.query("rollback");
    expect(await second).toBe(false);
    expect(await statusOf(id)).toEqual({ status: "users_processing", unprocessed: 1 });
    expect(await settle(pool, id, "a@example.org")).toBe(true);
  });

  it("count each commit once if both addresses belong to one person", async () => {
    await setup.addCounted("acme/first", { "same@users.noreply.github.com": 1 });
    const { id } = await setup.addCounted("acme/person", { "x@example.net": 3, "y@example.net": 4 });
    const settleUser = (session: pg.Client, email: string) =>
      session.query("select leaderboard.settle_email($1, $2, 'search', 'same', 5, 'Same', null)", [id, email]);
    await one.query("begin");
    await settleUser(one, "x@example.net");
    const second = settleUser(two, "y@example.net");
    await waitForLock();
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
  it("twice if an address is settled again", async () => {
    const { id } = await setup.addCounted("acme/twice", { "once@example.com": 1 });
    expect(await settle(pool, id, "once@example.com")).toBe(true);
    expect(await settle(pool, id, "once@example.com")).toBe(false);
    expect((await setup.history(id)).filter((became) => became === "completed")).toHaveLength(1);
  });

  it("by a batch of an earlier reading while its commits are read again", async () => {
    const { id } = await setup.addCounted("acme/repeated", { "old@example.com": 1 });
    const reading = await readAgain("acme/repeated");
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
    expect(await settle(pool, id, "old@example.com")).toBe(false);
    expect((await statusOf(id)).status).toBe("commits_processing");
  });

  it("too early by a reading that stores while a batch of an earlier one is settled", async () => {
    const { id } = await setup.addCounted("acme/both", { "p@example.com": 1, "q@example.com": 1 });
    await settle(pool, id, "p@example.com");
    const reading = await readAgain("acme/both");
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
    await waitForLock();
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

it("a lost attempt adds nothing to the counts of its successor", async () => {
  const { id, reading } = await setup.request("acme/zombie");
  await pool.query("select leaderboard.begin_reading($1, $2)", [id, reading]);
  await pool.query(
    "insert into leaderboard.counted values ($1, 1, 'unknown@example.com', 'A', 5), ($1, 2, 'unknown@example.com', 'A', 7)",
    [reading],
  );
  await pool.query("select leaderboard.end_reading($1, $2, 2, true, 'head', null, 50)", [id, reading]);
  // The lost attempt writes late and tries to store too.
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
