-- Who may do what. Four roles without login for each Stillwake, three of them to be granted to the logins of an installation:
--   stillwake_app     enqueues, watches, cancels, retries, pauses: calls the verbs and reads the views
--   stillwake_worker  claims, heartbeats, writes under its own leases, settles: calls the verbs, reads nothing it has not claimed
--   stillwake_reader  reads the views
--   stillwake_tenant  reads what belongs to one tenant; taken by the server for a statement, never granted to a login. See policies.sql
-- The owner is whoever migrates. Nobody but the functions, which run as the owner, writes to a table.

do $$
declare
  v_role text;
begin
  foreach v_role in array array['stillwake_app', 'stillwake_worker', 'stillwake_reader', 'stillwake_tenant'] loop
    begin
      if to_regrole(v_role) is null then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise notice 'Role % was not created: % may not create roles. The owner can do everything; doctor says more.', v_role, current_user;
    end;
  end loop;
end
$$;

revoke all on schema stillwake from public;
revoke all on all tables in schema stillwake from public;
revoke all on all functions in schema stillwake from public;

do $$
declare
  v_verb oid;
begin
  if to_regrole('stillwake_app') is null then
    return;
  end if;
  grant usage on schema stillwake to stillwake_app, stillwake_worker, stillwake_reader;
  grant select on stillwake.jobs, stillwake.attempts, stillwake.logs, stillwake.events, stillwake.checkpoints, stillwake.artifacts, stillwake.pipelines, stillwake.pools,
    stillwake.limits, stillwake.tenants, stillwake.schedules, stillwake.webhook_endpoints, stillwake.webhooks, stillwake.deliveries, stillwake.wanted_workers to stillwake_app, stillwake_reader;
  grant select on stillwake.access_tokens, stillwake.audit to stillwake_app;
  -- Not the lease of the attempt that probes.
  revoke select on stillwake.breakers from stillwake_app, stillwake_reader;
  grant select (name, threshold, pause_initial, growth, pause_max, failures, opened_at, resume_at, probes, reason, opened_by, probe_job, updated_at) on stillwake.breakers to stillwake_app, stillwake_reader;
  for v_verb in select p.oid from pg_proc p where p.pronamespace = 'stillwake'::regnamespace
    and p.proname in ('register_pipeline', 'enqueue', 'enqueue_many', 'cancel', 'retry', 'pause', 'resume', 'pause_pool', 'resume_pool', 'cap_pool', 'set_weight', 'set_schedule', 'remove_schedule', 'pause_schedule', 'resume_schedule', 'run_schedules', 'upcoming',
      'register_limit', 'reset_limit', 'register_breaker', 'open_breaker', 'close_breaker', 'shut_gates', 'limit_budgets', 'watchdog', 'demand', 'next_due', 'now', 'schema_state', 'set_endpoint', 'rotate_secret', 'disable_endpoint', 'enable_endpoint', 'resend_webhook', 'webhooks_due', 'save_checkpoint', 'save_place', 'signal', 'children', 'erase_tenant', 'watch', 'unwatch', 'read_feeds', 'create_token', 'check_token', 'revoke_token', 'begin_act', 'end_act', 'machines', 'machine_counts', 'live_counts', 'ended_counts',
      'fleet', 'adopt_fleet', 'set_machines', 'look', 'reserve_machine', 'machine_started', 'machine_arrived', 'machine_leaves', 'retire_machine', 'machine_ended', 'report_trouble', 'costs', 'job_cost', 'set_budget', 'budget_state')
  loop
    execute format('grant execute on function %s to stillwake_app', v_verb::regprocedure);
  end loop;
  for v_verb in select p.oid from pg_proc p where p.pronamespace = 'stillwake'::regnamespace
    and p.proname in ('register_pipeline', 'claim', 'settle_and_claim', 'heartbeat', 'save_checkpoints', 'save_checkpoint', 'load_checkpoints', 'adopt', 'append_logs', 'progress', 'save_artifact',
      'load_artifacts', 'spawn', 'spawn_state', 'load_children', 'look_for_signal', 'take_signal', 'save_place', 'be_present', 'recover_absent', 'settle', 'claim_webhooks', 'settle_webhooks', 'webhooks_due', 'register_limit', 'use_limit', 'register_breaker', 'ask_breaker', 'tell_breaker',
      'complete', 'fail', 'release', 'recover', 'expire', 'tend_schedules', 'watchdog', 'demand', 'next_due', 'listen', 'unlisten', 'machine_arrived', 'machine_leaves', 'now', 'schema_state')
  loop
    execute format('grant execute on function %s to stillwake_worker', v_verb::regprocedure);
  end loop;
  for v_verb in select p.oid from pg_proc p where p.pronamespace = 'stillwake'::regnamespace and p.proname in ('demand', 'next_due', 'upcoming', 'webhooks_due', 'now', 'schema_state', 'shut_gates', 'limit_budgets', 'children', 'watch', 'unwatch', 'read_feeds', 'machines', 'machine_counts', 'live_counts', 'ended_counts', 'costs', 'job_cost', 'budget_state') loop
    execute format('grant execute on function %s to stillwake_reader', v_verb::regprocedure);
  end loop;
end
$$;
