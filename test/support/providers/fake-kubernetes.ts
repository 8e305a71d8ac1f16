// A fake of the Kubernetes API: Jobs with unique names, the pods that the Job controller creates, and deletion with a grace
// period. A pod may have a process, such as a real worker, that starts and exits with it.
import { randomBytes, randomUUID } from "node:crypto";
import { type Call, type Fake, type MachineProcess, type Reply, startFake } from "./fake-provider-api.ts";
import { kubernetesDescription } from "./schemas/kubernetes.ts";

/**
 *   create → pod Pending → Running → Succeeded (Complete) | Failed (Failed)        disrupted: the pod fails and is replaced
 *   delete → the Job is gone at once unless it has finalizers; its pods exit within their grace          half: never gets a pod
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

/** How a pod exits. */
interface PodEnd {
  code: number;
  oom?: boolean;
  /** Such as "EvictionByEvictionAPI". */
  disrupted?: string;
  /** The Job exceeded its activeDeadlineSeconds. */
  deadline?: boolean;
}

interface FakeKubeMachine {
  name: string;
  env: Record<string, string>;
  pod: FakePod;
}

export interface FakeKubernetesOptions {
  namespace?: string;
  now?(): number;
  /** Starts the process of a pod. */
  onStart?(machine: FakeKubeMachine): MachineProcess | undefined;
  /** See FakeOptions. */
  onNoResponse?(): void;
}

export interface FakeKubernetes extends Fake {
  namespace: string;
  token: string;
  jobs: FakeKubeJob[];
  pods: FakePod[];
  /** Maximum number of Jobs in the namespace. */
  quota: number;
  /** Pods stay pending until startPod(), and deleted pods keep running until exit(). */
  holdPods: boolean;
  /** Names of machines with a running or pending pod. */
  alive(): string[];
  job(name: string): FakeKubeJob;
  /** Adds a Job of another owner. */
  add(name: string, labels: Record<string, string>): FakeKubeJob;
  startPod(name: string): void;
  /** Keeps its pod pending with this reason. */
  stall(name: string, reason: string, message?: string): void;
  exit(name: string, end: PodEnd): void;
  /** Completes a deletion that a finalizer delays. */
  finalize(name: string): void;
}

export async function startFakeKubernetes(options: FakeKubernetesOptions = {}): Promise<FakeKubernetes> {
  const { namespace = "stillwake", now = Date.now, onStart } = options;
  const token = randomBytes(12).toString("hex");
  const jobs: FakeKubeJob[] = [];
  const pods: FakePod[] = [];
  const processes = new Map<string, MachineProcess>();
  let version = 1000;
  const stamp = () => `${new Date(now()).toISOString().slice(0, 19)}Z`;
  const error = (code: number, message: string, reason?: string) => ({
    apiVersion: "v1",
    kind: "Status",
    metadata: {},
    status: "Failure",
    message,
    reason: reason ?? REASONS[code] ?? "Unknown",
    code,
  });
  const reject = (code: number, message: string, reason?: string): Reply => ({
    status: code,
    body: error(code, message, reason),
  });
  const find = (name: string | undefined) => jobs.find(({ metadata }) => metadata.name === name);
  const podsOf = (uid: string) => pods.filter(({ metadata }) => metadata.ownerReferences?.[0]?.uid === uid);
  const isOver = ({ status }: FakePod) => status.phase === "Succeeded" || status.phase === "Failed";
  const touch = (meta: Meta) => {
    meta.resourceVersion = String(++version);
  };

  function createMeta(fields: Partial<Meta>, name: string): Meta {
    return {
      ...fields,
      name,
      namespace,
      uid: randomUUID(),
      resourceVersion: String(++version),
      labels: { ...fields.labels },
      creationTimestamp: stamp(),
    };
  }

  function addPod(job: FakeKubeJob): void {
    const { name, uid } = job.metadata;
    job.status = { ...job.status, active: 1, startTime: job.status.startTime ?? stamp() };
    const pod: FakePod = {
      metadata: {
        ...createMeta(
          { labels: { ...job.spec.template.metadata?.labels, "batch.kubernetes.io/job-name": name } },
          `${name.slice(0, 57)}-${randomBytes(2).toString("hex")}x`,
        ),
        ownerReferences: [{ apiVersion: "batch/v1", kind: "Job", name, uid }],
      },
      spec: structuredClone(job.spec.template.spec),
      status: { phase: "Pending" },
    };
    pods.push(pod);
    if (!fake.holdPods) run(pod);
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
    processes.set(pod.metadata.uid, body);
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
    processes.delete(pod.metadata.uid);
    const job = jobs.find(({ metadata }) => metadata.uid === pod.metadata.ownerReferences?.[0]?.uid);
    if (pod.metadata.deletionTimestamp !== undefined) pods.splice(pods.indexOf(pod), 1);
    if (!job || job.metadata.deletionTimestamp !== undefined) return;
    if (disrupted && job.spec.podFailurePolicy.rules.length > 0) {
      addPod(job);
      return;
    }
    const condition: Condition =
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
      conditions: [{ ...condition, lastTransitionTime: stamp() }],
    };
    touch(job.metadata);
  }

  /** Deletes the Job. Its pods get SIGTERM and are deleted when they have exited. */
  function collect(job: FakeKubeJob): void {
    jobs.splice(jobs.indexOf(job), 1);
    for (const pod of podsOf(job.metadata.uid)) {
      if (isOver(pod)) {
        pods.splice(pods.indexOf(pod), 1);
        continue;
      }
      pod.metadata.deletionTimestamp = stamp();
      const body = processes.get(pod.metadata.uid);
      if (body) body.kill("SIGTERM");
      else if (!fake.holdPods) endPod(pod, { code: 143 });
    }
  }

  /** Deletes Jobs whose TTL after finishing has passed. */
  function sweep(): void {
    for (const job of [...jobs]) {
      const over = job.status.conditions?.find(
        ({ type }) => type === "Complete" || type === "Failed",
      )?.lastTransitionTime;
      if (over !== undefined && now() - Date.parse(over) >= job.spec.ttlSecondsAfterFinished * 1000) collect(job);
    }
  }

  const list =
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
    ...(options.onNoResponse && { onNoResponse: options.onNoResponse }),
    authorize: ({ headers, params }) => {
      if (headers.authorization !== `Bearer ${token}`) return reject(401, "Unauthorized");
      if (params.namespace !== namespace)
        return reject(403, `jobs.batch is forbidden: User cannot do this in the namespace "${params.namespace}"`);
      return undefined;
    },
    handlers: {
      listJobs: list("JobList", jobs),
      listPods: list("PodList", pods),
      createJob: ({ body, half }) => {
        sweep();
        const { metadata, spec } = body as unknown as FakeKubeJob;
        // Quotas are checked before the name.
        if (jobs.length >= fake.quota)
          return reject(
            403,
            `jobs.batch "${metadata.name}" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1`,
          );
        if (find(metadata.name)) return reject(409, `jobs.batch "${metadata.name}" already exists`, "AlreadyExists");
        const job: FakeKubeJob = { metadata: createMeta(metadata, metadata.name), spec, status: {} };
        jobs.push(job);
        const reply = { status: 201, body: structuredClone({ apiVersion: "batch/v1", kind: "Job", ...job }) };
        if (!half) addPod(job);
        return reply;
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
          return reject(409, `the UID in the precondition (${wanted}) does not match the UID in record`, "Conflict");
        if (job.metadata.finalizers?.length) job.metadata.deletionTimestamp ??= stamp();
        else collect(job);
        return { status: 200, body: { apiVersion: "v1", kind: "Status", metadata: {}, status: "Success" } };
      },
    },
  });
  const missing = (name: string) => reject(404, `jobs.batch "${name}" not found`);
  const last = (name: string) => pods.findLast(({ metadata }) => metadata.ownerReferences?.[0]?.name === name)!;
  const closeBase = base.close;

  const fake: FakeKubernetes = Object.assign(base, {
    namespace,
    token,
    jobs,
    pods,
    quota: 1000,
    holdPods: false,
    alive: () => pods.filter((pod) => !isOver(pod)).map(({ metadata }) => metadata.ownerReferences![0]!.name),
    job: (name: string) => {
      const found = find(name);
      if (!found) throw new Error(`No job ${name}, only ${jobs.map(({ metadata }) => metadata.name).join(", ")}`);
      return found;
    },
    add: (name: string, labels: Record<string, string>) => {
      const podSpec: PodSpec & Record<string, unknown> = {
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
        template: { metadata: { labels }, spec: podSpec },
      };
      const job: FakeKubeJob = { metadata: createMeta({ labels }, name), spec, status: {} };
      jobs.push(job);
      addPod(job);
      return job;
    },
    startPod: (name: string) => run(last(name)),
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
      processes.get(pod.metadata.uid)?.kill("SIGKILL");
      endPod(pod, end);
    },
    finalize: (name: string) => collect(fake.job(name)),
    async close() {
      for (const body of processes.values()) body.kill("SIGKILL");
      await closeBase();
    },
  });
  return fake;
}

const REASONS: Record<number, string> = {
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  410: "Expired",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
};
