-- What one tenant can do to another, or to the installation: endpoints belong to a tenant and name the origins that get
-- their headers; keys and idempotency keys are separate for each tenant; a token carries what it may enqueue.

alter table stillwake.endpoints
  -- Origins that the URL of a job may have, besides that of the endpoint's own URL. Headers are sent to these only.
  add column origins text[] not null default '{}',
  -- Only jobs of this tenant use it, and callers bound to a tenant use no others; null for the whole installation.
  add column tenant text check (length(tenant) between 1 and 500);
alter table stillwake.endpoints enable row level security;

-- Jobs without a tenant have the scope ''; see functions/jobs/keys.sql.
drop index stillwake.live_jobs_key, stillwake.live_jobs_key_queue;
create unique index live_jobs_key on stillwake.live_jobs (pipeline, key, coalesce(tenant, ''), key_slot) where key_slot is not null;
create index live_jobs_key_queue on stillwake.live_jobs (pipeline, key, coalesce(tenant, ''), order_at, id)
  where key is not null and key_slot is null;

alter table stillwake.idempotency_keys add column tenant text not null default '';
update stillwake.idempotency_keys k set tenant = j.tenant from (
  select id, tenant from stillwake.live_jobs where tenant is not null
  union all select id, tenant from stillwake.ended_jobs where tenant is not null
) j where j.id = k.job_id;
alter table stillwake.idempotency_keys drop constraint idempotency_keys_pkey, add primary key (pipeline, key, tenant);

alter table stillwake.tokens
  -- What an operator may enqueue; null for the default. Pipelines: any. Pools: that of the pipeline for a tenant's token,
  -- else any. Priority: at most 0 for a tenant's token, else any. The pipeline's own pool and priority are always allowed.
  add column pipelines text[],
  add column pools text[],
  add column max_priority smallint check (max_priority between -1000 and 1000);

-- Functions whose parameters or results changed: two versions would make calls ambiguous, or stay unused.
drop function if exists stillwake.refuse_unknown_endpoint(text), stillwake.read_webhook(jsonb),
  stillwake.jobs_to_replace(text, uuid[], text[]), stillwake.pass_key_slots(text[], text[], smallint[], boolean),
  stillwake.take_idempotency_keys(text, jsonb, uuid[]), stillwake.fill_key_slots(text, text),
  stillwake.refuse_other_tenants(uuid[], text), stillwake.check_token(bytea),
  stillwake.create_token(uuid, text, text, bytea, text, text, interval, text);
