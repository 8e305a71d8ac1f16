// Cloud Run and Kubernetes end to end: an orchestrator on a real database, machines of fake APIs, and real workers on them.
import { describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import {
  cloudRun,
  createOrchestrator,
  kubernetes,
  type OrchestratorEvent,
  type ProviderFactory,
} from "../../src/orchestrator/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { startFakeCloudRun } from "../support/providers/fake-cloud-run.ts";
import { startFakeKubernetes } from "../support/providers/fake-kubernetes.ts";
import type { Fake, MachineProcess } from "../support/providers/fake-provider-api.ts";
import { fastClock, latch, startMachineWorker } from "../support/providers/provider-test.ts";

const { url } = await freshDatabase();
const client = await connect(url);

const clock = fastClock(url);

type Env = Record<string, string>;

interface Cloud {
  fake: Fake;
  provider: ProviderFactory;
  alive(): string[];
  runOutOfMemory(name: string): void;
}

const image = "registry.example/worker:v1";
const clouds: { name: string; open(onStart: (env: Env) => MachineProcess): Promise<Cloud> }[] = [
  {
    name: "cloud-run",
    async open(onStart) {
      const fake = await startFakeCloudRun({ now: clock.now, onStart: ({ env }) => onStart(env) });
      const { project, region, token } = fake;
      return {
        fake,
        provider: cloudRun({ project, region, token, image, base: fake.url }),
        alive: () => fake.alive().map(({ machine }) => machine),
        runOutOfMemory: (name) => fake.exit(name, { code: 137, oom: true }),
      };
    },
  },
  {
    name: "kubernetes",
    async open(onStart) {
      const fake = await startFakeKubernetes({ now: clock.now, onStart: ({ env }) => onStart(env) });
      const { namespace, token } = fake;
      return {
        fake,
        provider: kubernetes({ namespace, token, image, memoryMb: 2048, server: fake.url, secretRef: "worker" }),
        alive: () => fake.alive(),
        runOutOfMemory: (name) => fake.exit(name, { code: 137, oom: true }),
      };
    },
  },
];

/** `lost`: the worker of the first machine claims a job and then does nothing, like one on a machine that was lost. */
async function open({ name, open: openCloud }: (typeof clouds)[0], suffix: string, { lost = false } = {}) {
  const pool = `${name}-${suffix}`;
  const work = pipeline<{ n: number }>(pool, { pool, retry: { attempts: 3, initial: "10ms" } });
  const started: string[] = [];
  const { opened, open: release } = latch();
  const code = implement(work, () => opened);
  const cloud = await openCloud((env) => {
    started.push(env.STILLWAKE_MACHINE!);
    if (lost && started.length === 1) return { exited: claimOne(env), kill: () => {} };
    return startMachineWorker(env, { url, pipelines: [code] });
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
    release();
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
    started,
    events,
    release,
    advance: async (ms: number) => {
      await clock.advance(ms);
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
        "select machine, ended_at, exit, provider_id from stillwake.machine_lives where pool = $1 order by requested_at",
      ),
    states: async () =>
      (await rows<{ state: string }>("select state from stillwake.jobs where pool = $1")).map(({ state }) => state),
  };
}

async function claimOne({ STILLWAKE_MACHINE: name, STILLWAKE_POOL: pool }: Env): Promise<never> {
  await client.query("select stillwake.machine_registered($1, $2)", [name, pool]);
  await client.query("select stillwake.claim($1, $2, array[$2], 1, '1 hour')", [name, pool]);
  return new Promise(() => {});
}

describe.each(clouds)("$name", (cloud) => {
  it("starts a separate machine for each of three jobs, and all exit afterwards", async () => {
    const fixture = await open(cloud, "flow");
    await fixture.enqueue(3);
    await waitFor(async () => (await fixture.running()).length === 3, { timeout: 30_000, what: "three jobs to run" });
    expect(new Set(await fixture.running()).size).toBe(3);
    expect(fixture.alive().toSorted()).toEqual((await fixture.running()).toSorted());
    fixture.release();
    await waitFor(() => fixture.alive().length === 0, { timeout: 30_000, what: "the machines to exit" });
    await fixture.advance(15_000);
    const lives = await waitFor(
      async () => {
        const all = await fixture.lives();
        return all.every(({ ended_at }) => ended_at !== null) && all;
      },
      { timeout: 30_000, what: "their lives to be closed" },
    );
    expect(lives.map(({ exit }) => exit)).toEqual([{ code: 0 }, { code: 0 }, { code: 0 }]);
    expect(lives.every(({ provider_id }) => provider_id)).toBe(true);
    expect(await fixture.states()).toEqual(["completed", "completed", "completed"]);
    expect(fixture.started).toHaveLength(3);
  }, 60_000);

  it("reports a machine that runs out of memory with a job, which is retried on another machine", async () => {
    const fixture = await open(cloud, "memory", { lost: true });
    const [job] = await fixture.enqueue(1);
    const [first] = await waitFor(
      async () => {
        const names = await fixture.running();
        return names.length === 1 && names;
      },
      { timeout: 30_000, what: "the job to run" },
    );
    fixture.runOutOfMemory(first!);
    await fixture.advance(35_000);
    await waitFor(() => fixture.started.length === 2, { timeout: 60_000, what: "another machine" });
    fixture.release();
    await waitFor(async () => (await fixture.states())[0] === "completed", {
      timeout: 30_000,
      what: "the job to complete",
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
