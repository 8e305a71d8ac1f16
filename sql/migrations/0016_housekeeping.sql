-- When the watchdog last looked after the jobs, and when the housekeeping was last completed. See
-- functions/jobs/housekeeping.sql.
create table stillwake.housekeeping (
  singleton boolean primary key default true check (singleton),
  tended_at timestamptz not null default '-infinity',
  kept_at   timestamptz not null default '-infinity'
);
insert into stillwake.housekeeping default values;

-- Their arguments and results have changed.
drop function if exists stillwake.partitions();
drop function if exists stillwake.make_partitions();
drop function if exists stillwake.make_partition(text, date, text, text);
drop function if exists stillwake.first_missed_week(text, date);
drop function if exists stillwake.prune();
drop function if exists stillwake.keep_children_of_live(text, integer);
drop function if exists stillwake.delete_leftovers();
drop function if exists stillwake.has_jobs_of_week(date);
drop function if exists stillwake.prune_machines();

-- The presence of the session that listens (see hold_presence()): without it the worker is lost. Null: unknown.
alter table stillwake.listeners add column presence bigint;
drop function if exists stillwake.listen(text, text, interval);

-- Rows of weeks without a partition: found when the partition is made, or when they may be deleted.
create index ended_jobs_default_forget on stillwake.ended_jobs_default (forget_on);
