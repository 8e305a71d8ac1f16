// The plan: which machines to start, to end and to leave alone. A pure function, so most of what is said here is said of thousands of situations at once.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Life, Look } from "../../src/db/calls/machines.ts";
import { machineName, poolPrefix, slotOf } from "../../src/orchestrator/names.ts";
import {
  blockedMs,
  MAX_WASTED_STARTS,
  type PlanInput,
  plan,
  SKEW_MS,
  STUCK_MS,
  UNCONFIRMED_MS,
} from "../../src/orchestrator/plan.ts";
import type { SeenMachine } from "../../src/orchestrator/provider.ts";
import type { PoolSettings } from "../../src/orchestrator/settings.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const RUNS = { seed: SEED, numRuns: 2000 };
const NOW = Date.parse("2030-05-05T12:00:00Z");
const FLEET = "0a1b2c3d";
const POOL = "scan";

const settings: PoolSettings = {
  slots: 1,
  warm: 3,
  max: 5,
  burst: 2,
  idleExitMs: 60_000,
  minUptimeMs: 0,
  graceMs: 30_000,
  bootMs: 120_000,
  price: undefined,
  disk: 1,
  larger: undefined,
};
const ago = (ms: number) => new Date(NOW - ms);
const nameOf = (slot: number, serial?: number) => `${machineName(FLEET, POOL, slot)}${serial ? `-${serial}` : ""}`;

function life(slot: number, more: Partial<Life> = {}): Life {
  const burst = slot > settings.warm;
  return {
    id: `life ${slot}`,
    machine: nameOf(slot, burst ? 7 : undefined),
    slot,
    burst,
    providerId: null,
    slots: 1,
    running: 0,
    askedAt: ago(300_000),
    startedAt: ago(299_000),
    arrivedAt: ago(298_000),
    idleSince: null,
    silentSince: null,
    leftAt: null,
    retiredAt: null,
    ...more,
  };
}

function input(look: Partial<Look> = {}, more: Partial<PlanInput> = {}): PlanInput {
  return {
    settings,
    look: {
      pool: POOL,
      at: new Date(NOW),
      paused: null,
      claimable: 0,
      running: 0,
      oldest: null,
      nextDue: null,
      wastedStarts: 0,
      wastedStartsAt: null,
      trouble: null,
      lives: [],
      working: [],
      ...look,
    },
    placeOf: (name) => slotOf(FLEET, POOL, name),
    shunned: new Set(),
    unanswered: new Set(),
    strayMs: () => 0,
    prepares: true,
    ...more,
  };
}

const seen = (...machines: SeenMachine[]) => ({ machines, agoMs: 100 });
const stopped = (slot: number, more: Partial<SeenMachine> = {}): SeenMachine => ({
  name: nameOf(slot),
  id: `id${slot}`,
  state: "stopped",
  ...more,
});
const acts = (given: PlanInput) => plan(given).actions.map((action) => action.do);

describe("the plan", () => {
  it("starts a machine for each job, the warm ones first, and burst ones up to the most", () => {
    const { actions, current, wanted } = plan(input({ claimable: 4 }));
    expect(actions).toMatchObject([
      { do: "start", slot: 1, burst: false },
      { do: "start", slot: 2, burst: false },
      { do: "start", slot: 3, burst: false },
      { do: "start", slot: 4, burst: true },
    ]);
    expect([current, wanted]).toEqual([0, 4]);
    expect(plan(input({ claimable: 40 })).actions).toHaveLength(5);
    expect(plan(input({ claimable: 40 })).why).toBe(
      "40 jobs wait, there is room for 0; as many machines as may be (5)",
    );
  });

  it("counts the room of machines that are up or coming, several jobs to a machine", () => {
    const four = { ...settings, slots: 4 };
    const busy = life(1, { slots: 4, running: 3 });
    const coming = life(2, { slots: 4, startedAt: null, arrivedAt: null, askedAt: ago(3000) });
    expect(acts(input({ claimable: 5, lives: [busy, coming] }, { settings: four }))).toEqual([]);
    expect(acts(input({ claimable: 6, lives: [busy, coming] }, { settings: four }))).toEqual(["start"]);
    expect(acts(input({ claimable: 10, lives: [busy, coming] }, { settings: four }))).toEqual(["start", "start"]);
  });

  it("does not count on a machine that has left, that is being ended or that is overdue", () => {
    const left = life(1, { leftAt: ago(1000) });
    const retired = life(2, { retiredAt: ago(1000) });
    const late = life(3, { arrivedAt: null, startedAt: ago(200_000) });
    const silent = life(1, { silentSince: ago(1000) });
    expect(plan(input({ claimable: 1, lives: [silent] })).actions).toMatchObject([{ do: "start", slot: 2 }]);
    const { actions, ask } = plan(input({ claimable: 1, lives: [left, retired] }));
    expect(actions).toMatchObject([{ do: "start", slot: 3 }]);
    expect(ask, "what has become of them is for the provider to say").toBe(true);
    const machine = stopped(3, { state: "running" });
    expect(plan(input({ claimable: 1, lives: [late] }, { seen: seen(machine) })).actions).toMatchObject([
      { do: "retire", why: "its worker never came" },
      { do: "prepare", slot: 1 },
      { do: "prepare", slot: 2 },
      { do: "start", slot: 1 },
    ]);
  });

  it("starts nothing in a paused pool or after a trouble with the provider, and says why", () => {
    const paused = plan(input({ claimable: 3, paused: "The budget is used up" }));
    expect(paused).toMatchObject({
      actions: [],
      why: "3 jobs wait, there is room for 0; the pool is paused: The budget is used up",
      againMs: undefined,
    });
    const trouble = {
      code: "PROVIDER_AUTH",
      message: "Fly refuses our token",
      until: new Date(NOW + 90_000).toISOString(),
    };
    const held = plan(input({ claimable: 1, trouble }));
    expect(held).toMatchObject({ actions: [], againMs: 60_000 });
    expect(held.why).toContain("nothing is started for 90 s: Fly refuses our token");
    expect(acts(input({ claimable: 1, trouble: { ...trouble, until: new Date(NOW - 1).toISOString() } }))).toEqual([
      "start",
    ]);
  });

  it("T45: tries one machine at a time after one was of no use, three in a row, and then pauses for longer and longer", () => {
    expect(acts(input({ claimable: 5, wastedStarts: 1, wastedStartsAt: ago(10) }))).toEqual(["start"]);
    expect(
      acts(
        input({
          claimable: 5,
          wastedStarts: 2,
          wastedStartsAt: ago(10),
          lives: [life(1, { arrivedAt: null, startedAt: ago(1000), askedAt: ago(2000) })],
        }),
      ),
    ).toEqual([]);
    const over = life(1, { idleSince: ago(600_000) });
    const ending = plan(
      input(
        { claimable: 1, wastedStarts: 1, wastedStartsAt: ago(10), lives: [over] },
        { seen: seen(stopped(1, { state: "running" }), stopped(2), stopped(3)) },
      ),
    );
    expect(
      ending.actions.map((action) => action.do),
      "what ends now may have been of no use too",
    ).toEqual(["retire"]);
    const pauses = [MAX_WASTED_STARTS, MAX_WASTED_STARTS + 1, MAX_WASTED_STARTS + 2, MAX_WASTED_STARTS + 20].map(
      (wastedStarts) => blockedMs(input({ wastedStarts, wastedStartsAt: ago(0) }).look),
    );
    expect(pauses).toEqual([600_000, 1_200_000, 2_400_000, 6 * 3_600_000]);
    expect(acts(input({ claimable: 1, wastedStarts: MAX_WASTED_STARTS, wastedStartsAt: ago(599_000) }))).toEqual([]);
    expect(acts(input({ claimable: 1, wastedStarts: MAX_WASTED_STARTS, wastedStartsAt: ago(601_000) }))).toEqual([
      "start",
    ]);
  });

  it("takes another place when a machine could not be started", () => {
    expect(plan(input({ claimable: 1 }, { shunned: new Set([1, 2]) })).actions).toMatchObject([
      { do: "start", slot: 3 },
    ]);
    const none = plan(input({ claimable: 1 }, { shunned: new Set([1, 2, 3, 4, 5]) }));
    expect(none).toMatchObject({ actions: [], againMs: 5000 });
    expect(none.why).toContain("no other machine could be started lately");
  });

  it("closes a life when the provider says that its machine has ended, and takes no older answer for that", () => {
    const up = life(1);
    expect(acts(input({ lives: [up] }, { seen: seen(stopped(1), stopped(2), stopped(3)) }))).toEqual(["end"]);
    const fresh = life(1, { askedAt: ago(3000), startedAt: ago(2000), arrivedAt: null });
    const warm = [stopped(2), stopped(3)];
    expect(
      acts(input({ lives: [fresh] }, { seen: seen(stopped(1), ...warm) })),
      "listed while it was being started",
    ).toEqual([]);
    const asked = life(1, { askedAt: ago(12_000), startedAt: null, arrivedAt: null });
    const oom = stopped(1, { startedAt: ago(90_000), endedAt: ago(80_000), exit: { oom: true } });
    expect(acts(input({ lives: [asked] }, { seen: seen(oom, ...warm) })), "its start is under way").toEqual([]);
    const over = stopped(1, { startedAt: ago(2000), endedAt: ago(500), exit: { code: 1 } });
    expect(plan(input({ lives: [fresh] }, { seen: seen(over, ...warm) })).actions).toMatchObject([
      { do: "end", exit: { code: 1 } },
    ]);
    const before = stopped(1, { startedAt: ago(90_000), endedAt: ago(80_000) });
    expect(acts(input({ lives: [fresh] }, { seen: seen(before, ...warm) })), "the end of the life before").toEqual([]);
  });

  it("believes a lease more than a list that has no such machine", () => {
    const warm = seen(stopped(2), stopped(3));
    expect(acts(input({ lives: [life(1, { running: 1 })] }, { seen: warm }))).toEqual([]);
    expect(acts(input({ lives: [life(1)] }, { seen: warm }))).toEqual(["end"]);
  });

  it("T44: asks again for a machine whose start was never confirmed, and adopts it when it is there", () => {
    const lost = life(4, { startedAt: null, arrivedAt: null, askedAt: ago(UNCONFIRMED_MS + 1000) });
    const warm = [stopped(1), stopped(2), stopped(3)];
    expect(plan(input({ lives: [lost] }))).toMatchObject({ actions: [], ask: true });
    expect(acts(input({ lives: [lost] }, { seen: seen(...warm) }))).toEqual(["repeat"]);
    const soon = life(4, { startedAt: null, arrivedAt: null, askedAt: ago(20_000) });
    expect(acts(input({ lives: [soon] }, { seen: seen(...warm) })), "somebody may be at it").toEqual([]);
    expect(acts(input({ lives: [soon] }, { seen: seen(...warm), unanswered: new Set([soon.id]) }))).toEqual(["repeat"]);
    const there: SeenMachine = { name: lost.machine, id: "x", state: "running" };
    expect(acts(input({ lives: [lost] }, { seen: seen(...warm, there) }))).toEqual(["confirm"]);
    const older = { ...lost, askedAt: ago(settings.bootMs + UNCONFIRMED_MS + SKEW_MS + 1000) };
    expect(acts(input({ lives: [older] }, { seen: seen(...warm) })), "it was never made").toEqual(["end"]);
  });

  it("removes strays: stopped ones that are not kept, those of other settings, those that run without a worker, and nothing else", () => {
    const burst: SeenMachine = { name: nameOf(4, 12), id: "b", state: "stopped" };
    const running: SeenMachine = { name: nameOf(5, 13), id: "r", state: "running" };
    const foreign: SeenMachine = { name: "sw-ffffffff-scan-m1", id: "f", state: "stopped" };
    const machines = [stopped(1), stopped(2, { stale: true }), stopped(3), burst, running, foreign];
    const removed = (strayMs: number) =>
      plan(input({}, { seen: seen(...machines), strayMs: () => strayMs })).actions.flatMap((action) =>
        action.do === "remove" ? [action.machine.id] : [],
      );
    expect(removed(0)).toEqual(["id2", "b"]);
    expect(removed(10 * 60_000)).toEqual(["id2", "b", "r"]);
    const working = plan(input({ working: [running.name] }, { seen: seen(running), strayMs: () => 10 * 60_000 }));
    expect(
      working.actions.filter((action) => action.do === "remove"),
      "it has a job, whatever became of its life",
    ).toEqual([]);
  });

  it("makes the warm machines that are missing, when it knows which are there", () => {
    expect(acts(input({}, { seen: seen(stopped(2)) }))).toEqual(["prepare", "prepare"]);
    expect(acts(input())).toEqual([]);
    expect(acts(input({}, { seen: seen(stopped(2)), prepares: false }))).toEqual([]);
  });

  it("ends a machine that stays though it has nothing to do, and one that is stuck, but none with a job", () => {
    const idle = life(1, { idleSince: ago(60_000 + 30_000 + 61_000) });
    expect(plan(input({ lives: [idle] }))).toMatchObject({ ask: true, actions: [] });
    const at = { state: "running" as const };
    const warm = [stopped(2), stopped(3)];
    expect(acts(input({ lives: [idle] }, { seen: seen(stopped(1, at), ...warm) }))).toEqual(["retire"]);
    expect(acts(input({ lives: [{ ...idle, running: 1 }] }, { seen: seen(stopped(1, at), ...warm) }))).toEqual([]);
    const stuck = stopped(1, { state: "stopping", since: ago(STUCK_MS + 1000) });
    expect(acts(input({ lives: [life(1)] }, { seen: seen(stuck, ...warm) }))).toEqual(["retire"]);
    expect(acts(input({ lives: [life(1, { running: 1 })] }, { seen: seen(stuck, ...warm) }))).toEqual([]);
  });

  it("wants no look at all when there is nothing, and soon when something is on its way", () => {
    expect(plan(input())).toMatchObject({ actions: [], ask: false, againMs: undefined });
    expect(plan(input({ lives: [life(1, { running: 1 })] })).againMs).toBe(15_000);
    expect(plan(input({ lives: [life(1, { leftAt: ago(1) })] })).againMs).toBe(2000);
  });
});

const someLife = (slot: number) =>
  fc
    .record({
      running: fc.nat({ max: 2 }),
      slots: fc.constantFrom(1, 2),
      asked: fc.nat({ max: 900_000 }),
      started: fc.option(fc.nat({ max: 10_000 })),
      arrived: fc.option(fc.nat({ max: 10_000 })),
      idle: fc.option(fc.nat({ max: 600_000 })),
      left: fc.option(fc.nat({ max: 600_000 })),
      retired: fc.option(fc.nat({ max: 600_000 })),
      silent: fc.option(fc.nat({ max: 600_000 })),
    })
    .map(({ running, slots, asked, started, arrived, idle, left, retired, silent }) =>
      life(slot, {
        slots,
        running: arrived === null ? 0 : Math.min(running, slots),
        askedAt: ago(asked),
        startedAt: started === null ? null : ago(Math.max(0, asked - started)),
        arrivedAt: arrived === null ? null : ago(Math.max(0, asked - (started ?? 0) - arrived)),
        silentSince: silent === null || running > 0 ? null : ago(Math.min(asked, silent)),
        idleSince: idle === null || running > 0 ? null : ago(Math.min(asked, idle)),
        leftAt: left === null || running > 0 ? null : ago(Math.min(asked, left)),
        retiredAt: retired === null || running > 0 ? null : ago(Math.min(asked, retired)),
      }),
    );

const someMachine = fc
  .record({
    slot: fc.integer({ min: 1, max: 7 }),
    burst: fc.boolean(),
    state: fc.constantFrom("stopped", "starting", "running", "stopping", "gone"),
    since: fc.nat({ max: 900_000 }),
    stale: fc.boolean(),
    ours: fc.boolean(),
  })
  .map(({ slot, burst, state, since, stale, ours }): SeenMachine => {
    const name = nameOf(slot, burst ? 7 : undefined);
    return {
      name: ours ? name : name.replace(FLEET, "ffffffff"),
      id: `${name} ${ours}`,
      state,
      since: ago(since),
      stale,
    } as SeenMachine;
  });

const someInput = fc
  .record({
    lives: fc.uniqueArray(fc.integer({ min: 1, max: 5 })).chain((slots) => fc.tuple(...slots.map(someLife))),
    claimable: fc.nat({ max: 12 }),
    paused: fc.option(fc.constant("somebody said so")),
    wastedStarts: fc.nat({ max: 5 }),
    wastedAgo: fc.nat({ max: 3_600_000 }),
    trouble: fc.option(fc.integer({ min: -60_000, max: 300_000 })),
    machines: fc.option(fc.uniqueArray(someMachine, { selector: ({ id }) => id, maxLength: 8 })),
    shunned: fc.uniqueArray(fc.integer({ min: 1, max: 5 }), { maxLength: 3 }),
    stray: fc.nat({ max: 900_000 }),
    warm: fc.nat({ max: 5 }),
    max: fc.integer({ min: 1, max: 5 }),
    slots: fc.constantFrom(1, 2, 4),
  })
  .map(({ lives, claimable, paused, wastedStarts, wastedAgo, trouble, machines, shunned, stray, warm, max, slots }) => {
    const kept = Math.min(warm, max);
    return input(
      {
        lives,
        claimable,
        paused,
        wastedStarts,
        wastedStartsAt: wastedStarts > 0 ? ago(wastedAgo) : null,
        trouble: trouble === null ? null : { code: "X", message: "x", until: new Date(NOW + trouble).toISOString() },
      },
      {
        settings: { ...settings, slots, max, warm: kept, burst: max - kept },
        ...(machines && { seen: { machines, agoMs: 200 } }),
        shunned: new Set(shunned),
        strayMs: () => stray,
      },
    );
  });

describe("in every situation the plan", () => {
  const always = (what: (given: PlanInput, made: ReturnType<typeof plan>) => void) =>
    fc.assert(
      fc.property(someInput, (given) => what(given, plan(given))),
      RUNS,
    );

  it("takes free places only, each once, and never has more machines than may be", () => {
    always(({ settings, look, shunned }, { actions }) => {
      const starts = actions.flatMap((action) => (action.do === "start" ? [action] : []));
      const ended = actions.filter((action) => action.do === "end").length;
      const taken = look.lives
        .filter(({ id }) => !actions.some((action) => action.do === "end" && action.life.id === id))
        .map(({ slot }) => slot);
      expect(new Set(starts.map(({ slot }) => slot)).size).toBe(starts.length);
      for (const { slot, burst } of starts) {
        expect(slot).toBeGreaterThanOrEqual(1);
        expect(slot).toBeLessThanOrEqual(settings.max);
        expect(taken).not.toContain(slot);
        expect(shunned.has(slot)).toBe(false);
        expect(burst).toBe(slot > settings.warm);
      }
      if (starts.length > 0) expect(look.lives.length - ended + starts.length).toBeLessThanOrEqual(settings.max);
    });
  });

  it("starts nothing without a job that waits, in a paused pool, or while it is blocked", () => {
    always(({ look }, { actions }) => {
      const starts = actions.filter((action) => action.do === "start");
      if (look.claimable === 0 || look.paused !== null || blockedMs(look) > 0) expect(starts).toEqual([]);
      if (look.wastedStarts > 0) expect(starts.length).toBeLessThanOrEqual(1);
    });
  });

  it("starts enough: there is room for every job, or no more machines may be had", () => {
    always(({ settings, look, shunned }, { actions, wanted, current }) => {
      if (look.paused !== null || blockedMs(look) > 0 || look.wastedStarts > 0) return;
      const gone = new Set(
        actions.flatMap((action) =>
          "life" in action && action.do !== "confirm" && action.do !== "repeat" ? [action.life.id] : [],
        ),
      );
      const ended = actions.filter((action) => action.do === "end").length;
      const present = look.lives.filter(
        ({ id, leftAt, retiredAt, silentSince }) => !gone.has(id) && !leftAt && !retiredAt && !silentSince,
      );
      const starts = actions.filter((action) => action.do === "start").length;
      const room =
        present.reduce((sum, one) => sum + Math.max(0, one.slots - one.running), 0) + starts * settings.slots;
      const full = look.lives.length - ended + starts >= settings.max;
      const noPlace = starts + shunned.size + look.lives.length - ended >= settings.max;
      expect(room >= look.claimable || full || noPlace).toBe(true);
      // And no more than that.
      if (starts > 0) expect(room - settings.slots).toBeLessThan(look.claimable);
      expect(current).toBe(present.length);
      expect(wanted).toBeGreaterThanOrEqual(Math.min(current, settings.max));
    });
  });

  it("I11: ends nothing that has a job, and touches no machine of another fleet", () => {
    always(({ look }, { actions }) => {
      for (const action of actions) {
        if (action.do === "retire") expect(action.life.running).toBe(0);
        if (action.do === "remove") {
          expect(slotOf(FLEET, POOL, action.machine.name)).toBeDefined();
          expect(look.lives.map(({ machine }) => machine)).not.toContain(action.machine.name);
        }
      }
    });
  });

  it("does one thing about a life, and leaves what it was given as it was", () => {
    fc.assert(
      fc.property(someInput, (given) => {
        const before = JSON.stringify({ ...given, shunned: [...given.shunned] });
        const { actions } = plan(given);
        const lives = actions.flatMap((action) => ("life" in action ? [action.life.id] : []));
        expect(new Set(lives).size).toBe(lives.length);
        expect(JSON.stringify({ ...given, shunned: [...given.shunned] })).toBe(before);
        expect(plan(given)).toEqual(plan(given));
      }),
      RUNS,
    );
  });

  it("has a time for the next look as long as there is a machine or a job that could have one", () => {
    always(({ look }, { againMs, actions }) => {
      const open = look.lives.filter(
        ({ id }) => !actions.some((action) => action.do === "end" && action.life.id === id),
      );
      if (open.length > 0) expect(againMs).toBeLessThanOrEqual(60_000);
      if (look.lives.length === 0 && (look.claimable === 0 || look.paused !== null)) expect(againMs).toBeUndefined();
    });
  });
});

describe("the name of a machine", () => {
  const pool = fc.stringMatching(/^[a-z0-9][a-z0-9_.:-]{0,99}$/);
  const fleet = fc.stringMatching(/^[a-z0-9]{8}$/);

  it("fits every provider, and is of one fleet, one pool and one place", () => {
    fc.assert(
      fc.property(fleet, pool, fc.integer({ min: 1, max: 999 }), fc.nat({ max: 9_999_999 }), (f, p, slot, serial) => {
        const warm = machineName(f, p, slot);
        const burst = `${warm}-${serial}`;
        expect(burst).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])$/);
        expect([slotOf(f, p, warm), slotOf(f, p, burst)]).toEqual([slot, slot]);
      }),
      RUNS,
    );
  });

  it("of another pool or fleet is no name of this one, however alike they are", () => {
    const alike = ["a", "a-1", "a-m1", "a-m1-5", "a_m1", "a.m1", "m1", "m1-5", "a--m1"];
    for (const one of alike)
      for (const two of alike) {
        if (one === two) continue;
        for (const name of [machineName("00000000", two, 5), `${machineName("00000000", two, 1)}-5`])
          expect(slotOf("00000000", one, name), `${one} and ${name}`).toBeUndefined();
      }
    fc.assert(
      fc.property(fleet, fleet, pool, pool, fc.integer({ min: 1, max: 99 }), (f, g, p, q, slot) => {
        if (f !== g) expect(slotOf(f, p, machineName(g, p, slot))).toBeUndefined();
        if (p !== q) expect(slotOf(f, p, machineName(f, q, slot))).toBeUndefined();
        if (p !== q) expect(poolPrefix(f, p)).not.toBe(poolPrefix(f, q));
      }),
      RUNS,
    );
  });
});
