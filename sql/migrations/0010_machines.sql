-- Machines: what the orchestrator has started, which jobs ran there, and the cost.
--
-- A machine life is the period from a start to a stop; a pre-created machine has many lives under one name. A row of
-- machine_lives is written before the provider is called, so that every machine at the provider with a name of this
-- fleet is known here, or is a stray:
--
--   reserve -> requested -> (started) -> registered -> jobs … -> left -> ended
--                            provider     worker                 worker   provider, or left for long enough

-- One row: the fleet id, and the identity of this database. A copy of it must not touch the machines of the original.
create table stillwake.fleet (
  one        boolean primary key default true check (one),
  id         text not null check (id ~ '^[a-z0-9]{8}$'),
  cluster    text not null,
  database   bigint not null,
  -- Known addresses of this database. Loopback addresses are the same for every copy and are not stored.
  addresses  text[] not null default '{}',
  adopted_at timestamptz not null,
  adopted_by text
);

create table stillwake.machine_lives (
  id            uuid primary key,
  -- Its name at the provider, and the name of its worker.
  machine       text not null,
  pool          text not null,
  -- Its number in the pool: one life per number at a time, so that there are never more than max machines.
  ordinal          integer not null check (ordinal >= 0),
  burst         boolean not null,
  provider      text not null,
  provider_id   text,
  region        text,
  size          text,
  slots         integer not null check (slots >= 1),
  requested_at      timestamptz not null,
  requested_by      text,
  -- Why it was requested.
  why           text,
  started_at    timestamptz,
  registered_at    timestamptz,
  -- Since when it has had no job.
  idle_since    timestamptz,
  -- Since when its worker has been silent: a lease expired, or its session ended. Cleared when it claims again.
  silent_since  timestamptz,
  left_at       timestamptz,
  left_reason   text,
  -- From this time on it claims nothing: it is about to be stopped.
  retired_at    timestamptz,
  ended_at      timestamptz,
  exit          jsonb,
  -- The price per second, and the price table it comes from.
  price         numeric not null default 0 check (price >= 0),
  prices        text,
  -- The minimum billing time.
  least_seconds integer not null default 0,
  -- Once it has ended: paid time; time with at least one job; sum over all jobs.
  paid_seconds  numeric,
  busy_seconds  numeric,
  work_seconds  numeric
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create unique index machine_lives_ordinal on stillwake.machine_lives (pool, ordinal) where ended_at is null;
create unique index machine_lives_machine on stillwake.machine_lives (machine) where ended_at is null;
create index machine_lives_ended on stillwake.machine_lives (ended_at) where ended_at is not null;

-- Which attempts ran in which life. The end time of an attempt is stored with the attempt.
create table stillwake.machine_jobs (
  life       uuid not null,
  job_id     uuid not null,
  epoch      bigint not null,
  pipeline   text not null,
  tenant     text,
  claimed_at timestamptz not null,
  -- The duration, once the life has ended. The attempt itself may be deleted before its cost is.
  seconds    numeric,
  primary key (job_id, epoch)
);
create index machine_jobs_life on stillwake.machine_jobs (life);

-- The cost of a life, by pipeline and tenant and day (UTC); pipeline is null for a life without a job. The rows of a
-- life add up to its total cost.
create table stillwake.machine_costs (
  life         uuid not null,
  day          date not null,
  pool         text not null,
  pipeline     text,
  tenant       text,
  jobs         integer not null,
  -- Shares of the paid time: busy with these jobs, and idle (starting up, waiting for jobs).
  busy_seconds numeric not null,
  idle_seconds numeric not null,
  amount       numeric not null
);
create index machine_costs_day on stillwake.machine_costs (day);

-- Daily sums for budgets, which are checked often.
create table stillwake.spending (
  scope  text not null,
  name   text not null,
  day    date not null,
  amount numeric not null,
  primary key (scope, name, day)
) with (fillfactor = 70);

create table stillwake.budgets (
  scope      text not null check (scope in ('pool', 'tenant')),
  name       text not null,
  amount     numeric not null check (amount >= 0),
  period     text not null default 'month' check (period in ('day', 'month')),
  updated_at timestamptz not null,
  updated_by text,
  primary key (scope, name)
);

alter table stillwake.pools
  -- Settings from the orchestrator: provider, size, region, slots, warm, max, price, larger_pool (the next larger pool), …
  add column machines jsonb,
  -- Counts created machines, for unique names.
  add column machine_serial bigint not null default 0,
  -- Consecutive machines that ended without doing a job although there was one, and when the last of them did.
  add column wasted_starts integer not null default 0,
  add column wasted_starts_at timestamptz,
  -- Why machines cannot be started, as last reported by the orchestrator.
  add column provider_error jsonb,
  -- Paused because its budget is used up: when the next period begins.
  add column resume_at timestamptz;

alter table stillwake.tenants
  alter column weight set default 1,
  -- Its budget is used up: its jobs wait until this time.
  add column held_until timestamptz,
  add column hold_reason text;

alter table stillwake.fleet enable row level security;
alter table stillwake.machine_lives enable row level security;
alter table stillwake.machine_jobs enable row level security;
alter table stillwake.machine_costs enable row level security;
alter table stillwake.spending enable row level security;
alter table stillwake.budgets enable row level security;
