-- Webhooks: endpoints, the outbox, and every delivery.
--
--   end_jobs() -> webhooks (pending, in the same commit) -> claim_webhooks() -> POST
--     -> settle_webhooks(): one row of deliveries, and delivered | pending again | failed

-- The webhooks of a job: an array of { endpoint, url }, more than one when other callers joined it. Kept with the ended
-- job, so that a retried job sends them again.
alter table stillwake.live_jobs add column webhooks jsonb;
alter table stillwake.ended_jobs add column webhooks jsonb;

-- Headers may contain credentials of the receiver: the view webhook_endpoints shows their names only.
create table stillwake.endpoints (
  name            text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  -- Null: each job passes its own.
  url             text check (octet_length(url) <= 2000),
  headers         jsonb not null default '{}',
  -- "thin", "full", or a template with placeholders such as "$id" and "$output".
  body            jsonb not null default '"thin"',
  states          text[] not null default '{completed,failed,cancelled}' check (states <@ array['completed', 'failed', 'cancelled']),
  disabled_at     timestamptz,
  disabled_reason text,
  created_at      timestamptz not null,
  updated_at      timestamptz not null
);

-- No two endpoints share a secret: a receiver that verifies one could forge the other. No role can read this table;
-- senders receive secrets with a claim.
create table stillwake.endpoint_secrets (
  secret     text primary key check (secret ~ '^whsec_[A-Za-z0-9+/]{32,86}={0,2}$'),
  endpoint   text not null references stillwake.endpoints on delete cascade,
  created_at timestamptz not null,
  expires_at timestamptz
);
create index endpoint_secrets_endpoint on stillwake.endpoint_secrets (endpoint, created_at desc);

-- Endpoints that receive all jobs of a pipeline.
create table stillwake.endpoint_pipelines (
  pipeline text not null,
  endpoint text not null references stillwake.endpoints on delete cascade,
  primary key (pipeline, endpoint)
);
create index endpoint_pipelines_endpoint on stillwake.endpoint_pipelines (endpoint);

-- The outbox. The body is written once, when the job ends: every delivery sends the same bytes under the same id. The
-- endpoint is not a foreign key: every ending job would lock that one row, and endpoints are never deleted.
create table stillwake.webhooks (
  id         text primary key check (id ~ '^msg_[0-9a-f]{32}$'),
  endpoint   text not null,
  -- Null: the current URL of its endpoint.
  url        text,
  -- The endpoint and, for a URL passed by the job, its host. Webhooks of one lane share its concurrency limit.
  lane       text collate "C" not null,
  job_id     uuid not null,
  event      text not null check (event in ('job.completed', 'job.failed', 'job.cancelled')),
  body       text not null check (octet_length(body) <= 20480),
  created_at timestamptz not null,
  state      text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
  -- Deliveries started since it was created or sent again.
  attempts   integer not null default 0,
  -- When it is due; while a sender has it, when that sender counts as dead. Ignored while its endpoint is disabled.
  next_at    timestamptz not null,
  -- The sender that has it, and the fence, which grows with every claim.
  sender     text,
  epoch      bigint not null default 0,
  ended_at   timestamptz,
  check ((state = 'pending') = (ended_at is null)),
  check (sender is null or state = 'pending')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
create index webhooks_lane on stillwake.webhooks (lane, next_at) where state = 'pending';
create index webhooks_due on stillwake.webhooks (next_at) where state = 'pending';
create index webhooks_leased on stillwake.webhooks (lane) where sender is not null;
create index webhooks_job on stillwake.webhooks (job_id);
create index webhooks_endpoint on stillwake.webhooks (endpoint, id);
create index webhooks_ended on stillwake.webhooks (ended_at) where ended_at is not null;

-- One row per recorded delivery. n is its epoch: a missing number is a delivery whose sender died before recording it.
create table stillwake.deliveries (
  webhook    text not null references stillwake.webhooks on delete cascade,
  n          bigint not null,
  sender     text not null,
  started_at timestamptz not null,
  took       interval not null,
  status     smallint,
  error      text,
  -- The beginning of the response; null for a blocked address.
  response   text check (octet_length(response) <= 4096),
  primary key (webhook, n)
);

-- Only failing or waiting lanes: consecutive failures, and the Retry-After of the receiver.
create table stillwake.webhook_lanes (
  name       text collate "C" primary key,
  endpoint   text not null,
  failures   integer not null default 0,
  until      timestamptz,
  updated_at timestamptz not null
);
-- Webhooks of callers that joined a job, until their commit: see apply_join().
create table stillwake.webhook_joins (
  job_id  uuid not null,
  webhook jsonb not null
);

create index webhook_lanes_endpoint on stillwake.webhook_lanes (endpoint);
