-- Leases across outages, while their row is locked, and in transactions with an old snapshot.

-- When workers could send heartbeats again after they could not: a start of the server, a promotion (a new timeline), or
-- the end of a time in which no lease anywhere was extended. A lease that was last extended before such a time keeps
-- its full length from it, once. Written by recovery when it finds one, removed after a week.
create table stillwake.outages (
  ended_at   timestamptz not null,
  timeline   text not null,
  started_at timestamptz not null,
  primary key (ended_at)
);
insert into stillwake.outages (ended_at, timeline, started_at)
values (pg_postmaster_start_time(), left(pg_walfile_name(pg_current_wal_lsn()), 8), pg_postmaster_start_time());

-- Heartbeats of leases whose row was locked by another transaction: rows are only added, so that none waits for another.
create table stillwake.locked_heartbeats (
  lease_id uuid not null,
  until    timestamptz not null
);
create index locked_heartbeats_lease on stillwake.locked_heartbeats (lease_id);

alter table stillwake.outages enable row level security;
alter table stillwake.locked_heartbeats enable row level security;

-- It has another parameter now.
drop function if exists stillwake.save_checkpoints(uuid[], bigint[], uuid[], text[], jsonb[], bigint[]);
