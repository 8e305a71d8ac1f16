// Mutants of sql/functions/flow/events.sql.
export const file = "sql/functions/flow/events.sql";
export const killedBy = "test/model/children/children.test.ts";

export const mutants = [
  {
    name: "one signal is taken by two steps",
    old: "where s.job_id = p_job and s.id = p_id and s.taken_by is null;",
    new: "where s.job_id = p_job and s.id = p_id;",
  },
  {
    name: "a timeout is counted from the last wait",
    old: `jsonb_build_array('wait', v_now + p_timeout)))
  on conflict do nothing;`,
    new: "jsonb_build_array('wait', v_now + p_timeout))) on conflict (job_id, step) do update set output = excluded.output where checkpoints.output #>> '{$stillwake,0}' = 'wait';",
  },
  {
    name: "a signal with invalid data is offered again",
    old: "set taken_by = case when p_accepted then p_step else '' end",
    new: "set taken_by = case when p_accepted then p_step end",
  },
];
