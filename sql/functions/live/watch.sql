-- Live updates. A server with followers of a job lists it in watches and listens to "stillwake.feed"; every change of a
-- watched job sends its id there, once per statement; the server then reads what is new for all its jobs together. A
-- hint may be lost: a listener also reads once after each LISTEN, and at intervals.

-- Watches these jobs, or extends their watches, for p_span. Also removes expired watches of dead watchers, in bounded
-- number.
-- Locks: watches by job. Raises SW001.
create or replace function stillwake.watch(p_watcher text, p_jobs uuid[], p_span interval default '2 minutes') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  if coalesce(length(p_watcher), 0) not between 1 and 200 or p_span is null or p_span not between '1 second' and '1 hour'
    or cardinality(p_jobs) > 10000 then
    perform stillwake.refuse('SW001', format('watch(%s jobs for %s) is out of range', cardinality(p_jobs), p_span), 'watch',
      'A watcher has a name and watches up to 10000 jobs at a time, for 1 second to 1 hour.');
  end if;
  perform stillwake.delete_expired_watches(v_now, 1000);
  insert into stillwake.watches (job_id, watcher, until)
  select distinct j, p_watcher, v_now + p_span from unnest(p_jobs) j where j is not null order by j
  on conflict (job_id, watcher) do update set until = excluded.until;
end
$$;

-- Stops watching these jobs, or all when null. Locks: watches of this watcher.
create or replace function stillwake.unwatch(p_watcher text, p_jobs uuid[] default null) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from stillwake.watches w where w.watcher = p_watcher and (p_jobs is null or w.job_id = any (p_jobs))
$$;

-- Deletes expired watches. Locks: watches, skipping locked rows.
create or replace function stillwake.delete_expired_watches(p_now timestamptz, p_limit integer) returns void
language sql as $$
  delete from stillwake.watches w where (w.job_id, w.watcher) in (
    select o.job_id, o.watcher from stillwake.watches o where o.until < p_now limit p_limit for update skip locked)
$$;

-- Hints that something visible about these jobs has changed. At most one NOTIFY, with the ids of the watched jobs, or *
-- for many; none when there are no watchers, because it takes a global lock at commit. Called once per changing
-- statement.
create or replace function stillwake.hint_watchers(p_jobs uuid[]) returns void
language plpgsql as $$
declare
  v_ids text;
begin
  -- Usually the table is small and empty. Deleted rows stay in it while an old snapshot is open: scanning 20,000 of
  -- them takes 0.4 ms.
  if pg_relation_size('stillwake.watches') < 65536 and not exists (select from stillwake.watches) then
    return;
  end if;
  v_ids := stillwake.watched(p_jobs);
  if v_ids is not null then
    perform pg_notify('stillwake.feed', case when length(v_ids) > 7900 then '*' else v_ids end);
  end if;
end
$$;

-- The watched ones of these jobs, separated by commas; null for none. One lookup per job: a join would read all
-- watches.
-- The SET clauses pin the plan: one that was planned while the table was small would scan all of it for each job.
create or replace function stillwake.watched(p_jobs uuid[]) returns text
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return (
    select string_agg(distinct j::text, ',') from unnest(p_jobs) j
    where (select true from stillwake.watches w where w.job_id = j and w.until > v_now limit 1));
end
$$;

-- What is new about many jobs, in one snapshot. Per job up to four kinds of rows:
--   state  its status (data) and the last sequence number of its feed (seq); none when there is no such job
--   end    its result, when it has ended and p_ends; for the first jobs, up to about 4 MB: call again for the rest
--   feed   lines and events after p_afters, at most p_max and about 256 kB; the last 100 where that is null
--   step   checkpoints saved after p_steps_after (microseconds since 1970), at most the latest 500; none where null
-- The SET clauses pin the plan: primary key lookups, planned once per session. Stable, so that all its statements see
-- one snapshot.
create or replace function stillwake.read_feeds(p_jobs uuid[], p_afters bigint[], p_steps_after bigint[], p_max integer default 500,
  p_ends boolean default true)
returns table (job_id uuid, what text, seq bigint, at timestamptz, epoch bigint, kind text, level text, step text, message text,
  data jsonb, size integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
  v_afters bigint[] := p_afters;
begin
  return query
  select j.id, 'state', j.seq, null::timestamptz, j.epoch, null, null, null, null,
    jsonb_build_object('state', j.state, 'waiting_for', j.waiting_for, 'awaited_event', j.awaited_event, 'attempt', j.attempt,
      'max_attempts', j.max_attempts, 'run_at', case when isfinite(j.run_at) then j.run_at end,
      'started_at', j.started_at, 'ended_at', j.ended_at, 'progress', j.progress, 'missing', j.missing), 0
  from stillwake.jobs j where j.id = any (p_jobs);
  return query
  select e.id, 'end', e.seq, null::timestamptz, e.epoch, null, null, null, null,
    jsonb_build_object('state', e.state, 'output', e.output, 'failure', e.failure), e.size
  from (
    select o.*, sum(o.size) over (order by o.n) - o.size as before from (
      select array_position(p_jobs, l.id) as n, l.id, l.seq, l.epoch, l.state, l.output, l.failure,
        coalesce(octet_length(l.output::text), 0) + coalesce(octet_length(l.failure::text), 0) as size
      from stillwake.ended_jobs l where p_ends and l.id = any (p_jobs)
    ) o
  ) e where e.before < 4194304;
  if array_position(p_afters, null) is not null then
    v_afters := array(
      select coalesce(a.after, (select greatest(j.seq - 100, 0) from stillwake.jobs j where j.id = a.id), 0)
      from unnest(p_jobs, p_afters) with ordinality a (id, after, n) order by a.n);
  end if;
  return query
  select a.id, 'feed', f.seq, f.at, f.epoch, f.kind, f.level, f.step, f.message, f.data, f.size
  from unnest(p_jobs, v_afters) with ordinality a (id, after, n) cross join lateral (
    select l.*, sum(l.size) over (order by l.seq) - l.size as before from (
      select o.seq, o.at, o.epoch, o.kind, o.level, o.step, o.message, o.data,
        -- Not pg_column_size(): the stored size of a compressed value says little.
        coalesce(octet_length(o.message), 0) + coalesce(octet_length(o.data::text), 0) as size
      from stillwake.feed o where o.job_id = a.id and o.seq > a.after order by o.seq limit p_max
    ) l
  ) f where f.before < 262144 order by a.n, f.seq;
  return query
  select a.id, 'step', null::bigint, c.saved_at, c.epoch, null, null, c.step, null,
    jsonb_build_object('started_at', c.started_at, 'saved_us', (extract(epoch from c.saved_at) * 1000000)::bigint::text), 0
  from unnest(p_jobs, p_steps_after) with ordinality a (id, after, n) cross join lateral (
    select o.step, o.epoch, o.started_at, o.saved_at from stillwake.checkpoints o
    where o.job_id = a.id and o.saved_at > timestamptz 'epoch' + a.after * interval '1 microsecond'
      -- A wait in progress and an unfinished list are not results yet; an optional step that failed has none.
      and o.failed is null and case when pg_column_size(o.output) < 40000 then
        not coalesce(o.output #>> '{$stillwake,0}' = 'wait' or o.output #>> '{$stillwake,0}' = 'position'
          and o.output #> '{$stillwake,1,over}' is null, false) else true end
    order by o.saved_at desc, o.step limit 500
  ) c where a.after is not null order by a.n, c.saved_at, c.step;
end
$$;
