-- Creates the three logins of an example system, each with the least rights it needs. Run it once as the owner of the
-- database, after `stillwake migrate` and the system's `server.js --migrate`. Running it again restores missing rights.
--
--   psql postgres://owner… -v system=extraction -f pipelines/kit/deploy/login.sql
--
--   <system>_server  API server: enqueues and watches jobs, reads and writes the system's tables
--   <system>_worker  keeper of each worker: claims jobs, keeps leases, settles. It can read no table
--   <system>_code    pipeline code, which processes untrusted repositories: writes results and the checkpoints of its
--                    own attempt, with the rights that the system's tables.sql grants to <system>_pipeline
--
-- The logins have no password and cannot log in until one is set. `\password extraction_server` in psql sets one
-- without writing it to a log or to the shell history.
\set ON_ERROR_STOP on
\if :{?system}
\else
  \warn 'No system is named. Use: psql -v system=extraction -f login.sql'
\endif
set login.system = :'system';

do $$
declare
  v_system text := current_setting('login.system');
  v_missing text;
  v_login text;
begin
  select string_agg(n.name, ', ') into v_missing
  from unnest(array['stillwake_app', 'stillwake_worker', v_system || '_api', v_system || '_pipeline']) as n (name)
  where to_regrole(n.name) is null;
  if v_missing is not null then
    raise exception 'Missing roles: %', v_missing
      using hint = format(
        'Run `stillwake migrate` and `node pipelines/%s/dist/server.js --migrate` with a login that may create roles', v_system);
  end if;
  foreach v_login in array array[v_system || '_server', v_system || '_worker', v_system || '_code'] loop
    if to_regrole(v_login) is null then
      execute format('create role %I login', v_login);
    end if;
    execute format('grant connect on database %I to %I', current_database(), v_login);
  end loop;
  execute format('grant stillwake_app, %I to %I', v_system || '_api', v_system || '_server');
  execute format('grant stillwake_worker to %I', v_system || '_worker');
  execute format('grant stillwake_worker, %I to %I', v_system || '_pipeline', v_system || '_code');
end
$$;
