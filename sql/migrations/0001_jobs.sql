-- The tables of one Stillwake.
--
-- A job lives in live_jobs while it waits or runs and moves, once, to ended_jobs. live_jobs is the hot table: narrow indexes, room on
-- every page, and no index that mentions a column the claim writes, so that a claim is a HOT update. What only grows (ended_jobs,
-- ended_attempts, checkpoints, feed) is partitioned so that forgetting is a DROP.
--
--   enqueue -> live_jobs (queued) -> claim -> (running, under a row of leases) -> settle -> ended_jobs
--                   ^                                                               |
--                   +------ retry, sleep, release, lost: back in line --------------+
--
-- Only the functions in sql/functions write here. Lock order everywhere: leases by id, then live_jobs by id, then the rest.

create table stillwake.pools (
  name         text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  created_at   timestamptz not null default clock_timestamp()
);

create table stillwake.pipelines (
  name           text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  pool           text not null references stillwake.pools,
  priority       smallint not null default 0,
  max_attempts   smallint not null default 3 check (max_attempts between 1 and 1000),
  crash_limit    smallint not null default 3 check (crash_limit between 1 and 1000),
  backoff_initial  interval not null default '2 seconds' check (backoff_initial >= '0'),
  backoff_max   interval not null default '15 minutes' check (backoff_max >= backoff_initial),
  keep_completed interval not null default '14 days' check (keep_completed >= '0'),
  keep_failed    interval not null default '30 days' check (keep_failed >= '0'),
  keep_cancelled interval not null default '14 days' check (keep_cancelled >= '0'),
  created_at     timestamptz not null default clock_timestamp(),
  updated_at     timestamptz not null default clock_timestamp()
);

create table stillwake.live_jobs (
  id              uuid primary key,
  created_at      timestamptz not null,
  -- Claimable means run_at <= now() and no lease. A paused job has run_at = infinity or its resume time; its place in line is in pause.
  run_at          timestamptz not null,
  expires_at      timestamptz,
  -- The lease columns: in no index, not even in a predicate.
  lease_id        uuid,
  epoch           bigint not null default 0,
  claimed_at      timestamptz,
  started_at      timestamptz,
  seq             bigint not null default 0,
  attempt         integer not null default 0,
  max_attempts    integer not null,
  crashes         integer not null default 0,
  priority        smallint not null,
  state           text not null default 'queued' check (state in ('queued', 'running', 'paused')),
  pipeline        text not null,
  pool            text not null,
  waiting_for     text check (waiting_for in ('time', 'retry', 'key', 'limit', 'children', 'event', 'machine')),
  worker          text,
  key             text,
  tenant          text,
  idempotency_key text,
  input           jsonb not null,
  progress        jsonb,
  failure         jsonb,
  cancel          jsonb,
  pause           jsonb,
  check ((lease_id is null) = (state <> 'running'))
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 0
);
create index live_jobs_line on stillwake.live_jobs (pool, priority desc, run_at, id);
create index live_jobs_expiry on stillwake.live_jobs (pool, expires_at) where expires_at is not null;

-- One row per claim, whatever the number of jobs it took: heartbeats write here and never touch a job. It is also the mutex of the jobs
-- that run under it: whoever ends, recovers or cancels one of them locks this row first.
create table stillwake.leases (
  id         uuid primary key,
  pool       text not null,
  worker     text not null,
  claimed_at timestamptz not null,
  until      timestamptz not null,
  span       interval not null,
  job_ids    uuid[] not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
create index leases_until on stillwake.leases (until);

-- A row lies in the partition of the week in which it may be forgotten.
create table stillwake.ended_jobs (
  id              uuid not null,
  forget_on       date not null,
  state           text not null check (state in ('completed', 'failed', 'cancelled')),
  created_at      timestamptz not null,
  run_at          timestamptz not null,
  expires_at      timestamptz,
  started_at      timestamptz,
  claimed_at      timestamptz,
  ended_at        timestamptz not null,
  -- Of the last attempt, so that its worker can be told how it ended; null when it ended without one.
  lease_id        uuid,
  epoch           bigint not null,
  seq             bigint not null,
  attempt         integer not null,
  max_attempts    integer not null,
  crashes         integer not null,
  priority        smallint not null,
  pipeline        text not null,
  pool            text not null,
  worker          text,
  key             text,
  tenant          text,
  idempotency_key text,
  input           jsonb not null,
  output          jsonb,
  failure         jsonb,
  cancel          jsonb,
  progress        jsonb,
  missing         text[],
  -- How the last attempt ended, when its name is not that of the state.
  outcome         text check (outcome in ('failed', 'slept', 'paused', 'released', 'lost')),
  primary key (id, forget_on)
) partition by range (forget_on);
create index ended_jobs_failed on stillwake.ended_jobs (id) where state = 'failed';

-- Attempts that ended and left the job alive. The last attempt of an ended job is in its own row: see the view attempts.
create table stillwake.ended_attempts (
  job_id     uuid not null,
  epoch      bigint not null,
  lease_id   uuid,
  attempt    integer not null,
  worker     text,
  claimed_at timestamptz not null,
  ended_at   timestamptz not null,
  outcome    text not null check (outcome in ('completed', 'failed', 'cancelled', 'slept', 'paused', 'released', 'lost')),
  failure    jsonb,
  primary key (job_id, epoch)
) partition by range (job_id);

create table stillwake.checkpoints (
  job_id     uuid not null,
  step       text not null,
  epoch      bigint not null,
  started_at timestamptz,
  saved_at   timestamptz not null,
  output     jsonb,
  primary key (job_id, step)
) partition by range (job_id);

-- Log lines and events of a job in one sequence, taken under the job's row: a reader with a cursor never misses one.
create table stillwake.feed (
  job_id  uuid not null,
  seq     bigint not null,
  at      timestamptz not null,
  epoch   bigint not null,
  kind    text not null,
  level   text check (level in ('info', 'success', 'warning', 'error')),
  step    text,
  message text,
  data    jsonb,
  primary key (job_id, seq),
  check ((kind = 'log') = (level is not null))
) partition by range (job_id);

create table stillwake.idempotency_keys (
  pipeline  text not null,
  key       text not null,
  job_id    uuid not null,
  forget_on date,
  primary key (pipeline, key)
);
create index idempotency_keys_forget on stillwake.idempotency_keys (forget_on) where forget_on is not null;

-- Who wants to be told of new work. enqueue sends its hint only when somebody is listed here.
create table stillwake.listeners (
  pool   text not null,
  worker text not null,
  until  timestamptz not null,
  primary key (pool, worker)
);

create table stillwake.ended_jobs_default partition of stillwake.ended_jobs default;
-- Kept for ever. Apart from the default partition, which is looked through whenever a week is added.
create table stillwake.ended_jobs_forever partition of stillwake.ended_jobs for values from ('infinity') to (maxvalue);
create table stillwake.ended_attempts_default partition of stillwake.ended_attempts default;
create table stillwake.checkpoints_default partition of stillwake.checkpoints default;
create table stillwake.feed_default partition of stillwake.feed default;
