-- At most key_limit active jobs per pipeline and key. A job is active from its admission to its end, whether it waits, runs, sleeps or is
-- paused; it then has a place (key_slot) that a unique index keeps it alone in. Others of its key are out of the line (run_at infinity,
-- waiting_for 'key') until a place is free, first come first served.
--
-- A place becomes free in end_jobs() and nowhere else. Whoever frees one and whoever begins to wait may miss one another, each not seeing
-- what the other has not committed; so both take the lock of the key, the one when it has ended its job, the other at its commit.
--
-- Left to deadlock detection (40P01, the loser is repeated): a transaction that takes a place and lets a second job wait for the same key, against
-- a resume() or retry() of that key, which has the lock and waits for the place; and transactions that touch several keys one by one.

-- The lock of a key until the transaction ends. There are 1024 of them, so that no statement can fill the lock table.
create or replace function stillwake.key_lock(p_pipeline text, p_key text) returns bigint
language sql immutable parallel safe as $$
  select 5947318253 + (hashtextextended(p_pipeline || chr(31) || p_key, 0) & 1023)
$$;

-- Stores jobs that have a key, one per place in the arrays (null where an input has none, or belongs to an idempotency key seen before).
-- Answers the ids in the same order: of the new job, or by 'join' of the active one. p_row carries what all have in common.
-- Locks: by 'replace' the lease and job of those it cancels; the place of each key, waiting for a transaction that is about to take or
-- leave it. Raises SW007.
--
-- The SET clauses pin the plan: one look-up per key. Of arrays the planner knows nothing, and a join with one may compare each with each; so it is
-- `(id in (select …)) is true`, which is no join but a hash table, and subqueries that cannot be turned into joins (an aggregate, offset 0).
create or replace function stillwake.enqueue_keyed(
  p_row stillwake.live_jobs, p_ids uuid[], p_keys text[], p_inputs jsonb, p_tenants text[], p_idempotency text[], p_traces jsonb, p_on_conflict text, p_max integer,
  p_again boolean
) returns uuid[]
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_ids   uuid[] := p_ids;
  v_left  uuid[];
  v_gone  uuid[];
  v_dying uuid[];
  v_one   record;
begin
  if p_again then
    -- What the first call has stored is done with, whatever became of it since.
    p_ids := array(select case when not stillwake.job_exists(i.id) then i.id end from unnest(p_ids) with ordinality as i (id, n) order by i.n);
  end if;
  -- Once is enough, unless another transaction commits between a look and the next.
  for v_try in 1 .. 20 loop
    while p_on_conflict = 'replace' loop
      for v_one in select o.id from stillwake.others_of_keys(p_row.pipeline, p_ids, p_keys) o (id) order by o.id loop
        -- Set when the caller acts for one tenant: nobody ends the job of somebody else by wanting its key.
        if p_row.tenant is not null then
          perform stillwake.refuse_others(array[v_one.id], p_row.tenant);
        end if;
        if stillwake.job_is_live(v_one.id) then
          perform stillwake.cancel(v_one.id, 'Replaced by a newer job of the same key', 'stillwake');
        end if;
      end loop;
      exit when not found;
    end loop;
    with wanted as materialized (
      select i.id, i.key, i.n, row_number() over (partition by i.key order by i.n) as turn
      from unnest(v_ids, p_keys) with ordinality as i (id, key, n)
      where i.id = p_ids[i.n] and (v_left is null or i.id in (select l from unnest(v_left) l))
    ), placed as materialized (
      select w.id, w.key, w.n, case when w.key is null then null when p_max = 1 and w.turn = 1 then 1 else f.slot end as slot
      from wanted w left join lateral (
        select s.slot
        from (select where p_max > 1 and (select count(*) from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = w.key and j.key_slot is not null) < p_max) room
        cross join generate_series(1, p_max) s (slot)
        where not exists (select from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = w.key and j.key_slot = s.slot)
        order by s.slot offset w.turn - 1 limit 1
      ) f on w.key is not null
    ), stored as (
      insert into stillwake.live_jobs (id, created_at, run_at, place, expires_at, max_attempts, priority, pipeline, pool, lane, waiting_for, key, key_slot, tenant,
        idempotency_key, trace, webhooks, input, parent_id, spawn, child_no)
      select p.id, p_row.created_at, p_row.run_at, null, p_row.expires_at, p_row.max_attempts, p_row.priority, p_row.pipeline, p_row.pool, p_row.lane || coalesce(p_tenants[p.n], ''),
        p_row.waiting_for, p.key, p.slot, p_tenants[p.n], p_idempotency[p.n], nullif(p_traces -> (p.n - 1)::integer, 'null'), p_row.webhooks, p_inputs -> (p.n - 1)::integer,
        p_row.parent_id, p_row.spawn, p_row.child_no + (p.n - 1)::integer
      from placed p where p.key is null or p.slot is not null
      order by p.key, p.slot, p.n
      on conflict (pipeline, key, key_slot) where key_slot is not null do nothing
      returning id
    )
    select array_agg(w.id order by w.n) into v_left from wanted w where w.id not in (select s.id from stored s);
    exit when v_left is null;
    -- Somebody took the same place or came to be replaced, and there is another place, or him to replace.
    continue when v_try < 20 and (
      p_max > 1 and exists (
        select from unnest(v_ids, p_keys) i (id, key) where (i.id in (select l from unnest(v_left) l)) is true
          and (select count(*) from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = i.key and j.key_slot between 1 and p_max) < p_max)
      or p_on_conflict = 'replace' and exists (select from stillwake.others_of_keys(p_row.pipeline, p_ids, p_keys)));

    if p_on_conflict = 'reject' then
      select i.key, j.id, j.state, i.n into v_one
      from (
        select u.key, u.n from unnest(p_ids, p_keys) with ordinality as u (id, key, n) where (u.id in (select l from unnest(v_left) l)) is true order by u.n limit 1
      ) i left join stillwake.live_jobs j on j.pipeline = p_row.pipeline and j.key = i.key and j.key_slot is not null order by j.key_slot limit 1;
      if p_row.tenant is not null and v_one.id is not null then
        perform stillwake.refuse_others(array[v_one.id], p_row.tenant);
      end if;
      perform stillwake.refuse('SW007', format('Key "%s" of pipeline "%s" is taken%s', v_one.key, p_row.pipeline, coalesce(format(' by job %s (%s)', v_one.id, v_one.state), '')),
        coalesce(v_one.id::text, 'key'), 'Wait for that job to end, or enqueue with on_conflict join, wait or replace.');
    elsif p_on_conflict = 'join' then
      -- One that was asked to stop is not joined: its work would not be done. Those who find only such wait until it has stopped.
      v_dying := array(
        select i.id from unnest(p_ids, p_keys) as i (id, key)
        cross join lateral (
          select bool_and(j.cancel is not null) as stop from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = i.key and j.key_slot is not null
        ) k
        where (i.id in (select l from unnest(v_left) l)) is true and k.stop);
    end if;
    if p_on_conflict <> 'join' or cardinality(v_dying) > 0 then
      insert into stillwake.live_jobs (id, created_at, run_at, place, expires_at, max_attempts, priority, pipeline, pool, lane, waiting_for, key, tenant,
        idempotency_key, trace, webhooks, input, parent_id, spawn, child_no)
      select i.id, p_row.created_at, 'infinity', p_row.run_at, p_row.expires_at, p_row.max_attempts, p_row.priority, p_row.pipeline, p_row.pool, p_row.lane || coalesce(p_tenants[i.n], ''),
        'key', i.key, p_tenants[i.n], p_idempotency[i.n], nullif(p_traces -> (i.n - 1)::integer, 'null'), p_row.webhooks, p_inputs -> (i.n - 1)::integer,
        p_row.parent_id, p_row.spawn, p_row.child_no + (i.n - 1)::integer
      from unnest(p_ids, p_keys) with ordinality as i (id, key, n) where (i.id in (select l from unnest(case when p_on_conflict = 'join' then v_dying else v_left end) l)) is true
      -- Their locks are taken at the commit, in this order: see pass_keys().
      order by stillwake.key_lock(p_row.pipeline, i.key), i.n;
      v_left := case when p_on_conflict = 'join' then array(select l from unnest(v_left) l where l not in (select d from unnest(v_dying) d)) end;
      exit when coalesce(cardinality(v_left), 0) = 0;
    end if;
    v_ids := array(
      select case when i.id in (select l from unnest(v_left) l) then coalesce(a.id, i.id) else i.id end
      from unnest(v_ids, p_keys) with ordinality as i (id, key, n)
      left join lateral (
        select j.id from stillwake.live_jobs j where j.pipeline = p_row.pipeline and j.key = i.key and j.key_slot is not null and j.cancel is null order by j.key_slot limit 1
      ) a on i.id in (select l from unnest(v_left) l)
      order by i.n);
    v_left := array(select i from unnest(v_ids) i where (i in (select l from unnest(v_left) l)) is true);
    exit when v_left = '{}';
  end loop;
  if cardinality(v_left) > 0 and p_on_conflict = 'join' then
    raise exception using errcode = '40001', message = 'The jobs of these keys end faster than they can be joined', hint = 'Repeat the call.';
  end if;

  -- An idempotency key that was taken for a job which joined another belongs to that one. Its end knows only of its own key, so this one is
  -- forgotten by the time from now; while that job is active it is joined again.
  v_gone := array(select o from unnest(p_ids, v_ids) as i (o, id) where o <> id);
  if cardinality(v_gone) > 0 and p_row.webhooks is not null then
    perform stillwake.join_webhooks(array(select i.id from unnest(p_ids, v_ids) as i (own, id) where i.own <> i.id), p_row.webhooks);
  end if;
  if cardinality(v_gone) > 0 and p_idempotency is not null then
    update stillwake.idempotency_keys k set job_id = i.id, forget_on = stillwake.forget_on(p_row.created_at, greatest(p.keep_completed, p.keep_failed, p.keep_cancelled))
    from stillwake.pipelines p cross join unnest(p_ids, v_ids, p_idempotency) as i (own, id, key)
    where p.name = p_row.pipeline and i.own <> i.id and k.pipeline = p_row.pipeline and k.key = i.key and k.job_id = i.own;
  end if;
  return v_ids;
end
$$;

-- Whom jobs of these keys would replace: all that have one of them or wait for it, and are not asked to stop already.
create or replace function stillwake.others_of_keys(p_pipeline text, p_ids uuid[], p_keys text[]) returns setof uuid
language sql stable as $$
  select o.id from (
    select k.id from unnest(p_ids, p_keys) i (id, key) cross join lateral (
      select j.id from stillwake.live_jobs j where j.pipeline = p_pipeline and j.key = i.key and j.key_slot is not null and j.cancel is null offset 0
    ) k where i.id is not null
    union
    select k.id from unnest(p_ids, p_keys) i (id, key) cross join lateral (
      select j.id from stillwake.live_jobs j
      where j.pipeline = p_pipeline and j.key = i.key and j.key_slot is null and j.cancel is null and coalesce(j.waiting_for, j.pause ->> 'waiting_for') = 'key' offset 0
    ) k where i.id is not null
  ) o where o.id not in (select i from unnest(p_ids) i where i is not null)
$$;

create or replace function stillwake.job_is_live(p_id uuid) returns boolean
language sql stable as $$
  select exists (select from stillwake.live_jobs where id = p_id)
$$;

-- Gives the free places of a key to those who wait for it, first come first served. Answers how many. Those whose row is locked are passed
-- over: whoever locks one and leaves it waiting calls this himself. Locks: the key; then those it admits.
create or replace function stillwake.fill_key(p_pipeline text, p_key text) returns integer
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now   timestamptz := stillwake.now();
  v_most  integer := (select key_limit from stillwake.pipelines where name = p_pipeline);
  v_slot  integer;
  v_taken integer := 0;
  v_job   stillwake.live_jobs;
  v_count integer := 0;
begin
  perform pg_advisory_xact_lock(stillwake.key_lock(p_pipeline, p_key));
  if (select count(*) from stillwake.live_jobs j where j.pipeline = p_pipeline and j.key = p_key and j.key_slot between 1 and v_most) >= v_most then
    return 0;
  end if;
  loop
    select min(s.slot) into v_slot from generate_series(v_taken + 1, coalesce(v_most, 1)) s (slot)
    where not exists (select from stillwake.live_jobs j where j.pipeline = p_pipeline and j.key = p_key and j.key_slot = s.slot);
    exit when v_slot is null;
    select * into v_job from stillwake.live_jobs j
    where j.pipeline = p_pipeline and j.key = p_key and j.key_slot is null and j.waiting_for = 'key' and j.state = 'queued'
    order by j.place, j.id limit 1 for update skip locked;
    exit when not found;
    begin
      perform stillwake.admit(v_job.id, v_slot, v_now);
      v_count := v_count + 1;
    exception when unique_violation then
      -- Taken by a transaction that this one did not see. There may be another place; if not, the end of that job admits the next in line.
      v_taken := v_slot;
    end;
  end loop;
  return v_count;
end
$$;

create or replace function stillwake.admit(p_id uuid, p_slot integer, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_pool text;
begin
  update stillwake.live_jobs set key_slot = p_slot, run_at = coalesce(place, p_now), place = null, waiting_for = case when place > p_now then 'time' end,
    lane = stillwake.lane_in(pool, pipeline, tenant)
  where id = p_id returning pool into v_pool;
  perform stillwake.hint(v_pool);
end
$$;

-- The places of jobs that have just ended go to the next of their keys, one each. The same as fill_key() for many at once. p_shared: the caller
-- does nothing else with these keys, so that it need not keep away others who end jobs, only those who begin to wait. But where a key has several
-- places, the one who waits might be locked by somebody who gives him another one and fails. Locks: the keys in order; then those it admits.
create or replace function stillwake.pass_keys(p_pipelines text[], p_keys text[], p_slots smallint[], p_shared boolean) returns void
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_now   timestamptz;
  v_pools text[];
begin
  perform case when l.shared then pg_advisory_xact_lock_shared(l.lock) else pg_advisory_xact_lock(l.lock) end from (
    select stillwake.key_lock(f.pipeline, f.key) as lock, p_shared and bool_and(p.key_limit = 1) as shared
    from unnest(p_pipelines, p_keys) f (pipeline, key) left join stillwake.pipelines p on p.name = f.pipeline group by 1 order by 1
  ) l;
  -- Most keys have nobody who waits.
  if not exists (
    select from stillwake.live_jobs j where j.pipeline = any (array(select distinct p from unnest(p_pipelines) p)) and j.key is not null and j.key_slot is null
  ) then
    return;
  end if;
  v_now := stillwake.now();
  with freed as (
    select f.pipeline, f.key, array_agg(f.slot order by f.slot) as slots
    from unnest(p_pipelines, p_keys, p_slots) f (pipeline, key, slot) join stillwake.pipelines p on p.name = f.pipeline and f.slot <= p.key_limit
    group by f.pipeline, f.key
  ), next as materialized (
    select n.id, n.slot from freed f cross join lateral unnest(f.slots, array(
      select j.id from stillwake.live_jobs j
      where j.pipeline = f.pipeline and j.key = f.key and j.key_slot is null and j.waiting_for = 'key' and j.state = 'queued'
      order by j.place, j.id limit cardinality(f.slots) for update skip locked
    )) n (slot, id) where n.id is not null
  ), admitted as (
    update stillwake.live_jobs j set key_slot = n.slot, run_at = coalesce(j.place, v_now), place = null, waiting_for = case when j.place > v_now then 'time' end,
      lane = stillwake.lane_in(j.pool, j.pipeline, j.tenant)
    from next n where j.id = n.id returning j.pool
  )
  select array_agg(distinct a.pool) into v_pools from admitted a;
  perform stillwake.hint(p) from unnest(v_pools) p;
end
$$;

-- At the commit of whoever begins to wait: the place may have become free meanwhile.
create or replace function stillwake.look_at_key() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.fill_key(new.pipeline, new.key);
  return null;
end
$$;

do $$
begin
  if not exists (select from pg_trigger where tgrelid = 'stillwake.live_jobs'::regclass and tgname = 'waits_for_key') then
    create constraint trigger waits_for_key after insert on stillwake.live_jobs deferrable initially deferred
    for each row when (new.waiting_for = 'key' and new.key_slot is null) execute function stillwake.look_at_key();
  end if;
end
$$;

-- What should never be needed: admits those who wait although a place is free, such as the job of a transaction that saw an old snapshot
-- (REPEATABLE READ), or one whose row was locked by a transaction that failed when its turn came. Locks: the keys that have a free place, in order.
create or replace function stillwake.fill_keys(p_limit integer default 1000, p_pipeline text default null) returns table (pipeline text, key text, admitted integer)
language plpgsql as $$
begin
  for pipeline, key in
    with recursive waiting as (
      (select j.pipeline, j.key from stillwake.live_jobs j where j.key is not null and j.key_slot is null order by j.pipeline, j.key limit 1)
      union all
      select n.pipeline, n.key from waiting w cross join lateral (
        select j.pipeline, j.key from stillwake.live_jobs j
        where j.key is not null and j.key_slot is null and (j.pipeline, j.key) > (w.pipeline, w.key) order by j.pipeline, j.key limit 1
      ) n
    )
    -- In the order of their locks: see pass_keys().
    select w.pipeline, w.key from (
      select a.pipeline, a.key from waiting a left join stillwake.pipelines p on p.name = a.pipeline
      where (p_pipeline is null or a.pipeline = p_pipeline)
        and (select count(*) from stillwake.live_jobs j where j.pipeline = a.pipeline and j.key = a.key and j.key_slot is not null) < coalesce(p.key_limit, 1)
      limit p_limit
    ) w order by stillwake.key_lock(w.pipeline, w.key)
  loop
    admitted := stillwake.fill_key(pipeline, key);
    return next;
  end loop;
end
$$;

-- Keys that jobs wait for, how many, and who holds them.
create or replace function stillwake.waited_keys(p_limit integer) returns table (pipeline text, key text, waiting bigint, holder uuid, holder_state text)
language sql stable as $$
  select w.pipeline, w.key, w.waiting, h.id, h.state
  from (
    select j.pipeline, j.key, count(*) as waiting from (
      select i.pipeline, i.key from stillwake.live_jobs i where i.key is not null and i.key_slot is null and i.waiting_for = 'key' order by i.pipeline, i.key limit 10000
    ) j group by 1, 2 order by 1, 2 limit p_limit
  ) w
  cross join lateral (
    select k.id, k.state from stillwake.live_jobs k where k.pipeline = w.pipeline and k.key = w.key and k.key_slot is not null order by k.key_slot limit 1
  ) h
$$;
