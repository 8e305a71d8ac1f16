// Mutants of sql/functions/jobs/enqueue.sql.
export const file = "sql/functions/jobs/enqueue.sql";

export const mutants = [
  {
    name: "a known idempotency key creates a second job",
    killedBy: "test/model/model.test.ts",
    old: "select coalesce(k.job_id, i.id)",
    new: "select i.id",
  },
  {
    name: "an old id that is enqueued again creates a second job",
    killedBy: "test/claim/recovery.test.ts",
    old: "if p_ids is not null and not v_again then",
    new: "if false then",
  },
  {
    name: "a schedule stays in the old pool when its pipeline moves",
    killedBy: "test/flow/schedules.test.ts",
    only: "current pool of the pipeline",
    old: "if v_new.pool <> v_old.pool then",
    new: "if false then",
  },
  {
    name: "the database accepts plain values in sealed fields",
    killedBy: "test/security/sealed.test.ts",
    old: "if v_pipeline.sealed <> '{}' then",
    new: "if false then",
  },
  {
    name: "a key conflict returns the job of another tenant",
    killedBy: "test/server/access-others.test.ts",
    only: "keeps its key",
    old: "if p_options ->> 'bound_to' is not null then",
    new: "if false then",
  },
];
