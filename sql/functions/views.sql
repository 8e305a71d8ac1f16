-- What people and programs read. Columns may be added at the end; none is renamed or removed within a major version.

create or replace view stillwake.jobs as
select id, pipeline, pool, state, waiting_for, priority, run_at, created_at, started_at, claimed_at, null::timestamptz as ended_at, expires_at,
  attempt, max_attempts, crashes, epoch, worker, key, tenant, idempotency_key, input, null::jsonb as output, failure, cancel, pause, progress,
  null::text[] as missing, seq, version
from stillwake.live_jobs
union all
select id, pipeline, pool, state, null, priority, run_at, created_at, started_at, claimed_at, ended_at, expires_at,
  attempt, max_attempts, crashes, epoch, worker, key, tenant, idempotency_key, input, output, failure, cancel, null, progress,
  missing, seq, version
from stillwake.ended_jobs;

-- Every attempt, the running one (outcome null) and the last one of an ended job included.
create or replace view stillwake.attempts as
select job_id, epoch, attempt, worker, claimed_at, ended_at, outcome, failure from stillwake.ended_attempts
union all
select id, epoch, attempt, worker, claimed_at, ended_at, coalesce(outcome, state), failure
from stillwake.ended_jobs where claimed_at is not null
union all
select id, epoch, attempt, worker, claimed_at, null, null, null from stillwake.live_jobs where lease_id is not null;

create or replace view stillwake.logs as
select job_id, seq, at, epoch, level, step, message, data from stillwake.feed where kind = 'log';

create or replace view stillwake.events as
select job_id, seq, at, epoch, kind, data from stillwake.feed where kind <> 'log';

-- How far the schema is: what a client holds against what it knows, before its first statement. A function, so that a worker may ask.
create or replace function stillwake.schema_state() returns table (newest integer, breaking integer)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(max(m.id), 0), coalesce(max(m.id) filter (where m.breaking), 0) from stillwake.migrations m
$$;
