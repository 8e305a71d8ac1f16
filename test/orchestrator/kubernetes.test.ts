// The Kubernetes provider against a fake of its API that injects failures: the Job of a machine, states and exits, one machine
// after a lost response, no access to foreign Jobs, and credentials. Waits are simulated.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import https from "node:https";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { machineName, type ProviderError } from "../../src/orchestrator/provider.ts";
import { readKubeAccess } from "../../src/orchestrator/providers/kubernetes/access.ts";
import { type KubernetesOptions, kubernetes } from "../../src/orchestrator/providers/kubernetes/kubernetes.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { type FakeKubernetes, startFakeKubernetes } from "../support/providers/fake-kubernetes.ts";
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

const STARTS = FULL ? 200 : 40;
const labels = { "app.kubernetes.io/managed-by": "stillwake", "stillwake/fleet": FLEET, "stillwake/pool": POOL };

const request = (ordinal: number, serial = ordinal) => requestFor(ordinal, serial);
const open = apiFixture<FakeKubernetes, KubernetesOptions>(
  startFakeKubernetes,
  (fake, time, options) =>
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
      ...options,
    }),
  45_000,
);

describe("creating machines", () => {
  it("creates a Job whose pod Kubernetes never restarts, except after a disruption", async () => {
    const { fake, provider } = await open();
    await provider.start(request(1));
    expect(fake.job(request(1).name)).toMatchObject({
      metadata: { name: request(1).name, labels, annotations: { "stillwake/pool": POOL } },
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
    expect(env).toContainEqual({ name: "STILLWAKE_MACHINE", value: request(1).name });
    expect(env).toContainEqual({ name: "NODE_OPTIONS", value: "--max-old-space-size=3072" });
    expect(fake.count()).toBe(1);
  });

  it("merges a podTemplate and keeps the required fields", async () => {
    const { fake, createProvider } = await open();
    const provider = createProvider({
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
    await provider.start(request(1));
    const { template } = fake.job(request(1).name).spec;
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

  it("creates valid labels for any pool name", async () => {
    const { fake, createProvider } = await open();
    const pool = "Größe XL / überlang und noch viel länger als dreiundsechzig Zeichen erlauben";
    const provider = createProvider({}, { pool });
    const name = `${machineName(FLEET, pool, 1)}-1`;
    await provider.start({ name, burst: true, env: {} });
    expect(fake.job(name).metadata.annotations).toMatchObject({ "stillwake/pool": pool });
    expect((await provider.list()).map((machine) => machine.name)).toEqual([name]);
  });

  it("rejects invalid options with a remedy", async () => {
    const wrong: [Partial<KubernetesOptions> & Record<string, unknown>, RegExp][] = [
      [{ image: "" }, /no image/],
      [{ namespace: "Not_One" }, /namespace "Not_One"/],
      [{ cpu: 0 }, /0 CPU/],
      [{ memoryMb: 1.5 }, /1.5 MB/],
      [{ maxLife: "10s" }, /maxLife 10s/],
      [{ replicas: 3 }, /unknown option "replicas"/],
    ];
    for (const [more, message] of wrong) expect(() => kubernetes({ image: "i:1", ...more })).toThrow(message);
    const { provider, createProvider } = await open();
    expect("prepare" in provider).toBe(false);
    expect(await provider.check!()).toEqual([]);
    expect(await createProvider({ image: "registry.example:5000/worker", secretRef: [] }).check!()).toEqual([
      expect.stringContaining("has no version"),
    ]);
  });
});

describe("listing machines", () => {
  it("reports starting, running, stopping and finished machines with their times", async () => {
    const { fake, provider, time } = await open();
    fake.holdPods = true;
    const since = new Date(time.now());
    const { id } = await provider.start(request(1));
    expect(await provider.list()).toEqual([{ name: request(1).name, id, state: "starting", since }]);
    time.advance(9000);
    const began = new Date(time.now());
    fake.startPod(request(1).name);
    expect(await provider.list()).toEqual([{ name: request(1).name, id, state: "running", startedAt: began }]);
    time.advance(60_000);
    await provider.remove({ name: request(1).name, id });
    // Its Job is gone at once; its pod has a grace period.
    expect(fake.jobs).toEqual([]);
    expect(await provider.list()).toMatchObject([{ name: request(1).name, id, state: "stopping", startedAt: began }]);
    fake.exit(request(1).name, { code: 143 });
    expect(await provider.list()).toEqual([]);
    await provider.remove({ name: request(1).name, id });
  });

  it("reports how a machine ended: success, exit code, out of memory, maxLife, disruption", async () => {
    const { fake, provider, time } = await open();
    const began = new Date(time.now());
    for (const ordinal of [1, 2, 3, 4, 5]) await provider.start(request(ordinal));
    time.advance(30_000);
    fake.exit(request(1).name, { code: 0 });
    fake.exit(request(2).name, { code: 7 });
    fake.exit(request(3).name, { code: 137, oom: true });
    fake.exit(request(4).name, { code: 143, deadline: true });
    // The pod is replaced; the second pod then fails.
    fake.exit(request(5).name, { code: 143, disrupted: "PreemptionByScheduler" });
    const machines = new Map((await provider.list()).map((machine) => [machine.name, machine]));
    const exit = (ordinal: number) => machines.get(request(ordinal).name)!.exit;
    expect(machines.get(request(1).name)).toMatchObject({
      state: "gone",
      startedAt: began,
      endedAt: new Date(time.now()),
    });
    expect(exit(1)).toEqual({ code: 0 });
    expect(exit(2)).toEqual({ code: 7 });
    expect(exit(3)).toEqual({ code: 137, signal: "SIGKILL", oom: true, memory: "4 GB" });
    expect(exit(4)).toMatchObject({ signal: "SIGTERM", reason: "it exceeded its maxLife" });
    expect(machines.get(request(5).name)).toMatchObject({ state: "running" });
    fake.job(request(5).name).spec.podFailurePolicy = { rules: [] };
    fake.exit(request(5).name, { code: 143, disrupted: "EvictionByEvictionAPI" });
    const [evicted] = (await provider.list()).filter(({ name }) => name === request(5).name);
    expect(evicted!.exit!.reason).toMatch(/disrupted: EvictionByEvictionAPI/);
    time.advance(301_000);
    expect(await provider.list()).toEqual([]);
  });

  it("reports once why a machine does not start", async () => {
    const { fake, provider, messages } = await open();
    fake.holdPods = true;
    await provider.start(request(1));
    await provider.start(request(2));
    fake.stall(request(1).name, "ImagePullBackOff", "no such image");
    fake.stall(request(2).name, "Unschedulable", "0/3 nodes have 4Gi");
    await provider.list();
    await provider.list();
    expect(messages).toEqual([
      `${request(1).name} does not start: ImagePullBackOff: no such image`,
      `${request(2).name} does not start: no node fits: 0/3 nodes have 4Gi`,
    ]);
  });

  it("reports machines of other settings as stale", async () => {
    const { provider, createProvider } = await open();
    await provider.start(request(1));
    expect((await provider.list())[0]!.stale).toBeUndefined();
    expect(await createProvider({ image: "registry.example/worker:v2" }).list()).toMatchObject([{ stale: true }]);
    expect(await createProvider({ memoryMb: 8192 }).list()).toMatchObject([{ stale: true }]);
    expect(createProvider().facts.fingerprint).toBe(provider.facts.fingerprint);
    expect(createProvider({ env: { A: "b" } }).facts.fingerprint).not.toBe(provider.facts.fingerprint);
  });

  it("reads every page, and starts over when the continue token has expired", async () => {
    const { fake, provider } = await open();
    for (let ordinal = 1; ordinal <= 260; ordinal++) fake.add(request(ordinal).name, labels);
    expect(await provider.list()).toHaveLength(260);
    expect(fake.count("listJobs")).toBe(2);
    fake.fail("listJobs", status(410));
    expect(await provider.list()).toHaveLength(260);
    fake.fail("listJobs", ...Array.from({ length: 9 }, () => status(410)));
    expect(await failure(provider.list()), "the token always expires").toMatchObject({
      kind: "unreachable",
    });
    fake.clearFaults();
    fake.fail("listJobs", ...Array.from({ length: 4 }, () => status(500)));
    expect(await failure(provider.list())).toMatchObject({ kind: "unreachable" });
  });

  it("starts no machine of a name whose Job is still being deleted", async () => {
    const { fake, provider } = await open();
    const { id } = await provider.start(request(1));
    fake.job(request(1).name).metadata.finalizers = ["example.com/audit"];
    await provider.remove({ name: request(1).name, id });
    expect(await provider.list()).toMatchObject([{ state: "stopping", since: expect.any(Date) }]);
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "unstartable", certain: true });
    fake.finalize(request(1).name);
    expect(await provider.list()).toEqual([]);
  });
});

describe("foreign machines", () => {
  it("neither lists nor removes a Job of another fleet or pool, or one without labels", async () => {
    const { fake, provider, createProvider } = await open();
    const { id } = await provider.start(request(1));
    const foreign = machineName("ffffffff", POOL, 1);
    const named = request(3).name;
    fake.add(foreign, { ...labels, "stillwake/fleet": "ffffffff" });
    // Our name without our labels, and our labels without our name.
    fake.add(named, { ...labels, "stillwake/fleet": "ffffffff" });
    fake.add("backup", labels);
    fake.add(request(4).name, {});
    const other = `${machineName(FLEET, "other", 1)}-1`;
    await createProvider({}, { pool: "other" }).start({ name: other, burst: true, env: {} });
    expect((await provider.list()).map(({ name }) => name)).toEqual([request(1).name]);
    for (const name of [foreign, "backup", other]) {
      expect(await failure(provider.remove({ name, id: fake.job(name).metadata.uid }))).toMatchObject({
        kind: "refused",
      });
    }
    expect(await failure(provider.start({ ...request(3) }))).toMatchObject({ kind: "unstartable", certain: true });
    for (const wrongId of ["unknown", id, fake.job(named).metadata.uid]) {
      expect(await failure(provider.remove({ name: named, id: wrongId }))).toMatchObject({ kind: "refused" });
    }
    // Only the Job that was listed, not a newer one of the same name.
    await provider.remove({ name: request(1).name, id: fake.job(named).metadata.uid });
    expect(fake.jobs).toHaveLength(6);
    await provider.remove({ name: request(1).name, id });
    expect(fake.jobs.map(({ metadata }) => metadata.name)).not.toContain(request(1).name);
    expect(fake.jobs).toHaveLength(5);
  });
});

describe("a call without a response", () => {
  const faults: [string, Fault][] = [
    ["is lost after the Job was created", { kind: "lost" }],
    ["comes after the timeout", { kind: "late" }],
    ["never comes, and the Job is created after the timeout", { kind: "belated" }],
    ["is 502 after the Job was created", status(502, { done: true })],
    ["is 500", status(500)],
    ["is 503", status(503)],
    ["is 429", status(429)],
    ["is 429 with Retry-After", status(429, { retryAfter: 7 })],
    ["never comes, and nothing was executed", { kind: "hang" }],
    ["is a broken connection", { kind: "reset" }],
  ];

  it.each(faults)("leaves one machine when the response %s", async (_, fault) => {
    const { fake, provider } = await open();
    fake.fail("createJob", fault);
    const { id } = await provider.start(request(1));
    await fake.finishPending();
    expect(fake.alive()).toEqual([request(1).name]);
    expect(id).toBe(fake.job(request(1).name).metadata.uid);
    expect(await provider.start(request(1))).toEqual({ id });
    expect(fake.jobs).toHaveLength(1);
  });

  it("waits 1, 2 and 4 s between retries, or Retry-After", async () => {
    const { fake, provider, time } = await open();
    fake.fail("createJob", status(500), status(502), status(503), status(504));
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "unreachable", certain: false });
    expect(time.waits).toEqual([1000, 2000, 4000]);
    time.waits.length = 0;
    fake.fail("createJob", status(429, { retryAfter: 11 }), status(429));
    await provider.start(request(1));
    expect(time.waits).toEqual([11_000, 2000]);
  });

  it("never reports an uncertain start as certainly failed", async () => {
    const { fake, provider } = await open();
    fake.fail("createJob", { kind: "lost" });
    fake.fail("getJob", ...Array.from({ length: 4 }, () => status(503)));
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "unreachable", certain: false });
    fake.fail("createJob", ...Array.from({ length: 4 }, () => status(429)));
    expect(await failure(provider.start(request(1)))).toMatchObject({ kind: "rate", certain: false });
    expect(await provider.start(request(1))).toEqual({ id: fake.job(request(1).name).metadata.uid });
    fake.fail("createJob", ...Array.from({ length: 4 }, () => status(429)));
    expect(await failure(provider.start(request(2)))).toMatchObject({ kind: "rate", certain: true });
  });

  it("adopts the Job of a lost response behind a quota or permission error, and is not certain if it cannot read it", async () => {
    const { fake, provider, createProvider } = await open();
    const forbidden = status(403, { message: 'jobs.batch is forbidden: User "x" cannot create resource' });
    fake.quota = 1;
    fake.fail("createJob", { kind: "lost" });
    expect(await provider.start(request(1))).toEqual({ id: fake.job(request(1).name).metadata.uid });
    // Another orchestrator requests it again: the quota is used up by this very Job.
    expect(await createProvider().start(request(1))).toEqual({ id: fake.job(request(1).name).metadata.uid });
    fake.quota = 10;
    fake.fail("createJob", { kind: "lost" }, forbidden);
    expect(await provider.start(request(2))).toEqual({ id: fake.job(request(2).name).metadata.uid });
    fake.fail("createJob", { kind: "lost" }, forbidden);
    fake.fail("getJob", status(403));
    expect(await failure(provider.start(request(3)))).toMatchObject({ kind: "auth", certain: false });
    fake.fail("createJob", { kind: "belated" }, forbidden);
    expect(await failure(provider.start(request(4)))).toMatchObject({ kind: "auth", certain: false });
    await fake.finishPending();
    expect(fake.alive()).toHaveLength(4);
    expect(await provider.start(request(4))).toEqual({ id: fake.job(request(4).name).metadata.uid });
  });

  it("concurrent starts create one machine, in one process and in two", async () => {
    const { fake, provider, createProvider } = await open();
    const starts = [provider, provider, createProvider()].map((starter) => starter.start(request(1)));
    expect(new Set((await Promise.all(starts)).map(({ id }) => id)).size).toBe(1);
    expect(fake.alive()).toHaveLength(1);
  });

  it("lists a Job that never gets a pod as starting, with the time since when", async () => {
    const { fake, provider, time } = await open();
    fake.fail("createJob", { kind: "half" });
    const since = new Date(time.now());
    const { id } = await provider.start(request(1));
    time.advance(600_000);
    expect(await provider.list()).toEqual([{ name: request(1).name, id, state: "starting", since }]);
    await provider.remove({ name: request(1).name, id });
    expect(await provider.list()).toEqual([]);
  });

  it("many starts and removals with random failures leave no leaked or duplicated machine", async () => {
    const { fake, provider, time } = await open();
    fake.failRandomly({ random: seededRandom(SEED), chance: 0.3, faults: RANDOM_FAULTS });
    // A certain failure means that the machine does not exist.
    const check = (name: string) => (error: ProviderError) => {
      if (error.certain) expect(fake.alive(), `seed ${SEED}`).not.toContain(name);
      time.advance(60_000);
    };
    for (let serial = 1; serial <= STARTS; serial++) {
      const { id } = await retry(() => provider.start(request(1, serial)), check(request(1, serial).name));
      if (serial % 2 === 0) await retry(() => provider.remove({ name: request(1, serial).name, id }), check(""));
    }
    expect(fake.clearFaults()).toBeGreaterThan(STARTS / 8);
    await fake.finishPending();
    const wanted = Array.from({ length: STARTS }, (_, index) => index + 1).filter((serial) => serial % 2 === 1);
    expect(fake.alive().sort(), `seed ${SEED}`).toEqual(wanted.map((serial) => request(1, serial).name).sort());
  }, 300_000);
});

describe("quotas", () => {
  it("reports an exhausted quota of the namespace as a capacity error, not as a permission error", async () => {
    const { fake, provider } = await open();
    fake.quota = 1;
    await provider.start(request(1));
    expect(await failure(provider.start(request(2)))).toMatchObject({ kind: "capacity", certain: true });
    fake.fail("createJob", status(403, { message: 'jobs.batch is forbidden: User "x" cannot create resource' }));
    const error = await failure(provider.start(request(2)));
    expect(error).toMatchObject({ kind: "auth", certain: true });
    expect(error.remedy).toMatch(/create, get, list and delete jobs/);
  });
});

describe("credentials", () => {
  it("401 fails without retries and with a remedy", async () => {
    const { fake, createProvider, time } = await open();
    const error = await failure(createProvider({ token: "wrong-token-of-ours" }).start(request(1)));
    expect(error).toMatchObject({ kind: "auth", certain: true, retryable: false });
    expect(error.message).toMatch(/401.*namespace "stillwake"/s);
    expect(error.message).not.toContain("wrong-token-of-ours");
    expect(fake.count()).toBe(1);
    expect(time.waits).toEqual([]);
    expect(await failure(createProvider({ namespace: "elsewhere" }).list())).toMatchObject({ kind: "auth" });
  });

  it("in a cluster, reads the token before each call, and trusts only the cluster's certificate", async () => {
    const pod = temporaryDirectory("pod");
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
    const authorizations: (string | undefined)[] = [];
    const server = https.createServer(
      { key: fs.readFileSync(`${pod}/ca.key`), cert: fs.readFileSync(`${pod}/ca.crt`) },
      (request, response) => {
        authorizations.push(request.headers.authorization);
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
      const access = readKubeAccess({}, pod);
      const send = async (target = access) =>
        target.fetch!(`${target.server}/api`, { headers: await target.headers() });
      expect(access.namespace).toBe("ours");
      expect((await send()).status).toBe(200);
      fs.writeFileSync(`${pod}/token`, "second");
      await send();
      expect(authorizations).toEqual(["Bearer first", "Bearer second"]);
      const mistrusting = readKubeAccess({ server: access.server, token: "t", ca: `${pod}/other.crt` });
      await expect(send(mistrusting)).rejects.toThrow("fetch failed");
      const trusting = readKubeAccess({
        server: `${access.server}/`,
        token: async () => "t",
        ca: fs.readFileSync(`${pod}/ca.crt`, "utf8"),
      });
      expect((await send(trusting)).status).toBe(200);
    } finally {
      process.env = before;
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it("accepts a kubeconfig in JSON with a token or a certificate, and rejects unsupported ones", () => {
    const file = path.join(temporaryDirectory("kube"), "config.json");
    const config = (user: object, cluster: object = { server: "https://kube.example:6443/" }) => ({
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "jobs" } }],
      clusters: [{ name: "c", cluster }],
      users: [{ name: "u", user }],
    });
    const read = (content: unknown) => {
      fs.writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
      return readKubeAccess({ kubeconfig: file });
    };
    expect(read(config({ token: "t" }))).toMatchObject({ server: "https://kube.example:6443", namespace: "jobs" });
    expect(() => read("apiVersion: v1")).toThrow(/is not JSON.*kubectl config view --raw/s);
    expect(() => read(config({ exec: { command: "gke-gcloud-auth-plugin" } }))).toThrow(
      /exec plugin.*kubectl create token/s,
    );
    expect(() => read(config({ "auth-provider": {} }))).toThrow(/auth-provider/);
    expect(() => read(config({ token: "t" }, { server: "https://x", "insecure-skip-tls-verify": true }))).toThrow(
      /disables TLS verification/,
    );
    expect(() => read({ ...config({ token: "t" }), "current-context": "there" })).toThrow(/no context "there"/);
    expect(() => readKubeAccess({ kubeconfig: "/none" })).toThrow(/kubeconfig in \/none cannot be read/);
    const text = JSON.stringify(config({ token: "t0k3n-of-ours" }), null, 1);
    expect(readKubeAccess({ kubeconfig: text })).toMatchObject({ namespace: "jobs" });
    const messages = [
      text.slice(0, -1),
      text.slice(1),
      `apiVersion: v1\ntoken: t0k3n-of-ours`,
      "t0k3n-of-ours",
    ].flatMap((source) =>
      [() => readKubeAccess({ kubeconfig: source }), () => readKubeAccess({ server: "https://x", ca: source })].map(
        thrown,
      ),
    );
    messages.push(thrown(() => read(text.slice(1))));
    expect(messages.join()).not.toContain("t0k3n");
    expect(() => readKubeAccess({})).toThrow(/does not run in a cluster/);
  });
});

/** Everything that would be printed of the error it throws. */
function thrown(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    return inspect(error, { depth: 9, maxStringLength: null });
  }
  return expect.fail("It should have thrown");
}
