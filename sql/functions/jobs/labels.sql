-- Labels of a job: its key and its tenant. A caller passes them as options, or the pipeline names the paths of the input that
-- they are read from, so that they hold for every caller. src/contract/labels.ts computes the same texts.

-- The label (p_field: key or tenant) of each input; null when no input has one.
--   one path      the value at the path
--   several       their values joined by "/", with a backslash before each "/" and backslash of a value; a missing one is empty
-- A job without any value at its paths has no label. Takes no locks. Raises SW001 for an object, an array, an empty text, and a
-- label of more than 500 characters.
create or replace function stillwake.labels_of(p_inputs jsonb, p_paths text[], p_field text) returns text[]
language plpgsql immutable as $$
declare
  v_path   text[] := string_to_array(p_paths[1], '.');
  v_labels text[];
  v_index  bigint;
begin
  if cardinality(p_paths) = 1 then
    v_labels := array(
      select stillwake.label_text(e.input #> v_path) from jsonb_array_elements(p_inputs) with ordinality as e (input, n) order by e.n);
  else
    v_labels := array(
      select (
        select case when bool_or(v.part = '') then ''
          when count(v.part) > 0 then string_agg(coalesce(replace(replace(v.part, '\', '\\'), '/', '\/'), ''), '/' order by v.n) end
        from (
          select stillwake.label_text(e.input #> string_to_array(p.path, '.')) as part, p.n
          from unnest(p_paths) with ordinality as p (path, n)) v)
      from jsonb_array_elements(p_inputs) with ordinality as e (input, n) order by e.n);
  end if;
  select l.n - 1 into v_index from unnest(v_labels) with ordinality as l (label, n)
  where l.label = '' or length(l.label) > 500 order by l.n limit 1;
  if found then
    perform stillwake.refuse_label(p_inputs -> v_index::integer, v_index, p_paths, p_field);
  end if;
  return case when cardinality(array_remove(v_labels, null)) > 0 then v_labels end;
end
$$;

-- The text of a value in a label: null for none, empty for a value that cannot be one. A number has neither an exponent nor
-- trailing zeros, whatever form it was sent in.
create or replace function stillwake.label_text(p_value jsonb) returns text
language sql immutable parallel safe as $$
  select case jsonb_typeof(p_value)
    when 'string' then p_value #>> '{}'
    when 'number' then trim_scale(p_value::numeric)::text
    when 'boolean' then p_value #>> '{}'
    when 'object' then ''
    when 'array' then '' end
$$;

-- Raises SW001 for an input of which labels_of() cannot make a label.
create or replace function stillwake.refuse_label(p_input jsonb, p_index bigint, p_paths text[], p_field text) returns void
language plpgsql as $$
declare
  v_path text;
  v_is   text;
begin
  select p.path, case jsonb_typeof(p_input #> string_to_array(p.path, '.')) when 'object' then 'an object' when 'array' then 'an array'
    else 'an empty text' end into v_path, v_is
  from unnest(p_paths) with ordinality as p (path, n)
  where stillwake.label_text(p_input #> string_to_array(p.path, '.')) = '' order by p.n limit 1;
  if found then
    perform stillwake.refuse('SW001', format('%s of the input at position %s cannot be the %s: it is %s', v_path, p_index, p_field, v_is),
      format('inputs[%s].%s', p_index, v_path), format('Pass a text, a number, a boolean or null there, or pass the option %s.', p_field));
  end if;
  perform stillwake.refuse('SW001', format('The %s of the input at position %s has more than 500 characters', p_field, p_index),
    format('inputs[%s].%s', p_index, p_paths[1]), format('Pass a shorter value, or pass the option %s.', p_field));
end
$$;

-- The paths of a pipeline's setting (key or tenant), which is one path, an array of up to 5, or null for none. Raises SW001.
create or replace function stillwake.read_label_paths(p_settings jsonb, p_field text) returns text[]
language plpgsql immutable as $$
declare
  v_paths jsonb := p_settings -> p_field;
begin
  if jsonb_typeof(v_paths) = 'string' then
    v_paths := jsonb_build_array(v_paths);
  end if;
  if v_paths is null or v_paths = 'null' then
    return null;
  elsif jsonb_typeof(v_paths) <> 'array' or jsonb_array_length(v_paths) not between 1 and 5
    or exists (select from jsonb_array_elements(v_paths) p where jsonb_typeof(p) <> 'string' or length(p #>> '{}') > 200
      or p #>> '{}' !~ '^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$') then
    perform stillwake.refuse('SW001', format('%s must be a path of the input, or an array of up to 5 paths', p_field), p_field,
      'Write a path as "projectId" or "repo.owner".');
  end if;
  return array(select p #>> '{}' from jsonb_array_elements(v_paths) with ordinality as e (p, n) order by e.n);
end
$$;

-- A label is stored in plain text: none of its paths may be, contain or be inside of a sealed path. Raises SW001.
create or replace function stillwake.refuse_sealed_labels(p_paths text[], p_sealed text[], p_field text) returns void
language plpgsql immutable as $$
declare
  v_path text;
begin
  select l.path into v_path from unnest(p_paths) as l (path), unnest(p_sealed) as s (path)
  where (
    select bool_and(a.name = b.name or b.name = '*')
    from unnest(string_to_array(l.path, '.')) with ordinality as a (name, n)
    join unnest(string_to_array(s.path, '.')) with ordinality as b (name, n) using (n))
  limit 1;
  if found then
    perform stillwake.refuse('SW001', format('%s cannot be read from %s, which is sealed', p_field, v_path), p_field,
      'Name another field: the key and the tenant of a job are stored in plain text.');
  end if;
end
$$;
