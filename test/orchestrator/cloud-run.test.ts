// The Cloud Run provider against a fake of its API that injects failures: the job resource, executions as machines, no
// duplicated machine after a lost response, no access to foreign executions, and credentials. Waits are simulated.
import fs from "node:fs";
import path from "node:path";
import { inspect } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { findPrice } from "../../src/orchestrator/prices.ts";
import { machineName, type ProviderError } from "../../src/orchestrator/provider.ts";
import { type CloudRunOptions, cloudRun } from "../../src/orchestrator/providers/cloud-run/cloud-run.ts";
import { readPoolOptions } from "../../src/orchestrator/settings.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import {
  type FakeCloudRun,
  type FakeTokens,
  startFakeCloudRun,
  startFakeTokens,
} from "../support/providers/fake-cloud-run.ts";
import { type Fault, seededRandom } from "../support/providers/fake-provider-api.ts";
import {
  apiFixture,
  FLEET,
  failure,
  POOL,
  RANDOM_FAULTS,
  requestFor,
  retry,
  SEED,
  status,
} from "../support/providers/provider-test.ts";

const JOB = "sw-1a2b3c4d-scan-c2-4096mb";
/** Each list is checked against two schemas, so that many machines take long. */
const STARTS = FULL ? 200 : 40;

const request = (ordinal: number, serial = ordinal) => requestFor(ordinal, serial, { STILLWAKE_MIN_UPTIME: "55000ms" });
const open = apiFixture<FakeCloudRun, CloudRunOptions>(startFakeCloudRun, (fake, time, options) =>
  cloudRun({
    project: fake.project,
    region: fake.region,
    token: fake.token,
    ...(options.job === undefined && { image: "registry.example/worker:v1" }),
    cpu: 2,
    memoryMb: 4096,
    env: { NODE_OPTIONS: "--max-old-space-size=3072" },
    secrets: { STILLWAKE_DATABASE_URL: "stillwake-url", STILLWAKE_SEAL_KEYS: "seal-keys:3" },
    base: fake.url,
    timeout: "60s",
    fetch: time.fetch,
    ...options,
  }),
);

let tokens: FakeTokens | undefined;
afterEach(async () => {
  await tokens?.close();
  tokens = undefined;
});

describe("creating machines", () => {
  it("creates one job resource per size, without retries and with secrets by reference", async () => {
    const { fake, provider } = await open();
    await provider.start(request(1));
    await provider.start(request(2));
    expect([...fake.jobs.keys()]).toEqual([JOB]);
    const { labels, template } = fake.jobs.get(JOB)!;
    expect(labels).toMatchObject({ "stillwake-fleet": FLEET, "stillwake-pool": POOL });
    expect(template).toMatchObject({
      taskCount: 1,
      template: {
        maxRetries: 0,
        timeout: "86400s",
        containers: [
          {
            image: "registry.example/worker:v1",
            resources: { limits: { cpu: "2", memory: "4096Mi" } },
            env: [
              { name: "NODE_OPTIONS", value: "--max-old-space-size=3072" },
              {
                name: "STILLWAKE_DATABASE_URL",
                valueSource: { secretKeyRef: { secret: "stillwake-url", version: "latest" } },
              },
              { name: "STILLWAKE_SEAL_KEYS", valueSource: { secretKeyRef: { secret: "seal-keys", version: "3" } } },
            ],
          },
        ],
      },
    });
    expect(fake.count("patchJob")).toBe(1);
    expect(fake.count("getJob")).toBe(1);
  });

  it("updates the job resource only if it is outdated", async () => {
    const { fake, provider, createProvider } = await open();
    await provider.start(request(1));
    await createProvider().start(request(2));
    expect(fake.jobs.get(JOB)!.updates).toBe(1);
    await createProvider({ image: "registry.example/worker:v2" }).start(request(3));
    expect(fake.jobs.get(JOB)!.updates).toBe(2);
    expect(fake.machine(request(3).name).template.containers[0]!.image).toBe("registry.example/worker:v2");
    fake.jobs.get(JOB)!.template.template.maxRetries = 3;
    await createProvider({ image: "registry.example/worker:v2" }).start(request(4));
    expect(fake.jobs.get(JOB)!.template.template.maxRetries).toBe(0);
  });

  it("runs an execution with the machine's environment, and recreates a deleted job resource", async () => {
    const { fake, provider } = await open();
    await provider.start(request(1));
    expect(fake.machine(request(1).name).env).toEqual({ ...request(1).env, STILLWAKE_FLEET: FLEET });
    fake.jobs.delete(JOB);
    await provider.start(request(2));
    expect(fake.alive()).toHaveLength(2);
  });

  it("does not touch a job resource of the same name that belongs to another fleet", async () => {
    const { fake, provider } = await open();
    const foreignJob = {
      name: JOB,
      labels: { "stillwake-fleet": "ffffffff" },
      template: { taskCount: 1, template: { containers: [{ image: "theirs:1" }] } },
      updates: 0,
    };
    fake.jobs.set(JOB, foreignJob);
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "refused", certain: true });
    expect(fake.jobs.get(JOB)).toBe(foreignJob);
    expect(fake.executions).toEqual([]);
  });

  it("only runs a configured job and needs no other permission", async () => {
    const { fake, createProvider } = await open();
    const provider = createProvider({ job: "our-worker" });
    expect(await failure(provider.check!())).toMatchObject({ kind: "refused" });
    fake.jobs.set("our-worker", {
      name: "our-worker",
      labels: {},
      template: { taskCount: 1, template: { containers: [{ image: "own:1" }], maxRetries: 3, timeout: "600s" } },
      updates: 0,
    });
    const bare = createProvider({ job: "our-worker", cpu: undefined, memoryMb: undefined });
    expect(bare.facts).not.toHaveProperty("cpus");
    expect(findPrice("cloud-run", bare.facts), "its size is unknown").toBeUndefined();
    expect(findPrice("cloud-run", provider.facts)).toBeDefined();
    expect(await bare.check!()).toContainEqual(expect.stringContaining("set cpu and memoryMb of cloudRun()"));
    expect(await provider.check!()).toEqual([
      expect.stringContaining("has maxRetries 3"),
      expect.stringContaining("after 600s"),
    ]);
    await provider.start(request(1));
    expect(fake.machine(request(1).name).env).toMatchObject({ NODE_OPTIONS: "--max-old-space-size=3072" });
    expect((await provider.list()).map(({ name }) => name)).toEqual([request(1).name]);
    expect(fake.count("patchJob") + fake.count("listJobs")).toBe(0);
  });

  it("rejects invalid options with a remedy", () => {
    const fine = { project: "p", region: "r1", image: "i:1" };
    const wrong: [Partial<CloudRunOptions> & Record<string, unknown>, RegExp][] = [
      [{ image: "" }, /no image.*`job`/s],
      [{ job: "j" }, /both a job and an image/],
      [{ cpu: 3 }, /3 vCPU.*1, 2, 4, 6 or 8/s],
      [{ cpu: 1, memoryMb: 8192 }, /8192 MB with 1 vCPU.*512 to 4096/s],
      [{ maxLife: "200h" }, /maxLife 200h.*168h/s],
      [{ project: "../x" }, /project/],
      [{ memory: 512 }, /unknown option "memory"/],
    ];
    for (const [more, message] of wrong) expect(() => cloudRun({ ...fine, ...more })).toThrow(message);
  });
});

describe("listing machines", () => {
  it("reports pending, running, cancelling and finished executions with their times", async () => {
    const { fake, provider, time } = await open();
    fake.holdStarts = true;
    const asked = new Date(time.now());
    const { id } = await provider.start(request(1));
    const [machine] = await provider.list();
    expect(machine).toEqual({ name: request(1).name, id, state: "starting", since: expect.any(Date) });
    expect(machine!.since!.getTime()).toBeGreaterThanOrEqual(asked.getTime());
    time.advance(7000);
    const began = new Date(time.now());
    fake.startExecution(request(1).name);
    expect(await provider.list()).toEqual([{ name: request(1).name, id, state: "running", startedAt: began }]);
    await provider.remove({ name: request(1).name, id });
    expect(await provider.list()).toMatchObject([{ state: "stopping", since: expect.any(Date) }]);
    time.advance(5000);
    fake.exit(request(1).name, { code: 143 });
    expect(await provider.list()).toEqual([
      {
        name: request(1).name,
        id,
        state: "gone",
        startedAt: began,
        endedAt: new Date(time.now()),
        exit: { requested: true, reason: "it was cancelled" },
      },
    ]);
    // Removing a machine that is gone, or has just finished, is no error.
    fake.holdStarts = false;
    await provider.start(request(2));
    const going = fake.machine(request(2).name);
    fake.fail("cancelExecution", status(400));
    expect(await failure(provider.remove({ name: request(2).name, id: going.id }))).toMatchObject({
      kind: "refused",
    });
    fake.fail("getExecution", { kind: "lost" });
    await provider.remove({ name: request(2).name, id: going.id });
    fake.executions.splice(fake.executions.indexOf(going), 1);
    await provider.remove({ name: request(1).name, id });
    await provider.remove({ name: request(9).name, id: "jobs/none/executions/none" });
    expect(fake.count("cancelExecution")).toBe(3);
  });

  it("reports how a machine ended: success, exit code, signal, out of memory", async () => {
    const { fake, provider } = await open();
    for (const ordinal of [1, 2, 3, 4, 5]) await provider.start(request(ordinal));
    fake.exit(request(1).name, { code: 0 });
    fake.exit(request(2).name, { code: 7 });
    fake.exit(request(3).name, { code: 0, signal: 9, message: "The container was terminated" });
    fake.executions.find(({ machine }) => machine === request(3).name)!.state = "failed";
    fake.exit(request(4).name, { code: 137, oom: true });
    fake.exit(request(5).name, { code: 1, message: "Memory limit of 4096 MiB exceeded with 4099 MiB used" });
    const machines = new Map((await provider.list()).map((machine) => [machine.name, machine]));
    const exit = async (ordinal: number) => {
      const machine = machines.get(request(ordinal).name)!;
      return machine.exit ?? (await provider.getExitReason!(machine));
    };
    expect(await exit(1)).toEqual({ code: 0 });
    expect(await exit(2)).toEqual({ code: 7 });
    expect(await exit(3)).toEqual({ signal: "SIGKILL", reason: "The container was terminated" });
    expect(await exit(4)).toEqual({ oom: true, memory: "4 GB" });
    expect(await exit(5)).toEqual({ oom: true, memory: "4 GB" });
  });

  it("reports outdated machines as stale, and lists those of another size", async () => {
    const { fake, provider, createProvider } = await open();
    await provider.start(request(1));
    const larger = createProvider({ cpu: 4, memoryMb: 8192 });
    await larger.start(request(2));
    expect([...fake.jobs.keys()]).toEqual([JOB, "sw-1a2b3c4d-scan-c4-8192mb"]);
    const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
    expect((await larger.list()).sort(byName)).toMatchObject([
      { name: request(1).name, state: "running", stale: true },
      { name: request(2).name, state: "running" },
    ]);
    expect((await larger.list()).find(({ name }) => name === request(2).name)!.stale).toBeUndefined();
    expect(createProvider().facts.fingerprint).toBe(provider.facts.fingerprint);
    expect(larger.facts.fingerprint).not.toBe(provider.facts.fingerprint);
    expect(createProvider({ job: "one" }).facts.fingerprint).not.toBe(createProvider({ job: "two" }).facts.fingerprint);
    const [old] = (await larger.list()).filter(({ stale }) => stale);
    await larger.remove(old!);
    expect(fake.machine(request(1).name).state).toBe("cancelled");
  });

  it("reads all pages once, then only new ones", async () => {
    const { fake, provider, time } = await open();
    await provider.start(request(1));
    const old = fake.executions.shift()!;
    for (let serial = 100; serial < 450; serial++) {
      const env = { ...request(2, serial).env, STILLWAKE_FLEET: FLEET };
      Object.assign(fake.add(JOB, env, "succeeded"), { endedAt: time.now() });
      time.advance(60_000);
    }
    // An execution that has been running all the time is on the last page.
    fake.executions.push(old);
    const pages = async () => {
      const before = fake.count("listExecutions");
      const machines = await provider.list();
      expect(machines.find(({ name }) => name === request(1).name)).toMatchObject({ state: "running" });
      return fake.count("listExecutions") - before;
    };
    expect(await pages()).toBe(4);
    expect(await pages()).toBe(4);
    fake.exit(request(1).name, { code: 0 });
    await provider.list();
    const before = fake.count("listExecutions");
    expect(await provider.list()).toHaveLength(100);
    expect(fake.count("listExecutions") - before).toBe(1);
  });

  it("reports an exit that was read by another call, even after many newer executions", async () => {
    const { fake, provider, time } = await open();
    const { id } = await provider.start(request(1));
    await provider.list();
    for (let serial = 100; serial < 260; serial++) {
      const env = { ...request(2, serial).env, STILLWAKE_FLEET: FLEET };
      Object.assign(fake.add(JOB, env, "succeeded"), { endedAt: time.now() });
      time.advance(60_000);
    }
    fake.exit(request(1).name, { code: 7 });
    await provider.start(request(3));
    // A list that fails has reported nothing.
    const pages = fake.count("listExecutions");
    fake.fail("listExecutions", status(503), status(503), status(503), status(503));
    await failure(provider.list());
    expect(fake.count("listExecutions") - pages).toBe(4);
    const ended = (await provider.list()).find(({ name }) => name === request(1).name);
    expect(ended).toMatchObject({ id, state: "gone" });
    expect(await provider.getExitReason!(ended!)).toEqual({ code: 7 });
  });

  it("throws when the list fails, and never returns an empty list instead", async () => {
    const { fake, provider } = await open();
    await provider.start(request(1));
    fake.fail("listExecutions", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.list())).toMatchObject({ kind: "unreachable" });
    expect(await provider.list()).toHaveLength(1);
  });
});

describe("foreign machines", () => {
  it("neither lists nor removes an execution of another fleet or pool, or one without tags", async () => {
    const { fake, provider, createProvider } = await open();
    await provider.start(request(1));
    const foreign = "sw-ffffffff-scan-m1-1";
    const named = machineName(FLEET, POOL, 3);
    fake.add(JOB, { STILLWAKE_MACHINE: foreign, STILLWAKE_FLEET: "ffffffff" });
    // Our name with a foreign fleet, and without a tag.
    fake.add(JOB, { STILLWAKE_MACHINE: named, STILLWAKE_FLEET: "ffffffff" });
    fake.add(JOB, { STILLWAKE_MACHINE: named });
    fake.add(JOB, {});
    await createProvider({}, { pool: "other" }).start({
      ...request(1),
      name: machineName(FLEET, "other", 1),
      env: { STILLWAKE_MACHINE: machineName(FLEET, "other", 1) },
    });
    expect((await provider.list()).map(({ name }) => name)).toEqual([request(1).name]);
    for (const execution of fake.executions.filter(({ machine }) => machine !== request(1).name)) {
      const removed = provider.remove({ name: execution.machine || named, id: execution.id });
      expect(await failure(removed)).toMatchObject({ kind: "refused" });
    }
    expect(fake.count("cancelExecution")).toBe(0);
    await provider.remove({ name: request(1).name, id: fake.machine(request(1).name).id });
    expect(fake.alive()).toHaveLength(5);
  });
});

describe("a call without a response", () => {
  const faults: [string, Fault, Partial<ProviderError> | undefined][] = [
    ["is lost after the execution was created", { kind: "lost" }, undefined],
    ["comes after the timeout", { kind: "late" }, undefined],
    ["is 502 after the execution was created", status(502, { done: true }), undefined],
    ["is 500", status(500), undefined],
    ["is 503", status(503), undefined],
    ["is 429", status(429), undefined],
    ["is 429 with Retry-After", status(429, { retryAfter: 7 }), undefined],
    ["never comes, and nothing was executed", { kind: "hang" }, { kind: "unreachable", certain: false }],
    ["is a broken connection", { kind: "reset" }, { kind: "unreachable", certain: false }],
  ];

  it.each(faults)("leaves one machine when the response %s", async (_, fault, expected) => {
    const { fake, provider } = await open();
    await provider.list();
    fake.fail("runJob", fault);
    if (expected) {
      expect(await failure(provider.start(request(1)))).toMatchObject(expected);
      // The orchestrator repeats the request with the same name.
      await provider.start(request(1));
    } else {
      const { id } = await provider.start(request(1));
      expect(id).toBe(fake.machine(request(1).name).id);
    }
    await fake.finishPending();
    await provider.start(request(1));
    expect(fake.executions).toHaveLength(1);
  });

  it("leaves one machine when the execution appears after the timeout", async () => {
    const { fake, provider } = await open();
    await provider.list();
    fake.fail("runJob", { kind: "belated" });
    const done = await provider.start(request(1)).catch((error: ProviderError) => error);
    if (!("id" in done)) expect(done).toMatchObject({ kind: "unreachable", certain: false });
    await fake.finishPending();
    expect(await provider.start(request(1))).toMatchObject({ id: fake.machine(request(1).name).id });
  });

  it("waits 1, 2 and 4 s between retries, and looks for the execution each time", async () => {
    const { fake, provider, time } = await open();
    await provider.start(request(1));
    time.waits.length = 0;
    const lists = fake.count("listExecutions");
    fake.fail("runJob", status(502), status(502), status(502));
    await provider.start(request(2));
    expect(time.waits).toEqual([1000, 2000, 4000]);
    expect(fake.count("listExecutions") - lists).toBe(5);
    time.waits.length = 0;
    const from = time.now();
    const date = new Date(Math.ceil(time.now() / 1000) * 1000 + 11_000);
    fake.fail("runJob", status(429), status(429, { retryAfter: date.toUTCString() }), status(429, { retryAfter: 3 }));
    await provider.start(request(3));
    expect(time.waits).toEqual([2000, date.getTime() - from - 2000, 3000]);
  });

  it("never reports an uncertain start as certainly failed", async () => {
    const { fake, provider } = await open();
    await provider.start(request(1));
    fake.fail("runJob", { kind: "lost" });
    fake.fail("listExecutions", ...[status(404), ...Array.from({ length: 8 }, () => status(503))]);
    expect(await failure(provider.start(request(2)))).toMatchObject({ kind: "unreachable", certain: false });
    expect(await failure(provider.start(request(2)))).toMatchObject({ kind: "unreachable", certain: false });
    expect(await provider.start(request(2))).toEqual({
      id: fake.machine(request(2).name).id,
      startedAt: expect.any(Date),
    });
    // A machine that was never requested certainly does not exist.
    fake.fail("listExecutions", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.start(request(3)))).toMatchObject({ kind: "unreachable", certain: true });
  });

  it("two concurrent starts create one machine, in one process and in two", async () => {
    const { fake, provider, createProvider } = await open();
    await Promise.all([provider.start(request(1)), provider.start(request(1))]);
    expect(fake.executions).toHaveLength(1);
    const [a, b] = [createProvider(), createProvider()];
    await Promise.all([a.list(), b.list()]);
    const ids = await Promise.all([a.start(request(2)), b.start(request(2))]);
    expect(new Set(ids.map(({ id }) => id)).size).toBe(1);
    expect(fake.alive().filter(({ machine }) => machine === request(2).name)).toHaveLength(1);
  });

  it("many starts with random failures leave no leaked or duplicated machine", async () => {
    const { fake, provider, time } = await open();
    await provider.start(request(999));
    const only = ["runJob", "listExecutions", "cancelExecution", "getExecution"];
    fake.failRandomly({ random: seededRandom(SEED), chance: 0.25, faults: RANDOM_FAULTS, only });
    // A certain failure means that the machine does not exist and will not appear.
    const expectNone = async (name: string) => {
      await fake.finishPending();
      expect(
        fake.executions.filter(({ machine }) => machine === name),
        `${name}, seed ${SEED}`,
      ).toEqual([]);
    };
    for (let serial = 1; serial <= STARTS; serial++) {
      const starting = request(1, serial);
      await retry(
        () => provider.start(starting),
        async ({ certain }) => {
          if (certain) await expectNone(starting.name);
          time.advance(60_000);
        },
      );
    }
    const faults = fake.clearFaults();
    await fake.finishPending();
    const names = fake.executions.map(({ machine }) => machine);
    expect(new Set(names).size, `seed ${SEED}`).toBe(STARTS + 1);
    expect(fake.alive(), `seed ${SEED}`).toHaveLength(STARTS + 1);
    recordFigure(
      `cloud-run: executions for ${STARTS} starts under random failures`,
      fake.alive().length - 1,
      "machines",
    );
    expect(faults).toBeGreaterThan(STARTS / 8);
  }, 300_000);
});

describe("billing and quotas", () => {
  it("keeps a worker up for the minimum billed minute", async () => {
    const { provider, createProvider } = await open();
    expect(provider.facts).toMatchObject({ leastSeconds: 60, cpus: 2, memoryMb: 4096, region: "us-central1" });
    const options = { provider: () => createProvider() };
    expect(readPoolOptions(POOL, options, provider.facts)).toMatchObject({ minUptimeMs: 55_000, idleExitMs: 5000 });
    expect("prepare" in provider).toBe(false);
  });

  it("reports an exhausted quota as a capacity error, certain that nothing was started", async () => {
    const { fake, provider } = await open();
    fake.quota = 1;
    await provider.start(request(1));
    const error = await failure(provider.start(request(2)));
    expect(error).toMatchObject({ kind: "capacity", certain: true });
    expect(error.remedy).toMatch(/quota/);
    fake.exit(request(1).name, { code: 0 });
    await provider.start(request(2));
    fake.fail(
      "runJob",
      ...Array.from({ length: 4 }, () => status(429, { message: "Quota exceeded for write requests per minute" })),
    );
    expect(await failure(provider.start(request(3)))).toMatchObject({ kind: "rate", certain: true });
  });
});

describe("credentials", () => {
  it("401 fails without retries and with a remedy", async () => {
    const { fake, provider, time } = await open();
    fake.tokens.clear();
    const error = await failure(provider.start(request(1)));
    expect(error).toMatchObject({ kind: "auth", certain: true, retryable: false });
    expect(error.message).toMatch(/401.*run\.jobs\.run/s);
    expect(error.message).not.toContain(fake.token);
    expect(fake.calls).toHaveLength(1);
    expect(time.waits).toEqual([]);
    fake.fail("listJobs", status(403));
    expect(await failure(provider.list())).toMatchObject({ kind: "auth" });
  });

  it("exchanges a service account's key for a token, caches it until a minute before expiry, and shares one request", async () => {
    const { fake, createProvider, time } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const file = path.join(temporaryDirectory("key"), "key.json");
    fs.writeFileSync(file, JSON.stringify(tokens.key));
    const provider = createProvider({ ...without("token"), credentials: file });
    await Promise.all([provider.list(), provider.list(), provider.check!()]);
    expect(tokens.issued.map(({ by }) => by)).toEqual(["key"]);
    time.advance(3539_000);
    await provider.list();
    expect(tokens.issued).toHaveLength(1);
    time.advance(2000);
    fake.tokens.clear();
    await provider.list();
    expect(tokens.issued).toHaveLength(2);
    fs.rmSync(path.dirname(file), { recursive: true });
  });

  it("uses the metadata server without a key, and fetches a new token after one was rejected", async () => {
    const { fake, createProvider } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const provider = createProvider({ ...without("token"), metadata: tokens.url });
    await provider.list();
    fake.tokens.clear();
    expect(await failure(provider.list())).toMatchObject({ kind: "auth" });
    await provider.list();
    expect(tokens.issued.map(({ by }) => by)).toEqual(["metadata", "metadata"]);
  });

  it("accepts user credentials, and a function that returns the token", async () => {
    const { fake, createProvider } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const user = { type: "authorized_user", client_id: "c", client_secret: "s", refresh_token: "refresh" };
    await createProvider({ ...without("token"), credentials: { ...user, token_uri: tokens.key.token_uri } }).list();
    expect(tokens.issued.map(({ by }) => by)).toEqual(["user"]);
    await createProvider({ token: async () => fake.token }).list();
  });

  it("accepts a key as text, and never repeats invalid text in an error", async () => {
    const { fake, createProvider } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const { key } = tokens;
    await createProvider({ ...without("token"), credentials: ` ${JSON.stringify(key, null, 2)}` }).list();
    expect(tokens.issued.map(({ by }) => by)).toEqual(["key"]);
    const secret = key.private_key.split("\n")[1]!;
    const whole = JSON.stringify(key);
    const useless = [
      whole.slice(0, -1),
      whole.replaceAll("{", "").replaceAll("}", ""),
      key.private_key,
      Buffer.from(whole).toString("base64"),
      secret,
      { ...key, private_key: secret },
      JSON.stringify({ ...key, private_key: secret }),
    ];
    for (const credentials of useless) {
      const error = await failure(createProvider({ ...without("token"), credentials }).list());
      expect(error).toMatchObject({ kind: "auth", certain: true });
      // Including everything that is printed of an error, such as its cause.
      const printed = inspect(error, { depth: 9, maxStringLength: null });
      for (const part of [secret, secret.slice(0, 12), Buffer.from(whole).toString("base64").slice(0, 24)]) {
        expect(printed).not.toContain(part);
      }
    }
    const dir = temporaryDirectory("key");
    fs.writeFileSync(`${dir}/key.json`, key.private_key);
    const error = await failure(createProvider({ ...without("token"), credentials: `${dir}/key.json` }).list());
    expect(error.message).toContain(`in ${dir}/key.json is not JSON`);
    expect(inspect(error, { depth: 9 })).not.toContain(secret);
    fs.rmSync(dir, { recursive: true });
  });

  it("reports why there is no token: a rejected, unreadable or unsupported key", async () => {
    const { fake, createProvider, time } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const list = (credentials: CloudRunOptions["credentials"] & {}) =>
      failure(createProvider({ ...without("token"), credentials }).list());
    tokens.fail(400);
    expect(await list(tokens.key)).toMatchObject({ kind: "auth", message: expect.stringMatching(/invalid_grant/) });
    expect(await list("/none/key.json")).toMatchObject({
      kind: "auth",
      message: expect.stringMatching(/cannot be read/),
    });
    expect(await list({ type: "external_account" })).toMatchObject({
      kind: "auth",
      message: expect.stringMatching(/external_account/),
    });
    tokens.fail(503, 503, 503, 503);
    expect(await list(tokens.key)).toMatchObject({ kind: "unreachable" });
    expect(time.waits).toEqual([1000, 2000, 4000]);
    expect(fake.calls).toEqual([]);
  });
});

/** Removes a default option of the fixture. */
function without(key: "token"): { token: never } {
  return { [key]: undefined } as unknown as { token: never };
}
