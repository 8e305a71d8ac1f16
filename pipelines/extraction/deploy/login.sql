-- The three logins of an installation, each with as little as it needs. Once as the owner of the database, after `stillwake migrate` and `server.js --migrate`;
-- to run it again is safe, and mends rights that were taken away.
--
--   extraction_server  the API with the orchestrator: enqueues, watches, reads and writes the application's tables
--   extraction_worker  the keeper of each machine: claims jobs, keeps leases, settles. Its code is ours, and it sees no table
--   extraction_code    the pipeline's own code, which handles other people's repositories: writes findings and the checkpoint of its own attempt, and reads
--                      neither credentials nor what belongs to whom
--
-- They have no password yet, and cannot log in before they do. `\password extraction_server` in psql sets one without writing it into a log or a history.
do $$
declare
  v_missing text;
  v_login text;
begin
  select string_agg(n.name, ', ') into v_missing
  from unnest(array['stillwake_app', 'stillwake_worker', 'extraction_api', 'extraction_pipeline']) as n (name)
  where to_regrole(n.name) is null;
  if v_missing is not null then
    raise exception 'The roles % are not there', v_missing
      using hint = 'Run `stillwake migrate` and `node pipelines/extraction/dist/server.js --migrate` as a login that may create roles';
  end if;
  foreach v_login in array array['extraction_server', 'extraction_worker', 'extraction_code'] loop
    if to_regrole(v_login) is null then
      execute format('create role %I login', v_login);
    end if;
    execute format('grant connect on database %I to %I', current_database(), v_login);
  end loop;
end
$$;

grant stillwake_app, extraction_api to extraction_server;
grant stillwake_worker to extraction_worker;
grant stillwake_worker, extraction_pipeline to extraction_code;
