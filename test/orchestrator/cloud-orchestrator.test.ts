// From end to end on Cloud Run and Kubernetes: an orchestrator on a real database, machines of the fakes of their APIs, and real workers on them.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import {
  type Clock,
  cloudRun,
  createOrchestrator,
  kubernetes,
  type OrchestratorEvent,
  type ProviderFactory,
} from "../../src/orchestrator/index.ts";
import { realClock } from "../../src/orchestrator/provider.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { startFakeCloudRun } from "../support/providers/fake-cloud-run.ts";
import type { Body, End } from "../support/providers/fake-fly.ts";
import { startFakeKubernetes } from "../support/providers/fake-kubernetes.ts";
import type { Fake } from "../support/providers/fake-provider-api.ts";

const { url } = await freshDatabase();
const client = new pg.Client({ connectionString: url });
beforeAll(() => client.connect());
afterAll(() => client.end());

type Env = Record<string, string>;

interface Cloud {
  fake: Fake;
  provider: ProviderFactory;
  alive(): string[];
  /** The machine ends for want of memory. */
  exhaust(name: string): void;
}

const image = "registry.example/worker:v1";
const clouds: { name: string; open(onStart: (env: Env) => Body): Promise<Cloud> }[] = [
  {
    name: "cloud-run",
    async open(onStart) {
      const fake = await startFakeCloudRun({ now, onStart: ({ env }) => onStart(env) });
      const { project, region, token } = fake;
      return {
        fake,
        provider: cloudRun({ project, region, token, image, base: fake.url }),
        alive: () => fake.alive().map(({ machine }) => machine),
        exhaust: (name) => fake.exit(name, { code: 137, oom: true }),
      };
    },
  },
  {
    name: "kubernetes",
    async open(onStart) {
      const fake = await startFakeKubernetes({ now, onStart: ({ env }) => onStart(env) });
      const { namespace, token } = fake;
      return {
        fake,
        provider: kubernetes({ namespace, token, image, memoryMb: 2048, server: fake.url, secretRef: "worker" }),
        alive: () => fake.alive(),
        exhaust: (name) => fake.exit(name, { code: 137, oom: true }),
      };
    },
  },
];

/** How far everybody's time is ahead of the real one. Waits between tries pass fifty times as fast. */
let aheadMs = 0;
const now = () => Date.now() + aheadMs;
const clock: Clock = { now, sleep: (ms, signal) => realClock.sleep(ms / 50, signal) };

/** `frail`: the first machine's worker takes a job and does nothing more, as one does that dies without a word. */
async function open({ name, open: openCloud }: (typeof clouds)[0], what: string, { frail = false } = {}) {
  const pool = `${name}-${what}`;
  const work = pipeline<{ n: number }>(pool, { pool, retry: { attempts: 3, initial: "10ms" } });
  const begun: string[] = [];
  let free: () => void = () => {};
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  const code = implement(work, () => freed);
  const cloud = await openCloud((env) => {
    begun.push(env.STILLWAKE_MACHINE!);
    if (frail && begun.length === 1) return { exited: takeOne(env), kill: () => {} };
    const worker = createWorker({
      url,
      directUrl: false,
      pipelines: [code],
      machine: env.STILLWAKE_MACHINE!,
      pool: env.STILLWAKE_POOL!,
      slots: Number(env.STILLWAKE_SLOTS),
      // As it was told, but for the minute that is paid anyway: nobody waits for that here.
      idleExit: env.STILLWAKE_IDLE_EXIT as "1s",
      poll: "50ms",
      grace: "100ms",
      webhooks: false,
    });
    const exited = worker
      .start()
      .then(() => worker.done)
      .then((): End => ({ code: 0 }))
      .catch((): End => ({ code: 1 }));
    return { exited, kill: () => void worker.stop() };
  });
  const events: OrchestratorEvent[] = [];
  const orchestrator = createOrchestrator({
    url,
    pools: { [pool]: { provider: cloud.provider, idleExit: "300ms", max: 3 } },
    onEvent: (event) => events.push(event),
    clock,
  });
  const stillwake = createStillwake({ url, poke: () => orchestrator.poke() });
  await stillwake.register(work);
  onTestFinished(async () => {
    free();
    await orchestrator.stop();
    await stillwake.close();
    await cloud.fake.close();
    expect(cloud.fake.violations).toEqual([]);
  });
  await orchestrator.start();
  const rows = async <T>(sql: string): Promise<T[]> => (await client.query(sql, [pool])).rows;
  return {
    ...cloud,
    pool,
    begun,
    events,
    free,
    /** Such as until the provider is asked again. */
    pass: async (ms: number) => {
      await travel(url, `${ms}ms`);
      aheadMs += ms;
      orchestrator.poke();
    },
    enqueue: (count: number) =>
      stillwake.enqueueMany(
        work,
        Array.from({ length: count }, (_, n) => ({ n })),
      ),
    running: async () =>
      (await rows<{ worker: string }>("select worker from stillwake.jobs where pool = $1 and state = 'running'")).map(
        ({ worker }) => worker,
      ),
    lives: () =>
      rows<{ machine: string; ended_at: Date | null; exit: object | null; provider_id: string }>(
        "select machine, ended_at, exit, provider_id from stillwake.machine_lives where pool = $1 order by asked_at",
      ),
    states: async () =>
      (await rows<{ state: string }>("select state from stillwake.jobs where pool = $1")).map(({ state }) => state),
  };
}

async function takeOne({ STILLWAKE_MACHINE: name, STILLWAKE_POOL: pool }: Env): Promise<never> {
  await client.query("select stillwake.machine_arrived($1, $2)", [name, pool]);
  await client.query("select stillwake.claim($1, $2, array[$2], 1, '1 hour')", [name, pool]);
  return new Promise(() => {});
}

describe.each(clouds)("$name", (cloud) => {
  it("has a machine for each of three jobs, each another one, and none after them", async () => {
    const stage = await open(cloud, "flow");
    await stage.enqueue(3);
    await waitFor(async () => (await stage.running()).length === 3, { timeout: 30_000, what: "three jobs to run" });
    expect(new Set(await stage.running()).size).toBe(3);
    expect(stage.alive().toSorted()).toEqual((await stage.running()).toSorted());
    stage.free();
    await waitFor(() => stage.alive().length === 0, { timeout: 30_000, what: "the machines to end" });
    await stage.pass(15_000);
    const lives = await waitFor(
      async () => {
        const all = await stage.lives();
        return all.every(({ ended_at }) => ended_at !== null) && all;
      },
      { timeout: 30_000, what: "their lives to be closed" },
    );
    expect(lives.map(({ exit }) => exit)).toEqual([{ code: 0 }, { code: 0 }, { code: 0 }]);
    expect(lives.every(({ provider_id }) => provider_id)).toBe(true);
    expect(await stage.states()).toEqual(["completed", "completed", "completed"]);
    expect(stage.begun).toHaveLength(3);
  }, 60_000);

  it("names the want of memory of a machine that dies under a job, which goes on on another", async () => {
    const stage = await open(cloud, "memory", { frail: true });
    const [job] = await stage.enqueue(1);
    const [first] = await waitFor(
      async () => {
        const names = await stage.running();
        return names.length === 1 && names;
      },
      { timeout: 30_000, what: "the job to run" },
    );
    stage.exhaust(first!);
    await stage.pass(35_000);
    await waitFor(() => stage.begun.length === 2, { timeout: 60_000, what: "another machine" });
    stage.free();
    await waitFor(async () => (await stage.states())[0] === "completed", {
      timeout: 30_000,
      what: "the job to be done",
    });
    const { rows } = await client.query(
      "select failure from stillwake.attempts where job_id = $1 order by attempt limit 1",
      [job!.id],
    );
    expect(rows[0].failure).toMatchObject({
      code: "MACHINE_OOM",
      message: `Machine ${first} ran out of memory at 2 GB`,
    });
  }, 120_000);
});
