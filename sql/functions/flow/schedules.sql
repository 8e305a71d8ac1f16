-- Schedules. A row stores its next occurrence and the time of that occurrence. The first caller after that time (a claim of its
-- pool, the watchdog, any client) creates the job of the occurrence and advances the row, in one transaction. The row lock
-- prevents two from doing it at once; if the row is ever set back, by a new definition or a restored table, the
-- idempotency key of the occurrence returns the existing job.
--
-- An occurrence that is processed within a minute is on time and runs. catch_up decides about late occurrences:
--   one    the latest of them, unless one that is on time runs as well
--   all    each, in order
--   none   none of them
-- overlap decides about an occurrence whose predecessor's job is still live:
--   skip   no job is created for it
--   queue  its job waits for that one to end, through a key (keys.sql)
--   replace  that one is cancelled; the new job runs when it has stopped
--   allow  both run
--
-- Locks: the row of a schedule comes before leases and jobs, so settle_and_claim() runs schedules first. A locked
-- schedule is skipped. What the new job has to wait for (its key, the lease of the job it replaces) may be held by a
-- transaction that waits for an earlier schedule of the same call, hence the lock_timeout, which is shorter than
-- Postgres's deadlock_timeout.

-- Creates or changes a schedule. Settings: cron, pipeline, zone ('UTC'), input ('{}'), options (as for enqueue(): pool,
-- priority, expires_in, key, on_conflict, tenant, max_attempts, webhook), overlap ('skip'), catch_up ('one'). They are
-- the complete definition: absent settings get their default. An unchanged definition changes nothing; a new cron or
-- zone starts with its first occurrence from now. A paused schedule stays paused. Returns whether anything changed. Locks:
-- the row. Raises SW001, SW002, SW003.
create or replace function stillwake.set_schedule(p_name text, p_settings jsonb) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
  v_old stillwake.schedules;
  v_new stillwake.schedules;
begin
  perform stillwake.check_schedule(p_name, p_settings);
  select * into v_old from stillwake.schedules s where s.name = p_name for update;
  v_new := v_old;
  v_new.name := p_name;
  v_new.cron := p_settings ->> 'cron';
  v_new.zone := coalesce(p_settings ->> 'zone', 'UTC');
  v_new.pipeline := p_settings ->> 'pipeline';
  v_new.input := coalesce(p_settings -> 'input', '{}');
  v_new.options := coalesce(nullif(p_settings -> 'options', 'null'), '{}');
  v_new.overlap := coalesce(p_settings ->> 'overlap', 'skip');
  v_new.catch_up := coalesce(p_settings ->> 'catch_up', 'one');
  v_new.pool := coalesce(v_new.options ->> 'pool', (select p.pool from stillwake.pipelines p where p.name = v_new.pipeline));
  if v_new is not distinct from v_old then
    return false;
  end if;
  if v_new.cron is distinct from v_old.cron or v_new.zone is distinct from v_old.zone then
    v_new.fields := stillwake.read_cron(v_new.cron);
    perform stillwake.check_zone(v_new.zone);
    select a.occurrence, a.at into v_new.next_occurrence, v_new.next_at from stillwake.cron_after(v_new.fields, v_new.zone, v_now) a;
  end if;
  v_new.due_at := case when v_new.paused_at is null then v_new.next_at end;
  v_new.last_error := null;
  v_new.fired := coalesce(v_old.fired, 0);
  v_new.skipped := coalesce(v_old.skipped, 0);
  v_new.missed := coalesce(v_old.missed, 0);
  v_new.created_at := coalesce(v_old.created_at, v_now);
  v_new.updated_at := v_now;
  insert into stillwake.schedules as s values (v_new.*)
  on conflict (name) do update set cron = excluded.cron, fields = excluded.fields, zone = excluded.zone, pipeline = excluded.pipeline,
    pool = excluded.pool, input = excluded.input, options = excluded.options, overlap = excluded.overlap, catch_up = excluded.catch_up,
    next_occurrence = excluded.next_occurrence, next_at = excluded.next_at, due_at = case when s.paused_at is null then excluded.due_at end,
    last_error = null, updated_at = excluded.updated_at;
  -- A sleeping worker may now have to wake earlier.
  perform stillwake.hint(v_new.pool);
  return true;
end
$$;

create or replace function stillwake.check_schedule(p_name text, p_settings jsonb) returns void
language plpgsql as $$
declare
  v_options jsonb := coalesce(nullif(p_settings -> 'options', 'null'), '{}');
begin
  perform stillwake.check_options(p_settings, array['cron', 'zone', 'pipeline', 'input', 'options', 'overlap', 'catch_up']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid schedule name', coalesce(p_name, 'null')), 'name',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;
  if p_settings ->> 'cron' is null then
    perform stillwake.refuse('SW001', format('Schedule "%s" has no cron', p_name), 'cron',
      'Write minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri".');
  end if;
  perform stillwake.read_cron(p_settings ->> 'cron');
  if not exists (select from stillwake.pipelines p where p.name = p_settings ->> 'pipeline') then
    perform stillwake.refuse_unknown_pipeline(p_settings ->> 'pipeline');
  end if;
  if p_settings ->> 'overlap' not in ('skip', 'queue', 'replace', 'allow') then
    perform stillwake.refuse('SW001', format('overlap cannot be "%s"', p_settings ->> 'overlap'), 'overlap',
      'Use skip, queue, replace or allow.');
  end if;
  if p_settings ->> 'catch_up' not in ('one', 'all', 'none') then
    perform stillwake.refuse('SW001', format('catch_up cannot be "%s"', p_settings ->> 'catch_up'), 'catch_up', 'Use one, all or none.');
  end if;
  perform stillwake.check_inputs(jsonb_build_array(p_settings -> 'input'));
  perform stillwake.refuse_plain_values(p.name, p.sealed, jsonb_build_array(p_settings -> 'input')) from stillwake.pipelines p
  where p.name = p_settings ->> 'pipeline' and p.sealed <> '{}';
  -- Options that enqueue() would refuse are refused now, not when the occurrence is due.
  perform stillwake.check_options(v_options,
    array['pool', 'priority', 'expires_in', 'key', 'on_conflict', 'tenant', 'max_attempts', 'webhook']);
  perform stillwake.check_length(v_options, 'pool');
  perform stillwake.check_length(v_options, 'key');
  perform stillwake.check_length(v_options, 'tenant');
  perform stillwake.labels_of(jsonb_build_array(p_settings -> 'input'), l.paths, l.field)
  from stillwake.pipelines p, lateral (values ('key', p.key_paths), ('tenant', p.tenant_paths)) as l (field, paths)
  where p.name = p_settings ->> 'pipeline' and l.paths is not null and not v_options ? l.field;
  perform stillwake.read_integer(v_options, 'priority', -1000, 1000);
  perform stillwake.read_integer(v_options, 'max_attempts', 1, 1000);
  perform stillwake.read_on_conflict(v_options);
  perform stillwake.read_webhook(v_options, coalesce(stillwake.read_labels(v_options, 'tenant', 1),
    stillwake.labels_of(jsonb_build_array(p_settings -> 'input'), p.tenant_paths, 'tenant')))
  from stillwake.pipelines p where p.name = p_settings ->> 'pipeline';
  if stillwake.read_duration(v_options, 'expires_in') = '0' then
    perform stillwake.refuse('SW001', 'expires_in is zero', 'expires_in', 'A job must be able to start before it expires.');
  end if;
  if v_options ->> 'pool' is not null and not exists (select from stillwake.pools o where o.name = v_options ->> 'pool') then
    perform stillwake.refuse_unknown_pool(v_options ->> 'pool');
  end if;
end
$$;

create or replace function stillwake.check_zone(p_zone text) returns void
language plpgsql stable as $$
declare
  v_near text;
  v_offset text[] := regexp_match(p_zone, '^(?:GMT|UTC)? ?([+-])0?(\d{1,2})(?::?00)?$', 'i');
begin
  -- Reading the names of all zones takes about twenty milliseconds.
  if p_zone = 'UTC' or exists (select from stillwake.schedules s where s.zone = p_zone) then
    return;
  end if;
  if not exists (select from pg_timezone_names z where z.name = p_zone) then
    if v_offset is not null then
      -- The signs of these names are reversed: Etc/GMT-2 is two hours ahead of UTC.
      select z.name into v_near from pg_timezone_names z
      where z.name = 'Etc/GMT' || translate(v_offset[1], '+-', '-+') || v_offset[2];
      perform stillwake.refuse('SW001', format('"%s" is an offset, not a time zone', p_zone), 'zone',
        'Use a city such as Europe/Berlin, which follows daylight saving time'
        || coalesce(', or ' || v_near || format(', which is always UTC%s%s: the signs of these names are reversed',
          v_offset[1], v_offset[2]), '') || '.');
    end if;
    select z.name into v_near from pg_timezone_names z
    where lower(z.name) = lower(p_zone) or lower(z.name) like '%/' || lower(replace(p_zone, ' ', '_')) order by z.name limit 1;
    perform stillwake.refuse('SW001', format('"%s" is not a time zone that this Postgres knows', p_zone), 'zone',
      coalesce('Did you mean ' || v_near || '?', 'Use a name of the IANA database such as Europe/Berlin, or UTC; see pg_timezone_names.'));
  end if;
end
$$;

-- Its jobs are kept. Returns false when there is no such schedule.
create or replace function stillwake.remove_schedule(p_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from stillwake.schedules s where s.name = p_name;
  return found;
end
$$;

-- No occurrence runs until resume_schedule(). Locks: the row. Raises SW001.
create or replace function stillwake.pause_schedule(p_name text, p_by text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.schedules s set paused_at = coalesce(s.paused_at, stillwake.now()), paused_by = coalesce(s.paused_by, p_by),
    due_at = null where s.name = p_name;
  if not found then
    perform stillwake.refuse_unknown_schedule(p_name);
  end if;
end
$$;

-- Continues with the first occurrence from now: occurrences during the pause are not caught up. Locks: the row. Raises SW001.
create or replace function stillwake.resume_schedule(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_row stillwake.schedules;
begin
  select * into v_row from stillwake.schedules s where s.name = p_name for update;
  if not found then
    perform stillwake.refuse_unknown_schedule(p_name);
  elsif v_row.paused_at is null then
    return;
  end if;
  update stillwake.schedules s set paused_at = null, paused_by = null, next_occurrence = a.occurrence, next_at = a.at, due_at = a.at
  from stillwake.cron_after(v_row.fields, v_row.zone, stillwake.now()) a where s.name = p_name;
  perform stillwake.hint(v_row.pool);
end
$$;

create or replace function stillwake.refuse_unknown_schedule(p_name text) returns void
language plpgsql as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from stillwake.schedules order by name limit 20) k);
begin
  perform stillwake.refuse('SW001', format('Schedule "%s" does not exist', coalesce(p_name, 'null')), 'name',
    format('Known schedules: %s. Create it with stillwake.set_schedule(name, settings).', coalesce(v_known, 'none')));
end
$$;

-- The next occurrences of a schedule, up to 10000. For a paused one: those it would have. Raises SW001.
create or replace function stillwake.upcoming(p_name text, p_count integer default 10) returns table (occurrence text, at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_row stillwake.schedules;
begin
  select * into v_row from stillwake.schedules s where s.name = p_name;
  if not found then
    perform stillwake.refuse_unknown_schedule(p_name);
  elsif v_row.paused_at is not null then
    return query select u.occurrence, u.at from stillwake.upcoming(v_row.cron, v_row.zone, p_count, stillwake.now()) u;
    return;
  end if;
  occurrence := v_row.next_occurrence;
  at := v_row.next_at;
  for v_turn in 1 .. least(coalesce(p_count, 10), 10000) loop
    exit when at is null;
    return next;
    select a.occurrence, a.at into occurrence, at from stillwake.cron_after(v_row.fields, v_row.zone, upcoming.at, upcoming.occurrence) a;
  end loop;
end
$$;

-- The occurrences of a cron expression after a time (null: now), whether or not a schedule uses it. Raises SW001.
create or replace function stillwake.upcoming(p_cron text, p_zone text, p_count integer default 10,
  p_after timestamptz default null) returns table (occurrence text, at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_cron stillwake.cron_fields := stillwake.read_cron(p_cron);
begin
  perform stillwake.check_zone(p_zone);
  select a.occurrence, a.at into occurrence, at from stillwake.cron_after(v_cron, p_zone, coalesce(p_after, stillwake.now())) a;
  for v_turn in 1 .. least(coalesce(p_count, 10), 10000) loop
    exit when at is null;
    return next;
    select a.occurrence, a.at into occurrence, at from stillwake.cron_after(v_cron, p_zone, upcoming.at, upcoming.occurrence) a;
  end loop;
end
$$;

-- Runs up to p_limit due schedules, of one pool or of all; none of a paused pool. Returns what it did: act is 'fired'
-- (job_id is new), 'joined' (job_id existed), 'skipped' (job_id is still live), 'missed' or 'failed'; count is more
-- than one only for missed occurrences, and occurrence is the last of them. A failing schedule does not stop the others. It is
-- retried a minute later, or after 15 seconds when it only waited too long for a lock. The work of one call is bounded,
-- however many occurrences are to be caught up: the rest stays due, behind the other schedules.
-- Locks: the row of one schedule after the other, skipping locked ones; what enqueue_many() and, with 'replace',
-- cancel() lock, for which a call waits half a second once.
create or replace function stillwake.run_schedules(p_limit integer default 100, p_pool text default null)
returns table (schedule text, act text, occurrence text, at timestamptz, job_id uuid, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_now   timestamptz := stillwake.now();
  v_name  text;
  v_row   stillwake.schedules;
  v_left  integer := p_limit;
  v_jobs  integer := greatest(100, p_limit);
  v_occurrences integer := greatest(2000, p_limit);
begin
  for v_name in
    select s.name from stillwake.schedules s
    where s.due_at <= v_now and (p_pool is null or s.pool = p_pool) and not exists (select from stillwake.pools p
      where p.name = s.pool and p.paused_at is not null)
    order by s.due_at, s.name
  loop
    exit when least(v_left, v_jobs, v_occurrences) <= 0;
    select * into v_row from stillwake.schedules s where s.name = v_name and s.due_at <= v_now for update skip locked;
    continue when not found;
    v_left := v_left - 1;
    schedule := v_name;
    begin
      for act, occurrence, at, job_id, count, note in
        select r.* from stillwake.run_schedule(v_row, v_now, v_jobs, v_occurrences) r
      loop
        v_occurrences := v_occurrences - count;
        v_jobs := v_jobs - (act in ('fired', 'joined'))::integer;
        return next;
      end loop;
    exception when others then
      -- Its occurrences cannot be computed: its zone no longer exists. A conflict concerns the whole transaction, and the
      -- caller repeats it.
      if sqlstate in ('40P01', '40001') then
        raise;
      end if;
      act := 'failed';
      occurrence := v_row.next_occurrence;
      at := v_row.next_at;
      job_id := null;
      count := 1;
      note := sqlerrm;
      update stillwake.schedules s set last_error = run_schedules.note, due_at = v_now + interval '1 minute' where s.name = v_name;
      return next;
    end;
  end loop;
end
$$;

-- For a worker without a free slot, which does not claim: runs the due schedules of its pool. Returns when the next one
-- is due; null when there is none. Locks: as run_schedules().
create or replace function stillwake.run_due_schedules(p_pool text) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  if exists (select from stillwake.schedules s where s.pool = p_pool and s.due_at <= v_now) then
    perform stillwake.run_schedules(10, p_pool);
  end if;
  return (
    select min(s.due_at) from stillwake.schedules s
    where s.pool = p_pool and s.due_at is not null and not exists (select from stillwake.pools p
      where p.name = p_pool and p.paused_at is not null)
  );
end
$$;

-- Runs the due occurrences of one schedule, whose row lock the caller holds: up to p_jobs jobs and p_occurrences
-- occurrences. A failed one stays the next one, with those after it.
create or replace function stillwake.run_schedule(p_row stillwake.schedules, p_now timestamptz, p_jobs integer,
  p_occurrences integer)
returns table (act text, occurrence text, at timestamptz, job_id uuid, count bigint, note text)
language plpgsql as $$
declare
  v_row     stillwake.schedules := p_row;
  v_occurrences   text[] := '{}';
  v_times   timestamptz[] := '{}';
  v_missed  bigint := 0;
  -- The last two late occurrences, the latest at the end.
  v_late    text[] := '{}';
  v_late_at timestamptz[] := '{}';
  -- The next occurrence was processed on time and failed. It still counts as on time, unless no caller came when it was to be
  -- retried.
  v_again   boolean := p_row.last_error is not null and p_row.due_at >= p_now - interval '60 seconds';
  v_id      uuid;
begin
  for v_turn in 1 .. p_occurrences loop
    exit when v_row.next_at is null or v_row.next_at > p_now or cardinality(v_occurrences) >= p_jobs;
    if v_again or v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all' then
      v_occurrences := v_occurrences || v_row.next_occurrence;
      v_times := v_times || v_row.next_at;
    else
      v_late := array[v_late[cardinality(v_late)], v_row.next_occurrence];
      v_late_at := array[v_late_at[cardinality(v_late_at)], v_row.next_at];
      v_missed := v_missed + 1;
    end if;
    v_again := false;
    select a.occurrence, a.at into v_row.next_occurrence, v_row.next_at
    from stillwake.cron_after(v_row.fields, v_row.zone, v_row.next_at, v_row.next_occurrence) a;
  end loop;
  if v_row.catch_up = 'one' and v_missed > 0 and v_occurrences = '{}' and coalesce(v_row.next_at > p_now, true) then
    v_occurrences := v_late[2:2];
    v_times := v_late_at[2:2];
    v_late[2] := v_late[1];
    v_late_at[2] := v_late_at[1];
    v_missed := v_missed - 1;
  end if;
  v_row.last_error := null;
  -- A schedule with remaining occurrences goes behind those that are due already.
  v_row.due_at := case when v_row.next_at <= p_now then p_now else v_row.next_at end;

  -- Ends with a null occurrence, so that occurrences missed after the last one are reported.
  for occurrence, at in select * from unnest(v_occurrences || null::text, v_times || null::timestamptz) loop
    -- All missed occurrences come after the first occurrence, if that one runs, and before the second.
    if v_missed > 0 and occurrence is distinct from p_row.next_occurrence then
      return query select 'missed', v_late[2], v_late_at[2], null::uuid, v_missed, 'not processed in time';
      v_row.missed := v_row.missed + v_missed;
      v_missed := 0;
    end if;
    exit when occurrence is null;
    count := 1;
    if v_row.overlap = 'skip' and stillwake.job_is_live(v_row.last_job) then
      act := 'skipped';
      job_id := v_row.last_job;
      note := format('the job of %s has not ended', v_row.last_occurrence);
      v_row.skipped := v_row.skipped + 1;
      return next;
      continue;
    end if;
    begin
      if v_row.overlap = 'replace' and stillwake.job_is_live(v_row.last_job) then
        perform stillwake.cancel(v_row.last_job, format('Replaced by the job of %s', occurrence), 'schedule ' || v_row.name);
      end if;
      v_id := stillwake.new_id();
      job_id := (stillwake.enqueue_many(v_row.pipeline, jsonb_build_array(v_row.input),
        v_row.options || stillwake.occurrence_options(v_row, occurrence), array[v_id]))[1];
      update stillwake.live_jobs j set origin = jsonb_build_object('schedule', v_row.name, 'occurrence', occurrence,
        'at', to_char(run_schedule.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) where j.id = v_id;
    exception when others then
      -- A conflict concerns the whole transaction, not this schedule: the caller repeats it.
      if sqlstate in ('40P01', '40001') then
        raise;
      end if;
      act := 'failed';
      job_id := null;
      note := case when sqlstate = '55P03' then 'It waited too long for a lock of an open transaction' else sqlerrm end;
      v_row.next_occurrence := occurrence;
      v_row.next_at := at;
      v_row.last_error := note;
      v_row.due_at := p_now + case when sqlstate = '55P03' then interval '15 seconds' else interval '1 minute' end;
      if sqlstate = '55P03' then
        -- Until run_schedules() returns: a call that has waited once does not wait for each schedule.
        perform set_config('lock_timeout', '20ms', true);
      end if;
      return next;
      exit;
    end;
    act := case when job_id = v_id then 'fired' else 'joined' end;
    note := null;
    v_row.last_job := job_id;
    v_row.last_occurrence := occurrence;
    v_row.last_at := at;
    v_row.fired := v_row.fired + 1;
    return next;
  end loop;
  update stillwake.schedules s set next_occurrence = v_row.next_occurrence, next_at = v_row.next_at, due_at = v_row.due_at,
    last_occurrence = v_row.last_occurrence, last_at = v_row.last_at, last_job = v_row.last_job, last_error = v_row.last_error,
    fired = v_row.fired,
    skipped = v_row.skipped, missed = v_row.missed
  where s.name = v_row.name;
end
$$;

-- The options of an occurrence's job in addition to those of its schedule. A job that must not overlap its predecessor waits
-- for their common key.
create or replace function stillwake.occurrence_options(p_row stillwake.schedules, p_occurrence text) returns jsonb
language sql stable as $$
  select jsonb_build_object('idempotency_keys', jsonb_build_array('schedule:' || p_row.name || ':' || p_occurrence))
    || case when p_row.overlap in ('queue', 'replace') then jsonb_build_object('on_conflict', 'wait', 'key', coalesce(
        p_row.options ->> 'key',
        (select (stillwake.labels_of(jsonb_build_array(p_row.input), p.key_paths, 'key'))[1] from stillwake.pipelines p
          where p.name = p_row.pipeline and p.key_paths is not null),
        'schedule:' || p_row.name)) else '{}' end
$$;
