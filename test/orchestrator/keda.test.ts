// KEDA: tests the example of docs/run/keda.md literally. Its SQL creates the login, its query runs as that login with real
// demand, and its YAML is validated against the schemas of Kubernetes and KEDA.
import fs from "node:fs";
import path from "node:path";
import { expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { pipeline } from "../../src/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { ROOT } from "../support/processes/build.ts";
import { getChecker } from "../support/providers/schemas/check.ts";
import { kubernetesDescription } from "../support/providers/schemas/kubernetes.ts";

const page = fs.readFileSync(path.join(ROOT, "docs/run/keda.md"), "utf8");
const block = (language: string) => new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, "m").exec(page)![1]!;
// biome-ignore lint/suspicious/noExplicitAny: what a person has written.
const [authentication, scaledJob] = parseAllDocuments(block("yaml")).map((document) => document.toJS()) as any[];
const { query } = scaledJob.spec.triggers[0].metadata as { query: string };

const { database, stillwake, client: owner } = await connectedDatabase();
/** Roles are shared by the whole server: a unique name, so that test files do not collide. */
const login = `keda_${database.url.replaceAll(/.*\//g, "").replaceAll(/\W/g, "_")}`.slice(0, 60);
const scan = pipeline<{ n: number }>("scan", { pool: "scan" });
await owner.query(block("sql").replaceAll(/\bkeda\b(?=[ ;])/g, login));
cleanUp(() => owner.query(`drop owned by ${login}; drop role ${login}`));
const url = Object.assign(new URL(database.url), { username: login, password: encodeURIComponent("change me") });
const keda = await connect(url.href);

/** Like KEDA: the first column of the first row is a number. */
async function wanted(asker = keda): Promise<number> {
  const { rows } = await asker.query<unknown[]>({ text: query, rowMode: "array" });
  expect(rows).toHaveLength(1);
  return Number(rows[0]![0]);
}

const claim = async (most: number): Promise<number> => {
  const { rows } = await owner.query("select * from stillwake.claim('w1', 'scan', array['scan'], $1, '1 hour')", [
    most,
  ]);
  return rows.length;
};

it("counts claimable and running jobs, in machines of two slots, up to twenty", async () => {
  expect(await wanted()).toBe(0);
  await stillwake.enqueue(scan, { n: 0 }, { delay: "1h" });
  expect(await wanted()).toBe(0);
  await stillwake.enqueue(scan, { n: 1 });
  expect(await wanted()).toBe(1);
  await stillwake.enqueueMany(scan, [{ n: 2 }, { n: 3 }, { n: 4 }]);
  expect(await wanted()).toBe(2);
  // Running jobs count too: KEDA subtracts its existing Jobs.
  expect(await claim(3)).toBe(3);
  expect(await wanted()).toBe(2);
  await stillwake.enqueue(scan, { n: 5 });
  expect(await wanted()).toBe(3);
  await stillwake.enqueueMany(
    scan,
    Array.from({ length: 100 }, (_, n) => ({ n })),
  );
  expect(await wanted()).toBe(20);
});

it("wants none for a paused or unknown pool", async () => {
  await owner.query("select stillwake.pause_pool('scan', 'maintenance')");
  expect(await wanted()).toBe(0);
  await owner.query("select stillwake.resume_pool('scan')");
  expect(await wanted()).toBe(20);
  const { rows } = await keda.query(query.replace("'scan'", "'unknown'"));
  expect(Object.values(rows[0])).toEqual([0]);
});

it("counts one slot per machine without machine settings", async () => {
  await owner.query("select stillwake.set_machines('scan', null)");
  const { rows } = await owner.query(
    "select wanted, claimable, running from stillwake.wanted_workers where pool = 'scan'",
  );
  expect(rows).toEqual([{ wanted: 105, claimable: 102, running: 3 }]);
  await owner.query(`select stillwake.set_machines('scan', '{"provider": "keda", "slots": 2, "max": 20}')`);
});

it("shows the login only the numbers, and a reader the same numbers", async () => {
  for (const table of ["jobs", "pools", "live_jobs", "machine_lives", "logs"]) {
    await expect(keda.query(`select * from stillwake.${table}`)).rejects.toThrow(/permission denied/);
  }
  await expect(keda.query("select stillwake.pause_pool('scan', 'x')")).rejects.toThrow(/permission denied/);
  await owner.query("set role stillwake_reader");
  expect(await wanted(owner)).toBe(20);
  await owner.query("reset role");
});

it("has the fields KEDA expects: the named secret, the matching strategy, numbers as strings", () => {
  expect(authentication).toMatchObject({
    apiVersion: "keda.sh/v1alpha1",
    kind: "TriggerAuthentication",
    spec: { secretTargetRef: [{ parameter: "connection", name: expect.any(String), key: "url" }] },
  });
  expect(scaledJob).toMatchObject({
    apiVersion: "keda.sh/v1alpha1",
    kind: "ScaledJob",
    metadata: { namespace: authentication.metadata.namespace },
    spec: {
      pollingInterval: 30,
      maxReplicaCount: 20,
      rollout: { strategy: "gradual" },
      scalingStrategy: { strategy: "default" },
      triggers: [
        {
          type: "postgresql",
          metadata: { query: expect.any(String), targetQueryValue: "1" },
          authenticationRef: { name: authentication.metadata.name },
        },
      ],
    },
  });
  expect(page).not.toMatch(/password: /);
});

it("starts valid Jobs with the same spec as the orchestrator's", () => {
  const { jobTargetRef: spec } = scaledJob.spec;
  const job = { apiVersion: "batch/v1", kind: "Job", metadata: { name: "stillwake-scan" }, spec };
  const checker = getChecker(kubernetesDescription);
  expect(checker.request("createJob", new URLSearchParams(), job)).toEqual([]);
  expect(
    checker.request("createJob", new URLSearchParams(), { ...job, spec: { ...spec, backofLimit: 0 } }),
  ).not.toEqual([]);
  const { containers, terminationGracePeriodSeconds } = spec.template.spec;
  const env = Object.fromEntries(
    containers[0].env.map(({ name, value }: { name: string; value: string }) => [name, value]),
  );
  expect(env).toMatchObject({ STILLWAKE_POOL: "scan", STILLWAKE_GRACE: `${terminationGracePeriodSeconds}s` });
  expect(block("sql")).toContain(`"slots": ${env.STILLWAKE_SLOTS}, "max": ${scaledJob.spec.maxReplicaCount}`);
});
