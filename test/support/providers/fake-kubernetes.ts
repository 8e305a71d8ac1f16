// Kubernetes' API as far as we use it: Jobs whose names are taken once, the pods that the Job controller makes of them, and deletion that takes its time. A pod
// may have a body, such as a real worker, that begins when it runs and whose end is its own.
import { randomBytes, randomUUID } from "node:crypto";
import type { Body } from "./fake-fly.ts";
import { type Call, type Fake, type Reply, startFake } from "./fake-provider-api.ts";
import { kubernetesDescription } from "./schemas/kubernetes.ts";

/**
 *   create → pod Pending → Running → Succeeded (Complete) | Failed (Failed)        disrupted: the pod fails and, once it has ended, another takes its place
 *   delete → the Job is gone at once unless it has finalizers; its pods end within their grace          half: never gets a pod
 */
interface FakeKubeJob {
  metadata: Meta;
  spec: {
    ttlSecondsAfterFinished: number;
    podFailurePolicy: { rules: object[] };
    template: { metadata?: { labels?: Record<string, string> }; spec: PodSpec };
  };
  status: { startTime?: string; completionTime?: string; active?: number; conditions?: Condition[] };
}

interface FakePod {
  metadata: Meta;
  spec: PodSpec;
  status: {
    phase: "Pending" | "Running" | "Succeeded" | "Failed";
    reason?: string;
    message?: string;
    conditions?: Condition[];
    containerStatuses?: { name: string; state: Record<string, Record<string, unknown>> }[];
  };
}

interface Meta {
  name: string;
  namespace: string;
  uid: string;
  resourceVersion: string;
  labels: Record<string, string>;
  annotations?: Record<string, string>;
  creationTimestamp: string;
  deletionTimestamp?: string;
  finalizers?: string[];
  ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string }[];
}

interface PodSpec {
  containers: { name: string; env?: { name: string; value?: string }[]; resources?: object }[];
}

interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

/** How a pod ends. */
interface PodEnd {
  code: number;
  oom?: boolean;
  /** Such as "EvictionByEvictionAPI": it was not the machine's own doing. */
  disrupted?: string;
  /** The Job was older than its activeDeadlineSeconds. */
  deadline?: boolean;
}

/** What a body is begun with. */
interface FakeKubeMachine {
  name: string;
  env: Record<string, string>;
  pod: FakePod;
}

export interface FakeKubernetesOptions {
  namespace?: string;
  now?(): number;
  /** Begins what runs in a pod that has started. */
  onStart?(machine: FakeKubeMachine): Body | undefined;
  /** See provider-fake.ts. */
  onStuck?(): void;
}

export interface FakeKubernetes extends Fake {
  namespace: string;
  token: string;
  jobs: FakeKubeJob[];
  pods: FakePod[];
  /** How many Jobs the namespace may have. */
  quota: number;
  /** Pods stay pending until begin(), and do not end when they are deleted until exit(). */
  hold: boolean;
  /** Names of machines with a pod that has not ended. */
  alive(): string[];
  job(name: string): FakeKubeJob;
  /** One that somebody else has made. */
  add(name: string, labels: Record<string, string>): FakeKubeJob;
  begin(name: string): void;
  /** It waits, and will go on waiting. */
  stall(name: string, reason: string, message?: string): void;
  exit(name: string, end: PodEnd): void;
  /** What holds up its deletion is done. */
  finalize(name: string): void;
}

export async function startFakeKubernetes(options: FakeKubernetesOptions = {}): Promise<FakeKubernetes> {
  const { namespace = "stillwake", now = Date.now, onStart } = options;
  const token = randomBytes(12).toString("hex");
  const jobs: FakeKubeJob[] = [];
  const pods: FakePod[] = [];
  const bodies = new Map<string, Body>();
  let version = 1000;
  const stamp = () => `${new Date(now()).toISOString().slice(0, 19)}Z`;
  const error = (code: number, message: string, reason?: string) => ({
    apiVersion: "v1",
    kind: "Status",
    metadata: {},
    status: "Failure",
    message,
    reason: reason ?? reasons[code] ?? "Unknown",
    code,
  });
  const refuse = (code: number, message: string, reason?: string): Reply => ({
    status: code,
    body: error(code, message, reason),
  });
  const find = (name: string | undefined) => jobs.find(({ metadata }) => metadata.name === name);
  const podsOf = (uid: string) => pods.filter(({ metadata }) => metadata.ownerReferences?.[0]?.uid === uid);
  const isOver = ({ status }: FakePod) => status.phase === "Succeeded" || status.phase === "Failed";
  const touch = (meta: Meta) => {
    meta.resourceVersion = String(++version);
  };

  function meta(given: Partial<Meta>, name: string): Meta {
    return {
      ...given,
      name,
      namespace,
      uid: randomUUID(),
      resourceVersion: String(++version),
      labels: { ...given.labels },
      creationTimestamp: stamp(),
    };
  }

  function addPod(job: FakeKubeJob): void {
    const { name, uid } = job.metadata;
    job.status = { ...job.status, active: 1, startTime: job.status.startTime ?? stamp() };
    const pod: FakePod = {
      metadata: {
        ...meta(
          { labels: { ...job.spec.template.metadata?.labels, "batch.kubernetes.io/job-name": name } },
          `${name.slice(0, 57)}-${randomBytes(2).toString("hex")}x`,
        ),
        ownerReferences: [{ apiVersion: "batch/v1", kind: "Job", name, uid }],
      },
      spec: structuredClone(job.spec.template.spec),
      status: { phase: "Pending" },
    };
    pods.push(pod);
    if (!fake.hold) run(pod);
  }

  function run(pod: FakePod): void {
    if (pod.status.phase !== "Pending") return;
    const { containers } = pod.spec;
    pod.status = {
      phase: "Running",
      containerStatuses: containers.map(({ name }) => ({ name, state: { running: { startedAt: stamp() } } })),
    };
    touch(pod.metadata);
    const env = Object.fromEntries((containers[0]!.env ?? []).map(({ name, value }) => [name, value ?? ""]));
    const body = onStart?.({ name: pod.metadata.ownerReferences![0]!.name, env, pod });
    if (!body) return;
    bodies.set(pod.metadata.uid, body);
    void body.exited.then(({ code, oom }) => endPod(pod, { code, ...(oom && { oom }) }));
  }

  function endPod(pod: FakePod, { code, oom, disrupted, deadline }: PodEnd): void {
    if (isOver(pod)) return;
    const startedAt = pod.status.containerStatuses?.[0]?.state.running?.startedAt ?? stamp();
    pod.status = {
      phase: code === 0 ? "Succeeded" : "Failed",
      ...(disrupted && {
        conditions: [
          {
            type: "DisruptionTarget",
            status: "True",
            reason: disrupted,
            message: "the node is needed",
            lastTransitionTime: stamp(),
          },
        ],
      }),
      containerStatuses: pod.spec.containers.map(({ name }) => ({
        name,
        state: {
          terminated: {
            exitCode: code,
            reason: oom ? "OOMKilled" : code === 0 ? "Completed" : "Error",
            startedAt,
            finishedAt: stamp(),
          },
        },
      })),
    };
    touch(pod.metadata);
    bodies.delete(pod.metadata.uid);
    const job = jobs.find(({ metadata }) => metadata.uid === pod.metadata.ownerReferences?.[0]?.uid);
    if (pod.metadata.deletionTimestamp !== undefined) pods.splice(pods.indexOf(pod), 1);
    if (!job || job.metadata.deletionTimestamp !== undefined) return;
    if (disrupted && job.spec.podFailurePolicy.rules.length > 0) {
      addPod(job);
      return;
    }
    const how: Condition =
      code === 0
        ? { type: "Complete", status: "True" }
        : deadline
          ? {
              type: "Failed",
              status: "True",
              reason: "DeadlineExceeded",
              message: "Job was active longer than specified deadline",
            }
          : {
              type: "Failed",
              status: "True",
              reason: "BackoffLimitExceeded",
              message: "Job has reached the specified backoff limit",
            };
    job.status = {
      ...(job.status.startTime !== undefined && { startTime: job.status.startTime }),
      ...(code === 0 && { completionTime: stamp() }),
      conditions: [{ ...how, lastTransitionTime: stamp() }],
    };
    touch(job.metadata);
  }

  /** Its pods are told to end; the last trace of each goes when it has. */
  function collect(job: FakeKubeJob): void {
    jobs.splice(jobs.indexOf(job), 1);
    for (const pod of podsOf(job.metadata.uid)) {
      if (isOver(pod)) {
        pods.splice(pods.indexOf(pod), 1);
        continue;
      }
      pod.metadata.deletionTimestamp = stamp();
      const body = bodies.get(pod.metadata.uid);
      if (body) body.kill("SIGTERM");
      else if (!fake.hold) endPod(pod, { code: 143 });
    }
  }

  /** What has finished long enough ago is cleared away. */
  function sweep(): void {
    for (const job of [...jobs]) {
      const over = job.status.conditions?.find(
        ({ type }) => type === "Complete" || type === "Failed",
      )?.lastTransitionTime;
      if (over !== undefined && now() - Date.parse(over) >= job.spec.ttlSecondsAfterFinished * 1000) collect(job);
    }
  }

  const listed =
    (kind: string, all: (FakeKubeJob | FakePod)[]) =>
    (call: Call): Reply => {
      sweep();
      const wanted = (call.query.get("labelSelector") ?? "")
        .split(",")
        .filter(Boolean)
        .map((pair) => pair.split("="));
      const items = all.filter(({ metadata: { labels } }) => wanted.every(([key, value]) => labels[key!] === value));
      const from = Number(call.query.get("continue") ?? 0);
      const to = from + Number(call.query.get("limit") ?? items.length);
      return {
        status: 200,
        body: {
          apiVersion: kind === "PodList" ? "v1" : "batch/v1",
          kind,
          metadata: { resourceVersion: String(version), ...(to < items.length && { continue: String(to) }) },
          items: items.slice(from, to),
        },
      };
    };

  const base = await startFake({
    description: kubernetesDescription,
    error,
    ...(options.now && { now: options.now }),
    ...(options.onStuck && { onStuck: options.onStuck }),
    admit: ({ headers, params }) => {
      if (headers.authorization !== `Bearer ${token}`) return refuse(401, "Unauthorized");
      if (params.namespace !== namespace)
        return refuse(403, `jobs.batch is forbidden: User cannot do this in the namespace "${params.namespace}"`);
      return undefined;
    },
    handlers: {
      listJobs: listed("JobList", jobs),
      listPods: listed("PodList", pods),
      createJob: ({ body, half }) => {
        sweep();
        const { metadata, spec } = body as unknown as FakeKubeJob;
        // Admission comes before anybody looks at the name.
        if (jobs.length >= fake.quota)
          return refuse(
            403,
            `jobs.batch "${metadata.name}" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1`,
          );
        if (find(metadata.name)) return refuse(409, `jobs.batch "${metadata.name}" already exists`, "AlreadyExists");
        const job: FakeKubeJob = { metadata: meta(metadata, metadata.name), spec, status: {} };
        jobs.push(job);
        const answer = { status: 201, body: structuredClone({ apiVersion: "batch/v1", kind: "Job", ...job }) };
        if (!half) addPod(job);
        return answer;
      },
      getJob: ({ params }) => {
        sweep();
        const job = find(params.name);
        return job ? { status: 200, body: { apiVersion: "batch/v1", kind: "Job", ...job } } : missing(params.name!);
      },
      deleteJob: ({ params, body }) => {
        const job = find(params.name);
        if (!job) return missing(params.name!);
        const wanted = (body as { preconditions?: { uid?: string } } | undefined)?.preconditions?.uid;
        if (wanted !== undefined && wanted !== job.metadata.uid)
          return refuse(409, `the UID in the precondition (${wanted}) does not match the UID in record`, "Conflict");
        if (job.metadata.finalizers?.length) job.metadata.deletionTimestamp ??= stamp();
        else collect(job);
        return { status: 200, body: { apiVersion: "v1", kind: "Status", metadata: {}, status: "Success" } };
      },
    },
  });
  const missing = (name: string) => refuse(404, `jobs.batch "${name}" not found`);
  const last = (name: string) => pods.findLast(({ metadata }) => metadata.ownerReferences?.[0]?.name === name)!;
  const closeBase = base.close;

  const fake: FakeKubernetes = Object.assign(base, {
    namespace,
    token,
    jobs,
    pods,
    quota: 1000,
    hold: false,
    alive: () => pods.filter((pod) => !isOver(pod)).map(({ metadata }) => metadata.ownerReferences![0]!.name),
    job: (name: string) => {
      const found = find(name);
      if (!found)
        throw new Error(`There is no job ${name}, but ${jobs.map(({ metadata }) => metadata.name).join(", ")}`);
      return found;
    },
    add: (name: string, labels: Record<string, string>) => {
      const theirs: PodSpec & Record<string, unknown> = {
        restartPolicy: "Never",
        terminationGracePeriodSeconds: 30,
        securityContext: {},
        containers: [{ name: "main", image: "someone/else:1" } as PodSpec["containers"][0]],
      };
      const spec = {
        backoffLimit: 0,
        ttlSecondsAfterFinished: 300,
        activeDeadlineSeconds: 60,
        podReplacementPolicy: "Failed",
        podFailurePolicy: { rules: [] },
        template: { metadata: { labels }, spec: theirs },
      };
      const job: FakeKubeJob = { metadata: meta({ labels }, name), spec, status: {} };
      jobs.push(job);
      addPod(job);
      return job;
    },
    begin: (name: string) => run(last(name)),
    stall: (name: string, reason: string, message?: string) => {
      last(name).status =
        reason === "Unschedulable"
          ? {
              phase: "Pending",
              conditions: [{ type: "PodScheduled", status: "False", reason, ...(message && { message }) }],
            }
          : {
              phase: "Pending",
              containerStatuses: [{ name: "worker", state: { waiting: { reason, ...(message && { message }) } } }],
            };
    },
    exit: (name: string, end: PodEnd) => {
      const pod = last(name);
      bodies.get(pod.metadata.uid)?.kill("SIGKILL");
      endPod(pod, end);
    },
    finalize: (name: string) => collect(fake.job(name)),
    async close() {
      for (const body of bodies.values()) body.kill("SIGKILL");
      await closeBase();
    },
  });
  return fake;
}

const reasons: Record<number, string> = {
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  410: "Expired",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
};
