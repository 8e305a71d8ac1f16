// Mutants of sql/functions/reads/access.sql.
export const file = "sql/functions/reads/access.sql";

export const mutants = [
  {
    name: "a revoked token is accepted",
    killedBy: "test/server/tokens.test.ts",
    old: "t.hash = any (p_hashes) and t.revoked_at is null and (",
    new: "t.hash = any (p_hashes) and (",
  },
  {
    name: "an expired token is accepted",
    killedBy: "test/server/tokens.test.ts",
    old: " and (t.expires_at is null or t.expires_at > v_now)",
    new: "",
  },
];
