// The states of a repository, as the database keeps them: every pair of them, allowed or refused.
import { describe, expect, it } from "vitest";
import { stage } from "./support/leaderboards.ts";

const { pool } = await stage();

const STATES = ["pending", "commits_processing", "users_processing", "completed", "failed"] as const;

/** By what it was: what it may become, and for which reason. */
const ALLOWED: Record<(typeof STATES)[number], Partial<Record<(typeof STATES)[number], string>>> = {
  pending: {
    commits_processing: "a worker is there",
    users_processing: "its job is one that had stored the commits, and was retried by hand",
    failed: "its job ended without our code",
  },
  commits_processing: {
    pending: "another reading takes its place",
    users_processing: "the commits are counted",
    completed: "they are, and everybody is known",
    failed: "the job has failed",
  },
  users_processing: {
    completed: "nobody is left to look up",
    pending: "somebody reads it again",
    failed: "its job ended before it had dealt anything out",
  },
  completed: { pending: "it is read again", users_processing: "contributors are looked up again" },
  failed: {
    pending: "it is asked for again",
    commits_processing: "its job was retried by hand",
    users_processing: "it was, and had stored the commits; or its contributors are looked up again",
  },
};

const pairs = STATES.flatMap((was) =>
  STATES.filter((became) => became !== was).map((became) => ({ was, became, reason: ALLOWED[was][became] })),
);

async function made(status: string): Promise<string> {
  const { rows } = await pool.query(
    "insert into leaderboard.repositories (url, name, status, status_since) values (gen_random_uuid()::text, 'acme/site', $1, now() - interval '2 hours') returning id",
    [status],
  );
  return rows[0].id;
}

const become = (id: string, status: string) =>
  pool.query("update leaderboard.repositories set status = $2 where id = $1", [id, status]);

describe("a repository that is", () => {
  it.each(pairs.filter(({ reason }) => reason))("$was becomes $became when $reason", async ({ was, became }) => {
    const id = await made(was);
    await become(id, became);
    const { rows } = await pool.query(
      "select status, status_since > now() - interval '1 minute' as anew from leaderboard.repositories where id = $1",
      [id],
    );
    expect(rows).toEqual([{ status: became, anew: true }]);
    const history = await pool.query(
      "select was, became from leaderboard.transitions where repository_id = $1 order by at",
      [id],
    );
    expect(history.rows).toEqual([
      { was: null, became: was },
      { was, became },
    ]);
  });

  it.each(pairs.filter(({ reason }) => !reason))("$was cannot become $became", async ({ was, became }) => {
    const id = await made(was);
    await expect(become(id, became)).rejects.toThrow(`A repository that is ${was} cannot become ${became}`);
    const { rows } = await pool.query("select became from leaderboard.transitions where repository_id = $1", [id]);
    expect(rows).toEqual([{ became: was }]);
  });

  it.each(STATES)("%s and stays so is no transition, and keeps its hour", async (status) => {
    const id = await made(status);
    await become(id, status);
    const { rows } = await pool.query(
      "select status_since < now() - interval '1 hour' as kept from leaderboard.repositories where id = $1",
      [id],
    );
    expect(rows).toEqual([{ kept: true }]);
    const history = await pool.query("select from leaderboard.transitions where repository_id = $1", [id]);
    expect(history.rowCount).toBe(1);
  });

  it("of no state that there is, is none", async () => {
    await expect(made("done")).rejects.toThrow(/repositories_status_check/);
  });
});
