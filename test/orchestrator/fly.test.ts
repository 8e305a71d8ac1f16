// The Fly provider against a fake of its API that injects failures: edge cases, waits between retries, no duplicated or lost
// machine, no access to foreign machines. Waits are simulated.
import { describe, expect, it } from "vitest";
import { machineName } from "../../src/orchestrator/provider.ts";
import { type FlyOptions, fly } from "../../src/orchestrator/providers/fly/fly.ts";
import { readGuest } from "../../src/orchestrator/providers/fly/size.ts";
import { tokenWarnings } from "../../src/orchestrator/providers/fly/token.ts";
import { recordFigure } from "../support/figures.ts";
import { type FakeFly, startFakeFly } from "../support/providers/fake-fly.ts";
import { type Fault, seededRandom } from "../support/providers/fake-provider-api.ts";
import {
  apiFixture,
  FLEET,
  failure,
  POOL,
  requestFor as request,
  retry,
  SEED,
  status,
} from "../support/providers/provider-test.ts";

const GiB = 1024;

const openFly = apiFixture<FakeFly, FlyOptions>(startFakeFly, (fake, time, options) =>
  fly({
    app: fake.app,
    token: fake.token,
    image: "registry.fly.io/workers:v1",
    size: "performance-8x",
    memoryMb: 64 * GiB,
    region: ["iad"],
    env: { NODE_OPTIONS: "--max-old-space-size=4096" },
    base: fake.url,
    timeout: "20s",
    fetch: time.fetch,
    ...options,
  }),
);

async function open(defaults?: Partial<FlyOptions>) {
  const fixture = await openFly(defaults);
  /** Creates a warm machine that has run once and is stopped. */
  const warm = async (ordinal: number): Promise<string> => {
    const { name } = request(ordinal);
    await fixture.provider.prepare!(request(ordinal));
    fixture.fake.exit(name, { code: 0 });
    return name;
  };
  return { ...fixture, warm };
}

describe("creating machines", () => {
  it("creates a warm machine that stays when its worker exits, and starts the same one again", async () => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    expect(await provider.list()).toMatchObject([{ name, state: "stopped", exit: { code: 0 } }]);
    const { id } = await provider.start(request(1));
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

  it("creates a burst machine that destroys itself, and reports its exit although Fly no longer lists it", async () => {
    const { provider, fake, time } = await open();
    const { name } = request(4, 17);
    const { id } = await provider.start(request(4, 17));
    expect(fake.machine(name).config).toMatchObject({ auto_destroy: true, restart: { policy: "no" } });
    time.advance(60_000);
    fake.exit(name, { code: 3 });
    expect(fake.machine(name).state).toBe("destroyed");
    const times = { startedAt: new Date(time.now() - 60_000), endedAt: new Date(time.now()) };
    for (let n = 0; n < 3; n++) {
      expect(await provider.list()).toEqual([{ name, id, state: "gone", exit: { code: 3 }, ...times }]);
    }
    expect(await provider.getExitReason!({ name, id })).toEqual({ code: 3 });
    expect(fake.count("create")).toBe(1);
    expect(fake.count("get"), "read once, then cached").toBe(2);
    time.advance(11 * 60_000);
    expect(await provider.list()).toEqual([]);
  });

  it("does not restart a crashed worker: its machine is stopped", async () => {
    const { provider, fake } = await open();
    await provider.start(request(1));
    fake.exit(request(1).name, { code: 1 });
    expect(await provider.list()).toMatchObject([{ state: "stopped", exit: { code: 1 } }]);
    expect(fake.machine(request(1).name).starts).toBe(1);
  });

  it("reports a machine that ran out of memory, with its memory size", async () => {
    const { provider, fake } = await open();
    await provider.start(request(1));
    fake.exit(request(1).name, { code: 137, oom: true });
    const [machine] = await provider.list();
    expect(machine!.exit).toEqual({ code: 137, oom: true, memory: "64 GB" });
    expect(machine!.endedAt).toEqual(new Date(fake.machine(request(1).name).updatedAt));
    const { id } = await provider.start(request(2, 1));
    fake.exit(request(2, 1).name, { code: 137, oom: true });
    expect(await provider.getExitReason!({ name: request(2, 1).name, id })).toMatchObject({
      oom: true,
      memory: "64 GB",
    });
  });

  it("reports a machine of older settings as stale, and replaces it instead of starting it", async () => {
    const { fake, createProvider, warm } = await open();
    const name = await warm(1);
    const newer = createProvider({ image: "registry.fly.io/workers:v2" });
    expect(await newer.list()).toMatchObject([{ name, state: "stopped", stale: true }]);
    await newer.start(request(1));
    expect(fake.alive()).toMatchObject([{ name, state: "started", config: { image: "registry.fly.io/workers:v2" } }]);
    expect((await newer.list())[0]!.stale).toBeUndefined();
  });

  it("never updates a machine", async () => {
    const { fake } = await open();
    // The fake has no such operation, so any use of it would be a violation in the other tests.
    const response = await fetch(`${fake.url}/apps/${fake.app}/machines/1`, { method: "POST", body: "{}" });
    expect(response.status).toBe(404);
    expect(fake.violations.splice(0)).toEqual([`POST /apps/${fake.app}/machines/1: no such operation`]);
  });

  it("maps every state of Fly", async () => {
    const { provider, fake } = await open();
    await provider.start(request(1));
    const states = {
      starting: ["creating", "created", "starting", "restarting", "updating", "replacing"],
      running: ["started"],
      stopping: ["stopping", "suspending", "destroying"],
      stopped: ["stopped", "suspended", "failed", "launch_failed"],
      gone: ["replaced", "migrated"],
    };
    for (const [expected, flyStates] of Object.entries(states)) {
      for (const state of flyStates) {
        fake.setState(request(1).name, state);
        const [machine] = await provider.list();
        expect({ state, listed: machine!.state }).toEqual({ state, listed: expected });
        const isTemporary = expected === "starting" || expected === "stopping";
        // An update may take ten minutes instead of five.
        const more = state === "updating" ? 5 * 60_000 : 0;
        expect(machine!.since?.getTime()).toBe(
          isTemporary ? fake.machine(request(1).name).updatedAt + more : undefined,
        );
        expect(machine!.stale ?? false).toBe(state.endsWith("failed"));
      }
    }
  });
});

describe("edge cases", () => {
  it("all machines busy: creates burst machines up to the configured total", async () => {
    const { provider, fake, warm } = await open();
    for (const ordinal of [1, 2, 3]) await warm(ordinal);
    await Promise.all([1, 2, 3].map((ordinal) => provider.start(request(ordinal))));
    await Promise.all([4, 5].map((ordinal) => provider.start(request(ordinal, ordinal))));
    expect(fake.alive().map(({ config, state }) => [config.auto_destroy, state])).toEqual([
      ...Array(3).fill([false, "started"]),
      ...Array(2).fill([true, "started"]),
    ]);
  });

  it("API unreachable or 5xx: retries after 1, 2 and 4 s, then throws an error that is not certain", async () => {
    for (const code of [500, 502, 503]) {
      const { provider, fake, time } = await open();
      fake.fail("create", ...Array(4).fill(status(code, { body: "<html>Bad gateway</html>" })));
      const error = await failure(provider.start(request(1, 1)));
      expect(error).toMatchObject({ kind: "unreachable", certain: false, code: "PROVIDER_UNREACHABLE" });
      expect(error.message).toMatch(/^Fly: POST .* failed: 50\d .*\(request 01FAKE/);
      expect(time.waits).toEqual([1000, 2000, 4000]);
      expect(fake.count("create")).toBe(4);
      expect(fake.alive()).toEqual([]);
      await fake.close();
    }
  });

  it("no connection: it is certain that nothing was started", async () => {
    const { provider, fake, time } = await open();
    await fake.close();
    expect(await failure(provider.start(request(1, 1)))).toMatchObject({ kind: "unreachable", certain: true });
    expect(await failure(provider.list())).toMatchObject({ kind: "unreachable" });
    expect(time.waits).toEqual([1000, 2000, 4000, 1000, 2000, 4000]);
  });

  it("temporary 5xx: the third attempt succeeds, and there is one machine", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(500), { kind: "reset" });
    await provider.start(request(1, 1));
    expect(time.waits).toEqual([1000, 2000]);
    expect(fake.alive()).toHaveLength(1);
  });

  it.each([
    ["with Retry-After", 7, [7000]],
    ["without", undefined, [2000]],
  ])("429 %s: waits Retry-After, or 2 s", async (_, retryAfter, waits) => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(429, retryAfter === undefined ? {} : { retryAfter }));
    await provider.start(request(1, 1));
    expect(time.waits).toEqual(waits);
    expect(fake.alive()).toHaveLength(1);
    // A rate-limited call has no effect, so no lookup is needed.
    expect(fake.count("list")).toBe(0);
  });

  it("429 with a long Retry-After: throws with that time, certain that nothing was started", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(429, { retryAfter: 90 }));
    expect(await failure(provider.start(request(1, 1)))).toMatchObject({
      kind: "rate",
      certain: true,
      retryAfterMs: 90_000,
    });
    expect(time.waits).toEqual([]);
  });

  it.each(["failed", "launch_failed"])(
    "a machine fails to start (%s): it is replaced under the same name",
    async (state) => {
      const { provider, fake, warm } = await open();
      const name = await warm(1);
      const before = fake.machine(name).id;
      fake.setState(name, state);
      const { id } = await provider.start(request(1));
      expect(id).not.toBe(before);
      expect(fake.alive()).toMatchObject([{ id, state: "started" }]);
    },
  );

  it("a machine fails to start because its host is full: another machine may work", async () => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    fake.fullRegions.add("iad");
    const error = await failure(provider.start(request(1)));
    expect(error).toMatchObject({ kind: "unstartable", certain: true });
    expect(error.message).toContain("insufficient resources");
    expect(fake.machine(name).state).toBe("stopped");
  });

  it("a machine fails to start because its host is unreachable: it is listed but not touched", async () => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    await provider.list();
    fake.machine(name).hostStatus = "unreachable";
    const calls = fake.calls.length;
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "unstartable", certain: true });
    expect(fake.calls.slice(calls).map(({ method }) => method)).not.toContain("POST");
  });

  it("a machine that was never launched fails to start: it is removed, and another machine may work", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", { kind: "half" });
    const { name } = request(1);
    await provider.prepare!(request(1));
    expect(fake.machine(name).state).toBe("created");
    // At first it may just be slow.
    await provider.start(request(1));
    expect(fake.count("start")).toBe(0);
    time.advance(90_000);
    const error = await failure(provider.start(request(1)));
    expect(error).toMatchObject({ kind: "unstartable", certain: true });
    expect(error.message).toContain("unable to start machine from current state: 'created'");
    expect(fake.alive()).toEqual([]);
    await provider.start(request(1));
    expect(fake.alive()).toMatchObject([{ name, state: "started" }]);
  });

  it("a machine that is stopping is not waited for: another machine may work", async () => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    for (const state of ["stopping", "destroying"]) {
      fake.setState(name, state);
      expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "unstartable", certain: true });
    }
    expect(fake.count("start")).toBe(0);
  });

  it("a machine that is stuck in a state is listed with the time since when", async () => {
    const { provider, fake, time, warm } = await open();
    const name = await warm(1);
    fake.machine(name).stuck = true;
    await provider.start(request(1));
    const since = new Date(time.now());
    time.advance(6 * 60_000);
    expect(await provider.list()).toMatchObject([{ name, state: "starting", since }]);
  });

  it("401: fails at once, without retries", async () => {
    const { provider, fake, time } = await open();
    fake.fail("*", ...Array(3).fill(status(401)));
    for (const work of [() => provider.start(request(1, 1)), () => provider.list(), () => provider.start(request(2))]) {
      const error = await failure(work());
      expect(error).toMatchObject({ kind: "auth", certain: true, code: "PROVIDER_AUTH" });
      expect(error.remedy).toContain("fly tokens create deploy --app workers");
      expect(error.message).not.toContain(fake.token);
    }
    expect(time.waits).toEqual([]);
    expect(fake.calls).toHaveLength(3);
  });

  it("no capacity in a region: tries the next ones in order before it throws a capacity error", async () => {
    const { provider, fake, messages } = await open({ region: ["iad", "ewr", "ord"] });
    fake.fullRegions.add("iad");
    fake.fullRegions.add("ewr");
    const { id } = await provider.start(request(1, 1));
    expect(await provider.start(request(1, 1)), "the region, if not the first one").toEqual({ id, region: "ord" });
    expect(fake.alive()).toMatchObject([{ id, region: "ord" }]);
    expect(messages).toHaveLength(2);
    fake.fullRegions.add("ord");
    const error = await failure(provider.start(request(2, 2)));
    expect(error).toMatchObject({ kind: "capacity", certain: true });
    expect(error.message).toContain("in iad, ewr, ord");
    expect(fake.alive()).toHaveLength(1);
  });

  it("an invalid request fails at once with Fly's message", async () => {
    const { provider, fake, time } = await open();
    fake.fail("create", status(400, { message: "invalid config.guest" }));
    const error = await failure(provider.start(request(1, 1)));
    expect(error).toMatchObject({ kind: "refused", certain: true });
    expect(error.message).toContain("invalid config.guest");
    expect(time.waits).toEqual([]);
  });
});

describe("a call without a response", () => {
  it.each<[string, Fault, number]>([
    ["refused by something in between", status(502, { body: "<html>Bad gateway</html>" }), 2],
    ["executed, and rejected by a proxy", status(502, { body: "<html>Bad gateway</html>", done: true }), 1],
    ["without a response", { kind: "hang" }, 2],
    ["executed, and the response is lost", { kind: "lost" }, 1],
    ["executed, with a response after the timeout", { kind: "late" }, 1],
    ["executed after the lookup and before the retry", { kind: "belated", calls: 1 }, 2],
    ["executed after the retry", { kind: "belated" }, 2],
  ])("create, %s: one machine, adopted by name", async (_, fault, creates) => {
    const { provider, fake } = await open();
    fake.fail("create", fault);
    const { id } = await provider.start(request(1, 1));
    await fake.finishPending();
    expect(fake.alive()).toMatchObject([{ id, name: request(1, 1).name, state: "started", starts: 1 }]);
    // An existing machine is found in the list; a missing one is created again.
    expect(fake.count("create")).toBe(creates);
    expect(fake.count("list")).toBe(1);
  });

  it.each<[string, Fault]>([
    ...(["hang", "lost", "late", "belated"] as const).map((kind): [string, Fault] => [kind, { kind }]),
    ["executed, with 502", status(502, { done: true })],
  ])("start, %s: the same machine runs once", async (_, fault) => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    fake.fail("start", fault);
    const { id } = await provider.start(request(1));
    await fake.finishPending();
    expect(fake.alive()).toMatchObject([{ id, name, state: "started", starts: 2 }]);
  });

  it("create lost and the list fails too: the second create reports the conflict, and the machine is adopted", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" });
    fake.fail("list", status(500));
    const { id } = await provider.start(request(1, 1));
    expect(fake.calls.map(({ operation, status }) => [operation, status])).toEqual([
      ["create", 0],
      ["list", 500],
      ["create", 409],
      ["get", 200],
    ]);
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("409 without an id: the machine is found in the list", async () => {
    const { provider, fake, createProvider } = await open();
    const { id } = await provider.start(request(1, 1));
    fake.fail("create", status(409, { message: "already_exists: name" }));
    const again = createProvider();
    expect(await again.start(request(1, 1))).toEqual({ id });
  });

  it("create lost and 409 without an id while the list lags: not certain, and not reported as foreign", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, status(409, { message: "already_exists: name" }));
    fake.fail("list", status(200, { body: [] }), status(200, { body: [] }));
    const error = await failure(provider.start(request(1, 1)));
    expect(error).toMatchObject({ kind: "unstartable", certain: false });
    expect(error.message).not.toContain("outside this fleet");
    const { id } = await provider.start(request(1, 1));
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("create lost and the machine is gone before the retry: not certain that it never ran", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, status(409, { message: "already_exists: machine ID 0000" }));
    fake.fail("list", status(500));
    const machine = {
      id: "0000",
      name: request(1, 1).name,
      state: "destroyed",
      region: "iad",
      created_at: "",
      updated_at: "",
    };
    const tags = { stillwake_fleet: FLEET, stillwake_pool: POOL };
    fake.fail("get", status(200, { body: { ...machine, config: { image: "a", metadata: tags } } }));
    expect(await failure(provider.start(request(1, 1)))).toMatchObject({ kind: "unstartable", certain: false });
  });

  it("create lost and the API is down afterwards: not certain, and a later start adopts the machine", async () => {
    const { provider, fake } = await open();
    fake.fail("create", { kind: "lost" }, ...Array(3).fill(status(503)));
    fake.fail("list", ...Array(3).fill(status(503)));
    expect(await failure(provider.start(request(1, 1)))).toMatchObject({ kind: "unreachable", certain: false });
    expect(fake.alive()).toHaveLength(1);
    const { id } = await provider.start(request(1, 1));
    expect(fake.alive()).toMatchObject([{ id, starts: 1 }]);
  });

  it("create lost in a region without capacity the second time: still one machine", async () => {
    const { provider, fake } = await open({ region: ["iad", "ewr"] });
    fake.fail(
      "create",
      { kind: "belated" },
      status(422, { body: { error: "no capacity", status: "insufficient_capacity" } }),
    );
    await provider.start(request(1, 1));
    await fake.finishPending();
    expect(fake.alive()).toHaveLength(1);
  });

  it("the adopted machine cannot be read: not certain that none runs", async () => {
    const { provider, fake, createProvider } = await open();
    await provider.start(request(1, 1));
    fake.fail("get", ...Array(4).fill(status(500)));
    expect(await failure(createProvider().start(request(1, 1)))).toMatchObject({
      kind: "unreachable",
      certain: false,
    });
  });

  it("remove lost: it is repeated, and a machine that is gone is no error", async () => {
    const { provider, fake } = await open();
    const { id } = await provider.start(request(1, 1));
    fake.fail("remove", { kind: "lost" });
    await provider.remove({ name: request(1, 1).name, id });
    await provider.remove({ name: request(1, 1).name, id });
    await provider.remove({ name: request(1, 1).name, id: "0000000000" });
    expect(fake.alive()).toEqual([]);
  });

  it("a failed or malformed list is never treated as empty", async () => {
    const { provider, fake } = await open();
    await provider.start(request(1));
    fake.fail("list", ...Array(4).fill({ kind: "reset" }), status(200, { body: "" }), status(200, { body: "null" }));
    for (let n = 0; n < 3; n++) expect(await failure(provider.list())).toMatchObject({ kind: "unreachable" });
    expect(await provider.list()).toHaveLength(1);
  });

  it("a list that lags: a machine we created is reported although the list does not contain it yet", async () => {
    const { provider, fake } = await open();
    await provider.start(request(1, 1));
    fake.fail("list", status(200, { body: [] }));
    expect(await provider.list()).toMatchObject([{ name: request(1, 1).name, state: "running" }]);
    // If it cannot be read, it is read again after the next list.
    fake.exit(request(1, 1).name, { code: 9 });
    fake.fail("get", ...Array(4).fill(status(500)));
    expect(await provider.list()).toEqual([]);
    expect(await provider.list()).toMatchObject([{ state: "gone", exit: { code: 9 } }]);
  });

  it("two orchestrators that start the same machine concurrently create one machine", async () => {
    const { provider, fake, createProvider, warm } = await open();
    const two = createProvider();
    const [a, b] = await Promise.all([provider.start(request(1, 1)), two.start(request(1, 1))]);
    expect(a).toEqual(b);
    const name = await warm(2);
    const [c, d] = await Promise.all([provider.start(request(2)), two.start(request(2))]);
    expect(c).toEqual(d);
    expect(fake.machine(name).starts).toBe(2);
    expect(fake.alive()).toHaveLength(2);
  });

  it("random failures: repeated until they succeed, start leaves one machine per name and remove leaves none", async () => {
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
    fake.failRandomly({ random: seededRandom(SEED), chance: 0.4, faults });
    const requests = [1, 2, 3, 4, 5, 6].map((ordinal) => (ordinal <= 3 ? request(ordinal) : request(ordinal, ordinal)));
    for (let round = 0; round < 5; round++) {
      const started = await Promise.all(requests.map((machine) => retry(() => provider.start(machine))));
      await fake.finishPending();
      expect(
        fake
          .alive()
          .map(({ name, id }) => `${name} ${id}`)
          .toSorted(),
        `seed ${SEED}`,
      ).toEqual(requests.map(({ name }, index) => `${name} ${started[index]!.id}`).toSorted());
      expect(fake.alive().every(({ state }) => state === "started")).toBe(true);
      await Promise.all(
        requests.map(({ name }, index) => retry(() => provider.remove({ name, id: started[index]!.id }))),
      );
      await fake.finishPending();
      expect(fake.alive(), `seed ${SEED}`).toEqual([]);
    }
    const count = fake.clearFaults();
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

describe("foreign machines", () => {
  it("never lists, starts or removes a machine of another fleet or pool, or one without tags", async () => {
    const { provider, fake } = await open();
    const { name } = request(1);
    const tags = { stillwake_fleet: FLEET, stillwake_pool: POOL };
    const others = [
      fake.add(machineName("ffffffff", POOL, 1), { ...tags, stillwake_fleet: "ffffffff" }),
      fake.add(machineName(FLEET, "other", 1), { ...tags, stillwake_pool: "other" }),
      // Our name with foreign tags or none.
      fake.add(name, { ...tags, stillwake_fleet: "ffffffff" }),
      fake.add(request(2).name, {}),
      fake.add(request(3).name, { ...tags, stillwake_pool: "other" }),
      // Our tags with a foreign name.
      fake.add("postgres", tags),
      fake.add(`${name}-x`, tags),
    ];
    const before = structuredClone(others);
    expect(await provider.list()).toEqual([]);
    for (const ordinal of [1, 2, 3]) {
      for (const work of [() => provider.start(request(ordinal)), () => provider.prepare!(request(ordinal))]) {
        expect(await failure(work())).toMatchObject({ kind: "refused", certain: true });
      }
    }
    for (const { id, name: foreignName } of others) {
      for (const claimed of [foreignName, name, request(9, 1).name]) {
        expect(await failure(provider.remove({ name: claimed, id }))).toMatchObject({ kind: "refused" });
      }
      expect(await provider.getExitReason!({ name, id })).toBeUndefined();
    }
    expect(fake.machines).toEqual(before);
    expect(fake.count("start") + fake.count("remove")).toBe(0);
  });

  it("does not rely on the server-side filter of the list", async () => {
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

  it("does not start a machine whose tags have changed since it was read", async () => {
    const { provider, fake, warm } = await open();
    const name = await warm(1);
    await provider.list();
    fake.machine(name).config.metadata = { stillwake_fleet: "ffffffff", stillwake_pool: POOL };
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "refused" });
    expect(fake.machine(name)).toMatchObject({ state: "stopped", starts: 1 });
  });

  it("does not destroy a machine of older settings that was just started", async () => {
    const { fake, createProvider, warm } = await open();
    const name = await warm(1);
    const newer = createProvider({ image: "registry.fly.io/workers:v2" });
    await newer.list();
    // It is read as stopped, and another orchestrator starts it before the removal.
    fake.fail("remove", status(412, { message: "failed_precondition: not currently stopped" }));
    expect(await failure(newer.start(request(1)))).toMatchObject({ kind: "unstartable", certain: true });
    expect(fake.calls.find(({ operation }) => operation === "remove")!.query.get("force")).toBe("false");
    expect(fake.alive()).toMatchObject([{ name }]);
  });
});

describe("removing machines", () => {
  it("a machine that was listed as stopped is removed only if it still is stopped", async () => {
    const { provider, fake, warm, createProvider } = await open();
    const name = await warm(1);
    const [idle] = await provider.list();
    expect(idle).toMatchObject({ name, state: "stopped" });
    await createProvider().start(request(1));
    expect((await failure(provider.remove(idle!))).message).toMatch(/it was stopped and is now started/);
    expect(fake.count("remove")).toBe(0);
    // It is read as stopped, and started before the removal.
    fake.exit(name, { code: 0 });
    fake.fail("remove", status(412, { message: "failed_precondition: not currently stopped" }));
    await failure(provider.remove(idle!));
    expect(fake.calls.at(-1)!.query.get("force")).toBe("false");
    expect(fake.alive()).toMatchObject([{ name }]);
    await provider.remove(idle!);
    expect(fake.alive()).toEqual([]);
    expect(fake.calls.at(-1)!.query.get("force")).toBe("false");
  });

  it("a machine that was listed as running, or is broken, is removed in any state", async () => {
    const { provider, fake, warm } = await open();
    await provider.start(request(1));
    const [running] = await provider.list();
    await provider.remove(running!);
    expect(fake.calls.at(-1)!.query.get("force")).toBe("true");
    await warm(2);
    fake.setState(request(2).name, "launch_failed");
    const [broken] = await provider.list();
    expect(broken).toMatchObject({ state: "stopped", stale: true });
    await provider.remove(broken!);
    expect(fake.alive()).toEqual([]);
  });
});

describe("rate limits", () => {
  it("creates 8 burst machines within Fly's limit: 3 at once, then one per second", async () => {
    const { provider, fake, time } = await open();
    const from = time.now();
    await Promise.all(Array.from({ length: 8 }, (_, n) => provider.start(request(n + 1, n))));
    expect(fake.countRateLimited()).toBe(0);
    expect(fake.alive()).toHaveLength(8);
    expect(fake.calls.map(({ at }) => at - from)).toEqual([0, 0, 0, 1000, 2000, 3000, 4000, 5000]);
  });

  it("starts 8 stopped machines without waiting, as the limit is per machine", async () => {
    const { provider, fake, time, warm } = await open();
    for (let ordinal = 1; ordinal <= 8; ordinal++) await warm(ordinal);
    await provider.list();
    time.advance(10_000);
    time.waits.length = 0;
    await Promise.all(Array.from({ length: 8 }, (_, n) => provider.start(request(n + 1))));
    expect(time.waits).toEqual([]);
    expect(fake.countRateLimited()).toBe(0);
  });

  it("shares the limits of an app between its pools", async () => {
    const { provider, fake, createProvider } = await open();
    const large = createProvider({}, { pool: "large" });
    const name = machineName(FLEET, "large", 1);
    await Promise.all([
      ...[1, 2, 3].map((ordinal) => provider.start(request(ordinal, ordinal))),
      ...[1, 2, 3].map((ordinal) => large.start({ name: `${name}-${ordinal}`, burst: true, env: {} })),
    ]);
    expect(fake.countRateLimited()).toBe(0);
    expect((await large.list()).map((machine) => machine.name)).toEqual(
      [1, 2, 3].map((ordinal) => `${name}-${ordinal}`),
    );
  });
});

describe("settings", () => {
  it("warns of tokens with too wide a scope", async () => {
    const { provider, fake } = await open();
    expect(await provider.check!()).toEqual([]);
    fake.tokens.splice(0, 1, { organization: "acme" });
    expect(await provider.check!()).toEqual([expect.stringContaining('every app of the organization "acme"')]);
    fake.tokens.splice(0, 1, { apps: ["workers", "shop"] });
    expect(await provider.check!()).toEqual([expect.stringContaining("several apps: workers, shop")]);
    fake.tokens.splice(0, 1, { user: "ada", apps: ["workers"] });
    expect(await provider.check!()).toEqual([expect.stringContaining("a personal token")]);
    fake.fail("token", status(404));
    expect(await provider.check!()).toEqual([]);
    const question = { app: "workers", ownApp: undefined, facts: undefined };
    expect(tokenWarnings({ ...question, token: "fo1_abc" })).toEqual([expect.stringContaining("a personal token")]);
    expect(tokenWarnings({ ...question, token: "FlyV1 fm2_abc" })).toEqual([]);
    const own = tokenWarnings({ ...question, token: "FlyV1 fm2_abc", ownApp: "workers" });
    expect(own).toEqual([expect.stringContaining("Use a separate app for the workers")]);
  });

  it("refuses to pass its token to workers", async () => {
    const { fake, time } = await open();
    const made = fly({ ...sizes, app: "workers", token: fake.token, env: { A: `x${fake.token}` } });
    expect(() => made({ fleet: FLEET, pool: POOL, slots: 1, graceMs: 1000, clock: time, report: () => {} })).toThrow(
      expect.objectContaining({ code: "INVALID_INPUT", field: "env" }),
    );
  });

  it("has facts without a token or an image, but refuses all calls", async () => {
    const { fake, time } = await open();
    const before = { ...process.env };
    for (const name of ["FLY_API_TOKEN", "FLY_ACCESS_TOKEN", "STILLWAKE_IMAGE", "FLY_IMAGE_REF"])
      delete process.env[name];
    try {
      const where = { app: "workers", base: fake.url, fetch: time.fetch, size: "performance-2x", region: "ord" };
      const context = { fleet: FLEET, pool: POOL, slots: 1, graceMs: 1000, clock: time, report: () => {} };
      const bare = fly({ ...where, token: undefined, image: undefined })(context);
      expect(bare.facts).toMatchObject({ size: "performance-2x", region: "ord", cpus: 2, memoryMb: 4096 });
      expect(await bare.check!()).toEqual([expect.stringMatching(/no token\. Set FLY_API_TOKEN/)]);
      const imageless = fly({ ...where, token: fake.token })(context);
      expect(await imageless.check!()).toEqual([expect.stringMatching(/no image\. Set the image/)]);
      const asked = fake.calls.length;
      const idle = { name: request(1).name, id: "1" };
      for (const [provider, kind] of [[bare, "auth"] as const, [imageless, "refused"] as const]) {
        const all = [provider.list(), provider.start(request(1)), provider.prepare!(request(1)), provider.remove(idle)];
        for (const work of all) expect(await failure(work)).toMatchObject({ kind, certain: true });
      }
      expect(fake.calls).toHaveLength(asked);
    } finally {
      process.env = before;
    }
  });

  it("changes its fingerprint with the settings", async () => {
    const { provider, createProvider } = await open();
    expect(createProvider().facts.fingerprint).toBe(provider.facts.fingerprint);
    expect(createProvider({ image: "registry.fly.io/workers:v2" }).facts.fingerprint).not.toBe(
      provider.facts.fingerprint,
    );
  });

  it("warns of a grace above Fly's limit, and uses the limit", async () => {
    const { fake, time } = await open();
    const made = fly({ ...sizes, app: "workers", token: fake.token, base: fake.url, fetch: time.fetch });
    const long = made({ fleet: FLEET, pool: POOL, slots: 1, graceMs: 900_000, clock: time, report: () => {} });
    expect(await long.check!()).toEqual([expect.stringContaining("but Fly allows 300 s")]);
    await long.start(request(1));
    expect(fake.machine(request(1).name).config.stop_config).toEqual({ signal: "SIGTERM", timeout: "300s" });
  });

  it("knows Fly's sizes and their memory", () => {
    expect(readGuest("performance-8x")).toEqual({ cpu_kind: "performance", cpus: 8, memory_mb: 16 * GiB });
    expect(readGuest("shared-cpu-2x")).toEqual({ cpu_kind: "shared", cpus: 2, memory_mb: 512 });
    expect(readGuest("performance-8x", 64 * GiB).memory_mb).toBe(64 * GiB);
    for (const size of ["performance-3x", "shared-2x", "huge"])
      expect(() => readGuest(size)).toThrow(/no machines of size/);
    for (const memory of [1000, 15 * GiB, 65 * GiB])
      expect(() => readGuest("performance-8x", memory)).toThrow(/no performance-8x with/);
  });
});

const sizes = { image: "a", size: "shared-cpu-1x", region: "iad" };
