-- Breakers. A breaker protects a dependency that many jobs call. A number of consecutive failures opens it: no job
-- calls the dependency before resume_at, and then a single probe does. If the probe fails the pause grows, if it
-- succeeds the breaker closes.
--
-- Jobs of pipelines that list the breaker in `breakers` are not started while it is open: their gate is closed
-- (lanes.sql) and the view shows them as paused, with reason and time, without any write to their rows. Other jobs
-- check it in their code and are paused one by one.

-- Registers a breaker or changes its settings: failures (5), pause (30 s), growth (2), max (15 min). Raises SW001.
create or replace function stillwake.register_breaker(p_name text, p_settings jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_old    stillwake.breakers;
  v_first  interval := coalesce(stillwake.read_duration(p_settings, 'pause'), '30 seconds');
  v_max   interval := coalesce(stillwake.read_duration(p_settings, 'max'), greatest(v_first, interval '15 minutes'));
  v_times  integer := coalesce(stillwake.read_integer(p_settings, 'failures', 1, 1000000), 5);
  v_growth real := coalesce((p_settings ->> 'growth')::real, 2);
begin
  perform stillwake.check_options(p_settings, array['failures', 'pause', 'growth', 'max']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid breaker name', coalesce(p_name, 'null')), 'breaker',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  elsif v_first < '10 milliseconds' or v_max < v_first or v_growth not between 1 and 100 then
    perform stillwake.refuse('SW001', format('Breaker "%s" cannot have pause %s, growth %s and max %s', p_name, v_first, v_growth, v_max),
      'pause', 'The pause is at least 10 ms, growth from 1 to 100, max not shorter than the pause.');
  end if;
  select * into v_old from stillwake.breakers where name = p_name;
  if (v_old.name, v_old.threshold, v_old.pause_initial, v_old.growth, v_old.pause_max) is not distinct from (p_name, v_times, v_first,
    v_growth, v_max) then
    return;
  end if;
  insert into stillwake.breakers (name, threshold, pause_initial, growth, pause_max) values (p_name, v_times, v_first, v_growth, v_max)
  on conflict (name) do update set threshold = excluded.threshold, pause_initial = excluded.pause_initial, growth = excluded.growth,
    pause_max = excluded.pause_max, updated_at = stillwake.now();
end
$$;

-- Whether the attempt that probes the dependency is still running.
create or replace function stillwake.is_probing(p_breaker stillwake.breakers) returns boolean
language sql stable as $$
  select p_breaker.probe_job is not null and exists (select from stillwake.live_jobs j
    where j.id = p_breaker.probe_job and j.lease_id = p_breaker.probe_lease)
$$;

-- Whether this attempt may call the dependency. resume_at null: yes. Otherwise when to try again, and why: while
-- another attempt probes, after the initial pause, because waiting jobs are resumed if the probe succeeds. A closed
-- breaker costs one read.
-- Locks: the breaker, unless it is closed. Raises SW005, SW009.
create or replace function stillwake.check_breaker(p_breaker text, p_job uuid, p_epoch bigint, p_lease uuid)
returns table (resume_at timestamptz, reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz;
  v_breaker stillwake.breakers;
begin
  select * into v_breaker from stillwake.breakers b where b.name = p_breaker;
  if not found then
    perform stillwake.refuse_unknown_breaker(p_breaker);
  elsif v_breaker.resume_at is null then
    return next;
    return;
  end if;
  select * into v_breaker from stillwake.breakers b where b.name = p_breaker for no key update;
  v_now := stillwake.now();
  if v_breaker.resume_at is null or (v_breaker.probe_job, v_breaker.probe_lease) = (p_job, p_lease) then
    return next;
    return;
  elsif v_breaker.resume_at > v_now or stillwake.is_probing(v_breaker) then
    resume_at := greatest(v_breaker.resume_at, v_now + interval '1 second', case when v_breaker.resume_at <= v_now
      then v_now + v_breaker.pause_initial end);
    reason := stillwake.breaker_reason(v_breaker);
    return next;
    return;
  elsif not exists (select from stillwake.live_jobs j where j.id = p_job and j.epoch = p_epoch and j.lease_id = p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  update stillwake.breakers b set probe_job = p_job, probe_lease = p_lease, updated_at = v_now where b.name = p_breaker;
  return next;
end
$$;

-- Reports the result of a call. Returns null while the breaker is closed, or once it is; otherwise when to try again,
-- and why. The failure of a call that was in flight when the breaker opened has no effect. A success closes it. A
-- success on a healthy breaker costs one read.
-- Locks: the breaker. Raises SW009.
create or replace function stillwake.report_breaker_result(
  p_breaker text, p_job uuid, p_lease uuid, p_succeeded boolean, p_reason text default null
) returns table (resume_at timestamptz, reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz;
  v_breaker stillwake.breakers;
begin
  select * into v_breaker from stillwake.breakers b where b.name = p_breaker;
  if not found then
    perform stillwake.refuse_unknown_breaker(p_breaker);
  elsif p_succeeded and v_breaker.failures = 0 and v_breaker.resume_at is null then
    return next;
    return;
  end if;
  select * into v_breaker from stillwake.breakers b where b.name = p_breaker for no key update;
  v_now := stillwake.now();
  if p_succeeded then
    -- A breaker opened by an operator stays open for the requested time.
    if v_breaker.opened_by is not null and v_breaker.resume_at > v_now then
      resume_at := v_breaker.resume_at;
      reason := stillwake.breaker_reason(v_breaker);
    else
      perform stillwake.reset_breaker(v_breaker);
    end if;
    return next;
    return;
  end if;
  if v_breaker.resume_at is null then
    v_breaker.failures := v_breaker.failures + 1;
    if v_breaker.failures >= v_breaker.threshold then
      v_breaker.opened_at := v_now;
      v_breaker.resume_at := v_now + v_breaker.pause_initial;
    end if;
    v_breaker.reason := left(p_reason, 1000);
  elsif (v_breaker.probe_job, v_breaker.probe_lease) = (p_job, p_lease) then
    v_breaker.probes := v_breaker.probes + 1;
    v_breaker.resume_at := greatest(v_breaker.resume_at,
      v_now + least(v_breaker.pause_initial * power(v_breaker.growth::double precision, least(v_breaker.probes, 60)), v_breaker.pause_max));
    v_breaker.probe_job := null;
    v_breaker.probe_lease := null;
    v_breaker.reason := left(p_reason, 1000);
  end if;
  update stillwake.breakers b set failures = v_breaker.failures, opened_at = v_breaker.opened_at, resume_at = v_breaker.resume_at,
    probes = v_breaker.probes,
    probe_job = v_breaker.probe_job, probe_lease = v_breaker.probe_lease, reason = v_breaker.reason, updated_at = v_now
  where b.name = p_breaker;
  resume_at := v_breaker.resume_at;
  reason := case when resume_at is not null then stillwake.breaker_reason(v_breaker) end;
  return next;
end
$$;

-- These jobs do not run any more. If one of them was the probe of a breaker and has not reported a result, another job
-- may probe it now.
create or replace function stillwake.hint_next_probe(p_jobs uuid[]) returns void
language plpgsql as $$
begin
  perform stillwake.hint_dependents('breakers', b.name) from stillwake.breakers b
  where b.probe_job = any (p_jobs) and b.resume_at <= stillwake.now();
end
$$;

create or replace function stillwake.breaker_reason(p_breaker stillwake.breakers) returns text
language sql stable as $$
  select p_breaker.name || coalesce(' was opened by ' || p_breaker.opened_by, ' is failing') || coalesce(': ' || p_breaker.reason, '')
$$;

-- Closes a breaker, resumes the jobs that it paused one by one, and hints the workers that wait for it. The caller
-- holds the row lock.
create or replace function stillwake.reset_breaker(p_breaker stillwake.breakers) returns void
language plpgsql as $$
begin
  update stillwake.breakers set failures = 0, opened_at = null, resume_at = null, probes = 0, reason = null, opened_by = null,
    probe_job = null, probe_lease = null, updated_at = stillwake.now()
  where name = p_breaker.name;
  if p_breaker.resume_at is not null then
    perform stillwake.hint(j.pool) from (
      select distinct b.pool from stillwake.resume_paused_jobs(p_breaker.name) b
    ) j;
    perform stillwake.hint_dependents('breakers', p_breaker.name);
  end if;
end
$$;

-- In bounded number: the rest resumes at its own time.
create or replace function stillwake.resume_paused_jobs(p_breaker text) returns table (pool text)
language plpgsql as $$
begin
  return query
  with held as (
    select j.id from stillwake.live_jobs j where j.pause ->> 'breaker' = p_breaker and j.pause is not null and j.state = 'paused'
      and j.lease_id is null
    order by j.id limit 10000 for update skip locked
  )
  update stillwake.live_jobs j set state = 'queued', pause = null, run_at = coalesce(j.order_at, j.run_at), order_at = null
  from held h where j.id = h.id returning j.pool;
end
$$;

create or replace function stillwake.refuse_unknown_breaker(p_name text) returns void
language plpgsql as $$
begin
  perform stillwake.refuse('SW009', format('Breaker "%s" is not registered', coalesce(p_name, 'null')), 'breaker',
    format('Known breakers: %s. Register it with stillwake.register_breaker(name, settings).',
      coalesce((select string_agg(b.name, ', ' order by b.name) from stillwake.breakers b), 'none')));
end
$$;

-- For operators: opens a breaker for a time (null: until it is closed), or closes it. Raises SW001, SW009.
create or replace function stillwake.open_breaker(p_name text, p_for text default null, p_reason text default null,
  p_by text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.breakers set opened_at = coalesce(opened_at, stillwake.now()), opened_by = coalesce(p_by, 'an operator'),
    reason = left(p_reason, 1000),
    resume_at = coalesce(stillwake.now() + stillwake.read_duration(jsonb_build_object('for', p_for), 'for'), 'infinity'), probe_job = null,
      probe_lease = null, updated_at = stillwake.now()
  where name = p_name;
  if not found then
    perform stillwake.refuse_unknown_breaker(p_name);
  end if;
end
$$;

create or replace function stillwake.close_breaker(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_breaker stillwake.breakers;
begin
  select * into v_breaker from stillwake.breakers b where b.name = p_name for no key update;
  if not found then
    perform stillwake.refuse_unknown_breaker(p_name);
  end if;
  perform stillwake.reset_breaker(v_breaker);
end
$$;
