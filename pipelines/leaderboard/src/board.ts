// The board: contributors by number of commits, and the progress of its look-ups. It never contains e-mail addresses.
import { type Paged, type PageRequest, queryPage } from "@stillwake/kit/web/paging";
import type pg from "pg";
import { type Job, type Stillwake, StillwakeError } from "stillwake";
import { reads, searches } from "./contract.ts";
import type { Repository } from "./repositories.ts";

export interface Contributor {
  rank: number;
  login: string | null;
  name: string | null;
  initials: string;
  url: string | null;
  commits: number;
  /** Share of all commits, from 0 to 1. */
  share: number;
  /** False: the address has not been looked up yet. */
  known: boolean;
}

/** GitHub's rate limit as all workers share it. */
export interface Quota {
  remaining: number | null;
  limit: number | null;
  resetAt: Date | null;
  waiting: boolean;
  waitingUntil: Date | null;
  reason: string | null;
}

type Stage = "commits" | "users" | null;

export interface Summary extends Omit<Repository, "reading"> {
  stage: Stage;
  /** Number of commits counted so far; null unless commits are being counted. */
  progress: { done: number } | null;
  jobs: { commits: string | null };
  quota: Quota;
}

export interface Board extends Summary {
  contributors: Paged<Contributor>;
}

/** Contributors with the sum of their addresses, and each address that has not been looked up yet. */
const ENTRIES = `(
  select c.contributor_id as id, c.commit_count as commits, true as known from leaderboard.contributions c where c.repository_id = $1
  union all
  select d.id, d.commit_count, false from leaderboard.commit_data d where d.repository_id = $1 and d.contributor_id is null
) b left join leaderboard.contributors p on b.known and p.id = b.id`;

/** A contributor without a name on GitHub gets the name of the commits in this repository. */
const NAME = `coalesce(p.name, (
  select d.author_name from leaderboard.commit_data d where d.repository_id = $1 and case when b.known then d.contributor_id else d.id end = b.id
  order by d.commit_count desc, d.author_email limit 1
))`;

interface Row {
  id: string;
  login: string | null;
  name: string | null;
  commits: number;
  known: boolean;
}

export async function readContributors(pool: pg.Pool, id: string, page: PageRequest): Promise<Paged<Contributor>> {
  const { rows, ...rest } = await queryPage<Row & pg.QueryResultRow>(pool, {
    page,
    select: `b.id, p.login, ${NAME} as name, b.commits::float8 as commits, b.known`,
    from: ENTRIES,
    where: ["true"],
    values: [id],
    order: [
      ["b.commits", "desc", "bigint"],
      ["b.id", "asc", "uuid"],
    ],
  });
  const [first] = rows;
  if (!first) return { rows: [], ...rest };
  // Computes the rank of the first row only: numbering all rows would make every page cost as much as the whole list.
  const { rows: counted } = await pool.query(
    `select count(*) filter (where b.commits > $2)::integer as more, count(*) filter (where b.commits = $2 and b.id < $3)::integer as same, sum(b.commits)::float8 as all
     from ${ENTRIES}`,
    [id, first.commits, first.id],
  );
  const { more, same, all } = counted[0] as { more: number; same: number; all: number };
  let rank = more + 1;
  return {
    rows: rows.map(({ id: _, ...row }, index) => {
      if (index > 0 && row.commits < rows[index - 1]!.commits) rank = more + same + index + 1;
      const name = row.name && withoutAddress(row.name);
      const initials = initialsOf({ name, login: row.login });
      return { rank, ...row, name, initials, url: urlOf(row.login), share: row.commits / all };
    }),
    ...rest,
  };
}

/** Names may contain an e-mail address: only the part before the "@" is shown. */
function withoutAddress(name: string): string {
  return name.replace(/<?([^\s@<>()]+)(?:@[^\s@<>()]+)+>?/g, "$1");
}

export async function readSummaries(stillwake: Stillwake, repositories: readonly Repository[]): Promise<Summary[]> {
  const { search } = await readQuotas(stillwake);
  return Promise.all(
    repositories.map(async ({ reading, ...rest }) => {
      const stage = stageOf(rest.status);
      const counting = rest.status === "commits_processing" && reading !== null;
      const progress = counting ? await readProgress(stillwake, reading) : null;
      return { ...rest, stage, progress, jobs: { commits: reading }, quota: search };
    }),
  );
}

function stageOf(status: Repository["status"]): Stage {
  if (status === "pending" || status === "commits_processing") return "commits";
  return status === "users_processing" ? "users" : null;
}

export async function readQuotas(stillwake: Stillwake): Promise<{ search: Quota; core: Quota }> {
  const limits = await stillwake.flow.limits();
  const quotaOf = (name: string): Quota => {
    const state = limits.find((limit) => limit.name === name);
    const reported = state?.reported && state.reported.resetAt > new Date() ? state.reported : null;
    return {
      remaining: reported?.remaining ?? null,
      limit: reported?.max ?? null,
      resetAt: reported?.resetAt ?? null,
      waiting: state !== undefined && state.free === 0 && state.until !== null,
      waitingUntil: state?.until ?? null,
      reason: state?.reason ?? null,
    };
  };
  return { search: quotaOf(searches.name), core: quotaOf(reads.name) };
}

async function readProgress(stillwake: Stillwake, id: string): Promise<{ done: number } | null> {
  let job: Job;
  try {
    job = await stillwake.get(id);
  } catch (error) {
    if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return null;
    throw error;
  }
  return { done: Number(job.progress?.done ?? 0) };
}

/** Initials of the first and last word. */
function initialsOf({ name, login }: { name: string | null; login: string | null }): string {
  const words = (name || login || "?").split(/[\s._-]+/).filter((word) => /[\p{L}\p{N}]/u.test(word));
  const letters = [words[0], words.length > 1 ? words.at(-1) : undefined].map(
    (word) => /[\p{L}\p{N}]/u.exec(word ?? "")?.[0] ?? "",
  );
  return letters.join("").toLocaleUpperCase("en-US") || "?";
}

function urlOf(login: string | null): string | null {
  if (login === null) return null;
  const [, app] = /^(.+)\[bot\]$/.exec(login) ?? [];
  return `https://github.com/${app ? `apps/${encodeURIComponent(app)}` : encodeURIComponent(login)}`;
}
