// A machine as Kubernetes has it: a Job of batch/v1 that is made for it, and what that Job and its pods say of it later.
import { createHash } from "node:crypto";
import { poolPrefix } from "../../names.ts";
import type { Exit, Order, ProviderContext, SeenMachine } from "../../provider.ts";
import { dateOf, memoryOf, signalOf } from "../api-values.ts";
import type { KubernetesSettings } from "./options.ts";

/** What is read of a Job. */
export interface KubeJob {
  metadata: Metadata;
  status?: { startTime?: string; completionTime?: string; ready?: number; conditions?: Condition[] };
}

/** What is read of a pod. */
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
/** A Job that has finished is cleared away after this time, with its pods: whoever wants to know how it ended has looked by then. */
const KEPT_SECONDS = 300;

/** Values of labels are short and plain: a pool's name stands there as it does in its machines' names. */
export function labelsOf({ fleet, pool }: ProviderContext): Record<string, string> {
  return {
    "app.kubernetes.io/managed-by": "stillwake",
    "stillwake/fleet": fleet,
    "stillwake/pool": poolPrefix(fleet, pool).slice(4 + fleet.length, -1),
  };
}

export function isOurs({ metadata: { labels } }: { metadata: Metadata }, context: ProviderContext): boolean {
  return Object.entries(labelsOf(context)).every(([key, value]) => labels?.[key] === value);
}

/**
 * One pod that is never run twice by Kubernetes itself: jobs are recovered by their leases. But a pod that was evicted, preempted or lost with its node is
 * no failure of the machine, and is replaced once it has ended, never beside it.
 */
export function jobFor(order: Order, settings: KubernetesSettings, context: ProviderContext): object {
  const { maxLifeMs, podTemplate = {} } = settings;
  const labels = labelsOf(context);
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: {
      name: order.name,
      labels,
      annotations: { "stillwake/pool": context.pool, "stillwake/spec": specOf(settings, context) },
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
        spec: podSpec(settings, context, order.env),
      },
    },
  };
}

/** What machines are made from, without what is one's own. */
export function specOf(settings: KubernetesSettings, context: ProviderContext): string {
  return createHash("sha256")
    .update(JSON.stringify(podSpec(settings, context, {})))
    .digest("hex")
    .slice(0, 12);
}

function podSpec(settings: KubernetesSettings, { graceMs }: ProviderContext, env: Order["env"]): object {
  const {
    image,
    command,
    cpu,
    memoryMb,
    env: more,
    secretRef,
    serviceAccount,
    nodeSelector,
    tolerations,
    podTemplate,
  } = settings;
  const given = podTemplate?.spec ?? {};
  const {
    containers = [],
    securityContext,
    ...rest
  } = given as { containers?: Record<string, unknown>[]; securityContext?: object };
  const {
    securityContext: own,
    env: moreEnv,
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
        env: [...(moreEnv ?? []), ...Object.entries({ ...more, ...env }).map(([name, value]) => ({ name, value }))],
        ...(secretRef !== undefined && { envFrom: [secretRef].flat().map((name) => ({ secretRef: { name } })) }),
        ...((cpu !== undefined || memory !== undefined) && {
          resources: {
            requests: { ...(cpu !== undefined && { cpu: `${cpu}` }), ...(memory && { memory }) },
            // Memory that is promised and not there kills at random; time is shared fairly by itself.
            ...(memory && { limits: { memory } }),
          },
        }),
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] }, ...own },
      },
      ...containers.filter(({ name }) => name !== CONTAINER),
    ],
  };
}

/** `pods`: those of this Job, which may have had several one after another. */
export function seen(job: KubeJob, pods: KubePod[], spec: string): SeenMachine {
  const { metadata, status = {} } = job;
  const first = pods[0];
  const pod = pods.at(-1);
  const started = dateOf(first && startOf(first)) ?? dateOf(status.startTime);
  const common = {
    name: metadata.name,
    id: metadata.uid ?? metadata.name,
    ...(metadata.annotations?.["stillwake/spec"] !== spec && { stale: true }),
  };
  const ran = started && pods.some((one) => startOf(one) !== undefined) ? { startedAt: started } : {};
  const over = status.conditions?.find(
    ({ type, status: is }) => (type === "Complete" || type === "Failed") && is === "True",
  );
  if (over) {
    const ended = dateOf(status.completionTime ?? endOf(pod) ?? over.lastTransitionTime);
    return { ...common, ...ran, state: "gone", ...(ended && { endedAt: ended }), exit: exitOf(job, over, pod) };
  }
  const ending = status.conditions?.find(
    ({ type, status: is }) => (type === "FailureTarget" || type === "SuccessCriteriaMet") && is === "True",
  );
  const since = dateOf(metadata.deletionTimestamp ?? ending?.lastTransitionTime);
  if (since) return { ...common, ...ran, state: "stopping", since };
  if (pod?.status?.phase === "Running" && pod.metadata.deletionTimestamp === undefined) {
    return { ...common, ...ran, state: "running" };
  }
  const asked = dateOf(pod?.metadata.creationTimestamp ?? metadata.creationTimestamp);
  return { ...common, state: "starting", ...(asked && { since: asked }) };
}

/** Its Job was deleted, and it has not ended yet. */
export function leftover(pod: KubePod): SeenMachine | undefined {
  const owner = pod.metadata.ownerReferences?.find(({ kind }) => kind === "Job");
  const isOver = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
  if (!owner || isOver) return undefined;
  const since = dateOf(pod.metadata.deletionTimestamp);
  const started = dateOf(startOf(pod));
  return {
    name: owner.name,
    id: owner.uid,
    state: "stopping",
    ...(started && { startedAt: started }),
    ...(since && { since }),
  };
}

/** Why it does not come up, where that will not pass by itself. */
export function hindrance(pod: KubePod): string | undefined {
  const waiting = worker(pod)?.state?.waiting;
  const lasting = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
  ];
  if (waiting && lasting.includes(waiting.reason ?? ""))
    return `${waiting.reason}${waiting.message ? `: ${waiting.message}` : ""}`;
  const unplaced = pod.status?.conditions?.find(
    ({ type, status, reason }) => type === "PodScheduled" && status === "False" && reason === "Unschedulable",
  );
  return unplaced && `there is no node for it${unplaced.message ? `: ${unplaced.message}` : ""}`;
}

export function byAge(a: KubePod, b: KubePod): number {
  return (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? "");
}

function exitOf(job: KubeJob, over: Condition, pod: KubePod | undefined): Exit {
  const ended = pod && worker(pod)?.state?.terminated;
  const disrupted = pod?.status?.conditions?.find(
    ({ type, status }) => type === "DisruptionTarget" && status === "True",
  );
  const why = [
    disrupted &&
      `disrupted: ${disrupted.reason ?? "by the cluster"}${disrupted.message ? `, ${disrupted.message}` : ""}`,
    over.type === "Failed" && over.reason !== "BackoffLimitExceeded"
      ? over.reason === "DeadlineExceeded"
        ? "it was older than its maxLife"
        : over.message || over.reason
      : undefined,
    pod?.status?.reason && `${pod.status.reason}${pod.status.message ? `: ${pod.status.message}` : ""}`,
  ].find((one) => typeof one === "string");
  const oom = ended?.reason === "OOMKilled";
  const limit = pod?.spec?.containers?.find(({ name }) => name === CONTAINER)?.resources?.limits?.memory;
  // 128 and the signal's number is how a process that was ended by one is told of.
  const signal =
    ended?.signal ?? (ended?.exitCode !== undefined && ended.exitCode > 128 ? ended.exitCode - 128 : undefined);
  return {
    ...(ended?.exitCode !== undefined ? { code: ended.exitCode } : over.type === "Complete" && { code: 0 }),
    ...(signal !== undefined && { signal: signalOf(signal) ?? `signal ${signal}` }),
    ...(oom && { oom: true, ...(limit && { memory: memoryOf(limit) }) }),
    ...(job.metadata.deletionTimestamp !== undefined && { requested: true }),
    ...(why !== undefined && { reason: why.slice(0, 300) }),
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
