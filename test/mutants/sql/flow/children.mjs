// Mutants of sql/functions/flow/children.sql.
export const file = "sql/functions/flow/children.sql";
export const killedBy = "test/flow/children-interleave.test.ts";

export const mutants = [
  {
    name: "a parent waits without checking its children first",
    only: "is queued or continues: complete, complete",
    old: "return found and not stillwake.spawn_is_over(v_spawn);",
    new: "return true;",
  },
  {
    name: "a parent checks its children without a lock before it waits",
    only: "is queued or continues: complete, complete",
    old: `s.name = p_name for update;
  return found`,
    new: `s.name = p_name;
  return found`,
  },
  {
    name: "children of one part that end together count as one",
    killedBy: "test/model/children/children.test.ts",
    old: "set open = p.open - l.count,",
    new: "set open = p.open - 1,",
  },
  {
    name: "a part is counted from rows read before its lock",
    only: "is queued or continues: complete, complete",
    edits: [
      {
        old: "and o.part = e.part for update",
        new: "and o.part = e.part",
      },
      {
        old: "set open = p.open - l.count,",
        new: "set open = (select o.open from stillwake.spawn_parts o where o.job_id = l.job_id and o.name = l.name and o.part = l.part) - l.count,",
      },
    ],
  },
  {
    name: "the last child of a part does not update its spawn",
    only: "is queued by the last part",
    old: "where c.closed > 0 or p_state <> 'completed'",
    new: "where c.closed > 1 or p_state <> 'completed'",
  },
  {
    name: "a resumed attempt spawns its children again",
    killedBy: "test/model/children/children.test.ts",
    edits: [
      {
        old: "if p_from < v_spawn.spawned or v_count = 0 then",
        new: "if v_count = 0 then",
      },
      {
        old: "from generate_series(p_from, p_from + v_count - 1, 128) n;",
        new: "from generate_series(p_from, p_from + v_count - 1, 128) n on conflict do nothing;",
      },
    ],
  },
  {
    name: "an attempt that lost its lease can spawn children",
    killedBy: "test/model/children/children.test.ts",
    old: "elsif not stillwake.holds_lease(p_job, p_epoch, p_lease) then",
    new: "elsif false then",
  },
  {
    name: "running children are not cancelled with their parent",
    killedBy: "test/model/children/children.test.ts",
    edits: [
      {
        old: "perform stillwake.cancel(v_id, p_reason, p_by);",
        new: "null;",
      },
      {
        old: "exit when not exists (select from stillwake.live_jobs j where j.parent_id = p_job and j.cancel is null);",
        new: "exit;",
      },
    ],
  },
  {
    name: "a child that is claimed while its parent is cancelled continues",
    only: "while a child is being claimed",
    old: "exit when not exists (select from stillwake.live_jobs j where j.parent_id = p_job and j.cancel is null);",
    new: "exit;",
  },
  {
    name: "a failed child does not wake a parent that requires it",
    only: "is queued by the first failed child",
    old: " or p_spawn.on_error = 'fail' and p_spawn.failed",
    new: "",
  },
  {
    name: "a retried child hides a failure in another part",
    only: "while a child of another part fails",
    old: "(v_one.closed > 0 or s.on_error = 'fail')",
    new: "(v_one.closed > 0 or s.on_error = 'fail' and not s.failed)",
  },
  {
    name: "retrying a child reads the other parts before it locks the spawn",
    only: "while a child of another part fails",
    old: "perform from stillwake.spawns s where s.job_id = v_one.job_id and s.name = v_one.name for update;",
    new: "",
  },
  {
    name: "a resumed parent goes to the end of the queue order when it is woken",
    only: "keeps its queue position",
    edits: [
      {
        old: "set run_at = least(j.run_at, coalesce(j.order_at, stillwake.now())),",
        new: "set run_at = coalesce(j.order_at, stillwake.now()),",
      },
      {
        file: "sql/functions/flow/events.sql",
        old: "set run_at = least(j.run_at, coalesce(j.order_at, stillwake.now())),",
        new: "set run_at = coalesce(j.order_at, stillwake.now()),",
      },
    ],
  },
  {
    name: "a signal sent between the check and the wait is missed",
    only: "receives a signal sent while it goes to sleep",
    old: "return not exists (select from stillwake.signals s where s.job_id = p_job and s.name = p_name and s.taken_by is null);",
    new: "return true;",
  },
  {
    name: "a tenant can count the children of other tenants' jobs",
    killedBy: "test/security/row-level-security.test.ts",
    only: "may call six functions",
    old: "and (stillwake.bound_tenant() is null",
    new: "and (true or stillwake.bound_tenant() is null",
  },
  {
    name: "a spawned job joins the job that has its key by path",
    killedBy: "test/enqueue/labels.test.ts",
    only: "cannot wait for a key that its own job has",
    old: "  if not v_options ? 'keys' then",
    new: "  if false then",
  },
];
