// Machines on Fly, on a fake of its API that fails as it is told: each row of the table of edge cases, the waits between tries, and that nothing is made twice,
// lost, or touched that is not ours. Nobody waits here: waits are counted on a clock of the test.
import { afterEach, describe, expect, it } from "vitest";
import { machineName } from "../../src/orchestrator/names.ts";
import type { Order, Provider, ProviderError } from "../../src/orchestrator/provider.ts";
import { fly } from "../../src/orchestrator/providers/fly/fly.ts";
import { guestOf } from "../../src/orchestrator/providers/fly/size.ts";
import { tokenWarnings } from "../../src/orchestrator/providers/fly/token.ts";
import { recordFigure } from "../support/figures.ts";
import { type FakeFly, type FakeFlyOptions, startFakeFly } from "../support/providers/fake-fly.ts";
import { dice, type Fault, type TestTime, testTime } from "../support/providers/fake-provider-api.ts";

const FLEET = "1a2b3c4d";
const POOL = "scan";
const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);
const GiB = 1024;

interface Stage {
  fake: FakeFly;
  time: TestTime;
  provider: Provider;
  said: string[];
  another(options?: { pool?: string; fleet?: string; image?: string; region?: string[] }): Provider;
}

let stage: Stage | undefined;

afterEach(async () => {
  const { fake } = stage ?? {};
  stage = undefined;
  await fake?.close();
  expect(fake?.violations ?? []).toEqual([]);
});

async function open(options: FakeFlyOptions & { region?: string[] } = {}): Promise<Stage> {
  const time = testTime();
  const fake = await startFakeFly({ now: time.now, onStuck: time.giveUp, ...options });
  const said: string[] = [];
  const another: Stage["another"] = (own = {}) =>
    fly({
      app: fake.app,
      token: fake.token,
      image: own.image ?? "registry.fly.io/workers:v1",
      size: "performance-8x",
      memoryMb: 64 * GiB,
      region: own.region ?? options.region ?? ["iad"],
      env: { NODE_OPTIONS: "--max-old-space-size=4096" },
      base: fake.url,
      timeout: "20s",
      fetch: time.fetch,
    })({
      fleet: own.fleet ?? FLEET,
      pool: own.pool ?? POOL,
      slots: 1,
      graceMs: 30_000,
      clock: time,
      say: (_, message) => said.push(message),
    });
  stage = { fake, time, said, another, provider: another() };
  return stage;
}

function order(slot: number, burst?: number): Order {
  const name = machineName(FLEET, POOL, slot) + (burst === undefined ? "" : `-${burst}`);
  return { name, burst: burst !== undefined, env: { STILLWAKE_MACHINE: name, STILLWAKE_POOL: POOL } };
}

/** A warm machine that has run once and is stopped. */
async function warm(slot: number, { provider, fake }: Stage = stage!): Promise<string> {
  const { name } = order(slot);
  await provider.prepare!(order(slot));
  fake.exit(name, { code: 0 });
  return name;
}

async function failure(work: Promise<unknown>): Promise<ProviderError> {
  return work.then(
    () => expect.fail("It should have failed"),
    (error: ProviderError) => error,
  );
}

const status = (code: number, more: Partial<Extract<Fault, { kind: "status" }>> = {}): Fault => ({
  kind: "status",
  status: code,
  ...more,
});

describe("what is made", () => {
  it("makes a warm machine that stays when its worker ends, and starts the same one again", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    expect(await provider.list()).toMatchObject([{ name, state: "stopped", exit: { code: 0 } }]);
    const { id } = await provider.start(order(1));
    expect(fake.machine(name)).toMatchObject({ id, state: "started", starts: 2 });
    expect(fake.machines).toHaveLength(1);
    expect(fake.machine(name).config).toMatchObject({
      image: "registry.fly.io/workers:v1",
      env: { NODE_OPTIONS: "--max-old-space-size=4096", STILLWAKE_MACHINE: name, STILLWAKE_POOL: POOL },
      guest: { cpu_kind: "performance", cpus: 8, memory_mb: 64 * GiB },
      auto_destroy: false,
      restart: { policy: "no" },
      stop_config: { signal: "SIGTERM", timeout: "30s" },
      metadata: { stillwake_fleet: FLEET, stillwake_pool: POOL },
    });
  });

  it("makes a burst machine that destroys itself, and learns of its end although it is not listed any more", async () => {
    const { provider, fake, time } = await open();
    const { name } = order(4, 17);
    const { id } = await provider.start(order(4, 17));
    expect(fake.machine(name).config).toMatchObject({ auto_destroy: true, restart: { policy: "no" } });
    time.advance(60_000);
    fake.exit(name, { code: 3 });
    expect(fake.machine(name).state).toBe("destroyed");
    const times = { startedAt: new Date(time.now() - 60_000), endedAt: new Date(time.now()) };
    for (let n = 0; n < 3; n++) {
      expect(await provider.list()).toEqual([{ name, id, state: "gone", exit: { code: 3 }, ...times }]);
    }
    expect(await provider.autopsy!({ name, id })).toEqual({ code: 3 });
    expect(fake.count("create")).toBe(1);
    expect(fake.count("get"), "read once, and told for a while").toBe(2);
    time.advance(11 * 60_000);
    expect(await provider.list()).toEqual([]);
  });

  it("does not start a crashed worker over and over: a machine that crashed is stopped", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1));
    fake.exit(order(1).name, { code: 1 });
    expect(await provider.list()).toMatchObject([{ state: "stopped", exit: { code: 1 } }]);
    expect(fake.machine(order(1).name).starts).toBe(1);
  });

  it("names a machine that ran out of memory, with how much it had", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1));
    fake.exit(order(1).name, { code: 137, oom: true });
    const [machine] = await provider.list();
    expect(machine!.exit).toEqual({ code: 137, oom: true, memory: "64 GB" });
    expect(machine!.endedAt).toEqual(new Date(fake.machine(order(1).name).updatedAt));
    const { id } = await provider.start(order(2, 1));
    fake.exit(order(2, 1).name, { code: 137, oom: true });
    expect(await provider.autopsy!({ name: order(2, 1).name, id })).toMatchObject({ oom: true, memory: "64 GB" });
  });

  it("takes a machine of older settings for stale, and makes it anew instead of starting it", async () => {
    const { fake, another } = await open();
    const name = await warm(1);
    const newer = another({ image: "registry.fly.io/workers:v2" });
    expect(await newer.list()).toMatchObject([{ name, state: "stopped", stale: true }]);
    await newer.start(order(1));
    expect(fake.alive()).toMatchObject([{ name, state: "started", config: { image: "registry.fly.io/workers:v2" } }]);
    expect((await newer.list())[0]!.stale).toBeUndefined();
  });

  it("never updates a machine", async () => {
    const { fake } = await open();
    // The fake knows no such call, and every call it does not know is a violation: the other tests would tell.
    const answer = await fetch(`${fake.url}/apps/${fake.app}/machines/1`, { method: "POST", body: "{}" });
    expect(answer.status).toBe(404);
    expect(fake.violations.splice(0)).toEqual([`POST /apps/${fake.app}/machines/1: there is no such operation`]);
  });

  it("reads every state of theirs", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1));
    const states = {
      starting: ["creating", "created", "starting", "restarting", "updating", "replacing"],
      running: ["started"],
      stopping: ["stopping", "suspending", "destroying"],
      stopped: ["stopped", "suspended", "failed", "launch_failed"],
      gone: ["replaced", "migrated"],
    };
    for (const [ours, theirs] of Object.entries(states)) {
      for (const state of theirs) {
        fake.move(order(1).name, state);
        const [machine] = await provider.list();
        expect({ state, ours: machine!.state }).toEqual({ state, ours });
        const passes = ours === "starting" || ours === "stopping";
        // An update has ten minutes where all else has five.
        const more = state === "updating" ? 5 * 60_000 : 0;
        expect(machine!.since?.getTime()).toBe(passes ? fake.machine(order(1).name).updatedAt + more : undefined);
        expect(machine!.stale ?? false).toBe(state.endsWith("failed"));
      }
    }
  });
});

describe("the table of edge cases", () => {
  it("all machines busy: a burst machine is made, up to the configured total", async () => {
    const { provider, fake } = await open();
    for (const slot of [1, 2, 3]) await warm(slot);
    await Promise.all([1, 2, 3].map((slot) => provider.start(order(slot))));
    await Promise.all([4, 5].map((slot) => provider.start(order(slot, slot))));
    expect(fake.alive().map(({ config, state }) => [config.auto_destroy, state])).toEqual([
      ...Array(3).fill([false, "started"]),
      ...Array(2).fill([true, "started"]),
    ]);
  });

  it("API unreachable / 5xx: 3 tries, 1 s, 2 s, 4 s; then it is said, and is not certain", async () => {
    for (const code of [500, 502, 503]) {
      const { provider, fake, time } = await open();
      fake.fail("create", ...Array(4).fill(status(code, { body: "<html>Bad gateway</html>" })));
      const error = await failure(provider.start(order(1, 1)));
      expect(error).toMatchObject({ trouble: "unreachable", certain: false, code: "PROVIDER_UNREACHABLE" });
      expect(error.message).toMatch(/Fly gives no answer .* 50\d .*\(request 01FAKE/);
      expect(time.waits).toEqual([1000, 2000, 4000]);
      expect(fake.count("create")).toBe(4);
      expect(fake.alive()).toEqual([]);
      await fake.close();
    }
  });

  it("API unreachable: where nobody can have heard it, it is certain that nothing was started", async () => {
    const { provider, fake, time } = await open();
    await fake.close();
    expect(await failure(provider.start(order(1, 1)))).toMatchObject({ trouble: "unreachable", certain: true });
    expect(await failure(provider.list())).toMatchObject({ trouble: "unreachable" });
    expect(time.waits).toEqual([1000, 2000, 4000, 1000, 2000, 4000]);
  });

  it("API unreachable / 5xx for a while: the third try succeeds, and there is one machine", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(500), { kind: "reset" });
    await provider.start(order(1, 1));
    expect(time.waits).toEqual([1000, 2000]);
    expect(fake.alive()).toHaveLength(1);
  });

  it.each([
    ["with Retry-After", 7, [7000]],
    ["without", undefined, [2000]],
  ])("429 %s: waits Retry-After, or 2 s", async (_, retryAfter, waits) => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(429, retryAfter === undefined ? {} : { retryAfter }));
    await provider.start(order(1, 1));
    expect(time.waits).toEqual(waits);
    expect(fake.alive()).toHaveLength(1);
    // A call that was refused for its number has done nothing: nobody need look.
    expect(fake.count("list")).toBe(0);
  });

  it("429 for too long: it is said when to come back, and that nothing was started", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(429, { retryAfter: 90 }));
    expect(await failure(provider.start(order(1, 1)))).toMatchObject({
      trouble: "rate",
      certain: true,
      retryAfterMs: 90_000,
    });
    expect(time.waits).toEqual([]);
  });

  it.each(["failed", "launch_failed"])(
    "a machine fails to start (%s): it is made again under its name",
    async (state) => {
      const { provider, fake } = await open();
      const name = await warm(1);
      const before = fake.machine(name).id;
      fake.move(name, state);
      const { id } = await provider.start(order(1));
      expect(id).not.toBe(before);
      expect(fake.alive()).toMatchObject([{ id, state: "started" }]);
    },
  );

  it("a machine fails to start because its host is full: another from the pool may", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    fake.full.add("iad");
    const error = await failure(provider.start(order(1)));
    expect(error).toMatchObject({ trouble: "unstartable", certain: true });
    expect(error.message).toContain("insufficient resources");
    expect(fake.machine(name).state).toBe("stopped");
  });

  it("a machine fails to start because its host is gone: it is seen and not touched", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    await provider.list();
    fake.machine(name).hostStatus = "unreachable";
    const calls = fake.calls.length;
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "unstartable", certain: true });
    expect(fake.calls.slice(calls).map(({ method }) => method)).not.toContain("POST");
  });

  it("a machine fails to start from the state created, as one that was made by half: it is removed, and another may", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", { kind: "half" });
    const { name } = order(1);
    await provider.prepare!(order(1));
    expect(fake.machine(name).state).toBe("created");
    // At first it may only be slow.
    await provider.start(order(1));
    expect(fake.count("start")).toBe(0);
    time.advance(90_000);
    const error = await failure(provider.start(order(1)));
    expect(error).toMatchObject({ trouble: "unstartable", certain: true });
    expect(error.message).toContain("unable to start machine from current state: 'created'");
    expect(fake.alive()).toEqual([]);
    await provider.start(order(1));
    expect(fake.alive()).toMatchObject([{ name, state: "started" }]);
  });

  it("a machine that is still ending is not waited for: another from the pool may", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    for (const state of ["stopping", "destroying"]) {
      fake.move(name, state);
      expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "unstartable", certain: true });
    }
    expect(fake.count("start")).toBe(0);
  });

  it("a machine that hangs in a state is told with the time since when", async () => {
    const { provider, fake, time } = await open();
    const name = await warm(1);
    fake.machine(name).wedged = true;
    await provider.start(order(1));
    const since = new Date(time.now());
    time.advance(6 * 60_000);
    expect(await provider.list()).toMatchObject([{ name, state: "starting", since }]);
  });

  it("401: critical, at once, and no storm of tries", async () => {
    const { provider, fake, time } = await open();
    fake.fail("*", ...Array(3).fill(status(401)));
    for (const work of [() => provider.start(order(1, 1)), () => provider.list(), () => provider.start(order(2))]) {
      const error = await failure(work());
      expect(error).toMatchObject({ trouble: "auth", certain: true, code: "PROVIDER_AUTH" });
      expect(error.remedy).toContain("fly tokens create deploy --app workers");
      expect(error.message).not.toContain(fake.token);
    }
    expect(time.waits).toEqual([]);
    expect(fake.calls).toHaveLength(3);
  });

  it("no room in a region: the next one is tried, in order, and only then is it capacity", async () => {
    const { provider, fake, said } = await open({ region: ["iad", "ewr", "ord"] });
    fake.full.add("iad");
    fake.full.add("ewr");
    const { id } = await provider.start(order(1, 1));
    expect(await provider.start(order(1, 1)), "where it is, if not in the first").toEqual({ id, region: "ord" });
    expect(fake.alive()).toMatchObject([{ id, region: "ord" }]);
    expect(said).toHaveLength(2);
    fake.full.add("ord");
    const error = await failure(provider.start(order(2, 2)));
    expect(error).toMatchObject({ trouble: "capacity", certain: true });
    expect(error.message).toContain("in iad, ewr, ord");
    expect(fake.alive()).toHaveLength(1);
  });

  it("what makes no sense to them is refused at once, in their words", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(400, { message: "invalid config.guest" }));
    const error = await failure(provider.start(order(1, 1)));
    expect(error).toMatchObject({ trouble: "refused", certain: true });
    expect(error.message).toContain("invalid config.guest");
    expect(time.waits).toEqual([]);
  });
});

describe("T44: a call whose answer never came", () => {
  it.each<[string, Fault, number]>([
    ["refused by something in between", status(502, { body: "<html>Bad gateway</html>" }), 2],
    ["done and refused by something in between", status(502, { body: "<html>Bad gateway</html>", done: true }), 1],
    ["not answered", { kind: "hang" }, 2],
    ["done and the answer lost", { kind: "lost" }, 1],
    ["done and answered after the client gave up", { kind: "late" }, 1],
    ["done after we looked and before it is sent again", { kind: "belated", calls: 1 }, 2],
    ["done after it was sent again", { kind: "belated" }, 2],
  ])("create, %s: one machine, adopted by name", async (_, fault, creates) => {
    const { provider, fake } = await open();
    fake.fail("create", fault);
    const { id } = await provider.start(order(1, 1));
    await fake.settled();
    expect(fake.alive()).toMatchObject([{ id, name: order(1, 1).name, state: "started", starts: 1 }]);
    // What is there is found by looking; what is not is made again.
    expect(fake.count("create")).toBe(creates);
    expect(fake.count("list")).toBe(1);
  });

  it.each<[string, Fault]>([
    ...(["hang", "lost", "late", "belated"] as const).map((kind): [string, Fault] => [kind, { kind }]),
    ["done and answered 502", status(502, { done: true })],
  ])("start, %s: the same machine runs once", async (_, fault) => {
    const { provider, fake } = await open();
    const name = await warm(1);
    fake.fail("start", fault);
    const { id } = await provider.start(order(1));
    await fake.settled();
    expect(fake.alive()).toMatchObject([{ id, name, state: "started", starts: 2 }]);
  });

  it("create, lost, and the list fails too: the name is refused the second time, and its machine adopted", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" });
    fake.fail("list", status(500));
    const { id } = await provider.start(order(1, 1));
    expect(fake.calls.map(({ operation, status }) => [operation, status])).toEqual([
      ["create", 0],
      ["list", 500],
      ["create", 409],
      ["get", 200],
    ]);
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("409 that names no id: the machine is found in the list", async () => {
    const { provider, fake } = await open();
    const { id } = await provider.start(order(1, 1));
    fake.fail("create", status(409, { message: "already_exists: name" }));
    const again = stage!.another();
    expect(await again.start(order(1, 1))).toEqual({ id });
  });

  it("create, lost, and 409 without an id while the list lags: it is not certain, and no stranger's", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, status(409, { message: "already_exists: name" }));
    fake.fail("list", status(200, { body: [] }), status(200, { body: [] }));
    const error = await failure(provider.start(order(1, 1)));
    expect(error).toMatchObject({ trouble: "unstartable", certain: false });
    expect(error.message).not.toContain("not of this fleet");
    const { id } = await provider.start(order(1, 1));
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("create, lost, and it has run and gone before it is asked again: it is not certain that it never ran", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, status(409, { message: "already_exists: machine ID 0000" }));
    fake.fail("list", status(500));
    const machine = {
      id: "0000",
      name: order(1, 1).name,
      state: "destroyed",
      region: "iad",
      created_at: "",
      updated_at: "",
    };
    const tags = { stillwake_fleet: FLEET, stillwake_pool: POOL };
    fake.fail("get", status(200, { body: { ...machine, config: { image: "a", metadata: tags } } }));
    expect(await failure(provider.start(order(1, 1)))).toMatchObject({ trouble: "unstartable", certain: false });
  });

  it("create, lost, and then nobody to ask: it is not certain, and asking again later adopts it", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, ...Array(3).fill(status(503)));
    fake.fail("list", ...Array(3).fill(status(503)));
    expect(await failure(provider.start(order(1, 1)))).toMatchObject({ trouble: "unreachable", certain: false });
    expect(fake.alive()).toHaveLength(1);
    const { id } = await provider.start(order(1, 1));
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("create, lost in a region, and no room in it the second time: still one machine", async () => {
    const { provider, fake } = await open({ region: ["iad", "ewr"] });
    fake.fail(
      "create",
      { kind: "belated" },
      status(422, { body: { error: "no capacity", status: "insufficient_capacity" } }),
    );
    await provider.start(order(1, 1));
    await fake.settled();
    expect(fake.alive()).toHaveLength(1);
  });

  it("the adopted machine cannot be read: it is not certain that none runs", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1, 1));
    fake.fail("get", ...Array(4).fill(status(500)));
    expect(await failure(stage!.another().start(order(1, 1)))).toMatchObject({
      trouble: "unreachable",
      certain: false,
    });
  });

  it("remove, lost: it is asked again, and one that is gone is no error", async () => {
    const { provider, fake } = await open();
    const { id } = await provider.start(order(1, 1));
    fake.fail("remove", { kind: "lost" });
    await provider.remove({ name: order(1, 1).name, id });
    await provider.remove({ name: order(1, 1).name, id });
    await provider.remove({ name: order(1, 1).name, id: "0000000000" });
    expect(fake.alive()).toEqual([]);
  });

  it("a list that cannot be had, or makes no sense, is never taken for an empty one", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1));
    fake.fail("list", ...Array(4).fill({ kind: "reset" }), status(200, { body: "" }), status(200, { body: "null" }));
    for (let n = 0; n < 3; n++) expect(await failure(provider.list())).toMatchObject({ trouble: "unreachable" });
    expect(await provider.list()).toHaveLength(1);
  });

  it("a list that comes too early: a machine that we have made is there although it is not in it yet", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1, 1));
    fake.fail("list", status(200, { body: [] }));
    expect(await provider.list()).toMatchObject([{ name: order(1, 1).name, state: "running" }]);
    // One that cannot be read is looked for again.
    fake.exit(order(1, 1).name, { code: 9 });
    fake.fail("get", ...Array(4).fill(status(500)));
    expect(await provider.list()).toEqual([]);
    expect(await provider.list()).toMatchObject([{ state: "gone", exit: { code: 9 } }]);
  });

  it("two orchestrators that start the same machine at once: one machine", async () => {
    const { provider, fake, another } = await open();
    const two = another();
    const [a, b] = await Promise.all([provider.start(order(1, 1)), two.start(order(1, 1))]);
    expect(a).toEqual(b);
    const name = await warm(2);
    const [c, d] = await Promise.all([provider.start(order(2)), two.start(order(2))]);
    expect(c).toEqual(d);
    expect(fake.machine(name).starts).toBe(2);
    expect(fake.alive()).toHaveLength(2);
  });

  it("whatever goes wrong: asked until it is answered, each name is one machine, and removed it is none", async () => {
    const { provider, fake, time } = await open();
    const from = time.now();
    const faults: Fault[] = [
      ...[500, 502, 503, 408].map((code) => status(code)),
      status(429),
      status(429, { retryAfter: 3 }),
      ...(["reset", "lost", "lost", "late", "hang"] as const).map((kind) => ({ kind })),
      { kind: "belated", calls: 3 },
      status(502, { done: true }),
    ];
    fake.chaos({ random: dice(SEED), chance: 0.4, faults });
    const orders = [1, 2, 3, 4, 5, 6].map((slot) => (slot <= 3 ? order(slot) : order(slot, slot)));
    const insist = async <T>(work: () => Promise<T>): Promise<T> => {
      for (let tries = 0; ; tries++) {
        try {
          return await work();
        } catch (error) {
          if (tries === 30) throw error;
        }
      }
    };
    for (let round = 0; round < 5; round++) {
      const started = await Promise.all(orders.map((one) => insist(() => provider.start(one))));
      await fake.settled();
      expect(
        fake
          .alive()
          .map(({ name, id }) => `${name} ${id}`)
          .toSorted(),
        `seed ${SEED}`,
      ).toEqual(orders.map(({ name }, place) => `${name} ${started[place]!.id}`).toSorted());
      expect(fake.alive().every(({ state }) => state === "started")).toBe(true);
      await Promise.all(
        orders.map(({ name }, place) => insist(() => provider.remove({ name, id: started[place]!.id }))),
      );
      await fake.settled();
      expect(fake.alive(), `seed ${SEED}`).toEqual([]);
    }
    const count = fake.calm();
    expect(count).toBeGreaterThan(20);
    const waitedS = Math.round((time.now() - from) / 1000);
    recordFigure(
      "Fly: API failures of one provider without a leaked or doubled machine",
      count,
      "failures",
      `${fake.calls.length} calls, ${waitedS} s of waits, seed ${SEED}`,
    );
  });
});

describe("T47: what is not ours", () => {
  it("never lists, starts or removes a machine of another fleet or pool, or one without tags, whatever its name or id", async () => {
    const { provider, fake } = await open();
    const { name } = order(1);
    const tags = { stillwake_fleet: FLEET, stillwake_pool: POOL };
    const others = [
      fake.add(machineName("ffffffff", POOL, 1), { ...tags, stillwake_fleet: "ffffffff" }),
      fake.add(machineName(FLEET, "other", 1), { ...tags, stillwake_pool: "other" }),
      // Of our name, and of another's tags or none.
      fake.add(name, { ...tags, stillwake_fleet: "ffffffff" }),
      fake.add(order(2).name, {}),
      fake.add(order(3).name, { ...tags, stillwake_pool: "other" }),
      // Of our tags, and of another name.
      fake.add("postgres", tags),
      fake.add(`${name}-x`, tags),
    ];
    const before = structuredClone(others);
    expect(await provider.list()).toEqual([]);
    for (const slot of [1, 2, 3]) {
      for (const work of [() => provider.start(order(slot)), () => provider.prepare!(order(slot))]) {
        expect(await failure(work())).toMatchObject({ trouble: "refused", certain: true });
      }
    }
    for (const { id, name: theirs } of others) {
      for (const claimed of [theirs, name, order(9, 1).name]) {
        expect(await failure(provider.remove({ name: claimed, id }))).toMatchObject({ trouble: "refused" });
      }
      expect(await provider.autopsy!({ name, id })).toBeUndefined();
    }
    expect(fake.machines).toEqual(before);
    expect(fake.count("start") + fake.count("remove")).toBe(0);
  });

  it("does not trust their filter: a list with everybody's machines is looked through", async () => {
    const { provider, fake } = await open();
    const shown = (fleet: string) => ({
      ...{
        id: "x1",
        name: machineName(fleet, POOL, 2),
        state: "stopped",
        region: "iad",
        created_at: "",
        updated_at: "",
      },
      config: { image: "a", metadata: { stillwake_fleet: fleet, stillwake_pool: POOL } },
    });
    fake.fail("list", status(200, { body: [shown("ffffffff"), shown(FLEET)] }));
    expect((await provider.list()).map(({ name }) => name)).toEqual([machineName(FLEET, POOL, 2)]);
  });

  it("does not start what was ours when it was last read, and is another's now", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    await provider.list();
    fake.machine(name).config.metadata = { stillwake_fleet: "ffffffff", stillwake_pool: POOL };
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "refused" });
    expect(fake.machine(name)).toMatchObject({ state: "stopped", starts: 1 });
  });

  it("does not destroy a machine of older settings that somebody has just started", async () => {
    const { fake, another } = await open();
    const name = await warm(1);
    const newer = another({ image: "registry.fly.io/workers:v2" });
    await newer.list();
    // It is read as stopped, and started by another orchestrator before it can be removed.
    fake.fail("remove", status(412, { message: "failed_precondition: not currently stopped" }));
    expect(await failure(newer.start(order(1)))).toMatchObject({ trouble: "unstartable", certain: true });
    expect(fake.calls.find(({ operation }) => operation === "remove")!.query.get("force")).toBe("false");
    expect(fake.alive()).toMatchObject([{ name }]);
  });
});

describe("what is removed", () => {
  it("a machine that was seen as stopped goes only if it still is: one that somebody has started since survives", async () => {
    const { provider, fake } = await open();
    const name = await warm(1);
    const [idle] = await provider.list();
    expect(idle).toMatchObject({ name, state: "stopped" });
    await stage!.another().start(order(1));
    expect((await failure(provider.remove(idle!))).message).toMatch(/it was stopped, and now it is started/);
    expect(fake.count("remove")).toBe(0);
    // It is read as stopped, and started before it can be removed.
    fake.exit(name, { code: 0 });
    fake.fail("remove", status(412, { message: "failed_precondition: not currently stopped" }));
    await failure(provider.remove(idle!));
    expect(fake.calls.at(-1)!.query.get("force")).toBe("false");
    expect(fake.alive()).toMatchObject([{ name }]);
    await provider.remove(idle!);
    expect(fake.alive()).toEqual([]);
    expect(fake.calls.at(-1)!.query.get("force")).toBe("false");
  });

  it("one that was seen to run, or is of no use, goes whatever it does", async () => {
    const { provider, fake } = await open();
    await provider.start(order(1));
    const [running] = await provider.list();
    await provider.remove(running!);
    expect(fake.calls.at(-1)!.query.get("force")).toBe("true");
    await warm(2);
    fake.move(order(2).name, "launch_failed");
    const [broken] = await provider.list();
    expect(broken).toMatchObject({ state: "stopped", stale: true });
    await provider.remove(broken!);
    expect(fake.alive()).toEqual([]);
  });
});

describe("limits", () => {
  it("makes 8 burst machines at once within what Fly allows: 3, and then one a second", async () => {
    const { provider, fake, time } = await open();
    const from = time.now();
    await Promise.all(Array.from({ length: 8 }, (_, n) => provider.start(order(n + 1, n))));
    expect(fake.limited()).toBe(0);
    expect(fake.alive()).toHaveLength(8);
    expect(fake.calls.map(({ at }) => at - from)).toEqual([0, 0, 0, 1000, 2000, 3000, 4000, 5000]);
  });

  it("starts 8 stopped machines without waiting: their limit is per machine", async () => {
    const { provider, fake, time } = await open();
    for (let slot = 1; slot <= 8; slot++) await warm(slot);
    await provider.list();
    time.advance(10_000);
    time.waits.length = 0;
    await Promise.all(Array.from({ length: 8 }, (_, n) => provider.start(order(n + 1))));
    expect(time.waits).toEqual([]);
    expect(fake.limited()).toBe(0);
  });

  it("shares the limits of an app among its pools", async () => {
    const { provider, fake, another } = await open();
    const large = another({ pool: "large" });
    const name = machineName(FLEET, "large", 1);
    await Promise.all([
      ...[1, 2, 3].map((slot) => provider.start(order(slot, slot))),
      ...[1, 2, 3].map((slot) => large.start({ name: `${name}-${slot}`, burst: true, env: {} })),
    ]);
    expect(fake.limited()).toBe(0);
    expect((await large.list()).map((machine) => machine.name)).toEqual([1, 2, 3].map((slot) => `${name}-${slot}`));
  });
});

describe("settings", () => {
  it("S40: warns of tokens that may do too much, as far as can be told", async () => {
    const { provider, fake } = await open();
    expect(await provider.check!()).toEqual([]);
    fake.tokens.splice(0, 1, { organization: "acme" });
    expect(await provider.check!()).toEqual([expect.stringContaining('every app of the organization "acme"')]);
    fake.tokens.splice(0, 1, { apps: ["workers", "shop"] });
    expect(await provider.check!()).toEqual([expect.stringContaining("several apps: workers, shop")]);
    fake.tokens.splice(0, 1, { user: "ada", apps: ["workers"] });
    expect(await provider.check!()).toEqual([expect.stringContaining("a person's own")]);
    fake.fail("token", status(404));
    expect(await provider.check!()).toEqual([]);
    const question = { app: "workers", ownApp: undefined, facts: undefined };
    expect(tokenWarnings({ ...question, token: "fo1_abc" })).toEqual([expect.stringContaining("a person's own")]);
    expect(tokenWarnings({ ...question, token: "FlyV1 fm2_abc" })).toEqual([]);
    const own = tokenWarnings({ ...question, token: "FlyV1 fm2_abc", ownApp: "workers" });
    expect(own).toEqual([expect.stringContaining("Give the workers an app of their own")]);
  });

  it("S41: refuses to hand its token to workers", async () => {
    const { fake, time } = await open();
    const made = fly({ ...sizes, app: "workers", token: fake.token, env: { A: `x${fake.token}` } });
    expect(() => made({ fleet: FLEET, pool: POOL, slots: 1, graceMs: 1000, clock: time, say: () => {} })).toThrow(
      expect.objectContaining({ code: "INVALID_INPUT", field: "env" }),
    );
  });

  it("says of what machines are made where there is neither token nor image, and refuses to do anything", async () => {
    const { fake, time } = await open();
    const before = { ...process.env };
    for (const name of ["FLY_API_TOKEN", "FLY_ACCESS_TOKEN", "STILLWAKE_IMAGE", "FLY_IMAGE_REF"])
      delete process.env[name];
    try {
      const where = { app: "workers", base: fake.url, fetch: time.fetch, size: "performance-2x", region: "ord" };
      const context = { fleet: FLEET, pool: POOL, slots: 1, graceMs: 1000, clock: time, say: () => {} };
      const bare = fly({ ...where, token: undefined, image: undefined })(context);
      expect(bare.facts).toMatchObject({ size: "performance-2x", region: "ord", cpus: 2, memoryMb: 4096 });
      expect(await bare.check!()).toEqual([expect.stringMatching(/no token\. Set FLY_API_TOKEN/)]);
      const imageless = fly({ ...where, token: fake.token })(context);
      expect(await imageless.check!()).toEqual([expect.stringMatching(/no image\. Name the image/)]);
      const asked = fake.calls.length;
      const idle = { name: order(1).name, id: "1" };
      for (const [provider, trouble] of [[bare, "auth"] as const, [imageless, "refused"] as const]) {
        const all = [provider.list(), provider.start(order(1)), provider.prepare!(order(1)), provider.remove(idle)];
        for (const work of all) expect(await failure(work)).toMatchObject({ trouble, certain: true });
      }
      expect(fake.calls).toHaveLength(asked);
    } finally {
      process.env = before;
    }
  });

  it("says when machines are made of something else", async () => {
    const { provider, another } = await open();
    expect(another().facts.made).toBe(provider.facts.made);
    expect(another({ image: "registry.fly.io/workers:v2" }).facts.made).not.toBe(provider.facts.made);
  });

  it("warns of a grace that Fly does not grant, and asks for what it does", async () => {
    const { fake, time } = await open();
    const made = fly({ ...sizes, app: "workers", token: fake.token, base: fake.url, fetch: time.fetch });
    const long = made({ fleet: FLEET, pool: POOL, slots: 1, graceMs: 900_000, clock: time, say: () => {} });
    expect(await long.check!()).toEqual([expect.stringContaining("of which Fly grants 300")]);
    await long.start(order(1));
    expect(fake.machine(order(1).name).config.stop_config).toEqual({ signal: "SIGTERM", timeout: "300s" });
  });

  it("knows Fly's sizes, and what memory goes with them", () => {
    expect(guestOf("performance-8x")).toEqual({ cpu_kind: "performance", cpus: 8, memory_mb: 16 * GiB });
    expect(guestOf("shared-cpu-2x")).toEqual({ cpu_kind: "shared", cpus: 2, memory_mb: 512 });
    expect(guestOf("performance-8x", 64 * GiB).memory_mb).toBe(64 * GiB);
    for (const size of ["performance-3x", "shared-2x", "huge"])
      expect(() => guestOf(size)).toThrow(/no machines of size/);
    for (const memory of [1000, 15 * GiB, 65 * GiB])
      expect(() => guestOf("performance-8x", memory)).toThrow(/no performance-8x with/);
  });
});

const sizes = { image: "a", size: "shared-cpu-1x", region: "iad" };
