-- Overview of the whole installation, for dashboards and metrics. No result grows with the backlog or the history,
-- except that ended_counts() reads the jobs that ended in its span.

-- Machines that have not ended, and other workers that hold leases or listen for work; an idle worker without a
-- listener cannot be seen. Then the last p_ended machines that have ended, as far back as their records are kept. jobs:
-- counted among the first 1000 attempts.
--
--   starting  requested; its worker has not registered  leaving   its worker has left, its end is not confirmed
--   up        with jobs                                 retiring  it gets no more jobs and is about to be stopped
--   idle      without jobs                              ended     ending describes how; ended_normally: as intended
--   lost      its session has ended without notice: it was killed, or cannot reach the database
create or replace function stillwake.machines(p_ended integer default 0)
returns table (
  worker text, pool text, running integer, since timestamptz, lease_until timestamptz, listening boolean,
  state text, life uuid, ordinal integer, burst boolean, provider text, provider_id text, region text, size text, slots integer,
  jobs integer, why text, requested_by text, requested_at timestamptz, started_at timestamptz, registered_at timestamptz,
  idle_since timestamptz, ended_at timestamptz, ending text, ended_normally boolean, price double precision, prices text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  with present as materialized (
    -- Sessions that check a presence have it in share mode for a moment.
    select (k.classid::bigint << 32) | k.objid::bigint as presence from pg_locks k
    where k.locktype = 'advisory' and k.objsubid = 1 and k.mode = 'ExclusiveLock' and k.granted
      and k.database = (select d.oid from pg_database d where d.datname = current_database())
  ), awake as (
    select m.worker, m.pool, sum(m.running)::integer as running, min(m.since) as since, max(m.lease_until) as lease_until,
      bool_or(m.listening and not m.absent) as listening, bool_and(m.absent) as lost
    from (
      select l.worker, l.pool, cardinality(l.job_ids) as running, l.claimed_at as since, l.until as lease_until, false as listening,
        l.presence is not null and l.presence > 0 and l.presence not in (select p.presence from present p) as absent
      from stillwake.leases l
      union all
      -- A killed worker has not removed itself from the listeners; its entry expires within two minutes.
      select l.worker, l.pool, 0, null, null, true, l.presence is not null and l.presence not in (select p.presence from present p)
      from stillwake.listeners l
      where l.until > v_now and (l.worker not in (select e.machine from stillwake.machine_lives e
        where e.ended_at > v_now - interval '2 minutes')
        or exists (select from stillwake.machine_lives e where e.machine = l.worker and e.ended_at is null))
    ) m
    group by m.worker, m.pool
  ), lives as (
    select l.*, null as ending, null::boolean as normal from stillwake.machine_lives l where l.ended_at is null
    union all
    (select l.*, e.ending, e.normal from stillwake.machine_lives l cross join lateral stillwake.machine_ending(l) e
    where l.ended_at > v_now - interval '45 days' order by l.ended_at desc limit greatest(p_ended, 0))
  )
  select coalesce(l.machine, a.worker), coalesce(l.pool, a.pool), coalesce(a.running, 0), a.since, a.lease_until,
    coalesce(a.listening, false),
    case when l.ended_at is not null then 'ended' when l.retired_at is not null then 'retiring' when l.left_at is not null then 'leaving'
      when l.id is not null and l.registered_at is null then 'starting'
      when a.lost then 'lost' when a.running > 0 then 'up' else 'idle' end,
    l.id, l.ordinal, l.burst, l.provider, l.provider_id, l.region, l.size, l.slots, w.jobs, l.why, l.requested_by,
    l.requested_at, l.started_at, l.registered_at, l.idle_since, l.ended_at, l.ending, l.normal, l.price::double precision, l.prices
  from lives l
  full join awake a on a.worker = l.machine and a.pool = l.pool and l.ended_at is null
  left join lateral (select count(distinct x.job_id)::integer as jobs
    from (select m.job_id from stillwake.machine_jobs m where m.life = l.id limit 1000) x) w on l.id is not null
  order by l.ended_at desc nulls first, 2, l.ordinal nulls last, 1 limit 1000 + greatest(p_ended, 0);
end
$$;

-- How a machine ended, as text; normal: as intended.
create or replace function stillwake.machine_ending(p_life stillwake.machine_lives, out ending text, out normal boolean)
language sql stable as $$
  select case
      when e.oom then 'out of memory' || coalesce(' at ' || e.memory, '')
      when p_life.registered_at is null and p_life.left_reason is null then 'never registered'
        || coalesce(': killed by ' || e.signal, ': exit code ' || nullif(e.code, '0'),
          ': ' || nullif(e.reason, 'its worker never registered'), '')
      when e.broke then 'ended with exit code ' || e.code
        || coalesce(' (' || coalesce(e.reason,
          case when p_life.left_reason not in ('idle', 'stopped', 'requested') then p_life.left_reason end) || ')', '')
      when e.stopping then 'stopped on request' || coalesce(' (' || substring(p_life.left_reason from '^SIG[A-Z0-9]+$') || ')', '')
      when p_life.left_at is not null then 'ended by itself (' || coalesce(p_life.left_reason, 'idle') || ')'
      when p_life.left_reason is not null then p_life.left_reason
      when p_life.retired_at is not null or e.requested then 'was stopped'
      when e.signal is not null then 'killed by ' || e.signal
      when e.code is not null then 'ended by itself'
      else coalesce(e.reason, 'disappeared') end,
    not e.oom and not e.broke and (p_life.left_at is not null or p_life.left_reason is not null or p_life.registered_at is not null
      and (p_life.retired_at is not null or e.requested or coalesce(e.code = '0', false)))
  from (
    -- An exit code from 128 on encodes the signal; on a machine that got a stop request it is not a failure.
    select s.*, s.signal is null and coalesce(s.code, '0') <> '0' and not s.requested and p_life.retired_at is null
      and not (s.stopping and length(s.code) = 3 and s.code >= '128') as broke
    from (
      select coalesce((p_life.exit ->> 'oom')::boolean, false) as oom, p_life.exit ->> 'memory' as memory,
        p_life.exit ->> 'signal' as signal, p_life.exit ->> 'code' as code,
        left(p_life.exit ->> 'reason', 200) as reason, coalesce((p_life.exit ->> 'requested')::boolean, false) as requested,
        p_life.left_at is not null and coalesce(
          p_life.left_reason ~ '^(SIG[A-Z0-9]+|requested|stopped|the machine is to be stopped)$', false)
          as stopping
    ) s
  ) e
$$;

-- Machines that were requested and that ended in the last p_span; abnormal: how many of the ended ones did not
-- end as intended.
create or replace function stillwake.machine_counts(p_span interval default '5 minutes')
returns table (pool text, started bigint, ended bigint, abnormal bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_since timestamptz := stillwake.now() - p_span;
begin
  return query
  select l.pool, count(*) filter (where l.requested_at > v_since), count(*) filter (where l.over), count(*) filter (where not l.normal)
  from (
    select x.pool, x.requested_at, false as over, true as normal from stillwake.machine_lives x where x.ended_at is null
    union all
    select x.pool, x.requested_at, true, e.normal from stillwake.machine_lives x cross join lateral stillwake.machine_ending(x) e
    where x.ended_at > v_since
  ) l
  group by l.pool order by l.pool;
end
$$;

-- Live jobs by state and reason, counted up to p_max of them.
create or replace function stillwake.live_counts(p_max integer default 100000)
returns table (state text, waiting_for text, count bigint, oldest timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  select l.state, l.waiting_for, count(*), min(l.created_at)
  from (
    -- A job whose time has come waits for a worker, whatever it waited for before.
    select j.state, case when j.state = 'queued' and (j.waiting_for is distinct from 'key') and j.run_at <= v_now then 'machine'
      when j.state = 'queued' then coalesce(j.waiting_for, 'time') end as waiting_for, j.created_at
    from stillwake.live_jobs j limit p_max
  ) l
  group by l.state, l.waiting_for order by l.state, l.waiting_for;
end
$$;

-- The jobs that ended in the last p_span, in p_buckets equal parts and by pipeline: number, state, and duration since
-- the first start.
create or replace function stillwake.ended_counts(p_span interval default '1 hour', p_buckets integer default 60)
returns table (bucket integer, begins timestamptz, pipeline text, state text, count bigint, timed bigint, seconds double precision,
  longest double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_since timestamptz := v_now - p_span;
  v_width double precision := extract(epoch from p_span)::double precision / p_buckets;
begin
  return query
  select e.bucket, v_since + e.bucket * v_width * interval '1 second', e.pipeline, e.state, count(*), count(e.seconds), sum(e.seconds),
    max(e.seconds)
  from (
    select least(floor(extract(epoch from j.ended_at - v_since)::double precision / v_width)::integer, p_buckets - 1) as bucket,
      j.pipeline, j.state, extract(epoch from j.ended_at - j.started_at)::double precision as seconds
    from stillwake.ended_jobs j where j.ended_at > v_since and j.ended_at <= v_now
  ) e
  group by e.bucket, e.pipeline, e.state order by e.bucket, e.pipeline, e.state;
end
$$;
