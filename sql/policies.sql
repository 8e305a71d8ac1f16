-- Which rows and columns each role can read. Applied after grants.sql, which creates the roles.
--
--   stillwake_app, stillwake_reader  all rows
--   stillwake_tenant                 the rows of the tenant in the setting stillwake.tenant; none when it is empty
--   worker and all others            none: workers receive what they need from functions
--
-- The server reads for a tenant in a transaction that first sets stillwake.tenant and the role stillwake_tenant, both
-- locally. Partitions have no grants: they are read through their parents, whose policies apply.

-- The columns that the views show. Not the id of a lease, which is the fence, nor columns that only functions need.
do $$
declare
  v_job      text := 'id, pipeline, pool, state, priority, run_at, created_at, started_at, claimed_at, expires_at, attempt, max_attempts, '
    || 'crashes, epoch, worker, key, tenant, idempotency_key, input, failure, cancel, progress, seq, version, parent_id, spawn, child_no, '
    || 'origin';
  v_roles    text := 'stillwake_app, stillwake_reader, stillwake_tenant';
  v_function oid;
begin
  if to_regrole('stillwake_tenant') is null or to_regrole('stillwake_app') is null then
    return;
  end if;
  execute format('grant select (%s, waiting_for, awaits, pause) on stillwake.live_jobs to %s', v_job, v_roles);
  execute format('grant select (%s, ended_at, output, missing, outcome) on stillwake.ended_jobs to %s', v_job, v_roles);
  execute format('grant select (job_id, epoch, attempt, worker, claimed_at, ended_at, outcome, failure) on stillwake.ended_attempts to %s',
    v_roles);
  execute format('grant select on stillwake.feed to %s', v_roles);
  grant usage on schema stillwake to stillwake_tenant;
  grant select on stillwake.jobs, stillwake.attempts, stillwake.logs, stillwake.events, stillwake.artifacts to stillwake_tenant;
  -- When a step was saved, but not its output, which is internal to the pipeline.
  grant select (job_id, step, epoch, started_at, saved_at, failed) on stillwake.checkpoints to stillwake_tenant;
  for v_function in select p.oid from pg_proc p
    where p.pronamespace = 'stillwake'::regnamespace
    and p.proname in ('now', 'statement_time', 'schema_state', 'children', 'visible_gates', 'visible_holds') loop
    execute format('grant execute on function %s to %s', v_function::regprocedure, v_roles);
  end loop;
end
$$;

-- Creates missing policies only: replacing one would lock its table. A release that changes a policy drops the old one
-- in a migration.
do $$
declare
  v_mine   text := 'nullif(current_setting(''stillwake.tenant'', true), '''')';
  v_policy record;
begin
  if to_regrole('stillwake_tenant') is null or to_regrole('stillwake_app') is null then
    return;
  end if;
  for v_policy in
    select t.name as relation, 'installation' as policy, 'stillwake_app, stillwake_reader' as roles, 'true' as rows
    from unnest(array['live_jobs', 'ended_jobs', 'ended_attempts', 'checkpoints', 'feed', 'artifacts', 'webhooks', 'deliveries',
      'audit']) t (name)
    union all
    select t.name, 'tenant', 'stillwake_tenant', 'tenant = ' || v_mine from unnest(array['live_jobs', 'ended_jobs']) t (name)
    union all
    -- Not by EXISTS: the planner would first read all jobs of the tenant into a hash. These are two lookups per row.
    select t.name, 'tenant', 'stillwake_tenant',
      format('coalesce((select j.tenant from stillwake.live_jobs j where j.id = %1$I.job_id), '
        || '(select e.tenant from stillwake.ended_jobs e where e.id = %1$I.job_id limit 1)) = %2$s', t.name, v_mine)
    from unnest(array['ended_attempts', 'checkpoints', 'feed', 'artifacts']) t (name)
  loop
    continue when exists (select from pg_policy p
      where p.polrelid = format('stillwake.%I', v_policy.relation)::regclass and p.polname = v_policy.policy);
    execute format('create policy %I on stillwake.%I for select to %s using (%s)', v_policy.policy, v_policy.relation, v_policy.roles,
      v_policy.rows);
  end loop;
end
$$;

-- The owner, and every login of the app role, may switch to the tenant role.
do $$
declare
  v_who text;
begin
  if to_regrole('stillwake_tenant') is null or to_regrole('stillwake_app') is null then
    return;
  end if;
  foreach v_who in array array[current_user, 'stillwake_app'] loop
    begin
      if current_setting('server_version_num')::integer < 160000 then
        if not pg_has_role(v_who, 'stillwake_tenant', 'member') then
          execute format('grant stillwake_tenant to %I', v_who);
        end if;
      elsif not pg_has_role(v_who, 'stillwake_tenant', 'set') then
        execute format('grant stillwake_tenant to %I with inherit false, set true', v_who);
      end if;
    exception
      when unique_violation then null;
      when insufficient_privilege then
        raise notice '% may not grant stillwake_tenant to %, which therefore cannot read for one tenant; run stillwake doctor.',
          current_user, v_who;
    end;
  end loop;
end
$$;
