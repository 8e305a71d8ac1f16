// Machines on Cloud Run, on a fake of its API that fails as it is told: the job resource, executions as machines, lost answers without a second machine, whose
// executions are touched, and how it gets in. Nobody waits here: waits are counted on a clock of the test.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { inspect } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { machineName } from "../../src/orchestrator/names.ts";
import { priceOf } from "../../src/orchestrator/prices.ts";
import type { Order, Provider, ProviderError } from "../../src/orchestrator/provider.ts";
import { type CloudRunOptions, cloudRun } from "../../src/orchestrator/providers/cloud-run/cloud-run.ts";
import { readPoolOptions } from "../../src/orchestrator/settings.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/aftermath.ts";
import {
  type FakeCloudRun,
  type FakeCloudRunOptions,
  type FakeTokens,
  startFakeCloudRun,
  startFakeTokens,
} from "../support/providers/fake-cloud-run.ts";
import { dice, type Fault, type TestTime, testTime } from "../support/providers/fake-provider-api.ts";

const FLEET = "1a2b3c4d";
const POOL = "scan";
const JOB = "sw-1a2b3c4d-scan-c2-4096mb";
/** Each list is held to two descriptions, so that many machines take their time. */
const STARTS = FULL ? 200 : 40;
const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);

interface Stage {
  fake: FakeCloudRun;
  time: TestTime;
  provider: Provider;
  said: string[];
  another(options?: Partial<CloudRunOptions>, whose?: { fleet?: string; pool?: string }): Provider;
}

let stage: Stage | undefined;
let tokens: FakeTokens | undefined;

afterEach(async () => {
  const { fake } = stage ?? {};
  stage = undefined;
  await Promise.all([fake?.close(), tokens?.close()]);
  tokens = undefined;
  expect(fake?.violations ?? []).toEqual([]);
});

async function open(options: FakeCloudRunOptions = {}): Promise<Stage> {
  const time = testTime();
  const fake = await startFakeCloudRun({ now: time.now, onStuck: time.giveUp, ...options });
  const said: string[] = [];
  const another: Stage["another"] = (own = {}, { fleet = FLEET, pool = POOL } = {}) =>
    cloudRun({
      project: fake.project,
      region: fake.region,
      token: fake.token,
      ...(own.job === undefined && { image: "registry.example/worker:v1" }),
      cpu: 2,
      memoryMb: 4096,
      env: { NODE_OPTIONS: "--max-old-space-size=3072" },
      secrets: { STILLWAKE_DATABASE_URL: "stillwake-url", STILLWAKE_SEAL_KEYS: "seal-keys:3" },
      base: fake.url,
      timeout: "60s",
      fetch: time.fetch,
      ...own,
    })({ fleet, pool, slots: 1, graceMs: 30_000, clock: time, say: (_, message) => said.push(message) });
  stage = { fake, time, said, another, provider: another() };
  return stage;
}

function order(slot: number, serial = slot): Order {
  const name = `${machineName(FLEET, POOL, slot)}-${serial}`;
  return { name, burst: true, env: { STILLWAKE_MACHINE: name, STILLWAKE_POOL: POOL, STILLWAKE_MIN_UPTIME: "55000ms" } };
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
  it("makes one job resource per size, that never retries by itself and has its secrets by reference", async () => {
    const { fake, provider } = await open();
    await provider.start(order(1));
    await provider.start(order(2));
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

  it("changes nothing of a job resource that is as it should be, and brings one up to date that is not", async () => {
    const { fake, provider, another } = await open();
    await provider.start(order(1));
    await another().start(order(2));
    expect(fake.jobs.get(JOB)!.updates).toBe(1);
    await another({ image: "registry.example/worker:v2" }).start(order(3));
    expect(fake.jobs.get(JOB)!.updates).toBe(2);
    expect(fake.machine(order(3).name).template.containers[0]!.image).toBe("registry.example/worker:v2");
    fake.jobs.get(JOB)!.template.template.maxRetries = 3;
    await another({ image: "registry.example/worker:v2" }).start(order(4));
    expect(fake.jobs.get(JOB)!.template.template.maxRetries).toBe(0);
  });

  it("runs an execution with the machine's own environment, and makes the job resource again if somebody deleted it", async () => {
    const { fake, provider } = await open();
    await provider.start(order(1));
    expect(fake.machine(order(1).name).env).toEqual({ ...order(1).env, STILLWAKE_FLEET: FLEET });
    fake.jobs.delete(JOB);
    await provider.start(order(2));
    expect(fake.alive()).toHaveLength(2);
  });

  it("leaves alone a job resource of its own name that another fleet has made", async () => {
    const { fake, provider } = await open();
    const theirs = {
      name: JOB,
      labels: { "stillwake-fleet": "ffffffff" },
      template: { taskCount: 1, template: { containers: [{ image: "theirs:1" }] } },
      updates: 0,
    };
    fake.jobs.set(JOB, theirs);
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "refused", certain: true });
    expect(fake.jobs.get(JOB)).toBe(theirs);
    expect(fake.executions).toEqual([]);
  });

  it("only runs a job that is given, with an account that may do nothing else", async () => {
    const { fake, another } = await open();
    const provider = another({ job: "our-worker" });
    expect(await failure(provider.check!())).toMatchObject({ trouble: "refused" });
    fake.jobs.set("our-worker", {
      name: "our-worker",
      labels: {},
      template: { taskCount: 1, template: { containers: [{ image: "own:1" }], maxRetries: 3, timeout: "600s" } },
      updates: 0,
    });
    const bare = another({ job: "our-worker", cpu: undefined, memoryMb: undefined });
    expect(bare.facts).not.toHaveProperty("cpus");
    expect(priceOf("cloud-run", bare.facts), "of a size that is not known").toBeUndefined();
    expect(priceOf("cloud-run", provider.facts)).toBeDefined();
    expect(await bare.check!()).toContainEqual(expect.stringContaining("give cloudRun() its cpu and memoryMb"));
    expect(await provider.check!()).toEqual([
      expect.stringContaining("retries 3 times"),
      expect.stringContaining("after 600s"),
    ]);
    await provider.start(order(1));
    expect(fake.machine(order(1).name).env).toMatchObject({ NODE_OPTIONS: "--max-old-space-size=3072" });
    expect((await provider.list()).map(({ name }) => name)).toEqual([order(1).name]);
    expect(fake.count("patchJob") + fake.count("listJobs")).toBe(0);
  });

  it("says what is wrong with settings, with a remedy", () => {
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

describe("what is seen", () => {
  it("tells an execution that is pending, runs, is being cancelled and has ended, with its times", async () => {
    const { fake, provider, time } = await open();
    fake.hold = true;
    const asked = new Date(time.now());
    const { id } = await provider.start(order(1));
    const [machine] = await provider.list();
    expect(machine).toEqual({ name: order(1).name, id, state: "starting", since: expect.any(Date) });
    expect(machine!.since!.getTime()).toBeGreaterThanOrEqual(asked.getTime());
    time.advance(7000);
    const began = new Date(time.now());
    fake.begin(order(1).name);
    expect(await provider.list()).toEqual([{ name: order(1).name, id, state: "running", startedAt: began }]);
    await provider.remove({ name: order(1).name, id });
    expect(await provider.list()).toMatchObject([{ state: "stopping", since: expect.any(Date) }]);
    time.advance(5000);
    fake.exit(order(1).name, { code: 143 });
    expect(await provider.list()).toEqual([
      {
        name: order(1).name,
        id,
        state: "gone",
        startedAt: began,
        endedAt: new Date(time.now()),
        exit: { requested: true, reason: "it was cancelled" },
      },
    ]);
    // To end what is gone is no error, nor what ends in that moment.
    fake.hold = false;
    await provider.start(order(2));
    const going = fake.machine(order(2).name);
    fake.fail("cancelExecution", status(400));
    expect(await failure(provider.remove({ name: order(2).name, id: going.id }))).toMatchObject({ trouble: "refused" });
    fake.fail("getExecution", { kind: "lost" });
    await provider.remove({ name: order(2).name, id: going.id });
    fake.executions.splice(fake.executions.indexOf(going), 1);
    await provider.remove({ name: order(1).name, id });
    await provider.remove({ name: order(9).name, id: "jobs/none/executions/none" });
    expect(fake.count("cancelExecution")).toBe(3);
  });

  it("names how a machine ended: well, with a code, by a signal, for want of memory", async () => {
    const { fake, provider } = await open();
    for (const slot of [1, 2, 3, 4, 5]) await provider.start(order(slot));
    fake.exit(order(1).name, { code: 0 });
    fake.exit(order(2).name, { code: 7 });
    fake.exit(order(3).name, { code: 0, signal: 9, message: "The container was terminated" });
    fake.executions.find(({ machine }) => machine === order(3).name)!.state = "failed";
    fake.exit(order(4).name, { code: 137, oom: true });
    fake.exit(order(5).name, { code: 1, message: "Memory limit of 4096 MiB exceeded with 4099 MiB used" });
    const machines = new Map((await provider.list()).map((machine) => [machine.name, machine]));
    const exit = async (slot: number) => {
      const machine = machines.get(order(slot).name)!;
      return machine.exit ?? (await provider.autopsy!(machine));
    };
    expect(await exit(1)).toEqual({ code: 0 });
    expect(await exit(2)).toEqual({ code: 7 });
    expect(await exit(3)).toEqual({ signal: "SIGKILL", reason: "The container was terminated" });
    expect(await exit(4)).toEqual({ oom: true, memory: "4 GB" });
    expect(await exit(5)).toEqual({ oom: true, memory: "4 GB" });
  });

  it("says which machines were made with other settings, and still knows those of another size", async () => {
    const { fake, provider, another } = await open();
    await provider.start(order(1));
    const larger = another({ cpu: 4, memoryMb: 8192 });
    await larger.start(order(2));
    expect([...fake.jobs.keys()]).toEqual([JOB, "sw-1a2b3c4d-scan-c4-8192mb"]);
    const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
    expect((await larger.list()).sort(byName)).toMatchObject([
      { name: order(1).name, state: "running", stale: true },
      { name: order(2).name, state: "running" },
    ]);
    expect((await larger.list()).find(({ name }) => name === order(2).name)!.stale).toBeUndefined();
    expect(another().facts.made).toBe(provider.facts.made);
    expect(larger.facts.made).not.toBe(provider.facts.made);
    expect(another({ job: "one" }).facts.made).not.toBe(another({ job: "two" }).facts.made);
    const [old] = (await larger.list()).filter(({ stale }) => stale);
    await larger.remove(old!);
    expect(fake.machine(order(1).name).state).toBe("cancelled");
  });

  it("reads all pages once, and then only what is new", async () => {
    const { fake, provider, time } = await open();
    await provider.start(order(1));
    const old = fake.executions.shift()!;
    for (let serial = 100; serial < 450; serial++) {
      const env = { ...order(2, serial).env, STILLWAKE_FLEET: FLEET };
      Object.assign(fake.add(JOB, env, "succeeded"), { endedAt: time.now() });
      time.advance(60_000);
    }
    // One that has been running all the while stands on the last page.
    fake.executions.push(old);
    const pages = async () => {
      const before = fake.count("listExecutions");
      const machines = await provider.list();
      expect(machines.find(({ name }) => name === order(1).name)).toMatchObject({ state: "running" });
      return fake.count("listExecutions") - before;
    };
    expect(await pages()).toBe(4);
    expect(await pages()).toBe(4);
    fake.exit(order(1).name, { code: 0 });
    await provider.list();
    const before = fake.count("listExecutions");
    expect(await provider.list()).toHaveLength(100);
    expect(fake.count("listExecutions") - before).toBe(1);
  });

  it("tells of an end that it has read while it looked for another machine, however many have been made since", async () => {
    const { fake, provider, time } = await open();
    const { id } = await provider.start(order(1));
    await provider.list();
    for (let serial = 100; serial < 260; serial++) {
      const env = { ...order(2, serial).env, STILLWAKE_FLEET: FLEET };
      Object.assign(fake.add(JOB, env, "succeeded"), { endedAt: time.now() });
      time.advance(60_000);
    }
    fake.exit(order(1).name, { code: 7 });
    await provider.start(order(3));
    // A list that fails half way has told of nothing.
    const pages = fake.count("listExecutions");
    fake.fail("listExecutions", status(503), status(503), status(503), status(503));
    await failure(provider.list());
    expect(fake.count("listExecutions") - pages).toBe(4);
    const told = (await provider.list()).find(({ name }) => name === order(1).name);
    expect(told).toMatchObject({ id, state: "gone" });
    expect(await provider.autopsy!(told!)).toEqual({ code: 7 });
  });

  it("throws when it cannot be answered, and never says that there are none", async () => {
    const { fake, provider } = await open();
    await provider.start(order(1));
    fake.fail("listExecutions", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.list())).toMatchObject({ trouble: "unreachable" });
    expect(await provider.list()).toHaveLength(1);
  });
});

describe("whose machines", () => {
  it("T47: sees and touches no execution of another fleet, of another pool, or of nobody", async () => {
    const { fake, provider, another } = await open();
    await provider.start(order(1));
    const foreign = "sw-ffffffff-scan-m1-1";
    const named = machineName(FLEET, POOL, 3);
    fake.add(JOB, { STILLWAKE_MACHINE: foreign, STILLWAKE_FLEET: "ffffffff" });
    // A name like ours, in a fleet that is not; and one without a tag.
    fake.add(JOB, { STILLWAKE_MACHINE: named, STILLWAKE_FLEET: "ffffffff" });
    fake.add(JOB, { STILLWAKE_MACHINE: named });
    fake.add(JOB, {});
    await another({}, { pool: "other" }).start({
      ...order(1),
      name: machineName(FLEET, "other", 1),
      env: { STILLWAKE_MACHINE: machineName(FLEET, "other", 1) },
    });
    expect((await provider.list()).map(({ name }) => name)).toEqual([order(1).name]);
    for (const execution of fake.executions.filter(({ machine }) => machine !== order(1).name)) {
      const removed = provider.remove({ name: execution.machine || named, id: execution.id });
      expect(await failure(removed)).toMatchObject({ trouble: "refused" });
    }
    expect(fake.count("cancelExecution")).toBe(0);
    await provider.remove({ name: order(1).name, id: fake.machine(order(1).name).id });
    expect(fake.alive()).toHaveLength(5);
  });
});

describe("T44: when the answer does not come", () => {
  const faults: [string, Fault, Partial<ProviderError> | undefined][] = [
    ["is lost after the execution was made", { kind: "lost" }, undefined],
    ["comes after we gave up", { kind: "late" }, undefined],
    ["is 502 after the execution was made", status(502, { done: true }), undefined],
    ["is 500", status(500), undefined],
    ["is 503", status(503), undefined],
    ["is 429", status(429), undefined],
    ["is 429 with a time", status(429, { retryAfter: 7 }), undefined],
    ["never comes, and nothing was done", { kind: "hang" }, { trouble: "unreachable", certain: false }],
    ["is a broken connection", { kind: "reset" }, { trouble: "unreachable", certain: false }],
  ];

  it.each(faults)("there is one machine when it %s", async (_, fault, expected) => {
    const { fake, provider } = await open();
    await provider.list();
    fake.fail("runJob", fault);
    if (expected) {
      expect(await failure(provider.start(order(1)))).toMatchObject(expected);
      // The orchestrator asks again with the same name.
      await provider.start(order(1));
    } else {
      const { id } = await provider.start(order(1));
      expect(id).toBe(fake.machine(order(1).name).id);
    }
    await fake.settled();
    await provider.start(order(1));
    expect(fake.executions).toHaveLength(1);
  });

  it("there is one machine when the execution comes after we gave up", async () => {
    const { fake, provider } = await open();
    await provider.list();
    fake.fail("runJob", { kind: "belated" });
    const done = await provider.start(order(1)).catch((error: ProviderError) => error);
    if (!("id" in done)) expect(done).toMatchObject({ trouble: "unreachable", certain: false });
    await fake.settled();
    expect(await provider.start(order(1))).toMatchObject({ id: fake.machine(order(1).name).id });
  });

  it("waits 1, 2 and 4 s between tries, looking each time whether it is there after all", async () => {
    const { fake, provider, time } = await open();
    await provider.start(order(1));
    time.waits.length = 0;
    const lists = fake.count("listExecutions");
    fake.fail("runJob", status(502), status(502), status(502));
    await provider.start(order(2));
    expect(time.waits).toEqual([1000, 2000, 4000]);
    expect(fake.count("listExecutions") - lists).toBe(5);
    time.waits.length = 0;
    const from = time.now();
    const date = new Date(Math.ceil(time.now() / 1000) * 1000 + 11_000);
    fake.fail("runJob", status(429), status(429, { retryAfter: date.toUTCString() }), status(429, { retryAfter: 3 }));
    await provider.start(order(3));
    expect(time.waits).toEqual([2000, date.getTime() - from - 2000, 3000]);
  });

  it("does not say of a machine that is in doubt that it is certainly not there", async () => {
    const { fake, provider } = await open();
    await provider.start(order(1));
    fake.fail("runJob", { kind: "lost" });
    fake.fail("listExecutions", ...[status(404), ...Array.from({ length: 8 }, () => status(503))]);
    expect(await failure(provider.start(order(2)))).toMatchObject({ trouble: "unreachable", certain: false });
    expect(await failure(provider.start(order(2)))).toMatchObject({ trouble: "unreachable", certain: false });
    expect(await provider.start(order(2))).toEqual({ id: fake.machine(order(2).name).id, startedAt: expect.any(Date) });
    // Of one that was never asked for it is certain.
    fake.fail("listExecutions", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.start(order(3)))).toMatchObject({ trouble: "unreachable", certain: true });
  });

  it("makes one machine of two calls at once, in one process and in two", async () => {
    const { fake, provider, another } = await open();
    await Promise.all([provider.start(order(1)), provider.start(order(1))]);
    expect(fake.executions).toHaveLength(1);
    const [a, b] = [another(), another()];
    await Promise.all([a.list(), b.list()]);
    const ids = await Promise.all([a.start(order(2)), b.start(order(2))]);
    expect(new Set(ids.map(({ id }) => id)).size).toBe(1);
    expect(fake.alive().filter(({ machine }) => machine === order(2).name)).toHaveLength(1);
  });

  it("leaks and doubles nothing over many starts with random failures", async () => {
    const { fake, provider, time } = await open();
    const random = dice(SEED);
    const kinds: Fault[] = [
      status(500),
      status(503),
      status(429),
      { kind: "lost" },
      { kind: "reset" },
      { kind: "late" },
      status(502, { done: true }),
    ];
    await provider.start(order(999));
    fake.chaos({
      random,
      chance: 0.25,
      faults: kinds,
      only: ["runJob", "listExecutions", "cancelExecution", "getExecution"],
    });
    // What was certainly not started is not there, and will not be.
    const nothing = async (name: string) => {
      await fake.settled();
      expect(
        fake.executions.filter(({ machine }) => machine === name),
        `${name}, seed ${SEED}`,
      ).toEqual([]);
    };
    let asked = 0;
    for (let serial = 1; serial <= STARTS; serial++) {
      for (let tries = 0; ; tries++) {
        asked += 1;
        if (tries > 20) expect.fail(`No machine after ${tries} tries (seed ${SEED})`);
        const done = await provider.start(order(1, serial)).catch((error: ProviderError) => error);
        if ("id" in done) break;
        if (done.certain) await nothing(order(1, serial).name);
        time.advance(60_000);
      }
    }
    const faults = fake.calm();
    await fake.settled();
    const names = fake.executions.map(({ machine }) => machine);
    expect(new Set(names).size, `seed ${SEED}`).toBe(STARTS + 1);
    expect(fake.alive(), `seed ${SEED}`).toHaveLength(STARTS + 1);
    recordFigure(
      `cloud-run: executions for ${STARTS} starts under random failures`,
      fake.alive().length - 1,
      "machines",
    );
    expect(faults).toBeGreaterThan(STARTS / 8);
    expect(asked).toBeGreaterThanOrEqual(STARTS);
  }, 300_000);
});

describe("what is paid and what there is room for", () => {
  it("pays for a minute at least, so that its worker stays to drain the minute already paid", async () => {
    const { provider, another } = await open();
    expect(provider.facts).toMatchObject({ leastSeconds: 60, cpus: 2, memoryMb: 4096, region: "us-central1" });
    const options = { provider: () => another() };
    expect(readPoolOptions(POOL, options, provider.facts)).toMatchObject({ stayMs: 55_000, idleExitMs: 5000 });
    expect("prepare" in provider).toBe(false);
  });

  it("says that there is no room when the quota of executions is used up, and that nothing was started", async () => {
    const { fake, provider } = await open();
    fake.quota = 1;
    await provider.start(order(1));
    const error = await failure(provider.start(order(2)));
    expect(error).toMatchObject({ trouble: "capacity", certain: true });
    expect(error.remedy).toMatch(/quota/);
    fake.exit(order(1).name, { code: 0 });
    await provider.start(order(2));
    fake.fail(
      "runJob",
      ...Array.from({ length: 4 }, () => status(429, { message: "Quota exceeded for write requests per minute" })),
    );
    expect(await failure(provider.start(order(3)))).toMatchObject({ trouble: "rate", certain: true });
  });
});

describe("how it gets in", () => {
  it("asks nothing more after 401, and says what to do", async () => {
    const { fake, provider, time } = await open();
    fake.tokens.clear();
    const error = await failure(provider.start(order(1)));
    expect(error).toMatchObject({ trouble: "auth", certain: true, retryable: false });
    expect(error.message).toMatch(/401.*run\.jobs\.run/s);
    expect(error.message).not.toContain(fake.token);
    expect(fake.calls).toHaveLength(1);
    expect(time.waits).toEqual([]);
    fake.fail("listJobs", status(403));
    expect(await failure(provider.list())).toMatchObject({ trouble: "auth" });
  });

  it("trades a service account's key for a token, keeps it until a minute before its end, and asks once for many", async () => {
    const { fake, another, time } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-key-")), "key.json");
    fs.writeFileSync(file, JSON.stringify(tokens.key));
    const provider = another({ ...without("token"), credentials: file });
    await Promise.all([provider.list(), provider.list(), provider.check!()]);
    expect(tokens.given.map(({ by }) => by)).toEqual(["key"]);
    time.advance(3539_000);
    await provider.list();
    expect(tokens.given).toHaveLength(1);
    time.advance(2000);
    fake.tokens.clear();
    await provider.list();
    expect(tokens.given).toHaveLength(2);
    fs.rmSync(path.dirname(file), { recursive: true });
  });

  it("asks the metadata server where there is no key, and gets a new token after one was refused", async () => {
    const { fake, another } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const provider = another({ ...without("token"), metadata: tokens.url });
    await provider.list();
    fake.tokens.clear();
    expect(await failure(provider.list())).toMatchObject({ trouble: "auth" });
    await provider.list();
    expect(tokens.given.map(({ by }) => by)).toEqual(["metadata", "metadata"]);
  });

  it("takes a user's own credentials, and a function that knows the token", async () => {
    const { fake, another } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const user = { type: "authorized_user", client_id: "c", client_secret: "s", refresh_token: "refresh" };
    await another({ ...without("token"), credentials: { ...user, token_uri: tokens.key.token_uri } }).list();
    expect(tokens.given.map(({ by }) => by)).toEqual(["user"]);
    await another({ token: async () => fake.token }).list();
  });

  it("takes a key as text, and says nothing back of a text that cannot be used", async () => {
    const { fake, another } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const { key } = tokens;
    await another({ ...without("token"), credentials: ` ${JSON.stringify(key, null, 2)}` }).list();
    expect(tokens.given.map(({ by }) => by)).toEqual(["key"]);
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
      const error = await failure(another({ ...without("token"), credentials }).list());
      expect(error).toMatchObject({ trouble: "auth", certain: true });
      // With all that is printed of an error, such as what caused it.
      const printed = inspect(error, { depth: 9, maxStringLength: null });
      for (const part of [secret, secret.slice(0, 12), Buffer.from(whole).toString("base64").slice(0, 24)]) {
        expect(printed).not.toContain(part);
      }
    }
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-key-"));
    fs.writeFileSync(`${dir}/key.json`, key.private_key);
    const error = await failure(another({ ...without("token"), credentials: `${dir}/key.json` }).list());
    expect(error.message).toContain(`in ${dir}/key.json is not JSON`);
    expect(inspect(error, { depth: 9 })).not.toContain(secret);
    fs.rmSync(dir, { recursive: true });
  });

  it("says why there is no token: a key that is refused, that cannot be read, or of a kind that is not understood", async () => {
    const { fake, another, time } = await open();
    tokens = await startFakeTokens({ onToken: (token) => fake.tokens.add(token) });
    const list = (credentials: CloudRunOptions["credentials"] & {}) =>
      failure(another({ ...without("token"), credentials }).list());
    tokens.fail(400);
    expect(await list(tokens.key)).toMatchObject({ trouble: "auth", message: expect.stringMatching(/invalid_grant/) });
    expect(await list("/none/key.json")).toMatchObject({
      trouble: "auth",
      message: expect.stringMatching(/cannot be read/),
    });
    expect(await list({ type: "external_account" })).toMatchObject({
      trouble: "auth",
      message: expect.stringMatching(/external_account/),
    });
    tokens.fail(503, 503, 503, 503);
    expect(await list(tokens.key)).toMatchObject({ trouble: "unreachable" });
    expect(time.waits).toEqual([1000, 2000, 4000]);
    expect(fake.calls).toEqual([]);
  });
});

/** As if it had not been given: the stage's own would stand otherwise. */
function without(key: "token"): { token: never } {
  return { [key]: undefined } as unknown as { token: never };
}
