-- Claiming: a worker takes jobs under a lease. Called by the keeper of a worker, or by any client that runs jobs.

-- Claims up to p_limit claimable jobs of a pool, of the pipelines the worker knows, by priority and then by waiting
-- time, under one new lease that lasts p_span. The attempt is counted here. Before that it does bounded housekeeping
-- for the pool: it creates the jobs of due schedules (unless p_schedules is false), recovers jobs of dead workers, ends
-- expired jobs, and puts jobs whose wait is over back at their position. A recovered or retried job keeps its position.
--
-- p_lease: a fresh random uuid chosen by the caller. A call whose response was lost may then be repeated and returns
-- the jobs of the first call. With p_limit 0 the repeated call claims nothing itself, and makes a first call that is
-- still in flight claim nothing either. p_versions: the version of the worker's code per pipeline; p_oldest: the oldest
-- version whose jobs it can resume. Jobs started under another version are not returned. p_presence: see
-- hold_presence(). p_cursor: in a pool with lanes (lanes.sql) the claim goes from lane to lane, starting at the cursor
-- that the previous claim returned. p_held: the leases of the jobs that the worker runs. A claim that was sent before
-- the worker was suspended may arrive after it resumed; it must not recover them. A worker on a machine that is being
-- retired gets no jobs.
-- Locks: as run_schedules() and recover(); the machine life of the worker, shared; the cap of the pool; then live_jobs,
-- skipping locked rows; inserts one lease. Raises SW001, SW003.
--
-- The SET clauses pin the plan: an index scan of live_jobs_queue. A stale estimate must never turn a claim into a sort
-- of the whole backlog.
create or replace function stillwake.claim(
  p_worker text, p_pool text, p_pipelines text[], p_limit integer default 1, p_span interval default '15 seconds',
  p_lease uuid default null, p_presence bigint default null, p_versions integer[] default null, p_oldest integer[] default null,
  p_cursor text default null, p_schedules boolean default true, p_held uuid[] default '{}'
) returns table (
  job_id uuid, lease_id uuid, epoch bigint, pipeline text, input jsonb, attempt integer, max_attempts integer, crashes integer,
  key text, tenant text, created_at timestamptz, progress jsonb, version integer, trace jsonb, origin jsonb, cursor text
)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_now      timestamptz;
  v_lease    uuid := coalesce(p_lease, gen_random_uuid());
  v_priority integer := 32767;
  v_ids      uuid[] := '{}';
  v_limit    integer := p_limit;
  v_pool     stillwake.pools;
  v_probes   text[];
  v_probing  uuid[];
  v_life     uuid;
  v_retired  boolean;
  v_silent   boolean;
begin
  if coalesce(p_worker, '') = '' or coalesce(p_limit, -1) not between (p_lease is null)::integer and 1000 or p_pipelines is null
    or p_span is null or p_span not between '1 second' and '1 day' then
    perform stillwake.refuse('SW001', format('claim(worker %s, limit %s, lease of %s) is out of range', p_worker, p_limit, p_span), 'claim',
      'A worker has a name, claims 1 to 1000 jobs and leases them for 1 second to 1 day.');
  end if;
  if p_limit = 0 then
    -- Waits for the first call if it is running. A lease without jobs is removed like an expired one.
    insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids)
    values (p_lease, p_pool, p_worker, stillwake.now(), stillwake.now() + interval '2 minutes', p_span, '{}') on conflict do nothing;
  end if;
  if p_lease is not null and exists (select from stillwake.leases l where l.id = p_lease) then
    return query
    select j.id, j.lease_id, j.epoch, j.pipeline, j.input, j.attempt, j.max_attempts, j.crashes, j.key, j.tenant, j.created_at, j.progress,
      j.version, j.trace, j.origin, p_cursor
    from stillwake.leases l join stillwake.live_jobs j on j.id = any (l.job_ids) and j.lease_id = l.id
    where l.id = p_lease order by j.priority desc, j.run_at, j.id;
    return;
  end if;
  -- Usually none is due, and this check is all it costs. The index cannot use a volatile function, hence the variable.
  v_now := stillwake.now();
  if p_schedules and exists (select from stillwake.schedules s where s.pool = p_pool and s.due_at <= v_now) then
    perform stillwake.run_schedules(10, p_pool);
  end if;
  -- Shared until commit: retire_machine() waits, and then sees the lease. Before recover(), which updates other machine
  -- lives.
  select l.id, l.retired_at is not null, l.silent_since is not null or l.left_at is not null into v_life, v_retired, v_silent
  from stillwake.machine_lives l where l.machine = p_worker and l.ended_at is null for share;
  if v_retired then
    return;
  end if;
  perform stillwake.recover(10, p_pool, 200, p_held);
  perform stillwake.expire(100, p_pool);
  if exists (select from stillwake.free_keys f where f.pool = p_pool and f.check_at <= v_now) then
    perform stillwake.check_free_keys(p_pool, 20, v_now);
  end if;
  select * into v_pool from stillwake.pools p where p.name = p_pool;
  -- The pool was paused because its budget was used up, and a new budget period has begun.
  if v_pool.resume_at <= v_now then
    perform from stillwake.check_budgets();
    select * into v_pool from stillwake.pools p where p.name = p_pool;
  end if;
  if v_pool.name is null then
    perform stillwake.refuse_unknown_pool(p_pool);
  elsif v_pool.paused_at is not null then
    return;
  elsif (v_pool.concurrency is not null or v_pool.laned) and current_setting('transaction_isolation') <> 'read committed' then
    perform stillwake.refuse_isolation('claim');
  end if;
  if v_pool.concurrency is not null then
    perform pg_advisory_xact_lock(stillwake.cap_lock('pool ' || p_pool));
    v_limit := least(p_limit, v_pool.concurrency - (select coalesce(sum(cardinality(l.job_ids)), 0) from stillwake.leases l
      where l.pool = p_pool));
  end if;
  if exists (select from stillwake.live_jobs j where j.pool = p_pool and j.order_at is not null and j.run_at < 'infinity'
    and j.run_at <= v_now) then
    perform stillwake.return_due(p_pool, 200, v_now);
  end if;
  if v_pool.laned then
    select p.ids, p.cursor, p.probes, p.probe_jobs into v_ids, cursor, v_probes, v_probing
    from stillwake.pick_from_lanes(p_pool, p_pipelines, v_limit, p_versions, p_oldest, p_cursor) p;
    v_limit := 0;
  end if;
  v_now := stillwake.now();

  -- One index scan per priority, so that delayed jobs of a high priority are not skipped one by one.
  while cardinality(v_ids) < v_limit loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is null and j.priority < v_priority;
    exit when v_priority is null;
    with queue as materialized (
      select j.id from stillwake.live_jobs j
      where j.pool = p_pool and j.lane is null and j.priority = v_priority and j.run_at <= v_now and j.lease_id is null
        and j.pipeline = any (p_pipelines)
        and (j.version is null or p_versions is null or stillwake.version_matches(j.version, j.pipeline, p_pipelines, p_versions, p_oldest))
        and (j.expires_at is null or j.started_at is not null or j.expires_at > v_now)
      order by j.run_at, j.id
      limit v_limit - cardinality(v_ids)
      for update skip locked
    )
    select v_ids || array_agg(queue.id) into v_ids from queue;
  end loop;
  if cardinality(v_ids) = 0 then
    return;
  end if;

  insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids, presence)
  values (v_lease, p_pool, p_worker, v_now, v_now + p_span, p_span, v_ids, p_presence);
  if cardinality(v_probes) > 0 then
    update stillwake.breakers b set probe_job = p.job, probe_lease = v_lease, updated_at = v_now
    from unnest(v_probes, v_probing) p (name, job) where b.name = p.name;
  end if;
  perform stillwake.hint_watchers(v_ids);
  if v_silent then
    -- Its worker responds again, or did not leave after all.
    update stillwake.machine_lives l set silent_since = null, left_at = null, left_reason = null
    where l.id = any (array(select m.id from stillwake.machine_lives m where m.id = v_life for no key update skip locked));
  end if;
  if v_life is not null then
    insert into stillwake.machine_jobs (life, job_id, epoch, pipeline, tenant, claimed_at)
    select v_life, j.id, j.epoch + 1, j.pipeline, j.tenant, v_now from stillwake.live_jobs j where j.id = any (v_ids)
    on conflict do nothing;
  end if;

  return query
  with claimed as (
    update stillwake.live_jobs j
    set state = 'running', lease_id = v_lease, epoch = j.epoch + 1, attempt = j.attempt + 1, worker = p_worker, claimed_at = v_now,
      started_at = coalesce(j.started_at, v_now), waiting_for = null, pause = null, order_at = null, log_batch = 0,
      version = coalesce(j.version, p_versions[array_position(p_pipelines, j.pipeline)])
    where j.id = any (v_ids)
    returning j.id, j.epoch, j.pipeline, j.input, j.attempt, j.max_attempts, j.crashes, j.key, j.tenant, j.created_at, j.progress,
      j.version, j.trace, j.origin, j.priority, j.run_at
  )
  select t.id, v_lease, t.epoch, t.pipeline, t.input, t.attempt, t.max_attempts, t.crashes, t.key, t.tenant, t.created_at, t.progress,
    t.version, t.trace, t.origin, claim.cursor
  from claimed t order by t.priority desc, t.run_at, t.id;
end
$$;

-- Puts jobs that waited until a time which has come (a back-off, a pause, a timeout) back at their position in the queue
-- order, up to p_limit of them; a further one is claimable too, at the position of that time. The caller pins the plan.
-- Locks: live_jobs, skipping locked rows.
create or replace function stillwake.return_due(p_pool text, p_limit integer, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_ids uuid[] := array(
    select j.id from stillwake.live_jobs j
    where j.pool = p_pool and j.order_at is not null and j.run_at < 'infinity' and j.run_at <= p_now and j.lease_id is null
    order by j.run_at limit p_limit for update skip locked);
begin
  if v_ids <> '{}' then
    update stillwake.live_jobs j set run_at = least(j.run_at, j.order_at), order_at = null where j.id = any (v_ids);
  end if;
end
$$;

-- Settles the finished jobs of a busy worker and claims its next ones: one round trip, one commit. p_settlements as in
-- settle(). Returns the claimed jobs; when settlements were refused, a row without a job comes first and lists them in
-- `refused`. Schedules run first: settle() locks leases, and a schedule may have to lock the lease of the job it
-- replaces.
-- Locks: as run_schedules(), settle(), claim().
create or replace function stillwake.settle_and_claim(
  p_settlements jsonb, p_worker text, p_pool text, p_pipelines text[], p_limit integer, p_span interval, p_lease uuid default null,
  p_presence bigint default null, p_versions integer[] default null, p_oldest integer[] default null, p_cursor text default null,
  p_held uuid[] default '{}'
) returns table (
  job_id uuid, lease_id uuid, epoch bigint, pipeline text, input jsonb, attempt integer, max_attempts integer, crashes integer,
  key text, tenant text, created_at timestamptz, progress jsonb, version integer, trace jsonb, origin jsonb, cursor text, refused uuid[]
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  if exists (select from stillwake.schedules s where s.pool = p_pool and s.due_at <= v_now) then
    perform stillwake.run_schedules(10, p_pool);
  end if;
  select array_agg(s.job_id) into refused from stillwake.settle(p_settlements) s where s.state = 'lost';
  if refused is not null then
    return next;
  end if;
  return query select c.*, null::uuid[]
  from stillwake.claim(p_worker, p_pool, p_pipelines, p_limit, p_span, p_lease, p_presence, p_versions, p_oldest, p_cursor, false,
    p_held) c;
end
$$;

-- Whether a worker with these versions can resume a job started under p_version.
create or replace function stillwake.version_matches(p_version integer, p_pipeline text, p_pipelines text[], p_versions integer[],
  p_oldest integer[])
returns boolean
language sql immutable as $$
  select coalesce(p_version between coalesce(p_oldest[array_position(p_pipelines, p_pipeline)], 1)
    and p_versions[array_position(p_pipelines, p_pipeline)], true)
$$;

-- The pools of these pipelines, with their names: what a worker serves by default. A worker of one pool passes it as p_pool. Raises SW003
-- if that pool does not exist.
create or replace function stillwake.pipeline_pools(p_pipelines text[], p_pool text default null)
returns table (pool text, pipelines text[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_pool is not null and not exists (select from stillwake.pools p where p.name = p_pool) then
    perform stillwake.refuse_unknown_pool(p_pool);
  end if;
  return query
  select i.pool, array_agg(i.name order by i.name) from stillwake.pipelines i where i.name = any (p_pipelines)
  group by i.pool order by i.pool;
end
$$;
