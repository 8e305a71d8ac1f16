-- Schedules: which job is due when.

-- The schedule that created a job: { schedule, occurrence, at }; null for others.
alter table stillwake.live_jobs add column origin jsonb;
alter table stillwake.ended_jobs add column origin jsonb;

-- A parsed cron expression, each field sorted: see read_cron().
create type stillwake.cron_fields as (
  minutes  integer[],
  hours    integer[],
  days     integer[],
  months   integer[],
  -- Sunday is 0.
  weekdays integer[],
  -- Both days and weekdays are restricted: a day matches if either does.
  either   boolean
);

create table stillwake.schedules (
  name       text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  cron       text not null,
  fields     stillwake.cron_fields not null,
  zone       text not null,
  pipeline   text not null,
  -- The pool of its jobs, from the options or the pipeline. Its workers run the schedule.
  pool       text not null,
  input      jsonb not null,
  -- Options of enqueue().
  options    jsonb not null,
  -- What to do when the job of the previous occurrence is still live.
  overlap    text not null check (overlap in ('skip', 'queue', 'replace', 'allow')),
  -- What to do with occurrences that were not processed in time.
  catch_up   text not null check (catch_up in ('one', 'all', 'none')),
  -- The next occurrence to process, and its time.
  next_occurrence  text,
  next_at    timestamptz,
  -- When to process it: at next_at, later after a failure, never while paused.
  due_at     timestamptz,
  -- The last occurrence that became a job.
  last_occurrence  text,
  last_at    timestamptz,
  last_job   uuid,
  last_error text,
  fired      bigint not null default 0,
  skipped    bigint not null default 0,
  missed     bigint not null default 0,
  paused_at  timestamptz,
  paused_by  text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  check (paused_at is null or due_at is null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
create index schedules_due on stillwake.schedules (due_at, name) where due_at is not null;
create index schedules_pool on stillwake.schedules (pool, due_at) where due_at is not null;
