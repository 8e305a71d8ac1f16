-- Sealed inputs: values at certain paths of an input must be stored encrypted or as a reference to a secret. The
-- database has no keys: it cannot seal or unseal, it can only refuse plain values.

-- Refuses the first input with a plain value at one of the paths. A missing or null value is accepted. Takes no locks.
-- Raises SW001.
create or replace function stillwake.refuse_plain_values(p_pipeline text, p_paths text[], p_inputs jsonb) returns void
language plpgsql stable as $$
declare
  v_index bigint;
  v_path  text;
begin
  select e.n - 1, p.path into v_index, v_path
  from jsonb_array_elements(p_inputs) with ordinality as e (input, n), unnest(p_paths) as p (path)
  where stillwake.has_plain_value(e.input, string_to_array(p.path, '.')) order by e.n limit 1;
  if found then
    perform stillwake.refuse('SW001',
      format('Pipeline "%s" requires %s of its input to be sealed, and the input at position %s has a plain value there',
        p_pipeline, v_path, v_index),
      format('inputs[%s].%s', v_index, v_path),
      'Enqueue with the contract and sealKeys, or pass {"$secret": "name"}, or a value that was sealed before: {"$sealed": "…"}.');
  end if;
end
$$;

-- Whether there is a value at the path that is neither sealed nor a reference. * selects every element of an array or
-- object.
create or replace function stillwake.has_plain_value(p_value jsonb, p_path text[]) returns boolean
language plpgsql immutable as $$
declare
  v_star  integer := array_position(p_path, '*');
  v_value jsonb := p_value #> p_path[:coalesce(v_star, cardinality(p_path) + 1) - 1];
begin
  if v_value is null or v_value = 'null' then
    return false;
  elsif v_star is null then
    return not stillwake.is_sealed_or_reference(v_value);
  end if;
  return case jsonb_typeof(v_value)
    when 'array' then exists (select from jsonb_array_elements(v_value) e where stillwake.has_plain_value(e, p_path[v_star + 1:]))
    when 'object' then exists (select from jsonb_each(v_value) e where stillwake.has_plain_value(e.value, p_path[v_star + 1:]))
    else false end;
end
$$;

create or replace function stillwake.is_sealed_or_reference(p_value jsonb) returns boolean
language sql immutable as $$
  select jsonb_typeof(p_value) = 'object' and case
    when p_value ? '$sealed' then p_value - '$sealed' = '{}' and jsonb_typeof(p_value -> '$sealed') = 'string'
      and p_value ->> '$sealed' ~ '^[jp]\.[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22,}$'
    when p_value ? '$secret' then p_value - '$secret' = '{}' and jsonb_typeof(p_value -> '$secret') = 'string'
      and p_value ->> '$secret' ~ '^[A-Za-z][A-Za-z0-9_.-]{0,99}$'
    else false end
$$;

-- The sealed paths of a pipeline's settings; null when absent. Keys joined by dots, * for every element of an array or
-- object. Raises SW001.
create or replace function stillwake.read_paths(p_settings jsonb) returns text[]
language plpgsql immutable as $$
begin
  if p_settings ->> 'sealed' is null then
    return null;
  elsif jsonb_typeof(p_settings -> 'sealed') <> 'array' or jsonb_array_length(p_settings -> 'sealed') > 50
    or exists (select from jsonb_array_elements(p_settings -> 'sealed') p
      where length(p #>> '{}') > 200 or coalesce(p #>> '{}' !~ '^[A-Za-z_][A-Za-z0-9_-]*(\.([A-Za-z_][A-Za-z0-9_-]*|[0-9]{1,9}|\*))*$',
        true)) then
    perform stillwake.refuse('SW001', 'sealed must be an array of paths', 'sealed',
      'Write them as "githubToken", "auth.password" or "accounts.*.token"; at most 50.');
  end if;
  return array(select p #>> '{}' from jsonb_array_elements(p_settings -> 'sealed') p);
end
$$;
