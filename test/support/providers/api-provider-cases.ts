// The stages of the conformance suite (test/orchestrator/providers.test.ts) for providers with an API: each is a fake of it, on a clock of the test, whose every request and
// answer is held to its description.
import { expect } from "vitest";
import type { ProviderFactory } from "../../../src/orchestrator/provider.ts";
import { cloudRun } from "../../../src/orchestrator/providers/cloud-run/cloud-run.ts";
import { fly } from "../../../src/orchestrator/providers/fly/fly.ts";
import { kubernetes } from "../../../src/orchestrator/providers/kubernetes/kubernetes.ts";
import { startFakeCloudRun } from "./fake-cloud-run.ts";
import { startFakeFly } from "./fake-fly.ts";
import { startFakeKubernetes } from "./fake-kubernetes.ts";
import { type Fake, type Fault, type TestTime, testTime } from "./fake-provider-api.ts";
import { contextOf, FLEET, POOL, type ProviderStage } from "./provider-cases.ts";

const IMAGE = "registry.example/worker:v1";

export async function flyStage(): Promise<ProviderStage> {
  const time = testTime(Date.now());
  const fake = await startFakeFly({ now: time.now });
  const { app, token, url: base } = fake;
  const make = fly({ app, token, base, image: IMAGE, size: "performance-1x", region: ["iad"], fetch: time.fetch });
  return {
    ...common(fake, time, make, "create"),
    running: () => fake.machines.filter(({ state }) => state === "started").map(({ name }) => name),
    environmentOf: (name) => fake.machine(name).config.env ?? {},
    end: async (name, code) => fake.exit(name, { code }),
    foreign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { stillwake_fleet: fleet }), ...(pool && { stillwake_pool: pool }) };
      return fake.add(name, tags, "started").id;
    },
  };
}

export async function cloudRunStage(): Promise<ProviderStage> {
  const time = testTime(Date.now());
  const fake = await startFakeCloudRun({ now: time.now });
  const { project, region, token, url: base } = fake;
  const make = cloudRun({ project, region, token, base, image: IMAGE, cpu: 2, memoryMb: 4096, fetch: time.fetch });
  return {
    ...common(fake, time, make, "runJob"),
    running: () => fake.executions.filter(({ state }) => state === "running").map(({ machine }) => machine),
    environmentOf: (name) => environmentIn(fake.machine(name).template.containers),
    end: async (name, code) => fake.exit(name, { code }),
    // All under the job resource of ours: that alone makes none of them ours.
    foreign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { STILLWAKE_FLEET: fleet }), ...(pool && { STILLWAKE_POOL: pool }) };
      return fake.add(`sw-${FLEET}-${POOL}-c2-4096mb`, { STILLWAKE_MACHINE: name, ...tags }).id;
    },
  };
}

export async function kubernetesStage(): Promise<ProviderStage> {
  const time = testTime(Date.now());
  const fake = await startFakeKubernetes({ now: time.now });
  const { namespace, token, url: server } = fake;
  const make = kubernetes({ namespace, token, server, image: IMAGE, cpu: 2, memoryMb: 4096, fetch: time.fetch });
  return {
    ...common(fake, time, make, "createJob"),
    running: () => fake.alive(),
    environmentOf: (name) => environmentIn(fake.job(name).spec.template.spec.containers),
    end: async (name, code) => fake.exit(name, { code }),
    foreign: async ({ name, fleet, pool }) => {
      const tags = { ...(fleet && { "stillwake/fleet": fleet }), ...(pool && { "stillwake/pool": pool }) };
      return fake.add(name, { "app.kubernetes.io/managed-by": "stillwake", ...tags }).metadata.uid;
    },
  };
}

type Common = "provider" | "waits" | "unplug" | "refuseToken" | "loseAnswer" | "mend" | "calls" | "close";

/** `start` is the operation that starts a machine. */
function common(fake: Fake, time: TestTime, make: ProviderFactory, start: string): Pick<ProviderStage, Common> {
  const always = (fault: Fault) => fake.chaos({ random: () => 0, chance: 1, faults: [fault] });
  return {
    provider: ({ fleet = FLEET, pool = POOL } = {}) => make(contextOf({ fleet, pool, clock: time })),
    waits: () => time.waits,
    unplug: () => always({ kind: "reset" }),
    refuseToken: () => always({ kind: "status", status: 401 }),
    loseAnswer: () => fake.fail(start, ...Array.from({ length: 4 }, () => ({ kind: "lost" as const }))),
    mend: () => void fake.calm(),
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
