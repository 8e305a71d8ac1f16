// Mutants of src/orchestrator.
export const file = "src/orchestrator/plan.ts";
export const killedBy = "test/orchestrator/plan.test.ts";

export const mutants = [
  {
    name: "more machines are started than allowed",
    edits: [
      {
        old: "Math.max(0, settings.max - open.length)",
        new: "settings.max",
      },
      {
        old: "filter(({ ordinal }) => !taken.has(ordinal) && !unavailableOrdinals.has(ordinal))",
        new: "filter(({ ordinal }) => !unavailableOrdinals.has(ordinal))",
      },
    ],
  },
  {
    name: "an ordinal that is in use is used again",
    old: "!taken.has(ordinal) && !unavailableOrdinals.has(ordinal)",
    new: "!unavailableOrdinals.has(ordinal)",
  },
  {
    name: "the capacity of starting machines is not counted",
    only: "counts the free slots",
    old: "const room = present.reduce(",
    new: "const room = present.filter(({ registeredAt }) => registeredAt).reduce(",
  },
  {
    name: "a paused pool starts machines",
    old: "if (snapshot.paused !== null) return { max: 0,",
    new: "if (snapshot.paused === 'never') return { max: 0,",
  },
  {
    name: "machines that do no job are started for ever",
    only: "wasted start",
    old: "pauseMs > 0 ? wastedMs : 0",
    new: "0",
  },
  {
    name: "a stuck machine is stopped with its job",
    old: "machine && life.running === 0 && isStuck(input, machine)",
    new: "machine && isStuck(input, machine)",
  },
  {
    name: "a machine that is missing from a list is given up with its job",
    only: "trusts a lease",
    old: "isConclusive && life.running === 0 && (life.startedAt",
    new: "isConclusive && (life.startedAt",
  },
  {
    name: "an outdated provider response ends a new machine life",
    only: "outdated list",
    old: "> listing.agoMs + SKEW_MS",
    new: "> -1",
  },
  {
    name: "the end of the previous machine life ends the current one",
    only: "outdated list",
    old: "startedAt.getTime() >= since && endedAt.getTime() > since",
    new: "endedAt.getTime() > 0",
  },
  {
    name: "running stray machines are never removed",
    only: "removes strays",
    old: "strayMs(machine.name) > settings.bootMs + EXIT_MARGIN_MS",
    new: "strayMs(machine.name) > 1e12",
  },
  {
    name: "a machine of another fleet counts as a stray",
    edits: [
      {
        old: 'machine.state === "gone" || ordinal === undefined',
        new: 'machine.state === "gone"',
      },
      {
        old: "const isWarm = ordinal <= settings.warm",
        new: "const isWarm = ordinal! <= settings.warm",
      },
    ],
  },
  {
    name: "the machine name prefix of one pool matches another pool",
    only: "never matches",
    file: "src/orchestrator/provider.ts",
    edits: [
      {
        old: "/^m(\\d{1,6})(-\\d+)?$/",
        new: "/^m?(\\d{1,6})(-.*)?$/",
      },
      {
        old: "(fleet, pool)}m",
        new: "(fleet, pool)}",
      },
    ],
  },
  {
    name: "a rejected token is retried without a pause",
    killedBy: "test/orchestrator/orchestrator.test.ts",
    only: "with a rejected token reports one error, makes no further calls, and the job waits",
    file: "src/orchestrator/executor.ts",
    old: `    if (described.until === undefined) return;
`,
    new: `    return;
`,
  },
  {
    name: "a reservation stays after its start has failed",
    killedBy: "test/orchestrator/orchestrator.test.ts",
    only: "with a rejected token reports one error, makes no further calls, and the job waits",
    file: "src/orchestrator/executor.ts",
    old: "if (isCertain) await machineEnded(",
    new: "if (isCertain && database === undefined) await machineEnded(",
  },
  {
    name: "the orchestrator does not wake when a delayed job becomes due",
    killedBy: "test/orchestrator/orchestrator.test.ts",
    only: "wakes when a job becomes due, and for the jobs of lost workers",
    file: "src/orchestrator/orchestrator.ts",
    old: "if (nextDue === null) continue;",
    new: "if (nextDue !== undefined) continue;",
  },
];
