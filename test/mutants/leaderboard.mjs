// Mutants of the leaderboard: who completes a repository and when, whose counts are stored, and what is dealt out to whom.

const COMPLETION = "pipelines/leaderboard/test/completion.test.ts";
const DEALING = "pipelines/leaderboard/test/batches.test.ts";
const tables = (old, text) => ({ file: "pipelines/leaderboard/tables.sql", old, new: text });

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const leaderboardMutants = [
  {
    name: "leaderboard: two who mark the last addresses do not see one another",
    killedBy: COMPLETION,
    edits: [tables("for no key update;\n  if p_login is not null then", ";\n  if p_login is not null then")],
  },
  {
    name: "leaderboard: a repository is completed while addresses are left",
    killedBy: COMPLETION,
    edits: [
      tables(
        "r.status = 'users_processing'\n      and not exists (select from leaderboard.commit_data d where d.repository_id = p_repository and not d.processed)",
        "r.status = 'users_processing'",
      ),
    ],
  },
  {
    name: "leaderboard: an old batch completes a repository that is read anew",
    killedBy: COMPLETION,
    edits: [tables("r.id = p_repository and r.status = 'users_processing'\n", "r.id = p_repository\n")],
  },
  {
    name: "leaderboard: what a dead attempt has counted is stored too",
    killedBy: COMPLETION,
    edits: [
      tables(
        "from leaderboard.counted c where c.job_id = p_job and c.fence = p_fence order by c.author_email\n  on conflict (repository_id",
        "from leaderboard.counted c where c.job_id = p_job and c.fence = least(p_fence, 1) order by c.author_email\n  on conflict (repository_id",
      ),
    ],
  },
  {
    name: "leaderboard: a reading that has ended is ended again",
    killedBy: COMPLETION,
    edits: [
      tables(
        "r.status in ('pending', 'commits_processing', 'failed') for no key update",
        "r.status in ('pending', 'commits_processing', 'failed', 'users_processing') for no key update",
      ),
      tables(
        "('users_processing', 'pending'),",
        "('users_processing', 'pending'), ('users_processing', 'commits_processing'),",
      ),
    ],
  },
  {
    name: "leaderboard: the board is not added up when an address is marked",
    killedBy: COMPLETION,
    edits: [tables("array[v_contributor, v_before]", "array[v_before]")],
  },
  {
    name: "leaderboard: addresses that a batch is at are dealt out again",
    killedBy: DEALING,
    edits: [tables("where w.reading = u.reading and w.batch = u.batch)", "where w.batch < 0)")],
  },
  {
    name: "leaderboard: what has grown old is left to a batch that is past it",
    killedBy: DEALING,
    edits: [tables("set processed = false, reading = null, batch = null", "set processed = false")],
  },
  {
    name: "leaderboard: a reading that dealt out nothing stays in work for ever",
    killedBy: DEALING,
    edits: [tables("not exists (select from stillwake.jobs s where s.parent_id = o.id)", "false")],
  },
  {
    name: "leaderboard: a reading that has ended badly is failed under its batches",
    killedBy: DEALING,
    edits: [tables(" and not exists (select from stillwake.jobs s where s.parent_id = o.id)", "")],
  },
  {
    name: "leaderboard: another reading brings a failed one back",
    killedBy: DEALING,
    edits: [tables("r.reading = p_job and r.status in ('pending', 'failed');", "r.status in ('pending', 'failed');")],
  },
  {
    name: "leaderboard: a retried reading that was asked for again waits for ever",
    killedBy: DEALING,
    edits: [
      tables("r.reading = p_job and r.status in ('pending', 'failed');", "r.reading = p_job and r.status = 'failed';"),
    ],
  },
  {
    name: "leaderboard: a retried reading whose people are all known is never complete",
    killedBy: DEALING,
    edits: [tables("  if found then\n    perform leaderboard.complete(p_repository);\n  end if;\n", "")],
  },
];
