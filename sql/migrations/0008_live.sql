-- Jobs that servers are following at the moment. Hints are sent only for these, so that a write without followers costs
-- nothing extra. Small and often written: a server inserts a row with its first follower of a job and deletes it with
-- the last. Rows of a dead server expire.
create table stillwake.watches (
  job_id  uuid not null,
  watcher text not null check (length(watcher) between 1 and 200),
  until   timestamptz not null,
  primary key (job_id, watcher)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
