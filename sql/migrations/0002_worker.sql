-- What the worker needs: the version of code a job was begun under, log batches that can be repeated, the trace of its enqueuer, a sign of
-- life per lease, and the artifacts of jobs.

alter table stillwake.live_jobs
  -- The version of its pipeline's code that began it; null until a worker that names versions has claimed it.
  add column version integer,
  -- The last batch of log lines of the present attempt: a batch sent again is not written again.
  add column log_batch bigint not null default 0,
  -- W3C trace context of the enqueuer.
  add column trace jsonb;
alter table stillwake.ended_jobs
  add column version integer,
  add column trace jsonb;

-- The key of the advisory lock that the worker's session holds; null for a worker without one. Free means that the session is gone.
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
  -- Where the store has it.
  key          text not null,
  saved_at     timestamptz not null,
  primary key (job_id, name)
) partition by range (job_id);
create table stillwake.artifacts_default partition of stillwake.artifacts default;

-- Verbs whose signature has grown. The new ones take the old calls.
drop function if exists stillwake.claim(text, text, text[], integer, interval, uuid);
drop function if exists stillwake.settle_and_claim(jsonb, text, text, text[], integer, interval, uuid);
drop function if exists stillwake.heartbeat(uuid[], bigint[], uuid[]);
drop function if exists stillwake.next_due(text[], text[]);
