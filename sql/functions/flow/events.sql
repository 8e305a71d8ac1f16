-- Events: a job waits for a signal from outside, for days if necessary, without using a slot. Signals sent before the
-- job waits are kept; each signal is taken once.

-- Sends a signal to a job. p_id identifies the signal: repeating a call with the same id sends it once. Returns the
-- state of the job.
-- Locks: lease, job. Raises SW001, SW004, SW006.
create or replace function stillwake.signal(p_job uuid, p_name text, p_data jsonb default null, p_by text default null,
  p_id uuid default gen_random_uuid()) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_job   stillwake.live_jobs;
  v_ended text;
begin
  if coalesce(length(p_name), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'An event needs a name of 1 to 200 characters', 'event', 'Use the name the job waits for.');
  elsif pg_column_size(p_data) > 65536 and octet_length(p_data::text) > 262144 and stillwake.compact_size(p_data) > 262144 then
    perform stillwake.refuse('SW001', 'The data of an event is larger than the limit of 262144 bytes', 'data',
      'Store it elsewhere and send a reference.');
  end if;
  v_job := stillwake.lock_job(p_job);
  if v_job.id is null then
    select e.state into v_ended from stillwake.ended_jobs e where e.id = p_job;
    if not found then
      perform stillwake.refuse_unknown_job(p_job);
    end if;
    perform stillwake.refuse('SW006', format('Job %s has ended (%s) and takes no signals', p_job, v_ended), 'id',
      'Send it before the job ends, or run a failed or cancelled job again with retry first.');
  elsif exists (select from stillwake.signals s where s.job_id = p_job and s.id = p_id) then
    return v_job.state;
  end if;
  perform stillwake.add_event(p_job, 'signalled', jsonb_strip_nulls(jsonb_build_object('event', p_name, 'by', p_by)));
  insert into stillwake.signals (job_id, id, seq, name, data, at, by)
  values (p_job, p_id, v_job.seq + 1, p_name, p_data, stillwake.now(), p_by);
  if v_job.state = 'queued' and v_job.waiting_for = 'event' and v_job.awaits = p_name then
    update stillwake.live_jobs j set run_at = least(j.run_at, coalesce(j.order_at, stillwake.now())), order_at = null, waiting_for = null,
      awaits = null where j.id = p_job;
    perform stillwake.hint(v_job.pool);
  end if;
  return v_job.state;
end
$$;

-- The state of a step that waits for an event. The first call fixes the end of the wait. Returns one of
--   kept (the step has its result: data), there (a signal: id and data; to be taken or refused),
--   waiting (until; null for ever), timeout.
-- Whether the wait has timed out is decided here, once, and saved. Raises SW005.
create or replace function stillwake.find_signal(p_job uuid, p_epoch bigint, p_lease uuid, p_name text, p_step text,
  p_timeout interval default null)
returns table (answer text, id uuid, data jsonb, until timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz;
  v_output jsonb;
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  -- Under the lease lock, so that a later write has a later time: followers read steps by it.
  v_now := stillwake.now();
  insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
  values (p_job, p_step, p_epoch, v_now, v_now, jsonb_build_object('$stillwake', jsonb_build_array('wait', v_now + p_timeout)))
  on conflict do nothing;
  select c.output into v_output from stillwake.checkpoints c where c.job_id = p_job and c.step = p_step;
  if v_output #>> '{$stillwake,0}' is distinct from 'wait' then
    return query select 'kept', null::uuid, v_output, null::timestamptz;
    return;
  end if;
  return query select 'there', s.id, s.data, null::timestamptz from stillwake.signals s
  where s.job_id = p_job and s.name = p_name and s.taken_by is null order by s.seq limit 1;
  if found then
    return;
  end if;
  until := (v_output #>> '{$stillwake,1}')::timestamptz;
  answer := case when until <= v_now then 'timeout' else 'waiting' end;
  if until <= v_now then
    update stillwake.checkpoints c set output = '{"$stillwake": ["timeout"]}', epoch = p_epoch, saved_at = v_now
    where c.job_id = p_job and c.step = p_step;
    perform stillwake.hint_watchers(array[p_job]);
  end if;
  return next;
end
$$;

-- The step takes a signal, which becomes its result; or refuses it because its data is invalid, and continues to wait.
-- Returns 'taken', 'refused', 'gone' when another step took it first, or 'kept' when the step already has its result.
-- Raises SW005.
create or replace function stillwake.take_signal(p_job uuid, p_epoch bigint, p_lease uuid, p_step text, p_id uuid, p_output jsonb,
  p_accepted boolean default true) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  if not exists (select from stillwake.checkpoints c
    where c.job_id = p_job and c.step = p_step and c.output #>> '{$stillwake,0}' = 'wait') then
    return 'kept';
  end if;
  update stillwake.signals s set taken_by = case when p_accepted then p_step else '' end
  where s.job_id = p_job and s.id = p_id and s.taken_by is null;
  if not found and p_accepted then
    return 'gone';
  elsif not p_accepted then
    return 'refused';
  end if;
  -- Under the lease lock: followers read steps by this time.
  update stillwake.checkpoints c set output = p_output, epoch = p_epoch, saved_at = stillwake.now()
  where c.job_id = p_job and c.step = p_step;
  perform stillwake.hint_watchers(array[p_job]);
  return 'taken';
end
$$;
