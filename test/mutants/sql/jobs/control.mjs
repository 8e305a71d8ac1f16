// Mutants of sql/functions/jobs/control.sql.
export const file = "sql/functions/jobs/control.sql";

export const mutants = [
  {
    name: "a paused job whose time has come cannot be resumed",
    killedBy: "test/claim/claim.test.ts",
    only: "also after it was resumed by hand",
    old: "else coalesce(order_at, run_at) end",
    new: "else order_at end",
  },
  {
    name: "an open transaction of the application stops the other writes of a worker",
    killedBy: "test/worker/open-transaction.test.ts",
    only: "signal",
    old: "perform from stillwake.leases where id = v_lease for key share;",
    new: "perform from stillwake.leases where id = v_lease for update;",
  },
  {
    name: "cancelling a running job ends it at once",
    killedBy: "test/model/model.test.ts",
    old: `    perform stillwake.hint_worker(v_job.worker);
    return 'running';
  end if;
  return stillwake.end_job`,
    new: `  end if;
  return stillwake.end_job`,
  },
  {
    name: "a job that moves between tables during a call is reported as missing",
    killedBy: "test/claim/interleave.test.ts",
    only: "moves while",
    old: "if stillwake.job_exists(p_id) then",
    new: "if false then",
  },
  {
    name: "resuming a job does not check whether its key is free",
    killedBy: "test/model/keys.test.ts",
    old: `    if v_waits then
      perform stillwake.fill_key_slots(v_job.pipeline, v_job.key, v_job.tenant);
    end if;
`,
    new: "",
  },
  {
    name: "a retried job takes no key slot",
    killedBy: "test/model/keys.test.ts",
    edits: [
      {
        old: "  perform stillwake.fill_key_slots(k.pipeline, k.key, k.tenant) from (",
        new: "  perform from (",
      },
      {
        file: "sql/functions/jobs/keys.sql",
        old: "perform stillwake.fill_key_slots(new.pipeline, new.key, new.tenant);",
        new: "",
      },
    ],
  },
  {
    name: "a retried job creates no webhook",
    killedBy: "test/webhooks/webhooks.test.ts",
    only: "retried",
    old: "then o.version end, o.webhooks,",
    new: "then o.version end, null::jsonb,",
  },
  {
    name: "a retried child is not counted as open",
    killedBy: "test/model/children/children.test.ts",
    old: "if v_parents is not null then",
    new: "if false then",
  },
  {
    name: "a parent that restarts keeps its children",
    killedBy: "test/flow/children.test.ts",
    only: "from the start spawns new children",
    old: "perform stillwake.detach_children(i) from unnest(p_ids) i;",
    new: "",
  },
  {
    name: "the end of a budget period resumes a pool that an operator paused",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "never resumes a pool that an operator paused, before or after",
    old: `pause_reason = p_reason, resume_at = null
  where`,
    new: "pause_reason = p_reason where",
  },
];
