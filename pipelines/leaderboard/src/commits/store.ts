// SQL calls of the commits pipeline. Counts are collected per attempt (fence) in leaderboard.counted, and become part of the
// board in one transaction with the checkpoint.
import { userError } from "@stillwake/kit/failures";
import type pg from "pg";
import { BATCH } from "../contract.ts";
import type { Count } from "./count.ts";

export interface Reading {
  repositoryId: string;
  jobId: string;
}

/** How far an earlier reading has counted. */
export interface LastReading {
  head: string | null;
  mailmap: string | null;
}

export interface ReadingResult {
  /** Fencing token of the attempt that counted. */
  fence: string;
  /** All commits, not only new ones. */
  whole: boolean;
  head: string;
  mailmap: string | null;
}

export interface Stored {
  commits: number;
  authors: number;
  lookups: number;
  batches: number;
}

export async function beginReading(pool: pg.Pool, { repositoryId, jobId }: Reading): Promise<LastReading> {
  const { rows } = await pool.query("select head, mailmap from leaderboard.begin_reading($1, $2)", [
    repositoryId,
    jobId,
  ]);
  return rows[0] ?? superseded();
}

/** Deletes the counts of earlier attempts. */
export async function deleteCounts(pool: pg.Pool, { jobId }: Reading, fence: string): Promise<void> {
  await pool.query("delete from leaderboard.counted where job_id = $1 and fence <= $2", [jobId, fence]);
}

export async function addCounts(
  pool: pg.Pool,
  { jobId }: Reading,
  fence: string,
  counts: readonly Count[],
): Promise<void> {
  await pool.query(
    `insert into leaderboard.counted as c (job_id, fence, author_email, author_name, login, commits)
     select $1, $2, g.email, g.name, g.login, g.commits from unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) g (email, name, login, commits)
     on conflict (job_id, fence, author_email) do update set commits = c.commits + excluded.commits`,
    [
      jobId,
      fence,
      counts.map(({ email }) => email),
      counts.map(({ name }) => name),
      counts.map(({ login }) => login),
      counts.map(({ commits }) => commits),
    ],
  );
}

export async function endReading(
  tx: pg.PoolClient,
  { repositoryId, jobId }: Reading,
  read: ReadingResult,
): Promise<Stored> {
  const { rows } = await tx.query(
    "select commits::float8 as commits, authors, lookups, batches from leaderboard.end_reading($1, $2, $3, $4, $5, $6, $7)",
    [repositoryId, jobId, read.fence, read.whole, read.head, read.mailmap, BATCH],
  );
  return rows[0] ?? superseded();
}

/** Sets the status back to users_processing if it was changed after the reading was stored. */
export async function resumeReading(pool: pg.Pool, { repositoryId, jobId }: Reading): Promise<void> {
  await pool.query("select leaderboard.resume_reading($1, $2)", [repositoryId, jobId]);
}

function superseded(): never {
  throw userError("A newer job for this repository has replaced this one", { code: "SUPERSEDED", fatal: true });
}
