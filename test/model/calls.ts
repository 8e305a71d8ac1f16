// The calls of clients and workers in the model: their effect on the world and their results, written from the
// documentation and not from the SQL. A refusal is the SQLSTATE, as in engine.ts.
import { end, type Outcome, settleHeld } from "./transitions.ts";
import { type Handle, holds, INFINITY, isLive, type Job, type Lease, type World } from "./world.ts";

export interface ClaimOptions {
  worker: string;
  pool: string;
  pipelines: string[];
  limit: number;
  lease: number;
  /** The worker was not connected for a while: it cannot tell dead workers from those that could not send heartbeats. */
  cutOff?: boolean;
}

/** Returned in queue order: priority, waiting time, id. `chosen`: the jobs that the database claimed. */
export function claim(world: World, options: ClaimOptions, leaseId: string, chosen: string[]): Job[] {
  // It recovers in bounded number, but more than a game has jobs.
  recover(world, Number.POSITIVE_INFINITY, options.pool, options.cutOff);
  expire(world, Number.POSITIVE_INFINITY, options.pool);
  if (world.pausedPools.has(options.pool)) return [];
  returnDue(world, options.pool);
  const due = [...world.jobs.values()]
    .filter((job) => isLive(job) && job.lease === null && job.pool === options.pool && isDue(world, job))
    .filter((job) => options.pipelines.includes(job.pipeline))
    .sort((a, b) => b.priority - a.priority || a.runAt - b.runAt || (a.id < b.id ? -1 : 1));
  const taken = inTurns(due, options.limit, chosen);
  if (taken.length === 0) return [];
  const jobs = new Set(taken.map((job) => job.id));
  world.leases.set(leaseId, {
    id: leaseId,
    pool: options.pool,
    worker: options.worker,
    until: world.now + options.lease,
    span: options.lease,
    jobs,
  });
  for (const job of taken) {
    job.state = "running";
    job.lease = leaseId;
    job.epoch += 1;
    job.attempt += 1;
    job.worker = options.worker;
    job.claimedAt = world.now;
    job.startedAt ??= world.now;
    job.waitingFor = null;
    job.orderAt = null;
    job.pause = null;
    job.attempts.set(job.epoch, { attempt: job.attempt, worker: options.worker, lease: leaseId, outcome: null });
    world.handles.push({ job: job.id, epoch: job.epoch, lease: leaseId });
  }
  return taken;
}

/** A job that waited until a time which has come is back at its position. */
function returnDue(world: World, pool: string): void {
  for (const job of world.jobs.values()) {
    if (!isLive(job) || job.pool !== pool || job.orderAt === null) continue;
    if (job.runAt === INFINITY || job.runAt > world.now) continue;
    job.runAt = Math.min(job.runAt, job.orderAt);
    job.orderAt = null;
  }
}

/**
 * With several tenants, which of them is next is not specified here: any choice is right that has the highest priorities
 * and, of each tenant, the first jobs in order.
 */
function inTurns(due: Job[], limit: number, chosen: string[]): Job[] {
  const expected = due.slice(0, limit);
  if (new Set(due.map(({ tenant }) => tenant)).size < 2) return expected;
  const taken = chosen.flatMap((id) => due.find((job) => job.id === id) ?? []);
  const isFirst = (job: Job) =>
    due.filter(({ tenant }) => tenant === job.tenant).indexOf(job) <
    taken.filter(({ tenant }) => tenant === job.tenant).length;
  const priorities = (jobs: Job[]) =>
    jobs
      .map(({ priority }) => priority)
      .sort((a, b) => b - a)
      .join();
  const right = new Set(taken).size === expected.length && priorities(taken) === priorities(expected);
  return right && taken.every(isFirst) ? taken : expected;
}

function isDue(world: World, job: Job): boolean {
  if (job.runAt === INFINITY || job.runAt > world.now) return false;
  return job.expiresAt === null || job.startedAt !== null || job.expiresAt > world.now;
}

/** An expired lease is recovered only when a call checks for it; until then its worker can continue. */
export function expiredLeases(world: World, pool: string | null): Lease[] {
  return [...world.leases.values()]
    .filter((lease) => lease.until < world.now && !mayLive(world, lease) && (pool === null || lease.pool === pool))
    .sort((a, b) => a.until - b.until);
}

/** After an outage its worker has the length of the lease to send a heartbeat. Later outages do not prolong that. */
function mayLive(world: World, { until, span }: Lease): boolean {
  const first = Math.min(...world.outages.filter((endedAt) => endedAt > until - span));
  return world.now <= first + span && Number.isFinite(first);
}

/** `silence`: an expired lease counts as an outage, once after each of its heartbeats. */
function noteOutage(world: World, silence: boolean): void {
  if (world.promoted) world.outages.push(world.now);
  world.promoted = false;
  if (!silence) return;
  const expired = [...world.leases.values()].filter(({ until }) => until < world.now);
  const isCovered = ({ until, span }: Lease) => world.outages.some((endedAt) => endedAt > until - span);
  if (!expired.every(isCovered)) world.outages.push(world.now);
}

/** `locked`: a lease that an open transaction of the application keeps from being recovered. */
export function recover(
  world: World,
  limit: number,
  pool: string | null,
  cutOff = false,
  locked: string | null = null,
): number {
  let count = 0;
  if ([...world.leases.values()].some(({ until }) => until < world.now)) noteOutage(world, cutOff);
  const expired = expiredLeases(world, pool).filter(({ id }) => id !== locked);
  for (const lease of expired.slice(0, limit)) {
    for (const id of [...lease.jobs]) {
      settleHeld(world, world.jobs.get(id)!, { outcome: "lost", failure: "LEASE_EXPIRED" });
      count += 1;
    }
  }
  return count;
}

function expirable(world: World, pool: string | null): Job[] {
  return [...world.jobs.values()]
    .filter((job) => isLive(job) && job.startedAt === null && job.expiresAt !== null && job.expiresAt <= world.now)
    .filter((job) => pool === null || job.pool === pool)
    .sort((a, b) => a.expiresAt! - b.expiresAt!);
}

/** The effects of the watchdog on jobs. It should never find a free key slot with a waiting job. */
export function watchdog(world: World): { recovered: number; expired: number } {
  const recovered = recover(world, Number.POSITIVE_INFINITY, null, true);
  return { recovered, expired: expire(world, Number.POSITIVE_INFINITY, null) };
}

export function expire(world: World, limit: number, pool: string | null): number {
  const jobs = expirable(world, pool).slice(0, limit);
  for (const job of jobs) end(world, job, "failed", "EXPIRED");
  return jobs.length;
}

/** The next time at which something happens without any call: a job becomes claimable or expires, a lease expires. */
export function nextDue(world: World, pool: string | null): number | null {
  const mine = (thing: { pool: string }) => pool === null || thing.pool === pool;
  const waiting = [...world.jobs.values()].filter((job) => isLive(job) && job.lease === null && mine(job));
  const moments = [
    ...waiting.filter((job) => job.runAt !== INFINITY && !world.pausedPools.has(job.pool)).map((job) => job.runAt),
    ...waiting.flatMap((job) => (job.startedAt === null ? (job.expiresAt ?? []) : [])),
    ...[...world.leases.values()].filter(mine).map((lease) => lease.until),
  ];
  return moments.length === 0 ? null : Math.min(...moments);
}

export interface Verdict {
  job: string;
  verdict: "lost" | "cancel" | "pause";
  reason: string | null;
}

export function heartbeat(world: World, handles: Handle[]): Verdict[] {
  const named = handles.flatMap(({ lease }) => world.leases.get(lease) ?? []);
  noteOutage(
    world,
    named.some(({ until }) => until < world.now),
  );
  for (const { lease: id } of handles) {
    const lease = world.leases.get(id);
    if (lease) lease.until = world.now + lease.span;
  }
  return handles.flatMap((handle): Verdict[] => {
    const job = holds(world, handle);
    if (!job) return [{ job: handle.job, verdict: "lost", reason: null }];
    if (job.cancel !== null) return [{ job: job.id, verdict: "cancel", reason: job.cancel }];
    return job.pause ? [{ job: job.id, verdict: "pause", reason: job.pause.reason }] : [];
  });
}

export function saveCheckpoint(world: World, handle: Handle, step: string, output: string): "saved" | "kept" | "lost" {
  const job = holds(world, handle);
  if (!job) return "lost";
  if (job.checkpoints.has(step)) return "kept";
  job.checkpoints.set(step, { output, epoch: handle.epoch });
  return "saved";
}

export function loadCheckpoints(world: World, handle: Handle): string[] | "SW005" {
  const job = holds(world, handle);
  if (!job) return "SW005";
  return [...job.checkpoints].map(([step, { output }]) => `${step}=${output}`).sort();
}

export function appendLogs(world: World, handle: Handle, lines: number): number | null {
  const job = holds(world, handle);
  if (!job) return null;
  for (let line = 0; line < lines; line++) job.feed.push(`log@${handle.epoch}`);
  return job.feed.length;
}

export function progress(world: World, handle: Handle, fraction: number): "" | "SW005" {
  const job = holds(world, handle);
  if (!job) return "SW005";
  job.progress = fraction;
  return "";
}

export function settle(world: World, handle: Handle, outcome: Outcome): string {
  const job = holds(world, handle);
  return job ? settleHeld(world, job, outcome) : (settledBefore(world, handle, outcome.outcome) ?? "lost");
}

/** A repeated settlement, after its response was lost, returns the state of the job. */
function settledBefore(world: World, handle: Handle, outcome: string): string | undefined {
  const job = world.jobs.get(handle.job);
  const attempt = job?.attempts.get(handle.epoch);
  if (!job || attempt?.outcome !== outcome || attempt.lease !== handle.lease) return undefined;
  const last = job.claimedAt !== null && job.epoch === handle.epoch;
  return isLive(job) || last ? job.state : "queued";
}
