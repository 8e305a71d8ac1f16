// Mutants of sql/functions/machines/machines.sql.
export const file = "sql/functions/machines/machines.sql";
export const killedBy = "test/orchestrator/orchestrator.test.ts";

export const mutants = [
  {
    name: "a machine with a job may be retired",
    only: "never stops a machine that has a job, and a retired machine gets none",
    old: "if not found or exists (select from stillwake.leases s where s.worker = v_machine) then",
    new: "if not found then",
  },
  {
    name: "the jobs of a dead machine wait for their lease to expire",
    only: "retries the job of a dead machine on another one at once, with the exit reason in the attempt",
    old: "for v_lease in select * from stillwake.leases s where s.worker = v_life.machine",
    new: "for v_lease in select * from stillwake.leases s where s.worker = 'nobody'",
  },
  {
    name: "a copy of the database is taken for the original",
    only: "a copied database",
    old: "  fits := why is null;",
    new: "  fits := true;",
  },
  {
    name: "an adopted copy keeps the fleet id",
    only: "a copied database",
    old: "set id = case when p_same then f.id else left(md5(gen_random_uuid()::text), 8) end",
    new: "set id = f.id",
  },
  {
    name: "a leaving machine does not check for work",
    killedBy: "test/orchestrator/machine-calls.test.ts",
    old: `    return false;
  end if;
  update stillwake.machine_lives l set left_at`,
    new: `    null;
  end if;
  update stillwake.machine_lives l set left_at`,
  },
  {
    name: "a machine that never started is charged",
    killedBy: "test/orchestrator/cost.test.ts",
    only: "charges nothing for a machine that never started",
    old: "if coalesce(p_started_at, v_life.started_at, v_life.registered_at) is not null then",
    new: "if v_life.id is not null then",
  },
];
