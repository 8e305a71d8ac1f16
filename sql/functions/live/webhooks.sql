-- Webhooks: calls to external receivers when a job ends. end_jobs() writes the outbox; senders claim, post and record
-- the result.
--
--   pending -> claimed by a sender, until next_at -> delivered (2xx)
--      ^                   |                      -> pending again, after 5 s to 24 h: see webhook_pause()
--      +-------------------+                      -> failed after ten deliveries, about three days
--     the sender died: next_at has passed            resend_webhook() starts again
--
-- A sender that was replaced records nothing: epoch and sender are the fence. Lanes (endpoint and host) share fairly:
-- at most ten concurrent deliveries per lane, one when its last five failed. A disabled endpoint holds its webhooks
-- back; none is lost.
-- Locks: the claim lock, then webhooks by id, then webhook_lanes by name.

-- The number of deliveries of one webhook.
create or replace function stillwake.max_deliveries() returns integer
language sql immutable parallel safe as $$
  select 10
$$;

-- The pause after delivery p_attempt failed. Up to a tenth longer, so that webhooks that failed together are not
-- retried together.
create or replace function stillwake.webhook_pause(p_attempt integer) returns interval
language sql volatile as $$
  select (array['5 seconds', '5 minutes', '30 minutes', '2 hours', '5 hours', '10 hours', '14 hours', '20 hours',
    '24 hours']::interval[])[least(greatest(p_attempt, 1), 9)]
    * (1 + random() / 10)
$$;

-- Creates or changes an endpoint; absent settings keep their value. Settings: url (null: each job passes its own),
-- origins (that the URL of a job may have, besides that of url; required for headers without a url), secret (generated
-- when absent; a different one rotates), headers (an object of strings), body ("thin", "full" or a template, see
-- check_template()), on (the states it receives), pipelines (it receives all their jobs; requires a url), tenant (only
-- jobs of this tenant use it, and callers bound to a tenant use no others; null for the whole installation).
-- Returns the secret of a new endpoint, null otherwise. p_made: the secret for a new endpoint without one, so that a
-- caller may repeat the call. Raises SW001.
create or replace function stillwake.set_endpoint(p_name text, p_settings jsonb default '{}', p_made text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now       timestamptz := stillwake.now();
  v_old       stillwake.endpoints;
  v_new       stillwake.endpoints;
  v_pipelines text[];
  v_secret    text;
begin
  perform stillwake.check_options(p_settings, array['url', 'origins', 'secret', 'headers', 'body', 'on', 'pipelines', 'tenant']);
  if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.:-]{0,99}$' then
    perform stillwake.refuse('SW001', format('"%s" is not a valid endpoint name', coalesce(p_name, 'null')), 'endpoint',
      'Use 1 to 100 lower-case letters, digits and _ . : - starting with a letter or digit.');
  end if;
  select * into v_old from stillwake.endpoints where name = p_name for no key update;
  v_new := v_old;
  v_new.name := p_name;
  v_new.url := case when p_settings ? 'url' then stillwake.read_webhook_url(p_settings -> 'url', 'url') else v_old.url end;
  v_new.origins := coalesce(stillwake.read_origins(p_settings -> 'origins'), v_old.origins, '{}');
  v_new.headers := coalesce(stillwake.read_headers(p_settings -> 'headers'), v_old.headers, '{}');
  if v_new.headers <> '{}' and v_new.url is null and v_new.origins = '{}' then
    perform stillwake.refuse('SW001', format('Endpoint "%s" has headers, but neither a url nor origins', p_name), 'origins',
      'Headers are sent only to origins that the endpoint names: set url, or origins such as ["https://hooks.example.com"].');
  end if;
  perform stillwake.check_length(p_settings, 'tenant');
  v_new.tenant := case when p_settings ? 'tenant' then p_settings ->> 'tenant' else v_old.tenant end;
  if p_name = 'default' and v_new.tenant is not null then
    perform stillwake.refuse('SW001', 'Endpoint "default" cannot belong to a tenant', 'tenant',
      'Every job with a bare URL uses it: create another endpoint for the tenant.');
  end if;
  v_new.body := coalesce(nullif(p_settings -> 'body', 'null'), v_old.body, '"thin"');
  perform stillwake.check_template(v_new.body);
  v_new.states := coalesce(stillwake.read_names(p_settings, 'on'), v_old.states, '{completed,failed,cancelled}');
  if not v_new.states <@ array['completed', 'failed', 'cancelled'] or v_new.states = '{}' then
    perform stillwake.refuse('SW001', format('An endpoint cannot receive "%s"', array_to_string(v_new.states, ', ')), 'on',
      'Use some of completed, failed, cancelled.');
  end if;
  v_pipelines := coalesce(stillwake.read_names(p_settings, 'pipelines'), array(select p.pipeline from stillwake.endpoint_pipelines p
    where p.endpoint = p_name));
  if v_new.url is null and v_pipelines <> '{}' then
    perform stillwake.refuse('SW001', format('Endpoint "%s" has no url for the jobs of %s', p_name, v_pipelines[1]), 'url',
      'Set its url, or pass one with each job.');
  end if;
  insert into stillwake.endpoints (name, url, origins, headers, body, states, tenant, created_at, updated_at)
  values (p_name, v_new.url, v_new.origins, v_new.headers, v_new.body, v_new.states, v_new.tenant, v_now, v_now)
  on conflict (name) do update set url = excluded.url, origins = excluded.origins, headers = excluded.headers, body = excluded.body,
    states = excluded.states, tenant = excluded.tenant, updated_at = v_now;
  delete from stillwake.endpoint_pipelines p where p.endpoint = p_name and p.pipeline <> all (v_pipelines);
  insert into stillwake.endpoint_pipelines (pipeline, endpoint) select n, p_name from unnest(v_pipelines) n on conflict do nothing;
  if p_settings ->> 'secret' is not null and v_old.name is not null then
    perform stillwake.rotate_secret(p_name, p_settings ->> 'secret');
    return null;
  elsif not exists (select from stillwake.endpoint_secrets s where s.endpoint = p_name) then
    v_secret := coalesce(p_settings ->> 'secret', p_made, stillwake.new_secret());
    perform stillwake.store_secret(p_name, v_secret);
    return v_secret;
  end if;
  return (select s.secret from stillwake.endpoint_secrets s where s.endpoint = p_name and s.secret = p_made);
end
$$;

-- 32 random bytes.
create or replace function stillwake.new_secret() returns text
language sql volatile as $$
  select 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'base64')
$$;

create or replace function stillwake.store_secret(p_endpoint text, p_secret text) returns void
language plpgsql as $$
declare
  v_owner text;
  v_size  integer;
begin
  begin
    v_size := case when p_secret ~ '^whsec_[A-Za-z0-9+/]+={0,2}$' then octet_length(decode(substr(p_secret, 7), 'base64')) end;
  exception when invalid_parameter_value then
    null;
  end;
  if v_size is null or v_size not between 24 and 64 then
    perform stillwake.refuse('SW001', 'A secret must be whsec_ followed by 24 to 64 bytes in base64', 'secret', 'Leave it out to have one generated.');
  end if;
  insert into stillwake.endpoint_secrets (secret, endpoint, created_at) values (p_secret, p_endpoint, stillwake.now())
  on conflict do nothing;
  select s.endpoint into v_owner from stillwake.endpoint_secrets s where s.secret = p_secret;
  if v_owner is distinct from p_endpoint then
    perform stillwake.refuse('SW001', 'Another endpoint has this secret', 'secret',
      'A receiver that verifies one endpoint could forge the other: use a separate secret for each.');
  end if;
end
$$;

-- Adds a new secret, p_secret or a generated one. The old one keeps signing for p_keep, so that receivers can change
-- over; of two that still sign, the older is removed at once. Repeating the call with the same secret changes nothing.
-- Returns the secret. Raises SW001.
create or replace function stillwake.rotate_secret(p_name text, p_secret text default null, p_keep interval default '24 hours') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := stillwake.now();
  v_secret text := coalesce(p_secret, stillwake.new_secret());
  v_newest text;
begin
  perform stillwake.lock_endpoint(p_name);
  if p_keep is null or p_keep not between '0' and '31 days' then
    perform stillwake.refuse('SW001', format('A secret cannot be kept for %s', coalesce(p_keep::text, 'null')), 'keep',
      'Use 0 to 31 days.');
  end if;
  select s.secret into v_newest from stillwake.endpoint_secrets s where s.endpoint = p_name order by s.expires_at desc nulls first limit 1;
  if v_newest = v_secret then
    return v_secret;
  end if;
  -- The requested secret may be one that is expiring: it becomes the newest again.
  delete from stillwake.endpoint_secrets s where s.endpoint = p_name and (s.secret = v_secret or s.secret <> v_newest);
  update stillwake.endpoint_secrets s set expires_at = v_now + p_keep where s.secret = v_newest;
  perform stillwake.store_secret(p_name, v_secret);
  return v_secret;
end
$$;

-- Locks an endpoint. Raises SW001 when it does not exist.
create or replace function stillwake.lock_endpoint(p_name text) returns void
language plpgsql as $$
begin
  perform from stillwake.endpoints where name = p_name for no key update;
  if not found then
    perform stillwake.refuse_unknown_endpoint(p_name);
  end if;
end
$$;

-- p_tenant: the tenant the caller is bound to, which sees no other endpoints.
create or replace function stillwake.refuse_unknown_endpoint(p_name text, p_tenant text default null) returns void
language plpgsql as $$
declare
  v_known text := (select string_agg(k.name, ', ' order by k.name) from (select n.name from stillwake.endpoints n
    where p_tenant is null or n.tenant = p_tenant order by n.name limit 20) k);
begin
  perform stillwake.refuse('SW001', format('Endpoint "%s" does not exist%s', coalesce(p_name, 'null'),
      case when p_tenant is not null then format(' for tenant "%s"', p_tenant) else '' end), 'endpoint',
    format('Known endpoints: %s. %s', coalesce(v_known, 'none'), case when p_tenant is null
      then 'Create it with stillwake.set_endpoint(name, settings).' else 'An admin creates endpoints of a tenant.' end));
end
$$;

-- Holds back the webhooks of an endpoint until enable_endpoint().
create or replace function stillwake.disable_endpoint(p_name text, p_reason text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.lock_endpoint(p_name);
  update stillwake.endpoints set disabled_at = coalesce(disabled_at, stillwake.now()), disabled_reason = left(p_reason, 1000)
  where name = p_name;
end
$$;

-- Sends the webhooks that were held back.
create or replace function stillwake.enable_endpoint(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.lock_endpoint(p_name);
  update stillwake.endpoints set disabled_at = null, disabled_reason = null where name = p_name;
  delete from stillwake.webhook_lanes where endpoint = p_name;
  update stillwake.webhooks set next_at = stillwake.now()
  where endpoint = p_name and state = 'pending' and sender is null and next_at > stillwake.now();
  perform stillwake.hint_webhooks();
end
$$;

-- The webhook of jobs from their options, a URL or { endpoint, url }, as an array of one; null when absent. The endpoint
-- "default" is created when it is first needed. A caller bound to a tenant (bound_to) uses the endpoints of that tenant
-- and, for a bare URL, "default" as long as it has nothing to protect. p_tenants: the tenants of the jobs.
create or replace function stillwake.read_webhook(p_options jsonb, p_tenants text[]) returns jsonb
language plpgsql as $$
declare
  v_webhook  jsonb := p_options -> 'webhook';
  v_bound    text := p_options ->> 'bound_to';
  v_name     text := 'default';
  v_url      text;
  v_endpoint stillwake.endpoints;
begin
  if v_webhook is null or v_webhook = 'null' then
    return null;
  elsif jsonb_typeof(v_webhook) = 'string' then
    v_url := stillwake.read_webhook_url(v_webhook, 'webhook');
  elsif jsonb_typeof(v_webhook) = 'object' then
    perform stillwake.check_options(v_webhook, array['endpoint', 'url']);
    v_name := coalesce(v_webhook ->> 'endpoint', 'default');
    v_url := stillwake.read_webhook_url(v_webhook -> 'url', 'webhook.url');
  else
    perform stillwake.refuse('SW001', 'webhook must be a URL or an object', 'webhook',
      'Write "https://…" or { "endpoint": "…", "url": "https://…" }.');
  end if;
  select * into v_endpoint from stillwake.endpoints where name = v_name;
  if not found and v_name = 'default' then
    perform stillwake.set_endpoint('default');
  elsif not found or v_bound is not null and v_endpoint.tenant is distinct from v_bound
    and not (v_name = 'default' and v_endpoint.url is null and v_endpoint.origins = '{}' and v_endpoint.headers = '{}') then
    perform stillwake.refuse_unknown_endpoint(v_name, v_bound);
  elsif v_endpoint.tenant is not null and (p_tenants is null
    or exists (select from unnest(p_tenants) t where t is distinct from v_endpoint.tenant)) then
    perform stillwake.refuse('SW001', format('Endpoint "%s" belongs to one tenant, to which the job does not belong', v_name),
      'webhook.endpoint', 'Name an endpoint of the tenant of the job, or one that belongs to no tenant.');
  end if;
  if not stillwake.endpoint_allows(v_endpoint, v_url) then
    perform stillwake.refuse('SW001', format('The URL is not on an origin of endpoint "%s"', v_name), 'webhook.url',
      'Its headers and signature are for its own receivers only: use a URL on such an origin, add the origin, or use another endpoint.');
  elsif v_url is null and v_endpoint.url is null then
    perform stillwake.refuse('SW001', format('Endpoint "%s" has no url', v_name), 'webhook.url', 'Pass one with the job.');
  end if;
  return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('endpoint', v_name, 'url', v_url)));
end
$$;

-- Whether a job's URL is on an origin that the endpoint names; null for the URL of the endpoint itself. An endpoint that
-- names none allows every URL, unless it has headers.
create or replace function stillwake.endpoint_allows(p_endpoint stillwake.endpoints, p_url text) returns boolean
language sql immutable as $$
  select p_url is null or case when p_endpoint.url is null and p_endpoint.origins = '{}' then p_endpoint.headers = '{}'
    else stillwake.url_origin(p_url) = any (p_endpoint.origins || coalesce(stillwake.url_origin(p_endpoint.url), '')) end
$$;

-- Scheme, host and port in lower case, without the default port.
create or replace function stillwake.url_origin(p_url text) returns text
language sql immutable as $$
  select regexp_replace(lower(substring(p_url from '^[^/]+//[^/?#]+')), '^(https://.*):443$|^(http://.*):80$', '\1\2')
$$;

-- Origins such as "https://hooks.example.com"; null when absent.
create or replace function stillwake.read_origins(p_origins jsonb) returns text[]
language plpgsql immutable as $$
begin
  if p_origins is null or p_origins = 'null' then
    return null;
  elsif jsonb_typeof(p_origins) <> 'array' or jsonb_array_length(p_origins) > 100
    or exists (select from jsonb_array_elements(p_origins) o
      where coalesce(o #>> '{}' !~ '^[^/]+//[^/?#]+$' or stillwake.read_webhook_url(o, 'origins') is null, true)) then
    perform stillwake.refuse('SW001', 'origins must be an array of at most 100 origins', 'origins',
      'Write only scheme, host and port, such as "https://hooks.example.com".');
  end if;
  return array(select distinct stillwake.url_origin(o #>> '{}') from jsonb_array_elements(p_origins) o order by 1);
end
$$;

-- Rejects only what cannot be a URL: the sender decides on the address it resolves to. User and password are refused
-- because they would appear in lists and logs.
create or replace function stillwake.read_webhook_url(p_url jsonb, p_field text) returns text
language plpgsql immutable as $$
declare
  v_url text := p_url #>> '{}';
begin
  if v_url is null then
    return null;
  end if;
  if jsonb_typeof(p_url) <> 'string' or octet_length(v_url) > 2000 or v_url !~* '^https?://[^][:space:]/?#@\\[]+([/?#][^[:space:]]*)?$'
    and v_url !~* '^https?://\[[0-9a-f:.]+\](:[0-9]+)?([/?#][^[:space:]]*)?$' then
    perform stillwake.refuse('SW001', format('%s is not a valid receiver URL', p_field), p_field,
      'Write it as https://host/path, at most 2000 bytes, without a user and password.');
  end if;
  return v_url;
end
$$;

-- Custom headers: names and values that are valid in a request, except those that frame or sign it.
create or replace function stillwake.read_headers(p_headers jsonb) returns jsonb
language plpgsql immutable as $$
declare
  v_bad text;
begin
  if p_headers is null or p_headers = 'null' then
    return null;
  elsif jsonb_typeof(p_headers) <> 'object' or octet_length(p_headers::text) > 4096 then
    perform stillwake.refuse('SW001', 'headers must be an object of strings, at most 4096 bytes', 'headers',
      'Write { "authorization": "Bearer …" }.');
  end if;
  select h.key into v_bad from jsonb_each(p_headers) h
  where h.key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$'
    or lower(h.key) ~ '^(webhook-.*|host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|proxy-.*)$'
    or jsonb_typeof(h.value) <> 'string' or h.value #>> '{}' !~ '^[\x20-\x7e\t]*$' limit 1;
  if found then
    perform stillwake.refuse('SW001', format('Header "%s" cannot be set', v_bad), 'headers.' || v_bad,
      'Values are printable ASCII; webhook-*, host, connection and length headers are set by the sender.');
  end if;
  return (select coalesce(jsonb_object_agg(lower(h.key), h.value), '{}') from jsonb_each(p_headers) h);
end
$$;

-- The placeholders of a template, written as "$name"; input, output and failure also with a path, as in "$output.url".
create or replace function stillwake.template_names() returns text[]
language sql immutable parallel safe as $$
  select array['id', 'event', 'pipeline', 'state', 'STATE', 'output', 'failure', 'error', 'code', 'key', 'tenant', 'input', 'attempt',
    'missing', 'created_at', 'started_at', 'ended_at']
$$;

-- "thin", "full", or a JSON object or array of at most 8192 bytes. A string that begins with $ is a placeholder; $$
-- escapes it. Raises SW001.
create or replace function stillwake.check_template(p_body jsonb) returns void
language plpgsql immutable as $$
declare
  v_bad text;
begin
  if p_body in ('"thin"', '"full"') then
    return;
  -- A template that cannot be filled in would prevent its jobs from ending.
  elsif jsonb_typeof(p_body) not in ('object', 'array') or octet_length(p_body::text) > 8192
    or jsonb_path_exists(p_body, 'lax $.**{50 to last}') then
    perform stillwake.refuse('SW001', 'body must be "thin", "full" or a template of at most 8192 bytes and 50 levels', 'body',
      'A template is an object or array, such as { "task_id": "$id", "status": "$state" }.');
  end if;
  select s #>> '{}' into v_bad from jsonb_path_query(p_body, 'strict $.** ? (@.type() == "string")') s
  where s #>> '{}' ~ '^\$' and s #>> '{}' !~ '^\$\$'
    and split_part(substr(s #>> '{}', 2), '.', 1) <> all (case when s #>> '{}' ~ '\.' then array['input', 'output', 'failure']
      else stillwake.template_names() end)
  limit 1;
  if found then
    perform stillwake.refuse('SW001', format('body contains the unknown placeholder "%s"', left(v_bad, 100)), 'body',
      format('Placeholders: $%s; double a leading dollar sign.', array_to_string(stillwake.template_names(), ', $')));
  end if;
end
$$;

create or replace function stillwake.fill_template(p_template jsonb, p_values jsonb) returns jsonb
language plpgsql immutable as $$
declare
  v_text text := p_template #>> '{}';
begin
  case jsonb_typeof(p_template)
    when 'object' then
      return (select coalesce(jsonb_object_agg(e.key, stillwake.fill_template(e.value, p_values)), '{}') from jsonb_each(p_template) e);
    when 'array' then
      return (select coalesce(jsonb_agg(stillwake.fill_template(e.value, p_values) order by e.n), '[]')
        from jsonb_array_elements(p_template) with ordinality as e (value, n));
    when 'string' then
      if v_text ~ '^\$\$' then
        return to_jsonb(substr(v_text, 2));
      elsif v_text ~ '^\$' then
        return coalesce(p_values #> string_to_array(substr(v_text, 2), '.'), 'null');
      end if;
      return p_template;
    else
      return p_template;
  end case;
end
$$;

create or replace function stillwake.iso_time(p_at timestamptz) returns text
language sql stable as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The body of one webhook, at most 20480 bytes. "thin" contains ids and states and no user data. What does not fit is
-- omitted, the largest kinds first, and listed in omitted. The stack of a failure is never included: it reveals
-- internals.
create or replace function stillwake.webhook_body(p_job stillwake.ended_jobs, p_body jsonb) returns text
language plpgsql stable as $$
declare
  v_thin   jsonb := jsonb_build_object('type', 'job.' || p_job.state, 'timestamp', stillwake.iso_time(p_job.ended_at),
    'data', jsonb_build_object('id', p_job.id, 'pipeline', p_job.pipeline, 'state', p_job.state,
      'attempt', p_job.attempt, 'code', substring(p_job.failure ->> 'code' from '^[A-Z][A-Z0-9_]{0,63}$')));
  v_values jsonb;
  v_out    text[] := '{}';
  v_field  text;
  v_filled jsonb;
begin
  if p_body = '"thin"' then
    return v_thin::text;
  end if;
  v_values := jsonb_build_object('id', p_job.id, 'event', 'job.' || p_job.state, 'pipeline', p_job.pipeline, 'state', p_job.state,
    'STATE', upper(p_job.state), 'output', p_job.output,
    'failure', nullif(jsonb_strip_nulls(jsonb_build_object('name', p_job.failure -> 'name', 'code', p_job.failure -> 'code',
      'message', p_job.failure -> 'message', 'sentence', p_job.failure -> 'sentence', 'step', p_job.failure -> 'step')), '{}'),
    'error', coalesce(p_job.failure ->> 'sentence', p_job.failure ->> 'message'), 'code', p_job.failure ->> 'code',
    'key', p_job.key, 'tenant', p_job.tenant, 'input', p_job.input, 'attempt', p_job.attempt,
    'missing', coalesce(to_jsonb(p_job.missing), '[]'),
    'created_at', stillwake.iso_time(p_job.created_at), 'started_at', stillwake.iso_time(p_job.started_at),
    'ended_at', stillwake.iso_time(p_job.ended_at));
  foreach v_field in array array['', 'output', 'input', 'failure', 'error', 'missing'] loop
    if v_field <> '' then
      continue when v_values -> v_field in ('null', '[]');
      v_values := v_values || jsonb_build_object(v_field, null);
      v_out := v_out || v_field;
    end if;
    v_filled := case when p_body = '"full"' then jsonb_build_object('type', v_values -> 'event', 'timestamp', v_values -> 'ended_at',
        'data', v_values - array['event', 'STATE', 'error', 'code'])
      else stillwake.fill_template(p_body, v_values) end;
    if v_out <> '{}' and jsonb_typeof(v_filled) = 'object' then
      v_filled := v_filled || jsonb_build_object('omitted', to_jsonb(v_out));
    end if;
    if octet_length(v_filled::text) <= 20480 then
      return v_filled::text;
    end if;
  end loop;
  return (v_thin || jsonb_build_object('omitted', to_jsonb(array['body'])))::text;
end
$$;

-- Adds the webhook of a caller that joins an active job. Only recorded here: a transaction that may stay open for long
-- must not lock the job's row, because ending the job or its heartbeat would wait for it. Raises SW006.
create or replace function stillwake.join_webhooks(p_jobs uuid[], p_webhooks jsonb) returns void
language plpgsql as $$
declare
  v_full uuid := (select j.id from stillwake.live_jobs j
    where j.id = any (p_jobs) and jsonb_array_length(j.webhooks) >= 20 and not j.webhooks @> p_webhooks limit 1);
begin
  if v_full is not null then
    perform stillwake.refuse('SW006', format('Job %s already has 20 webhooks', v_full), 'webhook', 'Let one receiver notify the others.');
  end if;
  insert into stillwake.webhook_joins (job_id, webhook) select distinct j, p_webhooks -> 0 from unnest(p_jobs) j order by 1;
end
$$;

-- At the commit of a transaction that joined a job: adds its webhook to the job, or sends it now if the job has ended.
-- Locks: the job.
create or replace function stillwake.apply_join() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform from stillwake.live_jobs j where j.id = new.job_id for update;
  if found then
    update stillwake.live_jobs j set webhooks = coalesce(j.webhooks, '[]') || jsonb_build_array(new.webhook)
    where j.id = new.job_id and not coalesce(j.webhooks @> jsonb_build_array(new.webhook), false);
  else
    perform stillwake.add_webhooks(array[new.job_id], jsonb_build_array(new.webhook));
  end if;
  delete from stillwake.webhook_joins w where w.job_id = new.job_id and w.webhook = new.webhook;
  return null;
end
$$;

do $$
begin
  if not exists (select from pg_trigger where tgrelid = 'stillwake.webhook_joins'::regclass and tgname = 'joins_a_job') then
    create constraint trigger joins_a_job after insert on stillwake.webhook_joins deferrable initially deferred
    for each row execute function stillwake.apply_join();
  end if;
end
$$;

-- Writes the outbox rows of jobs that have just ended, in the same transaction: for their own webhooks, and for the
-- endpoints that receive all jobs of their pipeline. Called by end_jobs(). p_joined: the webhook of a caller that
-- joined a job while it ended, unless it exists already.
create or replace function stillwake.add_webhooks(p_jobs uuid[], p_joined jsonb default null) returns void
language plpgsql as $$
declare
  v_now timestamptz := stillwake.now();
begin
  insert into stillwake.webhooks (id, endpoint, url, lane, job_id, event, body, created_at, next_at)
  select 'msg_' || replace(stillwake.new_id()::text, '-', ''), t.name, t.url,
    t.name || ' ' || coalesce(lower(substring(t.url from '//([^/?#]+)')), ''), e.id, 'job.' || e.state,
    stillwake.webhook_body(e, t.body), v_now, v_now
  from stillwake.ended_jobs e
  cross join lateral (
    -- One per receiver, however many callers requested it.
    select distinct n.name, nullif(a.url, n.url) as url, n.body
    from (
      select w ->> 'endpoint' as endpoint, w ->> 'url' as url from jsonb_array_elements(coalesce(p_joined, e.webhooks)) w
      union all
      select p.endpoint, null from stillwake.endpoint_pipelines p where p.pipeline = e.pipeline and p_joined is null
    ) a join stillwake.endpoints n on n.name = a.endpoint
    where e.state = any (n.states) and coalesce(a.url, n.url) is not null and (n.tenant is null or n.tenant = e.tenant)
  ) t
  where e.id = any (p_jobs) and not (p_joined is not null and exists (
    select from stillwake.webhooks w where w.job_id = e.id and w.endpoint = t.name and w.url is not distinct from t.url
      and w.event = 'job.' || e.state and w.created_at >= e.ended_at));
  if found then
    perform stillwake.hint_webhooks();
  end if;
end
$$;

-- Hints all listening workers that a webhook is due. No pool has this name.
create or replace function stillwake.hint_webhooks() returns void
language plpgsql as $$
begin
  if exists (select from stillwake.listeners l where l.until > stillwake.now()) then
    perform pg_notify('stillwake.hint', '#webhooks');
  end if;
end
$$;

-- Claims up to p_limit due webhooks, each for p_span; webhooks of a dead sender are due again when its span is over.
-- Goes from lane to lane, starting after p_after, so that no lane waits behind another's backlog. Of lanes whose last
-- five deliveries failed it takes one webhook each, and p_failing of them in total. Locks: claims run one after the
-- other; webhooks, skipping locked rows. Raises SW001.
create or replace function stillwake.claim_webhooks(p_sender text, p_limit integer, p_span interval default '60 seconds',
  p_failing integer default null, p_after text default '')
returns table (id text, epoch bigint, attempt integer, endpoint text, url text, lane text, failing boolean, body text, headers jsonb,
  secrets text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now      timestamptz := stillwake.now();
  v_left     integer := p_limit;
  v_slow     integer := coalesce(p_failing, p_limit);
  v_at       text := coalesce(p_after, '');
  v_round    boolean := false;
  v_next     record;
  v_endpoint stillwake.endpoints;
  v_lane     stillwake.webhook_lanes;
  v_failing  boolean;
  v_room     integer;
begin
  if p_sender is null or length(p_sender) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A sender has a name of 1 to 200 characters', 'sender', 'Use one that no other live sender has.');
  elsif p_limit is null or p_limit not between 0 and 1000 or p_span is null or p_span not between '1 second' and '1 hour' then
    perform stillwake.refuse('SW001', 'A claim is for 0 to 1000 webhooks and 1 second to 1 hour', 'limit',
      'Choose values within that range.');
  end if;
  -- Most calls find nothing due, and need not visit the lanes.
  if not exists (select from stillwake.webhooks w where w.state = 'pending' and w.next_at <= v_now) then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('stillwake.webhooks', 0));
  while v_left > 0 loop
    select w.lane, w.endpoint, w.url, w.next_at into v_next from stillwake.webhooks w
    where w.state = 'pending' and w.lane > v_at order by w.lane, w.next_at limit 1;
    if not found or v_round and v_next.lane > p_after then
      exit when v_round or coalesce(p_after, '') = '';
      v_round := true;
      v_at := '';
      continue;
    end if;
    v_at := v_next.lane;
    continue when v_next.next_at > v_now;
    select * into v_endpoint from stillwake.endpoints n where n.name = v_next.endpoint;
    continue when v_endpoint.disabled_at is not null or v_next.url is null and v_endpoint.url is null;
    select * into v_lane from stillwake.webhook_lanes l where l.name = v_at;
    v_failing := coalesce(v_lane.failures >= 5, false);
    continue when v_lane.until > v_now or v_failing and v_slow <= 0;
    v_room := least(v_left, case when v_failing then 1 else 10 end
      - (select count(*) from stillwake.webhooks w where w.lane = v_at and w.sender is not null and w.next_at > v_now)::integer);
    continue when v_room <= 0;
    -- The sender of its last delivery died before it recorded the result.
    update stillwake.webhooks w set state = 'failed', ended_at = v_now, sender = null
    where w.lane = v_at and w.sender is not null and w.next_at <= v_now and w.attempts >= stillwake.max_deliveries();
    return query
      with due as materialized (
        select w.id from stillwake.webhooks w where w.state = 'pending' and w.lane = v_at and w.next_at <= v_now
        order by w.next_at limit v_room for update skip locked
      )
      update stillwake.webhooks w set sender = p_sender, epoch = w.epoch + 1, attempts = w.attempts + 1, next_at = v_now + p_span
      from due d where w.id = d.id
      returning w.id, w.epoch, w.attempts, w.endpoint, coalesce(w.url, v_endpoint.url), w.lane, v_failing, w.body,
        -- The endpoint may have got its headers after the job named its URL.
        case when stillwake.endpoint_allows(v_endpoint, w.url) then v_endpoint.headers else '{}' end,
        array(select s.secret from stillwake.endpoint_secrets s
          where s.endpoint = w.endpoint and (s.expires_at is null or s.expires_at > v_now)
          order by s.expires_at desc nulls first limit 2);
    get diagnostics v_room = row_count;
    v_left := v_left - v_room;
    v_slow := v_slow - case when v_failing then v_room else 0 end;
  end loop;
end
$$;

-- Records deliveries. Each element: id, epoch, sender as claimed, and status (of the response) or error (why there was
-- none), response (its beginning), took_ms, retry_after (in seconds, honoured up to a day). Or released: true for one
-- that was not attempted and does not count. Returns the state of each, 'lost' where another sender has it by now;
-- repeating a record changes nothing. Raises SW001.
create or replace function stillwake.settle_webhooks(p_records jsonb) returns table (id text, state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now    timestamptz := stillwake.now();
  v_one    record;
  v_hook   stillwake.webhooks;
  v_gone   text[] := '{}';
  v_lanes  jsonb := '{}';
  v_retry  interval;
begin
  if p_records is null or jsonb_typeof(p_records) <> 'array' then
    perform stillwake.refuse('SW001', 'records must be a JSON array', 'records',
      'Pass one object per delivery: id, epoch, sender, status or error.');
  end if;
  for v_one in
    select r.* from jsonb_to_recordset(p_records) as r (id text, epoch bigint, sender text, status integer, error text, response text,
      took_ms double precision, retry_after double precision, released boolean)
    order by r.id
  loop
    id := v_one.id;
    select * into v_hook from stillwake.webhooks w where w.id = v_one.id and w.epoch = v_one.epoch and w.sender = v_one.sender for update;
    if not found then
      state := coalesce((select w.state from stillwake.webhooks w
        join stillwake.deliveries d on d.webhook = w.id and d.n = v_one.epoch and d.sender = v_one.sender where w.id = v_one.id), 'lost');
      return next;
      continue;
    end if;
    if v_one.released then
      update stillwake.webhooks w set sender = null, attempts = w.attempts - 1, next_at = v_now where w.id = v_hook.id;
      state := 'pending';
      return next;
      continue;
    end if;
    insert into stillwake.deliveries (webhook, n, sender, started_at, took, status, error, response)
    values (v_hook.id, v_hook.epoch, v_hook.sender, v_now - make_interval(secs => coalesce(v_one.took_ms, 0) / 1000),
      make_interval(secs => coalesce(v_one.took_ms, 0) / 1000),
      v_one.status, left(v_one.error, 100), case when v_one.error is distinct from 'BLOCKED_ADDRESS' then left(v_one.response, 1024) end);
    v_retry := make_interval(secs => least(greatest(v_one.retry_after, 0), 86400));
    state := case when v_one.status between 200 and 299 and v_one.error is null then 'delivered'
      when v_hook.attempts >= stillwake.max_deliveries() then 'failed' else 'pending' end;
    if v_one.status = 410 then
      if v_hook.url is null then
        state := 'pending';
        v_gone := v_gone || v_hook.endpoint;
      else
        state := 'failed';
      end if;
    end if;
    update stillwake.webhooks w set state = settle_webhooks.state, sender = null,
      ended_at = case when settle_webhooks.state <> 'pending' then v_now end,
      next_at = case when settle_webhooks.state = 'pending' then v_now + greatest(stillwake.webhook_pause(v_hook.attempts), v_retry)
        else v_now end
    where w.id = v_hook.id;
    -- Lanes are written at the end, in one order: two senders may record deliveries of the same lanes.
    v_lanes := v_lanes || jsonb_build_object(v_hook.lane, jsonb_build_object('endpoint', v_hook.endpoint,
      'fresh', state = 'delivered' or coalesce((v_lanes #> array[v_hook.lane, 'fresh'])::boolean, false),
      'failures', case when state = 'delivered' then 0 else coalesce((v_lanes #>> array[v_hook.lane, 'failures'])::integer, 0) + 1 end,
      'retry', nullif(greatest(extract(epoch from v_retry), (v_lanes #>> array[v_hook.lane, 'retry'])::numeric), 0)));
    return next;
  end loop;
  for v_one in
    select l.key as name, l.value ->> 'endpoint' as endpoint, (l.value -> 'fresh')::boolean as fresh,
      (l.value ->> 'failures')::integer as failures, v_now + make_interval(secs => (l.value ->> 'retry')::double precision) as until
    from jsonb_each(v_lanes) l order by l.key collate "C"
  loop
    if v_one.failures = 0 and v_one.until is null then
      -- A Retry-After stays in effect although a delivery in flight succeeded.
      delete from stillwake.webhook_lanes l where l.name = v_one.name and (l.until is null or l.until <= v_now);
      update stillwake.webhook_lanes l set failures = 0 where l.name = v_one.name and l.failures > 0;
    else
      insert into stillwake.webhook_lanes as l (name, endpoint, failures, until, updated_at)
      values (v_one.name, v_one.endpoint, v_one.failures, v_one.until, v_now)
      on conflict (name) do update set failures = case when v_one.fresh then 0 else l.failures end + excluded.failures,
        until = greatest(l.until, excluded.until), updated_at = v_now;
    end if;
  end loop;
  -- Last, because it locks rows that other transactions may hold.
  perform stillwake.disable_endpoint(g.name, 'The receiver responded 410 Gone')
  from (select distinct n as name from unnest(v_gone) n order by 1) g;
end
$$;

-- Sends a webhook again, under the same id and with the full number of deliveries. Returns 'pending'. Raises SW001,
-- SW006.
create or replace function stillwake.resend_webhook(p_id text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_hook stillwake.webhooks;
begin
  select * into v_hook from stillwake.webhooks w where w.id = p_id for update;
  if not found then
    perform stillwake.refuse('SW001', format('Webhook "%s" does not exist', coalesce(p_id, 'null')), 'id',
      'It was never created here, or was pruned: delivered webhooks are kept for 7 days, others for 30.');
  elsif exists (select from stillwake.endpoints n where n.name = v_hook.endpoint and n.disabled_at is not null) then
    perform stillwake.refuse('SW006', format('Endpoint "%s" is disabled', v_hook.endpoint), 'endpoint',
      'Enable it; its held webhooks are then sent.');
  elsif v_hook.sender is not null and v_hook.next_at > stillwake.now() then
    -- A delivery is in flight: if it fails, all retries are available again.
    update stillwake.webhooks w set attempts = 1 where w.id = p_id;
    return 'pending';
  end if;
  update stillwake.webhooks w set state = 'pending', ended_at = null, attempts = 0, next_at = stillwake.now(), sender = null
  where w.id = p_id;
  perform stillwake.hint_webhooks();
  return 'pending';
end
$$;

-- When the next webhook is due, including those whose sender will have died by then; null when none is pending. Reads
-- the first rows in order of time and, when all of these are held back, one row per lane.
create or replace function stillwake.webhooks_due() returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_at   text := '';
  v_next record;
  v_due  timestamptz;
begin
  select w.next_at into v_due from (select i.lane, i.endpoint, i.next_at from stillwake.webhooks i where i.state = 'pending'
    order by i.next_at limit 100) w
  where not exists (select from stillwake.endpoints n where n.name = w.endpoint and n.disabled_at is not null)
    and not exists (select from stillwake.webhook_lanes l where l.name = w.lane and l.until > w.next_at)
  order by w.next_at limit 1;
  if found then
    return least(v_due, (select min(l.until) from stillwake.webhook_lanes l where l.until > stillwake.now()));
  end if;
  loop
    select w.lane, w.endpoint, w.next_at into v_next from stillwake.webhooks w where w.state = 'pending' and w.lane > v_at
    order by w.lane, w.next_at limit 1;
    exit when not found;
    v_at := v_next.lane;
    continue when exists (select from stillwake.endpoints n where n.name = v_next.endpoint and n.disabled_at is not null);
    v_due := least(v_due, greatest(v_next.next_at, (select l.until from stillwake.webhook_lanes l where l.name = v_at)));
  end loop;
  return v_due;
end
$$;

-- Deletes delivered webhooks after 7 days and others after 30, with their deliveries, and unused lanes and secrets. In
-- bounded number.
create or replace function stillwake.prune_webhooks(p_limit integer default 1000) returns bigint
language plpgsql as $$
declare
  v_now   timestamptz := stillwake.now();
  v_count bigint;
  v_more  bigint;
begin
  delete from stillwake.webhooks where id in (
    select w.id from stillwake.webhooks w
    where w.ended_at < v_now - interval '7 days' and (w.state = 'delivered' or w.ended_at < v_now - interval '30 days')
    limit p_limit for update skip locked);
  get diagnostics v_count = row_count;
  -- Held back by an endpoint that has been disabled for 30 days.
  delete from stillwake.webhooks where id in (
    select w.id from stillwake.webhooks w join stillwake.endpoints n on n.name = w.endpoint
    where n.disabled_at < v_now - interval '30 days' and w.state = 'pending' and w.created_at < v_now - interval '30 days'
    order by w.id limit p_limit for update of w skip locked);
  get diagnostics v_more = row_count;
  delete from stillwake.endpoint_secrets s where s.expires_at < v_now;
  delete from stillwake.webhook_lanes l
  where l.updated_at < v_now - interval '7 days' and not exists (select from stillwake.webhooks w
    where w.lane = l.name and w.state = 'pending');
  return v_count + v_more;
end
$$;

-- Endpoints as people see them: without secrets, and with the names of headers only.
create or replace view stillwake.webhook_endpoints as
select n.name, n.url, array(select jsonb_object_keys(n.headers) order by 1) as headers, n.body, n.states,
  array(select p.pipeline from stillwake.endpoint_pipelines p where p.endpoint = n.name order by 1) as pipelines,
  (select count(*) from stillwake.endpoint_secrets s
    where s.endpoint = n.name and (s.expires_at is null or s.expires_at > stillwake.now()))::integer as secrets,
  n.disabled_at, n.disabled_reason, coalesce((select max(l.failures) from stillwake.webhook_lanes l where l.endpoint = n.name), 0)
    as failures,
  n.created_at, n.updated_at, n.origins, n.tenant
from stillwake.endpoints n;

-- Created at installation: otherwise the first job with a bare URL, in a long transaction, would block all others.
do $$
begin
  if not exists (select from stillwake.endpoints where name = 'default') then
    perform stillwake.set_endpoint('default');
  end if;
end
$$;
