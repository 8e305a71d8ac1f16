-- For workers: the code version of a job, repeatable log batches, the trace of the enqueuer, presence per lease, and
-- artifacts.

alter table stillwake.live_jobs
  -- The version of the code that started it; null until it is claimed by a worker that passes versions.
  add column version integer,
  -- The last log batch of the current attempt: a batch sent again is not written again.
  add column log_batch bigint not null default 0,
  -- W3C trace context of the enqueuer.
  add column trace jsonb;
alter table stillwake.ended_jobs
  add column version integer,
  add column trace jsonb;

-- The key of the advisory lock that the worker's session holds; null for a worker without one. A free lock means that
-- the session has ended.
alter table stillwake.leases
  add column presence bigint,
  add column absent_since timestamptz;

create table stillwake.artifacts (
  job_id       uuid not null,
  name         text not null check (octet_length(name) between 1 and 255),
  epoch        bigint not null,
  size         bigint not null check (size > 0),
  sha256       text not null check (sha256 ~ '^[0-9a-f]{64}$'),
  content_type text not null,
  -- The object key in the store.
  key          text not null,
  saved_at     timestamptz not null,
  primary key (job_id, name)
) partition by range (job_id);
create table stillwake.artifacts_default partition of stillwake.artifacts default;
