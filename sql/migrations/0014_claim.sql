-- Claims find jobs without a lane, and without the watchdog.

-- Two indexes of the same order instead of one, so that the jobs without a lane can be found in a pool with lanes. Each
-- job is in one of them: nothing is written twice.
drop index stillwake.live_jobs_queue;
create index live_jobs_queue on stillwake.live_jobs (pool, priority desc, run_at, id) where lane is null;
create index live_jobs_laned on stillwake.live_jobs (pool, priority desc, run_at, id) where lane is not null;

-- Jobs that wait until a time and keep their position meanwhile: when the time has come, a claim puts them back there.
create index live_jobs_return on stillwake.live_jobs (pool, run_at) where order_at is not null and run_at < 'infinity';

-- How far the claims have gone through the jobs since the gates of a pipeline have changed: see lane_pool().
alter table stillwake.pools add column relane_after uuid;

-- How many jobs of each pipeline with a cap run: as many as claims have counted, without those that ended since then. A
-- claim writes the first under the lock of the cap, a settlement appends to the second and waits for no other transaction.
create table stillwake.caps (
  name       text primary key,
  running    integer not null,
  counted_at timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
create table stillwake.cap_ends (
  name  text not null,
  count integer not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
create index cap_ends_name on stillwake.cap_ends (name);

-- Keys that may have a free slot and a waiting job which could not be admitted: claims check them again. See keys.sql.
create table stillwake.free_keys (
  id       bigint generated always as identity primary key,
  -- Of the job that waits.
  pool     text not null,
  pipeline text not null,
  key      text not null,
  -- The tenant, or '' for none.
  scope    text not null,
  tries    integer not null default 0,
  check_at timestamptz not null
);
create index free_keys_check on stillwake.free_keys (pool, check_at);
create index free_keys_key on stillwake.free_keys (pipeline, key, scope);

-- It has another parameter now.
drop function if exists stillwake.pick_from_lane(text, integer, text, text[], integer, text[], integer[], integer[], timestamptz,
  timestamptz, uuid);
