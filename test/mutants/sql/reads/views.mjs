// Mutants of sql/functions/reads/views.sql.
export const file = "sql/functions/reads/views.sql";
export const killedBy = "test/security/row-level-security.test.ts";

export const mutants = [
  {
    name: "the jobs view runs with the rights of its owner",
    only: "sees all its own rows, and no others",
    old: "create or replace view stillwake.jobs with (security_invoker = true) as",
    new: "create or replace view stillwake.jobs as",
  },
  {
    name: "the logs view runs with the rights of its owner",
    only: "sees all its own rows, and no others",
    old: "create or replace view stillwake.logs with (security_invoker = true) as",
    new: "create or replace view stillwake.logs as",
  },
  {
    name: "a tenant sees the reason of a breaker that other tenants' jobs opened",
    only: "sees that a breaker is open, but not the reason from other tenants",
    old: "case when stillwake.bound_tenant() is null then g.reason",
    new: "case when true then g.reason",
  },
];
