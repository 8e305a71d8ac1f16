-- The tables of the clips, in the same database as Stillwake, so that a clip and its job are stored in one transaction.
-- migrate() of src/app.ts applies this file when its text has changed: every statement must be repeatable.
create schema if not exists clip;

-- Uploaded files. The content is in the store of sources under uploads/<id>.
create table if not exists clip.uploads (
  id              uuid primary key default gen_random_uuid(),
  name            text not null check (length(name) between 1 and 255),
  size            bigint not null check (size > 0),
  sha256          text not null,
  created_at      timestamptz not null default now(),
  used_at         timestamptz not null default now(),
  -- Never deleted: the sample of `npm start`.
  permanent       boolean not null default false
);
create index if not exists uploads_used on clip.uploads (used_at) where not permanent;

-- One row per clip, with the id of its job. It outlives the job, which Stillwake deletes a year after its end.
create table if not exists clip.clips (
  id              uuid primary key,
  -- Of source, range and options: the same request gets the same clip.
  request         text not null,
  title           text not null check (length(title) between 1 and 200),
  -- {"url", "name"} or {"upload", "name"}
  source          jsonb not null,
  start_at        double precision not null,
  end_at          double precision not null,
  captions        text not null check (captions in ('none', 'sidecar', 'burned')),
  format          text not null check (format in ('mp4', 'webm', 'gif')),
  cut             text not null check (cut in ('exact', 'keyframe')),
  state           text not null default 'queued' check (state in ('queued', 'running', 'ready', 'failed', 'cancelled')),
  stage           text check (stage in ('resolve', 'clip', 'upload', 'asr', 'finalize')),
  failure         jsonb,
  warnings        text[] not null default '{}',
  result          jsonb,
  attempts        integer not null default 0,
  created_at      timestamptz not null default now(),
  started_at      timestamptz,
  ended_at        timestamptz,
  -- When record_outcomes() recorded the end of the job. Until then the job may still change this row.
  recorded_at     timestamptz,
  -- The downloaded source of a failed clip is kept for a retry, and deleted after a day.
  source_deleted  boolean not null default false
);
create index if not exists clips_newest on clip.clips (created_at desc, id desc);
create index if not exists clips_request on clip.clips (request, created_at desc) where state in ('queued', 'running', 'ready');
create index if not exists clips_unrecorded on clip.clips (id) where recorded_at is null;
create index if not exists clips_with_source on clip.clips (ended_at) where not source_deleted and ended_at is not null;

-- Records the stage of an attempt, for readers only: the state of the job is authoritative. It may arrive late, from an attempt that
-- lost its lease.
create or replace function clip.begin_stage(p_id uuid, p_stage text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update clip.clips set state = 'running', stage = p_stage, failure = null, ended_at = null, recorded_at = null,
    started_at = case when ended_at is null then coalesce(started_at, now()) else now() end
  where id = p_id and state <> 'ready'
$$;

-- The last write of a job, in one transaction with the checkpoint of its step.
create or replace function clip.complete(p_id uuid, p_result jsonb, p_warnings text[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update clip.clips set state = 'ready', stage = null, failure = null, result = p_result, warnings = p_warnings, ended_at = now()
  where id = p_id
$$;

-- Records the outcome of clips whose job has ended, also if it crashed before pipeline code could do so. Returns their number.
-- The API calls it before it reads; without open clips it reads an empty index. The caller needs to read stillwake.jobs.
-- Rows that a concurrent call is recording are skipped.
create or replace function clip.record_outcomes() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_open  uuid[];
  v_count integer;
begin
  select array_agg(c.id) into v_open from clip.clips c where c.recorded_at is null;
  if v_open is null then
    return 0;
  end if;
  with known as materialized (
    select s.id, s.state, s.failure, s.attempt, s.ended_at from stillwake.jobs s where s.id = any (v_open)
  ), ended as (
    select c.id, k.state, k.failure, k.attempt, k.ended_at
    from clip.clips c left join known k on k.id = c.id
    where c.id = any (v_open) and (k.id is null or k.state in ('completed', 'failed', 'cancelled'))
    limit 1000
    for update of c skip locked
  ), recorded as (
    update clip.clips c set
      -- A deleted job ended long ago. If pipeline code has not recorded its end, the outcome is unknown.
      state = case n.state when 'completed' then 'ready' when 'failed' then 'failed' when 'cancelled' then 'cancelled'
        else case when c.ended_at is null then 'failed' else c.state end end,
      failure = case
        when n.state = 'failed' then jsonb_build_object(
          'code', coalesce(n.failure ->> 'code', 'INTERNAL'),
          'cause', n.failure -> 'cause' ->> 'code',
          'sentence', regexp_replace(
            left(coalesce(n.failure ->> 'sentence', n.failure ->> 'message', 'Failed without a message'), 2000), '^The clip failed: ', ''))
        when n.state is null and c.ended_at is null then
          jsonb_build_object('code', 'INTERNAL', 'sentence', 'The job was deleted before its outcome was recorded')
      end,
      attempts = greatest(coalesce(n.attempt, 0), c.attempts),
      ended_at = coalesce(n.ended_at, c.ended_at, now()),
      recorded_at = now()
    from ended n where c.id = n.id
    returning 1
  )
  select count(*)::integer into v_count from recorded;
  return v_count;
end
$$;

-- Which sources can be deleted: uploads that were not used for a day and are not needed by an active clip, and downloads of clips that
-- ended a day ago. Their rows are changed first, so the content may be deleted after the commit. Returns keys of the store.
create or replace function clip.expire_sources(p_limit integer) returns table (key text)
language sql set search_path = pg_catalog, pg_temp as $$
  with expired as (
    delete from clip.uploads where id in (
      select u.id from clip.uploads u
      where not u.permanent and u.used_at < now() - interval '1 day'
        and not exists (
          select from clip.clips c where c.source ->> 'upload' = u.id::text and (c.state in ('queued', 'running') or c.recorded_at is null))
      order by u.used_at limit p_limit for update skip locked)
    returning id
  ), ended as (
    update clip.clips set source_deleted = true where id in (
      select c.id from clip.clips c
      where not c.source_deleted and c.ended_at < now() - interval '1 day' and c.recorded_at is not null and c.source ? 'url'
      order by c.ended_at limit p_limit for update skip locked)
    returning id
  )
  select 'uploads/' || id from expired union all select 'downloads/' || id from ended
$$;

-- The rights of clip_api and clip_pipeline, which kit/src/tables.ts creates before this file is applied.
revoke all on schema clip from public;
revoke all on all functions in schema clip from public;

do $$
begin
  if to_regrole('clip_api') is null or to_regrole('clip_pipeline') is null then
    return;
  end if;
  grant usage on schema clip to clip_api, clip_pipeline;
  grant select, insert, update, delete on all tables in schema clip to clip_api;
  grant execute on all functions in schema clip to clip_api;
  grant select, update on clip.clips to clip_pipeline;
  grant execute on function clip.begin_stage(uuid, text), clip.complete(uuid, jsonb, text[]) to clip_pipeline;
end
$$;
