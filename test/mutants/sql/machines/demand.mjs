// Mutants of sql/functions/machines/demand.sql.
export const file = "sql/functions/machines/demand.sql";

export const mutants = [
  {
    name: "next_due ignores schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "return the next occurrence",
    old: "where s.due_at is not null and p.paused_at is null",
    new: "where s.due_at is null and p.paused_at is null",
  },
  {
    name: "next_due ignores the start of a budget period",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "next period",
    old: "(select min(p.resume_at) from stillwake.pools p where p.resume_at is not null and",
    new: "(select min(p.resume_at) from stillwake.pools p where false and",
  },
];
