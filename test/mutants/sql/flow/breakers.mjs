// Mutants of sql/functions/flow/breakers.sql.
export const file = "sql/functions/flow/breakers.sql";
export const killedBy = "test/model/flow/flow.test.ts";

export const mutants = [
  {
    name: "the end of a probe without a result hints no worker",
    killedBy: "test/flow/caps.test.ts",
    only: "starts the next probe",
    old: "where b.probe_job = any (p_jobs) and b.resume_at <= stillwake.now();",
    new: "where false;",
  },
  {
    name: "several probes run at once",
    old: `select p_breaker.probe_job is not null and exists (select from stillwake.live_jobs j
    where j.id = p_breaker.probe_job and j.lease_id = p_breaker.probe_lease)`,
    new: "select false",
  },
  {
    name: "the pause of a breaker does not grow",
    old: "v_breaker.pause_initial * power(v_breaker.growth::double precision, least(v_breaker.probes, 60))",
    new: "v_breaker.pause_initial",
  },
  {
    name: "a success does not close a breaker",
    old: `    else
      perform stillwake.reset_breaker(v_breaker);`,
    new: `    else
      null;`,
  },
];
