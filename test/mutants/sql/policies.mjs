// Mutants of sql/policies.sql.
export const file = "sql/policies.sql";

export const mutants = [
  {
    name: "a tenant sees the jobs of all tenants",
    killedBy: "test/security/row-level-security.test.ts",
    only: "sees all its own rows, and no others",
    old: "'tenant = ' || v_mine from",
    new: "'true' from",
  },
  {
    name: "a tenant sees the rows of other tenants' jobs",
    killedBy: "test/security/row-level-security.test.ts",
    only: "sees all its own rows, and no others",
    old: "limit 1)) = %2$s'",
    new: "limit 1)) = %2$s or true'",
  },
];
