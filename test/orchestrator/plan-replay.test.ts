// A day of bursts, replayed in a moment: the plan decides, and machines are a model with a time to start, a time to wait for more and a time to end. What is
// counted is what nobody has any use for: the time of machines without a job, their idle time aside.
import { describe, expect, it } from "vitest";
import type { Life } from "../../src/db/calls/machines.ts";
import { machineName, slotOf } from "../../src/orchestrator/names.ts";
import { plan } from "../../src/orchestrator/plan.ts";
import type { PoolSettings } from "../../src/orchestrator/settings.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL, round } from "../support/processes/aftermath.ts";
import { dice } from "../support/providers/fake-provider-api.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const DAY_MS = 24 * 3_600_000;
const START = Date.parse("2030-05-05T00:00:00Z");
const [FLEET, POOL] = ["0a1b2c3d", "scan"];
/** From the start of a machine to its first claim, and from its leaving to its end, as on Fly. */
const BOOT_MS = 3000;
const STOP_MS = 1000;
const settings: PoolSettings = {
  slots: 1,
  warm: 3,
  max: 20,
  burst: 17,
  idleExitMs: 60_000,
  minUptimeMs: 0,
  graceMs: 30_000,
  bootMs: 120_000,
  price: undefined,
  disk: 1,
  larger: undefined,
};

interface Machine extends Life {
  job: { endsAt: number } | undefined;
  jobs: number;
  /** Without a job since it could have one, within its present wait. */
  freeSince: number;
  idleMs: number;
  busyMs: number;
}

interface Replayed {
  machines: number;
  jobs: number;
  most: number;
  useless: number;
  aliveMs: number;
  busyMs: number;
  idleMs: number;
  wastedMs: number;
}

/** Jobs as they come on a day: now and then several at once, of minutes each. */
function bursts(random: () => number): { at: number; ms: number }[] {
  return Array.from({ length: 60 }, () => START + random() * DAY_MS).flatMap((at) =>
    Array.from({ length: 1 + Math.floor(random() ** 2 * 15) }, () => ({
      at: at + random() * 5000,
      ms: 60_000 + random() ** 2 * 9 * 60_000,
    })),
  );
}

function replay(random: () => number): Replayed {
  const arrivals = bursts(random).sort((a, b) => a.at - b.at);
  const waiting: number[] = [];
  const due: { at: number; act: () => void }[] = [];
  let lives: Machine[] = [];
  let [now, serial] = [START, 0];
  const total: Replayed = { machines: 0, jobs: 0, most: 0, useless: 0, aliveMs: 0, busyMs: 0, idleMs: 0, wastedMs: 0 };
  const at = (time: number, act: () => void) => void due.push({ at: time, act });

  const claim = (machine: Machine) => {
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
  const leave = (machine: Machine, since: number) => {
    if (machine.job || machine.leftAt || machine.freeSince !== since) return;
    // As the database answers it: not while there is a job.
    if (waiting.length > 0) return claim(machine);
    machine.leftAt = new Date(now);
    machine.idleMs += machine.jobs > 0 ? now - machine.freeSince : 0;
    at(now + STOP_MS, () => {
      const aliveMs = now - machine.startedAt!.getTime();
      total.machines += 1;
      total.jobs += machine.jobs;
      total.useless += machine.jobs === 0 ? 1 : 0;
      total.aliveMs += aliveMs;
      total.busyMs += machine.busyMs;
      total.idleMs += machine.idleMs;
      total.wastedMs += aliveMs - machine.busyMs - machine.idleMs;
      lives = lives.filter((one) => one !== machine);
    });
  };
  const start = (slot: number, burst: boolean) => {
    serial += 1;
    const date = new Date(now);
    const machine: Machine = {
      id: `life ${serial}`,
      machine: machineName(FLEET, POOL, slot) + (burst ? `-${serial}` : ""),
      slot,
      burst,
      providerId: null,
      slots: 1,
      running: 0,
      askedAt: date,
      startedAt: date,
      arrivedAt: null,
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
    total.most = Math.max(total.most, lives.length);
    at(now + BOOT_MS, () => {
      machine.arrivedAt = new Date(now);
      claim(machine);
    });
  };
  const decide = () => {
    const look = {
      pool: POOL,
      at: new Date(now),
      paused: null,
      claimable: waiting.length,
      running: lives.reduce((sum, { running }) => sum + running, 0),
      oldest: null,
      nextDue: null,
      wastedStarts: 0,
      wastedStartsAt: null,
      trouble: null,
      lives,
      working: [],
    };
    const input = {
      settings,
      look,
      shunned: new Set<number>(),
      unanswered: new Set<string>(),
      strayMs: () => 0,
      prepares: false,
    };
    const { actions } = plan({ ...input, placeOf: (name) => slotOf(FLEET, POOL, name) });
    for (const action of actions) {
      if (action.do !== "start") throw new Error(`It wants to ${action.do} at ${look.at.toISOString()}`);
      start(action.slot, action.burst);
    }
  };

  for (const { at: time, ms } of arrivals)
    at(time, () => {
      waiting.push(ms);
      // A machine that waits for more hears of it.
      const free = lives.find((one) => one.arrivedAt && !one.job && !one.leftAt);
      if (free) claim(free);
    });
  while (due.length > 0) {
    due.sort((a, b) => a.at - b.at);
    const next = due.shift()!;
    now = next.at;
    next.act();
    decide();
  }
  expect(waiting, "jobs that were never done").toEqual([]);
  expect(lives, "machines that never ended").toEqual([]);
  expect(total.jobs).toBe(arrivals.length);
  return total;
}

describe("a day of bursts", () => {
  it(`wastes at most 2 % of the time of its machines, seed ${SEED}`, () => {
    const random = dice(SEED);
    const days = Array.from({ length: FULL ? 50 : 5 }, () => replay(random));
    const sum = (of: keyof Replayed) => days.reduce((all, day) => all + day[of], 0);
    const share = (100 * sum("wastedMs")) / sum("aliveMs");
    recordFigure(
      "replayed day: machine time wasted",
      round(share),
      "%",
      `${days.length} days, ${sum("jobs")} jobs, seed ${SEED}`,
    );
    recordFigure("replayed day: machine time idle before leaving", round((100 * sum("idleMs")) / sum("aliveMs")), "%");
    recordFigure("replayed day: machines that found no job", sum("useless"), "machines", `of ${sum("machines")}`);
    expect(share).toBeLessThanOrEqual(2);
    expect(Math.max(...days.map(({ most }) => most))).toBeLessThanOrEqual(settings.max);
  });
});
