-- Stillwake in one page. Read this, then sql/functions/jobs: enqueue, claim, lease, settle.
--
-- Tables. live_jobs holds jobs that wait or run, ended_jobs those that have ended; a job moves once, in end_jobs().
-- ended_attempts holds attempts whose job continued. leases holds one row per claim. checkpoints, feed (log lines and
-- events), artifacts, spawns and signals belong to jobs. pipelines, pools, limits, breakers, schedules, endpoints and
-- machine_lives are described in the migrations that create them. Only the functions in sql/functions write here.
--
-- States.
--
--   enqueue -> live_jobs (queued) -> claim -> running, under a lease -> settle -> ended_jobs
--                   ^                              |                      |       (completed, failed, cancelled)
--                   +---- retry, sleep, release, lost: requeued ----------+
--
-- claim() takes due jobs in queue order (priority, run_at, id), counts the attempt, increments the epoch and inserts
-- one lease for the batch. heartbeat() extends the lease and reports a requested cancel or pause. settle() ends the
-- attempt: the job ends, or it is requeued (retry with back-off, sleep, pause, release).
--
-- Fence. Every write of a worker names (job, epoch, lease), which must match the job's row while the lease's row is
-- locked. A worker that lost its lease can therefore write nothing, however late its statement arrives.
--
-- Lock order, everywhere: leases by id, then live_jobs by id, then the rest. The lease is the mutex of its jobs:
-- settling, recovering or cancelling a running job locks its lease first.
--
-- Recovery. A lease that is not extended expires; the next claim of its pool, a waiting worker or the watchdog requeues
-- its jobs and counts a crash. A worker with a direct connection also holds an advisory lock (its presence), so that
-- its death is noticed within a second. crash_limit stops jobs that kill their worker.
--
-- Hints. NOTIFY wakes listening workers and feed readers. Hints may be lost; next_due() and polling find the same work.
--
-- Cost. live_jobs is the hot table: narrow indexes, free space on every page, and no index that mentions a column which
-- claim() writes, so that a claim is a HOT update. History (ended_jobs, ended_attempts, checkpoints, feed …) is
-- partitioned by week: ended_jobs by the week in which a row may be deleted, the others by the week in the job's id.
-- Deleting history is dropping partitions. stillwake.now() is the only clock that decisions use.

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
  backoff_initial interval not null default '2 seconds' check (backoff_initial >= '0'),
  backoff_max    interval not null default '15 minutes' check (backoff_max >= backoff_initial),
  keep_completed interval not null default '14 days' check (keep_completed >= '0'),
  keep_failed    interval not null default '30 days' check (keep_failed >= '0'),
  keep_cancelled interval not null default '14 days' check (keep_cancelled >= '0'),
  created_at     timestamptz not null default clock_timestamp(),
  updated_at     timestamptz not null default clock_timestamp()
);

create table stillwake.live_jobs (
  id              uuid primary key,
  created_at      timestamptz not null,
  -- Claimable means run_at <= now() and no lease. A paused job has run_at = infinity or its resume time; order_at keeps
  -- its position in the queue order.
  run_at          timestamptz not null,
  expires_at      timestamptz,
  -- Written by claim(): in no index, not even in a predicate.
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
create index live_jobs_queue on stillwake.live_jobs (pool, priority desc, run_at, id);
create index live_jobs_expiry on stillwake.live_jobs (pool, expires_at) where expires_at is not null;

-- One row per claim, whatever the number of its jobs: heartbeats update it and never touch a job. It is also the mutex
-- of its jobs: ending, recovering or cancelling one of them locks this row first.
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

-- Partitioned by the week in which a row may be deleted.
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
  -- Of the last attempt, to answer a repeated settlement; null when the job ended without one.
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
  -- The outcome of the last attempt, where it differs from the state.
  outcome         text check (outcome in ('failed', 'slept', 'paused', 'released', 'lost')),
  primary key (id, forget_on)
) partition by range (forget_on);
create index ended_jobs_failed on stillwake.ended_jobs (id) where state = 'failed';

-- Attempts that ended while the job continued. The last attempt of an ended job is in ended_jobs: see the view
-- attempts.
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

-- Log lines and events of a job in one sequence, assigned under the lock of the job's row: a reader with a cursor never
-- misses one.
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

-- Workers that listen for hints. A hint is sent only when a worker is listed here.
create table stillwake.listeners (
  pool   text not null,
  worker text not null,
  until  timestamptz not null,
  primary key (pool, worker)
);

create table stillwake.ended_jobs_default partition of stillwake.ended_jobs default;
-- Kept for ever. Separate from the default partition, which is scanned whenever a week is added.
create table stillwake.ended_jobs_forever partition of stillwake.ended_jobs for values from ('infinity') to (maxvalue);
create table stillwake.ended_attempts_default partition of stillwake.ended_attempts default;
create table stillwake.checkpoints_default partition of stillwake.checkpoints default;
create table stillwake.feed_default partition of stillwake.feed default;
