// Status changes of a repository: every pair is allowed or refused by the database.
import { describe, expect, it } from "vitest";
import { setUpLeaderboards } from "./support/leaderboards.ts";

const { pool } = await setUpLeaderboards();

const STATES = ["pending", "commits_processing", "users_processing", "completed", "failed"] as const;

/** Allowed changes with their reason. */
const ALLOWED: Record<(typeof STATES)[number], Partial<Record<(typeof STATES)[number], string>>> = {
  pending: {
    commits_processing: "a worker claims its job",
    users_processing: "its job had stored the commits and is retried",
    failed: "its job ends without pipeline code",
  },
  commits_processing: {
    pending: "another reading replaces it",
    users_processing: "the commits are counted",
    completed: "the commits are counted and all contributors are known",
    failed: "the job fails",
  },
  users_processing: {
    completed: "no address is left to look up",
    pending: "it is read again",
    failed: "its job ends before it has spawned look-ups",
  },
  completed: { pending: "it is read again", users_processing: "contributors are looked up again" },
  failed: {
    pending: "it is requested again",
    commits_processing: "its job is retried",
    users_processing: "its job is retried after storing, or contributors are looked up again",
  },
};

const pairs = STATES.flatMap((was) =>
  STATES.filter((became) => became !== was).map((became) => ({ was, became, reason: ALLOWED[was][became] })),
);

async function createRepository(status: string): Promise<string> {
  const { rows } = await pool.query(
    "insert into leaderboard.repositories (url, name, status, status_since) values (gen_random_uuid()::text, 'acme/site', $1, now() - interval '2 hours') returning id",
    [status],
  );
  return rows[0].id;
}

const become = (id: string, status: string) =>
  pool.query("update leaderboard.repositories set status = $2 where id = $1", [id, status]);

describe("a repository", () => {
  it.each(pairs.filter(({ reason }) => reason))(
    "changes from $was to $became when $reason",
    async ({ was, became }) => {
      const id = await createRepository(was);
      await become(id, became);
      const { rows } = await pool.query(
        "select status, status_since > now() - interval '1 minute' as recent from leaderboard.repositories where id = $1",
        [id],
      );
      expect(rows).toEqual([{ status: became, recent: true }]);
      const history = await pool.query(
        "select was, became from leaderboard.transitions where repository_id = $1 order by at",
        [id],
      );
      expect(history.rows).toEqual([
        { was: null, became: was },
        { was, became },
      ]);
    },
  );

  it.each(pairs.filter(({ reason }) => !reason))("cannot change from $was to $became", async ({ was, became }) => {
    const id = await createRepository(was);
    await expect(become(id, became)).rejects.toThrow(`A repository cannot change from ${was} to ${became}`);
    const { rows } = await pool.query("select became from leaderboard.transitions where repository_id = $1", [id]);
    expect(rows).toEqual([{ became: was }]);
  });

  it.each(STATES)("that stays %s has no transition and keeps status_since", async (status) => {
    const id = await createRepository(status);
    await become(id, status);
    const { rows } = await pool.query(
      "select status_since < now() - interval '1 hour' as kept from leaderboard.repositories where id = $1",
      [id],
    );
    expect(rows).toEqual([{ kept: true }]);
    const history = await pool.query("select from leaderboard.transitions where repository_id = $1", [id]);
    expect(history.rowCount).toBe(1);
  });

  it("cannot have an unknown status", async () => {
    await expect(createRepository("done")).rejects.toThrow(/repositories_status_check/);
  });
});
