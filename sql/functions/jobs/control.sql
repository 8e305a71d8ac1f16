-- Control of jobs and pools: cancel, retry, pause, resume. Every call writes an event with the actor and the reason.

-- Locks a live job, its lease first. Returns null when the job is not live. Between the two locks the job may be
-- claimed, settled or recovered: then the inner block is rolled back, which releases both locks, and it starts again
-- with the job's current lease. The lease is locked FOR KEY SHARE: settlement and recovery wait for the transaction that
-- called this, which may stay open, but heartbeats and checkpoints of the worker do not.
create or replace function stillwake.lock_job(p_id uuid) returns stillwake.live_jobs
language plpgsql as $$
declare
  v_lease uuid;
  v_job   stillwake.live_jobs;
begin
  loop
    select lease_id into v_lease from stillwake.live_jobs where id = p_id;
    if not found then
      return null;
    end if;
    begin
      perform from stillwake.leases where id = v_lease for key share;
      select * into v_job from stillwake.live_jobs where id = p_id for update;
      if v_job.id is not null and v_job.lease_id is not distinct from v_lease then
        return v_job;
      end if;
      raise exception using errcode = 'SW000';
    exception when sqlstate 'SW000' then
      null;
    end;
  end loop;
end
$$;

-- The caller found the job neither among the live nor among the ended ones. A job that moved in between exists after
-- all: that is a conflict (40001), which clients repeat.
create or replace function stillwake.refuse_unknown_job(p_id uuid) returns void
language plpgsql as $$
begin
  if stillwake.job_exists(p_id) then
    raise exception using errcode = '40001', message = format('Job %s was changed by a concurrent transaction', p_id), hint = 'Repeat the call.';
  end if;
  perform stillwake.refuse('SW004', format('Job %s does not exist', p_id), 'id',
    'It was never enqueued here, or its retention is over and it was pruned.');
end
$$;

-- Ends a waiting job at once; requests that a running one stops, which its worker learns with the next heartbeat. Applies
-- to its children too. Returns the state of the job: 'cancelled', 'running' (requested) or, for an ended job, the state
-- it ended in.
-- Locks: lease, job. Raises SW004.
create or replace function stillwake.cancel(p_id uuid, p_reason text default null, p_by text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_job    stillwake.live_jobs := stillwake.lock_job(p_id);
  v_state  text;
  v_cancel jsonb := jsonb_strip_nulls(jsonb_build_object('at', stillwake.now(), 'by', p_by, 'reason', p_reason));
begin
  if v_job.id is null then
    select e.state into v_state from stillwake.ended_jobs e where e.id = p_id;
    if not found then
      perform stillwake.refuse_unknown_job(p_id);
    end if;
    return v_state;
  end if;
  if v_job.cancel is null then
    update stillwake.live_jobs set cancel = v_cancel where id = p_id;
    perform stillwake.add_event(p_id, 'cancel_requested', v_cancel);
  end if;
  if v_job.lease_id is not null then
    if exists (select from stillwake.live_jobs c where c.parent_id = p_id) then
      perform stillwake.cancel_children(p_id, coalesce(p_reason, 'The job that spawned it was cancelled'), p_by);
    end if;
    perform stillwake.hint_worker(v_job.worker);
    return 'running';
  end if;
  return stillwake.end_job(v_job, 'cancelled', null);
end
$$;

-- Runs a failed or cancelled job again: attempts and crashes restart at zero, the epoch continues. It resumes from its
-- checkpoints; with p_from_start these, its artifacts and its spawns are deleted. Children that have not completed are
-- retried too.
-- Locks: the ended row, checkpoints, spawn parts. Raises SW004, SW006.
create or replace function stillwake.retry(p_id uuid, p_from_start boolean default false, p_by text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_state text;
begin
  select e.state into v_state from stillwake.ended_jobs e where e.id = p_id for update;
  if not found then
    if exists (select from stillwake.live_jobs where id = p_id) then
      perform stillwake.refuse('SW006', format('Job %s has not ended', p_id), 'id', 'Only failed and cancelled jobs can be retried.');
    end if;
    perform stillwake.refuse_unknown_job(p_id);
  elsif v_state = 'completed' then
    perform stillwake.refuse('SW006', format('Job %s is completed', p_id), 'id', 'Enqueue a new job to do the work again.');
  end if;
  perform stillwake.requeue_ended(array[p_id], p_from_start, p_by);
  return 'queued';
end
$$;

-- Moves ended jobs back to live_jobs, with those of their children that have not completed. Locks: the ended rows; then
-- parts, spawns, keys.
create or replace function stillwake.requeue_ended(p_ids uuid[], p_from_start boolean, p_by text) returns void
language plpgsql as $$
declare
  v_now      timestamptz := stillwake.now();
  v_data     jsonb := jsonb_strip_nulls(jsonb_build_object('by', p_by, 'from_start', p_from_start));
  v_pools    text[];
  v_parents  uuid[];
  v_spawns   text[];
  v_nos      integer[];
  v_states   text[];
  v_children uuid[];
begin
  if not p_from_start and exists (select from stillwake.live_jobs c where c.parent_id = any (p_ids) and c.cancel is not null) then
    perform stillwake.refuse('SW006', 'Children of this job are still being cancelled', 'id',
      'Retry it when they have stopped, after a second or two, or retry it from the start.');
  end if;
  with old as materialized (
    delete from stillwake.ended_jobs e where e.id = any (p_ids) and e.state <> 'completed' returning e.*
  ), attempts as (
    insert into stillwake.ended_attempts (job_id, epoch, lease_id, attempt, worker, claimed_at, ended_at, outcome, failure)
    select o.id, o.epoch, o.lease_id, o.attempt, o.worker, o.claimed_at, o.ended_at, coalesce(o.outcome, o.state), o.failure from old o
    where o.claimed_at is not null
  ), revived as (
    -- A job with a key waits for a slot like every job of its key, and checks for one at commit.
    insert into stillwake.live_jobs (id, created_at, run_at, order_at, waiting_for, epoch, seq, max_attempts, priority, pipeline, pool,
      lane, key, tenant, idempotency_key, input, failure, version, webhooks, trace, parent_id, spawn, child_no, origin)
    select o.id, o.created_at, case when o.key is null then v_now else 'infinity' end, case when o.key is not null then v_now end,
      case when o.key is not null then 'key' end,
      o.epoch, o.seq + 1, o.max_attempts, o.priority, o.pipeline, o.pool, stillwake.lane_for_pool(o.pool, o.pipeline, o.tenant), o.key,
        o.tenant,
      o.idempotency_key, o.input, o.failure, case when not p_from_start then o.version end, o.webhooks, o.trace, o.parent_id, o.spawn,
      o.child_no, o.origin
    from old o order by stillwake.key_lock(o.pipeline, o.key), o.id
  ), events as (
    insert into stillwake.feed (job_id, seq, at, epoch, kind, data) select o.id, o.seq + 1, v_now, o.epoch, 'retried', v_data from old o
  ), kept_keys as (
    update stillwake.idempotency_keys k set forget_on = null from old o
    where k.pipeline = o.pipeline and k.key = o.idempotency_key and k.job_id = o.id
  )
  select array_agg(distinct o.pool), array_agg(o.parent_id) filter (where o.parent_id is not null),
    array_agg(o.spawn) filter (where o.parent_id is not null),
    array_agg(o.child_no) filter (where o.parent_id is not null), array_agg(o.state) filter (where o.parent_id is not null)
  into v_pools, v_parents, v_spawns, v_nos, v_states from old o;
  if p_from_start then
    delete from stillwake.checkpoints c where c.job_id = any (p_ids);
    delete from stillwake.artifacts a where a.job_id = any (p_ids);
    perform stillwake.detach_children(i) from unnest(p_ids) i;
  end if;
  if v_parents is not null then
    perform stillwake.reopen_children(v_parents, v_spawns, v_nos, v_states);
  end if;
  v_children := array(select e.id from stillwake.ended_jobs e where e.parent_id = any (p_ids) and e.state <> 'completed');
  if v_children <> '{}' then
    perform stillwake.requeue_ended(v_children, false, p_by);
  end if;
  -- Now, not only at commit, so that the caller sees the job in its final state.
  perform stillwake.fill_key_slots(k.pipeline, k.key, k.tenant) from (
    select distinct j.pipeline, j.key, j.tenant, stillwake.key_lock(j.pipeline, j.key) from stillwake.live_jobs j
    where j.id = any (p_ids) and j.key is not null and j.key_slot is null order by 4
  ) k;
  perform stillwake.hint(p) from unnest(v_pools) p;
  perform stillwake.hint_watchers(p_ids);
end
$$;

-- Pauses a waiting job until resume(); a running one continues and is paused when it is next requeued.
-- Locks: lease, job. Raises SW004, SW006.
create or replace function stillwake.pause(p_id uuid, p_reason text default null, p_by text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_job stillwake.live_jobs := stillwake.lock_job(p_id);
begin
  if v_job.id is null then
    perform stillwake.refuse_ended(p_id);
  elsif v_job.lease_id is not null then
    update stillwake.live_jobs set pause = jsonb_strip_nulls(jsonb_build_object('at', stillwake.now(), 'by', p_by, 'reason', p_reason))
    where id = p_id;
    perform stillwake.add_event(p_id, 'pause_requested', jsonb_strip_nulls(jsonb_build_object('by', p_by, 'reason', p_reason)));
    perform stillwake.hint_worker(v_job.worker);
    return 'running';
  end if;
  return stillwake.pause_queued(p_id, p_reason, p_by, null);
end
$$;

-- Pauses a queued job. run_at becomes infinity, or the time at which it resumes by itself; the position in the queue
-- order is kept.
create or replace function stillwake.pause_queued(p_id uuid, p_reason text, p_by text, p_resume_at timestamptz,
  p_breaker text default null) returns text
language plpgsql as $$
declare
  v_job   stillwake.live_jobs;
  v_pause jsonb;
begin
  select * into v_job from stillwake.live_jobs where id = p_id;
  v_pause := jsonb_strip_nulls(jsonb_build_object('at', stillwake.now(), 'by', p_by, 'reason', p_reason, 'resume_at', p_resume_at,
    'breaker', p_breaker, 'waiting_for', coalesce(v_job.pause ->> 'waiting_for', v_job.waiting_for)));
  update stillwake.live_jobs set state = 'paused', waiting_for = null, run_at = coalesce(p_resume_at, 'infinity'),
    order_at = coalesce(order_at, run_at), pause = v_pause where id = p_id;
  perform stillwake.add_event(p_id, 'paused', v_pause);
  return 'paused';
end
$$;

-- Requeues a paused job at its old position, or withdraws the pause request of a running one. Locks: lease, job. Raises
-- SW004, SW006.
create or replace function stillwake.resume(p_id uuid, p_by text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_job   stillwake.live_jobs := stillwake.lock_job(p_id);
  v_waits boolean;
begin
  if v_job.id is null then
    perform stillwake.refuse_ended(p_id);
  elsif v_job.pause is null then
    return v_job.state;
  end if;
  if v_job.state = 'paused' then
    -- A job without a key, or with a key slot, that settled as waiting for a key would never be admitted by a key.
    v_waits := v_job.pause ->> 'waiting_for' = 'key' and v_job.key is not null and v_job.key_slot is null;
    update stillwake.live_jobs set state = 'queued', pause = null, waiting_for = v_job.pause ->> 'waiting_for',
      run_at = case when v_waits then 'infinity' else coalesce(order_at, run_at) end, order_at = case when v_waits then order_at end
    where id = p_id;
    if v_waits then
      perform stillwake.fill_key_slots(v_job.pipeline, v_job.key, v_job.tenant);
    end if;
  else
    update stillwake.live_jobs set pause = null where id = p_id;
  end if;
  perform stillwake.add_event(p_id, 'resumed', jsonb_strip_nulls(jsonb_build_object('by', p_by)));
  perform stillwake.hint(v_job.pool);
  return case when v_job.state = 'paused' then 'queued' else v_job.state end;
end
$$;

create or replace function stillwake.refuse_ended(p_id uuid) returns void
language plpgsql as $$
declare
  v_state text;
begin
  select state into v_state from stillwake.ended_jobs where id = p_id;
  if found then
    perform stillwake.refuse('SW006', format('Job %s has ended (%s)', p_id, v_state), 'id',
      'Only jobs that wait or run can be paused or resumed.');
  end if;
  perform stillwake.refuse_unknown_job(p_id);
end
$$;

-- A paused pool hands out no jobs; running jobs continue. Raises SW003.
create or replace function stillwake.pause_pool(p_pool text, p_reason text default null, p_by text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.pools set paused_at = coalesce(paused_at, stillwake.now()), paused_by = p_by, pause_reason = p_reason, resume_at = null
  where name = p_pool;
  if not found then
    perform stillwake.refuse_unknown_pool(p_pool);
  end if;
end
$$;

create or replace function stillwake.resume_pool(p_pool text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- Also resets the start back-off of machines: the operator reports that the cause is fixed.
  update stillwake.pools set paused_at = null, paused_by = null, pause_reason = null, resume_at = null, wasted_starts = 0,
    wasted_starts_at = null, provider_error = null where name = p_pool;
  if not found then
    perform stillwake.refuse_unknown_pool(p_pool);
  end if;
  perform stillwake.hint(p_pool);
end
$$;
