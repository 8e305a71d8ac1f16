// Mutants of pipelines/leaderboard/tables.sql.
export const file = "pipelines/leaderboard/tables.sql";
export const killedBy = "pipelines/leaderboard/test/batches.test.ts";

export const mutants = [
  {
    name: "two batches that finish the last addresses do not see each other",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    old: `for no key update;
  if p_login is not null then`,
    new: `;
  if p_login is not null then`,
  },
  {
    name: "a repository is completed while addresses are left",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    old: `r.status = 'users_processing'
      and not exists (select from leaderboard.commit_data d where d.repository_id = p_repository and not d.processed)`,
    new: "r.status = 'users_processing'",
  },
  {
    name: "an old batch completes a repository that is being read again",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    old: `r.id = p_repository and r.status = 'users_processing'
`,
    new: `r.id = p_repository
`,
  },
  {
    name: "counts of a dead attempt are stored too",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    old: `from leaderboard.counted c where c.job_id = p_job and c.fence = p_fence order by c.author_email
  on conflict (repository_id`,
    new: `from leaderboard.counted c where c.job_id = p_job and c.fence = least(p_fence, 1) order by c.author_email
  on conflict (repository_id`,
  },
  {
    name: "a finished reading is finished again",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    edits: [
      {
        old: "r.status in ('pending', 'commits_processing', 'failed')\n  for no key update",
        new: "r.status in ('pending', 'commits_processing', 'failed', 'users_processing')\n  for no key update",
      },
      {
        old: "('users_processing', 'pending'),",
        new: "('users_processing', 'pending'), ('users_processing', 'commits_processing'),",
      },
    ],
  },
  {
    name: "the board is not updated when an address is finished",
    killedBy: "pipelines/leaderboard/test/completion.test.ts",
    old: "array[v_contributor, v_before]",
    new: "array[v_before]",
  },
  {
    name: "addresses of a running batch are assigned again",
    old: "where w.reading = u.reading and w.batch = u.batch",
    new: "where w.batch < 0",
  },
  {
    name: "outdated counts are left to a batch that has passed them",
    old: "set processed = false, reading = null, batch = null",
    new: "set processed = false",
  },
  {
    name: "a reading without batches stays unfinished",
    old: "not exists (select from stillwake.jobs s where s.parent_id = o.id)",
    new: "false",
  },
  {
    name: "a failed reading fails its running batches",
    old: " and not exists (select from stillwake.jobs s where s.parent_id = o.id)",
    new: "",
  },
  {
    name: "another reading resets a failed one",
    old: "r.reading = p_job and r.status in ('pending', 'failed');",
    new: "r.status in ('pending', 'failed');",
  },
  {
    name: "a retried reading that was requested again waits for ever",
    old: "r.reading = p_job and r.status in ('pending', 'failed');",
    new: "r.reading = p_job and r.status = 'failed';",
  },
  {
    name: "a retried reading without new people never completes",
    old: `  if found then
    perform leaderboard.complete(p_repository);
  end if;
`,
    new: "",
  },
];
