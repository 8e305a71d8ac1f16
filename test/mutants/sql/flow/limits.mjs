// Mutants of sql/functions/flow/limits.sql.
export const file = "sql/functions/flow/limits.sql";
export const killedBy = "test/model/flow/flow.test.ts";

export const mutants = [
  {
    name: "the response of a call in flight hints no worker",
    killedBy: "test/flow/caps.test.ts",
    only: "calls in flight",
    old: "if v_full and granted = 0 or v_news",
    new: "if v_news",
  },
  {
    name: "a use of a limit counts from its grant, not from the call",
    edits: [
      {
        old: "v_span interval := p_limit.period + stillwake.grant_lifetime(p_limit.period);",
        new: "v_span interval := p_limit.period;",
      },
      {
        old: "v_span := v_limit.period + stillwake.grant_lifetime(v_limit.period);",
        new: "v_span := v_limit.period;",
      },
    ],
  },
  {
    name: "a lost lease keeps its calls in flight",
    old: "where h.name = p_limit.name and exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);",
    new: "where h.name = p_limit.name;",
  },
  {
    name: "all jobs are let through while the window of a limit is unknown",
    old: "free := least(free, 1 - v_out);",
    new: "free := least(free, 100 - v_out);",
  },
  {
    name: "unused uses are subtracted from the newest bin",
    old: "v_index := array_position(v_limit.bin_ends, p_bin);",
    new: "v_index := nullif(cardinality(v_limit.bin_ends), 0);",
  },
  {
    name: "the last reported remaining count wins, not the lowest",
    old: "p_limit.remaining := least(p_limit.remaining, v_left);",
    new: "p_limit.remaining := v_left;",
  },
  {
    name: "calls in flight are not subtracted from the remaining count",
    old: "free := least(free, p_limit.remaining - v_out);",
    new: "free := least(free, p_limit.remaining);",
  },
  {
    name: "a value that a response does not report counts as a number",
    old: `case when p_observed ->> 'remaining' is not null
    then least((p_observed ->> 'remaining')::numeric, 2147483647)::integer end;`,
    new: "least((p_observed ->> 'remaining')::numeric, 2147483647)::integer;",
  },
  {
    name: "two concurrent callers both see the same free uses",
    killedBy: "test/flow/gates-interleave.test.ts",
    old: "where l.name = p_limit for no key update;",
    new: "where l.name = p_limit;",
  },
];
