-- Costs of machines, by the work done on them. The paid time of a machine is divided by the duration of the attempts
-- that ran in it, so that the parts add up to the total; the cost of a life without any job stays with its pool. A life
-- across midnight (UTC) counts on each day by its part.

-- The attempts of a life that has not ended, with the time each took of it until p_until.
create or replace function stillwake.life_attempts(p_life uuid, p_from timestamptz, p_until timestamptz)
returns table (job_id uuid, epoch bigint, pipeline text, tenant text, during tstzrange, seconds numeric)
language sql stable as $$
  select w.job_id, w.epoch, w.pipeline, w.tenant, tstzrange(b.begins, b.ends), extract(epoch from b.ends - b.begins)
  from stillwake.machine_jobs w
  -- Looked up one by one, by primary key: a join could make the planner scan all jobs.
  cross join lateral (select coalesce(
    (select a.ended_at from stillwake.ended_attempts a where a.job_id = w.job_id and a.epoch = w.epoch),
    (select e.ended_at from stillwake.ended_jobs e where e.id = w.job_id and e.epoch = w.epoch limit 1),
    (select p_until from stillwake.live_jobs j where j.id = w.job_id and j.epoch = w.epoch and j.state = 'running'), w.claimed_at)
      as ended_at) t
  cross join lateral (select least(greatest(p_from, w.claimed_at), greatest(p_from, p_until)) as begins) f
  cross join lateral (select f.begins, greatest(f.begins, least(p_until, t.ended_at)) as ends) b
  where w.life = p_life
$$;

-- The cost of a life until p_until, by pipeline and tenant. paid: seconds, at least the minimum billing time; busy:
-- with a job; work: the sum of all its attempts.
create or replace function stillwake.life_costs(p_life stillwake.machine_lives, p_until timestamptz)
returns table (pipeline text, tenant text, jobs integer, paid numeric, busy numeric, work numeric, busy_share numeric, idle_share numeric,
  amount numeric)
language plpgsql stable as $$
declare
  v_from timestamptz := coalesce(p_life.started_at, p_life.registered_at);
begin
  if v_from is null then
    return;
  end if;
  return query
  with attempts as materialized (
    select w.* from stillwake.life_attempts(p_life.id, v_from, p_until) w
  ), total as materialized (
    select greatest(extract(epoch from p_until - v_from), p_life.least_seconds) as paid,
      coalesce((select sum(extract(epoch from upper(r) - lower(r)))
        from unnest((select range_agg(a.during) from attempts a where not isempty(a.during))) r), 0) as busy,
      coalesce((select sum(a.seconds) from attempts a), 0) as work
  ), shares as (
    -- Attempts without any duration share equally.
    select a.pipeline, a.tenant, count(distinct a.job_id)
      filter (where not exists (select from stillwake.machine_jobs o where o.job_id = a.job_id and o.epoch < a.epoch))::integer as jobs,
      case when max(t.work) > 0 then sum(a.seconds) / max(t.work) else count(*)::numeric / sum(count(*)) over () end as share
    from attempts a cross join total t group by a.pipeline, a.tenant
    union all
    select null, null, 0, 1 where not exists (select from attempts)
  )
  select s.pipeline, s.tenant, s.jobs, t.paid, t.busy, t.work, t.busy * s.share, (t.paid - t.busy) * s.share,
    t.paid * s.share * p_life.price from shares s cross join total t;
end
$$;

-- The days (UTC) of a time span, and its part on each.
create or replace function stillwake.shares_of_days(p_from timestamptz, p_until timestamptz) returns table (day date, part numeric)
language sql immutable as $$
  select d::date, case when p_until > p_from
    then extract(epoch from least(p_until at time zone 'UTC', d + interval '1 day') - greatest(p_from at time zone 'UTC', d))
      / extract(epoch from p_until - p_from) else 1 end
  from generate_series(date_trunc('day', p_from at time zone 'UTC'), date_trunc('day', p_until at time zone 'UTC'), interval '1 day') d
  where d < p_until at time zone 'UTC' or p_until <= p_from
$$;

-- Allocates the cost of an ended life. Locks: the sums of its pool and tenants, in order.
create or replace function stillwake.allocate_cost(p_life uuid) returns void
language plpgsql as $$
declare
  v_life stillwake.machine_lives;
begin
  select * into v_life from stillwake.machine_lives l where l.id = p_life;
  with shares as materialized (
    select s.* from stillwake.life_costs(v_life, v_life.ended_at) s
  ), days as (
    select d.day, d.part, d.day = max(d.day) over () as last
    from stillwake.shares_of_days(coalesce(v_life.started_at, v_life.registered_at), v_life.ended_at) d
  ), paid as (
    insert into stillwake.machine_costs (life, day, pool, pipeline, tenant, jobs, busy_seconds, idle_seconds, amount)
    select p_life, d.day, v_life.pool, s.pipeline, s.tenant, case when d.last then s.jobs else 0 end, s.busy_share * d.part,
      s.idle_share * d.part, s.amount * d.part from shares s cross join days d
  )
  update stillwake.machine_lives l set paid_seconds = coalesce(t.paid, 0), busy_seconds = coalesce(t.busy, 0),
    work_seconds = coalesce(t.work, 0)
  from (select max(s.paid) as paid, max(s.busy) as busy, max(s.work) as work from shares s) t where l.id = p_life;
  update stillwake.machine_jobs w set seconds = a.seconds
  from stillwake.life_attempts(p_life, coalesce(v_life.started_at, v_life.registered_at), v_life.ended_at) a
  where w.job_id = a.job_id and w.epoch = a.epoch and w.life = p_life;
  insert into stillwake.spending as s (scope, name, day, amount)
  select 'pool', v_life.pool, c.day, sum(c.amount) from stillwake.machine_costs c where c.life = p_life and c.amount > 0 group by c.day
  union all
  select 'tenant', c.tenant, c.day, sum(c.amount) from stillwake.machine_costs c
  where c.life = p_life and c.amount > 0 and c.tenant is not null group by c.tenant, c.day
  order by 1, 2, 3
  on conflict (scope, name, day) do update set amount = s.amount + excluded.amount;
end
$$;

-- Costs on the days (UTC) from p_since until before p_until, grouped by p_by: pool, pipeline, tenant or day; null for
-- one total. Lives that have not ended count until now. p_tenant: the part of that tenant alone. name is null for lives
-- without a job, or jobs without a tenant. jobs: each counts where it ran first. Raises SW001.
create or replace function stillwake.costs(p_since timestamptz, p_until timestamptz default null, p_by text default 'pool',
  p_tenant text default null)
returns table (name text, machines bigint, jobs bigint, busy_seconds numeric, idle_seconds numeric, amount numeric)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_since date := case when isfinite(p_since) then (p_since at time zone 'UTC')::date else '-infinity'::date end;
  v_until date := coalesce(((p_until - interval '1 microsecond') at time zone 'UTC')::date, 'infinity'::date);
begin
  if p_by not in ('pool', 'pipeline', 'tenant', 'day') then
    perform stillwake.refuse('SW001', format('Costs cannot be grouped by "%s"', p_by), 'by', 'Use pool, pipeline, tenant or day.');
  end if;
  return query
  select case p_by when 'pool' then c.pool when 'pipeline' then c.pipeline when 'tenant' then c.tenant when 'day' then c.day::text end,
    count(distinct c.life), sum(c.jobs)::bigint, sum(c.busy_seconds), sum(c.idle_seconds), sum(c.amount)
  from (
    select m.life, m.pool, m.pipeline, m.tenant, m.day, m.jobs, m.busy_seconds, m.idle_seconds, m.amount from stillwake.machine_costs m
    where m.day >= v_since and m.day <= v_until
    union all
    select l.id, l.pool, s.pipeline, s.tenant, d.day, case when d.day = (v_now at time zone 'UTC')::date then s.jobs else 0 end,
      s.busy_share * d.part, s.idle_share * d.part, s.amount * d.part
    from stillwake.machine_lives l cross join lateral stillwake.life_costs(l, coalesce(l.left_at, v_now)) s
    cross join lateral stillwake.shares_of_days(coalesce(l.started_at, l.registered_at), coalesce(l.left_at, v_now)) d
    where l.ended_at is null and d.day >= v_since and d.day <= v_until
  ) c
  where p_tenant is null or c.tenant = p_tenant
  group by 1 order by 6 desc, 1;
end
$$;

-- The cost of a job so far, per machine: how long it ran there, its share of the machine's busy and idle time, and of
-- the price. provisional while the machine runs: later jobs may take a share.
create or replace function stillwake.job_cost(p_job uuid)
returns table (
  machine text, pool text, provider text, size text, region text, epoch bigint, claimed_at timestamptz, worked_seconds numeric,
  busy_seconds numeric, idle_seconds numeric, price numeric, amount numeric, prices text, provisional boolean
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now  timestamptz := stillwake.now();
  v_one  stillwake.machine_jobs;
  v_life stillwake.machine_lives;
  v_part numeric;
begin
  for v_one in select * from stillwake.machine_jobs w where w.job_id = p_job order by w.claimed_at, w.epoch loop
    select * into v_life from stillwake.machine_lives l where l.id = v_one.life;
    continue when not found;
    machine := v_life.machine;
    pool := v_life.pool;
    provider := v_life.provider;
    size := v_life.size;
    region := v_life.region;
    epoch := v_one.epoch;
    claimed_at := v_one.claimed_at;
    price := v_life.price;
    prices := v_life.prices;
    provisional := v_life.ended_at is null;
    if provisional then
      select s.paid, s.busy, s.work into v_life.paid_seconds, v_life.busy_seconds, v_life.work_seconds
      from stillwake.life_costs(v_life, v_now) s limit 1;
      select x.seconds into v_one.seconds
      from stillwake.life_attempts(v_life.id, coalesce(v_life.started_at, v_life.registered_at), v_now) x
      where x.job_id = p_job and x.epoch = v_one.epoch;
    end if;
    worked_seconds := coalesce(v_one.seconds, 0);
    v_part := case when v_life.work_seconds > 0 then worked_seconds / v_life.work_seconds
      else 1.0 / (select count(*) from stillwake.machine_jobs o where o.life = v_life.id) end;
    busy_seconds := coalesce(v_life.busy_seconds, 0) * v_part;
    idle_seconds := coalesce(v_life.paid_seconds - v_life.busy_seconds, 0) * v_part;
    amount := (busy_seconds + idle_seconds) * price;
    return next;
  end loop;
end
$$;

-- Sets the maximum cost of a pool or a tenant per calendar day or month (UTC); null removes the budget. Running jobs
-- are finished: the last machines may exceed it. Locks: the budget; as check_budgets(). Raises SW001, SW003.
create or replace function stillwake.set_budget(p_scope text, p_name text, p_amount numeric, p_period text default 'month',
  p_by text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_scope is null or p_scope not in ('pool', 'tenant') or coalesce(length(p_name), 0) not between 1 and 500 then
    perform stillwake.refuse('SW001', format('A budget is for a pool or a tenant, not for %s "%s"', p_scope, left(p_name, 100)), 'scope',
      'Pass a pool or a tenant.');
  elsif p_amount not between 0 and 1000000000 then
    perform stillwake.refuse('SW001', format('A budget cannot be %s', p_amount), 'amount', 'Use a number from 0 to 1000000000.');
  elsif p_period is null or p_period not in ('day', 'month') then
    perform stillwake.refuse('SW001', format('A budget is for a day or a month, not for "%s"', coalesce(left(p_period, 100), 'null')),
      'period', 'Use day or month.');
  elsif p_scope = 'pool' and p_amount is not null and not exists (select from stillwake.pools p where p.name = p_name) then
    perform stillwake.refuse_unknown_pool(p_name);
  end if;
  if p_amount is null then
    delete from stillwake.budgets b where b.scope = p_scope and b.name = p_name;
  else
    insert into stillwake.budgets (scope, name, amount, period, updated_at, updated_by)
    values (p_scope, p_name, p_amount, p_period, stillwake.now(), p_by)
    on conflict (scope, name) do update set amount = excluded.amount, period = excluded.period, updated_at = excluded.updated_at,
      updated_by = excluded.updated_by;
  end if;
  perform from stillwake.check_budgets();
end
$$;

-- Budgets and their use, running machines included. held: its pool is paused, or its tenant's jobs wait, because of it.
create or replace function stillwake.budget_state(p_scope text default null, p_name text default null)
returns table (scope text, name text, amount numeric, period text, spent numeric, resets_at timestamptz, held boolean,
  updated_at timestamptz, updated_by text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz := stillwake.now();
  v_today   timestamp := v_now at time zone 'UTC';
  v_running jsonb := '{}';
  v_tenants text[];
begin
  if not exists (select from stillwake.budgets b where (p_scope is null or b.scope = p_scope) and (p_name is null or b.name = p_name)) then
    return;
  end if;
  -- Machines that have not ended. Their attempts are read only if the machine may have a job of a tenant with a budget.
  v_tenants := array(select b.name from stillwake.budgets b
    where b.scope = 'tenant' and (p_scope is null or b.scope = p_scope) and (p_name is null or b.name = p_name));
  select coalesce(jsonb_object_agg(r.who, r.sums), '{}') into v_running from (
    select x.who, jsonb_build_object('day', sum(x.amount * x.today), 'month', sum(x.amount * x.month)) as sums
    from (
      select k.who, k.amount, stillwake.share_since(coalesce(l.started_at, l.registered_at), coalesce(l.left_at, v_now),
        date_trunc('day', v_today)) as today,
        stillwake.share_since(coalesce(l.started_at, l.registered_at), coalesce(l.left_at, v_now), date_trunc('month', v_today)) as month
      from stillwake.machine_lives l
      cross join lateral (
        select 'pool ' || l.pool as who,
          greatest(extract(epoch from coalesce(l.left_at, v_now) - coalesce(l.started_at, l.registered_at)), l.least_seconds) * l.price
          as amount
        union all
        select 'tenant ' || s.tenant, s.amount from stillwake.life_costs(l, coalesce(l.left_at, v_now)) s
        where s.tenant = any (v_tenants) and exists (select from stillwake.machine_jobs w
          where w.life = l.id and w.tenant = any (v_tenants))
      ) k
      where l.ended_at is null and l.price > 0 and coalesce(l.started_at, l.registered_at) is not null
    ) x group by x.who
  ) r;
  return query
  select b.scope, b.name, b.amount, b.period,
    coalesce((select sum(s.amount) from stillwake.spending s
      where s.scope = b.scope and s.name = b.name and s.day >= date_trunc(b.period, v_today)::date), 0)
      + coalesce((v_running -> (b.scope || ' ' || b.name) ->> b.period)::numeric, 0),
    (date_trunc(b.period, v_today) + ('1 ' || b.period)::interval) at time zone 'UTC',
    case b.scope when 'pool' then exists (select from stillwake.pools p where p.name = b.name and p.resume_at is not null)
      else exists (select from stillwake.tenants t where t.name = b.name and t.held_until > v_now) end,
    b.updated_at, b.updated_by
  from stillwake.budgets b where (p_scope is null or b.scope = p_scope) and (p_name is null or b.name = p_name) order by b.scope, b.name;
end
$$;

-- The part of a time span that is after p_since (UTC).
create or replace function stillwake.share_since(p_from timestamptz, p_until timestamptz, p_since timestamp) returns numeric
language sql immutable as $$
  select case when p_from at time zone 'UTC' >= p_since or p_until <= p_from then 1
    else extract(epoch from greatest(p_until at time zone 'UTC' - p_since, interval '0')) / extract(epoch from p_until - p_from) end
$$;

-- Pauses pools and holds tenants whose budget is used up, and releases those it held whose budget has room again; other
-- pauses stay. Returns what changed. Locks: pools, then tenants, by name, if something changes.
create or replace function stillwake.check_budgets() returns table (act text, count bigint, note text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := stillwake.now();
  v_one    record;
  v_over   boolean;
  v_reason text;
begin
  count := 1;
  for v_one in
    select b.scope, b.name, b.amount, b.period, b.spent, b.resets_at from stillwake.budget_state() b
    union all
    select 'pool', p.name, null, null, null, null from stillwake.pools p
    where p.resume_at is not null and not exists (select from stillwake.budgets b where b.scope = 'pool' and b.name = p.name)
    union all
    select 'tenant', t.name, null, null, null, null from stillwake.tenants t
    where t.held_until is not null and not exists (select from stillwake.budgets b where b.scope = 'tenant' and b.name = t.name)
    order by 1, 2
  loop
    v_over := coalesce(v_one.spent >= v_one.amount, false);
    v_reason := format('The budget is used up: %s of %s this %s', stillwake.money(v_one.spent), stillwake.money(v_one.amount),
      v_one.period);
    if v_one.scope = 'pool' and v_over then
      act := 'paused';
      update stillwake.pools p set paused_at = coalesce(p.paused_at, v_now), paused_by = 'budget', pause_reason = v_reason,
        resume_at = v_one.resets_at
      where p.name = v_one.name and (p.paused_at is null or p.resume_at is distinct from v_one.resets_at and p.resume_at is not null);
    elsif v_one.scope = 'pool' then
      act := 'resumed';
      update stillwake.pools p set paused_at = null, paused_by = null, pause_reason = null, resume_at = null
      where p.name = v_one.name and p.resume_at is not null;
    elsif v_over then
      -- Shown to users who wait for a job of the tenant, so without the amounts.
      act := 'held';
      insert into stillwake.tenants as t (name, held_until, hold_reason)
      values (v_one.name, v_one.resets_at, format('The budget for this %s is used up', v_one.period))
      on conflict (name) do update set held_until = excluded.held_until, hold_reason = excluded.hold_reason
      where t.held_until is distinct from excluded.held_until;
    else
      act := 'resumed';
      update stillwake.tenants t set held_until = null, hold_reason = null where t.name = v_one.name and t.held_until is not null;
    end if;
    if found then
      if act = 'resumed' then
        perform stillwake.hint(p.name) from stillwake.pools p where v_one.scope = 'tenant' or p.name = v_one.name;
        delete from stillwake.tenants t where v_one.scope = 'tenant' and t.name = v_one.name and t.weight = 1 and t.held_until is null;
      end if;
      note := format('%s %s: %s', v_one.scope, v_one.name, case when v_over then v_reason
        when v_one.amount is null then 'its budget was removed'
        else format('%s of %s used this %s', stillwake.money(v_one.spent), stillwake.money(v_one.amount), v_one.period) end);
      return next;
    end if;
  end loop;
end
$$;

-- An amount for people: dollars and cents, with more digits below one cent.
create or replace function stillwake.money(p_amount numeric) returns text
language sql immutable as $$
  select '$' || case when p_amount = 0 or abs(p_amount) >= 0.01 then to_char(p_amount, 'FM999999999990.00')
    else to_char(p_amount, 'FM0.009999') end
$$;

-- Deletes old records: which job ran on which machine after 45 days, costs after 400. Job ids begin with the time, so
-- old rows are at the beginning of the index; records of machines that have not ended stay.
create or replace function stillwake.prune_machines(p_limit integer default 1000) returns bigint
language plpgsql as $$
declare
  v_now  timestamptz := stillwake.now();
  v_rows bigint;
  v_sum  bigint := 0;
begin
  delete from stillwake.machine_jobs w where w.ctid = any (array(
    select x.ctid from stillwake.machine_jobs x
    where x.job_id < stillwake.first_id(v_now - interval '45 days') and x.claimed_at < v_now - interval '45 days'
      and not exists (select from stillwake.machine_lives l where l.id = x.life and l.ended_at is null)
    order by x.job_id limit p_limit));
  get diagnostics v_sum = row_count;
  delete from stillwake.machine_costs c where c.day < (v_now - interval '400 days')::date;
  get diagnostics v_rows = row_count;
  v_sum := v_sum + v_rows;
  delete from stillwake.spending s where s.day < (v_now - interval '400 days')::date;
  delete from stillwake.machine_lives l where l.ended_at < v_now - interval '400 days';
  get diagnostics v_rows = row_count;
  return v_sum + v_rows;
end
$$;
