-- Long work: jobs that spawn others and wait for them, and jobs that wait for an event.

alter table stillwake.live_jobs
  -- A job that another one has spawned: whose child it is, in which of its spawns, and which of them, counted from 0.
  add column parent_id uuid,
  add column spawn text,
  add column child_no integer,
  -- The spawn or the event it waits for, while waiting_for is children or event.
  add column awaits text;
alter table stillwake.ended_jobs
  add column parent_id uuid,
  add column spawn text,
  add column child_no integer;
create index live_jobs_child on stillwake.live_jobs (parent_id, spawn, child_no) where parent_id is not null;
create index ended_jobs_child on stillwake.ended_jobs (parent_id, spawn, child_no) where parent_id is not null;

-- One fan-out of a job. Children are counted in parts of 128, so that those who end at the same moment do not queue for one row: this one is
-- written once per part. See children.sql.
create table stillwake.spawns (
  job_id     uuid not null,
  name       text not null,
  pipeline   text not null,
  on_error   text not null check (on_error in ('fail', 'collect', 'ignore')),
  total      integer not null check (total >= 0),
  -- How many of them are stored, in order; the rest come with the next statement of the same spawn.
  spawned    integer not null default 0,
  open_parts integer not null default 0,
  -- By 'fail': one has failed, and nobody waits for the others.
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

-- What was said to a job from outside. Each is taken by one waitFor of it.
create table stillwake.signals (
  job_id   uuid not null,
  id       uuid not null,
  -- Its place in the feed, and so the order among them.
  seq      bigint not null,
  name     text not null,
  data     jsonb,
  at       timestamptz not null,
  by       text,
  -- The step that has it; empty when its data were refused.
  taken_by text,
  primary key (job_id, id)
) partition by range (job_id);

create table stillwake.spawns_default partition of stillwake.spawns default;
create table stillwake.spawn_parts_default partition of stillwake.spawn_parts default;
create table stillwake.signals_default partition of stillwake.signals default;

-- Its place in line is kept while it waits for children or an event.
drop function if exists stillwake.requeue(stillwake.live_jobs, text, timestamptz, text, boolean, jsonb, text);
