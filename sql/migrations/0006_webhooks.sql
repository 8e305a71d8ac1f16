-- Webhooks: endpoints, what is to be told them, and every try at it.
--
--   end_jobs() -> webhooks (pending, in the same commit) -> claim_webhooks() -> a POST -> settle_webhooks() -> delivered | pending again | failed
--                                                                                   +-> deliveries, one row per try

-- Whom to tell of the end: an array of { endpoint, url }, more than one when others joined it. Kept with an ended job, so that one which is retried tells again.
alter table stillwake.live_jobs add column webhooks jsonb;
alter table stillwake.ended_jobs add column webhooks jsonb;

-- Headers may be credentials of the receiver: the view webhook_endpoints shows their names only.
create table stillwake.endpoints (
  name            text primary key check (name ~ '^[a-z0-9][a-z0-9_.:-]{0,99}$'),
  -- Null: each job names its own.
  url             text check (octet_length(url) <= 2000),
  headers         jsonb not null default '{}',
  -- "thin", "full", or a template whose strings "$id", "$output", … are replaced.
  body            jsonb not null default '"thin"',
  states          text[] not null default '{completed,failed,cancelled}' check (states <@ array['completed', 'failed', 'cancelled']),
  disabled_at     timestamptz,
  disabled_reason text,
  created_at      timestamptz not null,
  updated_at      timestamptz not null
);

-- No two endpoints share a secret: who can verify for one could forge for the next. Readable by nobody; senders are given them with a claim.
create table stillwake.endpoint_secrets (
  secret     text primary key check (secret ~ '^whsec_[A-Za-z0-9+/]{32,86}={0,2}$'),
  endpoint   text not null references stillwake.endpoints on delete cascade,
  created_at timestamptz not null,
  expires_at timestamptz
);
create index endpoint_secrets_endpoint on stillwake.endpoint_secrets (endpoint, created_at desc);

-- Pipelines whose jobs an endpoint is told of although nobody asked for it.
create table stillwake.endpoint_pipelines (
  pipeline text not null,
  endpoint text not null references stillwake.endpoints on delete cascade,
  primary key (pipeline, endpoint)
);
create index endpoint_pipelines_endpoint on stillwake.endpoint_pipelines (endpoint);

-- The outbox. The body is written once, when the job ends: every try sends the same bytes under the same id. Its endpoint is no foreign key: every job that
-- ends would lock that one row, and endpoints are never deleted.
create table stillwake.webhooks (
  id         text primary key check (id ~ '^msg_[0-9a-f]{32}$'),
  endpoint   text not null,
  -- Null: that of its endpoint, which may move.
  url        text,
  -- Endpoint and, of a URL of the job's own, the host: those who share one wait for one another, and for nobody else.
  lane       text collate "C" not null,
  job_id     uuid not null,
  event      text not null check (event in ('job.completed', 'job.failed', 'job.cancelled')),
  body       text not null check (octet_length(body) <= 20480),
  created_at timestamptz not null,
  state      text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
  -- Tries begun since it was made or sent again.
  attempts   integer not null default 0,
  -- When to try; while somebody tries, when that one counts as dead. One whose endpoint is disabled is not tried, whatever stands here.
  next_at    timestamptz not null,
  -- Who tries, and the fence: it grows with every claim.
  sender     text,
  epoch      bigint not null default 0,
  ended_at   timestamptz,
  check ((state = 'pending') = (ended_at is null)),
  check (sender is null or state = 'pending')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
create index webhooks_line on stillwake.webhooks (lane, next_at) where state = 'pending';
create index webhooks_due on stillwake.webhooks (next_at) where state = 'pending';
create index webhooks_leased on stillwake.webhooks (lane) where sender is not null;
create index webhooks_job on stillwake.webhooks (job_id);
create index webhooks_endpoint on stillwake.webhooks (endpoint, id);
create index webhooks_ended on stillwake.webhooks (ended_at) where ended_at is not null;

-- One row per try that was recorded. n is the epoch of the try: a number that is missing is a try whose sender died before it could tell.
create table stillwake.deliveries (
  webhook    text not null references stillwake.webhooks on delete cascade,
  n          bigint not null,
  sender     text not null,
  started_at timestamptz not null,
  took       interval not null,
  status     smallint,
  error      text,
  -- The beginning of what the receiver answered; null for a target that was blocked.
  response   text check (octet_length(response) <= 4096),
  primary key (webhook, n)
);

-- Only lanes in trouble: failures in a row, and until when the receiver asked to be left alone.
create table stillwake.webhook_lanes (
  name       text collate "C" primary key,
  endpoint   text not null,
  failures   integer not null default 0,
  until      timestamptz,
  updated_at timestamptz not null
);
-- Who has joined a job and wants to be told of its end, until the commit of whoever joined it: see look_at_join().
create table stillwake.webhook_joins (
  job_id  uuid not null,
  webhook jsonb not null
);

create index webhook_lanes_endpoint on stillwake.webhook_lanes (endpoint);
