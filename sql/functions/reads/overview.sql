-- What the whole installation is doing, for dashboards and metrics. No answer grows with the backlog or the history; what ended is as much as ended in the span.

-- Machines that have not ended, and workers that are none but hold leases or listen for work; one without either is asleep or gone, and is not told from one that never
-- was. Then the last p_ended machines that have ended, of the time for which it is kept what ran where. jobs: counted among the first 1000 attempts.
--
--   starting  asked for; its worker has not arrived          leaving   its worker has left, and the provider has not said that it is gone
--   up        with jobs                                      retiring  it gets no job any more and is about to be stopped
--   idle      without                                        ended     and ending says how, in words; ended_well: as it should be
create or replace function stillwake.machines(p_ended integer default 0)
returns table (
  worker text, pool text, running integer, since timestamptz, lease_until timestamptz, listening boolean,
  state text, life uuid, slot integer, burst boolean, provider text, provider_id text, region text, size text, slots integer, jobs integer, why text, asked_by text,
  asked_at timestamptz, started_at timestamptz, arrived_at timestamptz, idle_since timestamptz, ended_at timestamptz, ending text, ended_well boolean, price double precision, prices text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  with awake as (
    select m.worker, m.pool, sum(m.running)::integer as running, min(m.since) as since, max(m.lease_until) as lease_until, bool_or(m.listening) as listening
    from (
      select l.worker, l.pool, cardinality(l.job_ids) as running, l.claimed_at as since, l.until as lease_until, false as listening from stillwake.leases l
      union all
      -- One that was killed has not said that it listens no more; that it did lasts for a minute.
      select l.worker, l.pool, 0, null, null, true from stillwake.listeners l
      where l.until > v_now and (l.worker not in (select e.machine from stillwake.machine_lives e where e.ended_at > v_now - interval '2 minutes')
        or exists (select from stillwake.machine_lives e where e.machine = l.worker and e.ended_at is null))
    ) m
    group by m.worker, m.pool
  ), lives as (
    select l.*, null as ending, null::boolean as well from stillwake.machine_lives l where l.ended_at is null
    union all
    (select l.*, e.ending, e.well from stillwake.machine_lives l cross join lateral stillwake.machine_ending(l) e
    where l.ended_at > v_now - interval '45 days' order by l.ended_at desc limit greatest(p_ended, 0))
  )
  select coalesce(l.machine, a.worker), coalesce(l.pool, a.pool), coalesce(a.running, 0), a.since, a.lease_until, coalesce(a.listening, false),
    case when l.ended_at is not null then 'ended' when l.retired_at is not null then 'retiring' when l.left_at is not null then 'leaving' when l.id is not null and l.arrived_at is null then 'starting'
      when a.running > 0 then 'up' else 'idle' end,
    l.id, l.slot, l.burst, l.provider, l.provider_id, l.region, l.size, l.slots, w.jobs, l.why, l.asked_by,
    l.asked_at, l.started_at, l.arrived_at, l.idle_since, l.ended_at, l.ending, l.well, l.price::double precision, l.prices
  from lives l
  full join awake a on a.worker = l.machine and a.pool = l.pool and l.ended_at is null
  left join lateral (select count(distinct x.job_id)::integer as jobs from (select m.job_id from stillwake.machine_jobs m where m.life = l.id limit 1000) x) w on l.id is not null
  order by l.ended_at desc nulls first, 2, l.slot nulls last, 1 limit 1000 + greatest(p_ended, 0);
end
$$;

-- How a machine has ended, for people; well: as machines should.
create or replace function stillwake.machine_ending(p_life stillwake.machine_lives, out ending text, out well boolean)
language sql stable as $$
  select case
      when e.oom then 'out of memory' || coalesce(' at ' || e.memory, '')
      when p_life.arrived_at is null and p_life.left_reason is null then 'never arrived' || coalesce(': killed by ' || e.signal, ': exit code ' || nullif(e.code, '0'), ': ' || nullif(e.reason, 'its worker never came'), '')
      when e.broke then 'ended with exit code ' || e.code || coalesce(' (' || coalesce(e.reason, case when p_life.left_reason not in ('idle', 'stopped', 'asked') then p_life.left_reason end) || ')', '')
      when e.told then 'told to end' || coalesce(' (' || substring(p_life.left_reason from '^SIG[A-Z0-9]+$') || ')', '')
      when p_life.left_at is not null then 'ended by itself (' || coalesce(p_life.left_reason, 'idle') || ')'
      when p_life.left_reason is not null then p_life.left_reason
      when p_life.retired_at is not null or e.requested then 'was stopped'
      when e.signal is not null then 'killed by ' || e.signal
      when e.code is not null then 'ended by itself'
      else coalesce(e.reason, 'is gone') end,
    not e.oom and not e.broke and (p_life.left_at is not null or p_life.left_reason is not null or p_life.arrived_at is not null and (p_life.retired_at is not null or e.requested or coalesce(e.code = '0', false)))
  from (
    -- A code from 128 on says only which signal it was; of one that was told to end, or was stopped, it is no failure.
    select s.*, s.signal is null and coalesce(s.code, '0') <> '0' and not s.requested and p_life.retired_at is null and not (s.told and length(s.code) = 3 and s.code >= '128') as broke
    from (
      select coalesce((p_life.exit ->> 'oom')::boolean, false) as oom, p_life.exit ->> 'memory' as memory, p_life.exit ->> 'signal' as signal, p_life.exit ->> 'code' as code,
        left(p_life.exit ->> 'reason', 200) as reason, coalesce((p_life.exit ->> 'requested')::boolean, false) as requested,
        p_life.left_at is not null and coalesce(p_life.left_reason ~ '^(SIG[A-Z0-9]+|asked|stopped|the machine is to be stopped)$', false) as told
    ) s
  ) e
$$;

-- Machines that were asked for and that ended in the last p_span; ill: of those that ended, how many not as they should.
create or replace function stillwake.machine_counts(p_span interval default '5 minutes') returns table (pool text, started bigint, ended bigint, ill bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_since timestamptz := stillwake.now() - p_span;
begin
  return query
  select l.pool, count(*) filter (where l.asked_at > v_since), count(*) filter (where l.over), count(*) filter (where not l.well)
  from (
    select x.pool, x.asked_at, false as over, true as well from stillwake.machine_lives x where x.ended_at is null
    union all
    select x.pool, x.asked_at, true, e.well from stillwake.machine_lives x cross join lateral stillwake.machine_ending(x) e where x.ended_at > v_since
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
    -- One whose time has come waits for a worker, whatever it waited for before.
    select j.state, case when j.state = 'queued' and (j.waiting_for is distinct from 'key') and j.run_at <= v_now then 'machine' when j.state = 'queued' then coalesce(j.waiting_for, 'time') end as waiting_for,
      j.created_at
    from stillwake.live_jobs j limit p_max
  ) l
  group by l.state, l.waiting_for order by l.state, l.waiting_for;
end
$$;

-- What ended in the last p_span, in p_buckets equal parts and by pipeline: how many, how, and how long it took from the first start.
create or replace function stillwake.ended_counts(p_span interval default '1 hour', p_buckets integer default 60)
returns table (bucket integer, begins timestamptz, pipeline text, state text, count bigint, timed bigint, seconds double precision, longest double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_since timestamptz := v_now - p_span;
  v_width double precision := extract(epoch from p_span)::double precision / p_buckets;
begin
  return query
  select e.bucket, v_since + e.bucket * v_width * interval '1 second', e.pipeline, e.state, count(*), count(e.seconds), sum(e.seconds), max(e.seconds)
  from (
    select least(floor(extract(epoch from j.ended_at - v_since)::double precision / v_width)::integer, p_buckets - 1) as bucket, j.pipeline, j.state,
      extract(epoch from j.ended_at - j.started_at)::double precision as seconds
    from stillwake.ended_jobs j where j.ended_at > v_since and j.ended_at <= v_now
  ) e
  group by e.bucket, e.pipeline, e.state order by e.bucket, e.pipeline, e.state;
end
$$;
