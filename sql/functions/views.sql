-- What people and programs read. Columns may be added at the end; none is renamed or removed within a major version.

-- A job that waits and whose pipeline needs an open breaker is shown as what it is, paused, though its row says nothing of it.
create or replace view stillwake.jobs as
select j.id, j.pipeline, j.pool, case when g.held_by = 'breaker' then 'paused' else j.state end as state,
  case when g.held_by = 'breaker' then null when g.held_by = 'limit' then 'limit' else j.waiting_for end as waiting_for,
  j.priority, case when g.held_by in ('breaker', 'limit') then greatest(j.run_at, g.until) else j.run_at end as run_at,
  j.created_at, j.started_at, j.claimed_at, null::timestamptz as ended_at, j.expires_at,
  j.attempt, j.max_attempts, j.crashes, j.epoch, j.worker, j.key, j.tenant, j.idempotency_key, j.input, null::jsonb as output, j.failure, j.cancel,
  case when g.held_by = 'breaker' then jsonb_strip_nulls(jsonb_build_object('reason', g.reason, 'resume_at', nullif(g.until, 'infinity'), 'breaker', g.name)) else j.pause end as pause, j.progress,
  null::text[] as missing, j.seq, j.version, j.parent_id, j.spawn, j.child_no, stillwake.children(j.id) as children, j.origin
from stillwake.live_jobs j left join stillwake.shut_gates() g on g.pipeline = j.pipeline and j.state = 'queued'
  and (j.waiting_for is null or j.waiting_for <> 'key' and j.run_at <= stillwake.now())
union all
select id, pipeline, pool, state, null, priority, run_at, created_at, started_at, claimed_at, ended_at, expires_at,
  attempt, max_attempts, crashes, epoch, worker, key, tenant, idempotency_key, input, output, failure, cancel, null, progress,
  missing, seq, version, parent_id, spawn, child_no, stillwake.children(id), origin
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
