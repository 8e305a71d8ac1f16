// Repositories and their readings in the application's tables. A record and its job are stored in one transaction.
import { randomUUID } from "node:crypto";
import { type Paged, type PageRequest, queryPage } from "@stillwake/kit/web/paging";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import type { Stillwake } from "stillwake";
import { BATCH, commits, users } from "./contract.ts";
import type { RepositoryName } from "./repository-url.ts";

type Queries = pg.Pool | pg.PoolClient;

type Status = "pending" | "commits_processing" | "users_processing" | "completed" | "failed";

export interface Repository {
  id: string;
  url: string;
  repository: string;
  status: Status;
  error: string | null;
  /** In progress for more than an hour. */
  stuck: boolean;
  commits: number | null;
  authors: number | null;
  head: string | null;
  lookups: { total: number; processed: number; failed: number };
  times: Record<"createdAt" | "commitsStartedAt" | "commitsEndedAt" | "usersEndedAt" | "updatedAt", Date | null>;
  /** The current or last job that reads its commits. */
  reading: string | null;
}

const IN_PROGRESS = "r.status in ('pending', 'commits_processing', 'users_processing')";
const STUCK = `${IN_PROGRESS} and r.status_since < now() - interval '1 hour'`;

const REPOSITORY = `r.id, r.url, r.name as repository, r.status, r.error, (${STUCK}) as stuck, r.commits::float8 as commits, r.authors, r.head, r.reading,
  (select jsonb_build_object('total', count(*), 'processed', count(*) filter (where d.processed), 'failed', count(*) filter (where not d.processed and d.lookup_error is not null))
   from leaderboard.commit_data d where d.repository_id = r.id) as lookups,
  jsonb_build_object('createdAt', r.created_at, 'commitsStartedAt', r.commits_started_at, 'commitsEndedAt', r.commits_ended_at, 'usersEndedAt', r.users_ended_at,
    'updatedAt', r.updated_at) as times`;

/** Records jobs that ended without pipeline code, such as crashed ones. Call it before reading. */
export async function recordOutcomes(pool: pg.Pool): Promise<void> {
  await pool.query("select leaderboard.record_outcomes()");
}

export async function readRepository(queries: Queries, id: string): Promise<Repository> {
  const { rows } = await queries.query(`select ${REPOSITORY} from leaderboard.repositories r where r.id = $1`, [id]);
  if (!rows[0]) throw notFound("leaderboard");
  return rows[0];
}

/** The newest first. */
export function listRepositories(
  queries: Queries,
  page: PageRequest,
  which: "all" | "stuck",
): Promise<Paged<Repository>> {
  return queryPage<Repository & pg.QueryResultRow>(queries, {
    page,
    select: REPOSITORY,
    from: "leaderboard.repositories r",
    where: [which === "stuck" ? STUCK : "true"],
    values: [],
    order: [
      ["r.created_at", "desc", "timestamptz"],
      ["r.id", "desc", "uuid"],
    ],
  });
}

/**
 * Finds or creates the record of a URL. Starts a reading if there was none, the last one failed or is a day old, or with
 * `refresh`; never a second one at the same time. `started`: a job was enqueued.
 */
export async function requestReading(
  tx: pg.PoolClient,
  stillwake: Stillwake,
  { url, repository }: RepositoryName,
  refresh: boolean,
): Promise<{ id: string; started: boolean }> {
  // The upsert locks the row, so concurrent requests are serialized.
  const { rows } = await tx.query(
    `insert into leaderboard.repositories as r (url, name) values ($1, $2)
     on conflict (url) do update set updated_at = r.updated_at
     returning r.id, r.status, r.reading, r.commits_ended_at <= now() - interval '24 hours' as old`,
    [url, repository],
  );
  const { id, status, reading, old } = rows[0] as { id: string; status: Status; reading: string | null; old: boolean };
  const due =
    reading === null ||
    status === "failed" ||
    (status === "completed" && (refresh || old)) ||
    (status === "users_processing" && refresh);
  if (!due) return { id, started: false };
  const job = await stillwake.enqueue(commits, { repositoryId: id, repository }, { tx });
  // The active job has stored its commits already and would never move the record out of "pending".
  if (job.existing && status !== "failed") return { id, started: false };
  await tx.query(
    "update leaderboard.repositories set status = 'pending', error = null, reading = $2, updated_at = now() where id = $1",
    [id, job.id],
  );
  return { id, started: !job.existing };
}

/**
 * Enqueues look-ups of addresses that are unprocessed or were looked up a day ago, without reading commits. Addresses in
 * active batches are skipped, so repeated calls create no jobs.
 */
export async function lookUpAgain(
  tx: pg.PoolClient,
  stillwake: Stillwake,
  id: string,
): Promise<{ id: string; lookups: number; jobs: number }> {
  // A failed reading may have stored its commits, or an earlier one has. If it is being retried, it will spawn the look-ups.
  const { rows } = await tx.query(
    `select r.status, r.status in ('users_processing', 'completed') or r.status = 'failed' and r.commits_ended_at is not null
       and not exists (select from stillwake.jobs j where j.id = r.reading and j.ended_at is null) as counted
     from leaderboard.repositories r where r.id = $1 for no key update of r`,
    [id],
  );
  if (!rows[0]) throw notFound("leaderboard");
  const { status, counted } = rows[0] as { status: Status; counted: boolean };
  if (!counted) {
    throw new Refusal(409, "NOT_COUNTED", "The commits are not counted yet", {
      remedy: status === "failed" ? "Read it again: POST /leaderboard with its url" : "Wait until they are counted",
    });
  }
  const reading = randomUUID();
  const assigned = await tx.query(
    `select leaderboard.assign_batches($1::uuid, $2, $3, coalesce(jsonb_agg(j.input), '[]')) as lookups
     from stillwake.jobs j where j.pipeline = $4 and j.tenant = $1::uuid::text and j.ended_at is null`,
    [id, reading, BATCH, users.name],
  );
  const lookups = assigned.rows[0].lookups as number;
  await tx.query("select leaderboard.rank($1, null), leaderboard.complete($1)", [id]);
  const jobs = Math.ceil(lookups / BATCH);
  if (lookups > 0) {
    await tx.query(
      "update leaderboard.repositories set status = 'users_processing', error = null, users_ended_at = null, updated_at = now() where id = $1",
      [id],
    );
    const batches = Array.from({ length: jobs }, (_, batch) => ({ repositoryId: id, reading, batch }));
    await stillwake.enqueueMany(users, batches, { tx });
  }
  return { id, lookups, jobs };
}
