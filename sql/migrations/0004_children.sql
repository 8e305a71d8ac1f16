-- Long work: jobs that spawn others and wait for them, and jobs that wait for an event.

alter table stillwake.live_jobs
  -- For a child: its parent, the spawn, and its number in it, from 0.
  add column parent_id uuid,
  add column spawn text,
  add column child_no integer,
  -- The spawn or event it waits for, while waiting_for is children or event.
  add column awaits text;
alter table stillwake.ended_jobs
  add column parent_id uuid,
  add column spawn text,
  add column child_no integer;
create index live_jobs_child on stillwake.live_jobs (parent_id, spawn, child_no) where parent_id is not null;
create index ended_jobs_child on stillwake.ended_jobs (parent_id, spawn, child_no) where parent_id is not null;

-- One fan-out of a job. Children are counted in parts of 128, so that children that end at the same moment do not queue
-- for one row: this row is written once per part. See children.sql.
create table stillwake.spawns (
  job_id     uuid not null,
  name       text not null,
  pipeline   text not null,
  on_error   text not null check (on_error in ('fail', 'collect', 'ignore')),
  total      integer not null check (total >= 0),
  -- How many are stored, in order; further calls of the same spawn store the rest.
  spawned    integer not null default 0,
  open_parts integer not null default 0,
  -- With 'fail': one child has failed, and the parent does not wait for the others.
  failed     boolean not null default false,
  at         timestamptz not null,
  primary key (job_id, name)
) partition by range (job_id);

create table stillwake.spawn_parts (
  job_id    uuid not null,
  name      text not null,
  part      integer not null,
  open      integer not null,
  completed integer not null default 0,
  failed    integer not null default 0,
  cancelled integer not null default 0,
  primary key (job_id, name, part)
) partition by range (job_id);

-- Signals sent to a job. Each is taken by one waitFor.
create table stillwake.signals (
  job_id   uuid not null,
  id       uuid not null,
  -- Its sequence number in the feed, which orders signals.
  seq      bigint not null,
  name     text not null,
  data     jsonb,
  at       timestamptz not null,
  by       text,
  -- The step that took it; empty when its data was refused.
  taken_by text,
  primary key (job_id, id)
) partition by range (job_id);

create table stillwake.spawns_default partition of stillwake.spawns default;
create table stillwake.spawn_parts_default partition of stillwake.spawn_parts default;
create table stillwake.signals_default partition of stillwake.signals default;
