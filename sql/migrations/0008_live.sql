-- Who watches which job just now. A hint is sent only for these, so that with nobody watching a write costs no more than before.
--
-- Small and often written: a row comes with the first follower a server has for a job and goes with the last. It runs out by itself when its server died.
create table stillwake.watches (
  job_id  uuid not null,
  watcher text not null check (length(watcher) between 1 and 200),
  until   timestamptz not null,
  primary key (job_id, watcher)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
