-- Schedules: which job is due when.

-- What brought a job into being, when that was not somebody's call: { schedule, slot, at }.
alter table stillwake.live_jobs add column origin jsonb;
alter table stillwake.ended_jobs add column origin jsonb;

-- A cron as numbers, each field sorted: see read_cron().
create type stillwake.cron_fields as (
  minutes  integer[],
  hours    integer[],
  days     integer[],
  months   integer[],
  -- Sunday is 0.
  weekdays integer[],
  -- Both days and weekdays are given: either will do.
  either   boolean
);

create table stillwake.schedules (
  name       text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  cron       text not null,
  fields     stillwake.cron_fields not null,
  zone       text not null,
  pipeline   text not null,
  -- The pool whose workers look after it is the one its jobs go to: that of the options, or of the pipeline.
  pool       text not null,
  input      jsonb not null,
  -- As enqueue() takes them.
  options    jsonb not null,
  -- A slot comes while the job of the last one is live.
  overlap    text not null check (overlap in ('skip', 'queue', 'replace', 'allow')),
  -- Slots passed while nobody could look.
  catch_up   text not null check (catch_up in ('one', 'all', 'none')),
  -- The slot that nobody has seen to yet, and its moment.
  next_slot  text,
  next_at    timestamptz,
  -- When to look: at next_at, somewhat later after a failure, never while it is paused.
  due_at     timestamptz,
  -- The last slot that became a job.
  last_slot  text,
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

-- Verbs whose answer has grown.
drop function if exists stillwake.claim(text, text, text[], integer, interval, uuid, bigint, integer[], integer[], text);
drop function if exists stillwake.settle_and_claim(jsonb, text, text, text[], integer, interval, uuid, bigint, integer[], integer[], text);
