-- The watchdog: looks after the jobs, and does the housekeeping. While a worker, a server or an orchestrator is at work, it
-- does both by itself; watchdog() is for the time when none runs: call it from pg_cron, a scheduler or by hand.

-- Looks after the jobs, see tend_jobs(), and does the housekeeping, see housekeep(), within one transaction: at least one
-- portion of each task, and more for two seconds, or for a quarter of the statement_timeout of the session. The rest
-- is for the next call. Returns what it did, and what it skipped and why.
create or replace function stillwake.watchdog() returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_limit_ms double precision;
  v_complete boolean := true;
  v_task     text;
  v_done     bigint;
  v_notes    text[];
  v_portion  record;
begin
  return query select t.act, t.count, t.note from stillwake.tend_jobs() t;
  select stillwake.statement_ms() + least(2000, nullif(s.setting::bigint, 0) / 4) into v_limit_ms
  from pg_settings s where s.name = 'statement_timeout';
  foreach v_task in array stillwake.housekeeping_tasks() loop
    -- The locks of partitions are held until commit: a quarter of a second for these.
    if v_task = 'partitions' then
      v_limit_ms := least(v_limit_ms, stillwake.statement_ms() + 250);
    end if;
    count := 0;
    v_notes := '{}';
    loop
      v_done := 0;
      for v_portion in select h.act, h.count, h.note from stillwake.housekeep(v_task) h loop
        v_done := v_done + v_portion.count;
        act := v_portion.act;
        count := count + v_portion.count;
        note := v_portion.note;
        if v_portion.act = 'dropped' and v_portion.count > 0 then
          v_notes := v_notes || v_portion.note;
        end if;
      end loop;
      exit when v_done = 0 or stillwake.statement_ms() > v_limit_ms;
    end loop;
    v_complete := v_complete and v_done = 0;
    if act is not null then
      note := coalesce(nullif(array_to_string(v_notes, ', '), ''), note);
      return next;
    end if;
  end loop;
  if v_complete then
    perform stillwake.housekeeping_done();
  end if;
end
$$;

-- Creates the jobs of due schedules, recovers jobs of dead workers, ends expired jobs, completes jobs without
-- remaining work, admits jobs to free keys, lets breakers probe, and checks budgets: for all pools, also those without
-- a worker. With p_every it does nothing if that was done less than p_every ago, or another session is at it. p_held: as
-- p_except of recover(); null to recover none. Returns what it did, and what it skipped and why.
create or replace function stillwake.tend_jobs(p_every interval default null, p_held uuid[] default '{null}')
returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_every is not null then
    perform from stillwake.housekeeping h where h.tended_at <= stillwake.now() - p_every or h.tended_at > stillwake.now()
    for update skip locked;
    if not found then
      return;
    end if;
    update stillwake.housekeeping set tended_at = stillwake.now();
  end if;
  -- First, because a schedule's row is locked before leases and jobs.
  for act, count, note in
    select r.act, sum(r.count)::bigint, format('schedule %s: %s%s', r.schedule, max(r.occurrence), coalesce(', ' || max(r.note), ''))
    from stillwake.run_schedules(1000) r
    group by r.schedule, r.act order by r.schedule
  loop
    return next;
  end loop;
  act := 'recovered';
  count := case when p_held is null then 0 else stillwake.recover(p_limit => 1000, p_except => p_held) end;
  note := 'jobs of workers without a heartbeat';
  return next;
  act := 'expired';
  count := stillwake.expire(1000);
  note := 'jobs that no worker started in time';
  return next;
  act := 'completed';
  count := stillwake.complete_by_progress(1000);
  note := 'jobs that had nothing left to do';
  return next;
  for act, count, note in
    select 'admitted', f.admitted, format('to key %s of %s', f.key, f.pipeline) from stillwake.fill_free_keys() f where f.admitted > 0
  loop
    return next;
  end loop;
  perform stillwake.check_free_keys(f.pool, 1000, stillwake.now())
  from (select distinct pool from stillwake.free_keys where check_at <= stillwake.now()) f;
  for act, count, note in
    select 'skipped', f.waiting, format('waiting for key %s of %s, held by job %s (%s)', f.key, f.pipeline, f.holder, f.holder_state)
    from stillwake.keys_in_demand(20) f
    union all
    select 'skipped', 1, format('%s is open until %s: %s', b.name, case when b.resume_at = 'infinity' then 'it is closed by hand'
      else to_char(b.resume_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end,
      stillwake.breaker_reason(b)) from stillwake.breakers b where b.resume_at > stillwake.now()
  loop
    return next;
  end loop;
  for act, count, note in
    select 'resumed', 1, format('%s may be probed', b.name) from stillwake.breakers b
    where b.resume_at <= stillwake.now() and not stillwake.is_probing(b)
  loop
    return next;
  end loop;
  perform stillwake.hint_dependents('breakers', b.name) from stillwake.breakers b where b.resume_at <= stillwake.now();
  act := 'relaned';
  count := coalesce((select sum(stillwake.relane(p.name, 10000)) from stillwake.pools p where p.relane_until is not null), 0);
  note := 'jobs that were in the wrong lane';
  return next;
  delete from stillwake.limit_holds h
  where not exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);
  return query select b.act, b.count, 'budget of ' || b.note from stillwake.check_budgets() b;
end
$$;

-- Completes jobs that wait although their progress shows that nothing is left: the last worker died between the end of
-- the work and the settlement, or there was no work at all. Only for pipelines that opt in, because other pipelines may do more
-- after the last item. No attempt is counted.
create or replace function stillwake.complete_by_progress(p_limit integer) returns bigint
language plpgsql as $$
declare
  v_job   stillwake.live_jobs;
  v_count bigint := 0;
begin
  for v_job in
    select j.* from stillwake.pipelines p join stillwake.live_jobs j on j.pipeline = p.name
    where p.complete_by_progress and j.lease_id is null and j.state = 'queued' and j.cancel is null
      and coalesce(j.waiting_for, '') not in ('children', 'event')
      and not exists (select from stillwake.spawns s where s.job_id = j.id)
      and not exists (select from stillwake.checkpoints c where c.job_id = j.id and c.output #>> '{$stillwake,0}' = 'wait')
      and case when jsonb_typeof(j.progress -> 'total') = 'number' and coalesce(jsonb_typeof(j.progress -> 'done'), 'number') = 'number'
        then coalesce((j.progress ->> 'done')::numeric, 0) >= (j.progress ->> 'total')::numeric end
    order by j.id limit p_limit for update of j skip locked
  loop
    perform stillwake.add_event(v_job.id, 'completed_by_progress',
      jsonb_build_object('note', format('Nothing left to do: %s of %s', coalesce(v_job.progress ->> 'done', '0'),
        v_job.progress ->> 'total')));
    perform stillwake.end_job(v_job, 'completed', null, case when v_job.claimed_at is not null then 'lost' end);
    v_count := v_count + 1;
  end loop;
  return v_count;
end
$$;
