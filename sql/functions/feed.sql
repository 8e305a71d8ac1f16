-- What an attempt leaves behind while it runs: checkpoints, log lines, progress. Every write is fenced (see lease.sql), every verb takes
-- many jobs at once so that a keeper shares one commit among its slots.

-- Keeps the results of steps. Each element: job, epoch, lease, step, output, took_ms. A step that is kept already stays as it is.
-- Answers one row per element: 'saved', 'kept' (was there) or 'lost' (refused by the fence). Locks: leases by id.
create or replace function stillwake.save_checkpoints(p_checkpoints jsonb) returns table (job_id uuid, step text, result text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz;
begin
  if jsonb_typeof(p_checkpoints) is distinct from 'array' then
    perform stillwake.refuse('SW001', 'checkpoints must be a JSON array', 'checkpoints', 'Pass one object per step: job, epoch, lease, step, output.');
  end if;
  if exists (select from jsonb_array_elements(p_checkpoints) c where coalesce(length(c ->> 'step'), 0) not between 1 and 200) then
    perform stillwake.refuse('SW001', 'A step needs a name of 1 to 200 characters', 'step', 'Use a shorter name.');
  end if;
  if exists (select from jsonb_array_elements(p_checkpoints) c where pg_column_size(c) > 262144 and octet_length((c -> 'output')::text) > 1048576
    and stillwake.compact_size(c -> 'output') > 1048576) then
    perform stillwake.refuse('SW001', 'The output of a step is larger than the limit of 1048576 bytes', 'output', 'Store it as an artifact and keep a reference.');
  end if;
  perform from stillwake.leases l
  where l.id in (select (c ->> 'lease')::uuid from jsonb_array_elements(p_checkpoints) c) order by l.id for no key update;
  v_now := stillwake.now();
  return query
  with asked as (
    select c.*, exists (select from stillwake.live_jobs j where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease) as held
    from jsonb_to_recordset(p_checkpoints) as c (job uuid, epoch bigint, lease uuid, step text, output jsonb, took_ms bigint)
  ), saved as (
    insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
    select a.job, a.step, a.epoch, v_now - a.took_ms * interval '1 millisecond', v_now, a.output from asked a where a.held order by a.job, a.step
    on conflict do nothing
    returning checkpoints.job_id, checkpoints.step
  )
  select a.job, a.step, case when not a.held then 'lost' when s.step is not null then 'saved' else 'kept' end
  from asked a left join saved s on s.job_id = a.job and s.step = a.step;
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

-- Appends lines for people. Each element: job, epoch, lease, lines: [{ level, message, step, data, ago_ms }]. Sequence numbers are taken under
-- the job's row, so they are without gaps and a reader sees them in order of commit. Answers the last number per job, null where refused.
-- A message is cut at 16384 characters; of data larger than 16384 bytes only the size is kept. Locks: leases by id, shared; then jobs by id.
-- Raises SW001.
create or replace function stillwake.append_logs(p_batches jsonb) returns table (job_id uuid, last_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_batch record;
  v_now   timestamptz;
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
    select * from jsonb_to_recordset(p_batches) as b (job uuid, epoch bigint, lease uuid, lines jsonb) order by b.job
  loop
    job_id := v_batch.job;
    update stillwake.live_jobs j set seq = j.seq + jsonb_array_length(v_batch.lines)
    where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease
    returning j.seq into last_seq;
    insert into stillwake.feed (job_id, seq, at, epoch, kind, level, step, message, data)
    select v_batch.job, last_seq - jsonb_array_length(v_batch.lines) + l.n, v_now - coalesce((l.line ->> 'ago_ms')::bigint, 0) * interval '1 millisecond', v_batch.epoch,
      'log', coalesce(l.line ->> 'level', 'info'), left(l.line ->> 'step', 200), left(l.line ->> 'message', 16384),
      case when octet_length((l.line -> 'data')::text) > 16384
        then jsonb_build_object('dropped', 'larger than 16384 bytes', 'bytes', octet_length((l.line -> 'data')::text)) else l.line -> 'data' end
    from jsonb_array_elements(v_batch.lines) with ordinality as l (line, n)
    where last_seq is not null;
    return next;
  end loop;
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
end
$$;
