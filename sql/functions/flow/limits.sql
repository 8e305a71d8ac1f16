-- Limits. A limit is one quota for all workers, kept in one row and used in batches. Two kinds that may be combined:
--
--   max per period   never more than max uses in any interval of that length, wherever it starts. Uses are counted in
--                    bins of 1/128 of the period; a use counts until the end of its bin, plus the period, plus the time
--                    that may pass between grant and use (2 %, at most 2 s). So up to 97 % of the quota is used, and
--                    never more than all of it.
--   learn            follows what the other side reports: what is left of its window, and when the window ends. Grants
--                    without a response are subtracted. While nothing is known of the current window one call goes first,
--                    and the others wait for its response; the same shortly before a window ends, because its end is
--                    reported in whole seconds.
--
-- Calls in flight are recorded with the lease they are made under, so a dead worker blocks nothing.

-- Registers a limit or changes its settings: max and period, concurrency, learn. Absent settings are removed. Raises
-- SW001.
create or replace function stillwake.register_limit(p_name text, p_settings jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_old stillwake.limits;
  v_new stillwake.limits;
begin
  perform stillwake.check_options(p_settings, array['max', 'period', 'concurrency', 'learn']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid limit name', coalesce(p_name, 'null')), 'limit',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;
  select * into v_old from stillwake.limits where name = p_name;
  v_new.max := stillwake.read_integer(p_settings, 'max', 1, 1000000000);
  v_new.period := stillwake.read_duration(p_settings, 'period');
  v_new.concurrency := stillwake.read_integer(p_settings, 'concurrency', 1, 1000000);
  v_new.learn := coalesce((p_settings -> 'learn')::boolean, false);
  if (v_new.max is null) <> (v_new.period is null) or v_new.period not between '100 milliseconds' and '31 days' then
    perform stillwake.refuse('SW001',
      format('Limit "%s" cannot have max %s and period %s', p_name, coalesce(v_new.max::text, '–'), coalesce(v_new.period::text, '–')), 'period',
      'Set both max and period, the period from 100 ms to 31 days.');
  elsif v_new.max is null and v_new.concurrency is null and not v_new.learn then
    perform stillwake.refuse('SW001', format('Limit "%s" limits nothing', p_name), 'max', 'Set max and period, concurrency, or learn.');
  end if;
  if (v_old.name, v_old.max, v_old.period, v_old.concurrency, v_old.learn)
    is not distinct from (p_name, v_new.max, v_new.period, v_new.concurrency, v_new.learn) then
    return;
  end if;
  insert into stillwake.limits (name, max, period, concurrency, learn)
  values (p_name, v_new.max, v_new.period, v_new.concurrency, v_new.learn)
  on conflict (name) do update set max = excluded.max, period = excluded.period, concurrency = excluded.concurrency,
    learn = excluded.learn, updated_at = stillwake.now();
end
$$;

-- How much time may pass between the grant of a use and the use.
create or replace function stillwake.grant_lifetime(p_period interval) returns interval
language sql immutable as $$
  select least(greatest(p_period * 0.02, interval '20 milliseconds'), interval '2 seconds')
$$;

-- How much of a limit is free now; if nothing, when to check again and why. until null: when a call in flight gets its
-- response.
create or replace function stillwake.limit_quota(p_limit stillwake.limits, out free integer, out until timestamptz, out reason text)
language plpgsql stable as $$
declare
  v_now  timestamptz := stillwake.now();
  v_out  integer := 0;
  v_used integer;
  v_span interval := p_limit.period + stillwake.grant_lifetime(p_limit.period);
begin
  free := 2147483647;
  if p_limit.blocked_until > v_now then
    free := 0;
    until := p_limit.blocked_until;
    reason := format('%s has rejected a call', p_limit.name);
    return;
  end if;
  if p_limit.max is not null then
    select coalesce(sum(m.count), 0), min(m.bin_end) filter (where m.count > 0) + v_span into v_used, until
    from unnest(p_limit.bin_ends, p_limit.counts) m (bin_end, count) where m.bin_end > v_now - v_span;
    free := p_limit.max - v_used;
    if free <= 0 then
      free := 0;
      reason := format('%s uses of %s in %s', p_limit.max, p_limit.name, p_limit.period);
      return;
    end if;
    until := null;
  end if;
  if p_limit.learn or p_limit.concurrency is not null then
    select coalesce(sum(h.count), 0) into v_out from stillwake.limit_holds h
    where h.name = p_limit.name and exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);
  end if;
  if p_limit.learn then
    if p_limit.remaining <= 0 and p_limit.reset_at > v_now then
      free := 0;
      until := p_limit.reset_at;
      reason := format('the quota of %s is used up', p_limit.name);
    elsif coalesce(p_limit.turn_at <= v_now, true) then
      free := least(free, 1 - v_out);
      reason := format('one call to %s goes first, to learn its quota', p_limit.name);
    else
      free := least(free, p_limit.remaining - v_out);
      reason := format('the quota of %s is used up', p_limit.name);
    end if;
  end if;
  if p_limit.concurrency - v_out < free then
    free := p_limit.concurrency - v_out;
    reason := format('%s calls to %s are in flight', p_limit.concurrency, p_limit.name);
  end if;
  free := greatest(free, 0);
end
$$;

-- Every limit and its free quota, for people.
create or replace function stillwake.limit_quotas() returns table (
  name text, max integer, period_ms numeric, concurrency integer, learn boolean, reported_max integer, remaining integer,
  reset_at timestamptz, blocked_until timestamptz, free integer, until timestamptz, reason text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select l.name, l.max, extract(epoch from l.period) * 1000, l.concurrency, l.learn, l.reported_max, l.remaining, l.reset_at,
    l.blocked_until, b.free, b.until, b.reason
  from stillwake.limits l cross join lateral stillwake.limit_quota(l) b
$$;

-- Takes and returns uses of a limit, in one call: takes up to p_take uses, p_min at the minimum; p_done calls got their
-- response; p_unused uses, granted in bin p_bin, were not made; p_observed is what the last response reported: limit,
-- remaining, reset_ms, refused_ms ({}: nothing). Returns how many uses are granted and their bin: they must be made
-- `within` that time from this call. p_slack extends it for a distant caller. When none is granted, try again at
-- wait_until; null: when another call gets its response.
-- Locks: the limit. Raises SW001, SW005, SW008.
create or replace function stillwake.use_limit(
  p_limit text, p_job uuid, p_epoch bigint, p_lease uuid, p_take integer default 1, p_min integer default 1, p_done integer default 0,
  p_unused integer default 0, p_observed jsonb default null, p_slack interval default '0', p_bin timestamptz default null
) returns table (granted integer, wait_until timestamptz, reason text, within interval, bin timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_limit  stillwake.limits;
  v_quota record;
  v_start  timestamptz := stillwake.now();
  v_now    timestamptz;
  v_bin    double precision;
  v_span   interval;
  v_slack  interval;
  v_plain  stillwake.limits;
  v_news   boolean := false;
  v_full   boolean := false;
  v_index  integer;
begin
  if p_take < 0 or p_min < 0 or p_min > p_take or p_done < 0 or p_unused < 0 then
    perform stillwake.refuse('SW001',
      format('use_limit(take %s, minimum %s, done %s, unused %s) is out of range', p_take, p_min, p_done, p_unused), 'take',
      'take must not be less than minimum, and no value may be negative.');
  end if;
  -- Reports count from any caller; only a grant requires the lease.
  select * into v_limit from stillwake.limits l where l.name = p_limit for no key update;
  if not found then
    perform stillwake.refuse_unknown_limit(p_limit);
  end if;
  v_now := stillwake.now();
  v_span := v_limit.period + stillwake.grant_lifetime(v_limit.period);
  v_slack := greatest(least(p_slack, v_limit.period), '0');
  if p_done + p_unused > 0 then
    v_full := (select sum(h.count) from stillwake.limit_holds h where h.name = p_limit) >= v_limit.concurrency;
    delete from stillwake.limit_holds h
    where h.name = p_limit and h.job_id = p_job and h.lease_id = p_lease and h.count <= p_done + p_unused;
    if not found then
      update stillwake.limit_holds h set count = h.count - p_done - p_unused
      where h.name = p_limit and h.job_id = p_job and h.lease_id = p_lease;
    end if;
    -- Subtracted from the bin they were counted in: from an older bin they would block a full period, from a newer one
    -- not long enough.
    v_index := array_position(v_limit.bin_ends, p_bin);
    if v_index is not null then
      v_limit.counts[v_index] := greatest(0, v_limit.counts[v_index] - p_unused);
    end if;
  end if;
  if v_limit.learn and p_observed is not null then
    v_news := coalesce(v_limit.turn_at <= v_now, true);
    v_limit := stillwake.learn_limit(v_limit, p_observed, v_now);
  end if;
  if (p_observed ->> 'refused_ms')::numeric > 0 then
    v_limit.blocked_until := greatest(v_limit.blocked_until,
      v_now + least((p_observed ->> 'refused_ms')::numeric, 86400000) * interval '1 millisecond');
  end if;

  granted := 0;
  if p_take > 0 then
    if v_limit.max < p_min or v_limit.concurrency < p_min then
      perform stillwake.refuse('SW001', format('%s uses of limit "%s" at once exceed its maximum', p_min, p_limit), 'take',
        'Take fewer at a time.');
    elsif not exists (select from stillwake.live_jobs j where j.id = p_job and j.epoch = p_epoch and j.lease_id = p_lease) then
      perform stillwake.refuse_lost(p_job, p_epoch);
    end if;
    v_quota := stillwake.limit_quota(v_limit);
    if v_quota.free >= p_min then
      granted := least(p_take, v_quota.free);
    elsif v_limit.learn and v_quota.free = 1
      and coalesce(v_limit.turn_at <= v_now and (v_limit.reset_at <= v_now or v_limit.remaining >= p_min), true) then
      -- One caller has to go first, and there may be none that needs fewer uses.
      v_plain := v_limit;
      v_plain.learn := false;
      granted := case when (stillwake.limit_quota(v_plain)).free >= p_min then p_min else 0 end;
    end if;
    if granted = 0 then
      -- If too few are free: when enough of the counted uses have expired, or at the next window.
      wait_until := greatest(v_quota.until, case when v_limit.remaining < p_min and v_limit.reset_at > v_now then v_limit.reset_at end, (
        select min(u.bin_end) + v_span from (
          select m.bin_end, sum(m.count) over (order by m.bin_end) as gone, sum(m.count) over () as used
          from unnest(v_limit.bin_ends, v_limit.counts) m (bin_end, count) where m.bin_end > v_now - v_span
        ) u where u.used + p_min > v_limit.max and u.gone >= u.used + p_min - v_limit.max));
      use_limit.reason := v_quota.reason;
    end if;
  end if;
  if granted > 0 and v_limit.max is not null then
    v_bin := extract(epoch from v_limit.period) / 128;
    bin := to_timestamp(ceil(extract(epoch from v_now + v_slack) / v_bin) * v_bin);
    select array_agg(b.bin_end order by b.bin_end), array_agg(b.count order by b.bin_end) into v_limit.bin_ends, v_limit.counts
    from (
      select m.bin_end, sum(m.count) as count from unnest(v_limit.bin_ends || bin, v_limit.counts || granted) m (bin_end, count)
      where m.bin_end > v_now - v_span and m.count > 0 group by m.bin_end
    ) b;
  end if;
  if granted > 0 and (v_limit.learn or v_limit.concurrency is not null) then
    insert into stillwake.limit_holds (name, job_id, lease_id, count) values (p_limit, p_job, p_lease, granted)
    on conflict (name, job_id, lease_id) do update set count = limit_holds.count + excluded.count;
    -- Removes holds whose lease is gone, once in a while.
    if random() < 0.02 then
      delete from stillwake.limit_holds h
      where h.name = p_limit and not exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);
    end if;
  end if;
  update stillwake.limits l set bin_ends = v_limit.bin_ends, counts = v_limit.counts, reported_max = v_limit.reported_max,
    remaining = v_limit.remaining, reset_at = v_limit.reset_at, turn_at = v_limit.turn_at, blocked_until = v_limit.blocked_until,
    updated_at = v_now
  where l.name = p_limit and (granted > 0 and v_limit.max is not null or p_observed is not null or p_unused > 0);
  -- Half of the time is for the way to the other side. The wait for the lock here does not count.
  within := v_now - v_start + (stillwake.grant_lifetime(v_limit.period) + v_slack) / 2;
  -- The first call of a window, or one of as many as may be in flight, got its response: others may go now.
  if v_full and granted = 0 or v_news and v_limit.remaining > 0 and v_limit.turn_at > v_now then
    perform stillwake.hint_dependents('limits', p_limit);
  end if;
  return next;
end
$$;

-- The window as known after a response. Responses arrive in any order: within one window the lowest remaining count
-- wins. The end of a window is reported in whole seconds and never too early, so the earliest wins; an end that is
-- later by more than that belongs to the next window. For the same reason, and because calls are in flight, the next
-- window may have begun 2 s before; in short windows in their second half.
create or replace function stillwake.learn_limit(p_limit stillwake.limits, p_observed jsonb, p_now timestamptz) returns stillwake.limits
language plpgsql as $$
declare
  -- least() and greatest() ignore null: a missing value must not become a number.
  v_max   integer := case when p_observed ->> 'limit' is not null then least((p_observed ->> 'limit')::numeric, 2147483647)::integer end;
  v_left  integer := case when p_observed ->> 'remaining' is not null
    then least((p_observed ->> 'remaining')::numeric, 2147483647)::integer end;
  v_reset timestamptz := case when p_observed ->> 'reset_ms' is not null then
    p_now + least(greatest((p_observed ->> 'reset_ms')::numeric, 100), 86400000) * interval '1 millisecond' end;
begin
  p_limit.reported_max := coalesce(v_max, p_limit.reported_max);
  if v_left is null then
    -- Nothing is reported, so nothing is counted; probed again in a minute.
    if coalesce(p_limit.reset_at <= p_now, true) then
      p_limit.remaining := 2147483647;
      p_limit.reset_at := p_now + interval '1 minute';
      p_limit.turn_at := p_limit.reset_at;
    end if;
  elsif coalesce(p_limit.reset_at <= p_now, true) or v_reset > p_limit.reset_at + interval '1.5 seconds' then
    p_limit.remaining := v_left;
    p_limit.reset_at := coalesce(v_reset, p_now + interval '1 minute');
    p_limit.turn_at := p_limit.reset_at - least((p_limit.reset_at - p_now) / 2, interval '2 seconds');
  else
    p_limit.remaining := least(p_limit.remaining, v_left);
    p_limit.turn_at := p_limit.turn_at - greatest(p_limit.reset_at - v_reset, '0');
    p_limit.reset_at := least(p_limit.reset_at, v_reset);
  end if;
  return p_limit;
end
$$;

create or replace function stillwake.refuse_unknown_limit(p_name text) returns void
language plpgsql as $$
begin
  perform stillwake.refuse('SW008', format('Limit "%s" is not registered', coalesce(p_name, 'null')), 'limit',
    format('Known limits: %s. Register it with stillwake.register_limit(name, settings).',
      coalesce((select string_agg(l.name, ', ' order by l.name) from stillwake.limits l), 'none')));
end
$$;

-- For operators: discards what was learned and unblocks the limit. Raises SW008.
create or replace function stillwake.reset_limit(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.limits set blocked_until = null, reset_at = null, turn_at = null, remaining = null, updated_at = stillwake.now()
  where name = p_name;
  if not found then
    perform stillwake.refuse_unknown_limit(p_name);
  end if;
  perform stillwake.hint_dependents('limits', p_name);
end
$$;

-- Hints the workers of all pools whose pipelines depend on this limit or breaker.
create or replace function stillwake.hint_dependents(p_kind text, p_name text) returns void
language plpgsql as $$
begin
  perform stillwake.hint(p.pool) from (
    select distinct q.pool from stillwake.pipelines q where p_name = any (case p_kind when 'limits' then q.limits else q.breakers end)
  ) p;
end
$$;
