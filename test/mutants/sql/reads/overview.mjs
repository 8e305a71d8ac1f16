// Mutants of sql/functions/reads/overview.sql.
export const file = "sql/functions/reads/overview.sql";

export const mutants = [
  {
    name: "a killed worker is listed as idle",
    killedBy: "test/worker/worker-death.test.ts",
    only: "is listed as lost as soon as its session has ended",
    old: "      when a.lost then 'lost' when a.running > 0",
    new: "      when a.running > 0",
  },
];
