-- Flow control: keys, fairness among tenants, concurrency caps, shared limits, breakers.

alter table stillwake.live_jobs
  -- Its position in the queue order while run_at is only the time it waits for: paused jobs, and jobs that wait for
  -- their key, children or an event.
  add column order_at timestamptz,
  -- The slot of its key that it holds, from its admission to its end, whether it waits, runs or sleeps. The unique
  -- index enforces the key: no code can assign a slot twice, and a dead worker cannot block one, because the job holds
  -- it.
  add column key_slot smallint,
  -- Its lane, in a pool with tenants or gated pipelines: see lanes.sql.
  add column lane text collate "C";
create unique index live_jobs_key on stillwake.live_jobs (pipeline, key, key_slot) where key_slot is not null;
create index live_jobs_key_queue on stillwake.live_jobs (pipeline, key, order_at, id) where key is not null and key_slot is null;
create index live_jobs_lane on stillwake.live_jobs (pool, priority desc, lane, run_at, id) where lane is not null;
create index live_jobs_breaker on stillwake.live_jobs ((pause ->> 'breaker')) where pause is not null;

alter table stillwake.pools
  add column laned boolean not null default false,
  -- Until then there may be jobs without a lane, or in a wrong one.
  add column relane_until timestamptz,
  -- How many jobs of the pool may run at once, on all workers together.
  add column concurrency integer check (concurrency >= 1);

alter table stillwake.pipelines
  add column key_limit smallint not null default 1 check (key_limit between 1 and 1000),
  add column on_conflict text not null default 'join' check (on_conflict in ('join', 'wait', 'replace', 'reject')),
  add column concurrency integer check (concurrency >= 1),
  -- Limits and breakers that its jobs depend on.
  add column limits text[] not null default '{}',
  add column breakers text[] not null default '{}',
  -- The watchdog completes waiting jobs whose progress shows that nothing is left to do.
  add column complete_by_progress boolean not null default false,
  add column gated boolean generated always as (concurrency is not null or limits <> '{}' or breakers <> '{}') stored;

-- Only tenants with a weight other than 1, or whose jobs are held.
create table stillwake.tenants (
  name   text primary key,
  weight smallint not null check (weight between 1 and 100)
);

create table stillwake.limits (
  name           text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  -- At most max uses in any interval of this length.
  max            integer check (max >= 1),
  period         interval check (period between '100 milliseconds' and '31 days'),
  -- At most this many calls in flight.
  concurrency    integer check (concurrency >= 1),
  learn          boolean not null default false,
  -- The uses of the last period, in up to 130 bins: the end of each bin, and the uses in it.
  bin_ends       timestamptz[] not null default '{}',
  counts         integer[] not null default '{}',
  -- What the other side reported: its quota per window, how much of it is left, when the window ends.
  reported_max   integer,
  remaining      integer,
  reset_at       timestamptz,
  -- From this time on the next window may have begun.
  turn_at        timestamptz,
  -- A call was rejected: no calls before this time.
  blocked_until  timestamptz,
  updated_at     timestamptz not null default clock_timestamp(),
  check ((max is null) = (period is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- Calls in flight, by lease: a hold without its lease does not count.
create table stillwake.limit_holds (
  name     text not null references stillwake.limits on delete cascade,
  job_id   uuid not null,
  lease_id uuid not null,
  count    integer not null check (count >= 1),
  primary key (name, job_id, lease_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- Closed: resume_at is null. Open: no calls before resume_at, and from then on one probe at a time.
create table stillwake.breakers (
  name        text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  threshold   integer not null default 5 check (threshold >= 1),
  pause_initial interval not null default '30 seconds' check (pause_initial >= '10 milliseconds'),
  growth      real not null default 2 check (growth between 1 and 100),
  pause_max  interval not null default '15 minutes' check (pause_max >= pause_initial),
  -- Consecutive failures.
  failures    integer not null default 0,
  opened_at   timestamptz,
  resume_at   timestamptz,
  -- Probes that failed since it opened.
  probes      integer not null default 0,
  reason      text,
  opened_by   text,
  -- The attempt that probes.
  probe_job   uuid,
  probe_lease uuid,
  updated_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
