// The schemas of the API's JSON types, and their TypeScript types under the same names: the client's types, with
// timestamps as ISO strings and large numbers as strings.
import { z } from "zod";

/** Schemas with a name in the OpenAPI description. */
export const namedSchemas = z.registry<{ id: string }>();

function apiType<T extends z.ZodRawShape>(id: string, shape: T) {
  const schema = z.object(shape);
  namedSchemas.add(schema, { id });
  return schema;
}

export const timestamp = z.iso.datetime();
const nullableTimestamp = timestamp.nullable();
const bigNumber = z.string().regex(/^\d+$/);
const count = z.int().min(0);

/** Any JSON. One shared schema, so that the description has one name for it. */
export const Json = z.json();
namedSchemas.add(Json, { id: "Json" });
const json = Json.nullable();

export const jobStates = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
const waitReasons = ["time", "retry", "key", "limit", "children", "event", "machine"] as const;

const Failure = apiType("Failure", {
  name: z.string().optional(),
  message: z.string().optional(),
  code: z.string().optional(),
  stack: z.string().optional(),
  cause: z.unknown().optional(),
  sentence: z.string().optional(),
  step: z.string().optional(),
});

const ControlRequest = z
  .object({ at: z.string().optional(), by: z.string().optional(), reason: z.string().optional() })
  .loose();

const Progress = apiType("Progress", {
  at: z.string().optional(),
  fraction: z.number().optional(),
  done: z.number().optional(),
  total: z.number().optional(),
  sentence: z.string().optional(),
});

export const Job = apiType("Job", {
  id: z.uuid(),
  pipeline: z.string(),
  pool: z.string(),
  state: z.enum(jobStates),
  waitingFor: z.enum(waitReasons).nullable(),
  awaitedEvent: z.string().nullable(),
  priority: z.int(),
  runAt: nullableTimestamp,
  createdAt: timestamp,
  startedAt: nullableTimestamp,
  endedAt: nullableTimestamp,
  expiresAt: nullableTimestamp,
  attempt: count,
  maxAttempts: count,
  crashes: count,
  epoch: bigNumber,
  worker: z.string().nullable(),
  key: z.string().nullable(),
  tenant: z.string().nullable(),
  idempotencyKey: z.string().nullable(),
  schedule: z.object({ name: z.string(), occurrence: z.string(), at: timestamp }).nullable(),
  input: json,
  output: json,
  failure: Failure.nullable(),
  cancel: ControlRequest.nullable(),
  pause: ControlRequest.nullable(),
  progress: Progress.nullable(),
  missing: z.array(z.string()),
  parent: z.object({ id: z.uuid(), spawn: z.string(), index: count }).nullable(),
  children: z.object({ total: count, completed: count, failed: count, cancelled: count }).nullable(),
  lastSeq: bigNumber,
  omitted: z.array(z.enum(["input", "output"])).optional(),
});

export const JobPage = apiType("JobPage", { jobs: z.array(Job), cursor: z.string().nullable() });

export const Enqueued = apiType("Enqueued", { id: z.uuid(), existing: z.boolean() });

export const Controlled = apiType("Controlled", { id: z.uuid(), state: z.enum(jobStates) });

/** `awaitedEvent`: the event that the job waited for when the signal arrived. */
export const Signalled = apiType("Signalled", {
  id: z.uuid(),
  state: z.enum(jobStates),
  awaitedEvent: z.string().nullable(),
});

export const Attempt = apiType("Attempt", {
  epoch: bigNumber,
  attempt: count,
  worker: z.string().nullable(),
  claimedAt: timestamp,
  endedAt: nullableTimestamp,
  outcome: z.enum(["completed", "failed", "cancelled", "slept", "paused", "released", "lost"]).nullable(),
  failure: Failure.nullable(),
});

export const Step = apiType("Step", {
  name: z.string(),
  epoch: bigNumber,
  startedAt: nullableTimestamp,
  savedAt: timestamp,
  tookMs: z.int().nullable(),
  output: json.optional(),
  omitted: z.literal(true).optional(),
});

export const LogLine = apiType("LogLine", {
  seq: bigNumber,
  at: timestamp,
  epoch: bigNumber,
  level: z.enum(["info", "success", "warning", "error"]),
  step: z.string().nullable(),
  message: z.string(),
  data: json,
});

export const Artifact = apiType("Artifact", {
  name: z.string(),
  size: count,
  sha256: z.string(),
  contentType: z.string(),
  savedAt: timestamp,
});

export const Pipeline = apiType("Pipeline", {
  name: z.string(),
  pool: z.string(),
  priority: z.int(),
  maxAttempts: count,
  crashLimit: count,
  keyLimit: count,
  onConflict: z.enum(["join", "wait", "replace", "reject"]),
  concurrency: count.nullable(),
  limits: z.array(z.string()),
  breakers: z.array(z.string()),
  sealed: z.array(z.string()),
  inputSchema: json,
  updatedAt: timestamp,
});

const PoolMachines = apiType("PoolMachines", {
  provider: z.string(),
  size: z.string().nullable(),
  region: z.string().nullable(),
  slots: count,
  warm: count,
  max: count,
  burst: count,
  idleExitMs: z.number(),
  price: z.number().nullable(),
  idlePrice: z.number().nullable(),
  prices: z.string().nullable(),
  currency: z.string().nullable(),
  largerPool: z.string().nullable(),
  now: count,
  starting: count,
});

const PoolProviderError = apiType("PoolProviderError", {
  code: z.string(),
  message: z.string(),
  remedy: z.string().nullable(),
  since: nullableTimestamp,
  until: nullableTimestamp,
});

export const Pool = apiType("Pool", {
  name: z.string(),
  paused: z.object({ at: timestamp, by: z.string().nullable(), reason: z.string().nullable() }).nullable(),
  concurrency: count.nullable(),
  claimable: count,
  running: count,
  oldest: nullableTimestamp,
  nextDue: nullableTimestamp,
  machines: PoolMachines.nullable(),
  wanted: count.nullable(),
  providerError: PoolProviderError.nullable(),
  wastedStarts: count,
});

const MachineLife = apiType("MachineLife", {
  life: z.uuid(),
  ordinal: count,
  burst: z.boolean(),
  provider: z.string(),
  providerId: z.string().nullable(),
  region: z.string().nullable(),
  size: z.string().nullable(),
  slots: count,
  jobs: count,
  why: z.string().nullable(),
  requestedBy: z.string().nullable(),
  requestedAt: timestamp,
  startedAt: nullableTimestamp,
  registeredAt: nullableTimestamp,
  idleSince: nullableTimestamp,
  price: z.number(),
  prices: z.string().nullable(),
});

export const Machine = apiType("Machine", {
  worker: z.string(),
  pool: z.string(),
  running: count,
  since: nullableTimestamp,
  leaseUntil: nullableTimestamp,
  listening: z.boolean(),
  state: z.enum(["starting", "up", "idle", "leaving", "retiring", "lost", "ended"]),
  machine: MachineLife.nullable(),
  end: z.object({ at: timestamp, how: z.string(), normal: z.boolean() }).nullable(),
});

export const Limit = apiType("Limit", {
  name: z.string(),
  max: z.number().nullable(),
  perMs: z.number().nullable(),
  concurrency: z.number().nullable(),
  free: z.number(),
  until: nullableTimestamp,
  reason: z.string().nullable(),
  reported: z.object({ max: z.number().nullable(), remaining: z.number(), resetAt: timestamp }).nullable(),
  blockedUntil: nullableTimestamp,
});

export const Breaker = apiType("Breaker", {
  name: z.string(),
  state: z.enum(["closed", "open"]),
  failures: count,
  threshold: count,
  openedAt: nullableTimestamp,
  resumeAt: nullableTimestamp,
  probes: count,
  reason: z.string().nullable(),
  openedBy: z.string().nullable(),
});

export const Occurrence = apiType("Occurrence", { occurrence: z.string(), at: timestamp });

export const Schedule = apiType("Schedule", {
  name: z.string(),
  cron: z.string(),
  zone: z.string(),
  pipeline: z.string(),
  input: json,
  overlap: z.string(),
  catchUp: z.string(),
  next: Occurrence.nullable(),
  lateMs: z.number(),
  last: z.object({ occurrence: z.string(), at: timestamp, job: z.uuid() }).nullable(),
  lastError: z.string().nullable(),
  fired: count,
  skipped: count,
  missed: count,
  paused: z.object({ at: timestamp, by: z.string().nullable() }).nullable(),
});

export const Endpoint = apiType("Endpoint", {
  name: z.string(),
  url: z.string().nullable(),
  origins: z.array(z.string()),
  headers: z.array(z.string()),
  body: json,
  on: z.array(z.enum(["completed", "failed", "cancelled"])),
  pipelines: z.array(z.string()),
  tenant: z.string().nullable(),
  secrets: count,
  disabledAt: nullableTimestamp,
  disabledReason: z.string().nullable(),
  failures: count,
  createdAt: timestamp,
});

const Delivery = apiType("Delivery", {
  n: z.union([z.string(), z.number()]),
  sender: z.string(),
  startedAt: timestamp,
  tookMs: z.number(),
  status: z.int().nullable(),
  error: z.string().nullable(),
  response: z.string().nullable(),
});

export const Webhook = apiType("Webhook", {
  id: z.string(),
  endpoint: z.string(),
  url: z.string(),
  jobId: z.uuid(),
  event: z.string(),
  state: z.enum(["pending", "delivered", "failed"]),
  attempts: count,
  body: z.string(),
  createdAt: timestamp,
  nextAt: nullableTimestamp,
  endedAt: nullableTimestamp,
  deliveries: z.array(Delivery),
});

const outcomeCounts = { completed: count, failed: count, cancelled: count };

export const Stats = apiType("Stats", {
  live: z.object({ queued: count, running: count, paused: count }),
  more: z.boolean(),
  waiting: z.record(z.string(), count),
  oldest: nullableTimestamp,
  oldestReady: nullableTimestamp,
  spanMs: z.number(),
  ended: z.object(outcomeCounts),
  parts: z.array(z.object({ at: timestamp, ...outcomeCounts })),
  pipelines: z.array(
    z.object({
      name: z.string(),
      ...outcomeCounts,
      totalSeconds: z.number(),
      meanSeconds: z.number().nullable(),
      longestSeconds: z.number().nullable(),
    }),
  ),
});

const costSum = { machines: count, jobs: count, busySeconds: z.number(), idleSeconds: z.number(), amount: z.number() };

export const CostReport = apiType("CostReport", {
  since: timestamp,
  until: timestamp,
  by: z.enum(["pool", "pipeline", "tenant", "day"]),
  total: z.object(costSum),
  rows: z.array(z.object({ name: z.string().nullable(), ...costSum })),
  idlePools: z.array(
    z.object({ pool: z.string(), machines: count, diskGb: z.number().nullable(), perMonth: z.number() }),
  ),
});

export const JobCost = apiType("JobCost", {
  amount: z.number(),
  provisional: z.boolean(),
  parts: z.array(
    z.object({
      machine: z.string(),
      pool: z.string(),
      provider: z.string(),
      size: z.string().nullable(),
      region: z.string().nullable(),
      epoch: bigNumber,
      claimedAt: timestamp,
      workedSeconds: z.number(),
      busySeconds: z.number(),
      idleSeconds: z.number(),
      pricePerSecond: z.number(),
      amount: z.number(),
      prices: z.string().nullable(),
      provisional: z.boolean(),
    }),
  ),
});

export const Budget = apiType("Budget", {
  scope: z.enum(["pool", "tenant"]),
  name: z.string(),
  amount: z.number(),
  period: z.enum(["day", "month"]),
  spent: z.number(),
  resetsAt: timestamp,
  held: z.boolean(),
  updatedAt: timestamp,
  updatedBy: z.string().nullable(),
});

export const Token = apiType("Token", {
  id: z.uuid(),
  name: z.string(),
  prefix: z.string(),
  role: z.enum(["reader", "operator", "admin", "worker"]),
  tenant: z.string().nullable(),
  createdAt: timestamp,
  createdBy: z.string().nullable(),
  expiresAt: nullableTimestamp,
  lastUsedAt: nullableTimestamp,
  revokedAt: nullableTimestamp,
  revokedBy: z.string().nullable(),
  pipelines: z.array(z.string()).nullable(),
  pools: z.array(z.string()).nullable(),
  maxPriority: z.int().nullable(),
});

export const AuditEntry = apiType("AuditEntry", {
  id: z.uuid(),
  at: timestamp,
  actor: z.string(),
  token: z.uuid().nullable(),
  tenant: z.string().nullable(),
  act: z.string(),
  target: z.string().nullable(),
  before: json,
  after: json,
  address: z.string().nullable(),
});

export const Problem = apiType("Problem", {
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string(),
  detail: z.string(),
  field: z.string().optional(),
  remedy: z.string().optional(),
  issues: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
});

export type AuditEntry = z.infer<typeof AuditEntry>;
export type Artifact = z.infer<typeof Artifact>;
export type Attempt = z.infer<typeof Attempt>;
export type Breaker = z.infer<typeof Breaker>;
export type Budget = z.infer<typeof Budget>;
export type CostReport = z.infer<typeof CostReport>;
export type Endpoint = z.infer<typeof Endpoint>;
export type Job = z.infer<typeof Job>;
export type JobCost = z.infer<typeof JobCost>;
export type JobPage = z.infer<typeof JobPage>;
export type Limit = z.infer<typeof Limit>;
export type LogLine = z.infer<typeof LogLine>;
export type Machine = z.infer<typeof Machine>;
export type Pipeline = z.infer<typeof Pipeline>;
export type Pool = z.infer<typeof Pool>;
export type Problem = z.infer<typeof Problem>;
export type Schedule = z.infer<typeof Schedule>;
export type Occurrence = z.infer<typeof Occurrence>;
export type Stats = z.infer<typeof Stats>;
export type Step = z.infer<typeof Step>;
export type Token = z.infer<typeof Token>;
export type Webhook = z.infer<typeof Webhook>;
