// Mutants of sql/functions/base/clock.sql.
export const file = "sql/functions/base/clock.sql";

export const mutants = [
  {
    name: "the clock does not advance inside a transaction",
    killedBy: "test/claim/clock.test.ts",
    old: "select clock_timestamp()",
    new: "select now()",
  },
];
