// Mutants of sql/functions/jobs/watchdog.sql.
export const file = "sql/functions/jobs/watchdog.sql";

export const mutants = [
  {
    name: "a weekly partition is dropped too early",
    killedBy: "test/db/prune.test.ts",
    old: "then p.week <= v_today",
    new: "then p.week - 14 <= v_today",
  },
  {
    name: "the watchdog runs no schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "the watchdog fires occurrences of every pool",
    old: "from stillwake.run_schedules(1000) r",
    new: "from stillwake.run_schedules(0) r",
  },
  {
    name: "children are dropped while their parent waits",
    killedBy: "test/db/prune.test.ts",
    old: "and not stillwake.keep_children_of_live(v_part.name, 10000)",
    new: "and false",
  },
];
