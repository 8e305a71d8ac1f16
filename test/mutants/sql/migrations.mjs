// Mutants of sql/migrations.
export const mutants = [
  {
    name: "two reservations share an ordinal",
    killedBy: "test/orchestrator/orchestrator.test.ts",
    only: "each ordinal is taken once",
    edits: [
      {
        file: "sql/migrations/0010_machines.sql",
        old: "create unique index machine_lives_ordinal",
        new: "create index machine_lives_ordinal",
      },
      {
        file: "sql/functions/machines/machines.sql",
        old: "l.ended_at is null) >= p_max then",
        new: "l.ended_at is null) >= 1000 then",
      },
    ],
  },
];
