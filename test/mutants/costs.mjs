// Mutants of costs and budgets: what is shared out, who is held and who is not, and what lets go again.

const COST = "test/orchestrator/cost.test.ts";
const BUDGETS = "test/orchestrator/budgets.test.ts";
const API = "test/server/costs.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const cost = inFile("sql/functions/machines/cost.sql");
const lanes = inFile("sql/functions/flow/lanes.sql");
const fleet = inFile("sql/functions/machines/fleet.sql");
const claim = inFile("sql/functions/jobs/claim.sql");
const control = inFile("sql/functions/jobs/control.sql");
const erase = inFile("sql/functions/jobs/erase.sql");
const machines = inFile("sql/functions/machines/machines.sql");
const server = inFile("src/server/routes/costs.ts");

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const costsMutants = [
  {
    name: "costs: attempts pay by their number and not by their time",
    killedBy: COST,
    edits: [cost("case when max(t.work) > 0 then sum(a.seconds) / max(t.work) else", "case when false then 1 else")],
  },
  {
    name: "costs: what is paid for at least is forgotten",
    killedBy: COST,
    edits: [
      cost(
        "select greatest(extract(epoch from p_until - v_from), p_life.least_seconds) as paid,",
        "select extract(epoch from p_until - v_from) as paid,",
      ),
    ],
  },
  {
    name: "costs: a life over midnight is paid for on each day",
    killedBy: COST,
    only: "midnight",
    edits: [
      cost("s.idle_share * d.part, s.amount * d.part from shares s", "s.idle_share * d.part, s.amount from shares s"),
    ],
  },
  {
    name: "costs: a machine that never started is paid for",
    killedBy: COST,
    only: "never seen",
    edits: [
      machines(
        "if coalesce(p_started_at, v_life.started_at, v_life.arrived_at) is not null then",
        "if v_life.id is not null then",
      ),
    ],
  },
  {
    name: "costs: a neighbour's attempt that is forgotten makes a job dearer",
    killedBy: COST,
    only: "forgotten",
    edits: [cost("    if provisional then\n", "    if true then\n")],
  },
  {
    name: "budgets: what still runs does not count",
    killedBy: BUDGETS,
    only: "still runs",
    edits: [cost("where l.ended_at is null and l.price > 0 and", "where false and")],
  },
  {
    name: "budgets: somebody's own pause is undone",
    killedBy: BUDGETS,
    only: "own pause",
    edits: [control("pause_reason = p_reason, resume_at = null where", "pause_reason = p_reason where")],
  },
  {
    name: "budgets: the next period opens nothing",
    killedBy: BUDGETS,
    only: "next period",
    edits: [claim("if v_pool.resume_at <= v_now then", "if false then")],
  },
  {
    name: "budgets: nobody is woken for the next period",
    killedBy: BUDGETS,
    only: "next period",
    edits: [
      fleet(
        "(select min(p.resume_at) from stillwake.pools p where p.resume_at is not null and",
        "(select min(p.resume_at) from stillwake.pools p where false and",
      ),
    ],
  },
  {
    name: "budgets: a held tenant's lane is served",
    killedBy: BUDGETS,
    only: "wants no machine",
    edits: [lanes("if substr(v_lane, strpos(v_lane, chr(31)) + 1) = any (v_held) then", "if false then")],
  },
  {
    name: "budgets: jobs of a held tenant without a lane are claimed",
    killedBy: BUDGETS,
    only: "no lane yet",
    edits: [
      lanes(
        "and j.lease_id is null and j.pipeline = any (v_plain) and (j.tenant is null or j.tenant <> all (v_held))",
        "and j.lease_id is null and j.pipeline = any (v_plain)",
      ),
    ],
  },
  {
    name: "budgets: machines are wanted for a held tenant",
    killedBy: BUDGETS,
    only: "wants no machine",
    edits: [
      lanes(
        "j.lease_id is null and (j.tenant is null or j.tenant <> all (v_held)) and (j.expires_at",
        "j.lease_id is null and (j.expires_at",
      ),
    ],
  },
  {
    name: "budgets: whoever stands behind a held tenant's line is not woken",
    killedBy: BUDGETS,
    only: "starves nobody",
    edits: [
      lanes(
        "from mine m where m.held is null and m.pipeline = any (v_plain || v_open)),",
        "from mine m where m.pipeline = any (v_plain || v_open)),",
      ),
    ],
  },
  {
    name: "budgets: erasure leaves the tenant's sums",
    killedBy: BUDGETS,
    only: "leaves no name",
    edits: [erase("delete from stillwake.spending s where s.scope = 'tenant' and s.name = p_tenant;", "")],
  },
  {
    name: "costs: a tenant is told what others cost",
    killedBy: API,
    only: "own part",
    edits: [server("...(who.tenant !== null && { tenant: who.tenant })", "")],
  },
  {
    name: "costs: the cost of a job that may not be seen is told",
    killedBy: API,
    only: "may not be seen",
    edits: [server("    await reading.get(params.id!);\n", "    void reading;\n")],
  },
];
