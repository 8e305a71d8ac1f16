-- Cron: five fields, parsed and evaluated here, so that psql, pg_cron and every client follow the same rules. User
-- documentation: docs/write/schedules.md.
--
-- The hour field decides what happens when the clocks change:
--   some hours     an occurrence is a time of day. Each local time occurs once: a skipped one when the clocks jump, a
--                  repeated one the first time. Its name is the local time: 2030-03-31T02:30
--   all 24 hours   an occurrence is a point of an interval. A skipped one does not exist, a repeated one occurs twice.
--                  Its name is the local time with its offset: 2030-10-27T02:30+02:00

-- Parses five fields (minute, hour, day of the month, month, day of the week) or @hourly, @daily, @weekly, @monthly,
-- @yearly. Each field is *, or a list of values and ranges, with steps; months and days of the week also by the first
-- three letters of their English names. Raises SW001.
create or replace function stillwake.read_cron(p_cron text) returns stillwake.cron_fields
language plpgsql immutable as $$
declare
  v_text  text := lower(btrim(regexp_replace(p_cron, '\s+', ' ', 'g')));
  v_parts text[];
  v_cron  stillwake.cron_fields;
begin
  if length(p_cron) > 500 then
    perform stillwake.refuse('SW001', format('The cron expression has %s characters', length(p_cron)), 'cron',
      'Use up to 500 characters; ranges and steps are shorter than lists.');
  end if;
  v_text := case v_text when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@weekly' then '0 0 * * 0'
    when '@monthly' then '0 0 1 * *' when '@yearly' then '0 0 1 1 *' else v_text end;
  v_parts := string_to_array(v_text, ' ');
  if v_text is null or cardinality(v_parts) <> 5 then
    perform stillwake.refuse('SW001', format('Cron "%s" must have five fields', p_cron), 'cron',
      'Write minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri", or @hourly, @daily, @weekly, '
      || '@monthly, @yearly. There are no seconds and no years.');
  end if;
  v_cron.minutes := stillwake.read_cron_field(p_cron, 'minute', v_parts[1], 0, 59);
  v_cron.hours := stillwake.read_cron_field(p_cron, 'hour', v_parts[2], 0, 23);
  v_cron.days := stillwake.read_cron_field(p_cron, 'day of the month', v_parts[3], 1, 31);
  v_cron.months := stillwake.read_cron_field(p_cron, 'month', v_parts[4], 1, 12,
    array['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec']);
  v_cron.weekdays := stillwake.read_cron_field(p_cron, 'day of the week', v_parts[5], 0, 7,
    array['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat']);
  v_cron.either := v_parts[3] not like '*%' and v_parts[5] not like '*%';
  if stillwake.cron_day(v_cron, '2000-01-01') is null then
    perform stillwake.refuse('SW001', format('Cron "%s" never matches a day', p_cron), 'cron',
      'Use a day of the month that exists in one of its months.');
  end if;
  return v_cron;
end
$$;

create or replace function stillwake.read_cron_field(p_cron text, p_field text, p_text text, p_min integer, p_max integer,
  p_names text[] default '{}') returns integer[]
language plpgsql immutable as $$
declare
  v_part   text;
  v_match  text[];
  v_low    integer;
  v_high   integer;
  v_step   integer;
  v_values integer[] := '{}';
  v_why    text;
  v_remedy text;
begin
  foreach v_part in array string_to_array(p_text, ',') loop
    v_why := null;
    v_match := regexp_match(v_part, '^(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]{1,9}))?$');
    v_low := case when v_match[1] = '*' then p_min else stillwake.read_cron_value(v_match[1], p_min, p_max, p_names) end;
    -- A range to Sunday extends to the end of the week.
    v_high := case when v_match[1] = '*' then p_max when v_match[2] is null then v_low
      when p_max = 7 and v_match[2] in ('sun', '0') and v_low > 0 then 7
      else stillwake.read_cron_value(v_match[2], p_min, p_max, p_names) end;
    v_step := coalesce(v_match[3]::integer, 1);
    v_remedy := format('Use *, values from %s to %s%s, ranges such as %s-%s, steps such as */2, and lists of them.', p_min, p_max,
      case when p_names <> '{}' then format(' or %s to %s', p_names[1], p_names[cardinality(p_names)]) end, p_min, p_min + 4);
    if v_part ~ '#|^[0-9]*[lw]+(-[0-9]+)?$|^[a-z]{3}l$' then
      v_why := 'L, W and # are not supported';
      v_remedy := 'List the days, or run on all possible days and check in the job.';
    elsif v_part = '?' then
      v_why := '? is not supported';
      v_remedy := 'Write *.';
    elsif v_match is null then
      v_why := format('"%s" cannot be read', v_part);
    elsif v_match[1] = '*' and v_match[2] is not null then
      v_why := format('"%s" is a range that starts with *', v_part);
    elsif v_low is null or v_high is null then
      v_why := format('"%s" is not within %s to %s', v_part, p_min, p_max);
    elsif v_low > v_high then
      v_why := format('"%s" is a range whose end is before its start', v_part);
      v_remedy := format('Write two ranges: %s-%s,%s-%s.', v_match[1], p_max, p_min, v_match[2]);
    elsif v_match[3] is not null and v_match[1] <> '*' and v_match[2] is null then
      v_why := format('"%s" has a step but no range', v_part);
      v_remedy := format('Write %s-%s/%s.', v_match[1], p_max, v_match[3]);
    elsif v_step not between 1 and greatest(v_high - v_low, 1) then
      v_why := format('the step of "%s" is not within 1 to %s', v_part, greatest(v_high - v_low, 1));
      v_remedy := 'A step restarts with each field: an interval that does not divide the field cannot be written as cron.';
    end if;
    if v_why is not null then
      perform stillwake.refuse('SW001', format('The %s of cron "%s" is not valid: %s', p_field, p_cron, v_why), 'cron', v_remedy);
    end if;
    v_values := v_values || array(select generate_series(v_low, v_high, v_step));
  end loop;
  if cardinality(v_values) = 0 then
    perform stillwake.refuse('SW001', format('The %s of cron "%s" is empty', p_field, p_cron), 'cron', 'Write * for every value.');
  end if;
  return array(select distinct case when p_max = 7 then v % 7 else v end from unnest(v_values) v order by 1);
end
$$;

-- Null for an invalid value.
create or replace function stillwake.read_cron_value(p_text text, p_min integer, p_max integer, p_names text[]) returns integer
language sql immutable as $$
  select v.value from (select case when p_text ~ '^[0-9]{1,4}$' then p_text::integer
    else array_position(p_names, p_text) - 1 + p_min end as value) v
  where v.value between p_min and p_max
$$;

-- The first day with occurrences, from p_from on. Null when there is none in fifty years: Sunday 29 February occurs only once
-- in 28 years.
create or replace function stillwake.cron_day(p_cron stillwake.cron_fields, p_from date) returns date
language plpgsql immutable as $$
declare
  v_day  date := p_from;
  v_last date := p_from + 18300;
  v_in   boolean;
begin
  while v_day < v_last loop
    if extract(month from v_day)::integer <> all (p_cron.months) then
      v_day := date_trunc('month', v_day::timestamp)::date + interval '1 month';
      continue;
    end if;
    v_in := extract(day from v_day)::integer = any (p_cron.days);
    if v_in and p_cron.either then
      return v_day;
    elsif (v_in or p_cron.either) and extract(dow from v_day)::integer = any (p_cron.weekdays) then
      return v_day;
    end if;
    v_day := v_day + 1;
  end loop;
  return null;
end
$$;

-- The first time of day after a local time.
create or replace function stillwake.cron_local_time(p_cron stillwake.cron_fields, p_after timestamp) returns timestamp
language plpgsql immutable as $$
declare
  v_day    date := stillwake.cron_day(p_cron, p_after::date);
  v_after  integer := extract(hour from p_after)::integer * 60 + extract(minute from p_after)::integer;
  v_hour   integer;
  v_minute integer;
begin
  if v_day = p_after::date then
    foreach v_hour in array p_cron.hours loop
      continue when v_hour * 60 + 59 <= v_after;
      foreach v_minute in array p_cron.minutes loop
        if v_hour * 60 + v_minute > v_after then
          return v_day + make_time(v_hour, v_minute, 0);
        end if;
      end loop;
    end loop;
    v_day := stillwake.cron_day(p_cron, v_day + 1);
  end if;
  return v_day + make_time(p_cron.hours[1], p_cron.minutes[1], 0);
end
$$;

-- The instant of a local time: the first one if it occurs twice; if the clocks skip it, the moment they jump. Postgres
-- itself returns the second one, and for a skipped time the instant that would have had this name without the jump.
create or replace function stillwake.resolve_local_time(p_local timestamp, p_zone text) returns timestamptz
language plpgsql stable as $$
declare
  v_at   timestamptz := p_local at time zone p_zone;
  v_back interval;
  v_past timestamptz;
  v_low  bigint;
  v_high bigint;
  v_mid  bigint;
begin
  if (v_at at time zone p_zone) = p_local then
    -- Clocks are set back by an hour or two; a country that crosses the date line does so by a day.
    foreach v_back in array array[interval '3 hours', interval '25 hours'] loop
      v_past := v_at - v_back;
      v_past := (p_local - ((v_past at time zone p_zone) - (v_past at time zone 'UTC'))) at time zone 'UTC';
      if v_past < v_at and (v_past at time zone p_zone) = p_local then
        return v_past;
      end if;
    end loop;
    return v_at;
  end if;
  v_low := extract(epoch from v_at)::bigint - 93600;
  v_high := extract(epoch from v_at)::bigint + 93600;
  while v_high - v_low > 1 loop
    v_mid := (v_low + v_high) / 2;
    if (to_timestamp(v_mid) at time zone p_zone) > p_local then
      v_high := v_mid;
    else
      v_low := v_mid;
    end if;
  end loop;
  return to_timestamp(v_high);
end
$$;

-- The first point of a regular interval after an instant.
create or replace function stillwake.cron_interval_time(p_cron stillwake.cron_fields, p_zone text, p_after timestamptz) returns timestamptz
language plpgsql stable as $$
declare
  v_at     timestamptz := date_trunc('minute', p_after, 'UTC') + interval '1 minute';
  v_local  timestamp;
  v_day    date;
  v_minute integer;
  v_next   integer;
  v_then   timestamptz;
begin
  loop
    v_local := v_at at time zone p_zone;
    v_day := stillwake.cron_day(p_cron, v_local::date);
    if v_day is null then
      return null;
    elsif v_day > v_local::date then
      v_then := v_at + interval '3 hours';
      -- If the clocks are set back across midnight now, the previous day begins again.
      v_at := case when (v_then at time zone p_zone) = v_local + interval '3 hours'
        then greatest(stillwake.resolve_local_time(v_day, p_zone), v_at + interval '1 minute')
        else v_at + interval '1 minute' end;
      continue;
    end if;
    v_minute := extract(minute from v_local)::integer;
    foreach v_next in array p_cron.minutes || 60 loop
      exit when v_next >= v_minute;
    end loop;
    v_then := v_at + (v_next - v_minute) * interval '1 minute';
    if (v_then at time zone p_zone) <> v_local + (v_next - v_minute) * interval '1 minute' then
      -- The clocks change in between.
      v_at := v_at + interval '1 minute';
      continue;
    end if;
    if v_next < 60 then
      return v_then;
    end if;
    v_at := v_then;
  end loop;
end
$$;

-- The occurrence after p_occurrence, whose instant is p_at; without p_occurrence the first one after p_at.
create or replace function stillwake.cron_after(p_cron stillwake.cron_fields, p_zone text, p_at timestamptz,
  p_occurrence text default null, out occurrence text, out at timestamptz)
language plpgsql stable as $$
declare
  v_local  timestamp;
  v_offset integer;
begin
  if cardinality(p_cron.hours) < 24 then
    v_local := coalesce(left(p_occurrence, 16)::timestamp, p_at at time zone p_zone);
    loop
      v_local := stillwake.cron_local_time(p_cron, v_local);
      at := stillwake.resolve_local_time(v_local, p_zone);
      exit when v_local is null or p_occurrence is not null or at > p_at;
    end loop;
    occurrence := to_char(v_local, 'YYYY-MM-DD"T"HH24:MI');
  else
    at := stillwake.cron_interval_time(p_cron, p_zone, p_at);
    v_local := at at time zone p_zone;
    v_offset := extract(epoch from v_local - (at at time zone 'UTC'))::integer / 60;
    occurrence := to_char(v_local, 'YYYY-MM-DD"T"HH24:MI') || case when v_offset < 0 then '-' else '+' end
      || to_char(abs(v_offset) / 60, 'FM00') || ':' || to_char(abs(v_offset) % 60, 'FM00');
  end if;
end
$$;
