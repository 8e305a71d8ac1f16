-- The feed of a job: log lines, events and progress. Every write of a worker is fenced (see lease.sql) and takes many
-- jobs at once, so that a keeper shares one commit among its slots.

-- The lines of a batch without those that code repeats because it was run again from the start. A line with
-- "replayed": n is the nth equal one (level, message, data) that this attempt has logged outside of steps before any
-- step of it ran. It is dropped when earlier attempts have logged at least n such lines since the job was enqueued or
-- retried by hand. Only the last 10,000 entries of the feed are compared: a line that is not found is kept.
create or replace function stillwake.new_lines(p_job uuid, p_epoch bigint, p_lines jsonb) returns jsonb
language plpgsql stable as $$
declare
  v_after bigint := (select j.seq - 10000 from stillwake.live_jobs j where j.id = p_job);
begin
  v_after := greatest(v_after, (select max(f.seq) from stillwake.feed f
    where f.job_id = p_job and f.seq > v_after and f.kind in ('retried', 'restarted')));
  return (
    with earlier as (
      select f.level, f.message, f.data, count(*) as times from stillwake.feed f
      where f.job_id = p_job and f.seq > v_after and f.kind = 'log' and f.epoch < p_epoch and f.step is null
        and f.message in (select l ->> 'message' from jsonb_array_elements(p_lines) l where l ? 'replayed')
      group by f.level, f.message, f.data
    )
    select coalesce(jsonb_agg(l.line order by l.n), '[]') from jsonb_array_elements(p_lines) with ordinality l (line, n)
    where not exists (
      select from earlier e where e.level = coalesce(l.line ->> 'level', 'info') and e.message = l.line ->> 'message'
        and e.data is not distinct from l.line -> 'data' and e.times >= (l.line ->> 'replayed')::bigint));
end
$$;

-- Appends log lines. Each element: job, epoch, lease, lines: [{ level, message, step, data, ago_ms, replayed }], and optionally
-- progress (as in progress()) and batch, a number that grows with each batch of the attempt: a batch sent again after a
-- lost response is not written again. Sequence numbers are assigned under the lock of the job's row, so they have no
-- gaps and a reader sees them in commit order. Returns the last number per job, null where the fence refused it. A
-- message is cut at 16384 characters; of data larger than 16384 bytes only the size is kept.
-- Locks: leases by id; then jobs by id. Raises SW001; 55P03 as settle().
create or replace function stillwake.append_logs(p_batches jsonb) returns table (job_id uuid, last_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  v_batch record;
  v_now   timestamptz;
  v_jobs  uuid[] := '{}';
  v_lines jsonb;
begin
  if jsonb_typeof(p_batches) is distinct from 'array' then
    perform stillwake.refuse('SW001', 'batches must be a JSON array', 'batches', 'Pass one object per job: job, epoch, lease, lines.');
  elsif exists (select from jsonb_array_elements(p_batches) b where jsonb_typeof(b -> 'lines') is distinct from 'array') then
    perform stillwake.refuse('SW001', 'lines must be a JSON array', 'lines',
      'Pass one object per line: level, message, step, data, ago_ms.');
  end if;
  if exists (select from jsonb_array_elements(p_batches) b, jsonb_array_elements(b -> 'lines') l
    where coalesce(l ->> 'level', 'info') not in ('info', 'success', 'warning', 'error')
      or jsonb_typeof(l -> 'message') is distinct from 'string') then
    perform stillwake.refuse('SW001', 'A log line needs a message and a level', 'lines', 'Levels: info, success, warning, error.');
  end if;
  perform from stillwake.leases l
  where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id for no key update;
  v_now := stillwake.now();
  for v_batch in
    select * from jsonb_to_recordset(p_batches) as b (job uuid, epoch bigint, lease uuid, lines jsonb, batch bigint, progress jsonb)
    order by b.job
  loop
    job_id := v_batch.job;
    select j.seq into last_seq from stillwake.live_jobs j
    where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease and j.log_batch >= v_batch.batch;
    if found then
      return next;
      continue;
    end if;
    v_lines := v_batch.lines;
    if v_batch.epoch > 1 and jsonb_path_exists(v_lines, '$[*].replayed') then
      v_lines := stillwake.new_lines(v_batch.job, v_batch.epoch, v_lines);
    end if;
    update stillwake.live_jobs j set seq = j.seq + jsonb_array_length(v_lines), log_batch = coalesce(v_batch.batch, j.log_batch),
      progress = coalesce(nullif(v_batch.progress, 'null') || jsonb_build_object('at', v_now), j.progress)
    where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease
    returning j.seq into last_seq;
    insert into stillwake.feed (job_id, seq, at, epoch, kind, level, step, message, data)
    select v_batch.job, last_seq - jsonb_array_length(v_lines) + l.n,
      v_now - coalesce((l.line ->> 'ago_ms')::bigint, 0) * interval '1 millisecond', v_batch.epoch,
      'log', coalesce(l.line ->> 'level', 'info'), left(l.line ->> 'step', 200), left(l.line ->> 'message', 16384),
      case when octet_length((l.line -> 'data')::text) > 16384
        then jsonb_build_object('dropped', 'larger than 16384 bytes', 'bytes', octet_length((l.line -> 'data')::text))
        else l.line -> 'data' end
    from jsonb_array_elements(v_lines) with ordinality as l (line, n)
    where last_seq is not null;
    v_jobs := v_jobs || v_batch.job;
    return next;
  end loop;
  perform stillwake.hint_watchers(v_jobs);
end
$$;

-- Sets the progress of a job: fraction from 0 to 1, or done and total, and a sentence. Raises SW005.
create or replace function stillwake.progress(p_job uuid, p_epoch bigint, p_lease uuid, p_progress jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform stillwake.check_options(p_progress, array['fraction', 'done', 'total', 'sentence']);
  perform from stillwake.leases where id = p_lease for no key update;
  update stillwake.live_jobs set progress = p_progress || jsonb_build_object('at', stillwake.now())
  where id = p_job and epoch = p_epoch and lease_id = p_lease;
  if not found then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  perform stillwake.hint_watchers(array[p_job]);
end
$$;

-- Adds a state change to a job's feed. The caller holds the lock of the job's row.
create or replace function stillwake.add_event(p_job uuid, p_kind text, p_data jsonb) returns void
language plpgsql as $$
declare
  v_seq   bigint;
  v_epoch bigint;
begin
  update stillwake.live_jobs set seq = seq + 1 where id = p_job returning seq, epoch into v_seq, v_epoch;
  insert into stillwake.feed (job_id, seq, at, epoch, kind, data) values (p_job, v_seq, stillwake.now(), v_epoch, p_kind, p_data);
  perform stillwake.hint_watchers(array[p_job]);
end
$$;
