-- The clock and the ids. stillwake.now() is the only clock that decisions use; tests replace this function to move
-- time.

create or replace function stillwake.now() returns timestamptz
language sql volatile parallel safe as $$
  select clock_timestamp()
$$;

-- Ids are UUIDv7: 48 bits of milliseconds, then a counter that keeps the jobs of one batch in order, then randomness.
-- The time in an id only routes rows to partitions; no decision depends on it.
create or replace function stillwake.new_id(p_at timestamptz, p_counter integer) returns uuid
language sql volatile parallel safe as $$
  select (lpad(to_hex(floor(extract(epoch from p_at) * 1000)::bigint), 12, '0')
    || to_hex(28672 + ((p_counter >> 14) & 4095))
    || to_hex(32768 + (p_counter & 16383))
    || right(gen_random_uuid()::text, 12))::uuid
$$;

create or replace function stillwake.new_id() returns uuid
language sql volatile parallel safe as $$
  select stillwake.new_id(stillwake.now(), floor(random() * 33554432)::integer)
$$;

-- The smallest id of an instant: partition bounds.
create or replace function stillwake.first_id(p_at timestamptz) returns uuid
language sql immutable parallel safe as $$
  select (lpad(to_hex(floor(extract(epoch from p_at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

-- The Monday of the week in which an id was created.
create or replace function stillwake.week_of(p_id uuid) returns date
language sql immutable parallel safe as $$
  select date_trunc('week', to_timestamp(('x'
    || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) at time zone 'UTC')::date
$$;

-- How many weeks one partition covers. Long retention has wide partitions, because every query of a parent table may
-- lock all of its partitions, and the lock table of Postgres is small.
create or replace function stillwake.weeks_per_partition(p_keep interval) returns integer
language sql immutable parallel safe as $$
  select case when p_keep < interval '60 days' then 1 when p_keep < interval '400 days' then 4 else 13 end
$$;

-- The first Monday of the p_weeks weeks that contain a day, counted from Monday, 5 January 1970.
create or replace function stillwake.first_week(p_day date, p_weeks integer) returns date
language sql immutable parallel safe as $$
  select date '1970-01-05' + floor((p_day - date '1970-01-05') / (7.0 * p_weeks))::integer * 7 * p_weeks
$$;

-- The Monday from which a row that ended at p_at may be deleted, after its retention p_keep.
create or replace function stillwake.forget_on(p_at timestamptz, p_keep interval) returns date
language sql immutable parallel safe as $$
  select case when p_keep >= interval '100 years' then 'infinity'::date
    else stillwake.first_week(((p_at at time zone 'UTC') + p_keep)::date, stillwake.weeks_per_partition(p_keep))
      + 7 * stillwake.weeks_per_partition(p_keep) end
$$;

-- For how long the statement of the client has been running, in milliseconds. Real time, also when tests stop the clock.
create or replace function stillwake.statement_ms() returns double precision
language sql volatile parallel safe as $$
  select extract(epoch from clock_timestamp() - statement_timestamp()) * 1000
$$;
