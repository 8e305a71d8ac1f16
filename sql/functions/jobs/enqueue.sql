-- Registering pipelines and enqueueing jobs. Called by the client, by psql, by any language.

-- Registers a pipeline or changes its settings; absent settings keep their value. Writes nothing when nothing changes.
-- Settings: pool, priority, max_attempts, crash_limit, backoff_initial, backoff_max, keep_completed, keep_failed,
-- keep_cancelled, key and tenant (paths of the input that a job's key and tenant are read from, where the caller passes none;
-- null for none; see labels.sql), key_limit and on_conflict (see keys.sql), concurrency (jobs that may run at once on all workers; 0
-- for no cap), limits and breakers (arrays of names that its jobs depend on; an unregistered one has no effect), complete_by_progress
-- (see the watchdog), sealed (paths of the input that are stored sealed; see sealed.sql), input_schema (JSON Schema,
-- for forms and other programs; null for none), exhausted (the sentence for a job whose machine was lost or whose time
-- ran out too often, with {attempts} as a placeholder; null for none; see settle.sql). Raises SW001.
create or replace function stillwake.register_pipeline(p_name text, p_settings jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_old stillwake.pipelines;
  v_new stillwake.pipelines;
begin
  perform stillwake.check_options(p_settings, array['pool', 'priority', 'max_attempts', 'crash_limit', 'backoff_initial', 'backoff_max',
    'keep_completed', 'keep_failed', 'keep_cancelled', 'key_limit', 'on_conflict', 'concurrency', 'limits', 'breakers',
    'complete_by_progress', 'sealed', 'input_schema', 'exhausted', 'key', 'tenant']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid pipeline name', coalesce(p_name, 'null')), 'pipeline',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;
  perform stillwake.check_length(p_settings, 'pool');
  if coalesce(p_settings ->> 'pool', 'default') !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid pool name', p_settings ->> 'pool'), 'pool',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;

  select * into v_old from stillwake.pipelines where name = p_name;
  v_new := v_old;
  v_new.name := p_name;
  v_new.pool := coalesce(p_settings ->> 'pool', v_old.pool, 'default');
  v_new.priority := coalesce(stillwake.read_integer(p_settings, 'priority', -1000, 1000), v_old.priority, 0);
  v_new.max_attempts := coalesce(stillwake.read_integer(p_settings, 'max_attempts', 1, 1000), v_old.max_attempts, 3);
  v_new.crash_limit := coalesce(stillwake.read_integer(p_settings, 'crash_limit', 1, 1000), v_old.crash_limit, 3);
  v_new.backoff_initial := coalesce(stillwake.read_duration(p_settings, 'backoff_initial'), v_old.backoff_initial, '2 seconds');
  v_new.backoff_max := coalesce(stillwake.read_duration(p_settings, 'backoff_max'), v_old.backoff_max, '15 minutes');
  v_new.keep_completed := coalesce(stillwake.read_duration(p_settings, 'keep_completed'), v_old.keep_completed, '14 days');
  v_new.keep_failed := coalesce(stillwake.read_duration(p_settings, 'keep_failed'), v_old.keep_failed, '30 days');
  v_new.keep_cancelled := coalesce(stillwake.read_duration(p_settings, 'keep_cancelled'), v_old.keep_cancelled, '14 days');
  v_new.key_limit := coalesce(stillwake.read_integer(p_settings, 'key_limit', 1, 1000), v_old.key_limit, 1);
  v_new.on_conflict := coalesce(stillwake.read_on_conflict(p_settings), v_old.on_conflict, 'join');
  v_new.concurrency := nullif(coalesce(stillwake.read_integer(p_settings, 'concurrency', 0, 1000000), v_old.concurrency), 0);
  v_new.limits := coalesce(stillwake.read_names(p_settings, 'limits'), v_old.limits, '{}');
  v_new.breakers := coalesce(stillwake.read_names(p_settings, 'breakers'), v_old.breakers, '{}');
  v_new.complete_by_progress := coalesce((p_settings -> 'complete_by_progress')::boolean, v_old.complete_by_progress, false);
  v_new.sealed := coalesce(stillwake.read_paths(p_settings), v_old.sealed, '{}');
  v_new.input_schema := case when p_settings ? 'input_schema' then nullif(p_settings -> 'input_schema', 'null') else v_old.input_schema end;
  if octet_length(v_new.input_schema::text) > 65536 then
    perform stillwake.refuse('SW001', 'The schema of the input is larger than 65536 bytes', 'input_schema',
      'Omit the schema, or shorten it.');
  end if;
  v_new.exhausted := case when p_settings ? 'exhausted' then p_settings ->> 'exhausted' else v_old.exhausted end;
  if jsonb_typeof(p_settings -> 'exhausted') not in ('string', 'null') or length(v_new.exhausted) not between 1 and 300
    or replace(v_new.exhausted, '{attempts}', '') ~ '[{}]' then
    perform stillwake.refuse('SW001', 'exhausted must be a string of 1 to 300 characters', 'exhausted',
      'Use 1 to 300 characters; the only placeholder is {attempts}.');
  end if;
  v_new.key_paths := case when p_settings ? 'key' then stillwake.read_label_paths(p_settings, 'key') else v_old.key_paths end;
  v_new.tenant_paths := case when p_settings ? 'tenant' then stillwake.read_label_paths(p_settings, 'tenant') else v_old.tenant_paths end;
  perform stillwake.refuse_sealed_labels(v_new.key_paths, v_new.sealed, 'key');
  perform stillwake.refuse_sealed_labels(v_new.tenant_paths, v_new.sealed, 'tenant');
  if v_new.backoff_max < v_new.backoff_initial then
    perform stillwake.refuse('SW001', 'backoff_max is shorter than backoff_initial', 'backoff_max', 'Make it at least as long.');
  end if;
  if v_new is not distinct from v_old then
    return;
  end if;

  insert into stillwake.pools (name) values (v_new.pool) on conflict do nothing;
  insert into stillwake.pipelines (name, pool, priority, max_attempts, crash_limit, backoff_initial, backoff_max, keep_completed,
    keep_failed, keep_cancelled, key_limit, on_conflict, concurrency, limits, breakers, complete_by_progress, sealed,
    input_schema, exhausted, key_paths, tenant_paths)
  values (v_new.name, v_new.pool, v_new.priority, v_new.max_attempts, v_new.crash_limit, v_new.backoff_initial, v_new.backoff_max,
    v_new.keep_completed, v_new.keep_failed, v_new.keep_cancelled, v_new.key_limit, v_new.on_conflict, v_new.concurrency, v_new.limits,
    v_new.breakers, v_new.complete_by_progress, v_new.sealed, v_new.input_schema, v_new.exhausted, v_new.key_paths, v_new.tenant_paths)
  on conflict (name) do update set pool = excluded.pool, priority = excluded.priority, max_attempts = excluded.max_attempts,
    crash_limit = excluded.crash_limit, backoff_initial = excluded.backoff_initial, backoff_max = excluded.backoff_max,
    keep_completed = excluded.keep_completed, keep_failed = excluded.keep_failed, keep_cancelled = excluded.keep_cancelled,
    key_limit = excluded.key_limit, on_conflict = excluded.on_conflict, concurrency = excluded.concurrency, limits = excluded.limits,
    breakers = excluded.breakers, complete_by_progress = excluded.complete_by_progress, sealed = excluded.sealed,
    input_schema = excluded.input_schema, exhausted = excluded.exhausted, key_paths = excluded.key_paths,
    tenant_paths = excluded.tenant_paths, updated_at = stillwake.now();
  if v_new.pool <> v_old.pool then
    update stillwake.schedules s set pool = v_new.pool where s.pipeline = p_name and s.options ->> 'pool' is null;
  end if;
  -- In every pool with jobs of it: they may have been enqueued to another pool, or the pipeline may have moved.
  if v_new.concurrency is not null or v_new.limits <> '{}' or v_new.breakers <> '{}' then
    perform stillwake.lane_pool(p.name) from stillwake.pools p
    where p.name = v_new.pool and not p.laned or not v_old.gated and (p.name = v_new.pool or p.name in (select distinct j.pool
      from stillwake.live_jobs j where j.pipeline = p_name));
  elsif v_old.gated then
    perform stillwake.lane_pool(p.name) from stillwake.pools p
    where p.laned and (p.name = v_new.pool or p.name in (select distinct j.pool from stillwake.live_jobs j where j.pipeline = p_name));
  end if;
  if v_new.concurrency is not null and v_old.concurrency is null then
    delete from stillwake.caps where name = p_name;
  end if;
  if (v_new.concurrency, v_new.limits, v_new.breakers) is distinct from (v_old.concurrency, v_old.limits, v_old.breakers) then
    perform stillwake.hint(p.name) from stillwake.pools p where p.laned and p.relane_after is not null or p.name = v_new.pool;
  end if;
  if v_new.key_limit > v_old.key_limit then
    perform from stillwake.fill_free_keys(100000, p_name);
  end if;
end
$$;

-- Stores one job per element of the JSON array p_inputs and returns their ids in the same order. All share p_options:
--   pool, priority, delay | run_at, expires_in | expires_at, max_attempts, tenant | tenants,
--   key | keys and on_conflict: at most key_limit active jobs of the pipeline and tenant have one key; a further one
--     joins the active job (its id is returned), waits, replaces it or is refused; see keys.sql,
--   without key | keys, and without tenant | tenants: read from the input if the pipeline names its paths; see labels.sql,
--   idempotency_keys: a known key of the pipeline and tenant returns the job that was created with it,
--   traces: the W3C trace context of each job,
--   webhook (a URL or { endpoint, url }, called when a job ends; see webhooks.sql),
--   bound_to (the tenant the caller acts for: all jobs must belong to it, and the webhook must use an endpoint of it),
--   again (true when the caller repeats a call whose response was lost, with the same p_ids: existing jobs stay).
-- tenants, keys, idempotency_keys and traces are arrays as long as p_inputs, with null for none.
-- Sends one hint per call, and only if a worker listens. Locks: idempotency_keys in key order; with keys as
-- enqueue_keyed().
-- Raises SW001, SW002, SW003, SW007.
create or replace function stillwake.enqueue_many(
  p_pipeline text, p_inputs jsonb, p_options jsonb default '{}', p_ids uuid[] default null
) returns uuid[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return stillwake.store_jobs(p_pipeline, p_inputs, p_options, p_ids);
end
$$;

-- enqueue_many() for the functions of this schema. With p_parent the jobs are children of that job, in its spawn
-- p_spawn, numbered from p_first.
create or replace function stillwake.store_jobs(
  p_pipeline text, p_inputs jsonb, p_options jsonb, p_ids uuid[], p_parent uuid default null, p_spawn text default null,
  p_first integer default null
) returns uuid[]
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_now      timestamptz := stillwake.now();
  v_run_at   timestamptz := v_now;
  v_pipeline stillwake.pipelines;
  v_expires  timestamptz;
  v_keys     text[];
  v_job_keys text[];
  v_tenants  text[];
  v_row      stillwake.live_jobs;
  v_laned    boolean;
  v_own      uuid[] := p_ids;
  v_ids      uuid[];
  v_again    boolean := false;
  v_count    integer;
  v_start    integer;
  v_low      uuid;
  v_high     uuid;
begin
  select * into v_pipeline from stillwake.pipelines where name = p_pipeline;
  if not found then
    perform stillwake.refuse_unknown_pipeline(p_pipeline);
  end if;
  perform stillwake.check_inputs(p_inputs);
  if v_pipeline.sealed <> '{}' then
    perform stillwake.refuse_plain_values(p_pipeline, v_pipeline.sealed, p_inputs);
  end if;
  v_count := jsonb_array_length(p_inputs);
  if v_own is null then
    v_start := floor(random() * 33554432)::integer;
    v_own := array(select stillwake.new_id(v_now, v_start + n) from generate_series(1, v_count) n);
  elsif cardinality(v_own) <> v_count or array_position(v_own, null) is not null then
    perform stillwake.refuse('SW001', format('%s ids for %s inputs', cardinality(array_remove(v_own, null)), v_count), 'ids',
      'Pass one id per input, or none at all.');
  end if;
  v_ids := v_own;

  if p_options is distinct from '{}' then
    perform stillwake.check_options(p_options,
      array['pool', 'priority', 'delay', 'run_at', 'expires_in', 'expires_at', 'key', 'keys', 'on_conflict', 'tenant',
      'tenants', 'max_attempts', 'idempotency_keys', 'traces', 'webhook', 'bound_to', 'again']);
    if p_options -> 'traces' is not null
      and (jsonb_typeof(p_options -> 'traces') <> 'array' or pg_column_size(p_options -> 'traces') > 1024 * (v_count + 1)) then
      perform stillwake.refuse('SW001', 'traces must be an array of small objects, one per input', 'traces',
        'Pass { "traceparent": "…" } or null.');
    end if;
    perform stillwake.check_length(p_options, 'pool');
    if p_options ->> 'pool' is not null then
      v_pipeline.pool := p_options ->> 'pool';
      if not exists (select from stillwake.pools where name = v_pipeline.pool) then
        perform stillwake.refuse_unknown_pool(v_pipeline.pool);
      end if;
    end if;
    v_pipeline.priority := coalesce(stillwake.read_integer(p_options, 'priority', -1000, 1000), v_pipeline.priority);
    v_pipeline.max_attempts := coalesce(stillwake.read_integer(p_options, 'max_attempts', 1, 1000), v_pipeline.max_attempts);
    perform stillwake.check_exclusive(p_options, 'delay', 'run_at');
    perform stillwake.check_exclusive(p_options, 'expires_in', 'expires_at');
    v_run_at := coalesce(stillwake.read_time(p_options, 'run_at'), v_now + stillwake.read_duration(p_options, 'delay'), v_now);
    v_expires := coalesce(stillwake.read_time(p_options, 'expires_at'), v_now + stillwake.read_duration(p_options, 'expires_in'));
    if not isfinite(v_run_at) then
      perform stillwake.refuse('SW001', format('run_at %s is not a finite time', v_run_at), 'run_at',
        'Pass a finite time; to hold a job back without one, pause it.');
    end if;
    if v_expires <= v_run_at then
      perform stillwake.refuse('SW001', format('expires_at %s is not after run_at %s', v_expires, v_run_at), 'expires_at',
        'A job must be able to start before it expires.');
    end if;
    v_job_keys := stillwake.read_labels(p_options, 'key', v_count);
    v_tenants := stillwake.read_labels(p_options, 'tenant', v_count);
    v_pipeline.on_conflict := coalesce(stillwake.read_on_conflict(p_options), v_pipeline.on_conflict);
    v_again := coalesce(p_options -> 'again' = 'true', false);
  end if;

  if v_pipeline.key_paths is not null and not p_options ?| '{key,keys}' then
    v_job_keys := stillwake.labels_of(p_inputs, v_pipeline.key_paths, 'key');
  end if;
  if v_pipeline.tenant_paths is not null and not p_options ?| '{tenant,tenants}' then
    v_tenants := stillwake.labels_of(p_inputs, v_pipeline.tenant_paths, 'tenant');
  end if;
  -- These depend on the tenants.
  if p_options ?| '{webhook,idempotency_keys,bound_to}' then
    v_tenants := stillwake.bind_tenants(p_options, v_tenants, v_count);
    v_row.webhooks := stillwake.read_webhook(p_options, v_tenants);
    v_keys := stillwake.take_idempotency_keys(p_pipeline, p_options -> 'idempotency_keys', v_tenants, v_own);
    if v_keys is not null then
      v_ids := stillwake.jobs_of_idempotency_keys(p_pipeline, v_keys, v_tenants, v_own);
    end if;
  end if;

  -- An id that was not created just now may belong to an existing job, live or ended: check before and after the
  -- insert.
  if p_ids is not null and not v_again then
    v_low := stillwake.first_id(stillwake.now() - interval '5 seconds');
    v_high := stillwake.first_id(stillwake.now() + interval '1 minute');
    v_again := exists (select from unnest(v_own) i (id) where i.id not between v_low and v_high);
  end if;
  select o.laned into v_laned from stillwake.pools o where o.name = v_pipeline.pool;
  if not v_laned and (v_tenants is not null or v_pipeline.gated) then
    perform stillwake.lane_pool(v_pipeline.pool);
    v_laned := true;
  end if;
  if v_laned then
    v_row.lane := stillwake.lane_of(v_pipeline.gated, p_pipeline, '');
  end if;

  if v_job_keys is not null then
    v_row.created_at := v_now;
    v_row.run_at := v_run_at;
    v_row.expires_at := v_expires;
    v_row.max_attempts := v_pipeline.max_attempts;
    v_row.priority := v_pipeline.priority;
    v_row.pipeline := p_pipeline;
    v_row.pool := v_pipeline.pool;
    v_row.waiting_for := case when v_run_at > v_now then 'time' end;
    v_row.parent_id := p_parent;
    v_row.spawn := p_spawn;
    v_row.child_no := p_first;
    v_own := array(select case when i.own = i.id then i.id end from unnest(v_own, v_ids) with ordinality as i (own, id, n) order by i.n);
    v_own := stillwake.enqueue_keyed(v_row, v_own, v_job_keys, p_inputs, v_tenants, v_keys, p_options -> 'traces', v_pipeline.on_conflict,
      v_pipeline.key_limit, v_again);
    perform stillwake.hint(v_pipeline.pool);
    if v_keys is null then
      return v_own;
    end if;
    -- A repeated idempotency key within the call returns the job of its first use, which may have joined another job.
    return array(
      select coalesce(i.own, f.own, i.id) from unnest(v_own, v_ids) with ordinality as i (own, id, n)
      left join unnest(v_own, v_ids) as f (own, id) on i.own is null and f.own is not null and f.id = i.id
      order by i.n);
  end if;

  insert into stillwake.live_jobs (id, created_at, run_at, expires_at, max_attempts, priority, pipeline, pool, lane, waiting_for, tenant,
    idempotency_key, trace, webhooks, input, parent_id, spawn, child_no)
  select i.id, v_now, v_run_at, v_expires, v_pipeline.max_attempts, v_pipeline.priority, p_pipeline, v_pipeline.pool,
    v_row.lane || coalesce(i.tenant, ''),
    case when v_run_at > v_now then 'time' end, i.tenant, i.idempotency_key, nullif(i.trace, 'null'), v_row.webhooks, i.input,
    p_parent, p_spawn, p_first + (i.n - 1)::integer
  from rows from (unnest(v_own), unnest(v_ids), unnest(v_keys), jsonb_array_elements(p_inputs),
    jsonb_array_elements(p_options -> 'traces'), unnest(v_tenants))
    with ordinality as i (own, id, idempotency_key, input, trace, tenant, n)
  where i.own = i.id and not (v_again and stillwake.job_exists(i.id));

  if v_again then
    -- The first call may have committed, and its job been claimed and ended, between this insert's snapshot and the
    -- insert itself.
    delete from stillwake.live_jobs j where j.id = any (v_own) and exists (select from stillwake.ended_jobs e where e.id = j.id);
  end if;
  perform stillwake.hint(v_pipeline.pool);
  return v_ids;
end
$$;

-- Stores one job and returns its id. Options as above, with idempotency_key instead of idempotency_keys.
create or replace function stillwake.enqueue(p_pipeline text, p_input jsonb default '{}', p_options jsonb default '{}') returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_options jsonb := p_options;
begin
  if p_input is null then
    perform stillwake.refuse('SW001', 'input must not be null', 'input', 'Pass ''{}'' or the JSON value null in quotes.');
  end if;
  if v_options ? 'idempotency_key' then
    v_options := v_options - 'idempotency_key' || jsonb_build_object('idempotency_keys', jsonb_build_array(p_options -> 'idempotency_key'));
  end if;
  return (stillwake.enqueue_many(p_pipeline, jsonb_build_array(p_input), v_options))[1];
end
$$;

-- The tenants of the jobs of a caller that is bound to one. Raises SW001 for a job of another tenant, or of none.
create or replace function stillwake.bind_tenants(p_options jsonb, p_tenants text[], p_count integer) returns text[]
language plpgsql immutable as $$
declare
  v_bound text := p_options ->> 'bound_to';
begin
  perform stillwake.check_length(p_options, 'bound_to');
  if v_bound is null then
    return p_tenants;
  elsif exists (select from unnest(p_tenants) t where t is distinct from v_bound) then
    perform stillwake.refuse('SW001', format('The call is bound to tenant "%s", and a job of it is not', v_bound), 'tenant',
      'Leave tenant out, or pass the tenant that the call is bound to.');
  end if;
  return array_fill(v_bound, array[p_count]);
end
$$;

-- Records which job each new idempotency key belongs to, waiting for transactions in flight that use the same keys.
-- Returns the keys as an array, or null when there are none.
create or replace function stillwake.take_idempotency_keys(p_pipeline text, p_keys jsonb, p_tenants text[], p_ids uuid[]) returns text[]
language plpgsql as $$
declare
  v_keys text[];
begin
  if p_keys is null or p_keys = 'null' then
    return null;
  end if;
  if jsonb_typeof(p_keys) <> 'array' or jsonb_array_length(p_keys) <> cardinality(p_ids)
    or exists (select from jsonb_array_elements(p_keys) k
      where jsonb_typeof(k) not in ('string', 'null') or length(k #>> '{}') not between 1 and 500) then
    perform stillwake.refuse('SW001', 'An idempotency key must be a string of 1 to 500 characters, one per input', 'idempotency_key',
      'Use a shorter one, or a hash of it.');
  end if;
  v_keys := array(select k #>> '{}' from jsonb_array_elements(p_keys) with ordinality as e (k, n) order by n);
  -- The key of a deleted job is free again, even if it was not pruned yet.
  delete from stillwake.idempotency_keys
  where pipeline = p_pipeline and key = any (v_keys) and forget_on <= (stillwake.now() at time zone 'UTC')::date;
  insert into stillwake.idempotency_keys (pipeline, key, tenant, job_id)
  select distinct on (i.key, coalesce(i.tenant, '')) p_pipeline, i.key, coalesce(i.tenant, ''), i.id
  from unnest(p_ids, v_keys, p_tenants) with ordinality as i (id, key, tenant, n)
  where i.key is not null
  order by i.key, coalesce(i.tenant, ''), i.n
  on conflict do nothing;
  return v_keys;
end
$$;

-- The job of each key, or the id of the call where it has none. The SET clauses and the subquery, which cannot become a
-- join, pin the plan: one lookup per key. While statistics say that the table is small, the planner would compare every
-- key with every row.
create or replace function stillwake.jobs_of_idempotency_keys(p_pipeline text, p_keys text[], p_tenants text[], p_ids uuid[])
returns uuid[]
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return array(
    select coalesce((select k.job_id from stillwake.idempotency_keys k
      where k.pipeline = p_pipeline and k.key = i.key and k.tenant = coalesce(i.tenant, '')), i.id)
    from unnest(p_ids, p_keys, p_tenants) with ordinality as i (id, key, tenant, n) order by i.n);
end
$$;

-- The limit is 262144 bytes of compact JSON, as the client counts it. Only large inputs are measured; `|| '[]'` unpacks
-- inputs that come compressed from a table.
create or replace function stillwake.check_inputs(p_inputs jsonb) returns void
language plpgsql stable as $$
declare
  v_index bigint;
begin
  if p_inputs is null or jsonb_typeof(p_inputs) <> 'array' then
    perform stillwake.refuse('SW001', 'inputs must be a JSON array with one element per job', 'inputs',
      'For a single job call stillwake.enqueue(pipeline, input).');
  end if;
  if pg_column_size(p_inputs || '[]') > 65536 then
    select n - 1 into v_index from jsonb_array_elements(p_inputs) with ordinality as e (input, n)
    where pg_column_size(input) > 65536 and octet_length(input::text) > 262144 and stillwake.compact_size(input) > 262144 limit 1;
    if found then
      perform stillwake.refuse('SW001', format('The input at position %s is larger than the limit of 262144 bytes', v_index),
        format('inputs[%s]', v_index), 'Store the data elsewhere (object storage, your own table) and pass a reference.');
    end if;
  end if;
end
$$;

-- The size of a value as compact JSON, in bytes. jsonb prints a space after each comma and colon, and very large and
-- very small numbers without an exponent: those are counted at their shortest possible length.
create or replace function stillwake.compact_size(p_value jsonb) returns integer
language sql immutable parallel safe as $$
  select octet_length(t.whole) - octet_length(t.bare)
    + octet_length(replace(regexp_replace(t.bare, '0\.0{6}\d+|\d{22,}', '1e-7', 'g'), ' ', ''))
  from (select p_value::text as whole, regexp_replace(p_value::text, '"(\\.|[^"\\])*"', '', 'g') as bare) t
$$;

create or replace function stillwake.check_length(p_options jsonb, p_field text) returns void
language plpgsql immutable as $$
begin
  if jsonb_typeof(p_options -> p_field) not in ('string', 'null') or length(p_options ->> p_field) not between 1 and 500 then
    perform stillwake.refuse('SW001', format('%s must be a string of 1 to 500 characters', p_field), p_field,
      'Use a shorter one, or a hash of it.');
  end if;
end
$$;

create or replace function stillwake.read_on_conflict(p_options jsonb) returns text
language plpgsql immutable as $$
begin
  if p_options ->> 'on_conflict' not in ('join', 'wait', 'replace', 'reject') then
    perform stillwake.refuse('SW001', format('on_conflict cannot be "%s"', p_options ->> 'on_conflict'), 'on_conflict',
      'Use join, wait, replace or reject.');
  end if;
  return p_options ->> 'on_conflict';
end
$$;

-- The key or tenant of each job of a call, passed as one value for all or as an array (key, keys); null when no job has
-- one.
create or replace function stillwake.read_labels(p_options jsonb, p_field text, p_count integer) returns text[]
language plpgsql immutable as $$
declare
  v_many   text := p_field || 's';
  v_labels jsonb := p_options -> v_many;
begin
  perform stillwake.check_length(p_options, p_field);
  perform stillwake.check_exclusive(p_options, p_field, v_many);
  if p_options ->> p_field is not null then
    return array_fill(p_options ->> p_field, array[p_count]);
  elsif v_labels is null or v_labels = 'null' then
    return null;
  elsif jsonb_typeof(v_labels) <> 'array' or jsonb_array_length(v_labels) <> p_count
    or exists (select from jsonb_array_elements(v_labels) k
      where jsonb_typeof(k) not in ('string', 'null') or length(k #>> '{}') not between 1 and 500) then
    perform stillwake.refuse('SW001', format('%s must be strings of 1 to 500 characters, one per input, null for none', v_many), v_many,
      'Use a shorter one, or a hash of it.');
  end if;
  return array(select k #>> '{}' from jsonb_array_elements(v_labels) with ordinality as e (k, n) order by n);
end
$$;

-- Names of limits or breakers; null when absent.
create or replace function stillwake.read_names(p_options jsonb, p_field text) returns text[]
language plpgsql immutable as $$
begin
  if p_options ->> p_field is null then
    return null;
  elsif jsonb_typeof(p_options -> p_field) <> 'array' or exists (select from jsonb_array_elements(p_options -> p_field) n
    where coalesce(n #>> '{}' !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$', true)) then
    perform stillwake.refuse('SW001', format('%s must be an array of names', p_field), p_field,
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;
  return array(select distinct n #>> '{}' from jsonb_array_elements(p_options -> p_field) n order by 1);
end
$$;

-- Two options that exclude each other must not both be set.
create or replace function stillwake.check_exclusive(p_options jsonb, p_one text, p_other text) returns void
language plpgsql immutable as $$
begin
  if p_options ->> p_one is not null and p_options ->> p_other is not null then
    perform stillwake.refuse('SW001', format('%s and %s are both set', p_one, p_other), p_one,
      format('Remove %s or %s.', p_one, p_other));
  end if;
end
$$;

create or replace function stillwake.job_exists(p_id uuid) returns boolean
language sql stable as $$
  select exists (select from stillwake.live_jobs where id = p_id) or exists (select from stillwake.ended_jobs where id = p_id)
$$;
