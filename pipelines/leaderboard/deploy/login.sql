-- The three logins of an installation, each with as little as it needs. Once as the owner of the database, after `stillwake migrate` and `server.js --migrate`;
-- to run it again is safe, and mends rights that were taken away.
--
--   leaderboard_server  the API: enqueues, watches, reads and writes the application's tables
--   leaderboard_worker  the keeper of each worker: claims jobs, keeps leases, settles. Its code is ours, and it sees no table
--   leaderboard_code    the pipelines' own code, which reads other people's repositories and GitHub's answers: writes counts and contributors and the
--                       checkpoint of its own attempt, and makes or removes no repository
--
-- They have no password yet, and cannot log in before they do. `\password leaderboard_server` in psql sets one without writing it into a log or a history.
do $$
declare
  v_missing text;
  v_login text;
begin
  select string_agg(n.name, ', ') into v_missing
  from unnest(array['stillwake_app', 'stillwake_worker', 'leaderboard_api', 'leaderboard_pipeline']) as n (name)
  where to_regrole(n.name) is null;
  if v_missing is not null then
    raise exception 'The roles % are not there', v_missing
      using hint = 'Run `stillwake migrate` and `node pipelines/leaderboard/dist/server.js --migrate` as a login that may create roles';
  end if;
  foreach v_login in array array['leaderboard_server', 'leaderboard_worker', 'leaderboard_code'] loop
    if to_regrole(v_login) is null then
      execute format('create role %I login', v_login);
    end if;
    execute format('grant connect on database %I to %I', current_database(), v_login);
  end loop;
end
$$;

grant stillwake_app, leaderboard_api to leaderboard_server;
grant stillwake_worker to leaderboard_worker;
grant stillwake_worker, leaderboard_pipeline to leaderboard_code;
