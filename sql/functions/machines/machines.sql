-- Machines. The orchestrator reserves an ordinal before it calls a provider; the worker on the machine registers and
-- requests permission to leave; machine_ended() records the end of a machine, recovers its jobs and allocates its
-- cost.
-- Lock order: leases by id, the pool, lives by id, then jobs as everywhere. claim() takes a shared lock on its own
-- life, see there.

-- Identifies this database and its fleet of machines. The first call creates the row. fits is false where the row came
-- with a copy of the database: then no machine may be touched until an operator has called adopt_fleet(). p_address:
-- host, port and database as the caller reaches it, null for a loopback address.
create or replace function stillwake.fleet(p_address text default null) returns table (id text, fits boolean, why text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_address  text := coalesce(p_address, 'local');
  v_cluster  text := stillwake.cluster_id();
  v_database bigint := (select d.oid::bigint from pg_database d where d.datname = current_database());
  v_fleet    stillwake.fleet;
begin
  insert into stillwake.fleet (id, cluster, database, addresses, adopted_at)
  values (left(md5(gen_random_uuid()::text), 8), v_cluster, v_database, array[v_address], stillwake.now()) on conflict do nothing;
  select * into v_fleet from stillwake.fleet;
  id := v_fleet.id;
  why := case
    when v_fleet.cluster <> v_cluster
      then format('the machines belong to a database of cluster %s, and this is cluster %s', v_fleet.cluster, v_cluster)
    when v_fleet.database <> v_database
      then format('the machines belong to database %s of this cluster, and this is database %s', v_fleet.database, v_database)
    when v_address <> all (v_fleet.addresses)
      then format('the machines belong to a database at %s, and this is one at %s', array_to_string(v_fleet.addresses, ', '), v_address)
  end;
  fits := why is null;
  return next;
end
$$;

-- The identifier that initdb gave this cluster. A restored dump is in another cluster; a file copy has the same one and
-- differs by its address.
create or replace function stillwake.cluster_id() returns text
language plpgsql stable as $$
begin
  return (select c.system_identifier::text from pg_control_system() c);
exception when insufficient_privilege or undefined_function then
  return 'unknown';
end
$$;

-- Claims the machines of this database. p_same: it is the same database under a new address or on a new cluster, and
-- keeps its machines. Otherwise it gets a new fleet id, and the lives in its copied rows end: those machines belong to
-- the original. Returns the fleet id.
create or replace function stillwake.adopt_fleet(p_address text default null, p_same boolean default false, p_by text default null)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  perform from stillwake.fleet(p_address);
  update stillwake.fleet f set id = case when p_same then f.id else left(md5(gen_random_uuid()::text), 8) end,
    cluster = stillwake.cluster_id(), database = (select d.oid::bigint from pg_database d where d.datname = current_database()),
    adopted_at = v_now, adopted_by = p_by,
    addresses = case when not p_same then array[coalesce(p_address, 'local')] when coalesce(p_address, 'local') = any (f.addresses)
      then f.addresses else f.addresses || coalesce(p_address, 'local') end;
  if not p_same then
    update stillwake.machine_lives set ended_at = v_now, left_reason = 'belongs to the fleet this database was copied from',
      paid_seconds = 0, busy_seconds = 0, work_seconds = 0 where ended_at is null;
    update stillwake.pools set wasted_starts = 0, wasted_starts_at = null, provider_error = null;
  end if;
  return (select f.id from stillwake.fleet f);
end
$$;

-- Stores the machine settings of a pool; null for none. Read by planners, cost calculation and pages.
create or replace function stillwake.set_machines(p_pool text, p_machines jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into stillwake.pools (name, machines) values (p_pool, p_machines)
  on conflict (name) do update set machines = excluded.machines, wasted_starts = 0, wasted_starts_at = null, provider_error = null
  where pools.machines is distinct from excluded.machines;
end
$$;

-- Everything the orchestrator needs to decide which machines to start, in one snapshot, after running what is due
-- without a worker: schedules, recovery, budgets. lives: machine lives that have not ended, with their running jobs.
-- working: workers that hold jobs of the pool, on a machine or not.
-- Locks: as run_schedules(), recover(), expire(), check_budgets(); lives whose idleness changed.
create or replace function stillwake.orchestrator_snapshot(p_pools text[])
returns table (
  pool text, at timestamptz, paused text, claimable integer, running integer, oldest timestamptz, next_due timestamptz,
  wasted_starts integer, wasted_starts_at timestamptz, provider_error jsonb, lives jsonb, working text[]
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  if exists (select from stillwake.schedules s where s.due_at <= v_now) then
    perform stillwake.run_schedules(100);
  end if;
  perform stillwake.recover(100);
  perform stillwake.expire(100);
  perform stillwake.check_budgets();
  -- A life that is locked by a claim at this moment is skipped.
  update stillwake.machine_lives l set idle_since = case when l.idle_since is null then v_now end
  where l.id = any (array(
    select m.id from stillwake.machine_lives m
    where m.pool = any (p_pools) and m.ended_at is null and m.registered_at is not null
      and (m.idle_since is null) <> exists (select from stillwake.leases s where s.worker = m.machine)
    order by m.id for update skip locked));
  return query
  select p.name, v_now, case when p.paused_at is not null then coalesce(p.pause_reason, 'paused') end, d.claimable, d.running, d.oldest,
    d.next_due, p.wasted_starts, p.wasted_starts_at, p.provider_error, coalesce(m.lives, '[]'),
    array(select distinct s.worker from stillwake.leases s where s.pool = p.name)
  from stillwake.demand(p_pools) d
  join stillwake.pools p on p.name = d.pool
  left join lateral (
    select jsonb_agg(jsonb_build_object('id', l.id, 'machine', l.machine, 'ordinal', l.ordinal, 'burst', l.burst,
      'provider_id', l.provider_id, 'slots', l.slots, 'requested_at', l.requested_at, 'started_at', l.started_at,
      'registered_at', l.registered_at, 'idle_since', l.idle_since,
      'silent_since', l.silent_since, 'left_at', l.left_at, 'retired_at', l.retired_at,
      'running', (select coalesce(sum(cardinality(s.job_ids)), 0) from stillwake.leases s where s.worker = l.machine))
      order by l.ordinal) as lives
    from stillwake.machine_lives l where l.pool = p.name and l.ended_at is null
  ) m on true;
end
$$;

-- Reserves an ordinal for a machine that is about to be started. Returns the life and the name of the machine, or no row
-- when the ordinal is taken or there are already p_max machines. p_life: ordinal, machine (the name; a burst machine gets a
-- unique number appended), burst, provider, region, size, slots, price, prices, least_seconds, by, why. Locks: the
-- pool's row.
create or replace function stillwake.reserve_machine(p_pool text, p_max integer, p_life jsonb) returns table (life uuid, machine text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := stillwake.now();
  v_serial bigint;
begin
  update stillwake.pools p set machine_serial = p.machine_serial + 1 where p.name = p_pool and p.paused_at is null
  returning p.machine_serial into v_serial;
  if not found or (select count(*) from stillwake.machine_lives l where l.pool = p_pool and l.ended_at is null) >= p_max then
    return;
  end if;
  return query
  insert into stillwake.machine_lives (id, machine, pool, ordinal, burst, provider, region, size, slots, requested_at, requested_by, why,
    price, prices, least_seconds)
  values (stillwake.new_id(), p_life ->> 'machine' || case when (p_life ->> 'burst')::boolean then '-' || v_serial else '' end, p_pool,
    (p_life ->> 'ordinal')::integer, (p_life ->> 'burst')::boolean, p_life ->> 'provider', p_life ->> 'region', p_life ->> 'size',
    (p_life ->> 'slots')::integer, v_now, p_life ->> 'by', left(p_life ->> 'why', 500),
    coalesce((p_life ->> 'price')::numeric, 0), p_life ->> 'prices', coalesce((p_life ->> 'least_seconds')::integer, 0))
  on conflict do nothing
  returning machine_lives.id, machine_lives.machine;
end
$$;

-- Records that the provider has started a machine. Its clock may differ: the start time is limited to between the
-- request and now.
create or replace function stillwake.machine_started(p_life uuid, p_provider_id text, p_started_at timestamptz default null) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update stillwake.machine_lives l set provider_id = coalesce(p_provider_id, l.provider_id),
    started_at = greatest(l.requested_at, least(coalesce(p_started_at, l.started_at), stillwake.now()))
  where l.id = p_life and l.ended_at is null
$$;

-- Records that the worker on a machine is running. A machine that was not requested, such as one started by hand, is
-- counted from now on. Returns false when the machine is being retired, or its ordinal is taken, and its worker must
-- leave.
create or replace function stillwake.machine_registered(p_machine text, p_pool text, p_slots integer default 1) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now  timestamptz := stillwake.now();
  v_life stillwake.machine_lives;
begin
  if coalesce(length(p_machine), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A machine has a name of 1 to 200 characters', 'machine', 'Pass the name that its provider uses.');
  end if;
  insert into stillwake.machine_lives (id, machine, pool, ordinal, burst, provider, region, size, slots, requested_at, started_at, price,
    prices, least_seconds)
  select stillwake.new_id(), p_machine, p.name,
    -- The names of our machines contain their ordinal.
    coalesce(substring(p_machine from '-m(\d{1,6})(?:-\d+)?$')::integer,
      1000000 + coalesce((select max(l.ordinal) from stillwake.machine_lives l
        where l.pool = p_pool and l.ordinal >= 1000000 and l.ended_at is null) - 999999, 0)),
    true, coalesce(p.machines ->> 'provider', 'unknown'), p.machines ->> 'region', p.machines ->> 'size',
    least(greatest(p_slots, 1), 1000), v_now, v_now,
    coalesce((p.machines ->> 'price')::numeric, 0), p.machines ->> 'prices', coalesce((p.machines ->> 'least_seconds')::integer, 0)
  from stillwake.pools p
  where p.name = p_pool and not exists (select from stillwake.machine_lives l where l.machine = p_machine and l.ended_at is null)
  on conflict do nothing;
  update stillwake.machine_lives l set registered_at = coalesce(l.registered_at, v_now), started_at = coalesce(l.started_at, v_now),
    left_at = null, left_reason = null, silent_since = null, slots = least(greatest(p_slots, 1), 1000)
  where l.machine = p_machine and l.ended_at is null and l.retired_at is null returning * into v_life;
  return v_life.id is not null;
end
$$;

-- Whether an idle machine may leave: not while there is a job that its worker could claim, because it would have to be
-- started again at once. With a p_reason it always leaves. Other arguments as in next_due(). Locks: its life.
create or replace function stillwake.machine_leaves(
  p_machine text, p_pool text, p_reason text default null, p_pipelines text[] default null, p_versions integer[] default null,
  p_oldest integer[] default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  if p_reason is null and stillwake.next_due(array[p_pool], p_pipelines, p_versions, p_oldest) <= v_now
    and exists (select from stillwake.demand(array[p_pool], 1) d where d.claimable > 0) then
    return false;
  end if;
  update stillwake.machine_lives l set left_at = coalesce(l.left_at, v_now), left_reason = left(coalesce(p_reason, 'idle'), 200)
  where l.machine = p_machine and l.ended_at is null;
  return true;
end
$$;

-- Retires a machine that is about to be stopped from outside: true when it has no job and will get none. Locks: its
-- life, which claim() shares.
create or replace function stillwake.retire_machine(p_life uuid) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_machine text;
begin
  select l.machine into v_machine from stillwake.machine_lives l where l.id = p_life and l.ended_at is null for update;
  if not found or exists (select from stillwake.leases s where s.worker = v_machine) then
    return false;
  end if;
  update stillwake.machine_lives l set retired_at = coalesce(l.retired_at, stillwake.now()) where l.id = p_life;
  return true;
end
$$;

-- Records that a machine has ended or never started. p_exit: code, oom, signal, reason, memory (as text), or never: it
-- was not started, and its life is deleted. Requeues its jobs at once and returns their number. The start and end times
-- come from the provider (p_started_at, p_ended_at), limited to what is possible. Locks: leases of its worker by id;
-- its pool; its life; then the jobs.
create or replace function stillwake.machine_ended(p_life uuid, p_exit jsonb default '{}', p_started_at timestamptz default null,
  p_ended_at timestamptz default null) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_life  stillwake.machine_lives;
  v_lease stillwake.leases;
  v_count integer := 0;
  v_jobs  integer;
  v_ran   boolean;
begin
  select * into v_life from stillwake.machine_lives l where l.id = p_life;
  if p_exit ? 'never' then
    delete from stillwake.machine_lives l where l.id = p_life and l.started_at is null and l.registered_at is null;
    return 0;
  end if;
  perform from stillwake.leases s where s.worker = v_life.machine order by s.id for update;
  perform from stillwake.pools p where p.name = v_life.pool for no key update;
  select * into v_life from stillwake.machine_lives l where l.id = p_life and l.ended_at is null for update;
  if not found then
    return 0;
  end if;
  v_ran := v_life.started_at is not null or v_life.registered_at is not null or p_exit ?| array['code', 'signal', 'oom'];
  for v_lease in select * from stillwake.leases s where s.worker = v_life.machine order by s.id for update loop
    -- One job that cannot be recovered must not keep a life open: it is left to its lease.
    begin
      v_count := v_count + stillwake.recover_lease(v_lease, 100000, stillwake.machine_failure(v_life, p_exit));
    exception
    when deadlock_detected or serialization_failure then
      raise;
    when others then
      raise warning 'Lease % of machine % cannot be recovered: %', v_lease.id, v_life.machine, sqlerrm;
    end;
  end loop;
  -- A machine that was never seen running costs nothing.
  if coalesce(p_started_at, v_life.started_at, v_life.registered_at) is not null then
    v_life.started_at := greatest(v_life.requested_at, least(coalesce(p_started_at, v_life.started_at, v_life.registered_at), v_now));
  end if;
  v_life.ended_at := greatest(v_life.requested_at, v_life.started_at, least(coalesce(p_ended_at, v_life.left_at, v_now), v_now));
  select count(*) into v_jobs from stillwake.machine_jobs w where w.life = p_life;
  update stillwake.machine_lives l set started_at = v_life.started_at, ended_at = v_life.ended_at, exit = nullif(p_exit, '{}')
  where l.id = p_life;
  delete from stillwake.listeners i where i.worker = v_life.machine;
  perform stillwake.allocate_cost(p_life);
  -- A wasted start: it did no job although there was one, or broke down before. A machine that never ran says nothing
  -- about the next start.
  if v_jobs > 0 then
    update stillwake.pools p set wasted_starts = 0, wasted_starts_at = null where p.name = v_life.pool and p.wasted_starts > 0;
  elsif v_ran and (v_life.left_at is null or exists (select from stillwake.demand(array[v_life.pool], 1) d where d.claimable > 0)) then
    update stillwake.pools p set wasted_starts = p.wasted_starts + 1, wasted_starts_at = v_now where p.name = v_life.pool;
  end if;
  return v_count;
end
$$;

-- The failure of a job whose machine died.
create or replace function stillwake.machine_failure(p_life stillwake.machine_lives, p_exit jsonb) returns jsonb
language sql stable as $$
  select jsonb_build_object('name', 'MachineDied', 'code', case when (p_exit ->> 'oom')::boolean then 'MACHINE_OOM' else 'MACHINE_DIED' end,
    'message', format('Machine %s %s', p_life.machine, case
      when (p_exit ->> 'oom')::boolean then 'ran out of memory' || coalesce(' at ' || (p_exit ->> 'memory'), '')
      when p_exit ->> 'signal' is not null then 'was killed by ' || (p_exit ->> 'signal')
      when p_exit ->> 'code' is not null then 'ended with exit code ' || (p_exit ->> 'code') else 'disappeared' end))
$$;

-- Stores why machines of a pool cannot be started, for operators; null when they can.
create or replace function stillwake.report_provider_error(p_pool text, p_error jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update stillwake.pools p set provider_error = case when p_error is not null then p_error
    || jsonb_build_object('since', coalesce(case when p.provider_error ->> 'code' = p_error ->> 'code' then p.provider_error -> 'since' end,
      to_jsonb(stillwake.now()))) end
  where p.name = p_pool and p.provider_error is distinct from p_error
$$;

-- For autoscalers that query by SQL, such as KEDA: how many machines a pool needs now. Columns may be added at the end.
create or replace view stillwake.wanted_workers as
select d.pool, case when d.paused then 0
  else least(ceil((d.claimable + d.running)::numeric / greatest(coalesce((p.machines ->> 'slots')::integer, 1), 1)),
    coalesce((p.machines ->> 'max')::integer, 1000))::integer end as wanted, d.claimable, d.running
from stillwake.demand() d join stillwake.pools p on p.name = d.pool;
