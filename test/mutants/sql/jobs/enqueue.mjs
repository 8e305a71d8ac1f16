// Mutants of sql/functions/jobs/enqueue.sql.
export const file = "sql/functions/jobs/enqueue.sql";

export const mutants = [
  {
    name: "a known idempotency key creates a second job",
    killedBy: "test/model/model.test.ts",
    old: "select coalesce((select k.job_id from",
    new: "select coalesce((select i.id from",
  },
  {
    name: "an old id that is enqueued again creates a second job",
    killedBy: "test/claim/recovery.test.ts",
    old: "if p_ids is not null and not v_again then",
    new: "if false then",
  },
  {
    name: "a schedule stays in the old pool when its pipeline moves",
    killedBy: "test/flow/schedules.test.ts",
    only: "current pool of the pipeline",
    old: "if v_new.pool <> v_old.pool then",
    new: "if false then",
  },
  {
    name: "the database accepts plain values in sealed fields",
    killedBy: "test/security/sealed.test.ts",
    old: "if v_pipeline.sealed <> '{}' then",
    new: "if false then",
  },
  {
    name: "an idempotency key returns the job of another tenant",
    killedBy: "test/server/tenants.test.ts",
    only: "is free, also for join",
    edits: [
      { old: "coalesce(i.tenant, ''), i.id", new: "'', i.id" },
      { old: "and k.key = i.key and k.tenant = coalesce(i.tenant, '')", new: "and k.key = i.key and k.tenant = ''" },
    ],
  },
  {
    name: "a call that is bound to a tenant stores a job of another",
    killedBy: "test/server/tenants.test.ts",
    only: "is not bound to",
    old: "  elsif exists (select from unnest(p_tenants) t where t is distinct from v_bound) then",
    new: "  elsif false then",
  },
  {
    name: "a key by path holds only where the client computes it",
    killedBy: "test/enqueue/labels.test.ts",
    only: "SQL: enqueue",
    old: "if v_pipeline.key_paths is not null and not p_options ?| '{key,keys}' then",
    new: "if false then",
  },
  {
    name: "a tenant by path replaces the option",
    killedBy: "test/enqueue/labels.test.ts",
    only: "is replaced by the option",
    old: "if v_pipeline.tenant_paths is not null and not p_options ?| '{tenant,tenants}' then",
    new: "if v_pipeline.tenant_paths is not null then",
  },
  {
    name: "a path that the contract no longer names stays in effect",
    killedBy: "test/enqueue/labels.test.ts",
    only: "no longer names it",
    old: "case when p_settings ? 'key' then stillwake.read_label_paths(p_settings, 'key') else v_old.key_paths end",
    new: "coalesce(stillwake.read_label_paths(p_settings, 'key'), v_old.key_paths)",
  },
];
