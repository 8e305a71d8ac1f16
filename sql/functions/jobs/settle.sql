-- Settling: the end of an attempt. Called by the keeper of a worker; recover() and cancel() use the functions below
-- settle_one().
--
--   completed            -> ended                     slept    -> queued for a time, attempt returned
--   failed, retryable    -> queued with back-off,     paused   -> paused, attempt returned
--                           then at its old position
--   failed, fatal        -> ended                     released -> queued at its old position, attempt returned (drain)
--   cancelled            -> ended                     lost     -> queued at its old position, counted as a crash
--
-- A job with a pending cancel ends as cancelled at any outcome that would requeue it. The last failed attempt ends the
-- job as RETRIES_EXHAUSTED, the crash that reaches crash_limit as POISONED.

-- Settles many attempts at once. Each element: job, epoch, lease, outcome and, by outcome,
--   completed: output, missing (names of optional steps without a result)     failed: failure, fatal, retry_in
--   slept: for | until, waiting_for (time), step (saved as a checkpoint, so that a resumed attempt does not sleep again),
--     awaits (the spawn or event, with waiting_for children or event: waits until that is over or the time has come)
--   paused: reason, resume_in, breaker     released: reason (the kind of the event in the feed)
--   cancelled: failure                     lost: failure
-- Returns the new state of each job, 'lost' where the fence refused it; repeating a settlement changes nothing.
-- Locks: leases by id; then their jobs. Raises SW001; 55P03 when a lock is not granted within a second, by a transaction of
-- the application that changed one of the jobs and stays open: then settle the others without it.
create or replace function stillwake.settle(p_settlements jsonb) returns table (job_id uuid, state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  v_jobs    uuid[];
  v_epochs  bigint[];
  v_leases  uuid[];
  v_outputs jsonb[];
  v_missing jsonb[];
  v_others  jsonb[];
  v_part    uuid[];
  v_gone    uuid[] := '{}';
  v_lease   uuid;
  v_one     jsonb;
begin
  if p_settlements is null or jsonb_typeof(p_settlements) <> 'array' then
    perform stillwake.refuse('SW001', 'settlements must be a JSON array', 'settlements',
      'Pass one object per attempt: job, epoch, lease, outcome.');
  end if;
  select array_agg(s.job), array_agg(s.epoch), array_agg(s.lease), array_agg(s.output), array_agg(s.missing)
  into v_jobs, v_epochs, v_leases, v_outputs, v_missing
  from jsonb_to_recordset(p_settlements) as s (job uuid, epoch bigint, lease uuid, outcome text, output jsonb, missing jsonb)
  where s.outcome = 'completed';
  if coalesce(cardinality(v_jobs), 0) < jsonb_array_length(p_settlements) then
    v_others := array(select s from jsonb_array_elements(p_settlements) s where s ->> 'outcome' is distinct from 'completed'
      order by s ->> 'job');
  end if;
  if array_position(v_jobs, null) is not null or array_position(v_epochs, null) is not null
    or array_position(v_leases, null) is not null then
    perform stillwake.refuse('SW001', 'A settlement must have job, epoch and lease', 'settlements',
      'Pass the three values that claim() returned.');
  elsif exists (select from unnest(v_outputs) o where pg_column_size(o) > 262144 and octet_length(o::text) > 1048576
    and stillwake.compact_size(o) > 1048576) then
    perform stillwake.refuse('SW001', 'The output of a job is larger than the limit of 1048576 bytes', 'output',
      'Store it as an artifact and keep a reference.');
  end if;
  perform from stillwake.leases l
  where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id for update;

  -- Children may end both in bulk and one by one here: lock their parts now, in the order that count_ended() uses.
  if cardinality(v_others) + coalesce(cardinality(v_jobs), 0) > 1 then
    v_part := array(select distinct unnest(v_jobs) union select (s ->> 'job')::uuid from unnest(v_others) s);
    if exists (select from stillwake.live_jobs j where j.id = any (v_part) and j.parent_id is not null) then
      perform stillwake.lock_parts(v_part);
    end if;
  end if;
  -- Completed jobs free their keys in bulk, the others one by one: with both kinds in one call the locks are taken now,
  -- in order.
  if v_others is not null and v_jobs is not null then
    perform pg_advisory_xact_lock(l.lock) from (
      select distinct stillwake.key_lock(j.pipeline, j.key) as lock from stillwake.live_jobs j
      where j.id in (select unnest(v_jobs) union select (s ->> 'job')::uuid from unnest(v_others) s) and j.key_slot is not null order by 1
    ) l;
  end if;

  for v_lease, v_part in
    select e.lease_id, array_agg(e.job_id) from stillwake.end_jobs(v_jobs, v_epochs, v_leases, 'completed', v_outputs, v_missing) e
    group by e.lease_id
  loop
    perform stillwake.remove_from_lease(v_lease, v_part);
    v_gone := v_gone || v_part;
  end loop;
  return query select g, 'completed' from unnest(v_gone) g;
  if cardinality(v_gone) < cardinality(v_jobs) then
    return query select a.job, coalesce(stillwake.earlier_settlement(a.job, a.epoch, a.lease, 'completed'), 'lost')
    from unnest(v_jobs, v_epochs, v_leases) as a (job, epoch, lease) where a.job <> all (v_gone);
  end if;

  foreach v_one in array coalesce(v_others, '{}') loop
    job_id := (v_one ->> 'job')::uuid;
    state := stillwake.settle_one(v_one);
    return next;
  end loop;
end
$$;

-- One settlement other than completed. The caller holds the lease's row lock.
create or replace function stillwake.settle_one(p jsonb) returns text
language plpgsql as $$
declare
  v_now     timestamptz := stillwake.now();
  v_outcome text := p ->> 'outcome';
  v_job     stillwake.live_jobs;
  v_state   text;
  v_closed  boolean;
  v_waits   boolean;
begin
  if v_outcome is null or v_outcome not in ('failed', 'cancelled', 'slept', 'paused', 'released', 'lost') then
    perform stillwake.refuse('SW001', format('"%s" is not an outcome', coalesce(v_outcome, 'null')), 'outcome',
      'Outcomes: completed, failed, cancelled, slept, paused, released, lost.');
  end if;
  if coalesce(p ->> 'waiting_for', 'time') not in ('time', 'key', 'limit', 'children', 'event', 'machine') then
    perform stillwake.refuse('SW001', format('A job cannot wait for "%s"', p ->> 'waiting_for'), 'waiting_for',
      'Reasons: time, key, limit, children, event, machine.');
  end if;
  if not isfinite(stillwake.read_time(p, 'until')) then
    perform stillwake.refuse('SW001', format('A job cannot sleep until %s', p ->> 'until'), 'until',
      'Pass a finite time; to hold a job back without one, pause it.');
  end if;
  select * into v_job from stillwake.live_jobs j
  where j.id = (p ->> 'job')::uuid and j.epoch = (p ->> 'epoch')::bigint and j.lease_id = (p ->> 'lease')::uuid for update;
  if not found then
    return coalesce(stillwake.earlier_settlement((p ->> 'job')::uuid, (p ->> 'epoch')::bigint, (p ->> 'lease')::uuid, v_outcome), 'lost');
  end if;
  perform stillwake.remove_from_lease(v_job.lease_id, array[v_job.id]);

  if v_outcome = 'failed' then
    return stillwake.settle_failed(v_job, p -> 'failure', coalesce((p -> 'fatal')::boolean, false), stillwake.read_duration(p, 'retry_in'));
  elsif v_outcome = 'lost' then
    return stillwake.settle_lost(v_job, p -> 'failure');
  elsif v_outcome = 'cancelled' or v_job.cancel is not null then
    return stillwake.end_job(v_job, 'cancelled', p -> 'failure', v_outcome);
  elsif v_outcome = 'released' then
    return stillwake.requeue(v_job, 'released', v_job.run_at, null, true, null, left(p ->> 'reason', 100));
  elsif v_outcome = 'slept' then
    if p ->> 'step' is not null then
      insert into stillwake.checkpoints (job_id, step, epoch, saved_at) values (v_job.id, left(p ->> 'step', 200), v_job.epoch, v_now)
      on conflict do nothing;
    end if;
    if p ->> 'waiting_for' in ('children', 'event') and p ->> 'awaits' is not null then
      v_waits := stillwake.must_wait(v_job.id, p ->> 'waiting_for', p ->> 'awaits');
      return stillwake.requeue(v_job, 'slept', case when v_waits then coalesce(stillwake.read_time(p, 'until'), 'infinity')
        else v_job.run_at end, case when v_waits then p ->> 'waiting_for' end, true, null, null, p ->> 'awaits');
    end if;
    -- A limit that is reported as already over would requeue the job at once, again and again, without counting an
    -- attempt.
    return stillwake.requeue(v_job, 'slept',
      greatest(coalesce(stillwake.read_time(p, 'until'), v_now + stillwake.read_duration(p, 'for'), v_now), case
        when p ->> 'waiting_for' = 'limit' then v_now + interval '250 milliseconds' end),
      coalesce(p ->> 'waiting_for', 'time'), true);
  end if;
  v_state := stillwake.requeue(v_job, 'paused', v_job.run_at, null, true);
  -- A pause requested by an operator lasts until resume(). A job whose pipeline names the breaker is held back by its
  -- gate.
  if v_job.pause is not null or exists (select from stillwake.pipelines q join stillwake.pools o on o.name = v_job.pool and o.laned
    where q.name = v_job.pipeline and p ->> 'breaker' = any (q.breakers)) then
    return v_state;
  end if;
  -- A breaker that was closed in between has already resumed the jobs it paused, and would not resume this one.
  select b.resume_at is null into v_closed from stillwake.breakers b where b.name = p ->> 'breaker' for no key update;
  if v_closed then
    return v_state;
  end if;
  return stillwake.pause_queued(v_job.id, left(p ->> 'reason', 4000), null, v_now + stillwake.read_duration(p, 'resume_in'),
    case when p ->> 'breaker' ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then p ->> 'breaker' end);
end
$$;

-- For a worker that repeats a settlement after its response was lost: returns the state, and nothing is written twice.
create or replace function stillwake.earlier_settlement(p_job uuid, p_epoch bigint, p_lease uuid, p_outcome text) returns text
language sql stable as $$
  select e.state from stillwake.ended_jobs e where e.id = p_job and e.epoch = p_epoch and e.lease_id = p_lease
    and coalesce(e.outcome, e.state) = p_outcome
  union all
  select coalesce(j.state, 'queued') from stillwake.ended_attempts a left join stillwake.live_jobs j on j.id = a.job_id
  where a.job_id = p_job and a.epoch = p_epoch and a.lease_id = p_lease and a.outcome = p_outcome
  limit 1
$$;

-- A failed attempt: ends the job, or requeues it after a pause that doubles with each attempt, half of it random.
create or replace function stillwake.settle_failed(p_job stillwake.live_jobs, p_failure jsonb, p_fatal boolean,
  p_retry_in interval) returns text
language plpgsql as $$
declare
  v_pipeline stillwake.pipelines;
  v_wait     interval := p_retry_in;
begin
  if p_fatal then
    return stillwake.end_job(p_job, 'failed', p_failure);
  elsif p_job.cancel is not null then
    return stillwake.end_job(p_job, 'cancelled', p_failure, 'failed');
  elsif p_job.attempt >= p_job.max_attempts and p_failure ->> 'name' = 'Stopped' and p_failure ->> 'code' in ('TIMEOUT', 'SILENT') then
    return stillwake.fail_exhausted(p_job, stillwake.exhausted_failure(p_job, p_failure), p_job.attempt, null);
  elsif p_job.attempt >= p_job.max_attempts then
    return stillwake.end_job(p_job, 'failed', stillwake.exhausted_failure(p_job, p_failure));
  end if;
  if v_wait is null then
    select * into v_pipeline from stillwake.pipelines where name = p_job.pipeline;
    v_wait := least(v_pipeline.backoff_initial * power(2, least(p_job.attempt - 1, 30)), v_pipeline.backoff_max) * (0.5 + random() / 2);
  end if;
  return stillwake.requeue(p_job, 'failed', stillwake.now() + v_wait, 'retry', false, p_failure);
end
$$;

-- The worker or its runner died. Counted separately from failures; the position in the queue order is kept. After an
-- out-of-memory crash the job moves to the pool of the next larger size, if there is one.
create or replace function stillwake.settle_lost(p_job stillwake.live_jobs, p_failure jsonb) returns text
language plpgsql as $$
declare
  v_limit  integer := (select crash_limit from stillwake.pipelines where name = p_job.pipeline);
  v_larger text;
begin
  update stillwake.live_jobs set crashes = crashes + 1 where id = p_job.id returning crashes into p_job.crashes;
  if p_job.crashes >= v_limit then
    return stillwake.fail_exhausted(p_job, jsonb_build_object('name', 'Poisoned', 'code', 'POISONED',
      'message', format('Failed after %s: each attempt terminated its runner or worker',
        stillwake.plural(p_job.crashes, 'crash', 'crashes')), 'cause', p_failure),
      p_job.crashes, 'lost');
  elsif p_job.cancel is not null then
    return stillwake.end_job(p_job, 'cancelled', p_failure, 'lost');
  elsif p_job.attempt >= p_job.max_attempts then
    return stillwake.fail_exhausted(p_job, stillwake.exhausted_failure(p_job, p_failure), p_job.attempt, 'lost');
  end if;
  if p_failure ->> 'code' in ('RUNNER_OOM', 'MACHINE_OOM') then
    select n.name into v_larger from stillwake.pools p join stillwake.pools n on n.name = p.machines ->> 'larger_pool'
    where p.name = p_job.pool;
    if v_larger is not null then
      perform stillwake.add_event(p_job.id, 'moved',
        jsonb_build_object('from', p_job.pool, 'to', v_larger, 'reason', 'It ran out of memory'));
      -- The larger pool must apply its tenant's share and the gates of its pipeline too.
      if p_job.tenant is not null or exists (select from stillwake.pipelines i where i.name = p_job.pipeline and i.gated) then
        perform stillwake.lane_pool(p.name) from stillwake.pools p where p.name = v_larger and not p.laned;
      end if;
      update stillwake.live_jobs set pool = v_larger where id = p_job.id;
      p_job.pool := v_larger;
    end if;
  end if;
  return stillwake.requeue(p_job, 'lost', p_job.run_at, null, false, p_failure);
end
$$;

-- Fails a job whose machine was lost, or whose time ran out, for the last time. No code of the job runs that could
-- report it: if the pipeline has a sentence for this case, it becomes the sentence of the failure and the last log
-- line. Errors thrown by user code do not come here.
create or replace function stillwake.fail_exhausted(p_job stillwake.live_jobs, p_failure jsonb, p_times integer,
  p_outcome text) returns text
language plpgsql as $$
declare
  v_sentence text := (select replace(q.exhausted, '{attempts}', p_times::text) from stillwake.pipelines q where q.name = p_job.pipeline);
  v_seq      bigint;
begin
  if v_sentence is not null then
    p_failure := p_failure || jsonb_build_object('sentence', v_sentence);
    update stillwake.live_jobs set seq = seq + 1 where id = p_job.id returning seq into v_seq;
    insert into stillwake.feed (job_id, seq, at, epoch, kind, level, message, data)
    values (p_job.id, v_seq, stillwake.now(), p_job.epoch, 'log', 'error', v_sentence,
      jsonb_build_object('code', p_failure -> 'code', 'error', p_failure -> 'message'));
  end if;
  return stillwake.end_job(p_job, 'failed', p_failure, p_outcome);
end
$$;

create or replace function stillwake.exhausted_failure(p_job stillwake.live_jobs, p_failure jsonb) returns jsonb
language sql as $$
  select jsonb_build_object('name', 'RetriesExhausted', 'code', 'RETRIES_EXHAUSTED',
    'message', format('Failed after %s: %s', stillwake.plural(p_job.attempt, 'attempt'),
      coalesce(p_failure ->> 'message', 'no reason given')),
    'cause', p_failure)
    || jsonb_strip_nulls(jsonb_build_object('sentence', p_failure -> 'sentence', 'step', p_failure -> 'step'))
$$;

-- Requeues a job. The attempt moves to ended_attempts and the feed gets an event. The epoch is never decremented. A retry,
-- and a job that waits for children or an event, keeps its position in order_at: see return_due().
create or replace function stillwake.requeue(
  p_job stillwake.live_jobs, p_outcome text, p_run_at timestamptz, p_waiting_for text, p_give_back boolean, p_failure jsonb default null,
  p_event text default null, p_awaits text default null
) returns text
language plpgsql as $$
declare
  v_now   timestamptz := stillwake.now();
  v_keeps boolean := coalesce(p_waiting_for = 'retry' or p_awaits is not null and p_waiting_for is not null, false);
begin
  -- Its time has come already.
  if v_keeps and p_awaits is null and p_run_at <= v_now then
    p_run_at := p_job.run_at;
    v_keeps := false;
  end if;
  insert into stillwake.ended_attempts (job_id, epoch, lease_id, attempt, worker, claimed_at, ended_at, outcome, failure)
  values (p_job.id, p_job.epoch, p_job.lease_id, p_job.attempt, p_job.worker, p_job.claimed_at, v_now, p_outcome, p_failure);
  perform stillwake.add_event(p_job.id, coalesce(p_event, p_outcome), coalesce(p_failure, case
    when p_awaits is not null and p_waiting_for is not null then jsonb_build_object('waiting_for', p_waiting_for, 'awaits', p_awaits) end));
  update stillwake.live_jobs
  set state = 'queued', lease_id = null, worker = null, claimed_at = null, run_at = p_run_at,
    order_at = case when v_keeps then p_job.run_at end,
    awaits = case when p_waiting_for is not null then p_awaits end,
    lane = stillwake.lane_for_pool(p_job.pool, p_job.pipeline, p_job.tenant),
    waiting_for = case when p_run_at > v_now or p_waiting_for in ('children', 'event', 'key', 'limit') then p_waiting_for end,
    attempt = attempt - case when p_give_back then 1 else 0 end, failure = coalesce(p_failure, failure)
  where id = p_job.id;
  if exists (select from stillwake.pipelines q where q.name = p_job.pipeline and q.concurrency is not null) then
    perform stillwake.free_caps(array[p_job.pipeline]);
  end if;
  if exists (select from stillwake.pipelines q where q.name = p_job.pipeline and q.breakers <> '{}') then
    perform stillwake.hint_next_probe(array[p_job.id]);
  end if;
  if p_job.pause is not null then
    return stillwake.pause_queued(p_job.id, p_job.pause ->> 'reason', p_job.pause ->> 'by', (p_job.pause ->> 'resume_at')::timestamptz);
  end if;
  -- Also for a later time: a worker that sleeps until its own next_due() must learn of an earlier one. Also if its pool
  -- has a cap, because another job may start now.
  if p_run_at < 'infinity' or exists (select from stillwake.pools o where o.name = p_job.pool and o.concurrency is not null) then
    perform stillwake.hint(p_job.pool);
  end if;
  return 'queued';
end
$$;

-- Ends one job. The caller holds its row lock and has removed it from its lease.
create or replace function stillwake.end_job(p_job stillwake.live_jobs, p_state text, p_failure jsonb,
  p_outcome text default null) returns text
language plpgsql as $$
begin
  perform from stillwake.end_jobs(array[p_job.id], array[p_job.epoch], array[p_job.lease_id], p_state, null, null, p_failure,
    nullif(p_outcome, p_state));
  return p_state;
end
$$;

-- The progress of a job that has completed: nothing of it is left, whatever its code reported last.
create or replace function stillwake.complete_progress(p_progress jsonb) returns jsonb
language sql immutable as $$
  select p_progress || case when p_progress ? 'fraction' then '{"fraction": 1}' else '{}'::jsonb end
    || case when jsonb_typeof(p_progress -> 'total') = 'number' and coalesce(jsonb_typeof(p_progress -> 'done'), 'number') = 'number'
      then jsonb_build_object('done', greatest((p_progress ->> 'done')::numeric, (p_progress ->> 'total')::numeric)) else '{}'::jsonb end
$$;

-- The only way from live_jobs to ended_jobs, and the fence of completion: a row is moved only if epoch and lease match.
-- The SET clauses pin the plan: one primary key lookup per job, planned once per session.
create or replace function stillwake.end_jobs(
  p_jobs uuid[], p_epochs bigint[], p_leases uuid[], p_state text, p_outputs jsonb[], p_missing jsonb[], p_failure jsonb default null,
  p_outcome text default null
) returns table (job_id uuid, lease_id uuid)
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
  v_now        timestamptz := stillwake.now();
  v_jobs       uuid[];
  v_leases     uuid[];
  v_idempotent uuid[];
  v_pipelines  text[];
  v_keys       text[];
  v_tenants    text[];
  v_slots      smallint[];
  v_parents    uuid[];
  v_spawns     text[];
  v_nos        integer[];
  v_webhooks   uuid[];
  v_told       boolean;
  v_capped     text[];
  v_pools      text[];
  v_breakable  boolean;
begin
  with ends as materialized (
    select * from rows from (unnest(p_jobs), unnest(p_epochs), unnest(p_leases), unnest(p_outputs), unnest(p_missing))
      as e (id, epoch, lease, output, missing)
  ), gone as (
    delete from stillwake.live_jobs j using ends e
    where j.id = e.id and j.epoch = e.epoch and j.lease_id is not distinct from e.lease
    returning j.*, e.output, e.missing
  ), keep as materialized (
    -- Computed once per pipeline, not once per job.
    select p.name, stillwake.forget_on(v_now, case p_state when 'completed' then p.keep_completed when 'failed' then p.keep_failed
      else p.keep_cancelled end) as forget_on, exists (select from stillwake.endpoint_pipelines w where w.pipeline = p.name) as told,
      p.concurrency is not null as capped, p.breakers <> '{}' as breakable
    from stillwake.pipelines p where p.name = any (array(select distinct g.pipeline from gone g))
  ), kept as (
    insert into stillwake.ended_jobs (id, forget_on, state, created_at, run_at, expires_at, started_at, claimed_at, ended_at, lease_id,
      epoch, seq, attempt, max_attempts, crashes, priority, pipeline, pool, worker, key, tenant, idempotency_key, input, output, failure,
      cancel, progress, missing, outcome, version, webhooks, trace, parent_id, spawn, child_no, origin)
    select g.id, coalesce(k.forget_on, stillwake.forget_on(v_now, '30 days')), p_state, g.created_at, g.run_at, g.expires_at, g.started_at,
      g.claimed_at, v_now, g.lease_id, g.epoch, g.seq, g.attempt, g.max_attempts,
      g.crashes, g.priority, g.pipeline, g.pool, g.worker, g.key, g.tenant, g.idempotency_key, g.input, g.output,
      case when p_state <> 'completed' then coalesce(p_failure, g.failure) end, g.cancel,
      case when p_state = 'completed' then stillwake.complete_progress(g.progress) else g.progress end,
      case when jsonb_typeof(g.missing) = 'array' then array(select jsonb_array_elements_text(g.missing)) end, p_outcome, g.version,
      g.webhooks, g.trace, g.parent_id, g.spawn, g.child_no, g.origin
    from gone g left join keep k on k.name = g.pipeline
  )
  select array_agg(g.id), array_agg(g.lease_id), array_agg(g.id) filter (where g.idempotency_key is not null),
    array_agg(g.pipeline) filter (where g.key_slot is not null), array_agg(g.key) filter (where g.key_slot is not null),
    array_agg(g.tenant) filter (where g.key_slot is not null), array_agg(g.key_slot) filter (where g.key_slot is not null),
    array_agg(g.parent_id) filter (where g.parent_id is not null), array_agg(g.spawn) filter (where g.parent_id is not null),
    array_agg(g.child_no) filter (where g.parent_id is not null),
    array_agg(g.id) filter (where g.webhooks is not null), (select bool_or(k.told) from keep k),
    array_agg(g.pipeline) filter (where g.lease_id is not null and g.pipeline in (select k.name from keep k where k.capped)),
    array(select o.name from stillwake.pools o where o.concurrency is not null
      and o.name = any (array(select distinct r.pool from gone r where r.lease_id is not null))),
    (select bool_or(k.breakable) from keep k)
  into v_jobs, v_leases, v_idempotent, v_pipelines, v_keys, v_tenants, v_slots, v_parents, v_spawns, v_nos, v_webhooks, v_told,
    v_capped, v_pools, v_breakable from gone g;

  -- The children of a failed or cancelled job are not needed any more.
  if p_state <> 'completed' then
    perform stillwake.cancel_children(j,
      format('The job that spawned it has %s', case p_state when 'failed' then 'failed' else 'been cancelled' end), 'stillwake')
    from unnest(v_jobs) j where exists (select from stillwake.live_jobs c where c.parent_id = j);
  end if;
  if v_parents is not null then
    perform stillwake.count_ended(v_parents, v_spawns, v_nos, p_state);
  end if;

  if v_told or v_webhooks is not null then
    perform stillwake.add_webhooks(case when v_told then v_jobs else v_webhooks end);
  end if;
  if v_idempotent is not null then
    update stillwake.idempotency_keys k set forget_on = e.forget_on
    from stillwake.ended_jobs e
    where e.id = any (v_idempotent) and k.pipeline = e.pipeline and k.key = e.idempotency_key and k.job_id = e.id;
  end if;
  if v_keys is not null then
    perform stillwake.pass_key_slots(v_pipelines, v_keys, v_tenants, v_slots, p_state = 'completed');
  end if;
  if v_capped is not null then
    perform stillwake.free_caps(v_capped);
  end if;
  if v_breakable then
    perform stillwake.hint_next_probe(v_jobs);
  end if;
  perform stillwake.hint(p) from unnest(v_pools) p;
  perform stillwake.hint_watchers(v_jobs);
  return query select e.job, e.lease from unnest(v_jobs, v_leases) as e (job, lease);
end
$$;

-- Settle functions for a single attempt, for psql and other languages. Each raises SW005 when the lease is lost.
create or replace function stillwake.settle_or_refuse(p_settlement jsonb) returns text
language plpgsql as $$
declare
  v_state text := (select s.state from stillwake.settle(jsonb_build_array(p_settlement)) s);
begin
  if v_state = 'lost' then
    perform stillwake.refuse_lost((p_settlement ->> 'job')::uuid, (p_settlement ->> 'epoch')::bigint);
  end if;
  return v_state;
end
$$;

create or replace function stillwake.complete(p_job uuid, p_epoch bigint, p_lease uuid, p_output jsonb default null) returns text
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select stillwake.settle_or_refuse(jsonb_build_object('job', p_job, 'epoch', p_epoch, 'lease', p_lease, 'outcome', 'completed', 'output',
    p_output))
$$;

create or replace function stillwake.fail(p_job uuid, p_epoch bigint, p_lease uuid, p_failure jsonb, p_fatal boolean default false,
  p_retry_in text default null) returns text
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select stillwake.settle_or_refuse(jsonb_build_object('job', p_job, 'epoch', p_epoch, 'lease', p_lease, 'outcome', 'failed',
    'failure', p_failure, 'fatal', p_fatal, 'retry_in', p_retry_in))
$$;

create or replace function stillwake.release(p_job uuid, p_epoch bigint, p_lease uuid) returns text
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select stillwake.settle_or_refuse(jsonb_build_object('job', p_job, 'epoch', p_epoch, 'lease', p_lease, 'outcome', 'released'))
$$;
