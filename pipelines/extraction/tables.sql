-- The tables of the extraction, in the same database as Stillwake, so that a project and its job are stored in one transaction.
-- migrate() of src/app.ts applies this file when its text has changed: every statement must be repeatable.
create schema if not exists extraction;

create table if not exists extraction.projects (
  id              uuid primary key default gen_random_uuid(),
  organization_id uuid not null,
  name            text not null check (length(name) between 1 and 200),
  created_at      timestamptz not null default now()
);
create index if not exists projects_of_organization on extraction.projects (organization_id, created_at desc, id desc);

-- Credentials of GitLab and Bitbucket accounts. `credential` is sealed: the database cannot read it.
create table if not exists extraction.integrations (
  id              uuid primary key default gen_random_uuid(),
  organization_id uuid not null,
  provider        text not null check (provider in ('gitlab', 'bitbucket')),
  name            text not null,
  credential      jsonb not null,
  created_at      timestamptz not null default now()
);

-- `status` and `error` are those of the last extraction. record_outcomes() updates them for jobs that ended without pipeline code.
create table if not exists extraction.repositories (
  project_id      uuid primary key references extraction.projects (id) on delete cascade,
  provider        text not null check (provider in ('github', 'gitlab', 'bitbucket')),
  full_name       text not null,
  branch          text,
  package_path    text not null default '.',
  ecosystem       text,
  installation_id text,
  integration_id  uuid references extraction.integrations (id),
  status          text not null default 'new' check (status in ('new', 'extracting', 'ready', 'failed', 'cancelled')),
  error           text,
  extraction_id   uuid,
  commit          text,
  updated_at      timestamptz not null default now()
);
-- The extraction and time of each list: {"code": {"extraction": "…", "at": "…"}}. A list that is absent was never scanned.
alter table extraction.repositories add column if not exists looked jsonb not null default '{}';

create index if not exists repositories_extracting on extraction.repositories (extraction_id) where status = 'extracting';

-- One row per job. It outlives the job, which Stillwake deletes some weeks after its end.
create table if not exists extraction.extractions (
  id              uuid primary key,
  project_id      uuid not null references extraction.projects (id) on delete cascade,
  status          text not null default 'queued' check (status in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  error           text,
  missing         text[] not null default '{}',
  commit          text,
  summary         jsonb,
  created_at      timestamptz not null default now(),
  started_at      timestamptz,
  ended_at        timestamptz,
  machine         text,
  attempts        integer not null default 0,
  -- When record_outcomes() recorded the end of the job. Until then the job may still change this row.
  recorded_at     timestamptz
);
create index if not exists extractions_of_project on extraction.extractions (project_id, created_at desc, id desc);
create index if not exists extractions_unrecorded on extraction.extractions (id) where recorded_at is null;

create table if not exists extraction.dependencies (
  project_id      uuid not null references extraction.projects (id) on delete cascade,
  purl            text not null,
  name            text not null,
  version         text not null,
  ecosystem       text not null,
  direct          boolean not null,
  scope           text,
  licenses        text[] not null default '{}',
  extraction_id   uuid not null,
  first_seen_at   timestamptz not null default now(),
  primary key (project_id, purl)
);

-- Vulnerabilities and findings of the last extraction that scanned for them: replaced as a whole in the transaction that completes it.
create table if not exists extraction.vulnerabilities (
  project_id      uuid not null references extraction.projects (id) on delete cascade,
  id              text not null,
  purl            text not null,
  name            text not null,
  version         text not null,
  aliases         text[] not null default '{}',
  cve             text,
  severity        text not null check (severity in ('critical', 'high', 'medium', 'low', 'unknown')),
  score           double precision,
  summary         text not null,
  fixed           text[] not null default '{}',
  reachable       boolean,
  source          text not null,
  url             text,
  epss            double precision,
  percentile      double precision,
  kev             jsonb,
  extraction_id   uuid not null,
  first_seen_at   timestamptz not null default now(),
  primary key (project_id, id, purl)
);

-- Advisories of OSV.dev as the code of version `format` reads them: public data of no organization, shared by all workers. `modified` is the
-- text that OSV.dev sent with the id; another text means that the advisory has changed. Rows that were not used for longest are deleted.
create table if not exists extraction.advisories (
  id              text primary key,
  modified        text not null,
  format          integer not null,
  advisory        jsonb not null,
  used_on         date not null default current_date
);
create index if not exists advisories_used on extraction.advisories (used_on, id);

create table if not exists extraction.findings (
  project_id      uuid not null references extraction.projects (id) on delete cascade,
  fingerprint     text not null,
  kind            text not null check (kind in ('code', 'secret')),
  rule            text not null,
  severity        text not null check (severity in ('critical', 'high', 'medium', 'low', 'unknown')),
  path            text not null,
  line            integer not null,
  end_line        integer not null,
  message         text not null,
  cwe             text[] not null default '{}',
  engine          text not null,
  extraction_id   uuid not null,
  first_seen_at   timestamptz not null default now(),
  primary key (project_id, kind, fingerprint)
);

create table if not exists extraction.reports (
  extraction_id   uuid not null references extraction.extractions (id) on delete cascade,
  name            text not null,
  size            bigint not null,
  sha256          text not null,
  primary key (extraction_id, name)
);

-- Records the outcome of extractions whose job has ended, also if it crashed before pipeline code could do so. Returns their number.
-- The API calls it before it reads; without open extractions it reads two empty indexes. The caller needs to read stillwake.jobs.
-- Rows that a concurrent call is recording are skipped.
create or replace function extraction.record_outcomes() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_open uuid[];
  v_ids  uuid[];
begin
  -- A job that was retried after its outcome was recorded has the status "extracting" again.
  select array_agg(o.id) into v_open from (
    select e.id from extraction.extractions e where e.recorded_at is null
    union
    select r.extraction_id from extraction.repositories r where r.status = 'extracting'
  ) o;
  if v_open is null then
    return 0;
  end if;
  -- One query for all of them: the view computes some values once per statement, such as the closed gates.
  with known as materialized (
    select s.id, s.state, s.failure, s.missing, s.worker, s.attempt, s.started_at, s.ended_at
    from stillwake.jobs s where s.id = any (v_open)
  ), ended as (
    select e.id, k.state, k.failure, k.missing, k.worker, k.attempt, k.started_at, k.ended_at
    from extraction.extractions e
    left join known k on k.id = e.id
    where e.id = any (v_open) and (k.id is null or k.state in ('completed', 'failed', 'cancelled'))
    limit 1000
    for update of e skip locked
  ), recorded as (
    update extraction.extractions e set
      -- A deleted job ended long ago. If pipeline code has not recorded its end, the outcome is unknown.
      status = case when n.state is not null then n.state when e.ended_at is null then 'failed' else e.status end,
      error = case
        when n.state = 'failed' then regexp_replace(
          left(coalesce(n.failure ->> 'sentence', n.failure ->> 'message', 'Failed without a message'), 2000), '^Extraction failed: ', '')
        when n.state is null and e.ended_at is null then 'The job was deleted before its outcome was recorded'
        when n.state is null then e.error
      end,
      missing = coalesce(n.missing, e.missing),
      machine = coalesce(n.worker, e.machine),
      attempts = greatest(coalesce(n.attempt, 0), e.attempts),
      started_at = coalesce(e.started_at, n.started_at),
      ended_at = coalesce(n.ended_at, e.ended_at, now()),
      recorded_at = now()
    from ended n where e.id = n.id
    returning e.id
  )
  select array_agg(r.id) into v_ids from recorded r;
  -- The repository has the status of the extraction that it shows: the newest one, or an older one that completed later.
  update extraction.repositories r set
    status = case e.status when 'completed' then 'ready' else e.status end, error = e.error, updated_at = now()
  from extraction.extractions e
  where e.id = any (v_ids) and r.extraction_id = e.id and r.project_id = e.project_id
    and (r.status, coalesce(r.error, ''))
      is distinct from (case e.status when 'completed' then 'ready' else e.status end, coalesce(e.error, ''));
  return coalesce(cardinality(v_ids), 0);
end
$$;

-- The rights of extraction_api and extraction_pipeline, which kit/src/tables.ts creates before this file is applied. extraction_pipeline can read
-- neither credentials nor organizations.
revoke all on schema extraction from public;
revoke all on function extraction.record_outcomes() from public;

do $$
begin
  if to_regrole('extraction_api') is null or to_regrole('extraction_pipeline') is null then
    return;
  end if;
  grant usage on schema extraction to extraction_api, extraction_pipeline;
  grant select, insert, update, delete on all tables in schema extraction to extraction_api;
  grant execute on function extraction.record_outcomes() to extraction_api;
  grant select, insert, update, delete on extraction.dependencies, extraction.vulnerabilities, extraction.findings, extraction.reports,
    extraction.advisories to extraction_pipeline;
  grant select, insert, update on extraction.extractions to extraction_pipeline;
  grant select on extraction.repositories to extraction_pipeline;
  grant update (status, error, extraction_id, commit, looked, updated_at) on extraction.repositories to extraction_pipeline;
end
$$;
