-- Machines: what the orchestrator has started, what ran on them, and what that cost.
--
-- A machine lives from a start to a stop; a pre-created one has many lives under one name. A row of machine_lives is written before the
-- provider is asked, so that whatever exists at the provider under a name of this fleet is known here, or is a stray:
--
--   reserve -> asked -> (started) -> arrived -> jobs … -> left -> ended
--                                      ^ its worker says so          ^ the provider says so, or its worker left and its time is over

-- One row. Whose machines are ours, and which database this is: a copy of it must not touch the machines of the original.
create table stillwake.fleet (
  one        boolean primary key default true check (one),
  id         text not null check (id ~ '^[a-z0-9]{8}$'),
  cluster    text not null,
  database   bigint not null,
  -- Under which addresses it is known. Those of one's own machine tell nothing and are not kept.
  addresses  text[] not null default '{}',
  adopted_at timestamptz not null,
  adopted_by text
);

create table stillwake.machine_lives (
  id            uuid primary key,
  -- Its name at the provider, and of its worker.
  machine       text not null,
  pool          text not null,
  -- Its place in the pool: of one place there is one life at a time, so that there are never more machines than places.
  slot          integer not null check (slot >= 0),
  burst         boolean not null,
  provider      text not null,
  provider_id   text,
  region        text,
  size          text,
  slots         integer not null check (slots >= 1),
  asked_at      timestamptz not null,
  asked_by      text,
  -- Why it was asked for.
  why           text,
  started_at    timestamptz,
  arrived_at    timestamptz,
  -- Since when it has been seen without a job.
  idle_since    timestamptz,
  -- Since when its worker has not been heard of: a lease of it ran out, or its session is gone. Cleared when it claims again.
  silent_since  timestamptz,
  left_at       timestamptz,
  left_reason   text,
  -- From then on it claims nothing: it is about to be stopped.
  retired_at    timestamptz,
  ended_at      timestamptz,
  exit          jsonb,
  -- Per second, in the currency of the price table; of which table.
  price         numeric not null default 0 check (price >= 0),
  prices        text,
  -- Seconds that are paid for at least.
  least_seconds integer not null default 0,
  -- Once it has ended: seconds that are paid for; with a job; of all its jobs together.
  paid_seconds  numeric,
  busy_seconds  numeric,
  work_seconds  numeric
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create unique index machine_lives_slot on stillwake.machine_lives (pool, slot) where ended_at is null;
create unique index machine_lives_machine on stillwake.machine_lives (machine) where ended_at is null;
create index machine_lives_ended on stillwake.machine_lives (ended_at) where ended_at is not null;

-- Which attempts ran in which life. When each ended stands with the attempt.
create table stillwake.machine_jobs (
  life       uuid not null,
  job_id     uuid not null,
  epoch      bigint not null,
  pipeline   text not null,
  tenant     text,
  claimed_at timestamptz not null,
  -- Once the life is over: how long it took. The attempt itself may be forgotten before what it cost is.
  seconds    numeric,
  primary key (job_id, epoch)
);
create index machine_jobs_life on stillwake.machine_jobs (life);

-- What a life cost, by whose work it was, a part for each day (UTC) that it lasted; pipeline is null for a life without a job. The sum over a life is all that it cost.
create table stillwake.machine_costs (
  life         uuid not null,
  day          date not null,
  pool         text not null,
  pipeline     text,
  tenant       text,
  jobs         integer not null,
  -- Of the machine's time that is paid for: with these jobs, and their share of starting up and of waiting for more.
  busy_seconds numeric not null,
  idle_seconds numeric not null,
  amount       numeric not null
);
create index machine_costs_day on stillwake.machine_costs (day);

-- The same summed up for budgets, which are looked at often.
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
  -- What the orchestrator has told: provider, size, region, slots, warm, max, price, larger (the pool of the next size), disk …
  add column machines jsonb,
  -- Counts the machines that were made, for names that never come again.
  add column machine_serial bigint not null default 0,
  -- Machines in a row that ended without a job while there was one, and when the last of them did.
  add column wasted_starts integer not null default 0,
  add column wasted_starts_at timestamptz,
  -- What keeps machines from being started, as the orchestrator said last.
  add column trouble jsonb,
  -- Paused for want of budget: when the next one begins.
  add column resume_at timestamptz;

alter table stillwake.tenants
  alter column weight set default 1,
  -- Its budget is used up: its jobs wait until then.
  add column held_until timestamptz,
  add column hold_reason text;

alter table stillwake.fleet enable row level security;
alter table stillwake.machine_lives enable row level security;
alter table stillwake.machine_jobs enable row level security;
alter table stillwake.machine_costs enable row level security;
alter table stillwake.spending enable row level security;
alter table stillwake.budgets enable row level security;

-- Functions whose signature has grown. The new ones take the old calls.
drop function if exists stillwake.recover_lease(stillwake.leases, integer);
drop function if exists stillwake.machines();
