// Condensed schema of the operations of Fly's Machines API that we use: the fields we send and read.
import type { Description, Schema } from "./check.ts";

const text: Schema = { type: "string" };
const texts: Schema = { type: "object", additionalProperties: text };

const config: Schema = {
  type: "object",
  required: ["image"],
  properties: {
    image: { type: "string", pattern: "^\\S+$" },
    env: { type: "object", additionalProperties: text },
    guest: {
      type: "object",
      required: ["cpu_kind", "cpus", "memory_mb"],
      properties: {
        cpu_kind: { type: "string", enum: ["shared", "performance"] },
        cpus: { type: "integer", minimum: 1, maximum: 16 },
        memory_mb: { type: "integer", minimum: 256 },
      },
    },
    auto_destroy: { type: "boolean" },
    restart: {
      type: "object",
      required: ["policy"],
      properties: {
        policy: { type: "string", enum: ["no", "always", "on-failure"] },
        max_retries: { type: "integer" },
      },
    },
    stop_config: {
      type: "object",
      properties: {
        signal: { type: "string", enum: ["SIGINT", "SIGTERM"] },
        timeout: { type: "string", pattern: "^([1-9]\\d?|[12]\\d\\d|300)s$" },
      },
    },
    init: {
      type: "object",
      properties: { cmd: { type: "array", items: text }, entrypoint: { type: "array", items: text } },
    },
    metadata: texts,
  },
};

/** The official schema does not describe "request"; these are the fields that the official client reads. */
const event: Schema = {
  type: "object",
  required: ["id", "type", "status", "timestamp"],
  properties: {
    id: text,
    type: text,
    status: text,
    source: text,
    timestamp: { type: "integer" },
    request: {
      type: "object",
      properties: {
        exit_event: {
          type: "object",
          properties: {
            exit_code: { type: "integer" },
            guest_exit_code: { type: "integer" },
            guest_signal: { type: "integer" },
            signal: { type: "integer" },
            oom_killed: { type: "boolean" },
            requested_stop: { type: "boolean" },
            restarting: { type: "boolean" },
            exited_at: text,
          },
        },
        restart_count: { type: "integer" },
      },
    },
  },
};

const machine: Schema = {
  type: "object",
  required: ["id", "name", "state", "region", "created_at", "updated_at"],
  properties: {
    id: text,
    name: text,
    state: {
      type: "string",
      enum: (
        "created started stopped suspended failed creating starting stopping restarting suspending destroying " +
        "launch_failed updating replacing destroyed replaced migrated"
      ).split(" "),
    },
    region: text,
    instance_id: text,
    created_at: text,
    updated_at: text,
    host_status: { type: "string", enum: ["ok", "unknown", "unreachable"] },
    config,
    incomplete_config: config,
    events: { type: "array", items: event },
  },
};

const token: Schema = {
  type: "object",
  properties: {
    apps: { type: "array", items: text },
    org_slug: text,
    organization: text,
    restricted_to_machine: text,
    token_id: text,
    user: text,
  },
};

export const flyDescription = {
  name: "Fly Machines",
  official: { file: "fly-machines-openapi.json", kind: "openapi" },
  errors: {
    type: "object",
    required: ["error"],
    properties: { error: text, status: { type: "string", enum: ["unknown", "insufficient_capacity", "name_taken"] } },
  },
  operations: {
    list: {
      method: "GET",
      path: "/apps/{app}/machines",
      query: { "metadata.*": text },
      // Documented in the reference, but not in the schema.
      undocumented: ["metadata.*"],
      responses: { 200: { type: "array", items: machine } },
    },
    create: {
      method: "POST",
      path: "/apps/{app}/machines",
      body: {
        type: "object",
        required: ["name", "config"],
        properties: { name: { type: "string", pattern: "^[a-z0-9-]{1,63}$" }, region: text, config },
      },
      responses: { 200: machine },
    },
    get: { method: "GET", path: "/apps/{app}/machines/{id}", responses: { 200: machine } },
    start: { method: "POST", path: "/apps/{app}/machines/{id}/start", responses: { 200: {} } },
    remove: {
      method: "DELETE",
      path: "/apps/{app}/machines/{id}",
      query: { force: { type: "string", enum: ["true", "false"] } },
      responses: { 200: {} },
    },
    token: {
      method: "GET",
      path: "/tokens/current",
      responses: { 200: { type: "object", properties: { tokens: { type: "array", items: token } } } },
    },
  },
} satisfies Description;
