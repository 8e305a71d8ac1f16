// The moves of workers: claim, heartbeat, write, settle; with valid handles, old ones and forged ones.
import fc from "fast-check";
import * as calls from "./calls.ts";
import type { Settlement } from "./engine.ts";
import { chooseHandle, commandOf, countHit, countingEnds, type Pick, pick, type Real, withHandle } from "./move.ts";
import type { Outcome } from "./transitions.ts";
import { holds, type World } from "./world.ts";

const claimOptions: fc.Arbitrary<calls.ClaimOptions> = fc.record({
  worker: fc.constantFrom("w1", "w2", "w3"),
  pool: fc.constantFrom("default", "default", "default", "gpu"),
  pipelines: fc.constantFrom(
    ["alpha", "beta", "gamma"],
    ["alpha", "beta", "gamma"],
    ["alpha"],
    ["beta", "unheard-of"],
    [],
  ),
  limit: fc.integer({ min: 1, max: 4 }),
  lease: fc.constantFrom(5000, 5000, 10_000, 30_000),
  cutOff: fc.constantFrom(false, false, true),
});

const claim = commandOf({
  name: "claim",
  args: claimOptions,
  async make(world, real, options) {
    const rows = await real.engine.claim(options);
    return { ...compareClaim(world, real, options, rows as ClaimedRows), what: options };
  },
});

type ClaimedRows = { job_id: string; lease_id: string; epoch: string | number; attempt: number; crashes: number }[];

function compareClaim(world: World, real: Real, options: calls.ClaimOptions, rows: ClaimedRows) {
  const before = world.leases.size;
  const noticed = world.outages.length;
  const jobs = countingEnds(world, real, () =>
    calls.claim(
      world,
      options,
      rows[0]?.lease_id ?? "none",
      rows.map((row) => row.job_id),
    ),
  );
  real.hits.recovered += Math.max(0, before + Math.min(jobs.length, 1) - world.leases.size);
  real.hits.outages += world.outages.length - noticed;
  return {
    said: rows.map((row) => [row.job_id, Number(row.epoch), row.attempt, row.crashes]),
    should: jobs.map((job) => [job.id, job.epoch, job.attempt, job.crashes]),
  };
}

const outcome: fc.Arbitrary<Outcome> = fc.oneof(
  fc.constant<Outcome>({ outcome: "completed", output: "done" }),
  fc.record({
    outcome: fc.constant("failed" as const),
    failure: fc.constantFrom("E_ONE", "E_TWO"),
    fatal: fc.constantFrom(false, false, false, true),
    retryIn: fc.option(fc.constantFrom(0, 1000, 10_000), { freq: 2 }),
  }),
  fc.constant<Outcome>({ outcome: "cancelled" }),
  fc.record({
    outcome: fc.constant("slept" as const),
    for: fc.constantFrom(0, 1000, 10_000),
    waitingFor: fc.constantFrom("time", "limit", "event", "key"),
  }),
  fc.record({
    outcome: fc.constant("paused" as const),
    reason: fc.constant("breaker"),
    resumeIn: fc.option(fc.constantFrom(1000, 10_000), { freq: 2 }),
  }),
  fc.constant<Outcome>({ outcome: "released" }),
  { arbitrary: fc.constant<Outcome>({ outcome: "lost", failure: "RUNNER_DIED" }), weight: 2 },
);

const settle = withHandle("settle", outcome, async (world, real, handle, ending) => {
  const held = holds(world, handle) !== undefined;
  const rows = (await real.engine.settle([{ ...handle, ...ending }])) as { state: string }[];
  const should = countingEnds(world, real, () => calls.settle(world, handle, ending));
  if (!held && should !== "lost") real.hits.repeated += 1;
  return { said: rows.map((row) => row.state), should: [should] };
});

const picks = fc.uniqueArray(fc.tuple(pick, outcome), { minLength: 1, maxLength: 4, selector: ([{ index }]) => index });

/** Several handles, one per job, as a keeper settles the finished jobs of its slots. */
function chooseSettlements(world: World, chosen: [Pick, Outcome][]): Settlement[] {
  const settlements = chosen.map(([which, ending]) => ({ ...chooseHandle(world, which), ...ending }));
  return settlements.filter(({ job }, index) => settlements.findIndex((other) => other.job === job) === index);
}

const settleMany = commandOf({
  name: "settle many",
  args: picks,
  ready: (world) => world.handles.length > 0,
  async make(world, real, chosen) {
    const settlements = chooseSettlements(world, chosen);
    for (const settlement of settlements) countHit(world, real, settlement);
    const rows = (await real.engine.settle(settlements)) as { job_id: string; state: string }[];
    const states = countingEnds(world, real, () =>
      settlements.map((each) => `${each.job} ${calls.settle(world, each, each)}`),
    );
    return { said: rows.map((row) => `${row.job_id} ${row.state}`).sort(), should: states.sort(), what: settlements };
  },
});

const settleAndClaim = commandOf({
  name: "settle and claim",
  args: fc.tuple(picks, claimOptions),
  ready: (world) => world.handles.length > 0,
  async make(world, real, [chosen, options]) {
    const settlements = chooseSettlements(world, chosen);
    for (const settlement of settlements) countHit(world, real, settlement);
    const rows = (await real.engine.settleAndClaim(settlements, options)) as (ClaimedRows[0] & {
      refused: string[] | null;
    })[];
    const refused = rows.flatMap((row) => row.refused ?? []);
    const claimed = rows.filter((row) => row.job_id !== null);
    const lost = countingEnds(world, real, () =>
      settlements.filter((each) => calls.settle(world, each, each) === "lost"),
    );
    const claims = compareClaim(world, real, options, claimed);
    return {
      said: { refused: refused.sort(), claimed: claims.said },
      should: { refused: lost.map(({ job }) => job).sort(), claimed: claims.should },
      what: { settlements, options },
    };
  },
});

const heartbeat = commandOf({
  name: "heartbeat",
  args: fc.array(pick, { minLength: 1, maxLength: 3 }),
  ready: (world) => world.handles.length > 0,
  async make(world, real, chosen) {
    const handles = chosen.map((which) => chooseHandle(world, which));
    for (const handle of handles) countHit(world, real, handle);
    const rows = (await real.engine.heartbeat(handles)) as { job_id: string; verdict: string; reason: string | null }[];
    return {
      said: rows.map((row) => `${row.job_id} ${row.verdict} ${row.reason}`).sort(),
      should: calls
        .heartbeat(world, handles)
        .map((told) => `${told.job} ${told.verdict} ${told.reason}`)
        .sort(),
      what: handles,
    };
  },
});

const checkpoint = withHandle(
  "checkpoint",
  fc.tuple(fc.constantFrom("clone", "scan"), fc.constantFrom("x", "y", "z")),
  async (world, { engine }, handle, [step, output]) => ({
    said: await engine.saveCheckpoint(handle, step, output),
    should: calls.saveCheckpoint(world, handle, step, output),
  }),
);

const readCheckpoints = withHandle("read checkpoints", fc.constant(null), async (world, { engine }, handle) => ({
  said: await engine.loadCheckpoints(handle),
  should: calls.loadCheckpoints(world, handle),
}));

const appendLogs = withHandle(
  "append logs",
  fc.integer({ min: 1, max: 3 }),
  async (world, { engine }, handle, lines) => ({
    said: await engine.appendLogs(handle, lines),
    should: calls.appendLogs(world, handle, lines),
  }),
);

const progress = withHandle("progress", fc.constantFrom(0.25, 0.5), async (world, { engine }, handle, fraction) => ({
  said: await engine.progress(handle, fraction),
  should: calls.progress(world, handle, fraction),
}));

// The number of mentions is the likelihood. More claims than settlements, so that leases expire.
export const workerMoves = [
  ...[claim, claim, claim, claim, claim, settle, settle, settleMany, settleAndClaim],
  ...[heartbeat, heartbeat, checkpoint, checkpoint, readCheckpoints, appendLogs, progress],
];
