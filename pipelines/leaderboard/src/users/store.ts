// The user pipeline's statements. Each marks what it stores as processed in the same transaction: the rows are the checkpoint, whatever dies.
import type pg from "pg";
import type { Address, Found } from "./find.ts";

export interface Batch {
  repositoryId: string;
  reading: string;
  batch: number;
}

/** Of those that need no question: how many, and whether they were the last of the repository. */
export async function settleKnown(pool: pg.Pool, of: Batch): Promise<{ known: number; completed: boolean }> {
  const { rows } = await pool.query("select known, completed from leaderboard.settle_known($1, $2, $3)", [
    of.repositoryId,
    of.reading,
    of.batch,
  ]);
  return rows[0];
}

/** The busiest first. */
export async function unprocessed(pool: pg.Pool, of: Batch): Promise<Address[]> {
  const { rows } = await pool.query(
    `select d.author_email as email, c.login, c.github_id::float8 as "githubId", c.etag
     from leaderboard.commit_data d
     left join leaderboard.contributor_emails e on e.email = d.author_email and e.source = 'search'
     left join leaderboard.contributors c on c.id = e.contributor_id
     where d.repository_id = $1 and d.reading = $2 and d.batch = $3 and not d.processed
     order by d.commit_count desc, d.author_email`,
    [of.repositoryId, of.reading, of.batch],
  );
  return rows;
}

/** Whether it is still this batch that is to look it up: it may have been dealt out anew. */
export async function isLeft(pool: pg.Pool, of: Batch, email: string): Promise<boolean> {
  const { rowCount } = await pool.query(
    "select from leaderboard.commit_data where repository_id = $1 and reading = $2 and batch = $3 and author_email = $4 and not processed",
    [of.repositoryId, of.reading, of.batch, email],
  );
  return rowCount === 1;
}

/** Answers whether it was the last one of the repository. */
export async function settle(pool: pg.Pool, repositoryId: string, email: string, found: Found): Promise<boolean> {
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

/** It stays unprocessed, and the page says why. */
export async function noteTrouble(pool: pg.Pool, of: Batch, email: string, trouble: string): Promise<void> {
  await pool.query(
    `update leaderboard.commit_data set trouble = $5
     where repository_id = $1 and reading = $2 and batch = $3 and author_email = $4 and not processed`,
    [of.repositoryId, of.reading, of.batch, email, trouble],
  );
}
