// Repositories and their readings in the application's tables. A record and the job that reads it are one transaction, so that neither is ever without the other.
import { randomUUID } from "node:crypto";
import { type Page, type Paged, pageOf } from "@stillwake/kit/web/paging";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import type { Stillwake } from "stillwake";
import { BATCH, commits, users } from "./contract.ts";
import type { Named } from "./repository-url.ts";

type Queries = pg.Pool | pg.PoolClient;

type Status = "pending" | "commits_processing" | "users_processing" | "completed" | "failed";

export interface Repository {
  id: string;
  url: string;
  repository: string;
  status: Status;
  error: string | null;
  /** More than an hour in work. */
  stuck: boolean;
  commits: number | null;
  authors: number | null;
  head: string | null;
  lookups: { total: number; processed: number; failed: number };
  times: Record<"createdAt" | "commitsStartedAt" | "commitsEndedAt" | "usersEndedAt" | "updatedAt", Date | null>;
  /** The job that reads its commits, or has read them last. */
  reading: string | null;
}

const IN_WORK = "r.status in ('pending', 'commits_processing', 'users_processing')";
const STUCK = `${IN_WORK} and r.status_since < now() - interval '1 hour'`;

const REPOSITORY = `r.id, r.url, r.name as repository, r.status, r.error, (${STUCK}) as stuck, r.commits::float8 as commits, r.authors, r.head, r.reading,
  (select jsonb_build_object('total', count(*), 'processed', count(*) filter (where d.processed), 'failed', count(*) filter (where not d.processed and d.trouble is not null))
   from leaderboard.commit_data d where d.repository_id = r.id) as lookups,
  jsonb_build_object('createdAt', r.created_at, 'commitsStartedAt', r.commits_started_at, 'commitsEndedAt', r.commits_ended_at, 'usersEndedAt', r.users_ended_at,
    'updatedAt', r.updated_at) as times`;

/** What ended without any code of ours is brought first. */
export async function recordEnds(pool: pg.Pool): Promise<void> {
  await pool.query("select leaderboard.record_ends()");
}

export async function readRepository(queries: Queries, id: string): Promise<Repository> {
  const { rows } = await queries.query(`select ${REPOSITORY} from leaderboard.repositories r where r.id = $1`, [id]);
  if (!rows[0]) throw notFound("leaderboard");
  return rows[0];
}

/** The newest first. */
export function listRepositories(queries: Queries, page: Page, which: "all" | "stuck"): Promise<Paged<Repository>> {
  return pageOf<Repository & pg.QueryResultRow>(queries, {
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
 * The record of this address, made if there is none. Its commits are read when they never were, could not be, were read a day ago, or when somebody insists; a reading
 * that is on its way is not begun twice. Answers whether there is a job to be started.
 */
export async function ask(
  tx: pg.PoolClient,
  stillwake: Stillwake,
  { url, repository }: Named,
  refresh: boolean,
): Promise<{ id: string; started: boolean }> {
  // Two who ask at once are one after the other: the row is locked either way.
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
  // The job has just stored the commits and has not ended yet: it reads nothing any more, and nobody would bring the record out of "pending".
  if (job.existing && status !== "failed") return { id, started: false };
  await tx.query(
    "update leaderboard.repositories set status = 'pending', error = null, reading = $2, updated_at = now() where id = $1",
    [id, job.id],
  );
  return { id, started: !job.existing };
}

/** Looks up what is unprocessed, and what was looked up a day ago, without reading any commit. What a batch on its way will look up is left to it: asked again and again, nothing is made. */
export async function lookUpAgain(
  tx: pg.PoolClient,
  stillwake: Stillwake,
  id: string,
): Promise<{ id: string; lookups: number; jobs: number }> {
  // A reading that failed has left what an earlier one, or it itself, had stored. While it is on its way again, that is its to go on with.
  const { rows } = await tx.query(
    `select r.status, r.status in ('users_processing', 'completed') or r.status = 'failed' and r.commits_ended_at is not null
       and not exists (select from stillwake.jobs j where j.id = r.reading and j.ended_at is null) as counted
     from leaderboard.repositories r where r.id = $1 for no key update of r`,
    [id],
  );
  if (!rows[0]) throw notFound("leaderboard");
  const { status, counted } = rows[0] as { status: Status; counted: boolean };
  if (!counted) {
    throw new Refusal(409, "NOT_COUNTED", "Its commits are not counted yet", {
      remedy: status === "failed" ? "Read it again: POST /leaderboard with its url" : "Wait until they are",
    });
  }
  const reading = randomUUID();
  const dealt = await tx.query(
    `select leaderboard.deal_out($1::uuid, $2, $3, coalesce(jsonb_agg(j.input), '[]')) as lookups
     from stillwake.jobs j where j.pipeline = $4 and j.tenant = $1::uuid::text and j.ended_at is null`,
    [id, reading, BATCH, users.name],
  );
  const lookups = dealt.rows[0].lookups as number;
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
