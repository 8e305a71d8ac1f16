// Mutants of the machines: the plan, the reservation, the fence of a machine that is to be ended, the poke, and who a copied database thinks it is.

const PLAN = "test/orchestrator/plan.test.ts";
const ORCHESTRATOR = "test/orchestrator/orchestrator.test.ts";
const POKE = "test/orchestrator/poke.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const plan = inFile("src/orchestrator/plan.ts");
const names = inFile("src/orchestrator/names.ts");
const actor = inFile("src/orchestrator/executor.ts");
const orchestrator = inFile("src/orchestrator/orchestrator.ts");
const machines = inFile("sql/functions/machines/machines.sql");
const claim = inFile("sql/functions/jobs/claim.sql");
const poke = inFile("src/client/poke.ts");
const client = inFile("src/client/client.ts");

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const machinesMutants = [
  {
    name: "machines: more are started than may be",
    killedBy: PLAN,
    edits: [
      plan("Math.max(0, settings.max - open.length)", "settings.max"),
      plan("filter(({ slot }) => !taken.has(slot) && !shunned.has(slot))", "filter(({ slot }) => !shunned.has(slot))"),
    ],
  },
  {
    name: "machines: a place that is taken is taken again",
    killedBy: PLAN,
    edits: [plan("!taken.has(slot) && !shunned.has(slot)", "!shunned.has(slot)")],
  },
  {
    name: "machines: the room of machines that are coming does not count",
    killedBy: PLAN,
    only: "counts the room",
    edits: [plan("const room = present.reduce(", "const room = present.filter(({ arrivedAt }) => arrivedAt).reduce(")],
  },
  {
    name: "machines: a paused pool starts machines",
    killedBy: PLAN,
    edits: [plan("if (look.paused !== null) return { most: 0,", "if (look.paused === 'never') return { most: 0,")],
  },
  {
    name: "machines: those that are of no use are started for ever",
    killedBy: PLAN,
    only: "T45",
    edits: [plan("pauseMs > 0 ? vainMs : 0", "0")],
  },
  {
    name: "machines: a stuck machine is ended with its job",
    killedBy: PLAN,
    edits: [plan("machine && life.running === 0 && isStuck(input, machine)", "machine && isStuck(input, machine)")],
  },
  {
    name: "machines: a machine that no list has is given up with its job",
    killedBy: PLAN,
    only: "believes a lease",
    edits: [plan("tells && life.running === 0 && (life.startedAt", "tells && (life.startedAt")],
  },
  {
    name: "machines: an old answer of the provider ends a new life",
    killedBy: PLAN,
    only: "takes no older answer",
    edits: [plan("> seen.agoMs + SKEW_MS", "> -1")],
  },
  {
    name: "machines: the end of the life before ends this one",
    killedBy: PLAN,
    only: "takes no older answer",
    edits: [plan("startedAt.getTime() >= since && endedAt.getTime() > since", "endedAt.getTime() > 0")],
  },
  {
    name: "machines: strays that run stay for ever",
    killedBy: PLAN,
    only: "removes strays",
    edits: [plan("strayMs(machine.name) > settings.bootMs + PATIENCE_MS", "strayMs(machine.name) > 1e12")],
  },
  {
    name: "machines: a machine of another fleet is a stray",
    killedBy: PLAN,
    edits: [
      plan('machine.state === "gone" || place === undefined', 'machine.state === "gone"'),
      plan("const isWarm = place <= settings.warm", "const isWarm = place! <= settings.warm"),
    ],
  },
  {
    name: "machines: the name of a pool is the beginning of another's",
    killedBy: PLAN,
    only: "however alike",
    edits: [names("/^m(\\d{1,6})(-\\d+)?$/", "/^m?(\\d{1,6})(-.*)?$/"), names("(fleet, pool)}m", "(fleet, pool)}")],
  },
  {
    name: "machines: two reservations share a place",
    killedBy: ORCHESTRATOR,
    only: "another one",
    edits: [
      {
        file: "sql/migrations/0010_machines.sql",
        old: "create unique index machine_lives_slot",
        new: "create index machine_lives_slot",
      },
      machines("l.ended_at is null) >= p_max then", "l.ended_at is null) >= 1000 then"),
    ],
  },
  {
    name: "machines: a machine with a job may be ended",
    killedBy: ORCHESTRATOR,
    only: "never ends a machine",
    edits: [
      machines(
        "if not found or exists (select from stillwake.leases s where s.worker = v_machine) then",
        "if not found then",
      ),
    ],
  },
  {
    name: "machines: one that is to be ended claims on",
    killedBy: ORCHESTRATOR,
    only: "never ends a machine",
    edits: [claim("  if v_retired then", "  if false then")],
  },
  {
    name: "machines: what a dead machine had is left to its lease",
    killedBy: ORCHESTRATOR,
    only: "sees a machine die",
    edits: [
      machines(
        "for v_lease in select * from stillwake.leases s where s.worker = v_life.machine",
        "for v_lease in select * from stillwake.leases s where s.worker = 'nobody'",
      ),
    ],
  },
  {
    name: "machines: a copy of the database is taken for the original",
    killedBy: ORCHESTRATOR,
    only: "T47",
    edits: [machines("  fits := why is null;", "  fits := true;")],
  },
  {
    name: "machines: an adopted copy keeps the name of the fleet",
    killedBy: ORCHESTRATOR,
    only: "T47",
    edits: [
      machines("set id = case when p_same then f.id else left(md5(gen_random_uuid()::text), 8) end", "set id = f.id"),
    ],
  },
  {
    name: "machines: a refused token is tried again and again",
    killedBy: ORCHESTRATOR,
    only: "token is refused",
    edits: [actor("    if (trouble.until === undefined) return;\n", "    return;\n")],
  },
  {
    name: "machines: a reservation that came to nothing stays",
    killedBy: ORCHESTRATOR,
    only: "token is refused",
    edits: [actor("if (never) await machineEnded(", "if (never && database === undefined) await machineEnded(")],
  },
  {
    name: "machines: nobody wakes when a job's time comes",
    killedBy: ORCHESTRATOR,
    only: "wakes by itself",
    edits: [orchestrator("if (nextDue === null) continue;", "if (nextDue !== undefined) continue;")],
  },
  {
    name: "machines: whoever leaves does not look for work",
    killedBy: "test/orchestrator/machine-calls.test.ts",
    edits: [
      machines(
        "    return false;\n  end if;\n  update stillwake.machine_lives l set left_at",
        "    null;\n  end if;\n  update stillwake.machine_lives l set left_at",
      ),
    ],
  },
  {
    name: "poke: it comes before the commit",
    killedBy: POKE,
    only: "after the commit",
    edits: [
      client("const id = send\n", "if (!send) await this.poke();\n    const id = send\n"),
      client("    else await this.poke();\n    return { id,", "    return { id,"),
    ],
  },
  {
    name: "poke: one that fails fails the enqueue",
    killedBy: POKE,
    only: "fails no enqueue",
    edits: [poke("      .catch(() => {})\n", "")],
  },
  {
    name: "poke: an enqueue waits for its answer",
    killedBy: POKE,
    only: "never answered",
    edits: [poke("setTimeout(resolve, this.#limitMs)", "setTimeout(resolve, this.#limitMs * 100)")],
  },
];
