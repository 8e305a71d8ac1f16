// Mutants of sql/functions/jobs/keys.sql.
export const file = "sql/functions/jobs/keys.sql";
export const killedBy = "test/flow/keys-interleave.test.ts";

export const mutants = [
  {
    name: "ending a job does not take the lock of its key",
    only: "none waits",
    old: "perform case when l.shared then pg_advisory_xact_lock_shared(l.lock) else pg_advisory_xact_lock(l.lock) end from (",
    new: "perform l.lock from (",
  },
  {
    name: "a job that starts waiting for its key does not check again at commit",
    only: "none waits",
    old: "perform stillwake.fill_key_slots(new.pipeline, new.key);",
    new: "",
  },
  {
    name: "one taken slot of a key counts for all slots",
    only: "both free",
    old: "v_taken := v_slot;",
    new: "exit;",
  },
  {
    name: "all jobs waiting for a key are admitted, whatever the limit",
    killedBy: "test/model/keys.test.ts",
    old: "v_max   integer := (select key_limit from stillwake.pipelines where name = p_pipeline);",
    new: "v_max   integer := 1000;",
  },
  {
    name: "the job that came last is admitted to its key first",
    killedBy: "test/model/keys.test.ts",
    old: "order by j.order_at, j.id limit cardinality(f.slots) for update skip locked",
    new: "order by j.order_at desc, j.id desc limit cardinality(f.slots) for update skip locked",
  },
  {
    name: "a key conflict replaces the job of another tenant",
    killedBy: "test/server/access-others.test.ts",
    only: "keeps its key",
    old: "if p_row.tenant is not null then",
    new: "if false then",
  },
  {
    name: "a key conflict error names the job of another tenant",
    killedBy: "test/server/access-others.test.ts",
    only: "keeps its key",
    old: "if p_row.tenant is not null and v_one.id is not null then",
    new: "if false then",
  },
];
