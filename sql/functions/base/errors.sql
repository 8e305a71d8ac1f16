-- Every error that a caller can fix. SQLSTATE identifies it; message names the thing and the limit, detail the field,
-- hint the remedy.
--
--   SW001 INVALID_INPUT      SW002 UNKNOWN_PIPELINE   SW003 UNKNOWN_POOL
--   SW004 JOB_NOT_FOUND      SW005 LEASE_LOST         SW006 NOT_ALLOWED
--   SW007 KEY_TAKEN          SW008 UNKNOWN_LIMIT      SW009 UNKNOWN_BREAKER

create or replace function stillwake.refuse(p_state text, p_message text, p_field text default '', p_remedy text default '') returns void
language plpgsql as $$
begin
  raise exception using errcode = p_state, message = p_message, detail = coalesce(p_field, ''), hint = coalesce(p_remedy, '');
end
$$;

create or replace function stillwake.refuse_unknown_pipeline(p_name text) returns void
language plpgsql as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from stillwake.pipelines order by name limit 20) k);
begin
  perform stillwake.refuse('SW002', format('Pipeline "%s" is not registered', coalesce(p_name, 'null')), 'pipeline',
    format('Known pipelines: %s. Register it with stillwake.register_pipeline(name, settings) or start a worker that has it.',
      coalesce(v_known, 'none')));
end
$$;

create or replace function stillwake.refuse_unknown_pool(p_name text) returns void
language plpgsql as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from stillwake.pools order by name limit 20) k);
begin
  perform stillwake.refuse('SW003', format('Pool "%s" does not exist', coalesce(p_name, 'null')), 'pool',
    format('Known pools: %s. A pool exists once a registered pipeline names it.', coalesce(v_known, 'none')));
end
$$;

-- With an old snapshot a call that counts under a lock would not see what was committed before it got the lock.
create or replace function stillwake.refuse_isolation(p_verb text) returns void
language plpgsql as $$
begin
  perform stillwake.refuse('SW006', format('%s() cannot keep the concurrency of a pool or pipeline under %s', p_verb,
      upper(current_setting('transaction_isolation'))), 'isolation',
    format('Use READ COMMITTED: alter role %I set default_transaction_isolation to %L', session_user, 'read committed'));
end
$$;

-- '1 attempt', '2 attempts'.
create or replace function stillwake.plural(p_count integer, p_one text, p_many text default null) returns text
language sql immutable as $$
  select format('%s %s', p_count, case when p_count = 1 then p_one else coalesce(p_many, p_one || 's') end)
$$;

-- Reads an interval such as '30s', '5 minutes' or '01:00:00' from options; null when absent. Limited to a hundred years
-- either way, so that adding it to a time cannot overflow.
create or replace function stillwake.read_interval(p_options jsonb, p_field text) returns interval
language plpgsql immutable as $$
declare
  v_value interval;
begin
  if p_options ->> p_field is null then
    return null;
  end if;
  if jsonb_typeof(p_options -> p_field) <> 'string' then
    perform stillwake.refuse('SW001', format('%s must be a duration in quotes, not %s', p_field, p_options -> p_field), p_field,
      'Write it as "30s", "5 minutes" or "2 hours".');
  end if;
  v_value := (p_options ->> p_field)::interval;
  if v_value not between '-100 years' and '100 years' then
    perform stillwake.refuse('SW001', format('%s "%s" is longer than the limit of 100 years', p_field, p_options ->> p_field), p_field,
      'Use a shorter duration.');
  end if;
  return v_value;
exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
  perform stillwake.refuse('SW001', format('%s "%s" is not a duration', p_field, p_options ->> p_field), p_field,
    'Write it as "30s", "5 minutes" or "2 hours".');
end
$$;

-- The same, without negative values.
create or replace function stillwake.read_duration(p_options jsonb, p_field text) returns interval
language plpgsql immutable as $$
declare
  v_value interval := stillwake.read_interval(p_options, p_field);
begin
  if v_value < '0' then
    perform stillwake.refuse('SW001', format('%s "%s" is negative', p_field, p_options ->> p_field), p_field,
      'Use a duration of zero or more.');
  end if;
  return v_value;
end
$$;

create or replace function stillwake.read_time(p_options jsonb, p_field text) returns timestamptz
language plpgsql stable as $$
begin
  if p_options ->> p_field is null then
    return null;
  end if;
  if jsonb_typeof(p_options -> p_field) = 'string' then
    return (p_options ->> p_field)::timestamptz;
  end if;
  raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or invalid_parameter_value then
  perform stillwake.refuse('SW001', format('%s %s is not a time', p_field, p_options -> p_field), p_field,
    'Write it as an ISO 8601 time such as "2030-01-31T09:00:00Z".');
end
$$;

create or replace function stillwake.read_integer(p_options jsonb, p_field text, p_min integer, p_max integer) returns integer
language plpgsql immutable as $$
declare
  v_value jsonb := p_options -> p_field;
begin
  if v_value is null or v_value = 'null' then
    return null;
  end if;
  if jsonb_typeof(v_value) <> 'number' or v_value::numeric % 1 <> 0 or v_value::numeric not between p_min and p_max then
    perform stillwake.refuse('SW001', format('%s must be a whole number from %s to %s, not %s', p_field, p_min, p_max, v_value), p_field,
      'Choose a value within that range.');
  end if;
  return v_value::integer;
end
$$;

-- Unknown option names are refused, never ignored.
create or replace function stillwake.check_options(p_options jsonb, p_known text[]) returns void
language plpgsql immutable as $$
declare
  v_unknown text;
begin
  if p_options is null or jsonb_typeof(p_options) <> 'object' then
    perform stillwake.refuse('SW001', 'options must be a JSON object', 'options', 'Pass ''{}'' for none.');
  end if;
  select k into v_unknown from jsonb_object_keys(p_options) k where k <> all (p_known) limit 1;
  if found then
    perform stillwake.refuse('SW001', format('Unknown option "%s"', v_unknown), v_unknown,
      format('Known options: %s.', array_to_string(p_known, ', ')));
  end if;
end
$$;
