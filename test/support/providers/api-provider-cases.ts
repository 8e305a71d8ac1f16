// Fixtures of the conformance suite (test/orchestrator/providers.test.ts) for the API providers: a fake of the API on a
// simulated clock, which checks every request and response against the API's schema.
import { expect } from "vitest";
import type { ProviderFactory } from "../../../src/orchestrator/provider.ts";
import { cloudRun } from "../../../src/orchestrator/providers/cloud-run/cloud-run.ts";
import { fly } from "../../../src/orchestrator/providers/fly/fly.ts";
import { kubernetes } from "../../../src/orchestrator/providers/kubernetes/kubernetes.ts";
import { startFakeCloudRun } from "./fake-cloud-run.ts";
import { startFakeFly } from "./fake-fly.ts";
import { startFakeKubernetes } from "./fake-kubernetes.ts";
import { createTestTime, type Fake, type Fault, type TestTime } from "./fake-provider-api.ts";
import { FLEET, POOL, type ProviderFixture, providerContext } from "./provider-cases.ts";

const IMAGE = "registry.example/worker:v1";

export async function flyFixture(): Promise<ProviderFixture> {
  const time = createTestTime(Date.now());
  const fake = await startFakeFly({ now: time.now });
  const { app, token, url: base } = fake;
  const factory = fly({ app, token, base, image: IMAGE, size: "performance-1x", region: ["iad"], fetch: time.fetch });
  return {
    ...shared(fake, time, factory, "create"),
    running: () => fake.machines.filter(({ state }) => state === "started").map(({ name }) => name),
    readEnvironment: (name) => fake.machine(name).config.env ?? {},
    exit: async (name, code) => fake.exit(name, { code }),
    addForeign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { stillwake_fleet: fleet }), ...(pool && { stillwake_pool: pool }) };
      return fake.add(name, tags, "started").id;
    },
  };
}

export async function cloudRunFixture(): Promise<ProviderFixture> {
  const time = createTestTime(Date.now());
  const fake = await startFakeCloudRun({ now: time.now });
  const { project, region, token, url: base } = fake;
  const factory = cloudRun({ project, region, token, base, image: IMAGE, cpu: 2, memoryMb: 4096, fetch: time.fetch });
  return {
    ...shared(fake, time, factory, "runJob"),
    running: () => fake.executions.filter(({ state }) => state === "running").map(({ machine }) => machine),
    readEnvironment: (name) => environmentIn(fake.machine(name).template.containers),
    exit: async (name, code) => fake.exit(name, { code }),
    // All under our job resource, which alone does not make them ours.
    addForeign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { STILLWAKE_FLEET: fleet }), ...(pool && { STILLWAKE_POOL: pool }) };
      return fake.add(`sw-${FLEET}-${POOL}-c2-4096mb`, { STILLWAKE_MACHINE: name, ...tags }).id;
    },
  };
}

export async function kubernetesFixture(): Promise<ProviderFixture> {
  const time = createTestTime(Date.now());
  const fake = await startFakeKubernetes({ now: time.now });
  const { namespace, token, url: server } = fake;
  const factory = kubernetes({ namespace, token, server, image: IMAGE, cpu: 2, memoryMb: 4096, fetch: time.fetch });
  return {
    ...shared(fake, time, factory, "createJob"),
    running: () => fake.alive(),
    readEnvironment: (name) => environmentIn(fake.job(name).spec.template.spec.containers),
    exit: async (name, code) => fake.exit(name, { code }),
    addForeign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { "stillwake/fleet": fleet }), ...(pool && { "stillwake/pool": pool }) };
      return fake.add(name, { "app.kubernetes.io/managed-by": "stillwake", ...tags }).metadata.uid;
    },
  };
}

type SharedMethods =
  | "provider"
  | "waits"
  | "disconnect"
  | "rejectToken"
  | "loseResponse"
  | "repair"
  | "calls"
  | "close";

/** `start`: the operation that starts a machine. */
function shared(
  fake: Fake,
  time: TestTime,
  factory: ProviderFactory,
  start: string,
): Pick<ProviderFixture, SharedMethods> {
  const always = (fault: Fault) => fake.failRandomly({ random: () => 0, chance: 1, faults: [fault] });
  return {
    provider: ({ fleet = FLEET, pool = POOL } = {}) => factory(providerContext({ fleet, pool, clock: time })),
    waits: () => time.waits,
    disconnect: () => always({ kind: "reset" }),
    rejectToken: () => always({ kind: "status", status: 401 }),
    loseResponse: () => fake.fail(start, ...Array.from({ length: 4 }, () => ({ kind: "lost" as const }))),
    repair: () => void fake.clearFaults(),
    calls: () => fake.count(),
    async close() {
      await fake.close();
      expect(fake.violations).toEqual([]);
    },
  };
}

function environmentIn([container]: { env?: { name: string; value?: string }[] }[]): Record<string, string> {
  return Object.fromEntries((container?.env ?? []).map(({ name, value = "" }) => [name, value]));
}
