// The state of the model: plain values, no database. calls.ts, control.ts and transitions.ts change it.

export interface Pipeline {
  pool: string;
  priority: number;
  maxAttempts: number;
  crashLimit: number;
  backoffFirst: number;
  backoffMost: number;
  keyLimit: number;
  onConflict: OnConflict;
}

/** What happens to a job whose key is taken. */
export type OnConflict = "join" | "wait" | "replace" | "reject";

/** What a claim returned to a worker. Actors of the model keep all of them. */
export interface Handle {
  job: string;
  epoch: number;
  lease: string;
}

interface Pause {
  reason: string | null;
  resumeAt: number | null;
  waitingFor: string | null;
}

export interface Job {
  id: string;
  pipeline: string;
  pool: string;
  state: "queued" | "running" | "paused" | "completed" | "failed" | "cancelled";
  waitingFor: string | null;
  priority: number;
  runAt: number;
  /** Its position in the queue order while runAt is only a wake time: it is paused, or waits for its key. */
  orderAt: number | null;
  expiresAt: number | null;
  startedAt: number | null;
  claimedAt: number | null;
  endedAt: number | null;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  epoch: number;
  worker: string | null;
  lease: string | null;
  key: string | null;
  tenant: string | null;
  /** The slot of its key that it holds. */
  slot: number | null;
  idempotencyKey: string | null;
  failure: string | null;
  output: string | null;
  cancel: string | null;
  pause: Pause | null;
  progress: number | null;
  /** Kinds of the feed with the epoch that wrote them: "log@2", "slept@2". Its length is the job's seq. */
  feed: string[];
  /** By epoch. */
  attempts: Map<number, { attempt: number; worker: string; lease: string; outcome: string | null }>;
  /** By step, with the epoch that wrote it. */
  checkpoints: Map<string, { output: string; epoch: number }>;
}

export interface Lease {
  id: string;
  pool: string;
  worker: string;
  until: number;
  span: number;
  jobs: Set<string>;
}

export interface World {
  /** Milliseconds since the game began; the database's clock is stopped between moves. */
  now: number;
  jobs: Map<string, Job>;
  leases: Map<string, Lease>;
  /** "pipeline/tenant/idempotency key" to job id. */
  keys: Map<string, string>;
  pausedPools: Set<string>;
  /** Pools with lanes. All their jobs are in one lane, or in none: the order of claims does not change. */
  lanedPools: Set<string>;
  /** Enqueued in a transaction that is still open, by a statement that did not see whether its pool has lanes now. */
  open: { pipeline: string; id: string; at: number; laned: boolean } | null;
  /** When outages ended, as far as a recovery or a heartbeat has noticed. */
  outages: number[];
  /** The server was promoted, and no recovery has noticed it yet. */
  promoted: boolean;
  handles: Handle[];
  /** How many ids were passed to enqueue, used or not. */
  ids: number;
  /** How often a key slot was given to a waiting job. */
  admitted: number;
  /** Jobs whose back-off is partly random: the bounds of runAt, until it is read from the database. */
  drawn: Map<string, [min: number, max: number]>;
}

export const INFINITY = -1;

export const pipelines: Record<string, Pipeline> = {
  alpha: {
    pool: "default",
    priority: 0,
    maxAttempts: 3,
    crashLimit: 3,
    backoffFirst: 2000,
    backoffMost: 900_000,
    keyLimit: 1,
    onConflict: "join",
  },
  beta: {
    pool: "default",
    priority: 5,
    maxAttempts: 5,
    crashLimit: 2,
    backoffFirst: 1000,
    backoffMost: 3000,
    keyLimit: 2,
    onConflict: "wait",
  },
  gamma: {
    pool: "gpu",
    priority: 0,
    maxAttempts: 4,
    crashLimit: 3,
    backoffFirst: 0,
    backoffMost: 0,
    keyLimit: 3,
    onConflict: "reject",
  },
};

/** `laned`: whether all pools have lanes from the start. */
export function newWorld(laned = false): World {
  return {
    now: 0,
    jobs: new Map(),
    leases: new Map(),
    keys: new Map(),
    pausedPools: new Set(),
    lanedPools: new Set(laned ? Object.values(pipelines).map(({ pool }) => pool) : []),
    open: null,
    outages: [],
    promoted: false,
    handles: [],
    ids: 0,
    admitted: 0,
    drawn: new Map(),
  };
}

export function isLive(job: Job): boolean {
  return job.state === "queued" || job.state === "running" || job.state === "paused";
}

/** The fence: all three must match the job at this time. The expiry of the lease does not matter. */
export function holds(world: World, handle: Handle): Job | undefined {
  const job = world.jobs.get(handle.job);
  return job && isLive(job) && job.lease === handle.lease && job.epoch === handle.epoch ? job : undefined;
}

/** In the order of `order by text`, which for ids is the order of uuid. */
function byId(a: { id: string }, b: { id: string }): number {
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}

/** The world as engine.ts reads it from the database. */
export function describeWorld(world: World) {
  const jobs = [...world.jobs.values()].sort(byId).map(({ feed, attempts, checkpoints, ...job }) => ({
    ...job,
    seq: feed.length,
    feed,
    attempts: [...attempts]
      .sort(([a], [b]) => a - b)
      .map(([epoch, { attempt, worker, outcome }]) => `${epoch}:${attempt}:${worker}:${outcome ?? "running"}`),
    checkpoints: [...checkpoints]
      .map(([step, { output, epoch }]) => `${step}=${output}@${epoch}`)
      .sort((a, b) => (a < b ? -1 : 1)),
  }));
  const leases = [...world.leases.values()].sort(byId).map((lease) => ({ ...lease, jobs: [...lease.jobs].sort() }));
  const keys = [...world.keys].map(([key, job]) => `${key}=${job}`).sort((a, b) => (a < b ? -1 : 1));
  return { jobs, leases, keys, pausedPools: [...world.pausedPools].sort() };
}
