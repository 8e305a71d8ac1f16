-- What an attempt leaves behind while it runs: checkpoints, log lines, progress. Every write is fenced (see lease.sql), every verb takes
-- many jobs at once so that a keeper shares one commit among its slots.

-- Keeps the results of steps, one per place in the arrays. A step that is kept already stays as it is. Answers one row each: 'saved', 'kept'
-- (was there) or 'lost' (refused by the fence). Locks: leases by id. Raises SW001.
-- The SET clauses pin the plan: one look-up by primary key per step, planned once per session.
create or replace function stillwake.save_checkpoints(
  p_jobs uuid[], p_epochs bigint[], p_leases uuid[], p_steps text[], p_outputs jsonb[], p_took_ms bigint[]
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
  if exists (select from unnest(p_outputs) o where pg_column_size(o) > 262144 and octet_length(o::text) > 1048576 and stillwake.compact_size(o) > 1048576) then
    perform stillwake.refuse('SW001', 'The output of a step is larger than the limit of 1048576 bytes', 'output', 'Store it as an artifact and keep a reference.');
  end if;
  perform from stillwake.leases l where l.id = any (p_leases) order by l.id for no key update;
  v_now := stillwake.now();
  v_held := array(
    select exists (select from stillwake.live_jobs j where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)
    from unnest(p_jobs, p_epochs, p_leases) with ordinality as c (job, epoch, lease, n) order by c.n);
  begin
    insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
    select c.job, c.step, c.epoch, v_now - c.took_ms * interval '1 millisecond', v_now, c.output
    from unnest(p_jobs, p_epochs, p_steps, p_outputs, p_took_ms, v_held) as c (job, epoch, step, output, took_ms, held)
    where c.held order by c.job, c.step;
    perform stillwake.hint_watchers(p_jobs);
    return query
    select c.job, c.step, case when c.held then 'saved' else 'lost' end from unnest(p_jobs, p_steps, v_held) as c (job, step, held);
    return;
  exception when unique_violation then
    -- Seldom: a call is repeated after its answer was lost. ON CONFLICT for all would cost as much as the rest together.
    null;
  end;
  perform stillwake.hint_watchers(p_jobs);
  return query
  with saved as (
    insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
    select c.job, c.step, c.epoch, v_now - c.took_ms * interval '1 millisecond', v_now, c.output
    from unnest(p_jobs, p_epochs, p_steps, p_outputs, p_took_ms, v_held) as c (job, epoch, step, output, took_ms, held)
    where c.held order by c.job, c.step
    on conflict do nothing
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
    perform stillwake.refuse('SW001', 'checkpoints must be a JSON array', 'checkpoints', 'Pass one object per step: job, epoch, lease, step, output.');
  end if;
  return query
  select s.* from (
    select array_agg(c.job) as jobs, array_agg(c.epoch) as epochs, array_agg(c.lease) as leases, array_agg(c.step) as steps,
      array_agg(c.output) as outputs, array_agg(c.took_ms) as took
    from jsonb_to_recordset(p_checkpoints) as c (job uuid, epoch bigint, lease uuid, step text, output jsonb, took_ms bigint)
  ) c cross join lateral stillwake.save_checkpoints(c.jobs, c.epochs, c.leases, c.steps, c.outputs, c.took) s;
end
$$;

-- One step of one job, inside a transaction of the user's own: its rows and the checkpoint commit together. To be called last, because
-- the lease's row stays locked until that transaction ends: one that then lies idle for five seconds is ended by the server. A step that is kept already means that the work was done before: raises SW006,
-- so that it is not done twice. Raises SW005, SW001.
create or replace function stillwake.save_checkpoint(p_job uuid, p_epoch bigint, p_lease uuid, p_step text, p_output jsonb default null, p_took_ms bigint default null)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_result text := (select s.result from stillwake.save_checkpoints(jsonb_build_array(
    jsonb_build_object('job', p_job, 'epoch', p_epoch, 'lease', p_lease, 'step', p_step, 'output', p_output, 'took_ms', p_took_ms))) s);
begin
  if v_result = 'lost' then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  perform set_config('idle_in_transaction_session_timeout', '5s', true);
  if v_result = 'kept' then
    perform stillwake.refuse('SW006', format('Step "%s" of job %s is kept already', p_step, p_job), 'step', 'Roll back; its result is among the checkpoints.');
  end if;
  return v_result;
end
$$;

-- A job begun under an older version of the code is taken over by p_version: with its checkpoints, or without them. Raises SW005.
create or replace function stillwake.adopt(p_job uuid, p_epoch bigint, p_lease uuid, p_version integer, p_restart boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_from integer;
begin
  if not stillwake.holds(p_job, p_epoch, p_lease) then
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
    perform stillwake.forget_children(p_job);
  end if;
  perform stillwake.add_event(p_job, case when p_restart then 'restarted' else 'adopted' end, jsonb_build_object('from', v_from, 'to', p_version));
end
$$;

-- The row of an artifact that is whole in its store: written last, and so the proof that it is there. Raises SW005.
create or replace function stillwake.save_artifact(
  p_job uuid, p_epoch bigint, p_lease uuid, p_name text, p_size bigint, p_sha256 text, p_content_type text, p_key text
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  insert into stillwake.artifacts (job_id, name, epoch, size, sha256, content_type, key, saved_at)
  values (p_job, p_name, p_epoch, p_size, p_sha256, p_content_type, p_key, stillwake.now())
  on conflict (job_id, name) do update set epoch = excluded.epoch, size = excluded.size, sha256 = excluded.sha256,
    content_type = excluded.content_type, key = excluded.key, saved_at = excluded.saved_at
  where artifacts.sha256 <> excluded.sha256 or artifacts.key <> excluded.key;
end
$$;

-- What an attempt finds of the artifacts of its job. Raises SW005.
create or replace function stillwake.load_artifacts(p_job uuid, p_epoch bigint, p_lease uuid) returns setof stillwake.artifacts
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query select * from stillwake.artifacts a where a.job_id = p_job order by a.name;
end
$$;

-- The kept results of a job, for the attempt that goes on with it. Raises SW005.
create or replace function stillwake.load_checkpoints(p_job uuid, p_epoch bigint, p_lease uuid)
returns table (step text, output jsonb, epoch bigint, saved_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  return query select c.step, c.output, c.epoch, c.saved_at from stillwake.checkpoints c where c.job_id = p_job order by c.saved_at, c.step;
end
$$;

-- Appends lines for people. Each element: job, epoch, lease, lines: [{ level, message, step, data, ago_ms }], and optionally progress (as in
-- progress()) and batch, a number that grows with each batch of the attempt: one sent again after a lost answer is not written again.
-- Sequence numbers are taken under the job's row, so they are without gaps and a reader sees them in order of commit. Answers the last
-- number per job, null where refused.
-- A message is cut at 16384 characters; of data larger than 16384 bytes only the size is kept. Locks: leases by id, shared; then jobs by id.
-- Raises SW001.
create or replace function stillwake.append_logs(p_batches jsonb) returns table (job_id uuid, last_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_batch record;
  v_now   timestamptz;
  v_jobs  uuid[] := '{}';
begin
  if jsonb_typeof(p_batches) is distinct from 'array' then
    perform stillwake.refuse('SW001', 'batches must be a JSON array', 'batches', 'Pass one object per job: job, epoch, lease, lines.');
  elsif exists (select from jsonb_array_elements(p_batches) b where jsonb_typeof(b -> 'lines') is distinct from 'array') then
    perform stillwake.refuse('SW001', 'lines must be a JSON array', 'lines', 'Pass one object per line: level, message, step, data, ago_ms.');
  end if;
  if exists (select from jsonb_array_elements(p_batches) b, jsonb_array_elements(b -> 'lines') l
    where coalesce(l ->> 'level', 'info') not in ('info', 'success', 'warning', 'error') or jsonb_typeof(l -> 'message') is distinct from 'string') then
    perform stillwake.refuse('SW001', 'A log line needs a message and a level', 'lines', 'Levels: info, success, warning, error.');
  end if;
  perform from stillwake.leases l
  where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id for no key update;
  v_now := stillwake.now();
  for v_batch in
    select * from jsonb_to_recordset(p_batches) as b (job uuid, epoch bigint, lease uuid, lines jsonb, batch bigint, progress jsonb) order by b.job
  loop
    job_id := v_batch.job;
    select j.seq into last_seq from stillwake.live_jobs j
    where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease and j.log_batch >= v_batch.batch;
    if found then
      return next;
      continue;
    end if;
    update stillwake.live_jobs j set seq = j.seq + jsonb_array_length(v_batch.lines), log_batch = coalesce(v_batch.batch, j.log_batch),
      progress = coalesce(nullif(v_batch.progress, 'null') || jsonb_build_object('at', v_now), j.progress)
    where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease
    returning j.seq into last_seq;
    insert into stillwake.feed (job_id, seq, at, epoch, kind, level, step, message, data)
    select v_batch.job, last_seq - jsonb_array_length(v_batch.lines) + l.n, v_now - coalesce((l.line ->> 'ago_ms')::bigint, 0) * interval '1 millisecond', v_batch.epoch,
      'log', coalesce(l.line ->> 'level', 'info'), left(l.line ->> 'step', 200), left(l.line ->> 'message', 16384),
      case when octet_length((l.line -> 'data')::text) > 16384
        then jsonb_build_object('dropped', 'larger than 16384 bytes', 'bytes', octet_length((l.line -> 'data')::text)) else l.line -> 'data' end
    from jsonb_array_elements(v_batch.lines) with ordinality as l (line, n)
    where last_seq is not null;
    v_jobs := v_jobs || v_batch.job;
    return next;
  end loop;
  perform stillwake.hint_watchers(v_jobs);
end
$$;

-- How far a job is: fraction from 0 to 1, or done and total, and a sentence. Raises SW005.
create or replace function stillwake.progress(p_job uuid, p_epoch bigint, p_lease uuid, p_progress jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.check_options(p_progress, array['fraction', 'done', 'total', 'sentence']);
  perform from stillwake.leases where id = p_lease for no key update;
  update stillwake.live_jobs set progress = p_progress || jsonb_build_object('at', stillwake.now())
  where id = p_job and epoch = p_epoch and lease_id = p_lease;
  if not found then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  perform stillwake.hint_watchers(array[p_job]);
end
$$;

-- A state change in a job's feed. The caller has locked the job's row.
create or replace function stillwake.add_event(p_job uuid, p_kind text, p_data jsonb) returns void
language plpgsql as $$
declare
  v_seq   bigint;
  v_epoch bigint;
begin
  update stillwake.live_jobs set seq = seq + 1 where id = p_job returning seq, epoch into v_seq, v_epoch;
  insert into stillwake.feed (job_id, seq, at, epoch, kind, data) values (p_job, v_seq, stillwake.now(), v_epoch, p_kind, p_data);
  perform stillwake.hint_watchers(array[p_job]);
end
$$;
