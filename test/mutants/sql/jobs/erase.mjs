// Mutants of sql/functions/jobs/erase.sql.
export const file = "sql/functions/jobs/erase.sql";

export const mutants = [
  {
    name: "the rows of a tenant are erased before its objects",
    killedBy: "test/security/erase-tenant.test.ts",
    old: "if objects <> '{}' then",
    new: "if false then",
  },
  {
    name: "the webhooks of an erased tenant are kept",
    killedBy: "test/security/erase-tenant.test.ts",
    old: `    delete from stillwake.webhooks w where w.job_id = any (v_ids);
`,
    new: "",
  },
  {
    name: "erasure keeps the tenant's cost sums",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "removes its name from costs, sums and budgets, and keeps the pool's sum",
    old: "delete from stillwake.spending s where s.scope = 'tenant' and s.name = p_tenant;",
    new: "",
  },
];
