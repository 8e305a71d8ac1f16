// plan(): which machines to start, to stop and to leave alone. Single cases, then properties checked on random inputs.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { MachineLife, PoolSnapshot } from "../../src/db/calls/machines.ts";
import {
  blockedMs,
  MAX_WASTED_STARTS,
  type Plan,
  type PlanInput,
  plan,
  SKEW_MS,
  STUCK_MS,
  UNCONFIRMED_MS,
} from "../../src/orchestrator/plan.ts";
import { type ListedMachine, machineName, ordinalOf, poolPrefix } from "../../src/orchestrator/provider.ts";
import { local } from "../../src/orchestrator/providers/local/local.ts";
import { readPoolOptions } from "../../src/orchestrator/settings.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const RUNS = { seed: SEED, numRuns: 2000 };
const NOW = Date.parse("2030-05-05T12:00:00Z");
const FLEET = "0a1b2c3d";
const POOL = "scan";

const settings = readPoolOptions(POOL, { provider: local(), warm: 3, max: 5 }, {});
const ago = (ms: number) => new Date(NOW - ms);
const nameOf = (ordinal: number, serial?: number) =>
  `${machineName(FLEET, POOL, ordinal)}${serial ? `-${serial}` : ""}`;

function life(ordinal: number, more: Partial<MachineLife> = {}): MachineLife {
  const burst = ordinal > settings.warm;
  return {
    id: `life ${ordinal}`,
    machine: nameOf(ordinal, burst ? 7 : undefined),
    ordinal,
    burst,
    providerId: null,
    slots: 1,
    running: 0,
    requestedAt: ago(300_000),
    startedAt: ago(299_000),
    registeredAt: ago(298_000),
    idleSince: null,
    silentSince: null,
    leftAt: null,
    retiredAt: null,
    ...more,
  };
}

function input(snapshot: Partial<PoolSnapshot> = {}, more: Partial<PlanInput> = {}): PlanInput {
  return {
    settings,
    snapshot: {
      pool: POOL,
      at: new Date(NOW),
      paused: null,
      claimable: 0,
      running: 0,
      oldest: null,
      nextDue: null,
      wastedStarts: 0,
      wastedStartsAt: null,
      providerError: null,
      lives: [],
      working: [],
      ...snapshot,
    },
    ordinalOf: (name) => ordinalOf(FLEET, POOL, name),
    unavailableOrdinals: new Set(),
    unanswered: new Set(),
    strayMs: () => 0,
    canPrepare: true,
    ...more,
  };
}

const list = (...machines: ListedMachine[]) => ({ machines, agoMs: 100 });
const stopped = (ordinal: number, more: Partial<ListedMachine> = {}): ListedMachine => ({
  name: nameOf(ordinal),
  id: `id${ordinal}`,
  state: "stopped",
  ...more,
});
const decide = (planInput: PlanInput) => plan(planInput).actions.map((action) => action.do);

describe("plan()", () => {
  it("starts one machine per job, warm machines first, then burst machines up to max", () => {
    const { actions, current, wanted } = plan(input({ claimable: 4 }));
    expect(actions).toMatchObject([
      { do: "start", ordinal: 1, burst: false },
      { do: "start", ordinal: 2, burst: false },
      { do: "start", ordinal: 3, burst: false },
      { do: "start", ordinal: 4, burst: true },
    ]);
    expect([current, wanted]).toEqual([0, 4]);
    expect(plan(input({ claimable: 40 })).actions).toHaveLength(5);
    expect(plan(input({ claimable: 40 })).why).toBe(
      "40 jobs are waiting, room for 0; the pool is at its maximum of 5 machines",
    );
  });

  it("counts the free slots of machines that are up or starting", () => {
    const four = { ...settings, slots: 4 };
    const busy = life(1, { slots: 4, running: 3 });
    const coming = life(2, { slots: 4, startedAt: null, registeredAt: null, requestedAt: ago(3000) });
    expect(decide(input({ claimable: 5, lives: [busy, coming] }, { settings: four }))).toEqual([]);
    expect(decide(input({ claimable: 6, lives: [busy, coming] }, { settings: four }))).toEqual(["start"]);
    expect(decide(input({ claimable: 10, lives: [busy, coming] }, { settings: four }))).toEqual(["start", "start"]);
  });

  it("ignores the free slots of machines that have left, are retired or are overdue", () => {
    const left = life(1, { leftAt: ago(1000) });
    const retired = life(2, { retiredAt: ago(1000) });
    const late = life(3, { registeredAt: null, startedAt: ago(200_000) });
    const silent = life(1, { silentSince: ago(1000) });
    expect(plan(input({ claimable: 1, lives: [silent] })).actions).toMatchObject([{ do: "start", ordinal: 2 }]);
    const { actions, needsListing } = plan(input({ claimable: 1, lives: [left, retired] }));
    expect(actions).toMatchObject([{ do: "start", ordinal: 3 }]);
    expect(needsListing, "only the provider knows their state").toBe(true);
    const machine = stopped(3, { state: "running" });
    expect(plan(input({ claimable: 1, lives: [late] }, { listing: list(machine) })).actions).toMatchObject([
      { do: "retire", why: "its worker never registered" },
      { do: "prepare", ordinal: 1 },
      { do: "prepare", ordinal: 2 },
      { do: "start", ordinal: 1 },
    ]);
  });

  it("starts nothing in a paused pool or after a provider error, and returns the reason", () => {
    const paused = plan(input({ claimable: 3, paused: "The budget is used up" }));
    expect(paused).toMatchObject({
      actions: [],
      why: "3 jobs are waiting, room for 0; the pool is paused: The budget is used up",
      checkAgainMs: undefined,
    });
    const providerError = {
      code: "PROVIDER_AUTH",
      message: "Fly rejects the token",
      until: new Date(NOW + 90_000).toISOString(),
    };
    const blocked = plan(input({ claimable: 1, providerError }));
    expect(blocked).toMatchObject({ actions: [], checkAgainMs: 60_000 });
    expect(blocked.why).toContain("starts are paused for 90 s: Fly rejects the token");
    expect(
      decide(input({ claimable: 1, providerError: { ...providerError, until: new Date(NOW - 1).toISOString() } })),
    ).toEqual(["start"]);
  });

  it("starts one machine at a time after a wasted start, and pauses with doubling delays after three in a row", () => {
    expect(decide(input({ claimable: 5, wastedStarts: 1, wastedStartsAt: ago(10) }))).toEqual(["start"]);
    expect(
      decide(
        input({
          claimable: 5,
          wastedStarts: 2,
          wastedStartsAt: ago(10),
          lives: [life(1, { registeredAt: null, startedAt: ago(1000), requestedAt: ago(2000) })],
        }),
      ),
    ).toEqual([]);
    const over = life(1, { idleSince: ago(600_000) });
    const ending = plan(
      input(
        { claimable: 1, wastedStarts: 1, wastedStartsAt: ago(10), lives: [over] },
        { listing: list(stopped(1, { state: "running" }), stopped(2), stopped(3)) },
      ),
    );
    expect(
      ending.actions.map((action) => action.do),
      "the machine that ends now may be another wasted start",
    ).toEqual(["retire"]);
    const pauses = [MAX_WASTED_STARTS, MAX_WASTED_STARTS + 1, MAX_WASTED_STARTS + 2, MAX_WASTED_STARTS + 20].map(
      (wastedStarts) => blockedMs(input({ wastedStarts, wastedStartsAt: ago(0) }).snapshot),
    );
    expect(pauses).toEqual([600_000, 1_200_000, 2_400_000, 6 * 3_600_000]);
    expect(decide(input({ claimable: 1, wastedStarts: MAX_WASTED_STARTS, wastedStartsAt: ago(599_000) }))).toEqual([]);
    expect(decide(input({ claimable: 1, wastedStarts: MAX_WASTED_STARTS, wastedStartsAt: ago(601_000) }))).toEqual([
      "start",
    ]);
  });

  it("uses another ordinal when a machine could not be started", () => {
    expect(plan(input({ claimable: 1 }, { unavailableOrdinals: new Set([1, 2]) })).actions).toMatchObject([
      { do: "start", ordinal: 3 },
    ]);
    const none = plan(input({ claimable: 1 }, { unavailableOrdinals: new Set([1, 2, 3, 4, 5]) }));
    expect(none).toMatchObject({ actions: [], checkAgainMs: 5000 });
    expect(none.why).toContain("the remaining machines failed to start recently");
  });

  it("closes a life when the provider lists its machine as ended, but not because of an outdated list", () => {
    const up = life(1);
    expect(decide(input({ lives: [up] }, { listing: list(stopped(1), stopped(2), stopped(3)) }))).toEqual(["end"]);
    const fresh = life(1, { requestedAt: ago(3000), startedAt: ago(2000), registeredAt: null });
    const warm = [stopped(2), stopped(3)];
    expect(
      decide(input({ lives: [fresh] }, { listing: list(stopped(1), ...warm) })),
      "listed while it was being started",
    ).toEqual([]);
    const asked = life(1, { requestedAt: ago(12_000), startedAt: null, registeredAt: null });
    const oom = stopped(1, { startedAt: ago(90_000), endedAt: ago(80_000), exit: { oom: true } });
    expect(decide(input({ lives: [asked] }, { listing: list(oom, ...warm) })), "its start is in progress").toEqual([]);
    const over = stopped(1, { startedAt: ago(2000), endedAt: ago(500), exit: { code: 1 } });
    expect(plan(input({ lives: [fresh] }, { listing: list(over, ...warm) })).actions).toMatchObject([
      { do: "end", exit: { code: 1 } },
    ]);
    const before = stopped(1, { startedAt: ago(90_000), endedAt: ago(80_000) });
    expect(
      decide(input({ lives: [fresh] }, { listing: list(before, ...warm) })),
      "the end of the previous life",
    ).toEqual([]);
  });

  it("trusts a lease more than a list without the machine", () => {
    const warm = list(stopped(2), stopped(3));
    expect(decide(input({ lives: [life(1, { running: 1 })] }, { listing: warm }))).toEqual([]);
    expect(decide(input({ lives: [life(1)] }, { listing: warm }))).toEqual(["end"]);
  });

  it("requests a machine again whose start was never confirmed, and adopts it when it is listed", () => {
    const lost = life(4, { startedAt: null, registeredAt: null, requestedAt: ago(UNCONFIRMED_MS + 1000) });
    const warm = [stopped(1), stopped(2), stopped(3)];
    expect(plan(input({ lives: [lost] }))).toMatchObject({ actions: [], needsListing: true });
    expect(decide(input({ lives: [lost] }, { listing: list(...warm) }))).toEqual(["repeat"]);
    const soon = life(4, { startedAt: null, registeredAt: null, requestedAt: ago(20_000) });
    expect(
      decide(input({ lives: [soon] }, { listing: list(...warm) })),
      "another orchestrator may be starting it",
    ).toEqual([]);
    expect(decide(input({ lives: [soon] }, { listing: list(...warm), unanswered: new Set([soon.id]) }))).toEqual([
      "repeat",
    ]);
    const there: ListedMachine = { name: lost.machine, id: "x", state: "running" };
    expect(decide(input({ lives: [lost] }, { listing: list(...warm, there) }))).toEqual(["confirm"]);
    const older = { ...lost, requestedAt: ago(settings.bootMs + UNCONFIRMED_MS + SKEW_MS + 1000) };
    expect(decide(input({ lives: [older] }, { listing: list(...warm) })), "it was never created").toEqual(["end"]);
  });

  it("removes strays: stopped machines that are not warm, outdated ones, those running without a worker, and nothing else", () => {
    const burst: ListedMachine = { name: nameOf(4, 12), id: "b", state: "stopped" };
    const running: ListedMachine = { name: nameOf(5, 13), id: "r", state: "running" };
    const foreign: ListedMachine = { name: "sw-ffffffff-scan-m1", id: "f", state: "stopped" };
    const machines = [stopped(1), stopped(2, { stale: true }), stopped(3), burst, running, foreign];
    const removed = (strayMs: number) =>
      plan(input({}, { listing: list(...machines), strayMs: () => strayMs })).actions.flatMap((action) =>
        action.do === "remove" ? [action.machine.id] : [],
      );
    expect(removed(0)).toEqual(["id2", "b"]);
    expect(removed(10 * 60_000)).toEqual(["id2", "b", "r"]);
    const working = plan(input({ working: [running.name] }, { listing: list(running), strayMs: () => 10 * 60_000 }));
    expect(
      working.actions.filter((action) => action.do === "remove"),
      "it has a job, although it has no life",
    ).toEqual([]);
  });

  it("creates missing warm machines, if it has a list", () => {
    expect(decide(input({}, { listing: list(stopped(2)) }))).toEqual(["prepare", "prepare"]);
    expect(decide(input())).toEqual([]);
    expect(decide(input({}, { listing: list(stopped(2)), canPrepare: false }))).toEqual([]);
  });

  it("retires an idle machine that does not exit and a stuck one, but none with a job", () => {
    const idle = life(1, { idleSince: ago(60_000 + 30_000 + 61_000) });
    expect(plan(input({ lives: [idle] }))).toMatchObject({ needsListing: true, actions: [] });
    const at = { state: "running" as const };
    const warm = [stopped(2), stopped(3)];
    expect(decide(input({ lives: [idle] }, { listing: list(stopped(1, at), ...warm) }))).toEqual(["retire"]);
    expect(decide(input({ lives: [{ ...idle, running: 1 }] }, { listing: list(stopped(1, at), ...warm) }))).toEqual([]);
    const stuck = stopped(1, { state: "stopping", since: ago(STUCK_MS + 1000) });
    expect(decide(input({ lives: [life(1)] }, { listing: list(stuck, ...warm) }))).toEqual(["retire"]);
    expect(decide(input({ lives: [life(1, { running: 1 })] }, { listing: list(stuck, ...warm) }))).toEqual([]);
  });

  it("needs no poll without work, and a quick one while a machine is starting or leaving", () => {
    expect(plan(input())).toMatchObject({ actions: [], needsListing: false, checkAgainMs: undefined });
    expect(plan(input({ lives: [life(1, { running: 1 })] })).checkAgainMs).toBe(15_000);
    expect(plan(input({ lives: [life(1, { leftAt: ago(1) })] })).checkAgainMs).toBe(2000);
  });
});

const someLife = (ordinal: number) =>
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
      life(ordinal, {
        slots,
        running: arrived === null ? 0 : Math.min(running, slots),
        requestedAt: ago(asked),
        startedAt: started === null ? null : ago(Math.max(0, asked - started)),
        registeredAt: arrived === null ? null : ago(Math.max(0, asked - (started ?? 0) - arrived)),
        silentSince: silent === null || running > 0 ? null : ago(Math.min(asked, silent)),
        idleSince: idle === null || running > 0 ? null : ago(Math.min(asked, idle)),
        leftAt: left === null || running > 0 ? null : ago(Math.min(asked, left)),
        retiredAt: retired === null || running > 0 ? null : ago(Math.min(asked, retired)),
      }),
    );

const someMachine = fc
  .record({
    ordinal: fc.integer({ min: 1, max: 7 }),
    burst: fc.boolean(),
    state: fc.constantFrom("stopped", "starting", "running", "stopping", "gone"),
    since: fc.nat({ max: 900_000 }),
    stale: fc.boolean(),
    ours: fc.boolean(),
  })
  .map(({ ordinal, burst, state, since, stale, ours }): ListedMachine => {
    const name = nameOf(ordinal, burst ? 7 : undefined);
    return {
      name: ours ? name : name.replace(FLEET, "ffffffff"),
      id: `${name} ${ours}`,
      state,
      since: ago(since),
      stale,
    } as ListedMachine;
  });

const someInput = fc
  .record({
    lives: fc.uniqueArray(fc.integer({ min: 1, max: 5 })).chain((ordinals) => fc.tuple(...ordinals.map(someLife))),
    claimable: fc.nat({ max: 12 }),
    paused: fc.option(fc.constant("by an operator")),
    wastedStarts: fc.nat({ max: 5 }),
    wastedAgo: fc.nat({ max: 3_600_000 }),
    providerError: fc.option(fc.integer({ min: -60_000, max: 300_000 })),
    machines: fc.option(fc.uniqueArray(someMachine, { selector: ({ id }) => id, maxLength: 8 })),
    unavailable: fc.uniqueArray(fc.integer({ min: 1, max: 5 }), { maxLength: 3 }),
    stray: fc.nat({ max: 900_000 }),
    warm: fc.nat({ max: 5 }),
    max: fc.integer({ min: 1, max: 5 }),
    slots: fc.constantFrom(1, 2, 4),
  })
  .map(
    ({
      lives,
      claimable,
      paused,
      wastedStarts,
      wastedAgo,
      providerError,
      machines,
      unavailable,
      stray,
      warm,
      max,
      slots,
    }) => {
      const kept = Math.min(warm, max);
      return input(
        {
          lives,
          claimable,
          paused,
          wastedStarts,
          wastedStartsAt: wastedStarts > 0 ? ago(wastedAgo) : null,
          providerError:
            providerError === null
              ? null
              : { code: "X", message: "x", until: new Date(NOW + providerError).toISOString() },
        },
        {
          settings: { ...settings, slots, max, warm: kept, burst: max - kept },
          ...(machines && { listing: { machines, agoMs: 200 } }),
          unavailableOrdinals: new Set(unavailable),
          strayMs: () => stray,
        },
      );
    },
  );

describe("for every input, plan()", () => {
  const always = (check: (planInput: PlanInput, result: Plan) => void) =>
    fc.assert(
      fc.property(someInput, (planInput) => check(planInput, plan(planInput))),
      RUNS,
    );

  it("uses only free ordinals, each once, and never exceeds max", () => {
    always(({ settings, snapshot, unavailableOrdinals }, { actions }) => {
      const starts = actions.flatMap((action) => (action.do === "start" ? [action] : []));
      const ended = actions.filter((action) => action.do === "end").length;
      const taken = snapshot.lives
        .filter(({ id }) => !actions.some((action) => action.do === "end" && action.life.id === id))
        .map(({ ordinal }) => ordinal);
      expect(new Set(starts.map(({ ordinal }) => ordinal)).size).toBe(starts.length);
      for (const { ordinal, burst } of starts) {
        expect(ordinal).toBeGreaterThanOrEqual(1);
        expect(ordinal).toBeLessThanOrEqual(settings.max);
        expect(taken).not.toContain(ordinal);
        expect(unavailableOrdinals.has(ordinal)).toBe(false);
        expect(burst).toBe(ordinal > settings.warm);
      }
      if (starts.length > 0) expect(snapshot.lives.length - ended + starts.length).toBeLessThanOrEqual(settings.max);
    });
  });

  it("starts nothing without a waiting job, in a paused pool, or while starts are blocked", () => {
    always(({ snapshot }, { actions }) => {
      const starts = actions.filter((action) => action.do === "start");
      if (snapshot.claimable === 0 || snapshot.paused !== null || blockedMs(snapshot) > 0) expect(starts).toEqual([]);
      if (snapshot.wastedStarts > 0) expect(starts.length).toBeLessThanOrEqual(1);
    });
  });

  it("starts exactly enough: every job has a slot, or the pool is full", () => {
    always(({ settings, snapshot, unavailableOrdinals }, { actions, wanted, current }) => {
      if (snapshot.paused !== null || blockedMs(snapshot) > 0 || snapshot.wastedStarts > 0) return;
      const gone = new Set(
        actions.flatMap((action) =>
          "life" in action && action.do !== "confirm" && action.do !== "repeat" ? [action.life.id] : [],
        ),
      );
      const ended = actions.filter((action) => action.do === "end").length;
      const present = snapshot.lives.filter(
        ({ id, leftAt, retiredAt, silentSince }) => !gone.has(id) && !leftAt && !retiredAt && !silentSince,
      );
      const starts = actions.filter((action) => action.do === "start").length;
      const room =
        present.reduce((sum, life) => sum + Math.max(0, life.slots - life.running), 0) + starts * settings.slots;
      const full = snapshot.lives.length - ended + starts >= settings.max;
      const hasNoOrdinal = starts + unavailableOrdinals.size + snapshot.lives.length - ended >= settings.max;
      expect(room >= snapshot.claimable || full || hasNoOrdinal).toBe(true);
      if (starts > 0) expect(room - settings.slots).toBeLessThan(snapshot.claimable);
      expect(current).toBe(present.length);
      expect(wanted).toBeGreaterThanOrEqual(Math.min(current, settings.max));
    });
  });

  it("stops nothing that has a job, and touches no machine of another fleet", () => {
    always(({ snapshot }, { actions }) => {
      for (const action of actions) {
        if (action.do === "retire") expect(action.life.running).toBe(0);
        if (action.do === "remove") {
          expect(ordinalOf(FLEET, POOL, action.machine.name)).toBeDefined();
          expect(snapshot.lives.map(({ machine }) => machine)).not.toContain(action.machine.name);
        }
      }
    });
  });

  it("returns at most one action per life, and does not modify its input", () => {
    fc.assert(
      fc.property(someInput, (planInput) => {
        const before = JSON.stringify({ ...planInput, ordinals: [...planInput.unavailableOrdinals] });
        const { actions } = plan(planInput);
        const lives = actions.flatMap((action) => ("life" in action ? [action.life.id] : []));
        expect(new Set(lives).size).toBe(lives.length);
        expect(JSON.stringify({ ...planInput, ordinals: [...planInput.unavailableOrdinals] })).toBe(before);
        expect(plan(planInput)).toEqual(plan(planInput));
      }),
      RUNS,
    );
  });

  it("schedules the next poll as long as there is a machine, or a job that could get one", () => {
    always(({ snapshot }, { checkAgainMs, actions }) => {
      const open = snapshot.lives.filter(
        ({ id }) => !actions.some((action) => action.do === "end" && action.life.id === id),
      );
      if (open.length > 0) expect(checkAgainMs).toBeLessThanOrEqual(60_000);
      if (snapshot.lives.length === 0 && (snapshot.claimable === 0 || snapshot.paused !== null))
        expect(checkAgainMs).toBeUndefined();
    });
  });
});

describe("a machine name", () => {
  const pool = fc.stringMatching(/^[a-z0-9][a-z0-9_.:-]{0,99}$/);
  const fleet = fc.stringMatching(/^[a-z0-9]{8}$/);

  it("is valid for every provider and identifies fleet, pool and ordinal", () => {
    fc.assert(
      fc.property(
        fleet,
        pool,
        fc.integer({ min: 1, max: 999 }),
        fc.nat({ max: 9_999_999 }),
        (f, p, ordinal, serial) => {
          const warm = machineName(f, p, ordinal);
          const burst = `${warm}-${serial}`;
          expect(burst).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])$/);
          expect([ordinalOf(f, p, warm), ordinalOf(f, p, burst)]).toEqual([ordinal, ordinal]);
        },
      ),
      RUNS,
    );
  });

  it("of another pool or fleet never matches, even if the names are similar", () => {
    const similar = ["a", "a-1", "a-m1", "a-m1-5", "a_m1", "a.m1", "m1", "m1-5", "a--m1"];
    for (const pool of similar)
      for (const other of similar) {
        if (pool === other) continue;
        for (const name of [machineName("00000000", other, 5), `${machineName("00000000", other, 1)}-5`])
          expect(ordinalOf("00000000", pool, name), `${pool} and ${name}`).toBeUndefined();
      }
    fc.assert(
      fc.property(fleet, fleet, pool, pool, fc.integer({ min: 1, max: 99 }), (f, g, p, q, ordinal) => {
        if (f !== g) expect(ordinalOf(f, p, machineName(g, p, ordinal))).toBeUndefined();
        if (p !== q) expect(ordinalOf(f, p, machineName(f, q, ordinal))).toBeUndefined();
        if (p !== q) expect(poolPrefix(f, p)).not.toBe(poolPrefix(f, q));
      }),
      RUNS,
    );
  });
});
