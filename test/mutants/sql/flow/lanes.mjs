// Mutants of sql/functions/flow/lanes.sql.
export const file = "sql/functions/flow/lanes.sql";
export const killedBy = "test/flow/lanes.test.ts";

export const mutants = [
  {
    name: "assigning lanes locks jobs that wait for their key",
    killedBy: "test/flow/keys-interleave.test.ts",
    only: "assigns lanes",
    old: `j.pool = p_pool and j.lease_id is null and (j.key is null or j.key_slot is not null or j.state = 'paused')
      and j.lane is`,
    new: "j.pool = p_pool and j.lease_id is null and j.lane is",
  },
  {
    name: "jobs without a lane wait for the watchdog",
    killedBy: "test/claim/relane.test.ts",
    only: "while its pool gets lanes",
    old: "  perform stillwake.assign_lanes(p_pool, greatest(200, p_limit), v_now);\n",
    new: "",
  },
  {
    name: "a claim moves all jobs without a lane",
    killedBy: "test/claim/relane.test.ts",
    only: "a bounded portion",
    old: "stillwake.assign_lanes(p_pool, greatest(200, p_limit), v_now)",
    new: "stillwake.assign_lanes(p_pool, 1000000, v_now)",
  },
  {
    name: "jobs in the lane of a pipeline that lost its gates are skipped",
    killedBy: "test/claim/relane.test.ts",
    only: "loses its cap",
    old: "if v_gate_no is null and v_name <> all (v_plain) or",
    new: "if v_gate_no is null or",
  },
  {
    name: "jobs of gated pipelines in plain lanes are skipped",
    killedBy: "test/claim/relane.test.ts",
    only: "a worker of all pipelines",
    old: "case when v_name = '' then v_strays end,",
    new: "null,",
  },
  {
    name: "a worker without plain pipelines does not look for its jobs in plain lanes",
    killedBy: "test/claim/relane.test.ts",
    only: "a worker of that pipeline",
    old: "if cardinality(ids) < p_limit and v_plain = '{}' and v_strays <> '{}' then",
    new: "if false then",
  },
  {
    name: "claims do not go through the jobs of a pool whose gates have changed",
    killedBy: "test/claim/relane.test.ts",
    only: "lanes of tenants",
    old: "relane_after = case when laned then '00000000-0000-0000-0000-000000000000' end::uuid",
    new: "relane_after = null",
  },
  {
    name: "two concurrent claims both start a probe",
    killedBy: "test/flow/gates-interleave.test.ts",
    old: "order by b.name for no key update;",
    new: "order by b.name;",
  },
  {
    name: "jobs that need an open breaker are started",
    killedBy: "test/model/flow/flow.test.ts",
    old: "if p_pipeline.breakers <> '{}' then",
    new: "if false then",
  },
  {
    name: "a pipeline cap is counted without a lock",
    killedBy: "test/flow/gates-interleave.test.ts",
    old: "perform pg_advisory_xact_lock(stillwake.cap_lock(n)) from unnest(v_capped) n;",
    new: "",
  },
  {
    name: "the jobs that a claim takes are not counted for their cap",
    killedBy: "test/flow/caps.test.ts",
    only: "is right after every way",
    old: "  if v_caps and ids <> '{}' then",
    new: "  if false then",
  },
  {
    name: "a wrong count of a cap stays wrong",
    killedBy: "test/flow/caps.test.ts",
    only: "corrected within a minute",
    old: "c.counted_at > p_now - interval '1 minute'",
    new: "c.counted_at > p_now - interval '1 day'",
  },
  {
    name: "every claim counts the running jobs of its capped pipelines",
    killedBy: "test/flow/caps.test.ts",
    only: "reads none of the running jobs",
    old: "c.counted_at > p_now - interval '1 minute'",
    new: "c.counted_at > p_now",
  },
  {
    name: "the end of a job at a cap hints no worker",
    killedBy: "test/flow/caps.test.ts",
    only: "in one pool lets a worker of another pool claim",
    old: "if v_full <> '{}' then",
    new: "if false then",
  },
  {
    name: "every claim starts at the first lane",
    old: "coalesce(substr(p_cursor, strpos(p_cursor, '|') + 1), '')",
    new: "''",
  },
  {
    name: "jobs picked from a lane are not subtracted from the cap",
    old: `        ids := ids || v_found;
        if v_gate_no is not null then
          v_quotas[v_gate_no] := v_quotas[v_gate_no] - cardinality(v_found);
        end if;
        if v_half ? v_name then`,
    new: `        ids := ids || v_found;
        if v_half ? v_name then`,
  },
  {
    name: "a lane whose last jobs were taken is visited again in the same claim",
    only: "no job is claimed twice",
    old: "or v_lane = v_from and v_resting) then",
    new: ") then",
  },
  {
    name: "the jobs of a lane are found through the index of the whole pool",
    killedBy: "test/flow/claim-cost.test.ts",
    only: "even with wrong statistics",
    old: `order by j.lane, j.run_at, j.id limit p_limit for update skip locked
  ) f;`,
    new: `order by j.run_at, j.id limit p_limit for update skip locked
  ) f;`,
  },
  {
    name: "a claim visits all sleeping lanes",
    killedBy: "test/flow/claim-cost.test.ts",
    only: "with any number of sleeping tenants",
    old: "if v_idle = 64 then",
    new: "if v_idle = 1000000 then",
  },
  {
    name: "a claim that skipped enough sleeping lanes starts at the same lane next time",
    killedBy: "test/flow/claim-cost.test.ts",
    only: "with any number of sleeping tenants",
    old: "cursor := '0|' || v_at;",
    new: "null;",
  },
  {
    name: "tenant weights are ignored",
    only: "as their weight",
    old: "      if v_weighted then",
    new: "      if false then",
  },
  {
    name: "the lane of a held tenant is served",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "holds its jobs as paused with reason and time, and needs no machine for them; other tenants continue",
    old: "if substr(v_lane, strpos(v_lane, chr(31)) + 1) = any (v_held) then",
    new: "if false then",
  },
  {
    name: "the demand includes jobs of a held tenant",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "holds its jobs as paused with reason and time, and needs no machine for them; other tenants continue",
    old: "where q.lease_id is null and (q.tenant is null or q.tenant <> all (v_held))",
    new: "where q.lease_id is null",
  },
  {
    name: "next_due ignores jobs behind those of a held tenant",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "does not starve other tenants behind a long queue of held jobs, and notifies their workers",
    old: "from mine m where m.held is null and m.pipeline = any (v_plain || v_open)),",
    new: "from mine m where m.pipeline = any (v_plain || v_open)),",
  },
];
