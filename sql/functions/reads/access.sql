-- Access to the server: tokens and the audit log. Only the hash of a token is stored.

-- Stores a token by its hash. p_limits: what an operator may enqueue: pipelines, pools (arrays of names) and max_priority;
-- for the defaults see the columns of tokens. The server enforces them. Raises SW001.
create or replace function stillwake.create_token(
  p_id uuid, p_name text, p_prefix text, p_hash bytea, p_role text, p_tenant text default null, p_expires_in interval default null,
  p_by text default null, p_limits jsonb default '{}'
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now       timestamptz := stillwake.now();
  v_pipelines text[];
  v_pools     text[];
  v_priority  integer;
begin
  perform stillwake.check_options(p_limits, array['pipelines', 'pools', 'max_priority']);
  v_pipelines := stillwake.read_names(p_limits, 'pipelines');
  v_pools := stillwake.read_names(p_limits, 'pools');
  v_priority := stillwake.read_integer(p_limits, 'max_priority', -1000, 1000);
  if coalesce(length(p_name), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A token needs a name of 1 to 200 characters', 'name',
      'Name the person or program that will use it.');
  elsif p_role is null or p_role not in ('reader', 'operator', 'admin', 'worker') then
    perform stillwake.refuse('SW001', format('"%s" is not a role', coalesce(p_role, 'null')), 'role',
      'Roles: reader, operator, admin, worker.');
  elsif length(p_tenant) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A tenant has 1 to 200 characters', 'tenant', 'Leave it out for a token of the whole installation.');
  elsif p_tenant is not null and p_role not in ('reader', 'operator') then
    perform stillwake.refuse('SW001', format('A token of one tenant cannot be %s', p_role), 'role',
      'Make it reader or operator, or leave the tenant out.');
  elsif p_expires_in <= interval '0' then
    perform stillwake.refuse('SW001', 'The token would have expired already', 'expiresIn', 'Use a time such as 90d.');
  elsif p_limits <> '{}' and p_role <> 'operator' then
    perform stillwake.refuse('SW001', format('A token of role %s has no limits for what it may enqueue', p_role), 'role',
      'Make it operator, or leave pipelines, pools and maxPriority out.');
  elsif v_pipelines = '{}' or v_pools = '{}' then
    perform stillwake.refuse('SW001', 'A list of pipelines or pools names at least one', case when v_pipelines = '{}' then 'pipelines'
      else 'pools' end, 'Leave it out for the default, or make the token a reader.');
  end if;
  insert into stillwake.tokens (id, name, prefix, hash, role, tenant, created_at, created_by, expires_at, pipelines, pools, max_priority)
  values (p_id, p_name, p_prefix, p_hash, p_role, p_tenant, v_now, left(p_by, 200), v_now + p_expires_in, v_pipelines, v_pools, v_priority)
  on conflict (id) do nothing;
end
$$;

-- Finds valid tokens by their hashes; no row for one that does not exist, has expired or was revoked. Updates
-- last_used_at at most once a minute, skipping rows that another call updates.
create or replace function stillwake.check_tokens(p_hashes bytea[])
returns table (hash bytea, id uuid, name text, role text, tenant text, expires_at timestamptz, pipelines text[], pools text[],
  max_priority smallint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := stillwake.now();
begin
  return query
  select t.hash, t.id, t.name, t.role, t.tenant, t.expires_at, t.pipelines, t.pools, t.max_priority from stillwake.tokens t
  where t.hash = any (p_hashes) and t.revoked_at is null and (t.expires_at is null or t.expires_at > v_now);
  if found then
    update stillwake.tokens t set last_used_at = v_now where t.id in (
      select u.id from stillwake.tokens u where u.hash = any (p_hashes)
        and (u.last_used_at is null or u.last_used_at < v_now - interval '1 minute')
      for no key update skip locked);
  end if;
end
$$;

-- Revokes a token. Returns false when it does not exist.
create or replace function stillwake.revoke_token(p_id uuid, p_by text default null) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update stillwake.tokens set revoked_at = coalesce(revoked_at, stillwake.now()), revoked_by = coalesce(revoked_by, left(p_by, 200))
  where id = p_id;
  return found;
end
$$;

create or replace view stillwake.access_tokens as
select id, name, prefix, role, tenant, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, pipelines, pools,
  max_priority
from stillwake.tokens;

-- Records that an action is about to happen: actor, action and target. Repeating the call changes nothing.
create or replace function stillwake.begin_audit_entry(p_id uuid, p_act jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into stillwake.audit (id, at, actor, token, tenant, act, target, before, after, address)
  values (p_id, stillwake.now(), left(coalesce(p_act ->> 'actor', 'unknown'), 200),
    case when p_act ->> 'token' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (p_act ->> 'token')::uuid end,
    left(p_act ->> 'tenant', 200), left(p_act ->> 'act', 100), left(p_act ->> 'target', 500), p_act -> 'before', p_act -> 'after',
    left(p_act ->> 'address', 100))
  on conflict (id) do nothing
$$;

-- Adds the result of an action, or its refusal: the state before and after it.
create or replace function stillwake.finish_audit_entry(p_id uuid, p_before jsonb, p_after jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update stillwake.audit set before = p_before, after = p_after where id = p_id
$$;
