-- Housekeeping: the part of the watchdog that no job waits for. Partitions for the coming weeks, and the deletion of
-- old data. Workers, servers and orchestrators do it in portions: each call of housekeep() is one short transaction.

-- Does one portion of one task, of at most p_limit rows or one partition, and returns what it did. A count of 0: nothing
-- is left, or a lock was not available. No row: another session is at it.
create or replace function stillwake.housekeep(p_task text, p_limit integer default 1000)
returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not p_task = any (stillwake.housekeeping_tasks()) then
    perform stillwake.refuse('SW001', format('%s is no task of the housekeeping', p_task), 'task',
      'Use one of ' || array_to_string(stillwake.housekeeping_tasks(), ', ') || '.');
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended('stillwake housekeeping', 0)) then
    return;
  end if;
  if p_task = 'partitions' then
    return query select 'prepared', stillwake.make_partitions(1), 'partitions';
  elsif p_task = 'retention' then
    return query select p.act, p.count, p.note from stillwake.prune(1, p_limit) p;
  elsif p_task = 'leftovers' then
    return query select 'deleted', stillwake.delete_leftovers(p_limit), 'expired idempotency keys and leftover rows';
  elsif p_task = 'webhooks' then
    return query select 'forgotten', stillwake.prune_webhooks(p_limit), 'webhooks past their retention';
  else
    return query select 'removed', stillwake.prune_machines(p_limit) + stillwake.prune_sessions(),
      'rows of past machines and sessions';
  end if;
end
$$;

-- In the order in which the watchdog does them: partitions last, because their locks are held until commit.
create or replace function stillwake.housekeeping_tasks() returns text[]
language sql immutable parallel safe as $$
  select array['leftovers', 'webhooks', 'sessions', 'partitions', 'retention']
$$;

-- Whether the last complete housekeeping is older than p_every.
create or replace function stillwake.housekeeping_due(p_every interval) returns boolean
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select h.kept_at <= stillwake.now() - p_every or h.kept_at > stillwake.now() from stillwake.housekeeping h
$$;

-- Records that every task is done.
create or replace function stillwake.housekeeping_done() returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update stillwake.housekeeping set kept_at = stillwake.now()
$$;

-- The existing partitions with their bounds, which are Mondays: ended_jobs_20300107 holds rows that may be deleted in
-- the week of 7 January 2030; feed_20300107 holds rows of jobs whose id was created between these Mondays.
create or replace function stillwake.partitions() returns table (parent text, name text, week date, until date)
language sql stable as $$
  select p.relname::text, c.relname::text,
    case p.relname when 'ended_jobs' then b.low::date else stillwake.week_of(b.low::uuid) end,
    case p.relname when 'ended_jobs' then b.high::date else stillwake.week_of(b.high::uuid) end
  from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
  cross join lateral (
    select substring(e.bound from 'FROM \(''([^'']+)''\)') as low, substring(e.bound from 'TO \(''([^'']+)''\)') as high
    from pg_get_expr(c.relpartbound, c.oid) e (bound) offset 0
  ) b
  where p.relnamespace = 'stillwake'::regnamespace
    and p.relname in ('ended_jobs', 'ended_attempts', 'checkpoints', 'feed', 'artifacts', 'spawns', 'spawn_parts', 'signals')
    and c.relname !~ '_(default|forever)$'
  order by 1, 3
$$;

-- Partitions that should exist and do not: for the coming four weeks, and for missed weeks, whose rows are in the default
-- partition. The width of a partition of attempts, checkpoints, feed … follows from the longest retention of a
-- pipeline; it is cut where a partition of another width exists.
create or replace function stillwake.missing_partitions() returns table (parent text, week date, until date)
language sql stable as $$
  with keeps as (
    select unnest(array[p.keep_completed, p.keep_failed, p.keep_cancelled]) as keep from stillwake.pipelines p
    union values (interval '14 days'), (interval '30 days')
  ), days as (
    select (stillwake.now() at time zone 'UTC')::date + g.week * 7 as day from generate_series(0, 4) g (week)
  ), existing as materialized (
    select p.* from stillwake.partitions() p
  ), parents as (
    -- A large default partition is scanned once for each partition that is attached: few wide ones are made then.
    select t.parent, greatest((select stillwake.weeks_per_partition(max(k.keep)) from keeps k),
      case when pg_relation_size(format('stillwake.%I', t.parent || '_default')) > 67108864 then 13 end) as weeks
    from (values ('ended_attempts'), ('checkpoints'), ('feed'), ('artifacts'), ('spawns'), ('spawn_parts'), ('signals')) t (parent)
  ), wanted as (
    select t.parent, w.day, t.weeks from parents t
    cross join lateral (select d.day from days d union select stillwake.first_missed_week(t.parent)) w (day)
    where w.day is not null
  )
  select distinct 'ended_jobs', w.day, w.day + 7
  from (
    select stillwake.forget_on(d.day::timestamp at time zone 'UTC', k.keep) from keeps k cross join days d
    union (select f.forget_on from stillwake.ended_jobs_default f order by f.forget_on limit 1)
  ) w (day)
  where w.day < 'infinity' and not exists (select from existing e where e.parent = 'ended_jobs' and e.week <= w.day and e.until > w.day)
  union
  select w.parent,
    greatest(stillwake.first_week(w.day, w.weeks),
      (select max(e.until) from existing e where e.parent = w.parent and e.until <= w.day)),
    least(stillwake.first_week(w.day, w.weeks) + 7 * w.weeks,
      (select min(e.week) from existing e where e.parent = w.parent and e.week > w.day))
  from wanted w
  where not exists (select from existing e where e.parent = w.parent and e.week <= w.day and e.until > w.day)
  order by 1, 2
$$;

-- The first week of the past two years that has rows in the default partition.
create or replace function stillwake.first_missed_week(p_parent text) returns date
language plpgsql stable as $$
declare
  v_monday timestamp := date_trunc('week', stillwake.now() at time zone 'UTC');
  v_id     uuid;
begin
  execute format('select job_id from stillwake.%I where job_id >= $1 and job_id < $2 order by job_id limit 1', p_parent || '_default')
  into v_id using stillwake.first_id((v_monday - interval '730 days') at time zone 'UTC'), stillwake.first_id(v_monday at time zone 'UTC');
  return stillwake.week_of(v_id);
end
$$;

-- Creates at most p_limit of the missing partitions. Locks: see make_partition().
create or replace function stillwake.make_partitions(p_limit integer default 1000) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$
declare
  v_count bigint := 0;
  v_made  integer;
  v_one   record;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('stillwake partitions', 0)) then
    return 0;
  end if;
  for v_one in select m.* from stillwake.missing_partitions() m loop
    v_made := stillwake.make_partition(v_one.parent, v_one.week, v_one.until, 2000);
    -- The locks of those already created are held until commit: other sessions must not wait behind them for one
    -- lock_timeout after another.
    exit when v_made is null;
    v_count := v_count + v_made;
    exit when v_count >= p_limit;
  end loop;
  return v_count;
end
$$;

-- Attaches one partition, and moves its rows from the default one, at most p_rows. With more rows than that it begins
-- after the week of the last one: these rows stay where they are, and are deleted there. Returns 1, 0 when no week
-- is left, or null when a lock was not available.
-- Locks: the parent, against writes, while rows of these weeks may be written: a write that has chosen the default
-- partition would fail after the attachment. The default partition, against everything.
create or replace function stillwake.make_partition(p_parent text, p_week date, p_until date, p_rows integer) returns integer
language plpgsql as $$
declare
  v_default text := p_parent || '_default';
  v_column  text := case p_parent when 'ended_jobs' then 'forget_on' else 'job_id' end;
  v_week    date := p_week;
  v_name    text;
  v_low     text := stillwake.partition_bound(p_parent, p_week);
  v_high    text := stillwake.partition_bound(p_parent, p_until);
  v_rows    bigint;
  v_last    text;
begin
  if p_parent = 'ended_jobs' or p_week <= (stillwake.now() at time zone 'UTC')::date + 1 then
    execute format('lock table stillwake.%I in share row exclusive mode', p_parent);
  end if;
  execute format('lock table stillwake.%I in access exclusive mode', v_default);
  execute format('select count(*) from (select from stillwake.%1$I where %2$I >= %3$L and %2$I < %4$L limit %5$s) r',
    v_default, v_column, v_low, v_high, p_rows + 1) into v_rows;
  if v_rows > p_rows then
    if p_parent = 'ended_jobs' then
      return 0;
    end if;
    execute format('select job_id from stillwake.%I where job_id < %L order by job_id desc limit 1', v_default, v_high) into v_last;
    v_week := stillwake.week_of(v_last::uuid) + 7;
    v_low := stillwake.partition_bound(p_parent, v_week);
    if v_week >= p_until then
      return 0;
    end if;
  end if;
  v_name := p_parent || '_' || to_char(v_week, 'YYYYMMDD');
  execute format('create table stillwake.%I (like stillwake.%I including defaults including constraints)', v_name, p_parent);
  if v_rows > 0 then
    execute format('with moved as (delete from stillwake.%1$I where %2$I >= %3$L and %2$I < %4$L returning *)
      insert into stillwake.%5$I select * from moved', v_default, v_column, v_low, v_high, v_name);
  end if;
  execute format('alter table stillwake.%I attach partition stillwake.%I for values from (%L) to (%L)', p_parent, v_name, v_low, v_high);
  return 1;
exception when lock_not_available then
  return null;
end
$$;

-- A Monday as the bound of a partition of this table.
create or replace function stillwake.partition_bound(p_parent text, p_week date) returns text
language sql immutable as $$
  select case p_parent when 'ended_jobs' then p_week::text else stillwake.first_id(p_week::timestamp at time zone 'UTC')::text end
$$;

-- Drops at most p_limit old partitions: ended jobs with the week in which their retention ended, except children whose
-- parent is live and may still read their results; attempts, checkpoints and feed when no job created in the weeks of
-- the partition is left. Moves at most p_rows of such children per partition.
-- Locks: the parent tables, with lock_timeout.
create or replace function stillwake.prune(p_limit integer default 1000, p_rows integer default 10000)
returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$
declare
  v_today date := (stillwake.now() at time zone 'UTC')::date;
  v_part  record;
  v_done  text[] := '{}';
  v_moved integer;
begin
  act := 'kept';
  count := 0;
  for v_part in
    select p.* from stillwake.partitions() p
    where case when p.parent = 'ended_jobs' then p.week <= v_today
      else p.until <= v_today and not stillwake.has_jobs_between(p.week, p.until) end
  loop
    begin
      v_moved := case v_part.parent when 'ended_jobs' then stillwake.keep_children_of_live(v_part.name, p_rows) else 0 end;
      count := count + v_moved;
      -- With more children than one call moves, the partition is dropped by a later call.
      exit when v_moved >= p_rows;
      execute format('drop table stillwake.%I', v_part.name);
      v_done := v_done || v_part.name;
    exception when lock_not_available then
      -- Dropped partitions keep their parent locked until commit: the rest is for the next call.
      exit;
    end;
    exit when cardinality(v_done) >= p_limit;
  end loop;
  if count > 0 then
    note := 'results that a waiting parent may still read';
    return next;
  end if;
  act := 'dropped';
  count := cardinality(v_done);
  note := coalesce(nullif(array_to_string(v_done, ', '), ''), 'no partition is past its retention');
  return next;
end
$$;

-- Moves at most p_limit children of live parents from a partition of ended_jobs into that of two weeks later. Returns how
-- many. Locks: the moved rows.
create or replace function stillwake.keep_children_of_live(p_partition text, p_limit integer) returns integer
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
  return cardinality(v_ids);
end
$$;

-- Deletes rows that are in no partition to drop, at most p_limit per table: expired idempotency keys, audit entries, ended
-- jobs past their retention in the default partition, and rows of jobs whose ids contain a time without a partition.
-- Rows of one such week are deleted together, when no job of that week is left.
create or replace function stillwake.delete_leftovers(p_limit integer default 1000) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_today  date := (stillwake.now() at time zone 'UTC')::date;
  v_parent text;
  v_id     uuid;
  v_rows   bigint;
  v_sum    bigint := 0;
begin
  delete from stillwake.idempotency_keys where (pipeline, key, tenant) in (
    select pipeline, key, tenant from stillwake.idempotency_keys where forget_on <= v_today limit p_limit for update skip locked);
  get diagnostics v_sum = row_count;
  -- Audit entries are kept for 400 days. Their ids begin with the time.
  delete from stillwake.audit where id in (select id from stillwake.audit where id < stillwake.first_id(v_today - 400)
    order by id limit p_limit);
  get diagnostics v_rows = row_count;
  v_sum := v_sum + v_rows;
  delete from stillwake.ended_jobs_default where ctid = any (array(select e.ctid from stillwake.ended_jobs_default e
    where e.forget_on <= v_today and not exists (select from stillwake.live_jobs p where p.id = e.parent_id) limit p_limit));
  get diagnostics v_rows = row_count;
  v_sum := v_sum + v_rows;
  foreach v_parent in array array['ended_attempts', 'checkpoints', 'feed', 'artifacts', 'spawns', 'spawn_parts', 'signals'] loop
    execute format('select job_id from stillwake.%I order by job_id limit 1', v_parent || '_default') into v_id;
    continue when v_id is null or stillwake.has_jobs_between(stillwake.week_of(v_id), stillwake.week_of(v_id) + 7);
    execute format('delete from stillwake.%1$I where ctid = any (array(select ctid from stillwake.%1$I where job_id < $1 limit $2))',
      v_parent || '_default')
    using stillwake.first_id((stillwake.week_of(v_id) + 7)::timestamp at time zone 'UTC'), p_limit;
    get diagnostics v_rows = row_count;
    v_sum := v_sum + v_rows;
  end loop;
  return v_sum;
end
$$;

-- Deletes what sessions have left: listeners and watches that were not renewed, and an old copy of the feed for Supabase
-- Realtime.
create or replace function stillwake.prune_sessions() returns bigint
language plpgsql as $$
declare
  v_rows bigint;
begin
  delete from stillwake.listeners l where l.until < stillwake.now();
  get diagnostics v_rows = row_count;
  perform stillwake.delete_expired_watches(stillwake.now(), 10000);
  perform stillwake.trim_realtime();
  return v_rows;
end
$$;

-- Whether any job whose id was created from this Monday to before that one still exists, live or ended.
create or replace function stillwake.has_jobs_between(p_week date, p_until date) returns boolean
language plpgsql stable as $$
declare
  v_low  uuid := stillwake.first_id(p_week::timestamp at time zone 'UTC');
  v_high uuid := stillwake.first_id(p_until::timestamp at time zone 'UTC');
begin
  return exists (select from stillwake.live_jobs where id >= v_low and id < v_high)
    or exists (select from stillwake.ended_jobs where id >= v_low and id < v_high);
end
$$;
