-- The copy of the feed that Supabase Realtime follows. sql/realtime.sql enables it; until then nothing here is called.

-- After a statement that wrote to the feed: copies the lines of jobs that have a tenant, with the tenant. The SET
-- clauses pin the plan: one primary key lookup per line.
create or replace function stillwake.mirror_feed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  insert into stillwake.realtime_feed (job_id, seq, at, tenant, epoch, kind, level, step, message, data)
  select n.job_id, n.seq, n.at, t.tenant, n.epoch, n.kind, n.level, n.step, n.message, n.data
  from new_lines n cross join lateral (
    select j.tenant from stillwake.live_jobs j where j.id = n.job_id
    union all
    select e.tenant from stillwake.ended_jobs e where e.id = n.job_id
    limit 1
  ) t
  where t.tenant is not null
  on conflict do nothing;
  return null;
end
$$;

-- Empties the copy once its first line is older than p_keep. Subscribers may miss a line written at this moment; the
-- feed has it, and the gap in the sequence numbers shows it. Returns whether it did. Locks: the copy, with
-- lock_timeout; if not available, it is left for the next call.
create or replace function stillwake.trim_realtime(p_keep interval default '1 hour') returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$
declare
  v_before timestamptz := stillwake.now() - p_keep;
begin
  -- Rows are only appended, so the first one on disk is the oldest.
  if coalesce((select r.at >= v_before from stillwake.realtime_feed r limit 1), true) then
    return false;
  end if;
  truncate stillwake.realtime_feed;
  return true;
exception when lock_not_available then
  return false;
end
$$;
