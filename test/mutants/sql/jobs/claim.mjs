// Mutants of sql/functions/jobs/claim.sql.
export const file = "sql/functions/jobs/claim.sql";
export const killedBy = "test/claim/claim.test.ts";

export const mutants = [
  {
    name: "a job whose back-off is over is behind the backlog",
    only: "keeps the position",
    old: "    perform stillwake.return_due(p_pool, 200, v_now);\n",
    new: "    null;\n",
  },
  {
    name: "a claim returns all jobs whose wait is over to their position",
    only: "bounded number",
    old: "stillwake.return_due(p_pool, 200, v_now)",
    new: "stillwake.return_due(p_pool, 100000, v_now)",
  },
  {
    name: "a claim with an old snapshot counts the running jobs of a capped pool",
    old: "perform stillwake.refuse_isolation('claim');",
    new: "null;",
  },
  {
    name: "a worker may serve a pool that does not exist",
    killedBy: "test/worker/pools.test.ts",
    only: "exists nowhere",
    old: "perform stillwake.refuse_unknown_pool(p_pool);\n  end if;\n  return query",
    new: "null;\n  end if;\n  return query",
  },
  {
    name: "a worker serves the pools of all pipelines",
    killedBy: "test/worker/pools.test.ts",
    only: "serves all pools of its pipelines",
    old: "where i.name = any (p_pipelines)\n  group",
    new: "where true\n  group",
  },
  {
    name: "the attempt is not counted at the claim",
    killedBy: "test/model/model.test.ts",
    old: "attempt = j.attempt + 1, worker",
    new: "attempt = j.attempt, worker",
  },
  {
    name: "a claim applies its limit in an IN subquery",
    only: "twenty concurrent workers",
    old: `    where j.id = any (v_ids)
`,
    new: `    where j.id in (
      select k.id from stillwake.live_jobs k
      where k.pool = p_pool and k.run_at <= v_now and k.lease_id is null and k.pipeline = any (p_pipelines) and (k.expires_at is null or k.expires_at > v_now)
      order by k.priority desc, k.run_at, k.id limit p_limit for update skip locked)
`,
  },
  {
    name: "a claim does not lock the jobs it selects",
    only: "twenty concurrent workers",
    old: `
      for update skip locked`,
    new: "",
  },
  {
    name: "a claim waits for a locked job",
    only: "the queue order",
    old: `
      for update skip locked`,
    new: `
      for update`,
  },
  {
    name: "a claim takes the newest job first",
    only: "the queue order",
    old: `order by j.run_at, j.id
`,
    new: `order by j.run_at desc, j.id
`,
  },
  {
    name: "a repeated claim leases other jobs",
    old: "if p_lease is not null and exists",
    new: "if false and exists",
  },
  {
    name: "the number of the last log batch survives its attempt",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "order_at = null, log_batch = 0,",
    new: "order_at = null,",
  },
  {
    name: "a job is claimed by code older than the code that started it",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "and p_versions[array_position(p_pipelines, p_pipeline)], true)",
    new: "and 2147483647, true)",
  },
  {
    name: "a pool cap is counted without a lock",
    killedBy: "test/flow/gates-interleave.test.ts",
    old: "perform pg_advisory_xact_lock(stillwake.cap_lock('pool ' || p_pool));",
    new: "",
  },
  {
    name: "settlements run before the schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "does not deadlock with a schedule",
    edits: [
      {
        old: `perform stillwake.run_schedules(10, p_pool);
  end if;
  select array_agg`,
        new: `null;
  end if;
  select array_agg`,
      },
      {
        old: "p_cursor, false,\n",
        new: "p_cursor, true,\n",
      },
    ],
  },
  {
    name: "a claim runs no schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "a claim of the pool",
    old: `perform stillwake.run_schedules(10, p_pool);
  end if;
  select array_agg`,
    new: `null;
  end if;
  select array_agg`,
  },
  {
    name: "a claim visits all schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "however many schedules there are",
    old: "if p_schedules and exists (select from stillwake.schedules s where s.pool = p_pool and s.due_at <= v_now) then",
    new: "if p_schedules and exists (select from stillwake.schedules s where s.updated_at <= v_now and s.due_at <= stillwake.now()) then",
  },
  {
    name: "a claim sends no hint to watchers",
    killedBy: "test/live/live.test.ts",
    only: "name watched jobs",
    old: `  perform stillwake.hint_watchers(v_ids);
`,
    new: "",
  },
  {
    name: "a retired machine still claims jobs",
    killedBy: "test/orchestrator/orchestrator.test.ts",
    only: "never stops a machine that has a job, and a retired machine gets none",
    old: "  if v_retired then",
    new: "  if false then",
  },
  {
    name: "a new budget period resumes nothing",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "next period",
    old: "if v_pool.resume_at <= v_now then",
    new: "if false then",
  },
];
