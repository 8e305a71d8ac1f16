-- Hints: NOTIFY messages that wake idle workers. A hint may be lost, so a worker also polls: once after LISTEN, then at
-- long intervals.

-- Lists a worker as a listener, after it has executed LISTEN "stillwake.hint".
create or replace function stillwake.listen(p_worker text, p_pool text, p_span interval default '1 minute', p_presence bigint default null)
returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into stillwake.listeners (pool, worker, until, presence) values (p_pool, p_worker, stillwake.now() + p_span, p_presence)
  on conflict (pool, worker) do update set until = excluded.until, presence = excluded.presence
$$;

create or replace function stillwake.unlisten(p_worker text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from stillwake.listeners where worker = p_worker
$$;

-- At most one NOTIFY, and none without listeners: it takes a global lock at commit.
create or replace function stillwake.hint(p_pool text) returns void
language plpgsql as $$
begin
  if exists (select from stillwake.listeners l where l.pool = p_pool and l.until > stillwake.now()) then
    perform pg_notify('stillwake.hint', p_pool);
  end if;
end
$$;

-- Hints the worker of a running job that a cancel or pause was requested; it learns the details from its next
-- heartbeat.
create or replace function stillwake.hint_worker(p_worker text) returns void
language plpgsql as $$
begin
  if exists (select from stillwake.listeners l where l.worker = p_worker and l.until > stillwake.now()) then
    perform pg_notify('stillwake.hint', '@' || p_worker);
  end if;
end
$$;
