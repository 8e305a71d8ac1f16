// Machines on Kubernetes, on a fake of its API that fails as it is told: the Job of a machine, what it and its pods say later, one machine whatever becomes of
// an answer, whose Jobs are touched, and how it gets in. Nobody waits here: waits are counted on a clock of the test.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import https from "node:https";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { inspect } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { machineName } from "../../src/orchestrator/names.ts";
import type { Order, Provider, ProviderError } from "../../src/orchestrator/provider.ts";
import { kubeAccess } from "../../src/orchestrator/providers/kubernetes/access.ts";
import { type KubernetesOptions, kubernetes } from "../../src/orchestrator/providers/kubernetes/kubernetes.ts";
import { FULL } from "../support/processes/aftermath.ts";
import {
  type FakeKubernetes,
  type FakeKubernetesOptions,
  startFakeKubernetes,
} from "../support/providers/fake-kubernetes.ts";
import { dice, type Fault, type TestTime, testTime } from "../support/providers/fake-provider-api.ts";

const FLEET = "1a2b3c4d";
const POOL = "scan";
const STARTS = FULL ? 200 : 40;
const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);
const labels = { "app.kubernetes.io/managed-by": "stillwake", "stillwake/fleet": FLEET, "stillwake/pool": POOL };

interface Stage {
  fake: FakeKubernetes;
  time: TestTime;
  provider: Provider;
  said: string[];
  another(options?: Partial<KubernetesOptions>, whose?: { fleet?: string; pool?: string }): Provider;
}

let stage: Stage | undefined;

afterEach(async () => {
  const { fake } = stage ?? {};
  stage = undefined;
  await fake?.close();
  expect(fake?.violations ?? []).toEqual([]);
});

async function open(options: FakeKubernetesOptions = {}): Promise<Stage> {
  const time = testTime();
  const fake = await startFakeKubernetes({ now: time.now, onStuck: time.giveUp, ...options });
  const said: string[] = [];
  const another: Stage["another"] = (own = {}, { fleet = FLEET, pool = POOL } = {}) =>
    kubernetes({
      namespace: fake.namespace,
      server: fake.url,
      token: fake.token,
      image: "registry.example/worker:v1",
      cpu: 2,
      memoryMb: 4096,
      env: { NODE_OPTIONS: "--max-old-space-size=3072" },
      secretRef: "stillwake-worker",
      timeout: "60s",
      fetch: time.fetch,
      ...own,
    })({ fleet, pool, slots: 1, graceMs: 45_000, clock: time, say: (_, message) => said.push(message) });
  stage = { fake, time, said, another, provider: another() };
  return stage;
}

function order(slot: number, serial = slot): Order {
  const name = `${machineName(FLEET, POOL, slot)}-${serial}`;
  return { name, burst: true, env: { STILLWAKE_MACHINE: name, STILLWAKE_POOL: POOL } };
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
  it("makes a Job whose one pod Kubernetes never runs again by itself, but for one that it has taken away", async () => {
    const { fake, provider } = await open();
    await provider.start(order(1));
    expect(fake.job(order(1).name)).toMatchObject({
      metadata: { name: order(1).name, labels, annotations: { "stillwake/pool": POOL } },
      spec: {
        backoffLimit: 0,
        ttlSecondsAfterFinished: 300,
        activeDeadlineSeconds: 86_400,
        podReplacementPolicy: "Failed",
        podFailurePolicy: {
          rules: [{ action: "Ignore", onPodConditions: [{ type: "DisruptionTarget", status: "True" }] }],
        },
        template: {
          metadata: { labels },
          spec: {
            restartPolicy: "Never",
            terminationGracePeriodSeconds: 45,
            automountServiceAccountToken: false,
            securityContext: { runAsNonRoot: true },
            containers: [
              {
                image: "registry.example/worker:v1",
                envFrom: [{ secretRef: { name: "stillwake-worker" } }],
                resources: { requests: { cpu: "2", memory: "4096Mi" }, limits: { memory: "4096Mi" } },
                securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
              },
            ],
          },
        },
      },
    });
    const { env } = fake.pods[0]!.spec.containers[0]!;
    expect(env).toContainEqual({ name: "STILLWAKE_MACHINE", value: order(1).name });
    expect(env).toContainEqual({ name: "NODE_OPTIONS", value: "--max-old-space-size=3072" });
    expect(fake.count()).toBe(1);
  });

  it("adds what a podTemplate says, and keeps what makes it a machine", async () => {
    const { fake, another } = await open();
    const provider = another({
      nodeSelector: { "cloud.example/spot": "true" },
      tolerations: [{ key: "spot", operator: "Exists" }],
      serviceAccount: "worker",
      podTemplate: {
        metadata: { labels: { team: "scan", "stillwake/fleet": "ffffffff" }, annotations: { note: "Größe" } },
        spec: {
          restartPolicy: "Always",
          priorityClassName: "low",
          securityContext: { runAsUser: 1000 },
          volumes: [{ name: "scratch", emptyDir: {} }],
          containers: [{ name: "worker", image: "no", volumeMounts: [{ name: "scratch", mountPath: "/scratch" }] }],
        },
      },
    });
    await provider.start(order(1));
    const { template } = fake.job(order(1).name).spec;
    expect(template.metadata!.labels).toEqual({ team: "scan", ...labels });
    expect(template.spec).toMatchObject({
      restartPolicy: "Never",
      priorityClassName: "low",
      serviceAccountName: "worker",
      nodeSelector: { "cloud.example/spot": "true" },
      securityContext: { runAsUser: 1000, runAsNonRoot: true },
      containers: [{ image: "registry.example/worker:v1", volumeMounts: [{ name: "scratch", mountPath: "/scratch" }] }],
    });
  });

  it("gives a pool with any name labels that Kubernetes takes", async () => {
    const { fake, another } = await open();
    const pool = "Größe XL / überlang und noch viel länger als dreiundsechzig Zeichen erlauben";
    const provider = another({}, { pool });
    const name = `${machineName(FLEET, pool, 1)}-1`;
    await provider.start({ name, burst: true, env: {} });
    expect(fake.job(name).metadata.annotations).toMatchObject({ "stillwake/pool": pool });
    expect((await provider.list()).map((machine) => machine.name)).toEqual([name]);
  });

  it("says what is wrong with settings, with a remedy", async () => {
    const wrong: [Partial<KubernetesOptions> & Record<string, unknown>, RegExp][] = [
      [{ image: "" }, /no image/],
      [{ namespace: "Not_One" }, /namespace "Not_One"/],
      [{ cpu: 0 }, /0 CPU/],
      [{ memoryMb: 1.5 }, /1.5 MB/],
      [{ maxLife: "10s" }, /maxLife 10s/],
      [{ replicas: 3 }, /unknown option "replicas"/],
    ];
    for (const [more, message] of wrong) expect(() => kubernetes({ image: "i:1", ...more })).toThrow(message);
    const { provider, another } = await open();
    expect("prepare" in provider).toBe(false);
    expect(await provider.check!()).toEqual([]);
    expect(await another({ image: "registry.example:5000/worker", secretRef: [] }).check!()).toEqual([
      expect.stringContaining("has no version"),
    ]);
  });
});

describe("what is seen", () => {
  it("tells a machine that waits for a node, runs, is being deleted and has ended, with its times", async () => {
    const { fake, provider, time } = await open();
    fake.hold = true;
    const asked = new Date(time.now());
    const { id } = await provider.start(order(1));
    expect(await provider.list()).toEqual([{ name: order(1).name, id, state: "starting", since: asked }]);
    time.advance(9000);
    const began = new Date(time.now());
    fake.begin(order(1).name);
    expect(await provider.list()).toEqual([{ name: order(1).name, id, state: "running", startedAt: began }]);
    time.advance(60_000);
    await provider.remove({ name: order(1).name, id });
    // Its Job is gone at once, and its pod has its grace.
    expect(fake.jobs).toEqual([]);
    expect(await provider.list()).toMatchObject([{ name: order(1).name, id, state: "stopping", startedAt: began }]);
    fake.exit(order(1).name, { code: 143 });
    expect(await provider.list()).toEqual([]);
    await provider.remove({ name: order(1).name, id });
  });

  it("names how a machine ended: well, with a code, for want of memory, of age, and that its node was needed", async () => {
    const { fake, provider, time } = await open();
    const began = new Date(time.now());
    for (const slot of [1, 2, 3, 4, 5]) await provider.start(order(slot));
    time.advance(30_000);
    fake.exit(order(1).name, { code: 0 });
    fake.exit(order(2).name, { code: 7 });
    fake.exit(order(3).name, { code: 137, oom: true });
    fake.exit(order(4).name, { code: 143, deadline: true });
    // Replaced under the same name; the second pod then fails by itself.
    fake.exit(order(5).name, { code: 143, disrupted: "PreemptionByScheduler" });
    const machines = new Map((await provider.list()).map((machine) => [machine.name, machine]));
    const exit = (slot: number) => machines.get(order(slot).name)!.exit;
    expect(machines.get(order(1).name)).toMatchObject({
      state: "gone",
      startedAt: began,
      endedAt: new Date(time.now()),
    });
    expect(exit(1)).toEqual({ code: 0 });
    expect(exit(2)).toEqual({ code: 7 });
    expect(exit(3)).toEqual({ code: 137, signal: "SIGKILL", oom: true, memory: "4 GB" });
    expect(exit(4)).toMatchObject({ signal: "SIGTERM", reason: "it was older than its maxLife" });
    expect(machines.get(order(5).name)).toMatchObject({ state: "running" });
    fake.job(order(5).name).spec.podFailurePolicy = { rules: [] };
    fake.exit(order(5).name, { code: 143, disrupted: "EvictionByEvictionAPI" });
    const [evicted] = (await provider.list()).filter(({ name }) => name === order(5).name);
    expect(evicted!.exit!.reason).toMatch(/disrupted: EvictionByEvictionAPI/);
    time.advance(301_000);
    expect(await provider.list()).toEqual([]);
  });

  it("says once why a machine does not come up", async () => {
    const { fake, provider, said } = await open();
    fake.hold = true;
    await provider.start(order(1));
    await provider.start(order(2));
    fake.stall(order(1).name, "ImagePullBackOff", "no such image");
    fake.stall(order(2).name, "Unschedulable", "0/3 nodes have 4Gi");
    await provider.list();
    await provider.list();
    expect(said).toEqual([
      `${order(1).name} does not come up: ImagePullBackOff: no such image`,
      `${order(2).name} does not come up: there is no node for it: 0/3 nodes have 4Gi`,
    ]);
  });

  it("says which machines were made with other settings", async () => {
    const { provider, another } = await open();
    await provider.start(order(1));
    expect((await provider.list())[0]!.stale).toBeUndefined();
    expect(await another({ image: "registry.example/worker:v2" }).list()).toMatchObject([{ stale: true }]);
    expect(await another({ memoryMb: 8192 }).list()).toMatchObject([{ stale: true }]);
    expect(another().facts.made).toBe(provider.facts.made);
    expect(another({ env: { A: "b" } }).facts.made).not.toBe(provider.facts.made);
  });

  it("reads every page, and begins again when the rest of a list has become too old", async () => {
    const { fake, provider } = await open();
    for (let slot = 1; slot <= 260; slot++) fake.add(order(slot).name, labels);
    expect(await provider.list()).toHaveLength(260);
    expect(fake.count("listJobs")).toBe(2);
    fake.fail("listJobs", status(410));
    expect(await provider.list()).toHaveLength(260);
    fake.fail("listJobs", ...Array.from({ length: 9 }, () => status(410)));
    expect(await failure(provider.list()), "of a list that is always too old").toMatchObject({
      trouble: "unreachable",
    });
    fake.calm();
    fake.fail("listJobs", ...Array.from({ length: 4 }, () => status(500)));
    expect(await failure(provider.list())).toMatchObject({ trouble: "unreachable" });
  });

  it("waits for what holds up the deletion of a Job, and starts none of its name meanwhile", async () => {
    const { fake, provider } = await open();
    const { id } = await provider.start(order(1));
    fake.job(order(1).name).metadata.finalizers = ["example.com/audit"];
    await provider.remove({ name: order(1).name, id });
    expect(await provider.list()).toMatchObject([{ state: "stopping", since: expect.any(Date) }]);
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "unstartable", certain: true });
    fake.finalize(order(1).name);
    expect(await provider.list()).toEqual([]);
  });
});

describe("whose machines", () => {
  it("T47: sees and touches no Job of another fleet, of another pool, or of nobody", async () => {
    const { fake, provider, another } = await open();
    const { id } = await provider.start(order(1));
    const foreign = machineName("ffffffff", POOL, 1);
    const named = order(3).name;
    fake.add(foreign, { ...labels, "stillwake/fleet": "ffffffff" });
    // A name like ours without our labels, and our labels without such a name.
    fake.add(named, { ...labels, "stillwake/fleet": "ffffffff" });
    fake.add("backup", labels);
    fake.add(order(4).name, {});
    const other = `${machineName(FLEET, "other", 1)}-1`;
    await another({}, { pool: "other" }).start({ name: other, burst: true, env: {} });
    expect((await provider.list()).map(({ name }) => name)).toEqual([order(1).name]);
    for (const name of [foreign, "backup", other]) {
      expect(await failure(provider.remove({ name, id: fake.job(name).metadata.uid }))).toMatchObject({
        trouble: "refused",
      });
    }
    expect(await failure(provider.start({ ...order(3) }))).toMatchObject({ trouble: "unstartable", certain: true });
    for (const unsure of ["unknown", id, fake.job(named).metadata.uid]) {
      expect(await failure(provider.remove({ name: named, id: unsure }))).toMatchObject({ trouble: "refused" });
    }
    // The one that was seen under a name, and not one that has it now.
    await provider.remove({ name: order(1).name, id: fake.job(named).metadata.uid });
    expect(fake.jobs).toHaveLength(6);
    await provider.remove({ name: order(1).name, id });
    expect(fake.jobs.map(({ metadata }) => metadata.name)).not.toContain(order(1).name);
    expect(fake.jobs).toHaveLength(5);
  });
});

describe("T44: when the answer does not come", () => {
  const faults: [string, Fault][] = [
    ["is lost after the Job was made", { kind: "lost" }],
    ["comes after we gave up", { kind: "late" }],
    ["comes after we gave up, and so does the Job", { kind: "belated" }],
    ["is 502 after the Job was made", status(502, { done: true })],
    ["is 500", status(500)],
    ["is 503", status(503)],
    ["is 429", status(429)],
    ["is 429 with a time", status(429, { retryAfter: 7 })],
    ["never comes, and nothing was done", { kind: "hang" }],
    ["is a broken connection", { kind: "reset" }],
  ];

  it.each(faults)("there is one machine when it %s", async (_, fault) => {
    const { fake, provider } = await open();
    fake.fail("createJob", fault);
    const { id } = await provider.start(order(1));
    await fake.settled();
    expect(fake.alive()).toEqual([order(1).name]);
    expect(id).toBe(fake.job(order(1).name).metadata.uid);
    expect(await provider.start(order(1))).toEqual({ id });
    expect(fake.jobs).toHaveLength(1);
  });

  it("waits 1, 2 and 4 s between tries, and as long as it is told", async () => {
    const { fake, provider, time } = await open();
    fake.fail("createJob", status(500), status(502), status(503), status(504));
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "unreachable", certain: false });
    expect(time.waits).toEqual([1000, 2000, 4000]);
    time.waits.length = 0;
    fake.fail("createJob", status(429, { retryAfter: 11 }), status(429));
    await provider.start(order(1));
    expect(time.waits).toEqual([11_000, 2000]);
  });

  it("does not say of a machine that is in doubt that it is certainly not there", async () => {
    const { fake, provider } = await open();
    fake.fail("createJob", { kind: "lost" });
    fake.fail("getJob", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "unreachable", certain: false });
    fake.fail("createJob", ...Array.from({ length: 4 }, () => status(429)));
    expect(await failure(provider.start(order(1)))).toMatchObject({ trouble: "rate", certain: false });
    expect(await provider.start(order(1))).toEqual({ id: fake.job(order(1).name).metadata.uid });
    fake.fail("createJob", ...Array.from({ length: 4 }, () => status(429)));
    expect(await failure(provider.start(order(2)))).toMatchObject({ trouble: "rate", certain: true });
  });

  it("adopts the Job of a lost answer that a quota or a lost right then hides, and is not certain where it cannot look", async () => {
    const { fake, provider } = await open();
    const right = status(403, { message: 'jobs.batch is forbidden: User "x" cannot create resource' });
    fake.quota = 1;
    fake.fail("createJob", { kind: "lost" });
    expect(await provider.start(order(1))).toEqual({ id: fake.job(order(1).name).metadata.uid });
    // Asked again, by whoever does not know of the first time: the quota is used up by the very Job.
    expect(await stage!.another().start(order(1))).toEqual({ id: fake.job(order(1).name).metadata.uid });
    fake.quota = 10;
    fake.fail("createJob", { kind: "lost" }, right);
    expect(await provider.start(order(2))).toEqual({ id: fake.job(order(2).name).metadata.uid });
    fake.fail("createJob", { kind: "lost" }, right);
    fake.fail("getJob", status(403));
    expect(await failure(provider.start(order(3)))).toMatchObject({ trouble: "auth", certain: false });
    fake.fail("createJob", { kind: "belated" }, right);
    expect(await failure(provider.start(order(4)))).toMatchObject({ trouble: "auth", certain: false });
    await fake.settled();
    expect(fake.alive()).toHaveLength(4);
    expect(await provider.start(order(4))).toEqual({ id: fake.job(order(4).name).metadata.uid });
  });

  it("makes one machine of two calls at once, in one process and in two", async () => {
    const { fake, provider, another } = await open();
    const starts = [provider, provider, another()].map((one) => one.start(order(1)));
    expect(new Set((await Promise.all(starts)).map(({ id }) => id)).size).toBe(1);
    expect(fake.alive()).toHaveLength(1);
  });

  it("shows a Job that never gets a pod as starting, with since when", async () => {
    const { fake, provider, time } = await open();
    fake.fail("createJob", { kind: "half" });
    const asked = new Date(time.now());
    const { id } = await provider.start(order(1));
    time.advance(600_000);
    expect(await provider.list()).toEqual([{ name: order(1).name, id, state: "starting", since: asked }]);
    await provider.remove({ name: order(1).name, id });
    expect(await provider.list()).toEqual([]);
  });

  it("leaks and doubles nothing over many starts and removals with random failures", async () => {
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
    fake.chaos({ random, chance: 0.3, faults: kinds });
    const until = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
      for (let tries = 0; tries < 20; tries++) {
        const done = await work().then(
          (value) => ({ value }),
          (error: ProviderError) => {
            // What was certainly not started is not there.
            if (error.certain) expect(fake.alive(), `seed ${SEED}`).not.toContain(name);
            return undefined;
          },
        );
        if (done) return done.value;
        time.advance(60_000);
      }
      return expect.fail(`Nothing after 20 tries (seed ${SEED})`);
    };
    for (let serial = 1; serial <= STARTS; serial++) {
      const { id } = await until(order(1, serial).name, () => provider.start(order(1, serial)));
      if (serial % 2 === 0) await until("", () => provider.remove({ name: order(1, serial).name, id }));
    }
    expect(fake.calm()).toBeGreaterThan(STARTS / 8);
    await fake.settled();
    const wanted = Array.from({ length: STARTS }, (_, index) => index + 1).filter((serial) => serial % 2 === 1);
    expect(fake.alive().sort(), `seed ${SEED}`).toEqual(wanted.map((serial) => order(1, serial).name).sort());
  }, 300_000);
});

describe("what there is room for", () => {
  it("says that there is no room when the namespace's quota is used up, which is no matter of rights", async () => {
    const { fake, provider } = await open();
    fake.quota = 1;
    await provider.start(order(1));
    expect(await failure(provider.start(order(2)))).toMatchObject({ trouble: "capacity", certain: true });
    fake.fail("createJob", status(403, { message: 'jobs.batch is forbidden: User "x" cannot create resource' }));
    const error = await failure(provider.start(order(2)));
    expect(error).toMatchObject({ trouble: "auth", certain: true });
    expect(error.remedy).toMatch(/create, get, list and delete jobs/);
  });
});

describe("how it gets in", () => {
  it("asks nothing more after 401, and says what to do", async () => {
    const { fake, another, time } = await open();
    const error = await failure(another({ token: "wrong-token-of-ours" }).start(order(1)));
    expect(error).toMatchObject({ trouble: "auth", certain: true, retryable: false });
    expect(error.message).toMatch(/401.*namespace "stillwake"/s);
    expect(error.message).not.toContain("wrong-token-of-ours");
    expect(fake.count()).toBe(1);
    expect(time.waits).toEqual([]);
    expect(await failure(another({ namespace: "elsewhere" }).list())).toMatchObject({ trouble: "auth" });
  });

  it("in a cluster, reads its token before each call, and trusts the cluster's certificate and no other", async () => {
    const pod = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-pod-"));
    const make = (name: string) =>
      execFileSync(
        "openssl",
        [
          ..."req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=cluster -addext subjectAltName=IP:127.0.0.1".split(
            " ",
          ),
          ...["-keyout", `${pod}/${name}.key`, "-out", `${pod}/${name}.crt`],
        ],
        { stdio: "ignore" },
      );
    make("ca");
    make("other");
    const came: (string | undefined)[] = [];
    const server = https.createServer(
      { key: fs.readFileSync(`${pod}/ca.key`), cert: fs.readFileSync(`${pod}/ca.crt`) },
      (request, response) => {
        came.push(request.headers.authorization);
        response.end("{}");
      },
    );
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    fs.writeFileSync(`${pod}/token`, "first\n");
    fs.writeFileSync(`${pod}/namespace`, "ours");
    const before = { ...process.env };
    Object.assign(process.env, { KUBERNETES_SERVICE_HOST: "127.0.0.1", KUBERNETES_SERVICE_PORT: String(port) });
    try {
      const access = kubeAccess({}, pod);
      const ask = async (how = access) => how.fetch!(`${how.server}/api`, { headers: await how.headers() });
      expect(access.namespace).toBe("ours");
      expect((await ask()).status).toBe(200);
      fs.writeFileSync(`${pod}/token`, "second");
      await ask();
      expect(came).toEqual(["Bearer first", "Bearer second"]);
      const wary = kubeAccess({ server: access.server, token: "t", ca: `${pod}/other.crt` });
      await expect(ask(wary)).rejects.toThrow("fetch failed");
      const trusting = kubeAccess({
        server: `${access.server}/`,
        token: async () => "t",
        ca: fs.readFileSync(`${pod}/ca.crt`, "utf8"),
      });
      expect((await ask(trusting)).status).toBe(200);
    } finally {
      process.env = before;
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      fs.rmSync(pod, { recursive: true });
    }
  });

  it("takes a kubeconfig in JSON with a token or a certificate, and says what it does not take", () => {
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-kube-")), "config.json");
    const config = (user: object, cluster: object = { server: "https://kube.example:6443/" }) => ({
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "jobs" } }],
      clusters: [{ name: "c", cluster }],
      users: [{ name: "u", user }],
    });
    const read = (content: unknown) => {
      fs.writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
      return kubeAccess({ kubeconfig: file });
    };
    expect(read(config({ token: "t" }))).toMatchObject({ server: "https://kube.example:6443", namespace: "jobs" });
    expect(() => read("apiVersion: v1")).toThrow(/is not JSON.*kubectl config view --raw/s);
    expect(() => read(config({ exec: { command: "gke-gcloud-auth-plugin" } }))).toThrow(
      /runs a program.*kubectl create token/s,
    );
    expect(() => read(config({ "auth-provider": {} }))).toThrow(/auth-provider/);
    expect(() => read(config({ token: "t" }, { server: "https://x", "insecure-skip-tls-verify": true }))).toThrow(
      /without checking/,
    );
    expect(() => read({ ...config({ token: "t" }), "current-context": "there" })).toThrow(/no context "there"/);
    expect(() => kubeAccess({ kubeconfig: "/none" })).toThrow(/kubeconfig in \/none cannot be read/);
    const text = JSON.stringify(config({ token: "t0k3n-of-ours" }), null, 1);
    expect(kubeAccess({ kubeconfig: text })).toMatchObject({ namespace: "jobs" });
    const said = [text.slice(0, -1), text.slice(1), `apiVersion: v1\ntoken: t0k3n-of-ours`, "t0k3n-of-ours"].flatMap(
      (given) =>
        [() => kubeAccess({ kubeconfig: given }), () => kubeAccess({ server: "https://x", ca: given })].map(thrown),
    );
    said.push(thrown(() => read(text.slice(1))));
    expect(said.join()).not.toContain("t0k3n");
    expect(() => kubeAccess({})).toThrow(/does not run in a cluster/);
    fs.rmSync(path.dirname(file), { recursive: true });
  });
});

/** Everything that would be printed of what it throws. */
function thrown(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    return inspect(error, { depth: 9, maxStringLength: null });
  }
  return expect.fail("It should have thrown");
}
