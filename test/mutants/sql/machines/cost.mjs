// Mutants of sql/functions/machines/cost.sql.
export const file = "sql/functions/machines/cost.sql";
export const killedBy = "test/orchestrator/cost.test.ts";

export const mutants = [
  {
    name: "attempts are charged equally, not by their duration",
    old: "case when max(t.work) > 0 then sum(a.seconds) / max(t.work) else",
    new: "case when false then 1 else",
  },
  {
    name: "the minimum billing time is ignored",
    old: "select greatest(extract(epoch from p_until - v_from), p_life.least_seconds) as paid,",
    new: "select extract(epoch from p_until - v_from) as paid,",
  },
  {
    name: "a machine life that spans midnight is charged in full on each day",
    only: "midnight",
    old: "s.idle_share * d.part, s.amount * d.part from shares s",
    new: "s.idle_share * d.part, s.amount from shares s",
  },
  {
    name: "deleting an attempt raises the cost of the other jobs of its machine",
    only: "has the same cost after the attempts of other jobs were deleted",
    old: `    if provisional then
`,
    new: `    if true then
`,
  },
  {
    name: "running machines are not counted in a budget",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "pauses the pool once it is exhausted, also by running machines, and running jobs finish",
    old: "where l.ended_at is null and l.price > 0 and",
    new: "where false and",
  },
];
