-- A limit: one budget for all workers, kept in one row and used in batches. Two kinds that may be combined:
--
--   max per period     never more than max uses in any interval of that length, wherever it begins. Uses are noted in bins of 1/128 of the
--                      period; a use counts until the end of its bin, plus the period, plus the time a use may lie between being granted and
--                      being made (2 %, at most 2 s). So up to 97 % of the budget is used, and never more than all of it.
--   learn              what the other side tells: what is left of its window, and when that ends. What is granted and not yet answered is
--                      taken off. In a window that nothing is known of one call goes first, and the others wait for its answer. So it
--                      is also shortly before a window ends, because its end is told in whole seconds.
--
-- Calls under way are noted with the lease they are made under, so a dead worker holds nothing.

-- Makes a limit known or changes its settings: max and period, concurrency, learn. What is not given is taken away. Raises SW001.
create or replace function stillwake.register_limit(p_name text, p_settings jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_old stillwake.limits;
  v_new stillwake.limits;
begin
  perform stillwake.check_options(p_settings, array['max', 'period', 'concurrency', 'learn']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" cannot name a limit', coalesce(p_name, 'null')), 'limit',
      'Use 1 to 100 lower-case letters, digits and _ . : - beginning with a letter or digit.');
  end if;
  select * into v_old from stillwake.limits where name = p_name;
  v_new.max := stillwake.read_integer(p_settings, 'max', 1, 1000000000);
  v_new.period := stillwake.read_duration(p_settings, 'period');
  v_new.concurrency := stillwake.read_integer(p_settings, 'concurrency', 1, 1000000);
  v_new.learn := coalesce((p_settings -> 'learn')::boolean, false);
  if (v_new.max is null) <> (v_new.period is null) or v_new.period not between '100 milliseconds' and '31 days' then
    perform stillwake.refuse('SW001', format('Limit "%s" has max %s per %s', p_name, coalesce(v_new.max::text, '–'), coalesce(v_new.period::text, '–')), 'period',
      'Give both max and period, the period from 100 ms to 31 days.');
  elsif v_new.max is null and v_new.concurrency is null and not v_new.learn then
    perform stillwake.refuse('SW001', format('Limit "%s" limits nothing', p_name), 'max', 'Give max and period, concurrency, or learn.');
  end if;
  if (v_old.name, v_old.max, v_old.period, v_old.concurrency, v_old.learn) is not distinct from (p_name, v_new.max, v_new.period, v_new.concurrency, v_new.learn) then
    return;
  end if;
  insert into stillwake.limits (name, max, period, concurrency, learn) values (p_name, v_new.max, v_new.period, v_new.concurrency, v_new.learn)
  on conflict (name) do update set max = excluded.max, period = excluded.period, concurrency = excluded.concurrency, learn = excluded.learn, updated_at = stillwake.now();
end
$$;

-- How long a use may lie between being granted and being made.
create or replace function stillwake.use_within(p_period interval) returns interval
language sql immutable as $$
  select least(greatest(p_period * 0.02, interval '20 milliseconds'), interval '2 seconds')
$$;

-- What is free of a limit now; if nothing is, when to look again and why. A time of null: when a call that is under way is answered.
create or replace function stillwake.budget(p_limit stillwake.limits, out free integer, out until timestamptz, out reason text)
language plpgsql stable as $$
declare
  v_now  timestamptz := stillwake.now();
  v_out  integer := 0;
  v_used integer;
  v_span interval := p_limit.period + stillwake.use_within(p_limit.period);
begin
  free := 2147483647;
  if p_limit.blocked_until > v_now then
    free := 0;
    until := p_limit.blocked_until;
    reason := format('%s has refused a call', p_limit.name);
    return;
  end if;
  if p_limit.max is not null then
    select coalesce(sum(m.count), 0), min(m.mark) filter (where m.count > 0) + v_span into v_used, until
    from unnest(p_limit.marks, p_limit.counts) m (mark, count) where m.mark > v_now - v_span;
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
      reason := format('the budget of %s is used up', p_limit.name);
    elsif coalesce(p_limit.turn_at <= v_now, true) then
      free := least(free, 1 - v_out);
      reason := format('one call to %s goes first, to learn its budget', p_limit.name);
    else
      free := least(free, p_limit.remaining - v_out);
      reason := format('the budget of %s is used up', p_limit.name);
    end if;
  end if;
  if p_limit.concurrency - v_out < free then
    free := p_limit.concurrency - v_out;
    reason := format('%s calls to %s are under way', p_limit.concurrency, p_limit.name);
  end if;
  free := greatest(free, 0);
end
$$;

-- Every limit and what is free of it, for people.
create or replace function stillwake.limit_budgets() returns table (
  name text, max integer, period_ms numeric, concurrency integer, learn boolean, reported_max integer, remaining integer, reset_at timestamptz, blocked_until timestamptz,
  free integer, until timestamptz, reason text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select l.name, l.max, extract(epoch from l.period) * 1000, l.concurrency, l.learn, l.reported_max, l.remaining, l.reset_at, l.blocked_until, b.free, b.until, b.reason
  from stillwake.limits l cross join lateral stillwake.budget(l) b
$$;

-- Everything a job has to say about a limit, in one call: p_take uses are wanted, at least p_least of them; p_done calls have been answered,
-- p_unused uses, granted under p_mark, were not made, and p_told is what the last answer said: limit, remaining, reset_ms, refused_ms ({}:
-- nothing). Answers how many uses are granted, and under which mark: make them within that time from this call; a caller that is far away has
-- it prolonged by p_slack. None: come back at wait_until; null: when another call is answered. Locks: the limit. Raises SW001, SW005, SW008.
create or replace function stillwake.use_limit(
  p_limit text, p_job uuid, p_epoch bigint, p_lease uuid, p_take integer default 1, p_least integer default 1, p_done integer default 0, p_unused integer default 0,
  p_told jsonb default null, p_slack interval default '0', p_mark timestamptz default null
) returns table (granted integer, wait_until timestamptz, reason text, within interval, mark timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_limit  stillwake.limits;
  v_budget record;
  v_began  timestamptz := stillwake.now();
  v_now    timestamptz;
  v_bin    double precision;
  v_span   interval;
  v_slack  interval;
  v_plain  stillwake.limits;
  v_news   boolean := false;
  v_place  integer;
begin
  if p_take < 0 or p_least < 0 or p_least > p_take or p_done < 0 or p_unused < 0 then
    perform stillwake.refuse('SW001', format('use_limit(take %s, least %s, done %s, unused %s) is out of range', p_take, p_least, p_done, p_unused), 'take', 'Take at least as many as you need, and none below 0.');
  end if;
  -- What was told and done counts, whoever says it; only a grant needs the lease.
  select * into v_limit from stillwake.limits l where l.name = p_limit for no key update;
  if not found then
    perform stillwake.refuse_unknown_limit(p_limit);
  end if;
  v_now := stillwake.now();
  v_span := v_limit.period + stillwake.use_within(v_limit.period);
  v_slack := greatest(least(p_slack, v_limit.period), '0');
  if p_done + p_unused > 0 then
    delete from stillwake.limit_holds h where h.name = p_limit and h.job_id = p_job and h.lease_id = p_lease and h.count <= p_done + p_unused;
    if not found then
      update stillwake.limit_holds h set count = h.count - p_done - p_unused where h.name = p_limit and h.job_id = p_job and h.lease_id = p_lease;
    end if;
    -- Off the very bin they are in. Off an older one they would stay counted for a period, and off a younger one others' uses for too short.
    v_place := array_position(v_limit.marks, p_mark);
    if v_place is not null then
      v_limit.counts[v_place] := greatest(0, v_limit.counts[v_place] - p_unused);
    end if;
  end if;
  if v_limit.learn and p_told is not null then
    v_news := coalesce(v_limit.turn_at <= v_now, true);
    v_limit := stillwake.learn_limit(v_limit, p_told, v_now);
  end if;
  if (p_told ->> 'refused_ms')::numeric > 0 then
    v_limit.blocked_until := greatest(v_limit.blocked_until, v_now + least((p_told ->> 'refused_ms')::numeric, 86400000) * interval '1 millisecond');
  end if;

  granted := 0;
  if p_take > 0 then
    if v_limit.max < p_least or v_limit.concurrency < p_least then
      perform stillwake.refuse('SW001', format('%s uses of limit "%s" at once are more than it ever has', p_least, p_limit), 'take', 'Take fewer at a time.');
    elsif not exists (select from stillwake.live_jobs j where j.id = p_job and j.epoch = p_epoch and j.lease_id = p_lease) then
      perform stillwake.refuse_lost(p_job, p_epoch);
    end if;
    v_budget := stillwake.budget(v_limit);
    if v_budget.free >= p_least then
      granted := least(p_take, v_budget.free);
    elsif v_limit.learn and v_budget.free = 1 and coalesce(v_limit.turn_at <= v_now and (v_limit.reset_at <= v_now or v_limit.remaining >= p_least), true) then
      -- Somebody has to go first, and nobody else may be there who needs fewer.
      v_plain := v_limit;
      v_plain.learn := false;
      granted := case when (stillwake.budget(v_plain)).free >= p_least then p_least else 0 end;
    end if;
    if granted = 0 then
      -- If too few are free: when enough of those that were used are too old to count, or with the next window.
      wait_until := greatest(v_budget.until, case when v_limit.remaining < p_least and v_limit.reset_at > v_now then v_limit.reset_at end, (
        select min(u.mark) + v_span from (
          select m.mark, sum(m.count) over (order by m.mark) as gone, sum(m.count) over () as used
          from unnest(v_limit.marks, v_limit.counts) m (mark, count) where m.mark > v_now - v_span
        ) u where u.used + p_least > v_limit.max and u.gone >= u.used + p_least - v_limit.max));
      use_limit.reason := v_budget.reason;
    end if;
  end if;
  if granted > 0 and v_limit.max is not null then
    v_bin := extract(epoch from v_limit.period) / 128;
    mark := to_timestamp(ceil(extract(epoch from v_now + v_slack) / v_bin) * v_bin);
    select array_agg(b.mark order by b.mark), array_agg(b.count order by b.mark) into v_limit.marks, v_limit.counts
    from (
      select m.mark, sum(m.count) as count from unnest(v_limit.marks || mark, v_limit.counts || granted) m (mark, count)
      where m.mark > v_now - v_span and m.count > 0 group by m.mark
    ) b;
  end if;
  if granted > 0 and (v_limit.learn or v_limit.concurrency is not null) then
    insert into stillwake.limit_holds (name, job_id, lease_id, count) values (p_limit, p_job, p_lease, granted)
    on conflict (name, job_id, lease_id) do update set count = limit_holds.count + excluded.count;
    -- Of those whose lease is gone, now and then.
    if random() < 0.02 then
      delete from stillwake.limit_holds h where h.name = p_limit and not exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);
    end if;
  end if;
  update stillwake.limits l set marks = v_limit.marks, counts = v_limit.counts, reported_max = v_limit.reported_max, remaining = v_limit.remaining, reset_at = v_limit.reset_at,
    turn_at = v_limit.turn_at, blocked_until = v_limit.blocked_until, updated_at = v_now
  where l.name = p_limit and (granted > 0 and v_limit.max is not null or p_told is not null or p_unused > 0);
  -- Half of the time is for the way to whom it calls. What was waited for here does not count.
  within := v_now - v_began + (stillwake.use_within(v_limit.period) + v_slack) / 2;
  -- One call went first, and its answer lets others go.
  if v_news and v_limit.remaining > 0 and v_limit.turn_at > v_now then
    perform stillwake.hint_needing('limits', p_limit);
  end if;
  return next;
end
$$;

-- The window as it is known after an answer. Answers arrive in any order: of one window the least that was left counts. The end of a window is
-- told in whole seconds and never too early, so of several the earliest counts; one that is later by more than that is another window. For the
-- same reason, and because calls are on their way, the next one may have begun 2 s before; with short windows that is their second half.
create or replace function stillwake.learn_limit(p_limit stillwake.limits, p_told jsonb, p_now timestamptz) returns stillwake.limits
language plpgsql as $$
declare
  -- least() and greatest() pass over a null: what is not told must not become a number.
  v_max   integer := case when p_told ->> 'limit' is not null then least((p_told ->> 'limit')::numeric, 2147483647)::integer end;
  v_left  integer := case when p_told ->> 'remaining' is not null then least((p_told ->> 'remaining')::numeric, 2147483647)::integer end;
  v_reset timestamptz := case when p_told ->> 'reset_ms' is not null then
    p_now + least(greatest((p_told ->> 'reset_ms')::numeric, 100), 86400000) * interval '1 millisecond' end;
begin
  p_limit.reported_max := coalesce(v_max, p_limit.reported_max);
  if v_left is null then
    -- It tells nothing, so nothing is counted; asked again in a minute.
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
    format('Known limits: %s. Register it with stillwake.register_limit(name, settings).', coalesce((select string_agg(l.name, ', ' order by l.name) from stillwake.limits l), 'none')));
end
$$;

-- By hand: forget what was learned and take back a refusal. Raises SW008.
create or replace function stillwake.reset_limit(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.limits set blocked_until = null, reset_at = null, turn_at = null, remaining = null, updated_at = stillwake.now() where name = p_name;
  if not found then
    perform stillwake.refuse_unknown_limit(p_name);
  end if;
  perform stillwake.hint_needing('limits', p_name);
end
$$;

-- Tells the workers of all pools whose pipelines need this limit or breaker to look again.
create or replace function stillwake.hint_needing(p_kind text, p_name text) returns void
language plpgsql as $$
begin
  perform stillwake.hint(p.pool) from (
    select distinct q.pool from stillwake.pipelines q where p_name = any (case p_kind when 'limits' then q.limits else q.breakers end)
  ) p;
end
$$;
