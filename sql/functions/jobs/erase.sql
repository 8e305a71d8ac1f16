-- Erasing a tenant: its jobs with all their rows, its schedules, tokens and endpoints, and everything about it in the audit log.
--
--   cancel live jobs -> wait until they end -> return the store prefixes of one batch -> the caller removes these objects
--     -> delete the rows of that batch -> next batch … -> over
--
-- What stays: the fact and time of each audited action, and its actor if that was not a token of the tenant; feed rows
-- whose job was deleted before, which cannot be attributed and are dropped with their week; and the content of backups
-- and the WAL.

-- One batch: call it until `over`. Returns how many jobs are still live (their cancellation is requested), how many
-- were erased in this call, and which store prefixes the caller must remove and then pass to the next call as
-- p_removed: no row is deleted before its objects. Children without a tenant belong to the tenant of their parent.
-- Locks: schedules, leases with their jobs as cancel(), ended rows by id. Raises SW001.
create or replace function stillwake.erase_tenant(p_tenant text, p_max integer default 500, p_removed text[] default '{}')
returns table (live bigint, erased bigint, objects text[], artifacts bigint, over boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id    uuid;
  v_ids   uuid[];
  v_lines bigint;
begin
  if coalesce(length(p_tenant), 0) = 0 then
    perform stillwake.refuse('SW001', 'The tenant is missing', 'tenant', 'Pass the name of the tenant to erase.');
  elsif p_max is null or p_max not between 1 and 10000 then
    perform stillwake.refuse('SW001', format('A batch cannot have %s jobs', coalesce(p_max::text, 'null')), 'max', 'Use 1 to 10000.');
  end if;
  live := 0;
  erased := 0;
  objects := '{}';
  artifacts := 0;
  over := false;

  -- First everything that could create new rows.
  delete from stillwake.schedules s where s.options ->> 'tenant' = p_tenant;
  delete from stillwake.tokens t where t.tenant = p_tenant;
  delete from stillwake.tenants t where t.name = p_tenant;
  delete from stillwake.budgets b where b.scope = 'tenant' and b.name = p_tenant;
  delete from stillwake.spending s where s.scope = 'tenant' and s.name = p_tenant;
  update stillwake.machine_costs c set tenant = null where c.tenant = p_tenant;
  update stillwake.machine_jobs w set tenant = null where w.tenant = p_tenant;

  for v_id in select j.id from stillwake.live_jobs j where j.tenant = p_tenant and j.cancel is null
    order by j.lease_id nulls last, j.id limit p_max loop
    if stillwake.job_is_live(v_id) then
      perform stillwake.cancel(v_id, 'Its tenant is being erased', 'stillwake');
    end if;
  end loop;
  select count(*) into live from (select from stillwake.live_jobs j where j.tenant = p_tenant limit 100000) l;
  if live > 0 then
    return next;
    return;
  end if;

  v_ids := array(select e.id from stillwake.ended_jobs e where e.tenant = p_tenant order by e.id limit p_max for update);
  if v_ids <> '{}' then
    v_ids := array(
      with recursive family as (
        select i as id from unnest(v_ids) i
        union
        select c.id from family f cross join lateral (
          select e.id from stillwake.ended_jobs e where e.parent_id = f.id and e.tenant is null
          union all
          select l.id from stillwake.live_jobs l where l.parent_id = f.id and l.tenant is null
        ) c
      )
      select f.id from family f);
    select count(*) into live from stillwake.live_jobs j where j.id = any (v_ids);
    if live > 0 then
      perform stillwake.cancel(j.id, 'Its tenant is being erased', 'stillwake') from stillwake.live_jobs j
      where j.id = any (v_ids) and j.cancel is null;
      return next;
      return;
    end if;
    -- Prefixes as the worker builds them: <week>/<job>. Also for jobs without an artifact row: an attempt may have died
    -- after the upload.
    objects := array(
      select o.prefix from (
        select to_char(stillwake.week_of(e.id), 'YYYY-MM-DD') || '/' || e.id as prefix from stillwake.ended_jobs e
        where e.id = any (v_ids) and e.epoch > 0
      ) o where o.prefix <> all (p_removed));
    if objects <> '{}' then
      select count(*) into artifacts from stillwake.artifacts a where a.job_id = any (v_ids);
      return next;
      return;
    end if;

    delete from stillwake.feed f where (f.job_id, f.seq) in (select o.job_id, o.seq from stillwake.feed o
      where o.job_id = any (v_ids) limit 20000);
    get diagnostics v_lines = row_count;
    if v_lines = 20000 then
      return next;
      return;
    end if;
    if exists (select from stillwake.realtime_feed r where r.job_id = any (v_ids)) then
      -- A copy of the last hour. A DELETE would send the key of each row to every subscriber.
      truncate stillwake.realtime_feed;
    end if;
    delete from stillwake.watches w where w.job_id = any (v_ids);
    delete from stillwake.webhook_joins w where w.job_id = any (v_ids);
    delete from stillwake.webhooks w where w.job_id = any (v_ids);
    delete from stillwake.limit_holds h where h.job_id = any (v_ids);
    delete from stillwake.artifacts a where a.job_id = any (v_ids);
    delete from stillwake.checkpoints c where c.job_id = any (v_ids);
    delete from stillwake.signals s where s.job_id = any (v_ids);
    delete from stillwake.spawn_parts p where p.job_id = any (v_ids);
    delete from stillwake.spawns s where s.job_id = any (v_ids);
    delete from stillwake.ended_attempts a where a.job_id = any (v_ids);
    -- Also the keys of jobs that joined one of these.
    delete from stillwake.idempotency_keys k using stillwake.ended_jobs e
    where e.id = any (v_ids) and k.pipeline = e.pipeline and k.job_id = e.id;
    update stillwake.audit a set target = null, before = null, after = null where a.target = any (v_ids::text[]);
    delete from stillwake.ended_jobs e where e.id = any (v_ids);
    get diagnostics erased = row_count;
    return next;
    return;
  end if;

  update stillwake.audit a set actor = case when a.token is not null then 'erased' else a.actor end, tenant = null, target = null,
    before = null, after = null, address = null
  where a.tenant = p_tenant or a.act = 'createToken' and a.before ->> 'tenant' = p_tenant
    or a.act in ('setBudget', 'clearBudget') and a.target = p_tenant
      and coalesce(a.after ->> 'scope', a.before ->> 'scope', 'tenant') = 'tenant'
    or a.act in ('setEndpoint', 'rotateSecret', 'disableEndpoint', 'enableEndpoint')
      and a.target in (select n.name from stillwake.endpoints n where n.tenant = p_tenant);
  -- Last: a webhook without its endpoint would be sent without a signature.
  delete from stillwake.webhook_lanes l where l.endpoint in (select n.name from stillwake.endpoints n where n.tenant = p_tenant);
  delete from stillwake.endpoints n where n.tenant = p_tenant;
  delete from stillwake.tokens t where t.tenant = p_tenant;
  over := true;
  return next;
end
$$;
