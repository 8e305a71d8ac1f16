-- The tables of the leaderboard and all changes of a repository's status. migrate() applies this file when its text has changed:
-- every statement must be repeatable. A "reading" is a job of the pipeline leaderboard-commits.
--
--   repositories   one row per URL: status and number of commits
--   commit_data    number of commits per e-mail address of a repository, and whether the address was looked up
--   contributors   people of all repositories; contributor_emails maps addresses to them
--   contributions  number of commits per contributor and repository: the board
--   counted        counts of a running reading, per attempt, until they are stored
--   transitions    history of status changes
--
-- Lock order: the repository, then contributors, then the rest. A transaction that marks an address as processed holds the row of the
-- repository, so exactly one transaction finds none left and completes the repository.
create schema if not exists leaderboard;

create table if not exists leaderboard.repositories (
  id                  uuid primary key default gen_random_uuid(),
  url                 text not null unique,
  name                text not null,
  status              text not null default 'pending'
                      check (status in ('pending', 'commits_processing', 'users_processing', 'completed', 'failed')),
  status_since        timestamptz not null default now(),
  error               text,
  -- The current or last reading.
  reading             uuid,
  -- The last counted commit, and the .mailmap that was used.
  head                text,
  mailmap             text,
  commits             bigint,
  authors             integer,
  created_at          timestamptz not null default now(),
  commits_started_at  timestamptz,
  commits_ended_at    timestamptz,
  users_ended_at      timestamptz,
  updated_at          timestamptz not null default now()
);
create index if not exists repositories_newest on leaderboard.repositories (created_at desc, id desc);
create index if not exists repositories_in_work on leaderboard.repositories (status_since)
  where status in ('pending', 'commits_processing', 'users_processing');

-- With a login: a GitHub user. Without: an address that GitHub does not know. `name` comes from the user's profile only: names in commits
-- are not trusted and are shown only on the board of their own repository.
create table if not exists leaderboard.contributors (
  id           uuid primary key default gen_random_uuid(),
  login        text,
  github_id    bigint,
  email        text unique,
  name         text,
  etag         text,
  created_at   timestamptz not null default now(),
  updated_at   timestamptz not null default now(),
  check ((login is null) <> (email is null))
);
create unique index if not exists contributors_login on leaderboard.contributors (lower(login));

create table if not exists leaderboard.contributor_emails (
  email           text primary key,
  contributor_id  uuid not null references leaderboard.contributors (id) on delete cascade,
  -- How it was resolved: a noreply address, a search, or not at all.
  source          text not null check (source in ('noreply', 'search', 'email')),
  checked_at      timestamptz not null default now()
);

create table if not exists leaderboard.commit_data (
  repository_id   uuid not null references leaderboard.repositories (id) on delete cascade,
  author_email    text not null,
  author_name     text not null,
  commit_count    bigint not null check (commit_count > 0),
  processed       boolean not null default false,
  contributor_id  uuid references leaderboard.contributors (id),
  -- The batch that looks it up: its number among the batches of a reading or of a manual look-up.
  reading         uuid,
  batch           integer,
  lookup_error    text,
  primary key (repository_id, author_email)
);
-- Its name in earlier versions.
do $$ begin
  if exists (select from information_schema.columns c
    where c.table_schema = 'leaderboard' and c.table_name = 'commit_data' and c.column_name = 'trouble') then
    alter table leaderboard.commit_data rename column trouble to lookup_error;
  end if;
end $$;
-- The last reading that counted it, and its public id, which replaces the address in the API.
alter table leaderboard.commit_data add column if not exists counted_by uuid;
alter table leaderboard.commit_data add column if not exists id uuid not null default gen_random_uuid();
create index if not exists commit_data_unprocessed on leaderboard.commit_data (repository_id, reading, batch) where not processed;
create index if not exists commit_data_contributor on leaderboard.commit_data (repository_id, contributor_id);

create table if not exists leaderboard.contributions (
  repository_id   uuid not null references leaderboard.repositories (id) on delete cascade,
  contributor_id  uuid not null references leaderboard.contributors (id),
  commit_count    bigint not null check (commit_count > 0),
  primary key (repository_id, contributor_id)
);

create table if not exists leaderboard.counted (
  job_id        uuid not null,
  -- Fencing token of the attempt: late writes of a lost attempt are not added to the counts of its successor.
  fence         bigint not null,
  author_email  text not null,
  author_name   text not null,
  commits       bigint not null,
  primary key (job_id, fence, author_email)
);

-- Login in a GitHub noreply address.
alter table leaderboard.counted add column if not exists login text;

create table if not exists leaderboard.transitions (
  repository_id  uuid not null references leaderboard.repositories (id) on delete cascade,
  at             timestamptz not null default clock_timestamp(),
  reading        uuid,
  was            text,
  became         text not null
);
create index if not exists transitions_repository on leaderboard.transitions (repository_id, at);

create or replace function leaderboard.check_transition() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if (old.status, new.status) not in (
    ('pending', 'commits_processing'), ('pending', 'users_processing'), ('pending', 'failed'),
    ('commits_processing', 'pending'), ('commits_processing', 'users_processing'), ('commits_processing', 'completed'),
    ('commits_processing', 'failed'),
    ('users_processing', 'completed'), ('users_processing', 'pending'), ('users_processing', 'failed'),
    ('completed', 'pending'), ('completed', 'users_processing'),
    ('failed', 'pending'), ('failed', 'commits_processing'), ('failed', 'users_processing')
  ) then
    raise exception 'A repository cannot change from % to %', old.status, new.status using errcode = 'check_violation';
  end if;
  new.status_since := now();
  return new;
end
$$;

create or replace trigger status_changes before update on leaderboard.repositories
  for each row when (old.status is distinct from new.status) execute function leaderboard.check_transition();

create or replace function leaderboard.record_transition() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into leaderboard.transitions (repository_id, reading, was, became)
  values (new.id, new.reading, case tg_op when 'UPDATE' then old.status end, new.status);
  return null;
end
$$;

create or replace trigger status_changed after update on leaderboard.repositories
  for each row when (old.status is distinct from new.status) execute function leaderboard.record_transition();
create or replace trigger repository_made after insert on leaderboard.repositories
  for each row execute function leaderboard.record_transition();

-- Starts a reading, in each of its attempts. Returns how far an earlier reading has counted. Returns no row if another reading has
-- replaced it or the record was deleted.
create or replace function leaderboard.begin_reading(p_repository uuid, p_job uuid) returns table (head text, mailmap text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Counts of failed readings that were replaced.
  delete from leaderboard.counted c where not exists (select from leaderboard.repositories r where r.reading = c.job_id);
  return query
    update leaderboard.repositories r set
      status = 'commits_processing', error = null, updated_at = now(),
      commits_started_at = case r.status when 'commits_processing' then r.commits_started_at else now() end,
      commits_ended_at = null, users_ended_at = null
    where r.id = p_repository and r.reading = p_job and r.status in ('pending', 'commits_processing', 'failed')
    returning r.head, r.mailmap;
end
$$;

-- Stores the counts of an attempt in one transaction with its checkpoint: they replace (p_whole) or increase the stored ones. New
-- addresses, and those looked up more than a day ago, are assigned to batches, those with the most commits first. Returns no row if
-- another reading has replaced this one.
create or replace function leaderboard.end_reading(
  p_repository uuid, p_job uuid, p_fence bigint, p_whole boolean, p_head text, p_mailmap text, p_batch integer
) returns table (commits bigint, authors integer, lookups integer, batches integer)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_lookups integer;
begin
  perform from leaderboard.repositories r
  where r.id = p_repository and r.reading = p_job and r.status in ('pending', 'commits_processing', 'failed')
  for no key update;
  if not found then
    return;
  end if;
  if p_whole and not exists (select from leaderboard.counted c where c.job_id = p_job and c.fence = p_fence) then
    raise exception 'The counts of reading % were deleted', p_job using hint = 'Retry it from the start.';
  end if;
  -- The job was retried after it had failed in this step.
  update leaderboard.repositories r set status = 'commits_processing', error = null
  where r.id = p_repository and r.status <> 'commits_processing';
  insert into leaderboard.commit_data as d (repository_id, author_email, author_name, commit_count, counted_by)
  select p_repository, c.author_email, c.author_name, c.commits, p_job
  from leaderboard.counted c where c.job_id = p_job and c.fence = p_fence order by c.author_email
  on conflict (repository_id, author_email) do update set
    author_name = excluded.author_name, counted_by = excluded.counted_by,
    commit_count = case when p_whole then excluded.commit_count else d.commit_count + excluded.commit_count end;
  if p_whole then
    delete from leaderboard.commit_data d where d.repository_id = p_repository and d.counted_by is distinct from p_job;
  end if;
  insert into leaderboard.contributors (login)
  select distinct on (lower(c.login)) c.login from leaderboard.counted c
  where c.job_id = p_job and c.fence = p_fence and c.login is not null order by lower(c.login)
  on conflict (lower(login)) do nothing;
  insert into leaderboard.contributor_emails (email, contributor_id, source)
  select c.author_email, p.id, 'noreply'
  from leaderboard.counted c join leaderboard.contributors p on lower(p.login) = lower(c.login)
  where c.job_id = p_job and c.fence = p_fence order by c.author_email
  on conflict (email) do nothing;
  delete from leaderboard.counted c where c.job_id = p_job;
  v_lookups := leaderboard.assign_batches(p_repository, p_job, p_batch, '[]');
  perform leaderboard.rank(p_repository, null);

  return query
    update leaderboard.repositories r set
      status = case when v_lookups = 0 then 'completed' else 'users_processing' end,
      commits = s.commits, authors = s.authors, head = p_head, mailmap = p_mailmap,
      commits_ended_at = now(), users_ended_at = case when v_lookups = 0 then now() end, updated_at = now()
    from (
      select sum(d.commit_count)::bigint as commits, count(*)::integer as authors
      from leaderboard.commit_data d where d.repository_id = p_repository
    ) s
    where r.id = p_repository
    returning r.commits, r.authors, v_lookups, (v_lookups + p_batch - 1) / p_batch;
end
$$;

-- Settles addresses that need no look-up, and assigns the others (unprocessed, or looked up more than a day ago) to numbered batches.
-- Addresses in the active batches p_underway, [{"reading", "batch"}], are skipped. Returns the number of assigned addresses. The caller
-- holds the row of the repository and calls rank(). Nested loops are disabled: the planner has no statistics of tables that were just
-- filled, and a nested loop over 100,000 addresses would take hours.
create or replace function leaderboard.assign_batches(p_repository uuid, p_reading uuid, p_batch integer, p_underway jsonb) returns integer
language sql set search_path = pg_catalog, pg_temp set enable_nestloop = off as $$
  update leaderboard.commit_data d set processed = false, reading = null, batch = null
  from leaderboard.contributor_emails e
  where d.repository_id = p_repository and d.processed and e.email = d.author_email
    and e.source <> 'noreply' and e.checked_at <= now() - interval '24 hours';
  -- A look-up of another repository may have resolved the address.
  update leaderboard.commit_data d set processed = true, contributor_id = e.contributor_id, lookup_error = null
  from leaderboard.contributor_emails e
  where d.repository_id = p_repository and e.email = d.author_email
    and (e.source = 'noreply' or e.checked_at > now() - interval '24 hours')
    and (not d.processed or d.contributor_id is distinct from e.contributor_id);
  with assigned as (
    update leaderboard.commit_data d set reading = p_reading, batch = n.batch, lookup_error = null
    from (
      select u.author_email, ((row_number() over (order by u.commit_count desc, u.author_email) - 1) / p_batch)::integer as batch
      from leaderboard.commit_data u where u.repository_id = p_repository and not u.processed
        and not exists (
          select from jsonb_to_recordset(p_underway) w (reading uuid, batch integer) where w.reading = u.reading and w.batch = u.batch
        )
    ) n
    where d.repository_id = p_repository and d.author_email = n.author_email
    returning 1
  )
  select count(*)::integer from assigned
$$;

-- Computes the contributions of these contributors, or of all of them (null). The caller holds the row of the repository.
create or replace function leaderboard.rank(p_repository uuid, p_contributors uuid[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  delete from leaderboard.contributions c
  where c.repository_id = p_repository and (p_contributors is null or c.contributor_id = any (p_contributors))
    and not exists (select from leaderboard.commit_data d where d.repository_id = p_repository and d.contributor_id = c.contributor_id);
  insert into leaderboard.contributions as c (repository_id, contributor_id, commit_count)
  select p_repository, d.contributor_id, sum(d.commit_count) from leaderboard.commit_data d
  where d.repository_id = p_repository and d.contributor_id is not null
    and (p_contributors is null or d.contributor_id = any (p_contributors))
  group by d.contributor_id
  on conflict (repository_id, contributor_id) do update set commit_count = excluded.commit_count
    where c.commit_count <> excluded.commit_count;
$$;

-- Completes the repository if no address is unprocessed. Returns whether it did. The caller holds its row.
create or replace function leaderboard.complete(p_repository uuid) returns boolean
language sql set search_path = pg_catalog, pg_temp as $$
  with done as (
    update leaderboard.repositories r set status = 'completed', users_ended_at = now(), updated_at = now()
    where r.id = p_repository and r.status = 'users_processing'
      and not exists (select from leaderboard.commit_data d where d.repository_id = p_repository and not d.processed)
    returning 1
  )
  select exists (select from done)
$$;

-- Called after end_reading and before the batches are spawned. A reading that failed between the two and was retried has its counts
-- stored already, but its record may have become "failed", or "pending" by another request.
create or replace function leaderboard.resume_reading(p_repository uuid, p_job uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  update leaderboard.repositories r set status = 'users_processing', error = null, updated_at = now()
  where r.id = p_repository and r.reading = p_job and r.status in ('pending', 'failed');
  if found then
    perform leaderboard.complete(p_repository);
  end if;
end
$$;

-- Settles the addresses of a batch that were resolved since it was assigned. Returns their number, and whether the repository is complete.
create or replace function leaderboard.settle_known(p_repository uuid, p_reading uuid, p_batch integer)
returns table (known integer, completed boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_contributors uuid[];
begin
  perform from leaderboard.repositories r where r.id = p_repository for no key update;
  with before as (
    select d.author_email, d.contributor_id from leaderboard.commit_data d
    where d.repository_id = p_repository and d.reading = p_reading and d.batch = p_batch and not d.processed
  ), fresh as (
    update leaderboard.commit_data d set processed = true, contributor_id = e.contributor_id, lookup_error = null
    from leaderboard.contributor_emails e
    where d.repository_id = p_repository and d.reading = p_reading and d.batch = p_batch and not d.processed
      and e.email = d.author_email and (e.source = 'noreply' or e.checked_at > now() - interval '24 hours')
    returning d.author_email, d.contributor_id
  )
  select count(*)::integer, coalesce(array_agg(f.contributor_id) || array_agg(b.contributor_id), '{}') into known, v_contributors
  from fresh f join before b on b.author_email = f.author_email;
  if known > 0 then
    perform leaderboard.rank(p_repository, v_contributors);
  end if;
  completed := leaderboard.complete(p_repository);
  return next;
end
$$;

-- Stores the look-up of one address: a GitHub user (p_login), or no user. p_name and p_github_id come from GitHub, or are null. Marks the
-- address as processed. Returns whether the repository is complete.
create or replace function leaderboard.settle_email(
  p_repository uuid, p_email text, p_source text, p_login text, p_github_id bigint, p_name text, p_etag text
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_contributor uuid;
  v_before      uuid;
begin
  perform from leaderboard.repositories r where r.id = p_repository for no key update;
  if p_login is not null then
    insert into leaderboard.contributors as c (login, github_id, name, etag) values (p_login, p_github_id, p_name, p_etag)
    on conflict (lower(login)) do update set
      login = excluded.login, github_id = coalesce(excluded.github_id, c.github_id), name = coalesce(excluded.name, c.name),
      etag = coalesce(excluded.etag, c.etag), updated_at = now()
    returning c.id into v_contributor;
  else
    insert into leaderboard.contributors as c (email) values (p_email)
    on conflict (email) do update set updated_at = now()
    returning c.id into v_contributor;
  end if;
  insert into leaderboard.contributor_emails as e (email, contributor_id, source) values (p_email, v_contributor, p_source)
  on conflict (email) do update set contributor_id = excluded.contributor_id, source = excluded.source, checked_at = now();

  select d.contributor_id into v_before from leaderboard.commit_data d
  where d.repository_id = p_repository and d.author_email = p_email;
  update leaderboard.commit_data d set processed = true, contributor_id = v_contributor, lookup_error = null
  where d.repository_id = p_repository and d.author_email = p_email;
  perform leaderboard.rank(p_repository, array[v_contributor, v_before]);
  return leaderboard.complete(p_repository);
end
$$;

-- Records readings that ended without pipeline code: failed, cancelled, or crashed. This includes readings that ended after storing the
-- counts but before spawning the look-ups: they have no child jobs. Returns their number. The API calls it before it reads. If a failed
-- job is retried, begin_reading or resume_reading changes the status back.
create or replace function leaderboard.record_outcomes() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_open uuid[];
  v_count integer;
begin
  select array_agg(r.reading) into v_open from leaderboard.repositories r
  where r.reading is not null and (r.status in ('pending', 'commits_processing') or r.status = 'users_processing' and exists (
    select from leaderboard.commit_data d where d.repository_id = r.id and d.reading = r.reading and not d.processed
  ));
  if v_open is null then
    return 0;
  end if;
  with known as materialized (
    select s.id, s.state, s.failure from stillwake.jobs s where s.id = any (v_open)
  ), ended as (
    update leaderboard.repositories r set status = 'failed', updated_at = now(), error = case
        when k.state = 'failed' then
          left(coalesce(k.failure ->> 'sentence', k.failure ->> 'message', 'Reading the commits failed without a message'), 2000)
        when k.state = 'cancelled' then 'Reading the commits was cancelled'
        when k.state = 'completed' then 'The job completed but its counts are missing'
        else 'The job was deleted before its outcome was recorded'
      end
    from unnest(v_open) o (id) left join known k on k.id = o.id
    where r.reading = o.id and case
        when r.status in ('pending', 'commits_processing') then k.id is null or k.state in ('failed', 'cancelled', 'completed')
        when r.status = 'users_processing' then
          k.state in ('failed', 'cancelled') and not exists (select from stillwake.jobs s where s.parent_id = o.id)
      end
    returning 1
  )
  select count(*)::integer into v_count from ended;
  return v_count;
end
$$;

-- The rights of leaderboard_api and leaderboard_pipeline, which kit/src/tables.ts creates before this file is applied.
revoke all on schema leaderboard from public;
revoke all on all functions in schema leaderboard from public;

do $$
begin
  if to_regrole('leaderboard_api') is null or to_regrole('leaderboard_pipeline') is null then
    return;
  end if;
  grant usage on schema leaderboard to leaderboard_api, leaderboard_pipeline;
  grant execute on all functions in schema leaderboard to leaderboard_api, leaderboard_pipeline;
  grant select, insert, update, delete on all tables in schema leaderboard to leaderboard_api;
  grant select, update on leaderboard.repositories to leaderboard_pipeline;
  grant insert on leaderboard.transitions to leaderboard_pipeline;
  grant select, insert, update, delete
    on leaderboard.counted, leaderboard.commit_data, leaderboard.contributors, leaderboard.contributor_emails, leaderboard.contributions
    to leaderboard_pipeline;
end
$$;
