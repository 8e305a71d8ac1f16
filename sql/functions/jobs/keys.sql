-- Keys: at most key_limit active jobs per pipeline, tenant and key; jobs without a tenant are a scope of themselves. A job is
-- active from its admission to its end, whether it waits, runs, sleeps or is paused; while active it holds a slot
-- (key_slot) that a unique index makes exclusive. Other jobs of the key are not claimable (run_at infinity, waiting_for
-- 'key') until a slot is free, first come, first served. Indexes and conditions name coalesce(tenant, ''), which equals no
-- tenant: a condition on a null tenant could not use an index.
--
-- A waiting job whose row is locked when its turn comes (by a pause() that is not committed, for example) is not waited
-- for, because the job that ends must not wait for a transaction of the user, and a rollback runs no code. So the key is
-- noted in free_keys, and claims check it again, at intervals of 50 ms to 1 s, until no job waits for a free slot. The
-- same for a transaction whose snapshot is older than the end of the job (REPEATABLE READ).
--
-- A slot becomes free in end_jobs() only. A transaction that frees a slot and one whose job starts to wait may miss
-- each other, because neither sees the other's uncommitted rows; so both take the lock of the key: the first when it
-- ends its job, the second at its commit.
--
-- Left to deadlock detection (40P01, the loser is repeated): a transaction that takes a slot and lets a second job wait
-- for the same key, against a resume() or retry() of that key, which has the lock and waits for the slot; and
-- transactions that use several keys one by one.

-- The lock of a key until the transaction ends. There are 1024 of them, so that no statement can fill the lock table.
-- Tenants share the lock of a key, not the key.
create or replace function stillwake.key_lock(p_pipeline text, p_key text) returns bigint
language sql immutable parallel safe as $$
  select 5947318253 + (hashtextextended(p_pipeline || chr(31) || p_key, 0) & 1023)
$$;

-- Stores jobs that have a key, one per array element (null where an input has no key, or its idempotency key is already
-- known). Returns the ids in the same order: of the new job or, with 'join', of the active one. p_row contains the
-- columns that all jobs share.
-- Locks: with 'replace' the lease and row of each job it cancels; the slot of each key, waiting for transactions that
-- take or free it.
-- Raises SW007.
--
-- The SET clauses pin the plan: one lookup per key. The planner knows nothing about arrays, and joining one may compare
-- every pair; hence `(id in (select …)) is true`, which uses a hash table, and subqueries that cannot become joins (an
-- aggregate, offset 0).
create or replace function stillwake.enqueue_keyed(
  p_row stillwake.live_jobs, p_ids uuid[], p_keys text[], p_inputs jsonb, p_tenants text[], p_idempotency text[], p_traces jsonb,
  p_on_conflict text, p_max integer, p_again boolean
) returns uuid[]
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
  v_ids   uuid[] := p_ids;
  v_left  uuid[];
  v_gone  uuid[];
  v_dying uuid[];
  v_one   record;
begin
  if p_again then
    -- Jobs that the first call stored need nothing more, whatever their state is now.
    p_ids := array(select case when not stillwake.job_exists(i.id) then i.id end from unnest(p_ids) with ordinality as i (id, n)
      order by i.n);
  end if;
  -- One pass is enough, unless another transaction commits between two of its statements.
  for v_try in 1 .. 20 loop
    while p_on_conflict = 'replace' loop
      for v_one in select o.id from stillwake.jobs_to_replace(p_row.pipeline, p_ids, p_keys, p_tenants) o (id) order by o.id loop
        if stillwake.job_is_live(v_one.id) then
          perform stillwake.cancel(v_one.id, 'Replaced by a newer job of the same key', 'stillwake');
        end if;
      end loop;
      exit when not found;
    end loop;
    with wanted as materialized (
      select i.id, i.key, coalesce(i.tenant, '') as scope, i.n,
        row_number() over (partition by i.key, coalesce(i.tenant, '') order by i.n) as turn
      from unnest(v_ids, p_keys, p_tenants) with ordinality as i (id, key, tenant, n)
      where i.id = p_ids[i.n] and (v_left is null or i.id in (select l from unnest(v_left) l))
    ), placed as materialized (
      select w.id, w.key, w.scope, w.n, case when w.key is null then null when p_max = 1 and w.turn = 1 then 1 else f.slot end as slot
      from wanted w left join lateral (
        select s.slot
        from (select where p_max > 1 and (select count(*) from stillwake.live_jobs j
          where j.pipeline = p_row.pipeline and j.key = w.key and coalesce(j.tenant, '') = w.scope and j.key_slot is not null) < p_max) room
        cross join generate_series(1, p_max) s (slot)
        where not exists (select from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = w.key
          and coalesce(j.tenant, '') = w.scope and j.key_slot = s.slot)
        order by s.slot offset w.turn - 1 limit 1
      ) f on w.key is not null
    ), stored as (
      insert into stillwake.live_jobs (id, created_at, run_at, order_at, expires_at, max_attempts, priority, pipeline, pool, lane,
        waiting_for, key, key_slot, tenant, idempotency_key, trace, webhooks, input, parent_id, spawn, child_no)
      select p.id, p_row.created_at, p_row.run_at, null, p_row.expires_at, p_row.max_attempts, p_row.priority, p_row.pipeline, p_row.pool,
        p_row.lane || coalesce(p_tenants[p.n], ''),
        p_row.waiting_for, p.key, p.slot, p_tenants[p.n], p_idempotency[p.n], nullif(p_traces -> (p.n - 1)::integer, 'null'),
        p_row.webhooks, p_inputs -> (p.n - 1)::integer, p_row.parent_id, p_row.spawn, p_row.child_no + (p.n - 1)::integer
      from placed p where p.key is null or p.slot is not null
      order by p.key, p.scope, p.slot, p.n
      on conflict (pipeline, key, coalesce(tenant, ''), key_slot) where key_slot is not null do nothing
      returning id
    )
    select array_agg(w.id order by w.n) into v_left from wanted w where w.id not in (select s.id from stored s);
    exit when v_left is null;
    -- Another transaction took the same slot, or enqueued a job to be replaced: there may be another slot, or a further
    -- job to replace.
    continue when v_try < 20 and (
      p_max > 1 and exists (
        select from unnest(v_ids, p_keys, p_tenants) i (id, key, tenant) where (i.id in (select l from unnest(v_left) l)) is true
          and (select count(*) from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = i.key
            and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot between 1 and p_max) < p_max)
      or p_on_conflict = 'replace' and exists (select from stillwake.jobs_to_replace(p_row.pipeline, p_ids, p_keys, p_tenants)));

    if p_on_conflict = 'reject' then
      select i.key, j.id, j.state, i.n into v_one
      from (
        select u.key, coalesce(u.tenant, '') as scope, u.n from unnest(p_ids, p_keys, p_tenants) with ordinality as u (id, key, tenant, n)
        where (u.id in (select l from unnest(v_left) l)) is true order by u.n limit 1
      ) i left join stillwake.live_jobs j on j.pipeline = p_row.pipeline and j.key = i.key and coalesce(j.tenant, '') = i.scope
        and j.key_slot is not null
        order by j.key_slot limit 1;
      perform stillwake.refuse('SW007',
        format('Key "%s" of pipeline "%s" is taken%s', v_one.key, p_row.pipeline,
        coalesce(format(' by job %s (%s)', v_one.id, v_one.state), '')),
        coalesce(v_one.id::text, 'key'), 'Wait for that job to end, or enqueue with on_conflict join, wait or replace.');
    elsif p_on_conflict = 'join' then
      -- A job that is being cancelled is not joined, because its work would not be done: the new job waits until it has
      -- stopped.
      v_dying := array(
        select i.id from unnest(p_ids, p_keys, p_tenants) as i (id, key, tenant)
        cross join lateral (
          select bool_and(j.cancel is not null) as stop from stillwake.live_jobs j
          where j.pipeline = p_row.pipeline and j.key = i.key and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is not null
        ) k
        where (i.id in (select l from unnest(v_left) l)) is true and k.stop);
    end if;
    if p_on_conflict <> 'join' or cardinality(v_dying) > 0 then
      insert into stillwake.live_jobs (id, created_at, run_at, order_at, expires_at, max_attempts, priority, pipeline, pool, lane,
        waiting_for, key, tenant, idempotency_key, trace, webhooks, input, parent_id, spawn, child_no)
      select i.id, p_row.created_at, 'infinity', p_row.run_at, p_row.expires_at, p_row.max_attempts, p_row.priority, p_row.pipeline,
        p_row.pool, p_row.lane || coalesce(p_tenants[i.n], ''),
        'key', i.key, p_tenants[i.n], p_idempotency[i.n], nullif(p_traces -> (i.n - 1)::integer, 'null'), p_row.webhooks,
        p_inputs -> (i.n - 1)::integer, p_row.parent_id, p_row.spawn, p_row.child_no + (i.n - 1)::integer
      from unnest(p_ids, p_keys) with ordinality as i (id, key, n)
      where (i.id in (select l from unnest(case when p_on_conflict = 'join' then v_dying else v_left end) l)) is true
      -- Their key locks are taken at commit, in this order: see pass_key_slots().
      order by stillwake.key_lock(p_row.pipeline, i.key), i.n;
      v_left := case when p_on_conflict = 'join' then array(select l from unnest(v_left) l
        where l not in (select d from unnest(v_dying) d)) end;
      exit when coalesce(cardinality(v_left), 0) = 0;
    end if;
    v_ids := array(
      select case when i.id in (select l from unnest(v_left) l) then coalesce(a.id, i.id) else i.id end
      from unnest(v_ids, p_keys, p_tenants) with ordinality as i (id, key, tenant, n)
      left join lateral (
        select j.id from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = i.key
          and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is not null and j.cancel is null order by j.key_slot limit 1
      ) a on i.id in (select l from unnest(v_left) l)
      order by i.n);
    v_left := array(select i from unnest(v_ids) i where (i in (select l from unnest(v_left) l)) is true);
    exit when v_left = '{}';
  end loop;
  if cardinality(v_left) > 0 and p_on_conflict = 'join' then
    raise exception using errcode = '40001', message = 'The jobs with these keys ended before they could be joined',
      hint = 'Repeat the call.';
  end if;

  -- The idempotency key of a job that joined another one points to that one. Ending that job updates only its own
  -- idempotency key, so this one expires counted from now; while that job is active it is joined again.
  v_gone := array(select o from unnest(p_ids, v_ids) as i (o, id) where o <> id);
  if cardinality(v_gone) > 0 and p_row.webhooks is not null then
    perform stillwake.join_webhooks(array(select i.id from unnest(p_ids, v_ids) as i (own, id) where i.own <> i.id), p_row.webhooks);
  end if;
  if cardinality(v_gone) > 0 and p_idempotency is not null then
    update stillwake.idempotency_keys k set job_id = i.id,
      forget_on = stillwake.forget_on(p_row.created_at, greatest(p.keep_completed, p.keep_failed, p.keep_cancelled))
    from stillwake.pipelines p cross join unnest(p_ids, v_ids, p_idempotency, p_tenants) as i (own, id, key, tenant)
    where p.name = p_row.pipeline and i.own <> i.id and k.pipeline = p_row.pipeline and k.key = i.key and k.tenant = coalesce(i.tenant, '')
      and k.job_id = i.own;
  end if;
  return v_ids;
end
$$;

-- The jobs that would be replaced: all that hold one of these keys or wait for it, and are not being cancelled already.
create or replace function stillwake.jobs_to_replace(p_pipeline text, p_ids uuid[], p_keys text[], p_tenants text[]) returns setof uuid
language sql stable as $$
  select o.id from (
    select k.id from unnest(p_ids, p_keys, p_tenants) i (id, key, tenant) cross join lateral (
      select j.id from stillwake.live_jobs j where j.pipeline = p_pipeline and j.key = i.key
        and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is not null and j.cancel is null offset 0
    ) k where i.id is not null
    union
    select k.id from unnest(p_ids, p_keys, p_tenants) i (id, key, tenant) cross join lateral (
      select j.id from stillwake.live_jobs j
      where j.pipeline = p_pipeline and j.key = i.key and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is null
        and j.cancel is null
        and coalesce(j.waiting_for, j.pause ->> 'waiting_for') = 'key' offset 0
    ) k where i.id is not null
  ) o where o.id not in (select i from unnest(p_ids) i where i is not null)
$$;

create or replace function stillwake.job_is_live(p_id uuid) returns boolean
language sql stable as $$
  select exists (select from stillwake.live_jobs where id = p_id)
$$;

-- Gives the free slots of a key to waiting jobs, first come, first served. Returns how many were admitted. Jobs whose
-- row is locked are skipped: a transaction that locks one and leaves it waiting calls this function itself. Locks: the
-- key; then the admitted jobs.
create or replace function stillwake.fill_key_slots(p_pipeline text, p_key text, p_tenant text) returns integer
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now   timestamptz := stillwake.now();
  v_scope text := coalesce(p_tenant, '');
  v_max   integer := (select key_limit from stillwake.pipelines where name = p_pipeline);
  v_slot  integer;
  v_taken integer := 0;
  v_job   stillwake.live_jobs;
  v_count integer := 0;
begin
  perform pg_advisory_xact_lock(stillwake.key_lock(p_pipeline, p_key));
  if (select count(*) from stillwake.live_jobs j
    where j.pipeline = p_pipeline and j.key = p_key and coalesce(j.tenant, '') = v_scope and j.key_slot between 1 and v_max) >= v_max then
    return 0;
  end if;
  loop
    select min(s.slot) into v_slot from generate_series(v_taken + 1, coalesce(v_max, 1)) s (slot)
    where not exists (select from stillwake.live_jobs j
      where j.pipeline = p_pipeline and j.key = p_key and coalesce(j.tenant, '') = v_scope and j.key_slot = s.slot);
    exit when v_slot is null;
    select * into v_job from stillwake.live_jobs j
    where j.pipeline = p_pipeline and j.key = p_key and coalesce(j.tenant, '') = v_scope and j.key_slot is null and j.waiting_for = 'key'
      and j.state = 'queued'
    order by j.order_at, j.id limit 1 for update skip locked;
    exit when not found;
    begin
      perform stillwake.admit(v_job.id, v_slot, v_now);
      v_count := v_count + 1;
    exception when unique_violation then
      -- Taken by a transaction that this one did not see. There may be another slot; if not, the end of that job admits
      -- the next one.
      v_taken := v_slot;
    end;
  end loop;
  if v_slot is not null then
    perform stillwake.note_free_key(p_pipeline, p_key, v_scope, v_now);
  end if;
  return v_count;
end
$$;

-- To be called when a key has a free slot: notes it if a job waits for it all the same, and hints the workers of that
-- job's pool.
create or replace function stillwake.note_free_key(p_pipeline text, p_key text, p_scope text, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_pool text;
begin
  select j.pool into v_pool from stillwake.live_jobs j
  where j.pipeline = p_pipeline and j.key = p_key and coalesce(j.tenant, '') = p_scope and j.key_slot is null
    and j.waiting_for = 'key' and j.state = 'queued'
  order by j.order_at, j.id limit 1;
  if found and not exists (select from stillwake.free_keys f where f.pipeline = p_pipeline and f.key = p_key and f.scope = p_scope) then
    insert into stillwake.free_keys (pool, pipeline, key, scope, check_at) values (v_pool, p_pipeline, p_key, p_scope, p_now);
    perform stillwake.hint(v_pool);
  end if;
end
$$;

-- Checks keys of free_keys whose time has come, up to p_limit of them. Called by the claims of the pool; usually there is
-- none.
-- Locks: the keys, unless they are locked; then the admitted jobs. Waits 100 ms at most for a transaction that takes the
-- same slot.
create or replace function stillwake.check_free_keys(p_pool text, p_limit integer, p_now timestamptz) returns void
language plpgsql set lock_timeout = '100ms' as $$
declare
  v_one   stillwake.free_keys;
  v_again boolean;
begin
  for v_one in
    select * from stillwake.free_keys f where f.pool = p_pool and f.check_at <= p_now order by f.check_at limit p_limit
    for update skip locked
  loop
    v_again := true;
    if pg_try_advisory_xact_lock(stillwake.key_lock(v_one.pipeline, v_one.key)) then
      begin
        perform stillwake.fill_key_slots(v_one.pipeline, v_one.key, v_one.scope);
        v_again := exists (select from stillwake.live_jobs j where j.pipeline = v_one.pipeline and j.key = v_one.key
            and coalesce(j.tenant, '') = v_one.scope and j.key_slot is null and j.waiting_for = 'key' and j.state = 'queued')
          and (select count(*) from stillwake.live_jobs j where j.pipeline = v_one.pipeline and j.key = v_one.key
            and coalesce(j.tenant, '') = v_one.scope and j.key_slot is not null)
            < coalesce((select p.key_limit from stillwake.pipelines p where p.name = v_one.pipeline), 1);
      exception when lock_not_available then
        null;
      end;
    end if;
    if v_again then
      update stillwake.free_keys f set tries = f.tries + 1,
        check_at = p_now + least(interval '50 milliseconds' * power(2, least(f.tries, 10)), interval '1 second') where f.id = v_one.id;
    else
      delete from stillwake.free_keys f where f.id = v_one.id;
    end if;
  end loop;
end
$$;

create or replace function stillwake.admit(p_id uuid, p_slot integer, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_pool text;
begin
  update stillwake.live_jobs set key_slot = p_slot, run_at = coalesce(order_at, p_now), order_at = null,
    waiting_for = case when order_at > p_now then 'time' end, lane = stillwake.lane_for_pool(pool, pipeline, tenant)
  where id = p_id returning pool into v_pool;
  perform stillwake.hint(v_pool);
end
$$;

-- Passes the slots of jobs that have just ended to the next jobs of their keys, one each: fill_key_slots() for many
-- keys at once. p_shared: the caller does nothing else with these keys, so it need not exclude others that end jobs,
-- only those that start to wait. Not with several slots per key: a waiting job might be locked by a transaction that
-- gives it another slot and then fails.
-- Locks: the keys in order; then the admitted jobs.
create or replace function stillwake.pass_key_slots(
  p_pipelines text[], p_keys text[], p_tenants text[], p_slots smallint[], p_shared boolean
) returns void
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
  v_now    timestamptz;
  v_pools  text[];
  -- Keys with more free slots than jobs that could be admitted.
  v_left   text[];
  v_keys   text[];
  v_scopes text[];
begin
  perform case when l.shared then pg_advisory_xact_lock_shared(l.lock) else pg_advisory_xact_lock(l.lock) end from (
    select stillwake.key_lock(f.pipeline, f.key) as lock, p_shared and bool_and(p.key_limit = 1) as shared
    from unnest(p_pipelines, p_keys) f (pipeline, key) left join stillwake.pipelines p on p.name = f.pipeline group by 1 order by 1
  ) l;
  -- Most keys have no waiting job.
  if not exists (
    select from stillwake.live_jobs j where j.pipeline = any (array(select distinct p from unnest(p_pipelines) p)) and j.key is not null
      and j.key_slot is null
  ) then
    return;
  end if;
  v_now := stillwake.now();
  with freed as (
    select f.pipeline, f.key, coalesce(f.tenant, '') as scope, array_agg(f.slot order by f.slot) as slots
    from unnest(p_pipelines, p_keys, p_tenants, p_slots) f (pipeline, key, tenant, slot)
    join stillwake.pipelines p on p.name = f.pipeline and f.slot <= p.key_limit
    group by 1, 2, 3
  ), next as materialized (
    select n.id, n.slot from freed f cross join lateral unnest(f.slots, array(
      select j.id from stillwake.live_jobs j
      where j.pipeline = f.pipeline and j.key = f.key and coalesce(j.tenant, '') = f.scope and j.key_slot is null
        and j.waiting_for = 'key' and j.state = 'queued'
      order by j.order_at, j.id limit cardinality(f.slots) for update skip locked
    )) n (slot, id) where n.id is not null
  ), admitted as (
    update stillwake.live_jobs j set key_slot = n.slot, run_at = coalesce(j.order_at, v_now), order_at = null,
      waiting_for = case when j.order_at > v_now then 'time' end, lane = stillwake.lane_for_pool(j.pool, j.pipeline, j.tenant)
    from next n where j.id = n.id returning j.pool
  )
  select (select array_agg(distinct a.pool) from admitted a), array_agg(f.pipeline), array_agg(f.key), array_agg(f.scope)
  into v_pools, v_left, v_keys, v_scopes
  from freed f where (select count(*) from next n join stillwake.live_jobs j on j.id = n.id
    where j.pipeline = f.pipeline and j.key = f.key and coalesce(j.tenant, '') = f.scope) < cardinality(f.slots);
  perform stillwake.hint(p) from unnest(v_pools) p;
  perform stillwake.note_free_key(k.pipeline, k.key, k.scope, v_now) from unnest(v_left, v_keys, v_scopes) k (pipeline, key, scope);
end
$$;

-- At the commit of a transaction whose job starts to wait: a slot may have become free since the check.
create or replace function stillwake.recheck_key() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.fill_key_slots(new.pipeline, new.key, new.tenant);
  if current_setting('transaction_isolation') <> 'read committed' then
    perform stillwake.note_free_key(new.pipeline, new.key, coalesce(new.tenant, ''), stillwake.now());
  end if;
  return null;
end
$$;

do $$
begin
  if not exists (select from pg_trigger where tgrelid = 'stillwake.live_jobs'::regclass and tgname = 'waits_for_key') then
    create constraint trigger waits_for_key after insert on stillwake.live_jobs deferrable initially deferred
    for each row when (new.waiting_for = 'key' and new.key_slot is null) execute function stillwake.recheck_key();
  end if;
end
$$;

-- A safety net: admits jobs that wait although a slot is free. Locks: the keys that have a free slot, in order.
create or replace function stillwake.fill_free_keys(p_limit integer default 1000, p_pipeline text default null)
returns table (pipeline text, key text, admitted integer)
language plpgsql as $$
declare
  v_scope text;
begin
  for pipeline, key, v_scope in
    with recursive waiting as (
      (select j.pipeline, j.key, coalesce(j.tenant, '') as scope from stillwake.live_jobs j where j.key is not null and j.key_slot is null
        order by 1, 2, 3 limit 1)
      union all
      select n.pipeline, n.key, n.scope from waiting w cross join lateral (
        select j.pipeline, j.key, coalesce(j.tenant, '') as scope from stillwake.live_jobs j
        where j.key is not null and j.key_slot is null and (j.pipeline, j.key, coalesce(j.tenant, '')) > (w.pipeline, w.key, w.scope)
        order by 1, 2, 3 limit 1
      ) n
    )
    -- In the order of their locks: see pass_key_slots().
    select w.pipeline, w.key, w.scope from (
      select a.pipeline, a.key, a.scope from waiting a left join stillwake.pipelines p on p.name = a.pipeline
      where (p_pipeline is null or a.pipeline = p_pipeline)
        and (select count(*) from stillwake.live_jobs j where j.pipeline = a.pipeline and j.key = a.key
          and coalesce(j.tenant, '') = a.scope and j.key_slot is not null) < coalesce(p.key_limit, 1)
      limit p_limit
    ) w order by stillwake.key_lock(w.pipeline, w.key)
  loop
    admitted := stillwake.fill_key_slots(pipeline, key, v_scope);
    return next;
  end loop;
end
$$;

-- Keys that jobs wait for, how many, and the job that holds each.
create or replace function stillwake.keys_in_demand(p_limit integer)
returns table (pipeline text, key text, waiting bigint, holder uuid, holder_state text)
language sql stable as $$
  select w.pipeline, w.key, w.waiting, h.id, h.state
  from (
    select j.pipeline, j.key, j.scope, count(*) as waiting from (
      select i.pipeline, i.key, coalesce(i.tenant, '') as scope from stillwake.live_jobs i
      where i.key is not null and i.key_slot is null and i.waiting_for = 'key' order by 1, 2, 3 limit 10000
    ) j group by 1, 2, 3 order by 1, 2, 3 limit p_limit
  ) w
  cross join lateral (
    select k.id, k.state from stillwake.live_jobs k
    where k.pipeline = w.pipeline and k.key = w.key and coalesce(k.tenant, '') = w.scope and k.key_slot is not null
    order by k.key_slot limit 1
  ) h
$$;
