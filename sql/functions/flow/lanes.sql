-- Lanes: the order of claims. In most pools jobs form one queue. In a pool with jobs of tenants, or with a gated
-- pipeline (one with a cap, limits or breakers), each job also has a lane, and claims go from lane to lane:
--
--   plain pipelines    '' + US + tenant         one lane per tenant, so that no tenant waits behind the jobs of another
--   gated pipelines    name + US + tenant       separate lanes: jobs that may not start now are skipped in one step
--
-- No lane is counted and no row of one is hot: the lanes that have jobs are found by skipping along an index, and each worker
-- remembers only which lane it served last.
--
-- A job may be in the wrong lane or in none: it was enqueued before its pool got lanes, or before its pipeline got or
-- lost its gates; or it was enqueued after that by a transaction that did not see the change yet and stayed open, for
-- hours if need be. No flag and no time limit tells that there are no such jobs left, so the claims themselves find them:
--
--   in no lane                                  live_jobs_queue contains only these: each claim assigns a portion of them
--   in the lane of a pipeline without gates     claimed from there, like any plain job
--   in a plain lane, and its pipeline is gated  moved when a claim meets it; after a change of the gates claims also go
--                                               through the jobs of the pool once, portion by portion
--
-- A lane is looked up by row comparisons and `order by lane, run_at, id`, never by `lane = …`: with sorts disabled only
-- live_jobs_lane has that order. An equality could also be answered by live_jobs_queue, which would scan the backlog of
-- all other lanes. For the same reason a variable that is compared with other columns must not have the collation of
-- the lane: no index of theirs would match.

create or replace function stillwake.lane_of(p_gated boolean, p_pipeline text, p_tenant text) returns text
language sql immutable parallel safe as $$
  select case when p_gated then p_pipeline else '' end || chr(31) || coalesce(p_tenant, '')
$$;

-- The lane of a job that is requeued; null in a pool without lanes.
create or replace function stillwake.lane_for_pool(p_pool text, p_pipeline text, p_tenant text) returns text
language sql stable as $$
  select stillwake.lane_of(coalesce((select gated from stillwake.pipelines where name = p_pipeline), false), p_pipeline, p_tenant)
  from stillwake.pools where name = p_pool and laned
$$;

-- Enables lanes in a pool or, if it has lanes, starts to assign them again because gates have changed. The claims of the
-- pool move its jobs, and the watchdog those that claims have not met, for ten minutes. Only the row of the pool is
-- changed here, because the caller may be a long transaction of the user.
create or replace function stillwake.lane_pool(p_pool text) returns void
language plpgsql as $$
begin
  update stillwake.pools set laned = true, relane_until = stillwake.now() + interval '10 minutes',
    relane_after = case when laned then '00000000-0000-0000-0000-000000000000' end::uuid where name = p_pool;
end
$$;

-- Assigns lanes to due jobs that have none, up to p_limit of them. Usually there are none, and a claim finds that with
-- one look into the index. The caller pins the plan. Locks: live_jobs, skipping locked rows.
create or replace function stillwake.assign_lanes(p_pool text, p_limit integer, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_priority integer := 32767;
begin
  while p_limit > 0 loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is null and j.priority < v_priority;
    exit when v_priority is null;
    p_limit := p_limit - stillwake.move_to_lanes(array(
      select j.id from stillwake.live_jobs j
      where j.pool = p_pool and j.lane is null and j.priority = v_priority and j.run_at <= p_now and j.lease_id is null
      order by j.run_at, j.id limit p_limit for update skip locked));
  end loop;
end
$$;

-- Moves jobs, whose rows the caller has locked, to the lanes of their pipelines and tenants. Returns how many.
create or replace function stillwake.move_to_lanes(p_ids uuid[]) returns integer
language plpgsql as $$
declare
  v_count integer := 0;
begin
  if p_ids <> '{}' then
    update stillwake.live_jobs j set lane = stillwake.lane_for_pool(j.pool, j.pipeline, j.tenant) where j.id = any (p_ids);
    get diagnostics v_count = row_count;
  end if;
  return v_count;
end
$$;

-- The next portion of a pass through the jobs of a pool whose gates have changed: see lane_pool(). Returns whether there
-- is more to do. Locks: the pool, unless it is locked; then live_jobs, skipping locked rows.
create or replace function stillwake.relane_next(p_pool text, p_limit integer) returns boolean
language plpgsql as $$
declare
  v_after uuid;
  v_ids   uuid[];
begin
  select p.relane_after into v_after from stillwake.pools p where p.name = p_pool and p.relane_after is not null
  for no key update skip locked;
  if not found then
    return false;
  end if;
  v_ids := array(select j.id from stillwake.live_jobs j where j.id > v_after order by j.id limit p_limit);
  perform stillwake.move_to_lanes(array(
    select j.id from stillwake.live_jobs j left join stillwake.pipelines p on p.name = j.pipeline
    where j.id = any (v_ids) and j.pool || '' = p_pool and j.lease_id is null
      and (j.key is null or j.key_slot is not null or j.state = 'paused')
      and j.lane is distinct from stillwake.lane_of(coalesce(p.gated, false), j.pipeline, j.tenant) collate "C"
    for update of j skip locked));
  update stillwake.pools set relane_after = v_ids[p_limit] where name = p_pool;
  return cardinality(v_ids) = p_limit;
end
$$;

-- Assigns waiting jobs to their lane. Running jobs get it when they are requeued, and jobs that wait for their key when
-- they are admitted, because end_jobs() skips locked rows. Returns how many were changed. Locks: live_jobs, skipping
-- locked rows.
create or replace function stillwake.relane(p_pool text, p_limit integer) returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  with strays as (
    select j.id, stillwake.lane_of(coalesce(p.gated, false), j.pipeline, j.tenant) as lane
    from stillwake.live_jobs j left join stillwake.pipelines p on p.name = j.pipeline
    where j.pool = p_pool and j.lease_id is null and (j.key is null or j.key_slot is not null or j.state = 'paused')
      and j.lane is distinct from stillwake.lane_of(coalesce(p.gated, false), j.pipeline, j.tenant) collate "C"
    limit p_limit for update of j skip locked
  )
  update stillwake.live_jobs j set lane = s.lane from strays s where j.id = s.id;
  get diagnostics v_count = row_count;
  if v_count = 0 then
    update stillwake.pools set relane_until = null where name = p_pool and relane_until < stillwake.now();
  end if;
  return v_count;
end
$$;

-- How many jobs of a gated pipeline may start now (null: no limit); if none, until when (null: until a job ends) and
-- the cause.
create or replace function stillwake.gate(p_pipeline stillwake.pipelines, out quota integer, out until timestamptz, out held_by text,
  out name text, out reason text, out half_open text[])
language plpgsql stable as $$
declare
  v_now     timestamptz := stillwake.now();
  v_breaker stillwake.breakers;
  v_free    integer;
  v_limit   record;
begin
  if p_pipeline.breakers <> '{}' then
    for v_breaker in select * from stillwake.breakers b where b.name = any (p_pipeline.breakers) and b.resume_at is not null
      order by b.name loop
      if v_breaker.resume_at > v_now or stillwake.is_probing(v_breaker) then
        if quota is distinct from 0 or until < v_breaker.resume_at then
          until := case when v_breaker.resume_at > v_now then v_breaker.resume_at end;
        end if;
        quota := 0;
        held_by := 'breaker';
        name := v_breaker.name;
        reason := v_breaker.reason;
      else
        quota := least(quota, 1);
        half_open := half_open || v_breaker.name;
      end if;
    end loop;
  end if;
  if p_pipeline.limits <> '{}' and quota is distinct from 0 then
    for v_limit in select l.name, b.* from stillwake.limits l cross join lateral stillwake.limit_quota(l) b
      where l.name = any (p_pipeline.limits) loop
      quota := least(quota, v_limit.free);
      if v_limit.free = 0 then
        until := greatest(until, v_limit.until);
        held_by := 'limit';
        name := v_limit.name;
        reason := v_limit.reason;
      end if;
    end loop;
  end if;
  if p_pipeline.concurrency is not null and quota is distinct from 0 then
    v_free := greatest(0, p_pipeline.concurrency - stillwake.running_jobs(p_pipeline.name));
    quota := least(quota, v_free);
    if v_free = 0 then
      held_by := 'concurrency';
      name := p_pipeline.name;
      reason := format('its limit of %s running jobs is reached', p_pipeline.concurrency);
    end if;
  end if;
end
$$;

-- How many jobs of a pipeline with a cap run. Counted one by one only until its first claim has done so.
create or replace function stillwake.running_jobs(p_pipeline text) returns integer
language plpgsql stable as $$
declare
  v_running integer;
begin
  select c.running - coalesce((select sum(e.count) from stillwake.cap_ends e where e.name = p_pipeline), 0) into v_running
  from stillwake.caps c where c.name = p_pipeline;
  if not found then
    select count(*) into v_running from stillwake.leases l join stillwake.live_jobs j on j.id = any (l.job_ids) and j.lease_id = l.id
    where j.pipeline = p_pipeline;
  end if;
  return v_running;
end
$$;

-- Subtracts the jobs that have ended from the counts of these pipelines. Once a minute, and at first, they are counted
-- one by one: a claim or a settlement that did not see a new cap has not counted its jobs. In one statement, because what
-- has ended and what runs must be of one snapshot. The caller holds the locks of these caps.
create or replace function stillwake.count_caps(p_names text[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_stale text[] := array(select n from unnest(p_names) n
    where not exists (select from stillwake.caps c
      where c.name = n and c.counted_at > p_now - interval '1 minute' and c.counted_at <= p_now));
begin
  if v_stale <> '{}' then
    with ended as (
      delete from stillwake.cap_ends e where e.name = any (v_stale)
    ), running as materialized (
      select j.pipeline, count(*)::integer as count
      from stillwake.leases l join stillwake.live_jobs j on j.id = any (l.job_ids) and j.lease_id = l.id
      where j.pipeline = any (v_stale) group by j.pipeline
    )
    insert into stillwake.caps (name, running, counted_at)
    select n, coalesce((select r.count from running r where r.pipeline = n), 0), p_now from unnest(v_stale) n
    on conflict (name) do update set running = excluded.running, counted_at = excluded.counted_at;
  end if;
  if exists (select from stillwake.cap_ends e where e.name = any (p_names)) then
    with ended as (
      delete from stillwake.cap_ends e where e.name = any (p_names) returning e.name, e.count
    ), sums as (
      select e.name, sum(e.count) as count from ended e group by e.name
    )
    update stillwake.caps c set running = c.running - s.count from sums s where c.name = s.name;
  end if;
end
$$;

-- One job of each of these pipelines with a cap, which may be repeated, does not run any more. If its cap was reached,
-- the workers of all pools in which jobs of the pipeline wait are hinted: one of them may start now.
create or replace function stillwake.free_caps(p_pipelines text[]) returns void
language plpgsql as $$
declare
  v_full text[] := array(select p.name from stillwake.pipelines p
    where p.name = any (p_pipelines) and stillwake.running_jobs(p.name) >= p.concurrency);
begin
  insert into stillwake.cap_ends (name, count) select n, count(*) from unnest(p_pipelines) n group by n;
  if v_full <> '{}' then
    perform stillwake.hint(l.pool) from (
      select distinct i.pool from stillwake.listeners i join stillwake.pools p on p.name = i.pool and p.laned
    ) l where exists (select from unnest(v_full) n where stillwake.waits_in(l.pool, n));
  end if;
end
$$;

-- Whether a job of a gated pipeline waits in a pool.
create or replace function stillwake.waits_in(p_pool text, p_pipeline text) returns boolean
language plpgsql stable set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
  v_priority integer := 32767;
begin
  loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is not null and j.priority < v_priority;
    exit when v_priority is null;
    perform from stillwake.live_jobs j
    where j.pool = p_pool and j.priority = v_priority and j.lane is not null
      and (j.lane, j.run_at) >= (p_pipeline || chr(31), timestamptz '-infinity')
      and (j.lane, j.run_at) < (p_pipeline || ' ', timestamptz '-infinity')
      and j.lease_id is null
    order by j.lane, j.run_at, j.id limit 1;
    if found then
      return true;
    end if;
  end loop;
  -- It may have no lane yet.
  return exists (select from stillwake.live_jobs j where j.pool = p_pool and j.lane is null and j.lease_id is null);
end
$$;

-- The closed gates, by pipeline.
create or replace function stillwake.closed_gates() returns table (pipeline text, until timestamptz, held_by text, name text, reason text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select p.name, g.until, g.held_by, g.name, g.reason from stillwake.pipelines p cross join lateral stillwake.gate(p) g
  where p.gated and g.quota = 0
$$;

-- Picks and locks up to p_limit claimable jobs, lane by lane, starting at p_cursor, where the last pick of this worker
-- ended. A lane of a tenant with weight w gets w jobs per turn; a large pick takes more jobs from each lane at a time,
-- so that it visits fewer lanes. Returns the ids in the order of the visits, the next cursor, and the breakers that one
-- of the jobs probes.
--
-- A lane without due jobs costs one step. After 64 of them the walk stops, the rest is taken from the lanes of the
-- oldest jobs, and the next pick resumes from there: so the cost of a pick does not depend on the number of sleeping
-- lanes, and no lane waits for more than one full round. Locks: caps by name, half-open breakers by name; then
-- live_jobs, skipping locked rows.
create or replace function stillwake.pick_from_lanes(
  p_pool text, p_pipelines text[], p_limit integer, p_versions integer[], p_oldest integer[], p_cursor text,
  out ids uuid[], out cursor text, out probes text[], out probe_jobs uuid[]
)
language plpgsql set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
  v_now      timestamptz := stillwake.now();
  v_plain    text[] := p_pipelines;
  v_gated    text[] := '{}';
  -- Gated pipelines whose jobs are moved if they are met in a plain lane.
  v_strays   text[];
  v_quotas   integer[] := '{}';
  v_half     jsonb := '{}';
  v_relaning boolean;
  v_gates    boolean;
  v_caps     boolean;
  v_capped   text[];
  v_breakers boolean;
  v_weighted boolean;
  v_pipeline stillwake.pipelines;
  v_gate     record;
  v_share    integer := greatest(1, p_limit / 16);
  v_priority integer := 32767;
  v_from     text := coalesce(substr(p_cursor, strpos(p_cursor, '|') + 1), '');
  v_rest     integer := coalesce(nullif(split_part(p_cursor, '|', 1), '')::integer, 0);
  v_resting  boolean;
  v_lane     text;
  v_at       text;
  v_edge     timestamptz;
  v_first    timestamptz;
  v_wrapped  boolean;
  v_had      integer;
  v_idle     integer;
  -- Once the walk has stopped: the lanes of the oldest jobs, and whether these are all lanes with due jobs.
  v_due      text[];
  v_all      boolean;
  v_name     text;
  v_gate_no  integer;
  v_want     integer;
  v_part     integer;
  v_weight   integer;
  v_wanted   text[];
  v_pick     record;
  v_found    uuid[];
  -- Lanes of this priority that may have more jobs, and the last job taken from each.
  v_lanes    text[];
  v_lasts    uuid[];
  v_weights  integer[];
  -- Tenants whose budget is used up: their jobs wait.
  v_held     text[] := '{}';
begin
  ids := '{}';
  cursor := p_cursor;
  probes := '{}';
  probe_jobs := '{}';
  v_relaning := stillwake.relane_next(p_pool, 500);
  perform stillwake.assign_lanes(p_pool, greatest(200, p_limit), v_now);
  select bool_or(p.name = any (p_pipelines)), bool_or(p.concurrency is not null and p.name = any (p_pipelines)),
    bool_or(p.breakers <> '{}' and p.name = any (p_pipelines)), exists (select from stillwake.tenants), coalesce(array_agg(p.name), '{}')
  into v_gates, v_caps, v_breakers, v_weighted, v_strays from stillwake.pipelines p where p.gated;
  if v_weighted then
    v_held := array(select t.name from stillwake.tenants t where t.held_until > v_now);
  end if;
  if v_caps then
    v_capped := array(select q.name from stillwake.pipelines q where q.name = any (p_pipelines) and q.concurrency is not null
      order by stillwake.cap_lock(q.name));
    perform pg_advisory_xact_lock(stillwake.cap_lock(n)) from unnest(v_capped) n;
    perform stillwake.count_caps(v_capped, v_now);
  end if;
  if v_breakers then
    perform from stillwake.breakers b
    where b.resume_at <= v_now and b.name = any (array(select unnest(p.breakers) from stillwake.pipelines p
      where p.name = any (p_pipelines) and p.gated))
    order by b.name for no key update;
  end if;
  if v_gates then
    for v_pipeline in select * from stillwake.pipelines p where p.name = any (p_pipelines) and p.gated loop
      v_gate := stillwake.gate(v_pipeline);
      v_gated := v_gated || v_pipeline.name;
      v_quotas := v_quotas || v_gate.quota;
      if v_gate.half_open is not null then
        v_half := v_half || jsonb_build_object(v_pipeline.name, v_gate.half_open);
      end if;
    end loop;
    v_plain := '{}';
    if cardinality(v_gated) < cardinality(p_pipelines) then
      v_plain := array(select n from unnest(p_pipelines) n where n <> all (v_gated));
    end if;
  end if;

  while cardinality(ids) < p_limit loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is not null and j.priority < v_priority;
    exit when v_priority is null;
    v_lanes := '{}';
    v_lasts := '{}';
    v_weights := '{}';
    v_wrapped := false;
    v_resting := v_rest > 0;
    v_idle := 0;
    v_due := null;
    v_had := cardinality(ids);
    v_at := v_from;
    -- The lane served last may have a remainder of its turn.
    v_edge := case when v_rest > 0 then '-infinity' else 'infinity' end::timestamptz;
    loop
      if v_idle = 64 then
        v_idle := 65;
        with queue as materialized (
          select j.lane, j.lease_id, j.pipeline, j.tenant from stillwake.live_jobs j
          where j.pool = p_pool and j.priority = v_priority and j.lane is not null and j.run_at <= v_now
          order by j.run_at, j.id limit 1000
        ), free as (
          select distinct l.lane from queue l
          where l.lease_id is null and l.pipeline = any (v_plain || array(select g.name from unnest(v_gated, v_quotas) g (name, quota)
            where g.quota is distinct from 0))
            and (l.tenant is null or l.tenant <> all (v_held))
            -- Not lanes that were already visited.
            and case when v_wrapped then l.lane > v_at and (l.lane < v_from or l.lane = v_from and not v_resting)
              else l.lane > v_at or l.lane < v_from or l.lane = v_from and not v_resting end
        )
        select array(select f.lane from free f order by f.lane <= v_at, f.lane), (select count(*) < 1000 from queue) into v_due, v_all;
        if not v_all and v_due = '{}' and cardinality(ids) = v_had then
          v_due := null;
        elsif not v_all then
          cursor := '0|' || v_at;
        end if;
      end if;
      if v_due is not null then
        v_lane := v_due[1];
        v_due := v_due[2 :];
        if v_lane is null then
          exit when v_all or cardinality(ids) > v_had;
          v_due := null;
          continue;
        end if;
      else
        select j.lane, j.run_at into v_lane, v_first from stillwake.live_jobs j
        where j.pool = p_pool and j.priority = v_priority and j.lane is not null and (j.lane, j.run_at) > (v_at, v_edge)
        order by j.lane, j.run_at, j.id limit 1;
        v_edge := 'infinity';
        if v_lane is null or v_wrapped and (v_lane > v_from collate "C" or v_lane = v_from and v_resting) then
          exit when v_wrapped or v_from = '';
          v_wrapped := true;
          v_at := '';
          continue;
        end if;
        v_at := v_lane;
        if v_first > v_now then
          v_idle := v_idle + 1;
          continue;
        end if;
      end if;
      v_rest := case when v_lane = v_from then v_rest else 0 end;
      v_name := split_part(v_lane, chr(31), 1);
      v_gate_no := null;
      if v_name <> '' or v_plain = '{}' then
        v_gate_no := array_position(v_gated, v_name);
        if v_gate_no is null and v_name <> all (v_plain) or v_quotas[v_gate_no] <= 0
          or v_half ? v_name and v_half -> v_name ?| probes then
          v_at := case when v_due is null then v_name || ' ' else v_at end;
          continue;
        end if;
      end if;
      v_weight := 1;
      if v_weighted then
        if substr(v_lane, strpos(v_lane, chr(31)) + 1) = any (v_held) then
          v_idle := v_idle + 1;
          continue;
        end if;
        v_weight := coalesce((select t.weight from stillwake.tenants t where t.name = substr(v_lane, strpos(v_lane, chr(31)) + 1)), 1);
      end if;
      v_want := case when v_rest > 0 then v_rest else v_weight * v_share end;
      v_rest := 0;
      v_wanted := case when v_name = '' then v_plain else array[v_name] end;
      for v_try in 1 .. 2 loop
        v_pick := stillwake.pick_from_lane(p_pool, v_priority, v_lane, v_wanted, case when v_name = '' then v_strays end,
          least(v_want, p_limit - cardinality(ids), v_quotas[v_gate_no]), p_pipelines, p_versions, p_oldest, v_now, '-infinity',
          '00000000-0000-0000-0000-000000000000');
        exit when v_pick.strays is null;
        -- One portion per claim. The second pick does not stop at the rest of them.
        perform stillwake.leave_lane(p_pool, v_priority, v_lane, v_strays, 200, v_now);
        v_strays := '{}';
      end loop;
      v_found := coalesce(v_pick.ids, '{}');
      if cardinality(v_found) > 0 then
        ids := ids || v_found;
        if v_gate_no is not null then
          v_quotas[v_gate_no] := v_quotas[v_gate_no] - cardinality(v_found);
        end if;
        if v_half ? v_name then
          probes := probes || array(select b from jsonb_array_elements_text(v_half -> v_name) b);
          probe_jobs := probe_jobs || array(select v_found[1] from jsonb_array_elements_text(v_half -> v_name) b);
        end if;
        if v_due is null or v_all then
          cursor := greatest(0, v_want - cardinality(v_found)) || '|' || v_lane;
        end if;
        exit when cardinality(ids) >= p_limit;
        if cardinality(v_found) = v_want then
          v_lanes := v_lanes || v_lane;
          v_weights := v_weights || v_weight;
          v_lasts := v_lasts || v_found[cardinality(v_found)];
        end if;
      else
        v_idle := v_idle + 1;
      end if;
    end loop;

    -- The limit is not reached after one turn of all lanes: lanes with more jobs are served again, by weight.
    while cardinality(ids) < p_limit and cardinality(v_lanes) > 0 loop
      v_part := greatest(1, (p_limit - cardinality(ids)) / greatest(1, (select sum(w) from unnest(v_weights) w)::integer));
      for v_index in reverse cardinality(v_lanes) .. 1 loop
        exit when cardinality(ids) >= p_limit;
        v_name := split_part(v_lanes[v_index], chr(31), 1);
        v_gate_no := case when v_name <> '' then array_position(v_gated, v_name) end;
        v_want := least(v_weights[v_index] * v_part, p_limit - cardinality(ids), v_quotas[v_gate_no]);
        v_pick := stillwake.pick_from_lane(p_pool, v_priority, v_lanes[v_index], case when v_name = '' then v_plain else array[v_name] end,
          null, v_want, p_pipelines, p_versions, p_oldest, v_now,
          (select j.run_at from stillwake.live_jobs j where j.id = v_lasts[v_index]), v_lasts[v_index]);
        v_found := coalesce(v_pick.ids, '{}');
        ids := ids || v_found;
        if v_gate_no is not null then
          v_quotas[v_gate_no] := v_quotas[v_gate_no] - cardinality(v_found);
        end if;
        if cardinality(v_found) < v_want or v_quotas[v_gate_no] <= 0 then
          v_lanes := v_lanes[: v_index - 1] || v_lanes[v_index + 1 :];
          v_weights := v_weights[: v_index - 1] || v_weights[v_index + 1 :];
          v_lasts := v_lasts[: v_index - 1] || v_lasts[v_index + 1 :];
        else
          v_lasts[v_index] := v_found[cardinality(v_found)];
        end if;
      end loop;
    end loop;

    -- A worker without plain pipelines visits no plain lane.
    if cardinality(ids) < p_limit and v_plain = '{}' and v_strays <> '{}' then
      perform stillwake.move_to_lanes(array(
        select j.id from stillwake.live_jobs j
        where j.id = any (array(
            select w.id from (
              select l.id, l.lane, l.pipeline from stillwake.live_jobs l
              where l.pool = p_pool and l.priority = v_priority and l.lane is not null and l.run_at <= v_now
              order by l.run_at, l.id limit 1000
            ) w where w.lane < ' ' and w.pipeline = any (v_strays)))
          and j.lease_id is null for update skip locked));
    end if;
  end loop;
  if v_caps and ids <> '{}' then
    update stillwake.caps c set running = c.running + n.count
    from (select j.pipeline, count(*) from stillwake.live_jobs j where j.id = any (ids) and j.pipeline = any (v_capped) group by 1) n
    where c.name = n.pipeline;
  end if;
  -- A worker with free slots has time: larger portions, whose jobs its next claim takes.
  for v_portion in 1 .. 20 loop
    exit when cardinality(ids) >= p_limit or not v_relaning;
    v_relaning := stillwake.relane_next(p_pool, 2000);
  end loop;
end
$$;

-- Up to p_limit claimable jobs of one lane, in order, after the job (p_after, p_last): those of the pipelines p_wanted,
-- and apart from them those of p_strays. The caller pins the plan.
create or replace function stillwake.pick_from_lane(
  p_pool text, p_priority integer, p_lane text, p_wanted text[], p_strays text[], p_limit integer, p_pipelines text[],
  p_versions integer[], p_oldest integer[], p_now timestamptz, p_after timestamptz, p_last uuid, out ids uuid[], out strays uuid[]
)
language plpgsql as $$
begin
  select array_agg(f.id) filter (where f.wanted), array_agg(f.id) filter (where not f.wanted) into ids, strays from (
    select j.id, j.pipeline = any (p_wanted) as wanted from stillwake.live_jobs j
    where j.pool = p_pool and j.priority = p_priority and j.lane is not null and (j.lane, j.run_at, j.id) > (p_lane, p_after, p_last)
      and (j.lane, j.run_at) <= (p_lane, p_now)
      and j.lease_id is null and j.pipeline = any (p_wanted || p_strays)
      and (j.version is null or p_versions is null or stillwake.version_matches(j.version, j.pipeline, p_pipelines, p_versions, p_oldest))
      and (j.expires_at is null or j.started_at is not null or j.expires_at > p_now)
    order by j.lane, j.run_at, j.id limit p_limit for update skip locked
  ) f;
end
$$;

-- Moves due jobs of these pipelines out of a plain lane, up to p_limit of them. The caller pins the plan. Locks:
-- live_jobs, skipping locked rows.
create or replace function stillwake.leave_lane(p_pool text, p_priority integer, p_lane text, p_strays text[], p_limit integer,
  p_now timestamptz) returns void
language plpgsql as $$
begin
  perform stillwake.move_to_lanes(array(
    select j.id from stillwake.live_jobs j
    where j.pool = p_pool and j.priority = p_priority and j.lane is not null and (j.lane, j.run_at) >= (p_lane, timestamptz '-infinity')
      and (j.lane, j.run_at) <= (p_lane, p_now) and j.lease_id is null and j.pipeline = any (p_strays)
    order by j.lane, j.run_at, j.id limit p_limit for update skip locked));
end
$$;

create or replace function stillwake.cap_lock(p_name text) returns bigint
language sql immutable parallel safe as $$
  select 8351094627 + (hashtextextended(p_name, 0) & 1023)
$$;

-- The gates of these pipelines (all when null). quota: how many jobs may start now, null for any number.
create or replace function stillwake.gates(
  p_pipelines text[], out name text, out gated boolean, out quota integer, out until timestamptz
) returns setof record
language sql stable as $$
  select p.name, p.gated, g.quota, g.until from stillwake.pipelines p left join lateral stillwake.gate(p) g on p.gated
  where p_pipelines is null or p.name = any (p_pipelines)
$$;

-- next_due() for a pool with lanes: jobs behind a closed gate are due when it opens. Almost always one of the first
-- thousand queued jobs decides. The lanes are visited only if none of these may start.
create or replace function stillwake.lanes_due(p_pool text, p_pipelines text[], p_versions integer[], p_oldest integer[])
returns timestamptz
language plpgsql stable set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
  v_now      timestamptz := stillwake.now();
  v_due      timestamptz;
  v_first    timestamptz;
  v_time     timestamptz;
  v_opens    timestamptz;
  v_all      boolean;
  v_priority integer := 32767;
  v_lane     text;
  v_at       text;
  v_name     text;
  v_plain    text[];
  v_open     text[];
  -- Closed gates that open at a known time.
  v_shut     text[];
  v_untils   timestamptz[];
  v_hold     timestamptz;
  v_holds    jsonb := coalesce((select jsonb_object_agg(t.name, t.held_until) from stillwake.tenants t where t.held_until > v_now), '{}');
begin
  -- Jobs that are due may be in a lane that the search below does not visit.
  if exists (select from stillwake.pools p where p.name = p_pool and p.relane_after is not null) and stillwake.pool_has_jobs(p_pool) then
    return v_now;
  end if;
  select coalesce(array_agg(g.name) filter (where not g.gated), '{}'),
    coalesce(array_agg(g.name) filter (where g.gated and g.quota is distinct from 0), '{}'),
    coalesce(array_agg(g.name) filter (where g.quota = 0 and g.until < 'infinity'), '{}'),
    array_agg(g.until) filter (where g.quota = 0 and g.until < 'infinity')
  into v_plain, v_open, v_shut, v_untils from stillwake.gates(p_pipelines) g;
  -- Jobs without a lane: once one is due, a claim assigns it a lane, whatever its gates.
  loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is null and j.priority < v_priority;
    exit when v_priority is null or v_due <= v_now;
    select j.run_at into v_first from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is null and j.priority = v_priority and j.lease_id is null and j.run_at < 'infinity'
      and (p_pipelines is null or j.pipeline = any (p_pipelines))
    order by j.run_at, j.id limit 1;
    v_due := least(v_due, v_first);
  end loop;
  v_priority := 32767;
  loop
    select max(j.priority) into v_priority from stillwake.live_jobs j
    where j.pool = p_pool and j.lane is not null and j.priority < v_priority;
    exit when v_priority is null or v_due <= v_now;
    with queue as materialized (
      select j.run_at, (v_holds ->> j.tenant)::timestamptz as held, j.lane, j.pipeline, j.lease_id, j.version from stillwake.live_jobs j
      where j.pool = p_pool and j.priority = v_priority and j.lane is not null and j.run_at < 'infinity' order by j.run_at, j.id limit 1000
    ), mine as materialized (
      select greatest(l.run_at, l.held) as run_at, l.held, l.pipeline from queue l
      where l.lease_id is null and (l.version is null or p_versions is null
        or stillwake.version_matches(l.version, l.pipeline, p_pipelines, p_versions, p_oldest))
    )
    -- A job that waits for its tenant's budget says nothing about the jobs behind it.
    select (select min(m.run_at) from mine m where m.held is null and m.pipeline = any (v_plain || v_open)),
      least((select min(greatest(m.run_at, s.until)) from mine m join unnest(v_shut, v_untils) s (name, until) on s.name = m.pipeline),
        (select min(m.run_at) from mine m where m.held is not null and m.pipeline = any (v_plain || v_open))),
      (select count(*) < 1000 from queue)
    into v_first, v_opens, v_all;
    v_at := '';
    while v_first is null and not v_all or v_first > v_now and v_at <> '' loop
      select j.lane, j.run_at into v_lane, v_time from stillwake.live_jobs j
      where j.pool = p_pool and j.priority = v_priority and j.lane is not null and (j.lane, j.run_at) > (v_at, timestamptz 'infinity')
      order by j.lane, j.run_at, j.id limit 1;
      exit when not found;
      v_name := split_part(v_lane, chr(31), 1);
      v_at := v_lane;
      if v_name <> all (v_open || v_plain) and (v_name <> '' or v_plain = '{}') then
        v_at := v_name || ' ';
        if v_name = any (v_shut) and v_time < 'infinity' then
          v_opens := least(v_opens, greatest(v_time, v_untils[array_position(v_shut, v_name)]));
        end if;
      else
        select j.run_at into v_time from stillwake.live_jobs j
        where j.pool = p_pool and j.priority = v_priority and j.lane is not null and (j.lane, j.run_at) >= (v_lane, v_time)
          and (j.lane, j.run_at) < (v_lane, timestamptz 'infinity')
          and j.lease_id is null and j.pipeline = any (case when v_name = '' then v_plain || v_open else array[v_name] end)
          and (j.version is null or p_versions is null
            or stillwake.version_matches(j.version, j.pipeline, p_pipelines, p_versions, p_oldest))
        order by j.lane, j.run_at, j.id limit 1;
        v_hold := v_holds ->> substr(v_lane, strpos(v_lane, chr(31)) + 1);
        if v_hold is null then
          v_first := least(v_first, v_time);
        elsif v_time is not null then
          v_opens := least(v_opens, greatest(v_time, v_hold));
        end if;
      end if;
    end loop;
    v_due := least(v_due, v_first, v_opens);
  end loop;
  return v_due;
end
$$;

-- demand() for a pool with lanes: jobs that may start now, counted up to p_max. Along the queue if that suffices;
-- otherwise lane by lane.
create or replace function stillwake.lanes_demand(p_pool text, p_max integer, out claimable integer, out oldest timestamptz)
language plpgsql stable set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
  v_now      timestamptz := stillwake.now();
  v_priority integer := 32767;
  v_lane     text;
  v_at       text;
  v_name     text;
  v_count    integer;
  v_first    timestamptz;
  v_all      boolean;
  v_left     jsonb;
  v_plain    text[] := array(select p.name from stillwake.pipelines p where not p.gated);
  v_quotas   jsonb := coalesce((select jsonb_object_agg(g.name, g.quota) from stillwake.gates(null) g where g.gated), '{}');
  v_held     text[] := array(select t.name from stillwake.tenants t where t.held_until > v_now);
begin
  claimable := 0;
  loop
    v_priority := greatest(
      (select max(j.priority) from stillwake.live_jobs j where j.pool = p_pool and j.lane is null and j.priority < v_priority),
      (select max(j.priority) from stillwake.live_jobs j where j.pool = p_pool and j.lane is not null and j.priority < v_priority));
    exit when v_priority is null or claimable >= p_max;
    with queue as materialized (
      (select j.lane, j.pipeline, j.run_at, j.lease_id, j.tenant, j.expires_at, j.started_at from stillwake.live_jobs j
        where j.pool = p_pool and j.priority = v_priority and j.lane is not null and j.run_at <= v_now
        order by j.run_at, j.id limit p_max + 1000)
      union all
      (select j.lane, j.pipeline, j.run_at, j.lease_id, j.tenant, j.expires_at, j.started_at from stillwake.live_jobs j
        where j.pool = p_pool and j.priority = v_priority and j.lane is null and j.run_at <= v_now
        order by j.run_at, j.id limit p_max + 1000)
    ), mine as (
      select l.name, least(count(*), (v_quotas ->> l.name)::integer) as jobs, min(l.run_at) as first
      from (
        select case when q.pipeline = any (v_plain) then '' else q.pipeline end as name, q.run_at from queue q
        where q.lease_id is null and (q.tenant is null or q.tenant <> all (v_held))
          and (q.expires_at is null or q.started_at is not null or q.expires_at > v_now)
      ) l where (v_quotas ->> l.name)::integer is distinct from 0 group by l.name
    )
    select coalesce(sum(s.jobs), 0), min(s.first), (select count(*) < p_max + 1000 from queue),
      v_quotas || coalesce(jsonb_object_agg(s.name, (v_quotas ->> s.name)::integer - s.jobs)
        filter (where v_quotas ->> s.name is not null), '{}')
    into v_count, v_first, v_all, v_left from mine s;
    if v_all or claimable + v_count >= p_max then
      claimable := least(p_max, claimable + v_count);
      oldest := least(oldest, v_first);
      v_quotas := v_left;
      continue;
    end if;
    v_at := '';
    while claimable < p_max loop
      select j.lane, j.run_at into v_lane, v_first from stillwake.live_jobs j
      where j.pool = p_pool and j.priority = v_priority and j.lane is not null and (j.lane, j.run_at) > (v_at, timestamptz 'infinity')
      order by j.lane, j.run_at, j.id limit 1;
      exit when not found;
      v_name := split_part(v_lane, chr(31), 1);
      v_at := case when (v_quotas ->> v_name)::integer = 0 then v_name || ' ' else v_lane end;
      continue when v_first > v_now or (v_quotas ->> v_name)::integer = 0 or substr(v_lane, strpos(v_lane, chr(31)) + 1) = any (v_held);
      select count(*), min(w.run_at) into v_count, v_first from (
        select j.run_at from stillwake.live_jobs j
        where j.pool = p_pool and j.priority = v_priority and j.lane is not null and (j.lane, j.run_at) >= (v_lane, v_first)
          and (j.lane, j.run_at) <= (v_lane, v_now)
          and j.lease_id is null and j.pipeline = any (case when v_name = '' then v_plain else array[v_name] end)
          and (j.expires_at is null or j.started_at is not null or j.expires_at > v_now)
        order by j.lane, j.run_at, j.id limit least(p_max - claimable, (v_quotas ->> v_name)::integer)
      ) w;
      if v_quotas ->> v_name is not null then
        v_quotas := v_quotas || jsonb_build_object(v_name, (v_quotas ->> v_name)::integer - v_count);
      end if;
      claimable := claimable + v_count;
      oldest := least(oldest, v_first);
    end loop;
  end loop;
end
$$;

-- Sets the share of a tenant relative to others: 1 by default, up to 100. Raises SW001.
create or replace function stillwake.set_weight(p_tenant text, p_weight integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(length(p_tenant), 0) not between 1 and 500 or coalesce(p_weight, 0) not between 1 and 100 then
    perform stillwake.refuse('SW001',
      format('set_weight(%s, %s) is out of range', coalesce(p_tenant, 'null'), coalesce(p_weight::text, 'null')), 'weight',
      'A tenant has a name of up to 500 characters and a weight of 1 to 100.');
  end if;
  if p_weight = 1 then
    update stillwake.tenants set weight = 1 where name = p_tenant;
    delete from stillwake.tenants where name = p_tenant and held_until is null;
  else
    insert into stillwake.tenants (name, weight) values (p_tenant, p_weight) on conflict (name) do update set weight = excluded.weight;
  end if;
end
$$;

-- Sets how many jobs of a pool may run at once, on all workers together; null for no cap. Raises SW001, SW003.
create or replace function stillwake.cap_pool(p_pool text, p_concurrency integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_concurrency < 1 then
    perform stillwake.refuse('SW001', format('A pool cannot be capped at %s jobs', p_concurrency), 'concurrency',
      'Use 1 or more; to hold all jobs, pause the pool; null removes the cap.');
  end if;
  update stillwake.pools set concurrency = p_concurrency where name = p_pool;
  if not found then
    perform stillwake.refuse_unknown_pool(p_pool);
  end if;
  perform stillwake.hint(p_pool);
end
$$;
