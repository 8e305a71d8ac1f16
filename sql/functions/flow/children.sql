-- Children: a job spawns other jobs and waits for them without using a slot. A spawn is a row of spawns plus one job
-- per input; each child knows its parent, its spawn and its number.
--
--   spawn() -> children queued -> each ends -> its part counts it -> the last child of a part updates the spawn
--     -> the last part wakes the parent
--
-- Children are counted, not searched for: two that end at the same moment would each see the other as open. Only the
-- transaction that wakes the parent writes the parent's row. Lock order: parts in order, then spawns in order, then the
-- parent's row; all after leases and the jobs that end. Left to deadlock detection (40P01, the loser is repeated): a
-- parent that is cancelled at the moment its last child ends, and two workers that each end a parent whose child runs
-- under the other's lease.

-- Stores children p_from … of a spawn, one per element of p_inputs. The first call creates the spawn; a repeated call,
-- in this attempt or a later one, stores nothing again. All calls but the last pass a multiple of 128 children. Returns
-- how many are stored by now, or -1 when the job is being cancelled. p_options as in enqueue_many(), except those that
-- could yield another job: a child whose key is taken always waits for it instead of joining or replacing, because its
-- parent waits for its result. Locks: the lease, the spawn; then as enqueue_many().
-- Raises SW001, SW002, SW003, SW005, SW006, SW007.
create or replace function stillwake.spawn(
  p_job uuid, p_epoch bigint, p_lease uuid, p_name text, p_pipeline text, p_inputs jsonb, p_options jsonb, p_ids uuid[], p_from integer,
  p_total integer, p_on_error text
) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_spawn   stillwake.spawns;
  v_count   integer;
  v_options jsonb := coalesce(p_options, '{}');
  v_taken   record;
begin
  perform stillwake.check_options(v_options,
    array['pool', 'priority', 'delay', 'run_at', 'expires_in', 'expires_at', 'max_attempts', 'tenant', 'tenants', 'keys', 'traces']);
  if coalesce(length(p_name), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A spawn needs a name of 1 to 200 characters', 'key', 'Use a shorter name.');
  elsif coalesce(p_on_error, '') not in ('fail', 'collect', 'ignore') then
    perform stillwake.refuse('SW001', format('on_error cannot be "%s"', p_on_error), 'on_error', 'Use fail, collect or ignore.');
  elsif coalesce(p_total, -1) not between 0 and 100000 then
    perform stillwake.refuse('SW001', format('A spawn cannot have %s children', coalesce(p_total::text, 'null')), 'inputs',
      'One spawn has at most 100000. Spawn intermediate parents for more.');
  elsif jsonb_typeof(p_inputs) is distinct from 'array' then
    perform stillwake.refuse('SW001', 'inputs must be a JSON array with one element per child', 'inputs', 'Pass [] for none.');
  end if;
  v_count := jsonb_array_length(p_inputs);
  if coalesce(p_from, -1) < 0 or p_from % 128 <> 0 or p_from + v_count > p_total or v_count % 128 <> 0 and p_from + v_count < p_total then
    perform stillwake.refuse('SW001', format('Children %s to %s cannot be stored together', p_from, p_from + v_count - 1), 'inputs',
      'All calls but the last must pass a multiple of 128 children.');
  elsif not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  elsif exists (select from stillwake.live_jobs j where j.id = p_job and j.cancel is not null) then
    return -1;
  end if;

  insert into stillwake.spawns (job_id, name, pipeline, on_error, total, at)
  values (p_job, p_name, p_pipeline, p_on_error, p_total, stillwake.now()) on conflict do nothing;
  select * into v_spawn from stillwake.spawns s where s.job_id = p_job and s.name = p_name for update;
  if v_spawn.total <> p_total or v_spawn.pipeline <> p_pipeline then
    perform stillwake.refuse('SW006',
      format('Spawn "%s" was started with %s inputs for %s, and now there are %s for %s', p_name, v_spawn.total, v_spawn.pipeline,
        p_total, p_pipeline), 'inputs',
      'A resumed attempt must spawn the same children: compute the inputs in a step, or give each spawn its own key.');
  end if;
  if v_spawn.on_error <> p_on_error then
    -- The code has changed since.
    update stillwake.spawns s set on_error = p_on_error,
      failed = exists (select from stillwake.spawn_parts p where p.job_id = p_job and p.name = p_name and p.failed + p.cancelled > 0)
    where s.job_id = p_job and s.name = p_name;
  end if;
  if p_from < v_spawn.spawned or v_count = 0 then
    return v_spawn.spawned;
  elsif p_from > v_spawn.spawned then
    perform stillwake.refuse('SW001', format('Children %s to %s are missing before child %s', v_spawn.spawned, p_from - 1, p_from),
      'inputs', 'Store them in order.');
  end if;
  if not v_options ? 'keys' then
    v_options := v_options || coalesce((select jsonb_build_object('keys', stillwake.labels_of(p_inputs, p.key_paths, 'key'))
      from stillwake.pipelines p where p.name = p_pipeline and p.key_paths is not null), '{}');
  end if;
  if v_options ->> 'keys' is not null then
    -- The child would wait for its ancestor, which waits for the child.
    with recursive ancestors as (
      select j.id, j.parent_id, j.pipeline, j.key from stillwake.live_jobs j where j.id = p_job
      union all
      select j.id, j.parent_id, j.pipeline, j.key from ancestors l join stillwake.live_jobs j on j.id = l.parent_id
    )
    select l.id, l.key into v_taken from ancestors l
    where l.pipeline = p_pipeline and l.key in (select jsonb_array_elements_text(v_options -> 'keys')) limit 1;
    if found then
      perform stillwake.refuse('SW006',
        format('Key "%s" of pipeline "%s" is held by job %s, which waits for the child that would wait for the key', v_taken.key,
          p_pipeline, v_taken.id), 'key', 'Give children different keys, or none.');
    end if;
    if (select p.on_conflict from stillwake.pipelines p where p.name = p_pipeline) in ('join', 'replace') then
      v_options := v_options || '{"on_conflict": "wait"}';
    end if;
  end if;
  perform stillwake.store_jobs(p_pipeline, p_inputs, v_options, p_ids, p_job, p_name, p_from);
  insert into stillwake.spawn_parts (job_id, name, part, open)
  select p_job, p_name, n / 128, least(128, p_from + v_count - n) from generate_series(p_from, p_from + v_count - 1, 128) n;
  update stillwake.spawns s set spawned = p_from + v_count, open_parts = s.open_parts + (v_count + 127) / 128
  where s.job_id = p_job and s.name = p_name;
  if p_from + v_count = p_total then
    perform stillwake.add_event(p_job, 'spawned', jsonb_build_object('spawn', p_name, 'pipeline', p_pipeline, 'children', p_total));
  end if;
  return p_from + v_count;
end
$$;

-- Whether there is nothing left to wait for.
create or replace function stillwake.spawn_is_over(p_spawn stillwake.spawns) returns boolean
language sql immutable as $$
  select p_spawn.spawned = p_spawn.total and p_spawn.open_parts = 0 or p_spawn.on_error = 'fail' and p_spawn.failed
$$;

-- Counts ended children: in their parts, in the spawn when a part has no open child left, and wakes the parent after
-- the last one.
create or replace function stillwake.count_ended(p_parents uuid[], p_spawns text[], p_nos integer[], p_state text) returns void
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_parents uuid[];
  v_names   text[];
  v_closed  integer[];
  v_one     record;
  v_spawn   stillwake.spawns;
begin
  with ended as materialized (
    select e.parent, e.spawn, e.no / 128 as part, count(*)::integer as count from unnest(p_parents, p_spawns, p_nos) e (parent, spawn, no)
    group by 1, 2, 3 order by 1, 2, 3
  ), locked as materialized (
    select p.job_id, p.name, p.part, e.count from ended e cross join lateral (
      select o.job_id, o.name, o.part from stillwake.spawn_parts o
      where o.job_id = e.parent and o.name = e.spawn and o.part = e.part for update
    ) p
  ), counted as (
    update stillwake.spawn_parts p set open = p.open - l.count,
      completed = p.completed + case when p_state = 'completed' then l.count else 0 end,
      failed = p.failed + case when p_state = 'failed' then l.count else 0 end,
      cancelled = p.cancelled + case when p_state = 'cancelled' then l.count else 0 end
    from locked l where p.job_id = l.job_id and p.name = l.name and p.part = l.part
    returning p.job_id, p.name, p.open
  )
  select array_agg(c.job_id), array_agg(c.name), array_agg(c.closed) into v_parents, v_names, v_closed from (
    select n.job_id, n.name, (count(*) filter (where n.open = 0))::integer as closed from counted n group by 1, 2
  ) c where c.closed > 0 or p_state <> 'completed';

  for v_one in select u.parent, u.name, u.closed from unnest(v_parents, v_names, v_closed) u (parent, name, closed) order by 1, 2 loop
    update stillwake.spawns s set open_parts = s.open_parts - v_one.closed, failed = s.failed or p_state <> 'completed'
    where s.job_id = v_one.parent and s.name = v_one.name and (v_one.closed > 0 or s.on_error = 'fail')
    returning * into v_spawn;
    if found and stillwake.spawn_is_over(v_spawn) then
      perform stillwake.wake_parent(v_spawn.job_id, v_spawn.name);
    end if;
  end loop;
end
$$;

-- Locks the parts that count these jobs, in the common lock order.
create or replace function stillwake.lock_parts(p_jobs uuid[]) returns void
language plpgsql as $$
begin
  perform from (
    select distinct j.parent_id, j.spawn, j.child_no / 128 as part from stillwake.live_jobs j
    where j.id = any (p_jobs) and j.parent_id is not null order by 1, 2, 3
  ) c cross join lateral (
    select from stillwake.spawn_parts p where p.job_id = c.parent_id and p.name = c.spawn and p.part = c.part for update
  ) l;
end
$$;

-- Requeues the parent at its old position, if it waits for this spawn. A running parent checks before it waits: see
-- settle_one().
create or replace function stillwake.wake_parent(p_id uuid, p_name text) returns void
language plpgsql as $$
declare
  v_pool text;
begin
  update stillwake.live_jobs j set run_at = least(j.run_at, coalesce(j.order_at, stillwake.now())), order_at = null, waiting_for = null,
    awaits = null
  where j.id = p_id and j.state = 'queued' and j.waiting_for = 'children' and j.awaits = p_name returning j.pool into v_pool;
  if found then
    perform stillwake.hint(v_pool);
    perform stillwake.hint_watchers(array[p_id]);
  end if;
end
$$;

-- Whether a job that is about to wait has something to wait for. The caller holds the job's row lock. Keeps the spawn
-- locked until the transaction ends, so that the last child finds either a parent that has already checked, or one to
-- wake.
create or replace function stillwake.must_wait(p_job uuid, p_for text, p_name text) returns boolean
language plpgsql as $$
declare
  v_spawn stillwake.spawns;
begin
  if p_for = 'event' then
    return not exists (select from stillwake.signals s where s.job_id = p_job and s.name = p_name and s.taken_by is null);
  end if;
  select * into v_spawn from stillwake.spawns s where s.job_id = p_job and s.name = p_name for update;
  return found and not stillwake.spawn_is_over(v_spawn);
end
$$;

-- The state of a spawn, for the parent that wants to join it. Raises SW005.
create or replace function stillwake.spawn_state(p_job uuid, p_epoch bigint, p_lease uuid, p_name text)
returns table (over boolean, cancelling boolean, total integer, completed integer, failed integer, cancelled integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query
  select stillwake.spawn_is_over(s), exists (select from stillwake.live_jobs j where j.id = p_job and j.cancel is not null), s.total,
    c.completed, c.failed, c.cancelled
  from stillwake.spawns s cross join lateral (
    select coalesce(sum(p.completed), 0)::integer as completed, coalesce(sum(p.failed), 0)::integer as failed,
      coalesce(sum(p.cancelled), 0)::integer as cancelled
    from stillwake.spawn_parts p where p.job_id = s.job_id and p.name = s.name
  ) c where s.job_id = p_job and s.name = p_name;
end
$$;

-- The ended children of a spawn after number p_after, in order: up to 500 of them, or about 4 MB of output. Raises
-- SW005.
create or replace function stillwake.load_children(p_job uuid, p_epoch bigint, p_lease uuid, p_name text, p_after integer default -1,
  p_limit integer default 500, p_failed boolean default false)
returns table (child_no integer, id uuid, state text, output jsonb, failure jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query
  select c.child_no, c.id, c.state, c.output, c.failure from (
    select e.*, sum(e.size) over (order by e.child_no) - e.size as before from (
      select o.child_no, o.id, o.state, o.output, coalesce(o.failure, o.cancel) as failure, coalesce(pg_column_size(o.output), 0) as size
      from stillwake.ended_jobs o
      where o.parent_id = p_job and o.spawn = p_name and o.child_no > p_after and (not p_failed or o.state <> 'completed')
      order by o.child_no limit least(greatest(coalesce(p_limit, 500), 1), 500)
    ) e
  ) c where c.before < 4194304 order by c.child_no;
end
$$;

-- The number of children of a job by state; null when it has none, or the session is bound to a tenant and the job is
-- another tenant's.
create or replace function stillwake.children(p_job uuid) returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('total', s.total, 'completed', p.completed, 'failed', p.failed, 'cancelled', p.cancelled)
  from (select sum(s.total) as total from stillwake.spawns s where s.job_id = p_job) s
  cross join (
    select coalesce(sum(p.completed), 0) as completed, coalesce(sum(p.failed), 0) as failed, coalesce(sum(p.cancelled), 0) as cancelled
    from stillwake.spawn_parts p where p.job_id = p_job
  ) p where s.total is not null and (stillwake.bound_tenant() is null
    or exists (select from stillwake.live_jobs j where j.id = p_job and j.tenant = stillwake.bound_tenant())
    or exists (select from stillwake.ended_jobs e where e.id = p_job and e.tenant = stillwake.bound_tenant()))
$$;

-- Cancels all descendants of a job. The cancellation of running ones is requested first, because leases come first in the lock order;
-- waiting ones end in bulk.
-- Locks: leases by id with their jobs; then jobs by id.
create or replace function stillwake.cancel_children(p_job uuid, p_reason text, p_by text) returns void
language plpgsql as $$
declare
  v_cancel jsonb := jsonb_strip_nulls(jsonb_build_object('at', stillwake.now(), 'by', p_by, 'reason', p_reason));
  v_id     uuid;
  v_ids    uuid[];
begin
  loop
    for v_id in select j.id from stillwake.live_jobs j where j.parent_id = p_job and j.lease_id is not null order by j.lease_id, j.id loop
      if stillwake.job_is_live(v_id) then
        perform stillwake.cancel(v_id, p_reason, p_by);
      end if;
    end loop;
    v_ids := array(select j.id from stillwake.live_jobs j where j.parent_id = p_job and j.lease_id is null order by j.id for update);
    with requested as (
      update stillwake.live_jobs j set cancel = coalesce(j.cancel, v_cancel), seq = j.seq + 1 where j.id = any (v_ids)
      returning j.id, j.seq, j.epoch
    )
    insert into stillwake.feed (job_id, seq, at, epoch, kind, data)
    select a.id, a.seq, stillwake.now(), a.epoch, 'cancel_requested', v_cancel from requested a;
    perform from (
      select array_agg(j.id) as ids, array_agg(j.epoch) as epochs from stillwake.live_jobs j where j.id = any (v_ids) having count(*) > 0
    ) j cross join lateral stillwake.end_jobs(j.ids, j.epochs, array_fill(null::uuid, array[cardinality(j.ids)]), 'cancelled', null, null);
    -- A child that was claimed in between was waiting in the first query and is running in the second.
    exit when not exists (select from stillwake.live_jobs j where j.parent_id = p_job and j.cancel is null);
  end loop;
end
$$;

-- Ended children are run again: counts them as open. Locks: their parts, their spawns.
create or replace function stillwake.reopen_children(p_parents uuid[], p_spawns text[], p_nos integer[], p_states text[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_one record;
begin
  for v_one in
    with again as materialized (
      select e.parent, e.spawn, e.no / 128 as part, count(*)::integer as count,
        (count(*) filter (where e.state = 'failed'))::integer as failed
      from unnest(p_parents, p_spawns, p_nos, p_states) e (parent, spawn, no, state) group by 1, 2, 3 order by 1, 2, 3
    ), locked as materialized (
      select p.job_id, p.name, p.part, a.count, a.failed from again a cross join lateral (
        select o.job_id, o.name, o.part from stillwake.spawn_parts o
        where o.job_id = a.parent and o.name = a.spawn and o.part = a.part for update
      ) p
    ), counted as (
      update stillwake.spawn_parts p set open = p.open + l.count, failed = p.failed - l.failed,
        cancelled = p.cancelled - (l.count - l.failed)
      from locked l where p.job_id = l.job_id and p.name = l.name and p.part = l.part
      returning p.job_id, p.name, p.open = l.count as opened
    )
    select c.job_id, c.name, (count(*) filter (where c.opened))::integer as opened from counted c group by 1, 2 order by 1, 2
  loop
    -- A failing child updates this row too: only under its lock is it certain that no other part has a failed child.
    perform from stillwake.spawns s where s.job_id = v_one.job_id and s.name = v_one.name for update;
    update stillwake.spawns s set open_parts = s.open_parts + v_one.opened,
      failed = s.failed and exists (select from stillwake.spawn_parts p
        where p.job_id = s.job_id and p.name = s.name and p.failed + p.cancelled > 0)
    where s.job_id = v_one.job_id and s.name = v_one.name and (v_one.opened > 0 or s.failed);
  end loop;
end
$$;

-- A job restarts from the beginning: its children are cancelled and detached, and its signals can be taken again.
create or replace function stillwake.detach_children(p_job uuid) returns void
language plpgsql as $$
begin
  if exists (select from stillwake.spawns s where s.job_id = p_job) then
    perform stillwake.cancel_children(p_job, 'The job that spawned it was started again', 'stillwake');
    update stillwake.live_jobs j set parent_id = null, spawn = null, child_no = null where j.parent_id = p_job;
    update stillwake.ended_jobs e set parent_id = null, spawn = null, child_no = null where e.parent_id = p_job;
    delete from stillwake.spawn_parts p where p.job_id = p_job;
    delete from stillwake.spawns s where s.job_id = p_job;
  end if;
  update stillwake.signals s set taken_by = null where s.job_id = p_job and s.taken_by <> '';
end
$$;
