// The nouns of the API as they stand in JSON. The types of the library under the same names; moments as ISO text, large numbers as text.
import { z } from "zod";

/** The shapes that have a name in the description. */
export const named = z.registry<{ id: string }>();

export function noun<T extends z.ZodRawShape>(id: string, shape: T) {
  const made = z.object(shape);
  named.add(made, { id });
  return made;
}

export const moment = z.iso.datetime();
const maybe = moment.nullable();
const bigNumber = z.string().regex(/^\d+$/);
const count = z.int().min(0);

/** Any JSON. One shape for all, so that the description has one name for it. */
export const Json = z.json();
named.add(Json, { id: "Json" });
const json = Json.nullable();

export const jobStates = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
const waitReasons = ["time", "retry", "key", "limit", "children", "event", "machine"] as const;

const Failure = noun("Failure", {
  name: z.string().optional(),
  message: z.string().optional(),
  code: z.string().optional(),
  stack: z.string().optional(),
  cause: z.unknown().optional(),
  sentence: z.string().optional(),
  step: z.string().optional(),
});

const Told = z.object({ at: z.string().optional(), by: z.string().optional(), reason: z.string().optional() }).loose();

const Progress = noun("Progress", {
  at: z.string().optional(),
  fraction: z.number().optional(),
  done: z.number().optional(),
  total: z.number().optional(),
  sentence: z.string().optional(),
});

export const Job = noun("Job", {
  id: z.uuid(),
  pipeline: z.string(),
  pool: z.string(),
  state: z.enum(jobStates),
  waitingFor: z.enum(waitReasons).nullable(),
  priority: z.int(),
  runAt: maybe,
  createdAt: moment,
  startedAt: maybe,
  endedAt: maybe,
  expiresAt: maybe,
  attempt: count,
  maxAttempts: count,
  crashes: count,
  epoch: bigNumber,
  worker: z.string().nullable(),
  key: z.string().nullable(),
  tenant: z.string().nullable(),
  idempotencyKey: z.string().nullable(),
  schedule: z.object({ name: z.string(), slot: z.string(), at: moment }).nullable(),
  input: json,
  output: json,
  failure: Failure.nullable(),
  cancel: Told.nullable(),
  pause: Told.nullable(),
  progress: Progress.nullable(),
  missing: z.array(z.string()),
  parent: z.object({ id: z.uuid(), spawn: z.string(), index: count }).nullable(),
  children: z.object({ total: count, completed: count, failed: count, cancelled: count }).nullable(),
  lastSeq: bigNumber,
  omitted: z.array(z.enum(["input", "output"])).optional(),
});

export const JobPage = noun("JobPage", { jobs: z.array(Job), cursor: z.string().nullable() });

export const Enqueued = noun("Enqueued", { id: z.uuid(), existing: z.boolean() });

export const Controlled = noun("Controlled", { id: z.uuid(), state: z.enum(jobStates) });

export const Attempt = noun("Attempt", {
  epoch: bigNumber,
  attempt: count,
  worker: z.string().nullable(),
  claimedAt: moment,
  endedAt: maybe,
  outcome: z.enum(["completed", "failed", "cancelled", "slept", "paused", "released", "lost"]).nullable(),
  failure: Failure.nullable(),
});

export const Step = noun("Step", {
  name: z.string(),
  epoch: bigNumber,
  startedAt: maybe,
  savedAt: moment,
  tookMs: z.int().nullable(),
  output: json.optional(),
  omitted: z.literal(true).optional(),
});

export const LogLine = noun("LogLine", {
  seq: bigNumber,
  at: moment,
  level: z.enum(["info", "success", "warning", "error"]),
  step: z.string().nullable(),
  message: z.string(),
  data: json,
});

export const Artifact = noun("Artifact", {
  name: z.string(),
  size: count,
  sha256: z.string(),
  contentType: z.string(),
  savedAt: moment,
});

export const Pipeline = noun("Pipeline", {
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
  updatedAt: moment,
});

const PoolMachines = noun("PoolMachines", {
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
  larger: z.string().nullable(),
  now: count,
  starting: count,
});

const PoolTrouble = noun("PoolTrouble", {
  code: z.string(),
  message: z.string(),
  remedy: z.string().nullable(),
  since: maybe,
  until: maybe,
});

export const Pool = noun("Pool", {
  name: z.string(),
  paused: z.object({ at: moment, by: z.string().nullable(), reason: z.string().nullable() }).nullable(),
  concurrency: count.nullable(),
  claimable: count,
  running: count,
  oldest: maybe,
  nextDue: maybe,
  machines: PoolMachines.nullable(),
  wanted: count.nullable(),
  trouble: PoolTrouble.nullable(),
  wastedStarts: count,
});

const MachineLife = noun("MachineLife", {
  life: z.uuid(),
  slot: count,
  burst: z.boolean(),
  provider: z.string(),
  providerId: z.string().nullable(),
  region: z.string().nullable(),
  size: z.string().nullable(),
  slots: count,
  jobs: count,
  why: z.string().nullable(),
  askedBy: z.string().nullable(),
  askedAt: moment,
  startedAt: maybe,
  arrivedAt: maybe,
  idleSince: maybe,
  price: z.number(),
  prices: z.string().nullable(),
});

export const Machine = noun("Machine", {
  worker: z.string(),
  pool: z.string(),
  running: count,
  since: maybe,
  leaseUntil: maybe,
  listening: z.boolean(),
  state: z.enum(["starting", "up", "idle", "leaving", "retiring", "ended"]),
  machine: MachineLife.nullable(),
  end: z.object({ at: moment, how: z.string(), well: z.boolean() }).nullable(),
});

export const Limit = noun("Limit", {
  name: z.string(),
  max: z.number().nullable(),
  perMs: z.number().nullable(),
  concurrency: z.number().nullable(),
  free: z.number(),
  until: maybe,
  reason: z.string().nullable(),
  reported: z.object({ max: z.number().nullable(), remaining: z.number(), resetAt: moment }).nullable(),
  blockedUntil: maybe,
});

export const Breaker = noun("Breaker", {
  name: z.string(),
  state: z.enum(["closed", "open"]),
  failures: count,
  threshold: count,
  openedAt: maybe,
  resumeAt: maybe,
  probes: count,
  reason: z.string().nullable(),
  openedBy: z.string().nullable(),
});

export const Slot = noun("Slot", { slot: z.string(), at: moment });

export const Schedule = noun("Schedule", {
  name: z.string(),
  cron: z.string(),
  zone: z.string(),
  pipeline: z.string(),
  input: json,
  overlap: z.string(),
  catchUp: z.string(),
  next: Slot.nullable(),
  lateMs: z.number(),
  last: z.object({ slot: z.string(), at: moment, job: z.uuid() }).nullable(),
  lastError: z.string().nullable(),
  fired: count,
  skipped: count,
  missed: count,
  paused: z.object({ at: moment, by: z.string().nullable() }).nullable(),
});

export const Endpoint = noun("Endpoint", {
  name: z.string(),
  url: z.string().nullable(),
  headers: z.array(z.string()),
  body: json,
  on: z.array(z.enum(["completed", "failed", "cancelled"])),
  pipelines: z.array(z.string()),
  secrets: count,
  disabledAt: maybe,
  disabledReason: z.string().nullable(),
  failures: count,
  createdAt: moment,
});

const Delivery = noun("Delivery", {
  n: z.union([z.string(), z.number()]),
  sender: z.string(),
  startedAt: moment,
  tookMs: z.number(),
  status: z.int().nullable(),
  error: z.string().nullable(),
  response: z.string().nullable(),
});

export const Webhook = noun("Webhook", {
  id: z.string(),
  endpoint: z.string(),
  url: z.string(),
  jobId: z.uuid(),
  event: z.string(),
  state: z.enum(["pending", "delivered", "failed"]),
  attempts: count,
  body: z.string(),
  createdAt: moment,
  nextAt: maybe,
  endedAt: maybe,
  deliveries: z.array(Delivery),
});

const ends = { completed: count, failed: count, cancelled: count };

export const Stats = noun("Stats", {
  live: z.object({ queued: count, running: count, paused: count }),
  more: z.boolean(),
  waiting: z.record(z.string(), count),
  oldest: maybe,
  oldestReady: maybe,
  spanMs: z.number(),
  ended: z.object(ends),
  parts: z.array(z.object({ at: moment, ...ends })),
  pipelines: z.array(
    z.object({
      name: z.string(),
      ...ends,
      totalSeconds: z.number(),
      meanSeconds: z.number().nullable(),
      longestSeconds: z.number().nullable(),
    }),
  ),
});

export const Token = noun("Token", {
  id: z.uuid(),
  name: z.string(),
  prefix: z.string(),
  role: z.enum(["reader", "operator", "admin", "worker"]),
  tenant: z.string().nullable(),
  createdAt: moment,
  createdBy: z.string().nullable(),
  expiresAt: maybe,
  lastUsedAt: maybe,
  revokedAt: maybe,
  revokedBy: z.string().nullable(),
});

export const Act = noun("Act", {
  id: z.uuid(),
  at: moment,
  actor: z.string(),
  token: z.uuid().nullable(),
  tenant: z.string().nullable(),
  act: z.string(),
  target: z.string().nullable(),
  before: json,
  after: json,
  address: z.string().nullable(),
});

export const Problem = noun("Problem", {
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string(),
  detail: z.string(),
  field: z.string().optional(),
  remedy: z.string().optional(),
  issues: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
});
