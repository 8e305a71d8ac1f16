// Mutants of sql/functions/flow/lanes.sql.
export const file = "sql/functions/flow/lanes.sql";
export const killedBy = "test/flow/lanes.test.ts";

export const mutants = [
  {
    name: "assigning lanes locks jobs that wait for their key",
    killedBy: "test/flow/keys-interleave.test.ts",
    only: "assigns lanes",
    old: `and (j.key is null or j.key_slot is not null or j.state = 'paused')
      and j.lane is`,
    new: "and j.lane is",
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
    old: `perform pg_advisory_xact_lock(stillwake.cap_lock(p.name))
    from (`,
    new: "perform stillwake.cap_lock(p.name) from (",
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
    old: "order by j.lane, j.run_at, j.id limit p_limit for update skip locked",
    new: "order by j.run_at, j.id limit p_limit for update skip locked",
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
    name: "jobs of a held tenant without a lane are claimed",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "no lane yet",
    old: "and j.lease_id is null and j.pipeline = any (v_plain) and (j.tenant is null or j.tenant <> all (v_held))",
    new: "and j.lease_id is null and j.pipeline = any (v_plain)",
  },
  {
    name: "the demand includes jobs of a held tenant",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "holds its jobs as paused with reason and time, and needs no machine for them; other tenants continue",
    old: `j.lease_id is null and (j.tenant is null or j.tenant <> all (v_held))
          and (j.expires_at`,
    new: "j.lease_id is null and (j.expires_at",
  },
  {
    name: "next_due ignores jobs behind those of a held tenant",
    killedBy: "test/orchestrator/budgets.test.ts",
    only: "does not starve other tenants behind a long queue of held jobs, and notifies their workers",
    old: "from mine m where m.held is null and m.pipeline = any (v_plain || v_open)),",
    new: "from mine m where m.pipeline = any (v_plain || v_open)),",
  },
];
