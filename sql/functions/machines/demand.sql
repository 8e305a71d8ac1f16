-- Demand: how much work there is, and when the next is due. Read by workers instead of polling, and by the
-- orchestrator.

-- The next time at which something happens in these pools (all when null): a job becomes claimable, a schedule is due,
-- a lease expires, a job expires, a key is checked again, or a new budget period begins for a pool whose budget is used
-- up. A worker passes the pipelines it knows, and the versions of its code as in claim(), so that it does not wake for
-- jobs it cannot run. In the past when there is work now; null when nothing is scheduled at all.
create or replace function stillwake.next_due(
  p_pools text[] default null, p_pipelines text[] default null, p_versions integer[] default null, p_oldest integer[] default null
) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_due      timestamptz;
  v_pool     text;
  v_laned    boolean;
  v_priority integer;
  v_first    timestamptz;
begin
  for v_pool, v_laned in
    select p.name, p.laned from stillwake.pools p
    where p.paused_at is null and (p_pools is null or p.name = any (p_pools))
      -- At its cap a pool has nothing due until a job ends.
      and (p.concurrency is null or p.concurrency > (select coalesce(sum(cardinality(l.job_ids)), 0) from stillwake.leases l
        where l.pool = p.name))
  loop
    v_priority := 32767;
    if v_laned then
      v_due := least(v_due, stillwake.lanes_due(v_pool, p_pipelines, p_versions, p_oldest));
      continue;
    end if;
    loop
      select max(j.priority) into v_priority from stillwake.live_jobs j
      where j.pool = v_pool and j.lane is null and j.priority < v_priority;
      exit when v_priority is null;
      select j.run_at into v_first from stillwake.live_jobs j
      where j.pool = v_pool and j.lane is null and j.priority = v_priority and j.lease_id is null and j.run_at < 'infinity'
        and (p_pipelines is null or j.pipeline = any (p_pipelines))
        and (j.version is null or p_versions is null or stillwake.version_matches(j.version, j.pipeline, p_pipelines, p_versions, p_oldest))
      order by j.run_at, j.id limit 1;
      v_due := least(v_due, v_first);
    end loop;
  end loop;
  return least(v_due,
    (select min(p.resume_at) from stillwake.pools p where p.resume_at is not null and (p_pools is null or p.name = any (p_pools))
      and stillwake.pool_has_jobs(p.name)),
    (select s.due_at from stillwake.schedules s join stillwake.pipelines i on i.name = s.pipeline
      join stillwake.pools p on p.name = coalesce(s.options ->> 'pool', i.pool)
      where s.due_at is not null and p.paused_at is null and (p_pools is null or p.name = any (p_pools))
        and (p_pipelines is null or s.pipeline = any (p_pipelines))
      order by s.due_at limit 1),
    (select min(f.check_at) from stillwake.free_keys f where p_pools is null or f.pool = any (p_pools)),
    (select min(l.until) from stillwake.leases l where p_pools is null or l.pool = any (p_pools)),
    (select min(j.expires_at) from stillwake.live_jobs j
      where j.expires_at is not null and j.started_at is null and (p_pools is null or j.pool = any (p_pools))));
end
$$;

-- Each of the two indexes contains a part of the jobs.
create or replace function stillwake.pool_has_jobs(p_pool text) returns boolean
language sql stable as $$
  select exists (select from stillwake.live_jobs j where j.pool = p_pool and j.lane is null)
    or exists (select from stillwake.live_jobs j where j.pool = p_pool and j.lane is not null)
$$;

-- The work of each pool (all when null): jobs claimable now, counted up to p_max so that the cost does not depend on
-- the backlog; jobs running; since when the first has been waiting; when the next job or schedule is due.
create or replace function stillwake.demand(p_pools text[] default null, p_max integer default 1000)
returns table (pool text, paused boolean, claimable integer, running integer, oldest timestamptz, next_due timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  select p.name, p.paused_at is not null,
    least(l.claimable, case when p.concurrency is not null then greatest(p.concurrency - r.running, 0) end), r.running, l.oldest,
    case when p.paused_at is null then stillwake.next_due(array[p.name]) when stillwake.pool_has_jobs(p.name) then p.resume_at end
  from stillwake.pools p
  cross join lateral (
    select count(*)::integer as claimable, min(w.run_at) as oldest
    from (
      select j.run_at from stillwake.live_jobs j
      where j.pool = p.name and j.lane is null and not p.laned and j.run_at <= v_now and j.lease_id is null
        and (j.expires_at is null or j.started_at is not null or j.expires_at > v_now)
      order by j.priority desc, j.run_at limit p_max
    ) w
    where not p.laned
    union all
    select n.claimable, n.oldest from stillwake.lanes_demand(p.name, p_max) n where p.laned
    order by 1 desc limit 1
  ) l
  cross join lateral (
    select coalesce(sum(cardinality(s.job_ids)), 0)::integer as running from stillwake.leases s where s.pool = p.name
  ) r
  where p_pools is null or p.name = any (p_pools)
  order by p.name;
end
$$;
