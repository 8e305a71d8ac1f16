// Mutants of sql/functions/flow/schedules.sql.
export const file = "sql/functions/flow/schedules.sql";
export const killedBy = "test/flow/schedules.test.ts";

export const mutants = [
  {
    name: "the row of a schedule is not locked",
    only: "that another transaction fires is skipped",
    old: "where s.name = v_name and s.due_at <= v_now for update skip locked;",
    new: "where s.name = v_name;",
  },
  {
    name: "neither a lock nor an idempotency key protects an occurrence",
    killedBy: "test/flow/schedules-dst.test.ts",
    only: "becomes one job",
    edits: [
      {
        old: "where s.name = v_name and s.due_at <= v_now for update skip locked;",
        new: "where s.name = v_name;",
      },
      {
        old: "p_row.name || ':' || p_occurrence",
        new: "p_row.name || ':' || gen_random_uuid()",
      },
    ],
  },
  {
    name: "an occurrence has no idempotency key",
    only: "that is set back",
    old: "p_row.name || ':' || p_occurrence",
    new: "p_row.name || ':' || gen_random_uuid()",
  },
  {
    name: "every missed occurrence is caught up",
    only: '"one"',
    old: "or v_row.catch_up = 'all' then",
    new: "or v_row.catch_up in ('one', 'all') then",
  },
  {
    name: "an occurrence that is an hour late counts as on time",
    only: '"none"',
    old: "v_row.next_at >= p_now - interval '1 minute'",
    new: "v_row.next_at >= p_now - interval '1 hour'",
  },
  {
    name: "a late occurrence runs beside one that is on time",
    only: "no older occurrence runs with it",
    edits: [
      {
        old: "and v_missed > 0 and v_occurrences = '{}' and",
        new: "and v_missed > 0 and",
      },
      {
        old: "v_occurrences := v_late[2:2];",
        new: "v_occurrences := v_late[2:2] || v_occurrences;",
      },
      {
        old: "v_times := v_late_at[2:2];",
        new: "v_times := v_late_at[2:2] || v_times;",
      },
    ],
  },
  {
    name: "occurrences beyond the limit of one call are dropped",
    only: "bounded portions",
    old: "if v_again or v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all' then",
    new: "if cardinality(v_occurrences) < 99 and (v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all') then",
  },
  {
    name: "an occurrence runs beside the job of the previous occurrence",
    only: '"skip"',
    old: "if v_row.overlap = 'skip' and",
    new: "if v_row.overlap is null and",
  },
  {
    name: "a queued occurrence does not wait",
    only: '"queue"',
    old: "when p_row.overlap in ('queue', 'replace')",
    new: "when p_row.overlap in ('replace')",
  },
  {
    name: "a replacing occurrence runs before the previous job has stopped",
    only: '"replace"',
    old: "when p_row.overlap in ('queue', 'replace')",
    new: "when p_row.overlap in ('queue')",
  },
  {
    name: "a replacing occurrence cancels no job",
    only: '"replace"',
    old: "perform stillwake.cancel(v_row.last_job,",
    new: "perform concat(v_row.last_job,",
  },
  {
    name: "one failing schedule stops the others",
    only: "an occurrence that fails blocks neither",
    edits: [
      {
        old: `not this schedule: the caller repeats it.
      if sqlstate in ('40P01', '40001') then`,
        new: `not this schedule: the caller repeats it.
      if sqlstate is not null then`,
      },
      {
        old: `      -- caller repeats it.
      if sqlstate in ('40P01', '40001') then`,
        new: `      -- caller repeats it.
      if sqlstate is not null then`,
      },
    ],
  },
  {
    name: "one schedule that waits for a lock blocks the others",
    only: "waits for a lock delays",
    old: "set lock_timeout = '500ms' as",
    new: "as",
  },
  {
    name: "a call waits for every locked schedule in turn",
    only: "waits for a lock delays",
    old: "perform set_config('lock_timeout', '20ms', true);",
    new: "null;",
  },
  {
    name: "a failed occurrence counts as late when it is retried",
    only: "a failed occurrence is not late",
    old: "if v_again or v_row.next_at",
    new: "if v_row.next_at",
  },
  {
    name: "a failed occurrence counts as on time for ever",
    only: "if no call tried it again in time",
    old: " and p_row.due_at >= p_now - interval '60 seconds';",
    new: ";",
  },
  {
    name: "missed occurrences are counted again with each retry",
    only: "a failed occurrence is not late",
    old: "if v_missed > 0 and occurrence is distinct from p_row.next_occurrence then",
    new: "if v_missed > 0 then",
  },
  {
    name: "each schedule catches up a hundred occurrences in one call",
    only: "creates at most a hundred jobs",
    old: "v_jobs := v_jobs - (act in ('fired', 'joined'))::integer;",
    new: "",
  },
  {
    name: "a schedule with remaining occurrences runs before the others",
    only: "creates at most a hundred jobs",
    old: "case when v_row.next_at <= p_now then p_now else v_row.next_at end;",
    new: "v_row.next_at;",
  },
  {
    name: "a schedule of a paused pool creates jobs",
    only: "while its pool is paused",
    old: `(p_pool is null or s.pool = p_pool) and not exists (select from stillwake.pools p
      where p.name = s.pool and p.paused_at is not null)`,
    new: "(p_pool is null or s.pool = p_pool)",
  },
  {
    name: "occurrences missed during a pause are caught up",
    only: "occurrences of a pause",
    old: `next_occurrence = a.occurrence, next_at = a.at, due_at = a.at
`,
    new: `due_at = s.next_at
`,
  },
  {
    name: "setting the same definition again restarts a schedule",
    only: "set again changes nothing",
    old: "if v_new.cron is distinct from v_old.cron or v_new.zone is distinct from v_old.zone then",
    new: "if v_new.cron is not null then",
  },
  {
    name: "a new schedule sends no hint",
    only: "send a hint",
    old: "perform stillwake.hint(v_new.pool);",
    new: "null;",
  },
];
