-- Schedules: a row knows its next slot and when that is. Whoever looks first when it is due (a claim of its pool, the watchdog, anybody) makes the job
-- of the slot and moves the row on to the next, in one transaction. The lock of the row keeps two from doing it at once; should the row ever be put
-- back, by a new definition or a restored table, the idempotency key of the slot answers the job that is there.
--
-- A slot that is looked at within a minute is on time and runs. What becomes of those that are later is catch_up:
--   one    the latest of them, unless one that is on time runs as well
--   all    each, in order
--   none   none of them
-- And of a slot that is to run while the job of the last one is live, overlap:
--   skip   there is no job for it
--   queue  its job waits for that one to end, by the key mechanism (keys.sql)
--   replace  that one is cancelled; the new job runs when it has stopped
--   allow  both run
--
-- Locks: the row of a schedule comes before leases and jobs. Nobody who holds one of those waits for a schedule: claims skip what is locked.

-- Makes a schedule known or changes it. Settings: cron, pipeline, zone ('UTC'), input ('{}'), options (as enqueue() takes them: pool, priority, expires_in, key,
-- on_conflict, tenant, max_attempts, webhook), overlap ('skip'), catch_up ('one'). They are the whole definition: what is absent has its default. One that is as it was
-- changes nothing; a new cron or zone begins with its first slot from now. Who is paused stays so. Answers whether anything changed.
-- Locks: the row. Raises SW001, SW002, SW003.
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
  if v_new is not distinct from v_old then
    return false;
  end if;
  if v_new.cron is distinct from v_old.cron or v_new.zone is distinct from v_old.zone then
    v_new.fields := stillwake.read_cron(v_new.cron);
    perform stillwake.check_zone(v_new.zone);
    select a.slot, a.at into v_new.next_slot, v_new.next_at from stillwake.cron_after(v_new.fields, v_new.zone, v_now) a;
  end if;
  v_new.due_at := case when v_new.paused_at is null then v_new.next_at end;
  v_new.last_error := null;
  v_new.fired := coalesce(v_old.fired, 0);
  v_new.skipped := coalesce(v_old.skipped, 0);
  v_new.missed := coalesce(v_old.missed, 0);
  v_new.created_at := coalesce(v_old.created_at, v_now);
  v_new.updated_at := v_now;
  insert into stillwake.schedules as s values (v_new.*)
  on conflict (name) do update set cron = excluded.cron, fields = excluded.fields, zone = excluded.zone, pipeline = excluded.pipeline, input = excluded.input,
    options = excluded.options, overlap = excluded.overlap, catch_up = excluded.catch_up, next_slot = excluded.next_slot, next_at = excluded.next_at,
    due_at = case when s.paused_at is null then excluded.due_at end, last_error = null, updated_at = excluded.updated_at;
  -- Who sleeps may have slept for longer than it now should.
  perform stillwake.hint(stillwake.schedule_pool(v_new));
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
    perform stillwake.refuse('SW001', format('"%s" cannot name a schedule', coalesce(p_name, 'null')), 'name',
      'Use 1 to 100 lower-case letters, digits and _ . : - beginning with a letter or digit.');
  end if;
  if p_settings ->> 'cron' is null then
    perform stillwake.refuse('SW001', format('Schedule "%s" has no cron', p_name), 'cron', 'Write minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri".');
  end if;
  perform stillwake.read_cron(p_settings ->> 'cron');
  if not exists (select from stillwake.pipelines p where p.name = p_settings ->> 'pipeline') then
    perform stillwake.refuse_unknown_pipeline(p_settings ->> 'pipeline');
  end if;
  if p_settings ->> 'overlap' not in ('skip', 'queue', 'replace', 'allow') then
    perform stillwake.refuse('SW001', format('overlap cannot be "%s"', p_settings ->> 'overlap'), 'overlap', 'Use skip, queue, replace or allow.');
  end if;
  if p_settings ->> 'catch_up' not in ('one', 'all', 'none') then
    perform stillwake.refuse('SW001', format('catch_up cannot be "%s"', p_settings ->> 'catch_up'), 'catch_up', 'Use one, all or none.');
  end if;
  perform stillwake.check_inputs(jsonb_build_array(p_settings -> 'input'));
  -- What enqueue() would refuse is refused now, not in the night.
  perform stillwake.check_options(v_options, array['pool', 'priority', 'expires_in', 'key', 'on_conflict', 'tenant', 'max_attempts', 'webhook']);
  perform stillwake.check_length(v_options, 'pool');
  perform stillwake.check_length(v_options, 'key');
  perform stillwake.check_length(v_options, 'tenant');
  perform stillwake.read_integer(v_options, 'priority', -1000, 1000);
  perform stillwake.read_integer(v_options, 'max_attempts', 1, 1000);
  perform stillwake.read_on_conflict(v_options);
  perform stillwake.read_webhook(v_options);
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
begin
  -- To read the names of all zones takes some twenty milliseconds.
  if p_zone = 'UTC' or exists (select from stillwake.schedules s where s.zone = p_zone) then
    return;
  end if;
  if not exists (select from pg_timezone_names z where z.name = p_zone) then
    select z.name into v_near from pg_timezone_names z where lower(z.name) = lower(p_zone) or lower(z.name) like '%/' || lower(replace(p_zone, ' ', '_')) order by z.name limit 1;
    perform stillwake.refuse('SW001', format('"%s" is not a time zone that this Postgres knows', p_zone), 'zone',
      coalesce('Did you mean ' || v_near || '?', 'Use a name of the IANA database such as Europe/Berlin, or UTC; see pg_timezone_names.'));
  end if;
end
$$;

create or replace function stillwake.schedule_pool(p_row stillwake.schedules) returns text
language sql stable as $$
  select coalesce(p_row.options ->> 'pool', p.pool) from stillwake.pipelines p where p.name = p_row.pipeline
$$;

-- Its jobs stay. Answers false when there is no such schedule.
create or replace function stillwake.remove_schedule(p_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from stillwake.schedules s where s.name = p_name;
  return found;
end
$$;

-- No slot runs until resume_schedule(). Locks: the row. Raises SW001.
create or replace function stillwake.pause_schedule(p_name text, p_by text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.schedules s set paused_at = coalesce(s.paused_at, stillwake.now()), paused_by = coalesce(s.paused_by, p_by), due_at = null where s.name = p_name;
  if not found then
    perform stillwake.refuse_unknown_schedule(p_name);
  end if;
end
$$;

-- Goes on with the first slot from now: what was paused is not made up for. Locks: the row. Raises SW001.
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
  update stillwake.schedules s set paused_at = null, paused_by = null, next_slot = a.slot, next_at = a.at, due_at = a.at
  from stillwake.cron_after(v_row.fields, v_row.zone, stillwake.now()) a where s.name = p_name;
  perform stillwake.hint(stillwake.schedule_pool(v_row));
end
$$;

create or replace function stillwake.refuse_unknown_schedule(p_name text) returns void
language plpgsql as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from stillwake.schedules order by name limit 20) k);
begin
  perform stillwake.refuse('SW001', format('Schedule "%s" does not exist', coalesce(p_name, 'null')), 'name',
    format('Known schedules: %s. Make it with stillwake.set_schedule(name, settings).', coalesce(v_known, 'none')));
end
$$;

-- The next slots of a schedule. Of one that is paused: those it would have. Raises SW001.
create or replace function stillwake.upcoming(p_name text, p_count integer default 10) returns table (slot text, at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_row stillwake.schedules;
begin
  select * into v_row from stillwake.schedules s where s.name = p_name;
  if not found then
    perform stillwake.refuse_unknown_schedule(p_name);
  elsif v_row.paused_at is not null then
    return query select u.slot, u.at from stillwake.upcoming(v_row.cron, v_row.zone, p_count, stillwake.now()) u;
    return;
  end if;
  slot := v_row.next_slot;
  at := v_row.next_at;
  for v_turn in 1 .. least(p_count, 100000) loop
    exit when at is null;
    return next;
    select a.slot, a.at into slot, at from stillwake.cron_after(v_row.fields, v_row.zone, upcoming.at, upcoming.slot) a;
  end loop;
end
$$;

-- The slots that a cron has after a moment (null: now), whether or not a schedule has it. Raises SW001.
create or replace function stillwake.upcoming(p_cron text, p_zone text, p_count integer default 10, p_after timestamptz default null) returns table (slot text, at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_cron stillwake.cron_fields := stillwake.read_cron(p_cron);
begin
  perform stillwake.check_zone(p_zone);
  select a.slot, a.at into slot, at from stillwake.cron_after(v_cron, p_zone, coalesce(p_after, stillwake.now())) a;
  for v_turn in 1 .. least(p_count, 100000) loop
    exit when at is null;
    return next;
    select a.slot, a.at into slot, at from stillwake.cron_after(v_cron, p_zone, upcoming.at, upcoming.slot) a;
  end loop;
end
$$;

-- Sees to up to p_limit schedules that are due, of one pool or of all. Answers what it did: act is 'fired' (job_id is new), 'joined' (job_id was there), 'skipped'
-- (job_id is still live), 'missed' or 'failed'; count is more than one for missed slots only, and slot is the last of them. One that fails is tried again a
-- minute later and stops no other. Locks: rows of schedules, skipping locked ones; what enqueue_many() and, by 'replace', cancel() lock.
create or replace function stillwake.run_schedules(p_limit integer default 100, p_pool text default null)
returns table (schedule text, act text, slot text, at timestamptz, job_id uuid, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
  v_row stillwake.schedules;
begin
  for v_row in
    select s.* from stillwake.schedules s left join stillwake.pipelines p on p.name = s.pipeline
    where s.due_at <= v_now and (p_pool is null or coalesce(s.options ->> 'pool', p.pool) = p_pool)
    order by s.due_at limit p_limit for update of s skip locked
  loop
    begin
      return query select v_row.name, r.act, r.slot, r.at, r.job_id, r.count, r.note from stillwake.run_schedule(v_row, v_now) r;
    exception when others then
      -- A conflict is between transactions, not of this schedule: the caller repeats the whole.
      if sqlstate in ('40P01', '40001') then
        raise;
      end if;
      schedule := v_row.name;
      act := 'failed';
      slot := v_row.next_slot;
      at := v_row.next_at;
      count := 1;
      note := sqlerrm;
      update stillwake.schedules s set last_error = run_schedules.note, due_at = v_now + interval '1 minute' where s.name = v_row.name;
      return next;
    end;
  end loop;
end
$$;

-- The slots of one schedule that are due, of which the caller has the lock. Up to 100 jobs and 2000 slots: what is left is due still, and for the next call.
create or replace function stillwake.run_schedule(p_row stillwake.schedules, p_now timestamptz)
returns table (act text, slot text, at timestamptz, job_id uuid, count bigint, note text)
language plpgsql as $$
declare
  v_row     stillwake.schedules := p_row;
  v_slots   text[] := '{}';
  v_times   timestamptz[] := '{}';
  v_missed  bigint := 0;
  -- The last late slots, the latest at the end.
  v_late    text[] := '{}';
  v_late_at timestamptz[] := '{}';
  v_id      uuid;
begin
  for v_turn in 1 .. 2000 loop
    exit when v_row.next_at is null or v_row.next_at > p_now or cardinality(v_slots) = 100;
    if v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all' then
      v_slots := v_slots || v_row.next_slot;
      v_times := v_times || v_row.next_at;
    else
      v_late := array[v_late[cardinality(v_late)], v_row.next_slot];
      v_late_at := array[v_late_at[cardinality(v_late_at)], v_row.next_at];
      v_missed := v_missed + 1;
    end if;
    select a.slot, a.at into v_row.next_slot, v_row.next_at from stillwake.cron_after(v_row.fields, v_row.zone, v_row.next_at, v_row.next_slot) a;
  end loop;
  if v_row.catch_up = 'one' and v_missed > 0 and v_slots = '{}' and coalesce(v_row.next_at > p_now, true) then
    v_slots := v_late[2:2];
    v_times := v_late_at[2:2];
    v_late[2] := v_late[1];
    v_late_at[2] := v_late_at[1];
    v_missed := v_missed - 1;
  end if;
  if v_missed > 0 then
    act := 'missed';
    slot := v_late[2];
    at := v_late_at[2];
    count := v_missed;
    note := 'passed while nobody looked';
    return next;
    v_row.missed := v_row.missed + v_missed;
  end if;

  count := 1;
  for slot, at in select * from unnest(v_slots, v_times) loop
    if v_row.overlap in ('skip', 'replace') and stillwake.job_is_live(v_row.last_job) then
      if v_row.overlap = 'skip' then
        act := 'skipped';
        job_id := v_row.last_job;
        note := format('the job of %s has not ended', v_row.last_slot);
        v_row.skipped := v_row.skipped + 1;
        return next;
        continue;
      end if;
      perform stillwake.cancel(v_row.last_job, format('Replaced by that of %s', slot), 'schedule ' || v_row.name);
    end if;
    v_id := stillwake.new_id();
    job_id := (stillwake.enqueue_many(v_row.pipeline, jsonb_build_array(v_row.input), v_row.options || stillwake.slot_options(v_row, slot), array[v_id]))[1];
    act := case when job_id = v_id then 'fired' else 'joined' end;
    note := null;
    update stillwake.live_jobs j
    set origin = jsonb_build_object('schedule', v_row.name, 'slot', slot, 'at', to_char(run_schedule.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) where j.id = v_id;
    v_row.last_job := job_id;
    v_row.last_slot := slot;
    v_row.last_at := at;
    v_row.fired := v_row.fired + 1;
    return next;
  end loop;
  update stillwake.schedules s set next_slot = v_row.next_slot, next_at = v_row.next_at, due_at = v_row.next_at, last_slot = v_row.last_slot, last_at = v_row.last_at,
    last_job = v_row.last_job, last_error = null, fired = v_row.fired, skipped = v_row.skipped, missed = v_row.missed
  where s.name = v_row.name;
end
$$;

-- What the job of a slot is enqueued with besides the options of its schedule. Who must not run beside the last one waits for the key that both have.
create or replace function stillwake.slot_options(p_row stillwake.schedules, p_slot text) returns jsonb
language sql immutable as $$
  select jsonb_build_object('idempotency_keys', jsonb_build_array('schedule:' || p_row.name || ':' || p_slot))
    || case when p_row.overlap in ('queue', 'replace')
      then jsonb_build_object('key', coalesce(p_row.options ->> 'key', 'schedule:' || p_row.name), 'on_conflict', 'wait') else '{}' end
$$;
