-- Checkpoints: results of steps, positions in lists of items, and artifact records. Every write is fenced (see
-- lease.sql).

-- Saves the results of steps, one per array element. An existing result is never overwritten; the record that an optional
-- step failed is, by a result, because new code may need that step. Returns one row each: 'saved', 'kept' (it existed) or
-- 'lost' (refused by the fence). p_lines: log lines of these jobs that were written before, as for append_logs(). They are
-- stored in the same transaction, so that a checkpoint never exists without the lines of its step. p_fenced: the caller
-- has locked the lease.
-- Locks: leases by id; with lines, then jobs by id. Raises SW001.
-- The SET clauses pin the plan: one primary key lookup per step, planned once per session.
create or replace function stillwake.save_checkpoints(
  p_jobs uuid[], p_epochs bigint[], p_leases uuid[], p_steps text[], p_outputs jsonb[], p_took_ms bigint[], p_lines jsonb default null,
  p_fenced boolean default false
) returns table (job_id uuid, step text, result text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now  timestamptz;
  v_held boolean[];
begin
  if exists (select from unnest(p_jobs, p_steps) c (job, step) where coalesce(length(c.step), 0) not between 1 and 200) then
    perform stillwake.refuse('SW001', 'A step needs a name of 1 to 200 characters', 'step', 'Use a shorter name.');
  end if;
  if exists (select from unnest(p_outputs) o
    where pg_column_size(o) > 262144 and octet_length(o::text) > 1048576 and stillwake.compact_size(o) > 1048576) then
    perform stillwake.refuse('SW001', 'The output of a step is larger than the limit of 1048576 bytes', 'output',
      'Store it as an artifact and keep a reference.');
  end if;
  if not p_fenced then
    perform from stillwake.leases l where l.id = any (p_leases) order by l.id for no key update;
  end if;
  if p_lines is not null then
    perform stillwake.append_logs(p_lines);
  end if;
  v_now := stillwake.now();
  v_held := array(
    select exists (select from stillwake.live_jobs j where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)
    from unnest(p_jobs, p_epochs, p_leases) with ordinality as c (job, epoch, lease, n) order by c.n);
  begin
    insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output, failed)
    select c.job, c.step, c.epoch, v_now - c.took_ms * interval '1 millisecond', v_now, c.output,
      case when c.output #>> '{$stillwake,0}' = 'failed' then true end
    from unnest(p_jobs, p_epochs, p_steps, p_outputs, p_took_ms, v_held) as c (job, epoch, step, output, took_ms, held)
    where c.held order by c.job, c.step;
    perform stillwake.hint_watchers(p_jobs);
    return query
    select c.job, c.step, case when c.held then 'saved' else 'lost' end from unnest(p_jobs, p_steps, v_held) as c (job, step, held);
    return;
  exception when unique_violation then
    -- Rare: a call is repeated after its response was lost. ON CONFLICT in every call would double its cost.
    null;
  end;
  perform stillwake.hint_watchers(p_jobs);
  return query
  with saved as (
    insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output, failed)
    -- DO UPDATE refuses two rows of one step.
    select distinct on (c.job, c.step) c.job, c.step, c.epoch, v_now - c.took_ms * interval '1 millisecond', v_now, c.output,
      case when c.output #>> '{$stillwake,0}' = 'failed' then true end
    from unnest(p_jobs, p_epochs, p_steps, p_outputs, p_took_ms, v_held) with ordinality as c (job, epoch, step, output, took_ms, held, n)
    where c.held order by c.job, c.step, c.n
    on conflict on constraint checkpoints_pkey do update
    set epoch = excluded.epoch, started_at = excluded.started_at, saved_at = excluded.saved_at, output = excluded.output, failed = null
    where checkpoints.failed and excluded.failed is null
    returning checkpoints.job_id, checkpoints.step
  )
  select c.job, c.step, case when not c.held then 'lost' when s.step is not null then 'saved' else 'kept' end
  from unnest(p_jobs, p_steps, v_held) as c (job, step, held) left join saved s on s.job_id = c.job and s.step = c.step;
end
$$;

-- The same from JSON. Each element: job, epoch, lease, step, output, took_ms.
create or replace function stillwake.save_checkpoints(p_checkpoints jsonb) returns table (job_id uuid, step text, result text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if jsonb_typeof(p_checkpoints) is distinct from 'array' then
    perform stillwake.refuse('SW001', 'checkpoints must be a JSON array', 'checkpoints',
      'Pass one object per step: job, epoch, lease, step, output.');
  end if;
  return query
  select s.* from (
    select array_agg(c.job) as jobs, array_agg(c.epoch) as epochs, array_agg(c.lease) as leases, array_agg(c.step) as steps,
      array_agg(c.output) as outputs, array_agg(c.took_ms) as took
    from jsonb_to_recordset(p_checkpoints) as c (job uuid, epoch bigint, lease uuid, step text, output jsonb, took_ms bigint)
  ) c cross join lateral stillwake.save_checkpoints(c.jobs, c.epochs, c.leases, c.steps, c.outputs, c.took) s;
end
$$;

-- Saves one step of one job inside the user's transaction: its rows and the checkpoint commit together. Call it last,
-- because the lease's row stays locked until the transaction ends: one that is then idle for five seconds is terminated
-- by Postgres. Raises SW006 when the step was saved before, so that its work is not done twice. Raises SW005, SW001;
-- 40001 as fence_transaction().
create or replace function stillwake.save_checkpoint(p_job uuid, p_epoch bigint, p_lease uuid, p_step text, p_output jsonb default null,
  p_took_ms bigint default null)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_result text;
begin
  perform stillwake.fence_transaction(p_job, p_epoch, p_lease);
  select s.result into v_result from stillwake.save_checkpoints(array[p_job], array[p_epoch], array[p_lease], array[p_step],
    array[p_output], array[p_took_ms], p_fenced => true) s;
  perform set_config('idle_in_transaction_session_timeout', '5s', true);
  if v_result = 'kept' then
    perform stillwake.refuse('SW006', format('Step "%s" of job %s already has a checkpoint', p_step, p_job), 'step',
      'Roll back; its result is among the checkpoints.');
  end if;
  return v_result;
end
$$;

-- Moves a job that was started by an older version of the code to p_version: with its checkpoints, or without them.
-- Raises SW005.
create or replace function stillwake.adopt(p_job uuid, p_epoch bigint, p_lease uuid, p_version integer, p_restart boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_from integer;
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  select version into v_from from stillwake.live_jobs where id = p_job for update;
  if v_from is not distinct from p_version then
    return;
  end if;
  update stillwake.live_jobs set version = p_version where id = p_job;
  if p_restart then
    delete from stillwake.checkpoints where job_id = p_job;
    delete from stillwake.artifacts where job_id = p_job;
    perform stillwake.detach_children(p_job);
  end if;
  perform stillwake.add_event(p_job, case when p_restart then 'restarted' else 'adopted' end,
    jsonb_build_object('from', v_from, 'to', p_version));
end
$$;

-- Records an artifact that is complete in its store: written last, so that the row proves it. Raises SW005.
create or replace function stillwake.save_artifact(
  p_job uuid, p_epoch bigint, p_lease uuid, p_name text, p_size bigint, p_sha256 text, p_content_type text, p_key text
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  insert into stillwake.artifacts (job_id, name, epoch, size, sha256, content_type, key, saved_at)
  values (p_job, p_name, p_epoch, p_size, p_sha256, p_content_type, p_key, stillwake.now())
  on conflict (job_id, name) do update set epoch = excluded.epoch, size = excluded.size, sha256 = excluded.sha256,
    content_type = excluded.content_type, key = excluded.key, saved_at = excluded.saved_at
  where artifacts.sha256 <> excluded.sha256 or artifacts.key <> excluded.key;
end
$$;

-- The artifacts of a job, for its attempt. Raises SW005.
create or replace function stillwake.load_artifacts(p_job uuid, p_epoch bigint, p_lease uuid) returns setof stillwake.artifacts
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query select * from stillwake.artifacts a where a.job_id = p_job order by a.name;
end
$$;

-- The saved steps of a job, for the attempt that resumes it; the value of a list of items is added to its position.
-- Raises SW005.
create or replace function stillwake.load_checkpoints(p_job uuid, p_epoch bigint, p_lease uuid)
returns table (step text, output jsonb, epoch bigint, saved_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query
  select c.step, case when c.value is null then c.output else jsonb_set(c.output, '{$stillwake,1,value}', c.value) end, c.epoch, c.saved_at
  from stillwake.checkpoints c where c.job_id = p_job order by c.saved_at, c.step;
end
$$;

-- The position of a job in a long list of items that it processes in batches: one checkpoint that grows. Its output
-- contains the finished items, as ranges of their numbers (several when batches run concurrently), and the cursor of the
-- last item before each gap. Its value is what the caller reduces the results of the finished batches to, in a separate
-- column, so that readers of positions do not load it.
--
-- Items p_from to p_to, p_to excluded, are done; with p_over there are no more. p_last: the cursor that finds the last
-- of them again. p_value: the value with these items included, null for no change. Position and value change together
-- or not at all. In the user's transaction they commit together with the rows of the batch. Returns 'saved', or 'kept'
-- when these items were done before: then roll back, so that the batch does not count twice, and read the stored value.
-- Locks: the lease, the checkpoint. Raises SW001, SW005.
create or replace function stillwake.save_position(
  p_job uuid, p_epoch bigint, p_lease uuid, p_step text, p_from bigint, p_to bigint, p_last jsonb default null,
  p_over boolean default false, p_value jsonb default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz;
  v_position jsonb;
  v_done  int8multirange;
  v_lasts jsonb;
begin
  if coalesce(length(p_step), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A list of items needs a name of 1 to 200 characters', 'step', 'Use a shorter name.');
  elsif p_from is null or p_to is null or p_from < 0 or p_to < p_from then
    perform stillwake.refuse('SW001', format('Items %s to %s are not a valid batch', p_from, p_to), 'from',
      'Count from 0; the end is not included.');
  elsif octet_length(p_last::text) > 16384 then
    perform stillwake.refuse('SW001', 'The cursor of the last item is larger than the limit of 16384 bytes', 'cursor',
      'Keep an id or a few columns.');
  elsif pg_column_size(p_value) > 262144 and octet_length(p_value::text) > 1048576 and stillwake.compact_size(p_value) > 1048576 then
    perform stillwake.refuse('SW001', 'The value of a list of items is larger than the limit of 1048576 bytes', 'value',
      'Keep totals, and store the rest as an artifact or in a table.');
  end if;
  perform stillwake.fence_transaction(p_job, p_epoch, p_lease);
  v_now := stillwake.now();
  insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
  values (p_job, p_step, p_epoch, v_now, v_now, '{"$stillwake": ["position", {"done": "{}", "lasts": {}}]}') on conflict do nothing;
  select c.output #> '{$stillwake,1}' into v_position from stillwake.checkpoints c
  where c.job_id = p_job and c.step = p_step and c.output #>> '{$stillwake,0}' = 'position' for update;
  if not found then
    perform stillwake.refuse('SW001', format('Step "%s" of job %s is not a list of items', p_step, p_job), 'step',
      'Give the list a unique name.');
  end if;
  v_done := (v_position ->> 'done')::int8multirange;
  if (v_position -> 'over')::boolean or p_to > p_from and v_done && int8range(p_from, p_to) then
    return 'kept';
  end if;
  v_done := v_done + int8multirange(int8range(p_from, p_to));
  v_lasts := v_position -> 'lasts' || case when p_last is not null then jsonb_build_object(p_to::text, p_last) else '{}' end;
  -- Only the last item of a range can become the last one before the first gap.
  v_lasts := coalesce((select jsonb_object_agg(l.key, l.value) from jsonb_each(v_lasts) l
    where l.key::bigint in (select upper(r) from unnest(v_done) r)), '{}');
  update stillwake.checkpoints c set epoch = p_epoch, saved_at = v_now,
    value = coalesce(p_value, c.value),
    output = jsonb_build_object('$stillwake',
      jsonb_build_array('position', jsonb_build_object('done', v_done::text, 'lasts', v_lasts) || case when p_over then '{"over": true}'
      else '{}'::jsonb end))
  where c.job_id = p_job and c.step = p_step;
  -- Followers see a list as a step once it is finished.
  if p_over then
    perform stillwake.hint_watchers(array[p_job]);
  end if;
  return 'saved';
end
$$;
