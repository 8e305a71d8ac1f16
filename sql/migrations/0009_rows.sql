-- Row-level security: the second check that separates tenants. The first is the tenant condition of each query; with
-- this one a query that lacks it still returns no rows of other tenants.
--
-- Not forced on the owner: functions run as the owner, and their plans do not change. Reads for a tenant switch to the
-- role stillwake_tenant, which is never the owner. Without a policy no row is visible: the policies are in
-- sql/policies.sql.

alter table stillwake.live_jobs enable row level security;
alter table stillwake.ended_jobs enable row level security;
alter table stillwake.ended_attempts enable row level security;
alter table stillwake.checkpoints enable row level security;
alter table stillwake.feed enable row level security;
alter table stillwake.artifacts enable row level security;
alter table stillwake.signals enable row level security;
alter table stillwake.spawns enable row level security;
alter table stillwake.spawn_parts enable row level security;
alter table stillwake.idempotency_keys enable row level security;
alter table stillwake.leases enable row level security;
alter table stillwake.limit_holds enable row level security;
alter table stillwake.webhooks enable row level security;
alter table stillwake.deliveries enable row level security;
alter table stillwake.webhook_joins enable row level security;
alter table stillwake.watches enable row level security;
alter table stillwake.tokens enable row level security;
alter table stillwake.audit enable row level security;

-- A copy of the last hour of the feed, with the tenant, after `stillwake migrate --realtime`; empty otherwise. Supabase
-- Realtime identifies a change by its partition and checks rights there, so it cannot follow the feed itself. Rows are
-- removed by truncate only, because the key of a deleted row would be sent to every subscriber.
create table stillwake.realtime_feed (
  job_id  uuid not null,
  seq     bigint not null,
  at      timestamptz not null,
  tenant  text not null,
  epoch   bigint not null,
  kind    text not null,
  level   text,
  step    text,
  message text,
  data    jsonb,
  primary key (job_id, seq)
);
alter table stillwake.realtime_feed enable row level security;
