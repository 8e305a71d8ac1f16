-- Access to the server: tokens and the audit log. Also the input schema and sealed paths of pipelines.

-- Only the hash of a token is stored.
create table stillwake.tokens (
  id           uuid primary key,
  name         text not null check (length(name) between 1 and 200),
  -- The first characters, to recognize the token.
  prefix       text not null,
  hash         bytea not null unique check (octet_length(hash) = 32),
  role         text not null check (role in ('reader', 'operator', 'admin', 'worker')),
  tenant       text check (length(tenant) between 1 and 200),
  created_at   timestamptz not null,
  created_by   text,
  expires_at   timestamptz,
  last_used_at timestamptz,
  revoked_at   timestamptz,
  revoked_by   text,
  -- A tenant has no admin or worker tokens.
  check (tenant is null or role in ('reader', 'operator'))
);

-- The audit log of the server. Written before the action; `after` is added when it is done, and stays null if the
-- server died in between.
create table stillwake.audit (
  id      uuid primary key,
  at      timestamptz not null,
  actor   text not null,
  token   uuid,
  tenant  text,
  act     text not null,
  target  text,
  before  jsonb,
  after   jsonb,
  address text
);
create index audit_target on stillwake.audit (target, id) where target is not null;

alter table stillwake.pipelines
  -- The JSON Schema of the input, for forms and other programs.
  add column input_schema jsonb,
  -- Paths of the input whose values are sealed before they are stored.
  add column sealed text[] not null default '{}';

-- For lists by key and by tenant, and for recently ended jobs.
create index ended_jobs_key on stillwake.ended_jobs (key, id) where key is not null;
create index ended_jobs_tenant on stillwake.ended_jobs (tenant, id) where tenant is not null;
create index ended_jobs_ended on stillwake.ended_jobs using brin (ended_at) with (autosummarize = on, pages_per_range = 32);
