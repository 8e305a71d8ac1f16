// Builds the Job of a machine, and converts a Job and its pods into a ListedMachine.
import { createHash } from "node:crypto";
import type { Exit, ListedMachine, MachineRequest, ProviderContext } from "../../provider.ts";
import { poolPrefix } from "../../provider.ts";
import { formatMemoryLimit, parseDate, signalName } from "../http.ts";
import type { KubernetesSettings } from "./options.ts";

/** The fields that are used of a Job. */
export interface KubeJob {
  metadata: Metadata;
  status?: { startTime?: string; completionTime?: string; ready?: number; conditions?: Condition[] };
}

/** The fields that are used of a pod. */
export interface KubePod {
  metadata: Metadata;
  spec?: { containers?: { name: string; resources?: { limits?: { memory?: string } } }[] };
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    conditions?: Condition[];
    containerStatuses?: {
      name: string;
      state?: {
        waiting?: { reason?: string; message?: string };
        running?: { startedAt?: string };
        terminated?: {
          exitCode?: number;
          signal?: number;
          reason?: string;
          message?: string;
          startedAt?: string;
          finishedAt?: string;
        };
      };
    }[];
  };
}

interface Metadata {
  name: string;
  uid?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  ownerReferences?: { uid: string; kind: string; name: string }[];
}

interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

const CONTAINER = "worker";
/** Kubernetes deletes a finished Job and its pods after this time; the orchestrator has read the exit by then. */
const KEPT_SECONDS = 300;

/** Label values are restricted, so the pool's name is shortened as in machine names. */
export function labelsFor({ fleet, pool }: ProviderContext): Record<string, string> {
  return {
    "app.kubernetes.io/managed-by": "stillwake",
    "stillwake/fleet": fleet,
    "stillwake/pool": poolPrefix(fleet, pool).slice(4 + fleet.length, -1),
  };
}

export function isOurs({ metadata: { labels } }: { metadata: Metadata }, context: ProviderContext): boolean {
  return Object.entries(labelsFor(context)).every(([key, value]) => labels?.[key] === value);
}

/**
 * Kubernetes never restarts the pod: jobs are recovered through their leases. A pod that was evicted, preempted or lost
 * with its node does not count as a failure and is replaced after it has ended, never while it runs.
 */
export function buildJob(request: MachineRequest, settings: KubernetesSettings, context: ProviderContext): object {
  const { maxLifeMs, podTemplate = {} } = settings;
  const labels = labelsFor(context);
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: {
      name: request.name,
      labels,
      annotations: { "stillwake/pool": context.pool, "stillwake/spec": specHash(settings, context) },
    },
    spec: {
      backoffLimit: 0,
      completions: 1,
      parallelism: 1,
      ttlSecondsAfterFinished: KEPT_SECONDS,
      activeDeadlineSeconds: Math.round(maxLifeMs / 1000),
      podReplacementPolicy: "Failed",
      podFailurePolicy: {
        rules: [{ action: "Ignore", onPodConditions: [{ type: "DisruptionTarget", status: "True" }] }],
      },
      template: {
        metadata: {
          ...podTemplate.metadata,
          labels: { ...podTemplate.metadata?.labels, ...labels },
        },
        spec: podSpec(settings, context, request.env),
      },
    },
  };
}

/** Hash of the pod template without the environment of a single machine. */
export function specHash(settings: KubernetesSettings, context: ProviderContext): string {
  return createHash("sha256")
    .update(JSON.stringify(podSpec(settings, context, {})))
    .digest("hex")
    .slice(0, 12);
}

function podSpec(settings: KubernetesSettings, { graceMs }: ProviderContext, env: MachineRequest["env"]): object {
  const {
    image,
    command,
    cpu,
    memoryMb,
    env: extraEnv,
    secretRef,
    serviceAccount,
    nodeSelector,
    tolerations,
    podTemplate,
  } = settings;
  const template = podTemplate?.spec ?? {};
  const {
    containers = [],
    securityContext,
    ...rest
  } = template as { containers?: Record<string, unknown>[]; securityContext?: object };
  const {
    securityContext: containerSecurity,
    env: containerEnv,
    ...container
  } = (containers.find(({ name }) => name === CONTAINER) ?? {}) as {
    securityContext?: object;
    env?: object[];
  };
  const memory = memoryMb === undefined ? undefined : `${memoryMb}Mi`;
  return {
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    ...rest,
    restartPolicy: "Never",
    terminationGracePeriodSeconds: Math.max(1, Math.ceil(graceMs / 1000)),
    ...(serviceAccount !== undefined && { serviceAccountName: serviceAccount }),
    ...(nodeSelector && { nodeSelector }),
    ...(tolerations && { tolerations }),
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" }, ...securityContext },
    containers: [
      {
        ...container,
        name: CONTAINER,
        image,
        ...(command && { args: command }),
        env: [
          ...(containerEnv ?? []),
          ...Object.entries({ ...extraEnv, ...env }).map(([name, value]) => ({ name, value })),
        ],
        ...(secretRef !== undefined && { envFrom: [secretRef].flat().map((name) => ({ secretRef: { name } })) }),
        ...((cpu !== undefined || memory !== undefined) && {
          resources: {
            requests: { ...(cpu !== undefined && { cpu: `${cpu}` }), ...(memory && { memory }) },
            // Overcommitted memory kills pods at random; CPU time is shared fairly without a limit.
            ...(memory && { limits: { memory } }),
          },
        }),
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] }, ...containerSecurity },
      },
      ...containers.filter(({ name }) => name !== CONTAINER),
    ],
  };
}

/** `pods`: those of this Job, oldest first; there may have been several in sequence. */
export function toListedMachine(job: KubeJob, pods: KubePod[], spec: string): ListedMachine {
  const { metadata, status = {} } = job;
  const first = pods[0];
  const pod = pods.at(-1);
  const started = parseDate(first && startOf(first)) ?? parseDate(status.startTime);
  const common = {
    name: metadata.name,
    id: metadata.uid ?? metadata.name,
    ...(metadata.annotations?.["stillwake/spec"] !== spec && { stale: true }),
  };
  const ran = started && pods.some((candidate) => startOf(candidate) !== undefined) ? { startedAt: started } : {};
  const over = status.conditions?.find(
    ({ type, status: is }) => (type === "Complete" || type === "Failed") && is === "True",
  );
  if (over) {
    const ended = parseDate(status.completionTime ?? endOf(pod) ?? over.lastTransitionTime);
    return { ...common, ...ran, state: "gone", ...(ended && { endedAt: ended }), exit: exitOf(job, over, pod) };
  }
  const ending = status.conditions?.find(
    ({ type, status: is }) => (type === "FailureTarget" || type === "SuccessCriteriaMet") && is === "True",
  );
  const since = parseDate(metadata.deletionTimestamp ?? ending?.lastTransitionTime);
  if (since) return { ...common, ...ran, state: "stopping", since };
  if (pod?.status?.phase === "Running" && pod.metadata.deletionTimestamp === undefined) {
    return { ...common, ...ran, state: "running" };
  }
  const requested = parseDate(pod?.metadata.creationTimestamp ?? metadata.creationTimestamp);
  return { ...common, state: "starting", ...(requested && { since: requested }) };
}

/** A pod that still runs although its Job was deleted. */
export function toOrphanedMachine(pod: KubePod): ListedMachine | undefined {
  const owner = pod.metadata.ownerReferences?.find(({ kind }) => kind === "Job");
  const isOver = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
  if (!owner || isOver) return undefined;
  const since = parseDate(pod.metadata.deletionTimestamp);
  const started = parseDate(startOf(pod));
  return {
    name: owner.name,
    id: owner.uid,
    state: "stopping",
    ...(started && { startedAt: started }),
    ...(since && { since }),
  };
}

/** Why a pod does not start, for causes that are not temporary. */
export function startupProblem(pod: KubePod): string | undefined {
  const waiting = worker(pod)?.state?.waiting;
  const PERMANENT = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
  ];
  if (waiting && PERMANENT.includes(waiting.reason ?? ""))
    return `${waiting.reason}${waiting.message ? `: ${waiting.message}` : ""}`;
  const unplaced = pod.status?.conditions?.find(
    ({ type, status, reason }) => type === "PodScheduled" && status === "False" && reason === "Unschedulable",
  );
  return unplaced && `no node fits${unplaced.message ? `: ${unplaced.message}` : ""}`;
}

export function byAge(a: KubePod, b: KubePod): number {
  return (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? "");
}

function exitOf(job: KubeJob, over: Condition, pod: KubePod | undefined): Exit {
  const ended = pod && worker(pod)?.state?.terminated;
  const disrupted = pod?.status?.conditions?.find(
    ({ type, status }) => type === "DisruptionTarget" && status === "True",
  );
  const reason = [
    disrupted &&
      `disrupted: ${disrupted.reason ?? "by the cluster"}${disrupted.message ? `, ${disrupted.message}` : ""}`,
    over.type === "Failed" && over.reason !== "BackoffLimitExceeded"
      ? over.reason === "DeadlineExceeded"
        ? "it exceeded its maxLife"
        : over.message || over.reason
      : undefined,
    pod?.status?.reason && `${pod.status.reason}${pod.status.message ? `: ${pod.status.message}` : ""}`,
  ].find((text) => typeof text === "string");
  const oom = ended?.reason === "OOMKilled";
  const limit = pod?.spec?.containers?.find(({ name }) => name === CONTAINER)?.resources?.limits?.memory;
  // The exit code of a process killed by a signal is 128 plus its number.
  const signal =
    ended?.signal ?? (ended?.exitCode !== undefined && ended.exitCode > 128 ? ended.exitCode - 128 : undefined);
  return {
    ...(ended?.exitCode !== undefined ? { code: ended.exitCode } : over.type === "Complete" && { code: 0 }),
    ...(signal !== undefined && { signal: signalName(signal) ?? `signal ${signal}` }),
    ...(oom && { oom: true, ...(limit && { memory: formatMemoryLimit(limit) }) }),
    ...(job.metadata.deletionTimestamp !== undefined && { requested: true }),
    ...(reason !== undefined && { reason: reason.slice(0, 300) }),
  };
}

function worker(pod: KubePod) {
  return pod.status?.containerStatuses?.find(({ name }) => name === CONTAINER);
}

function startOf(pod: KubePod): string | undefined {
  const state = worker(pod)?.state;
  return state?.running?.startedAt ?? state?.terminated?.startedAt;
}

function endOf(pod: KubePod | undefined): string | undefined {
  return pod && worker(pod)?.state?.terminated?.finishedAt;
}
