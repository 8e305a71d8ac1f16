// Condensed schema of the operations of Cloud Run's API (v2) that we use: the fields we send and read.
import type { Description, Schema } from "./check.ts";

const text: Schema = { type: "string" };
const texts: Schema = { type: "object", additionalProperties: text };
const count: Schema = { type: "integer", minimum: 0 };
const label: Schema = { type: "object", additionalProperties: { type: "string", pattern: "^[a-z0-9_-]{0,63}$" } };
const time: Schema = { type: "string", pattern: "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?Z$" };
const seconds: Schema = { type: "string", pattern: "^\\d+s$" };

const env: Schema = {
  type: "array",
  items: {
    type: "object",
    required: ["name"],
    properties: {
      name: { type: "string", pattern: "^[A-Za-z_][A-Za-z0-9_]*$" },
      value: { type: "string", maxLength: 32_768 },
      valueSource: {
        type: "object",
        required: ["secretKeyRef"],
        properties: {
          secretKeyRef: {
            type: "object",
            required: ["secret", "version"],
            properties: { secret: text, version: text },
          },
        },
      },
    },
  },
};

const container: Schema = {
  type: "object",
  required: ["image"],
  properties: {
    image: { type: "string", pattern: "^\\S+$" },
    args: { type: "array", items: text },
    env,
    resources: {
      type: "object",
      required: ["limits"],
      properties: {
        limits: {
          type: "object",
          required: ["cpu", "memory"],
          properties: {
            cpu: { type: "string", enum: ["1", "2", "4", "6", "8"] },
            memory: { type: "string", pattern: "^\\d+(Mi|Gi)$" },
          },
        },
      },
    },
  },
};

const taskTemplate: Schema = {
  type: "object",
  required: ["containers"],
  properties: {
    containers: { type: "array", items: container },
    maxRetries: { type: "integer", minimum: 0, maximum: 10 },
    timeout: seconds,
    serviceAccount: text,
    vpcAccess: { type: "object" },
  },
};

const jobBody = {
  labels: label,
  template: {
    type: "object",
    required: ["template", "taskCount"],
    properties: { labels: label, taskCount: { type: "integer", const: 1 }, template: taskTemplate },
  },
} satisfies Record<string, Schema>;

const job: Schema = {
  type: "object",
  required: ["name", "template"],
  properties: { name: text, uid: text, createTime: time, updateTime: time, etag: text, ...jobBody },
};

const condition: Schema = {
  type: "object",
  required: ["type", "state"],
  properties: {
    type: { type: "string", enum: ["Completed", "Started", "ResourcesAvailable", "ContainerReady", "Retry"] },
    state: {
      type: "string",
      enum: ["CONDITION_PENDING", "CONDITION_RECONCILING", "CONDITION_FAILED", "CONDITION_SUCCEEDED"],
    },
    message: text,
    lastTransitionTime: time,
    executionReason: { type: "string", enum: ["NON_ZERO_EXIT_CODE", "CANCELLED", "CANCELLING", "DELETED"] },
  },
};

const execution: Schema = {
  type: "object",
  required: ["name", "createTime", "template"],
  properties: {
    name: { type: "string", pattern: "^projects/[^/]+/locations/[^/]+/jobs/[^/]+/executions/[^/]+$" },
    uid: text,
    job: text,
    labels: texts,
    createTime: time,
    startTime: time,
    completionTime: time,
    deleteTime: time,
    taskCount: count,
    runningCount: count,
    succeededCount: count,
    failedCount: count,
    cancelledCount: count,
    conditions: { type: "array", items: condition },
    template: taskTemplate,
    logUri: text,
  },
};

const operation: Schema = {
  type: "object",
  required: ["name"],
  properties: {
    name: { type: "string", pattern: "^projects/[^/]+/locations/[^/]+/operations/[^/]+$" },
    done: { type: "boolean" },
    error: { type: "object", properties: { code: { type: "integer" }, message: text } },
    metadata: { type: "object", additionalProperties: true },
    response: { type: "object", additionalProperties: true },
  },
};

const task: Schema = {
  type: "object",
  required: ["name"],
  properties: {
    name: text,
    index: count,
    lastAttemptResult: {
      type: "object",
      properties: {
        exitCode: { type: "integer" },
        termSignal: { type: "integer" },
        status: { type: "object", properties: { code: { type: "integer" }, message: text } },
      },
    },
  },
};

const paging = { pageSize: { type: "string", pattern: "^\\d+$" }, pageToken: text } satisfies Record<string, Schema>;
const page = (of: string, items: Schema): Schema => ({
  type: "object",
  properties: { [of]: { type: "array", items }, nextPageToken: text },
});

const at = "/v2/projects/{project}/locations/{location}";

export const cloudRunDescription = {
  name: "Cloud Run",
  official: { file: "cloud-run-v2-discovery.json", kind: "discovery" },
  errors: {
    type: "object",
    required: ["error"],
    properties: {
      error: {
        type: "object",
        required: ["code", "message", "status"],
        properties: { code: { type: "integer" }, message: text, status: text },
      },
    },
  },
  operations: {
    listJobs: { method: "GET", path: `${at}/jobs`, query: paging, responses: { 200: page("jobs", job) } },
    getJob: { method: "GET", path: `${at}/jobs/{job}`, responses: { 200: job } },
    patchJob: {
      method: "PATCH",
      path: `${at}/jobs/{job}`,
      query: { allowMissing: { type: "string", enum: ["true"] } },
      body: { type: "object", required: ["labels", "template"], properties: jobBody },
      responses: { 200: operation },
    },
    runJob: {
      method: "POST",
      path: `${at}/jobs/{job}:run`,
      body: {
        type: "object",
        required: ["overrides"],
        properties: {
          overrides: {
            type: "object",
            required: ["containerOverrides", "taskCount"],
            properties: {
              taskCount: { type: "integer", const: 1 },
              containerOverrides: {
                type: "array",
                items: { type: "object", required: ["env"], properties: { env } },
              },
            },
          },
        },
      },
      responses: { 200: operation },
    },
    listExecutions: {
      method: "GET",
      path: `${at}/jobs/{job}/executions`,
      query: paging,
      responses: { 200: page("executions", execution) },
    },
    getExecution: { method: "GET", path: `${at}/jobs/{job}/executions/{execution}`, responses: { 200: execution } },
    cancelExecution: {
      method: "POST",
      path: `${at}/jobs/{job}/executions/{execution}:cancel`,
      body: { type: "object", properties: {} },
      responses: { 200: operation },
    },
    listTasks: {
      method: "GET",
      path: `${at}/jobs/{job}/executions/{execution}/tasks`,
      query: paging,
      responses: { 200: page("tasks", task) },
    },
    getOperation: { method: "GET", path: `${at}/operations/{operation}`, responses: { 200: operation } },
  },
} as const satisfies Description;
