-- What the whole installation is doing, for dashboards and metrics. No answer grows with the backlog or the history; what ended is as much as ended in the span.

-- Workers that hold leases or listen for work. A machine without either is asleep or gone, and is not told from one that never was.
create or replace function stillwake.machines()
returns table (worker text, pool text, running integer, since timestamptz, lease_until timestamptz, listening boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  select m.worker, m.pool, sum(m.running)::integer, min(m.since), max(m.lease_until), bool_or(m.listening)
  from (
    select l.worker, l.pool, cardinality(l.job_ids) as running, l.claimed_at as since, l.until as lease_until, false as listening from stillwake.leases l
    union all
    select l.worker, l.pool, 0, null, null, true from stillwake.listeners l where l.until > v_now
  ) m
  group by m.worker, m.pool order by m.pool, m.worker limit 1000;
end
$$;

-- Live jobs by state and reason, counted up to p_most of them.
create or replace function stillwake.live_counts(p_most integer default 100000)
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
    from stillwake.live_jobs j limit p_most
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
