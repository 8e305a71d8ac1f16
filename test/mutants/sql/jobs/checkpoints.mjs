// Mutants of sql/functions/jobs/checkpoints.sql.
export const file = "sql/functions/jobs/checkpoints.sql";
export const killedBy = "test/model/children/children.test.ts";

export const mutants = [
  {
    name: "checkpoints are not fenced",
    killedBy: "test/model/model.test.ts",
    old: `where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)
    from unnest`,
    new: `where j.id = c.job and j.lease_id is not null)
    from unnest`,
  },
  {
    name: "a checkpoint does not hold the lease lock until it commits",
    killedBy: "test/claim/interleave.test.ts",
    old: "where l.id = any (p_leases) order by l.id for no key update;",
    new: "where l.id = any (p_leases) order by l.id;",
  },
  {
    name: "a late checkpoint is refused although the job was not claimed again",
    killedBy: "test/model/model.test.ts",
    old: `where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)
    from unnest`,
    new: `join stillwake.leases l on l.id = j.lease_id and l.until >= v_now where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)
    from unnest`,
  },
  {
    name: "a checkpoint is overwritten",
    killedBy: "test/model/model.test.ts",
    old: "where checkpoints.failed and excluded.failed is null",
    new: "where excluded.failed is null",
  },
  {
    name: "the lines of a step are not stored with its checkpoint",
    killedBy: "test/claim/worker-calls.test.ts",
    only: "stores them once",
    old: "perform stillwake.append_logs(p_lines);",
    new: "null;",
  },
  {
    name: "an attempt that was replaced can record an artifact",
    killedBy: "test/claim/worker-calls.test.ts",
    old: `if not stillwake.holds_lease(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  insert into stillwake.artifacts`,
    new: "  insert into stillwake.artifacts",
  },
  {
    name: "a step in the user's transaction is saved twice",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "if v_result = 'kept' then",
    new: "if false then",
  },
  {
    name: "only the last batch of items is remembered",
    old: "v_done := v_done + int8multirange(int8range(p_from, p_to));",
    new: "v_done := int8multirange(int8range(p_from, p_to));",
  },
  {
    name: "finished items are processed again",
    old: "or p_to > p_from and v_done && int8range(p_from, p_to) then",
    new: " then",
  },
  {
    name: "an attempt that lost its lease can save a position",
    old: "perform stillwake.fence_transaction(p_job, p_epoch, p_lease);\n  v_now",
    new: "v_now",
  },
  {
    name: "the cursor of an item loses its empty fields",
    old: "'lasts', v_lasts)",
    new: "'lasts', jsonb_strip_nulls(v_lasts))",
  },
  {
    name: "the value of a list is not saved with its position",
    killedBy: "test/attempt/each-reduce.test.ts",
    only: "keeps its value when the job waits",
    old: "value = coalesce(p_value, c.value),",
    new: "",
  },
  {
    name: "a position without a value removes the saved value",
    killedBy: "test/attempt/each-reduce.test.ts",
    only: "passes no value",
    old: "value = coalesce(p_value, c.value),",
    new: "value = p_value,",
  },
  {
    name: "a later attempt does not get the value of a list",
    killedBy: "test/attempt/each-reduce.test.ts",
    only: "keeps its value when the job waits",
    old: "case when c.value is null then c.output else jsonb_set(c.output, '{$stillwake,1,value}', c.value) end",
    new: "c.output",
  },
  {
    name: "the record that an optional step failed keeps the result of new code from being saved",
    killedBy: "test/attempt/replay.test.ts",
    only: "a critical step",
    old: "where checkpoints.failed and excluded.failed is null",
    new: "where false",
  },
];
