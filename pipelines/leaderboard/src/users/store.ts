// SQL calls of the users pipeline. Each one marks its rows as processed in the same transaction, so the rows serve as the checkpoint.
import type pg from "pg";
import type { Address, LookupResult } from "./find.ts";

export interface Batch {
  repositoryId: string;
  reading: string;
  batch: number;
}

/** Settles the addresses that need no call. `completed`: they were the last ones of the repository. */
export async function settleKnown(pool: pg.Pool, batch: Batch): Promise<{ known: number; completed: boolean }> {
  const { rows } = await pool.query("select known, completed from leaderboard.settle_known($1, $2, $3)", [
    batch.repositoryId,
    batch.reading,
    batch.batch,
  ]);
  return rows[0];
}

/** Those with the most commits first. */
export async function listUnprocessed(pool: pg.Pool, batch: Batch): Promise<Address[]> {
  const { rows } = await pool.query(
    `select d.author_email as email, c.login, c.github_id::float8 as "githubId", c.etag
     from leaderboard.commit_data d
     left join leaderboard.contributor_emails e on e.email = d.author_email and e.source = 'search'
     left join leaderboard.contributors c on c.id = e.contributor_id
     where d.repository_id = $1 and d.reading = $2 and d.batch = $3 and not d.processed
     order by d.commit_count desc, d.author_email`,
    [batch.repositoryId, batch.reading, batch.batch],
  );
  return rows;
}

/** Whether the address is still assigned to this batch and unprocessed. */
export async function isStillAssigned(pool: pg.Pool, batch: Batch, email: string): Promise<boolean> {
  const { rowCount } = await pool.query(
    "select from leaderboard.commit_data where repository_id = $1 and reading = $2 and batch = $3 and author_email = $4 and not processed",
    [batch.repositoryId, batch.reading, batch.batch, email],
  );
  return rowCount === 1;
}

/** Returns whether it was the last one of the repository. */
export async function settleEmail(
  pool: pg.Pool,
  repositoryId: string,
  email: string,
  found: LookupResult,
): Promise<boolean> {
  const { source, login, githubId, name, etag } = found;
  const { rows } = await pool.query("select leaderboard.settle_email($1, $2, $3, $4, $5, $6, $7) as completed", [
    repositoryId,
    email,
    source,
    login,
    githubId,
    name,
    etag,
  ]);
  return rows[0].completed;
}

/** The address stays unprocessed; the page shows the reason. */
export async function recordLookupError(pool: pg.Pool, batch: Batch, email: string, message: string): Promise<void> {
  await pool.query(
    `update leaderboard.commit_data set lookup_error = $5
     where repository_id = $1 and reading = $2 and batch = $3 and author_email = $4 and not processed`,
    [batch.repositoryId, batch.reading, batch.batch, email, message],
  );
}
