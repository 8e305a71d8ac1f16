-- Row-level security: the second wall between tenants. The first is the condition on the tenant that a reader puts into its query; behind this one a
-- query that forgot it shows nothing more.
--
-- It is not forced on the owner: the verbs run as the owner, and their plans stay what they are. Whoever reads for a tenant takes the role
-- stillwake_tenant first, which is never the owner. Without a policy nobody sees a row: who sees which stands in sql/policies.sql.

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

-- The lines and events of the last hour or so once more, with the tenant beside them, where somebody has asked for it by `stillwake migrate --realtime`; empty
-- otherwise. Supabase Realtime names a change after the partition it happened in, and checks rights there: it cannot follow the feed itself. Rows
-- go by truncate alone, because the key of a row that is deleted would be told to every subscriber.
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
