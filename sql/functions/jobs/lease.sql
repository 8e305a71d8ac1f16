-- Leases: heartbeat, loss and recovery. This is the fence: a write by a worker names (job, epoch, lease), and all three
-- must match the job's row at that moment. A lease can only be revoked by a transaction that holds its row lock, so a
-- writer that holds the lock may trust what it read. All writers take the same exclusive lock: two that shared it and
-- then wanted to settle would deadlock.

-- Extends the given leases and returns what the worker must react to: 'lost' (stop; no further write is accepted),
-- 'cancel' or 'pause'. An expired lease that was not recovered is simply extended. A lease whose row stays locked (by
-- job.tx, or a settlement that waits) is reported as 'busy': its heartbeat is stored apart and counts for recovery, and
-- the other leases do not wait for it. p_presence: see hold_presence(). Locks: leases by id; after half a second only
-- those that are not locked. Never FOR UPDATE, which fence_transaction() would take for a change of the key.
create or replace function stillwake.heartbeat(p_jobs uuid[], p_epochs bigint[], p_leases uuid[], p_presence bigint default null)
returns table (job_id uuid, verdict text, reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_now    timestamptz := stillwake.now();
  v_leases uuid[] := p_leases;
begin
  begin
    perform from stillwake.leases l where l.id = any (p_leases) order by l.id for no key update;
  exception when lock_not_available then
    v_leases := array(select l.id from stillwake.leases l where l.id = any (p_leases) order by l.id for no key update skip locked);
    insert into stillwake.locked_heartbeats (lease_id, until)
    select l.id, v_now + l.span from stillwake.leases l where l.id = any (p_leases) and l.id <> all (v_leases);
  end;
  -- A delayed heartbeat: its worker has a newer session by now and does not wait for this response.
  if exists (select from stillwake.leases l
    where l.id = any (v_leases) and (abs(l.presence), l.presence < 0) > (abs(p_presence), p_presence < 0)) then
    return;
  end if;
  -- If the lease has expired, its worker lives and could not send heartbeats. If no other could, the others may live too.
  perform stillwake.note_outage(exists (select from stillwake.leases l where l.id = any (v_leases) and l.until < v_now));
  update stillwake.leases l set until = stillwake.now() + l.span, presence = p_presence, absent_since = null where l.id = any (v_leases);
  if exists (select from stillwake.locked_heartbeats) then
    delete from stillwake.locked_heartbeats h where h.ctid = any (array(select o.ctid from stillwake.locked_heartbeats o
      where o.lease_id = any (v_leases) or o.until < v_now - interval '1 hour' for update skip locked));
  end if;
  return query
  select b.job, case when j.id is null then 'lost' when j.cancel is not null then 'cancel' when j.pause is not null then 'pause'
    else 'busy' end, coalesce(j.cancel ->> 'reason', j.pause ->> 'reason')
  from unnest(p_jobs, p_epochs, p_leases) as b (job, epoch, lease)
  left join stillwake.live_jobs j on j.id = b.job and j.epoch = b.epoch and j.lease_id = b.lease
  where j.id is null or j.cancel is not null or j.pause is not null or b.lease <> all (v_leases);
end
$$;

-- Whether the lease still holds the job at this epoch. Keeps the lease's row locked until the transaction ends, so that
-- the result stays true until the caller's write is committed.
create or replace function stillwake.holds_lease(p_job uuid, p_epoch bigint, p_lease uuid) returns boolean
language plpgsql as $$
begin
  perform from stillwake.leases where id = p_lease for no key update;
  return exists (select from stillwake.live_jobs where id = p_job and epoch = p_epoch and lease_id = p_lease);
end
$$;

-- The same inside the user's transaction; raises SW005.
--
-- Under REPEATABLE READ and SERIALIZABLE a lock on a row that was updated since the snapshot fails, and heartbeats
-- update the lease. It is locked FOR KEY SHARE there, which heartbeats do not conflict with. Settlement and recovery lock
-- the lease FOR UPDATE and then change or delete it, which does conflict: they wait for this transaction, and if they came
-- first, this raises 40001. So the job's row in the snapshot, however old, is true until the transaction ends.
create or replace function stillwake.fence_transaction(p_job uuid, p_epoch bigint, p_lease uuid) returns void
language plpgsql as $$
declare
  v_held boolean;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    v_held := stillwake.holds_lease(p_job, p_epoch, p_lease);
  else
    begin
      perform from stillwake.leases where id = p_lease for key share;
      v_held := exists (select from stillwake.live_jobs where id = p_job and epoch = p_epoch and lease_id = p_lease);
    exception when serialization_failure then
      raise exception using errcode = '40001', message = format('A job of the lease of job %s was settled since this transaction began',
        p_job), hint = 'Repeat the transaction, or use READ COMMITTED for it.';
    end;
  end if;
  if not v_held then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
end
$$;

create or replace function stillwake.refuse_lost(p_job uuid, p_epoch bigint) returns void
language plpgsql as $$
begin
  perform stillwake.refuse('SW005', format('The lease of job %s at epoch %s is lost', p_job, p_epoch), 'epoch',
    'Another attempt has taken over or the job has ended. Stop this attempt; nothing it writes is accepted.');
end
$$;

-- Removes jobs from a lease, and deletes the lease with its last job. The caller holds the lease's row lock.
create or replace function stillwake.remove_from_lease(p_lease uuid, p_jobs uuid[]) returns void
language plpgsql as $$
begin
  delete from stillwake.leases where id = p_lease and cardinality(job_ids) = cardinality(p_jobs);
  if not found then
    update stillwake.leases set job_ids = array(select unnest(job_ids) except select unnest(p_jobs)) where id = p_lease;
  end if;
end
$$;

-- Records the end of an outage that is not recorded yet: the server was started or promoted, or, with p_silence, a lease has
-- expired. It ends now: a server that was started may have been busy with its recovery, and a standby does not record
-- when it was promoted. Only the first outage after the last heartbeat of a lease counts for it (see may_live()): what was
-- dead before an outage is not kept by the next ones.
create or replace function stillwake.note_outage(p_silence boolean) returns void
language plpgsql as $$
declare
  v_now      timestamptz := stillwake.now();
  v_timeline text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  v_started  timestamptz := pg_postmaster_start_time();
begin
  if not exists (select from stillwake.outages o where o.timeline = v_timeline and o.started_at = v_started) then
    insert into stillwake.outages (ended_at, timeline, started_at) values (v_now, v_timeline, v_started)
    on conflict (ended_at) do update set timeline = excluded.timeline, started_at = excluded.started_at;
  end if;
  if p_silence and exists (select from stillwake.leases l
    where l.until < v_now and not exists (select from stillwake.outages o where o.ended_at > l.until - l.span)) then
    delete from stillwake.outages o where o.ended_at < v_now - interval '7 days'
      and exists (select from stillwake.outages n where n.started_at = v_started and n.ended_at > o.ended_at);
    insert into stillwake.outages (ended_at, timeline, started_at) values (v_now, v_timeline, v_started) on conflict do nothing;
  end if;
end
$$;

-- Whether the worker of a lease that has expired, or whose session is gone, may be alive: it could not send heartbeats
-- until the length of the lease ago, or its last one met a locked row.
create or replace function stillwake.may_live(p_lease stillwake.leases, p_now timestamptz) returns boolean
language sql stable as $$
  select coalesce(p_now <= p_lease.span
      + (select min(o.ended_at) from stillwake.outages o where o.ended_at > p_lease.until - p_lease.span), false)
    or exists (select from stillwake.locked_heartbeats h where h.lease_id = p_lease.id and h.until >= p_now)
$$;

-- Requeues the jobs of at most p_limit expired leases, at most p_jobs jobs, or fails those that reached their crash
-- limit. Returns the number of jobs. After an outage every worker has the length of its lease to heartbeat first.
-- p_except: leases of the caller. A null among them, or instead of them: the caller cannot tell whether workers could
-- reach the database while leases expired; that counts as an outage.
-- Locks: leases, skipping locked ones (a worker that is writing at this moment is alive); then their jobs.
create or replace function stillwake.recover(p_limit integer default 100, p_pool text default null,
  p_jobs integer default 1000, p_except uuid[] default '{}') returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_lease stillwake.leases;
  v_count integer := 0;
begin
  -- Usually none, in any pool, and this check is all it costs. A restart is recorded before the next one, see may_live().
  if not exists (select from stillwake.leases l where l.until < v_now)
    and exists (select from stillwake.outages o where o.started_at = pg_postmaster_start_time()) then
    return 0;
  end if;
  perform stillwake.note_outage(p_except is null or array_position(p_except, null) is not null);
  for v_lease in
    select * from stillwake.leases l
    where l.until < v_now and not stillwake.may_live(l, v_now) and (p_pool is null or l.pool = p_pool)
      and l.id <> all (coalesce(array_remove(p_except, null), '{}'))
    order by l.until limit p_limit for update skip locked
  loop
    exit when v_count >= p_jobs;
    -- One job that cannot be recovered must not block its whole pool.
    begin
      v_count := v_count + stillwake.recover_lease(v_lease, p_jobs - v_count);
    exception
    when deadlock_detected or serialization_failure then
      raise;
    when others then
      raise warning 'Lease % of worker % cannot be recovered: %', v_lease.id, v_lease.worker, sqlerrm;
      update stillwake.leases set until = v_now + span, presence = null where id = v_lease.id;
    end;
  end loop;
  return v_count;
end
$$;

-- A worker with a direct connection holds an advisory lock in that session and passes its key with every claim and
-- heartbeat. If the lock is free, the worker is probably gone, seconds before its lease expires. It is only probable: a
-- broken session and a dead worker look the same. So the worker has p_grace to heartbeat again, with the higher key of
-- its next session, or with the negated old key while it has no session. The fence prevents any harm of a wrong guess.
-- A lease that has expired is left to recover(): after an outage of the network all sessions are gone. p_worker: the
-- caller, null if it is not a worker. Returns the number of recovered jobs, and of other workers left to watch.
-- Locks: leases of absent workers, skipping locked ones; then their jobs.
create or replace function stillwake.recover_absent(p_worker text, p_grace interval default '400 milliseconds')
returns table (recovered integer, watched integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now      timestamptz := stillwake.now();
  v_presence bigint;
  v_lease    stillwake.leases;
begin
  recovered := 0;
  watched := 0;
  for v_presence in
    select l.presence from stillwake.leases l where l.worker is distinct from p_worker and l.presence > 0
    group by l.presence order by l.presence limit 1000
  loop
    watched := watched + 1;
    continue when not pg_try_advisory_xact_lock_shared(v_presence);
    perform stillwake.note_outage(false);
    for v_lease in
      select * from stillwake.leases l
      where l.presence = v_presence and l.until >= v_now and not stillwake.may_live(l, v_now) order by l.id for update skip locked
    loop
      if v_lease.absent_since is null then
        update stillwake.leases set absent_since = v_now where id = v_lease.id;
      elsif v_lease.absent_since <= v_now - p_grace then
        -- As in recover(): one job must not block the others.
        begin
          recovered := recovered + stillwake.recover_lease(v_lease, 1000);
        exception
        when deadlock_detected or serialization_failure then
          raise;
        when others then
          raise warning 'Lease % of worker % cannot be recovered: %', v_lease.id, v_lease.worker, sqlerrm;
          update stillwake.leases set presence = null where id = v_lease.id;
        end;
      end if;
    end loop;
  end loop;
  return next;
end
$$;

-- Called by a worker on a dedicated connection. The only lock that outlives its transaction: it must not be taken
-- through a pooler that shares sessions.
create or replace function stillwake.hold_presence(p_presence bigint) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select pg_advisory_lock(p_presence)
$$;

-- p_failure: how the worker ended, if known; by default that it stopped sending heartbeats.
create or replace function stillwake.recover_lease(p_lease stillwake.leases, p_jobs integer, p_failure jsonb default null) returns integer
language plpgsql as $$
declare
  v_id   uuid;
  v_job  stillwake.live_jobs;
  v_done uuid[] := '{}';
begin
  foreach v_id in array array(
    select j.id from stillwake.live_jobs j where j.id = any (p_lease.job_ids) and j.lease_id = p_lease.id
    order by j.id limit p_jobs for update
  ) loop
    -- Read again: ending its parent a moment ago may have requested its cancellation.
    select * into v_job from stillwake.live_jobs j where j.id = v_id;
    perform stillwake.settle_lost(v_job, coalesce(p_failure, jsonb_build_object('name', 'LeaseExpired', 'code', 'LEASE_EXPIRED',
      'message', format('Worker %s has not sent a heartbeat since %s', p_lease.worker,
        to_char((p_lease.until - p_lease.span) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))));
    v_done := v_done || v_job.id;
  end loop;
  -- Its machine is not counted as capacity until its worker responds again. A life that is locked by a claim at this
  -- moment is skipped.
  if p_failure is null then
    update stillwake.machine_lives l set silent_since = stillwake.now()
    where l.id = any (array(select m.id from stillwake.machine_lives m
      where m.machine = p_lease.worker and m.ended_at is null and m.silent_since is null for update skip locked));
  end if;
  if cardinality(v_done) < p_jobs then
    delete from stillwake.leases where id = p_lease.id;
  else
    perform stillwake.remove_from_lease(p_lease.id, v_done);
  end if;
  return cardinality(v_done);
end
$$;

-- Ends jobs that no worker has started by their expires_at. One that cannot be ended (a trigger of the application, for
-- example) is paused with the reason and does not expire again: every claim of its pool calls this. Locks: live_jobs,
-- skipping locked ones.
create or replace function stillwake.expire(p_limit integer default 100, p_pool text default null) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := stillwake.now();
  v_job   stillwake.live_jobs;
  v_count integer := 0;
begin
  for v_job in
    select * from stillwake.live_jobs j
    where j.expires_at <= v_now and j.started_at is null and (p_pool is null or j.pool = p_pool)
    order by j.expires_at limit p_limit for update skip locked
  loop
    begin
      perform stillwake.end_job(v_job, 'failed', jsonb_build_object('name', 'Expired', 'code', 'EXPIRED',
        'message', format('Expired at %s before a worker could start it',
          to_char(v_job.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
      v_count := v_count + 1;
    exception
    when deadlock_detected or serialization_failure then
      raise;
    when others then
      raise warning 'Job % has expired and cannot be ended: %', v_job.id, sqlerrm;
      update stillwake.live_jobs set expires_at = null where id = v_job.id;
      perform stillwake.pause_queued(v_job.id, left(format('The job expired at %s and could not be ended: %s',
        to_char(v_job.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), sqlerrm), 500), null, null);
    end;
  end loop;
  return v_count;
end
$$;
