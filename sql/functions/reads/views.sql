-- The views for people and programs. Columns may be added at the end; none is renamed or removed within a major
-- version.
--
-- The views run with the rights of the caller, so that the row-level security of the tables applies. They use only
-- columns that sql/policies.sql grants to readers: never the id of a lease, which is the fence.

-- The tenant that this session is limited to: '' when it may see no rows, null when it is not limited. Inside functions
-- that run as the owner the policies do not apply; functions that a tenant may call check this instead.
create or replace function stillwake.bound_tenant() returns text
language sql stable as $$
  select case when current_setting('role') = 'stillwake_tenant' then coalesce(current_setting('stillwake.tenant', true), '')
    else nullif(current_setting('stillwake.tenant', true), '') end
$$;

-- One instant per statement. The planner cannot optimize a view that reads the volatile clock for every row.
create or replace function stillwake.statement_time() returns timestamptz
language sql stable as $$
  select stillwake.now()
$$;

-- The closed gates, by pipeline; null when there are none. The reason of a breaker may come from another tenant's job:
-- a session that is limited to a tenant sees only which breaker it is.
create or replace function stillwake.visible_gates() returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (select from stillwake.pipelines p where p.gated) then
    return null;
  end if;
  return (
    select jsonb_object_agg(g.pipeline, jsonb_build_object('held_by', g.held_by, 'until', g.until, 'name', g.name,
      'reason', case when stillwake.bound_tenant() is null then g.reason when g.held_by = 'breaker' then g.name || ' is failing' end))
    from stillwake.closed_gates() g
  );
end
$$;

-- The tenants whose budget is used up, as gates; null when there are none. A tenant sees only its own.
create or replace function stillwake.visible_holds() returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select jsonb_object_agg(t.name, jsonb_build_object('held_by', 'budget', 'until', t.held_until, 'reason', t.hold_reason))
  from stillwake.tenants t where t.held_until > stillwake.now() and coalesce(stillwake.bound_tenant(), t.name) = t.name
$$;

-- A waiting job whose pipeline depends on an open breaker is shown as paused, although its row is not changed. The
-- gates are read in an uncorrelated subquery, once per statement: with a join, or the clock per row, the planner would
-- sort all live jobs for every page of a list.
create or replace view stillwake.jobs with (security_invoker = true) as
select j.id, j.pipeline, j.pool, case when j.gate ->> 'held_by' in ('breaker', 'budget') then 'paused' else j.state end as state,
  case when j.gate ->> 'held_by' in ('breaker', 'budget') then null when j.gate ->> 'held_by' = 'limit' then 'limit'
    else j.waiting_for end as waiting_for,
  j.priority, case when j.gate ->> 'held_by' in ('breaker', 'limit', 'budget') then greatest(j.run_at, (j.gate ->> 'until')::timestamptz)
    else j.run_at end as run_at,
  j.created_at, j.started_at, j.claimed_at, null::timestamptz as ended_at, j.expires_at,
  j.attempt, j.max_attempts, j.crashes, j.epoch, j.worker, j.key, j.tenant, j.idempotency_key, j.input, null::jsonb as output, j.failure,
  j.cancel,
  case when j.gate ->> 'held_by' in ('breaker', 'budget')
    then jsonb_strip_nulls(jsonb_build_object('reason', j.gate -> 'reason', 'resume_at', nullif(j.gate -> 'until', '"infinity"'),
      'breaker', j.gate -> 'name'))
    else j.pause end as pause, j.progress,
  null::text[] as missing, j.seq, j.version, j.parent_id, j.spawn, j.child_no, stillwake.children(j.id) as children, j.origin,
  -- A paused job continues to wait for its event when it is resumed.
  case when j.waiting_for = 'event' or j.state = 'paused' and j.pause ->> 'waiting_for' = 'event' then j.awaits end as awaited_event
from (
  select l.id, l.pipeline, l.pool, l.state, l.waiting_for, l.priority, l.run_at, l.created_at, l.started_at, l.claimed_at, l.expires_at,
    l.attempt, l.max_attempts, l.crashes, l.epoch, l.worker, l.key, l.tenant, l.idempotency_key, l.input, l.failure, l.cancel, l.pause,
    l.progress, l.seq, l.version, l.parent_id, l.spawn, l.child_no, l.origin, l.awaits,
    case when l.state = 'queued' and (l.waiting_for is null or l.waiting_for <> 'key' and l.run_at <= (select stillwake.statement_time()))
      then coalesce((select stillwake.visible_holds()) -> l.tenant, (select stillwake.visible_gates()) -> l.pipeline) end as gate
  from stillwake.live_jobs l
) j
union all
select id, pipeline, pool, state, null, priority, run_at, created_at, started_at, claimed_at, ended_at, expires_at,
  attempt, max_attempts, crashes, epoch, worker, key, tenant, idempotency_key, input, output, failure, cancel, null, progress,
  missing, seq, version, parent_id, spawn, child_no, stillwake.children(id), origin, null
from stillwake.ended_jobs;

-- Every attempt, including the running one (outcome null) and the last one of an ended job.
create or replace view stillwake.attempts with (security_invoker = true) as
select job_id, epoch, attempt, worker, claimed_at, ended_at, outcome, failure from stillwake.ended_attempts
union all
select id, epoch, attempt, worker, claimed_at, ended_at, coalesce(outcome, state), failure
from stillwake.ended_jobs where claimed_at is not null
union all
select id, epoch, attempt, worker, claimed_at, null, null, null from stillwake.live_jobs where state = 'running';

create or replace view stillwake.logs with (security_invoker = true) as
select job_id, seq, at, epoch, level, step, message, data from stillwake.feed where kind = 'log';

create or replace view stillwake.events with (security_invoker = true) as
select job_id, seq, at, epoch, kind, data from stillwake.feed where kind <> 'log';

-- Identifies this database among all clusters, so that a client can refuse a transaction of another one.
create or replace function stillwake.database_identity() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select stillwake.cluster_id() || '/' || d.oid from pg_database d where d.datname = current_database()
$$;

-- The version of the schema, which a client checks before its first statement. A function, so that workers may call it.
create or replace function stillwake.schema_state() returns table (newest integer, breaking integer)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(max(m.id), 0), coalesce(max(m.id) filter (where m.breaking), 0) from stillwake.migrations m
$$;
