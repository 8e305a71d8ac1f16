-- Maintenance that must happen even if every worker is dead: call watchdog() once a minute from pg_cron, a scheduler or
-- by hand.

-- Creates the jobs of due schedules, recovers jobs of dead workers, ends expired jobs, completes jobs without
-- remaining work, admits jobs to free keys, lets breakers probe, prepares partitions for the coming weeks and drops old
-- ones. Returns what it did, and what it skipped and why.
create or replace function stillwake.watchdog() returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- First, because a schedule's row is locked before leases and jobs.
  for act, count, note in
    select r.act, sum(r.count)::bigint, format('schedule %s: %s%s', r.schedule, max(r.occurrence), coalesce(', ' || max(r.note), ''))
    from stillwake.run_schedules(1000) r
    group by r.schedule, r.act order by r.schedule
  loop
    return next;
  end loop;
  act := 'recovered';
  count := stillwake.recover(1000);
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
  count := coalesce((select sum(stillwake.relane(p.name, 100000)) from stillwake.pools p where p.relane_until is not null), 0);
  note := 'jobs that were in the wrong lane';
  return next;
  delete from stillwake.limit_holds h
  where not exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);
  act := 'deleted';
  count := stillwake.delete_leftovers();
  note := 'expired idempotency keys and leftover rows';
  return next;
  act := 'forgotten';
  count := stillwake.prune_webhooks();
  note := 'webhooks past their retention';
  return next;
  return query select b.act, b.count, 'budget of ' || b.note from stillwake.check_budgets() b;
  perform stillwake.prune_machines();
  delete from stillwake.listeners l where l.until < stillwake.now();
  perform stillwake.delete_expired_watches(stillwake.now(), 10000);
  -- Last, because it locks whole tables until commit.
  perform stillwake.trim_realtime();
  act := 'prepared';
  count := stillwake.make_partitions();
  note := 'partitions';
  return next;
  return query select p.act, p.count, p.note from stillwake.prune() p;
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

-- The existing partitions, with the bounds in their names: ended_jobs_20300107 holds rows that may be deleted in the
-- week of 7 January 2030; feed_20300107 holds rows of jobs whose id was created in that week.
create or replace function stillwake.partitions() returns table (parent text, name text, week date)
language sql stable as $$
  select p.relname::text, c.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD')
  from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
  where p.relnamespace = 'stillwake'::regnamespace
    and p.relname in ('ended_jobs', 'ended_attempts', 'checkpoints', 'feed', 'artifacts', 'spawns', 'spawn_parts', 'signals')
    and c.relname !~ '_(default|forever)$'
  order by 1, 3
$$;

-- Creates the partitions for the coming two weeks, and those of missed weeks, whose rows are in the default partition
-- and are moved.
-- Locks: briefly the parent tables, with lock_timeout; a partition whose lock is not available is left for the next
-- call.
create or replace function stillwake.make_partitions() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$
declare
  v_monday date := date_trunc('week', stillwake.now() at time zone 'UTC')::date;
  v_count  bigint := 0;
  v_made   integer;
  v_one    record;
begin
  if not pg_try_advisory_xact_lock(hashtext('stillwake.partitions')) then
    return 0;
  end if;
  for v_one in
    select 'ended_jobs' as parent, w.week, quote_literal(w.week) as low, quote_literal(w.week + 7) as high
    from (
      select stillwake.forget_on(stillwake.now() + a.ahead, k.keep) as week
      from (
        select unnest(array[p.keep_completed, p.keep_failed, p.keep_cancelled]) from stillwake.pipelines p
        union values (interval '14 days'), (interval '30 days')
      ) k (keep)
      cross join (values (interval '0'), (interval '7 days'), (interval '14 days')) a (ahead)
      union (select d.forget_on from stillwake.ended_jobs_default d limit 1)
    ) w
    where w.week < 'infinity'
    union all
    select t.parent, w.week, quote_literal(stillwake.first_id(w.week::timestamp at time zone 'UTC')),
      quote_literal(stillwake.first_id((w.week + 7)::timestamp at time zone 'UTC'))
    from (values ('ended_attempts'), ('checkpoints'), ('feed'), ('artifacts'), ('spawns'), ('spawn_parts'), ('signals')) t (parent)
    cross join lateral (
      select unnest(array[v_monday, v_monday + 7, v_monday + 14]) union select stillwake.first_missed_week(t.parent, v_monday)
    ) w (week)
    where w.week is not null
    order by 1, 2
  loop
    continue when exists (select from stillwake.partitions() p where p.parent = v_one.parent and p.week = v_one.week);
    v_made := stillwake.make_partition(v_one.parent, v_one.week, v_one.low, v_one.high);
    -- The locks of those already created are held until commit: other sessions must not wait behind them for one
    -- lock_timeout after another.
    exit when v_made = 0;
    v_count := v_count + v_made;
  end loop;
  return v_count;
end
$$;

-- The first week of the past two years that has rows in the default partition.
create or replace function stillwake.first_missed_week(p_parent text, p_monday date) returns date
language plpgsql stable as $$
declare
  v_id uuid;
begin
  execute format('select job_id from stillwake.%I where job_id >= $1 and job_id < $2 order by job_id limit 1', p_parent || '_default')
  into v_id using stillwake.first_id((p_monday - 730)::timestamp at time zone 'UTC'),
    stillwake.first_id(p_monday::timestamp at time zone 'UTC');
  return stillwake.week_of(v_id);
end
$$;

-- Attaches one partition, moving its rows from the default one. Returns 1, or 0 when a lock was not available.
create or replace function stillwake.make_partition(p_parent text, p_week date, p_low text, p_high text) returns integer
language plpgsql as $$
declare
  v_name   text := p_parent || '_' || to_char(p_week, 'YYYYMMDD');
  v_column text := case p_parent when 'ended_jobs' then 'forget_on' else 'job_id' end;
begin
  execute format('lock table stillwake.%I in access exclusive mode', p_parent || '_default');
  execute format('create table stillwake.%I (like stillwake.%I including defaults including constraints)', v_name, p_parent);
  execute format('with moved as (delete from stillwake.%I where %I >= %s and %I < %s returning *)
    insert into stillwake.%I select * from moved', p_parent || '_default', v_column, p_low, v_column, p_high, v_name);
  execute format('alter table stillwake.%I attach partition stillwake.%I for values from (%s) to (%s)', p_parent, v_name, p_low, p_high);
  return 1;
exception when lock_not_available then
  return 0;
end
$$;

-- Drops old partitions: ended jobs with the week in which their retention ended, except children whose parent is live
-- and may still read their results; attempts, checkpoints and feed of a week when no job created in that week is left.
-- Locks: the parent tables, with lock_timeout.
create or replace function stillwake.prune() returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$
declare
  v_today date := (stillwake.now() at time zone 'UTC')::date;
  v_part  record;
  v_done  text[] := '{}';
begin
  for v_part in
    select p.* from stillwake.partitions() p
    where case when p.parent = 'ended_jobs' then p.week <= v_today
      else p.week + 7 <= v_today and not stillwake.has_jobs_of_week(p.week) end
  loop
    begin
      -- With more children than one call moves, the partition is dropped by a later call.
      continue when v_part.parent = 'ended_jobs' and not stillwake.keep_children_of_live(v_part.name, 10000);
      execute format('drop table stillwake.%I', v_part.name);
      v_done := v_done || v_part.name;
    exception when lock_not_available then
      -- Dropped partitions keep their parent locked until commit: the rest is for the next call.
      exit;
    end;
  end loop;
  act := 'dropped';
  count := cardinality(v_done);
  note := coalesce(nullif(array_to_string(v_done, ', '), ''), 'no partition is past its retention');
  return next;
end
$$;

-- Moves children of live parents from a partition of ended_jobs into that of two weeks later. Returns whether none is
-- left. Locks: the moved rows.
create or replace function stillwake.keep_children_of_live(p_partition text, p_limit integer) returns boolean
language plpgsql as $$
declare
  v_ids uuid[];
begin
  execute format('select array(select e.id from stillwake.%I e where e.parent_id is not null
    and exists (select from stillwake.live_jobs p where p.id = e.parent_id) limit $1)', p_partition) into v_ids using p_limit;
  if v_ids <> '{}' then
    execute format('update stillwake.ended_jobs e set forget_on = $1 where e.id = any ($2) and e.tableoid = %L::regclass',
      'stillwake.' || quote_ident(p_partition)) using stillwake.forget_on(stillwake.now(), '14 days'), v_ids;
  end if;
  return cardinality(v_ids) < p_limit;
end
$$;

-- Deletes a bounded number of rows that are in no partition to drop: expired idempotency keys, and rows of jobs whose ids
-- contain a time without a partition. Rows of one such week are deleted together, when no job of that week is left.
create or replace function stillwake.delete_leftovers() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_today  date := (stillwake.now() at time zone 'UTC')::date;
  v_parent text;
  v_id     uuid;
  v_rows   bigint;
  v_sum    bigint := 0;
begin
  delete from stillwake.idempotency_keys where (pipeline, key) in (
    select pipeline, key from stillwake.idempotency_keys where forget_on <= v_today
    order by pipeline, key limit 10000 for update skip locked);
  get diagnostics v_sum = row_count;
  -- Audit entries are kept for 400 days. Their ids begin with the time.
  delete from stillwake.audit where id in (select id from stillwake.audit where id < stillwake.first_id(v_today - 400)
    order by id limit 10000);
  get diagnostics v_rows = row_count;
  v_sum := v_sum + v_rows;
  foreach v_parent in array array['ended_attempts', 'checkpoints', 'feed', 'artifacts', 'spawns', 'spawn_parts', 'signals'] loop
    execute format('select job_id from stillwake.%I order by job_id limit 1', v_parent || '_default') into v_id;
    continue when v_id is null or stillwake.has_jobs_of_week(stillwake.week_of(v_id));
    execute format('delete from stillwake.%1$I where ctid = any (array(select ctid from stillwake.%1$I where job_id < $1 limit 10000))',
      v_parent || '_default')
    using stillwake.first_id((stillwake.week_of(v_id) + 7)::timestamp at time zone 'UTC');
    get diagnostics v_rows = row_count;
    v_sum := v_sum + v_rows;
  end loop;
  return v_sum;
end
$$;

-- Whether any job whose id was created in this week still exists, live or ended.
create or replace function stillwake.has_jobs_of_week(p_week date) returns boolean
language plpgsql stable as $$
declare
  v_low  uuid := stillwake.first_id(p_week::timestamp at time zone 'UTC');
  v_high uuid := stillwake.first_id((p_week + 7)::timestamp at time zone 'UTC');
begin
  return exists (select from stillwake.live_jobs where id >= v_low and id < v_high)
    or exists (select from stillwake.ended_jobs where id >= v_low and id < v_high);
end
$$;
