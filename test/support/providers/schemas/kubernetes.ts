// Condensed schema of the operations of the Kubernetes API that we use: Jobs of batch/v1 and pods of core/v1.
import type { Description, Schema } from "./check.ts";

const text: Schema = { type: "string" };
const count: Schema = { type: "integer", minimum: 0 };
const time: Schema = { type: "string", pattern: "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$" };
const labels: Schema = {
  type: "object",
  additionalProperties: { type: "string", pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" },
};
const annotations: Schema = { type: "object", additionalProperties: text };
const open: Schema = { type: "object", additionalProperties: true };

const metadata: Schema = {
  type: "object",
  properties: {
    name: { type: "string", pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" },
    namespace: text,
    uid: text,
    resourceVersion: text,
    labels,
    annotations,
    creationTimestamp: time,
    deletionTimestamp: time,
    deletionGracePeriodSeconds: count,
    finalizers: { type: "array", items: text },
    ownerReferences: {
      type: "array",
      items: {
        type: "object",
        required: ["apiVersion", "kind", "name", "uid"],
        properties: {
          apiVersion: text,
          kind: text,
          name: text,
          uid: text,
          controller: { type: "boolean" },
          blockOwnerDeletion: { type: "boolean" },
        },
      },
    },
  },
};

const env: Schema = {
  type: "array",
  items: {
    type: "object",
    required: ["name"],
    properties: { name: text, value: text, valueFrom: open },
  },
};

const quantities: Schema = {
  type: "object",
  properties: {
    cpu: { type: "string", pattern: "^\\d+(\\.\\d+)?m?$" },
    memory: { type: "string", pattern: "^\\d+(Mi|Gi)$" },
  },
};

const podSpec: Schema = {
  type: "object",
  required: ["containers", "restartPolicy", "terminationGracePeriodSeconds", "securityContext"],
  properties: {
    restartPolicy: { type: "string", const: "Never" },
    terminationGracePeriodSeconds: { type: "integer", minimum: 1 },
    automountServiceAccountToken: { type: "boolean" },
    enableServiceLinks: { type: "boolean" },
    serviceAccountName: text,
    nodeSelector: annotations,
    tolerations: { type: "array", items: open },
    priorityClassName: text,
    securityContext: {
      type: "object",
      properties: {
        runAsNonRoot: { type: "boolean" },
        runAsUser: { type: "integer" },
        seccompProfile: { type: "object", properties: { type: text } },
      },
    },
    containers: {
      type: "array",
      items: {
        type: "object",
        required: ["name", "image"],
        properties: {
          name: text,
          image: { type: "string", pattern: "^\\S+$" },
          args: { type: "array", items: text },
          env,
          envFrom: {
            type: "array",
            items: { type: "object", properties: { secretRef: { type: "object", properties: { name: text } } } },
          },
          resources: { type: "object", properties: { requests: quantities, limits: quantities } },
          securityContext: {
            type: "object",
            properties: {
              allowPrivilegeEscalation: { type: "boolean" },
              capabilities: { type: "object", properties: { drop: { type: "array", items: text } } },
            },
          },
          volumeMounts: { type: "array", items: open },
        },
      },
    },
    volumes: { type: "array", items: open },
  },
};

const jobSpec: Schema = {
  type: "object",
  required: [
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "podReplacementPolicy",
    "podFailurePolicy",
    "template",
  ],
  properties: {
    backoffLimit: { type: "integer", const: 0 },
    completions: { type: "integer", const: 1 },
    parallelism: { type: "integer", const: 1 },
    ttlSecondsAfterFinished: count,
    activeDeadlineSeconds: { type: "integer", minimum: 1 },
    podReplacementPolicy: { type: "string", const: "Failed" },
    podFailurePolicy: {
      type: "object",
      required: ["rules"],
      properties: {
        rules: {
          type: "array",
          items: {
            type: "object",
            required: ["action"],
            properties: {
              action: { type: "string", enum: ["Ignore", "FailJob", "Count"] },
              onPodConditions: {
                type: "array",
                items: { type: "object", required: ["type", "status"], properties: { type: text, status: text } },
              },
            },
          },
        },
      },
    },
    template: { type: "object", required: ["spec"], properties: { metadata, spec: podSpec } },
  },
};

const conditions: Schema = {
  type: "array",
  items: {
    type: "object",
    required: ["type", "status"],
    properties: { type: text, status: text, reason: text, message: text, lastTransitionTime: time },
  },
};

const job: Schema = {
  type: "object",
  required: ["metadata", "spec"],
  properties: {
    apiVersion: text,
    kind: text,
    metadata,
    spec: jobSpec,
    status: {
      type: "object",
      properties: {
        startTime: time,
        completionTime: time,
        active: count,
        ready: count,
        terminating: count,
        succeeded: count,
        failed: count,
        conditions,
      },
    },
  },
};

const containerState: Schema = {
  type: "object",
  properties: {
    waiting: { type: "object", properties: { reason: text, message: text } },
    running: { type: "object", properties: { startedAt: time } },
    terminated: {
      type: "object",
      properties: {
        exitCode: { type: "integer" },
        signal: { type: "integer" },
        reason: text,
        message: text,
        startedAt: time,
        finishedAt: time,
      },
    },
  },
};

const pod: Schema = {
  type: "object",
  required: ["metadata", "spec", "status"],
  properties: {
    apiVersion: text,
    kind: text,
    metadata,
    spec: podSpec,
    status: {
      type: "object",
      properties: {
        phase: { type: "string", enum: ["Pending", "Running", "Succeeded", "Failed", "Unknown"] },
        reason: text,
        message: text,
        startTime: time,
        conditions,
        containerStatuses: {
          type: "array",
          items: { type: "object", required: ["name"], properties: { name: text, state: containerState } },
        },
      },
    },
  },
};

const list = (items: Schema): Schema => ({
  type: "object",
  required: ["items", "metadata"],
  properties: {
    apiVersion: text,
    kind: text,
    metadata: {
      type: "object",
      properties: { continue: text, resourceVersion: text, remainingItemCount: count },
    },
    items: { type: "array", items },
  },
});

const status: Schema = {
  type: "object",
  properties: {
    apiVersion: text,
    kind: { type: "string", const: "Status" },
    metadata: open,
    status: text,
    message: text,
    reason: text,
    code: { type: "integer" },
    details: open,
  },
};

const paging = {
  limit: { type: "string", pattern: "^\\d+$" },
  continue: text,
  labelSelector: text,
} satisfies Record<string, Schema>;
const jobs = "/apis/batch/v1/namespaces/{namespace}/jobs";

export const kubernetesDescription = {
  name: "Kubernetes",
  official: { file: "kubernetes-batch-v1-openapi.json", kind: "openapi" },
  errors: status,
  operations: {
    listJobs: { method: "GET", path: jobs, query: paging, responses: { 200: list(job) } },
    createJob: { method: "POST", path: jobs, body: job, responses: { 201: job } },
    getJob: { method: "GET", path: `${jobs}/{name}`, responses: { 200: job } },
    deleteJob: {
      method: "DELETE",
      path: `${jobs}/{name}`,
      body: {
        type: "object",
        required: ["propagationPolicy"],
        properties: {
          apiVersion: text,
          kind: { type: "string", const: "DeleteOptions" },
          propagationPolicy: { type: "string", enum: ["Background", "Foreground", "Orphan"] },
          preconditions: { type: "object", properties: { uid: text } },
        },
      },
      responses: { 200: status },
    },
    listPods: {
      method: "GET",
      path: "/api/v1/namespaces/{namespace}/pods",
      query: paging,
      responses: { 200: list(pod) },
      absent: "Pods are of core/v1, and the description at hand is that of batch/v1",
    },
  },
} as const satisfies Description;
