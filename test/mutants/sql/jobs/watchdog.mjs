// Mutants of sql/functions/jobs/watchdog.sql.
export const file = "sql/functions/jobs/watchdog.sql";

export const mutants = [
  {
    name: "the watchdog runs no schedules",
    killedBy: "test/flow/schedules.test.ts",
    only: "the watchdog fires occurrences of every pool",
    old: "from stillwake.run_schedules(1000) r",
    new: "from stillwake.run_schedules(0) r",
  },
  {
    name: "every process tends the jobs every minute",
    killedBy: "test/db/housekeeping.test.ts",
    only: "does it once for all",
    old: "    if not found then\n      return;\n    end if;\n    update stillwake.housekeeping",
    new: "    update stillwake.housekeeping",
  },
  {
    name: "a worker recovers its own leases while it tends the jobs",
    killedBy: "test/db/housekeeping.test.ts",
    only: "does not recover its own leases",
    old: "stillwake.recover(p_limit => 1000, p_except => p_held)",
    new: "stillwake.recover(p_limit => 1000)",
  },
  {
    name: "one call of the watchdog deletes one portion",
    killedBy: "test/db/housekeeping.test.ts",
    only: "that is called in SQL deletes more than one portion",
    old: "exit when v_done = 0 or stillwake.statement_ms() > v_limit_ms;",
    new: "exit when true;",
  },
];
