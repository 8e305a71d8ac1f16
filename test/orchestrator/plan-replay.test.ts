// Replays a day of job bursts against plan(), with simulated machines that take time to start, to wait for jobs and to stop.
// Measures the wasted machine time: time without a job, except for the idle time before an exit.
import { describe, expect, it } from "vitest";
import type { MachineLife } from "../../src/db/calls/machines.ts";
import { plan } from "../../src/orchestrator/plan.ts";
import { machineName, ordinalOf } from "../../src/orchestrator/provider.ts";
import { local } from "../../src/orchestrator/providers/local/local.ts";
import { readPoolOptions } from "../../src/orchestrator/settings.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { seededRandom } from "../support/providers/fake-provider-api.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const DAY_MS = 24 * 3_600_000;
const START = Date.parse("2030-05-05T00:00:00Z");
const [FLEET, POOL] = ["0a1b2c3d", "scan"];
/** From the start of a machine to its first claim, and from the exit of its worker to its end, as on Fly. */
const BOOT_MS = 3000;
const STOP_MS = 1000;
const settings = readPoolOptions(POOL, { provider: local(), warm: 3, max: 20 }, {});

interface SimulatedMachine extends MachineLife {
  job: { endsAt: number } | undefined;
  jobs: number;
  /** Start of its current wait for a job. */
  freeSince: number;
  idleMs: number;
  busyMs: number;
}

interface DayTotals {
  machines: number;
  jobs: number;
  maxMachines: number;
  withoutJob: number;
  aliveMs: number;
  busyMs: number;
  idleMs: number;
  wastedMs: number;
}

/** The jobs of a day: bursts of one to 15 jobs of 1 to 10 minutes. */
function generateBursts(random: () => number): { at: number; ms: number }[] {
  return Array.from({ length: 60 }, () => START + random() * DAY_MS).flatMap((at) =>
    Array.from({ length: 1 + Math.floor(random() ** 2 * 15) }, () => ({
      at: at + random() * 5000,
      ms: 60_000 + random() ** 2 * 9 * 60_000,
    })),
  );
}

function replay(random: () => number): DayTotals {
  const arrivals = generateBursts(random).sort((a, b) => a.at - b.at);
  const waiting: number[] = [];
  const due: { at: number; act: () => void }[] = [];
  let lives: SimulatedMachine[] = [];
  let [now, serial] = [START, 0];
  const total: DayTotals = {
    machines: 0,
    jobs: 0,
    maxMachines: 0,
    withoutJob: 0,
    aliveMs: 0,
    busyMs: 0,
    idleMs: 0,
    wastedMs: 0,
  };
  const at = (time: number, act: () => void) => void due.push({ at: time, act });

  const claim = (machine: SimulatedMachine) => {
    const ms = waiting.shift();
    if (ms === undefined) return at(machine.freeSince + settings.idleExitMs, () => leave(machine, machine.freeSince));
    machine.idleMs += machine.jobs > 0 ? now - machine.freeSince : 0;
    machine.job = { endsAt: now + ms };
    machine.running = 1;
    machine.jobs += 1;
    machine.busyMs += ms;
    at(now + ms, () => {
      machine.job = undefined;
      machine.running = 0;
      machine.freeSince = now;
      claim(machine);
    });
  };
  const leave = (machine: SimulatedMachine, since: number) => {
    if (machine.job || machine.leftAt || machine.freeSince !== since) return;
    // As in machine_leaves(): a machine stays while a job is waiting.
    if (waiting.length > 0) return claim(machine);
    machine.leftAt = new Date(now);
    machine.idleMs += machine.jobs > 0 ? now - machine.freeSince : 0;
    at(now + STOP_MS, () => {
      const aliveMs = now - machine.startedAt!.getTime();
      total.machines += 1;
      total.jobs += machine.jobs;
      total.withoutJob += machine.jobs === 0 ? 1 : 0;
      total.aliveMs += aliveMs;
      total.busyMs += machine.busyMs;
      total.idleMs += machine.idleMs;
      total.wastedMs += aliveMs - machine.busyMs - machine.idleMs;
      lives = lives.filter((life) => life !== machine);
    });
  };
  const start = (ordinal: number, burst: boolean) => {
    serial += 1;
    const date = new Date(now);
    const machine: SimulatedMachine = {
      id: `life ${serial}`,
      machine: machineName(FLEET, POOL, ordinal) + (burst ? `-${serial}` : ""),
      ordinal,
      burst,
      providerId: null,
      slots: 1,
      running: 0,
      requestedAt: date,
      startedAt: date,
      registeredAt: null,
      idleSince: null,
      silentSince: null,
      leftAt: null,
      retiredAt: null,
      job: undefined,
      jobs: 0,
      freeSince: now + BOOT_MS,
      idleMs: 0,
      busyMs: 0,
    };
    lives.push(machine);
    total.maxMachines = Math.max(total.maxMachines, lives.length);
    at(now + BOOT_MS, () => {
      machine.registeredAt = new Date(now);
      claim(machine);
    });
  };
  const decide = () => {
    const snapshot = {
      pool: POOL,
      at: new Date(now),
      paused: null,
      claimable: waiting.length,
      running: lives.reduce((sum, { running }) => sum + running, 0),
      oldest: null,
      nextDue: null,
      wastedStarts: 0,
      wastedStartsAt: null,
      providerError: null,
      lives,
      working: [],
    };
    const input = {
      settings,
      snapshot,
      unavailableOrdinals: new Set<number>(),
      unanswered: new Set<string>(),
      strayMs: () => 0,
      canPrepare: false,
    };
    const { actions } = plan({ ...input, ordinalOf: (name) => ordinalOf(FLEET, POOL, name) });
    for (const action of actions) {
      if (action.do !== "start") throw new Error(`Unexpected action ${action.do} at ${snapshot.at.toISOString()}`);
      start(action.ordinal, action.burst);
    }
  };

  for (const { at: time, ms } of arrivals)
    at(time, () => {
      waiting.push(ms);
      // An idle machine is notified of the job.
      const idle = lives.find((life) => life.registeredAt && !life.job && !life.leftAt);
      if (idle) claim(idle);
    });
  while (due.length > 0) {
    due.sort((a, b) => a.at - b.at);
    const next = due.shift()!;
    now = next.at;
    next.act();
    decide();
  }
  expect(waiting, "jobs that never ran").toEqual([]);
  expect(lives, "machines that never ended").toEqual([]);
  expect(total.jobs).toBe(arrivals.length);
  return total;
}

describe("a replayed day of bursts", () => {
  it(`wastes at most 2 % of the machine time, seed ${SEED}`, () => {
    const random = seededRandom(SEED);
    const days = Array.from({ length: FULL ? 50 : 5 }, () => replay(random));
    const sum = (field: keyof DayTotals) => days.reduce((total, day) => total + day[field], 0);
    const share = (100 * sum("wastedMs")) / sum("aliveMs");
    recordFigure(
      "replayed day: machine time wasted",
      round(share),
      "%",
      `${days.length} days, ${sum("jobs")} jobs, seed ${SEED}`,
    );
    recordFigure("replayed day: machine time idle before exit", round((100 * sum("idleMs")) / sum("aliveMs")), "%");
    recordFigure("replayed day: machines without a job", sum("withoutJob"), "machines", `of ${sum("machines")}`);
    expect(share).toBeLessThanOrEqual(2);
    expect(Math.max(...days.map(({ maxMachines }) => maxMachines))).toBeLessThanOrEqual(settings.max);
  });
});
