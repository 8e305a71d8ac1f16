-- Roles and grants. Four roles without login per Stillwake; an installation grants three of them to its logins:
--   stillwake_app     enqueues, watches, cancels, retries, pauses: calls functions and reads the views
--   stillwake_worker  claims, heartbeats, writes under its leases, settles: calls functions, reads only claimed jobs
--   stillwake_reader  reads the views
--   stillwake_tenant  reads the rows of one tenant; the server switches to it per statement, it is not granted to logins
-- The owner is the user that migrates. Only functions, which run as the owner, write to tables. See also policies.sql.

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
        raise notice 'Role % was not created: % may not create roles. Only the owner can use Stillwake; run stillwake doctor.',
          v_role, current_user;
    end;
  end loop;
end
$$;

revoke all on schema stillwake from public;
revoke all on all tables in schema stillwake from public;
revoke all on all functions in schema stillwake from public;

do $$
declare
  v_grant    record;
  v_function oid;
begin
  if to_regrole('stillwake_app') is null then
    return;
  end if;
  grant usage on schema stillwake to stillwake_app, stillwake_worker, stillwake_reader;
  grant select on stillwake.jobs, stillwake.attempts, stillwake.logs, stillwake.events, stillwake.checkpoints, stillwake.artifacts,
    stillwake.pipelines, stillwake.pools, stillwake.limits, stillwake.tenants, stillwake.schedules, stillwake.webhook_endpoints,
    stillwake.webhooks, stillwake.deliveries, stillwake.wanted_workers to stillwake_app, stillwake_reader;
  grant select on stillwake.access_tokens, stillwake.audit to stillwake_app;
  -- Without probe_lease, which is part of the fence.
  revoke select on stillwake.breakers from stillwake_app, stillwake_reader;
  grant select (name, threshold, pause_initial, growth, pause_max, failures, opened_at, resume_at, probes, reason, opened_by, probe_job,
    updated_at) on stillwake.breakers to stillwake_app, stillwake_reader;
  for v_grant in
    select 'stillwake_app' as grantee, array[
      'register_pipeline', 'enqueue', 'enqueue_many', 'cancel', 'retry', 'pause', 'resume', 'signal', 'children',
      'erase_tenant', 'save_checkpoint', 'save_position', 'recover_absent', 'pause_pool', 'resume_pool', 'cap_pool', 'set_weight',
      'demand', 'next_due', 'watchdog', 'tend_jobs', 'housekeep', 'housekeeping_due', 'housekeeping_done', 'make_partitions', 'now',
      'schema_state', 'database_identity', 'set_schedule', 'remove_schedule', 'pause_schedule',
      'resume_schedule', 'run_schedules', 'upcoming', 'register_limit', 'reset_limit', 'limit_quotas',
      'register_breaker', 'open_breaker', 'close_breaker', 'closed_gates', 'set_endpoint', 'rotate_secret',
      'disable_endpoint', 'enable_endpoint', 'resend_webhook', 'webhooks_due', 'watch', 'unwatch', 'read_feeds',
      'create_token', 'check_tokens', 'revoke_token', 'begin_audit_entry', 'finish_audit_entry', 'machines',
      'machine_counts', 'live_counts', 'ended_counts', 'costs', 'job_cost', 'set_budget', 'budget_state', 'fleet',
      'adopt_fleet', 'set_machines', 'orchestrator_snapshot', 'reserve_machine', 'machine_started', 'machine_registered',
      'machine_leaves', 'retire_machine', 'machine_ended', 'report_provider_error'
    ] as functions
    union all
    select 'stillwake_worker', array[
      'register_pipeline', 'pipeline_pools', 'claim', 'settle_and_claim', 'heartbeat', 'settle', 'complete', 'fail', 'release', 'recover',
      'recover_absent', 'expire', 'hold_presence', 'listen', 'unlisten', 'save_checkpoints', 'save_checkpoint',
      'load_checkpoints', 'save_position', 'adopt', 'append_logs', 'progress', 'save_artifact', 'load_artifacts',
      'spawn', 'spawn_state', 'load_children', 'find_signal', 'take_signal', 'run_due_schedules', 'claim_webhooks',
      'settle_webhooks', 'webhooks_due', 'register_limit', 'use_limit', 'register_breaker', 'check_breaker',
      'report_breaker_result', 'machine_registered', 'machine_leaves', 'watchdog', 'tend_jobs', 'housekeep',
      'housekeeping_due', 'housekeeping_done', 'make_partitions', 'demand', 'next_due', 'now', 'schema_state'
    ]
    union all
    select 'stillwake_reader', array[
      'demand', 'next_due', 'upcoming', 'webhooks_due', 'now', 'schema_state', 'closed_gates', 'limit_quotas',
      'children', 'watch', 'unwatch', 'read_feeds', 'machines', 'machine_counts', 'live_counts', 'ended_counts',
      'costs', 'job_cost', 'budget_state'
    ]
  loop
    for v_function in
      select p.oid from pg_proc p where p.pronamespace = 'stillwake'::regnamespace and p.proname = any (v_grant.functions)
    loop
      execute format('grant execute on function %s to %I', v_function::regprocedure, v_grant.grantee);
    end loop;
  end loop;
end
$$;
