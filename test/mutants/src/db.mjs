// Mutants of src/db.
export const mutants = [
  {
    name: "a worker that exits stays listed as a listener",
    killedBy: "test/worker/listener.test.ts",
    only: "leaves no listener",
    file: "src/db/worker-presence.ts",
    old: "client.query(presenceStatements(schema).leave, [worker]),",
    new: 'client.query("select 1"),',
  },
  {
    name: "a tenant read does not switch to the tenant role",
    killedBy: "test/security/row-level-security.test.ts",
    only: "return the same as for an operator, restricted to the tenant's rows",
    file: "src/db/tenant-database.ts",
    old: "set_config('role', $3, true)",
    new: "set_config('application_name', $3, true)",
  },
  {
    name: "the tenant setting of a read stays on its connection",
    killedBy: "test/security/row-level-security.test.ts",
    only: "of two tenants on few connections",
    file: "src/db/tenant-database.ts",
    old: "set_config($1, $2, true), set_config('role', $3, true)",
    new: "set_config($1, $2, false), set_config('role', $3, false)",
  },
  {
    name: "a list ends where its scan limit was reached",
    killedBy: "test/server/lists.test.ts",
    only: "the cursor returns every job once",
    file: "src/db/calls/reads.ts",
    old: "return { rows, next: result[0]?.boundary ?? null };",
    new: "return { rows, next: null };",
  },
  {
    name: "a page skips the first job of the next page",
    killedBy: "test/server/lists.test.ts",
    only: "the cursor returns every job once",
    file: "src/db/calls/reads.ts",
    old: "next: rows[limit - 1]!.id",
    new: "next: rows[limit]!.id",
  },
];
