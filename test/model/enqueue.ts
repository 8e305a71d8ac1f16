// enqueue in the model: idempotency keys first, then the keys of the jobs.
import { cancel } from "./control.ts";
import { freeSlots, holdersOf, jobsOfKey, waitForKey } from "./keys.ts";
import { type OnConflict, pipelines, type World } from "./world.ts";

export interface EnqueueOptions {
  delay: number | null;
  priority: number | null;
  expiresIn: number | null;
  maxAttempts: number | null;
  onConflict: OnConflict | null;
}

export const noOptions: EnqueueOptions = {
  delay: null,
  priority: null,
  expiresIn: null,
  maxAttempts: null,
  onConflict: null,
};

/** One job of a call. */
export interface Entry {
  id: string;
  key: string | null;
  tenant: string | null;
  idempotencyKey: string | null;
}

/** Returns the job of each entry, in order: a new one, the one of its idempotency key, or the one it joined. */
export function enqueue(world: World, pipeline: string, entries: Entry[], options: EnqueueOptions): string[] | string {
  const runAt = world.now + (options.delay ?? 0);
  if (options.expiresIn !== null && world.now + options.expiresIn <= runAt) return "SW001";
  const onConflict = options.onConflict ?? pipelines[pipeline]!.onConflict;
  const fresh = entries.filter((entry, index) => {
    const isSame = (other: Entry) => knownAs(pipeline, other) === knownAs(pipeline, entry);
    return entry.idempotencyKey === null || (!knownJob(world, pipeline, entry) && entries.findIndex(isSame) === index);
  });
  const keyed = fresh.filter((entry) => entry.key !== null);
  // Refused as a whole.
  const isTaken = ({ key, tenant }: Entry) =>
    keyed.filter((entry) => entry.key === key && entry.tenant === tenant).length >
    freeSlots(world, { pipeline, tenant, key }).length;
  if (onConflict === "reject" && keyed.some(isTaken)) return "SW007";
  if (onConflict === "replace") replaceAll(world, pipeline, keyed);
  for (const entry of fresh) {
    const id = store(world, pipeline, entry, options, onConflict);
    if (entry.idempotencyKey !== null) world.keys.set(knownAs(pipeline, entry), id);
    entry.id = id;
  }
  return entries.map((entry) => (fresh.includes(entry) ? entry.id : knownJob(world, pipeline, entry)!));
}

function knownJob(world: World, pipeline: string, entry: Entry): string | undefined {
  return world.keys.get(knownAs(pipeline, entry));
}

function knownAs(pipeline: string, { tenant, idempotencyKey }: Entry): string {
  return `${pipeline}/${tenant ?? ""}/${idempotencyKey}`;
}

/** Only the newest job of a key is kept: all others are cancelled, whether they wait, run or are paused. */
function replaceAll(world: World, pipeline: string, keyed: Entry[]): void {
  const old = new Set(keyed.flatMap(({ key, tenant }) => jobsOfKey(world, { pipeline, tenant, key })));
  for (const job of old) {
    if (job.cancel === null) cancel(world, job.id, "Replaced by a newer job of the same key");
  }
}

function store(
  world: World,
  pipeline: string,
  { id, key, tenant, idempotencyKey }: Entry,
  options: EnqueueOptions,
  onConflict: OnConflict,
): string {
  const settings = pipelines[pipeline]!;
  const runAt = world.now + (options.delay ?? 0);
  const [slot = null] = key === null ? [] : freeSlots(world, { pipeline, tenant, key });
  const waits = key !== null && slot === null;
  // A job that is being cancelled is not joined: its work would not be done.
  const active = holdersOf(world, { pipeline, tenant, key }).find((job) => job.cancel === null);
  if (waits && onConflict === "join" && active) return active.id;
  world.jobs.set(id, {
    id,
    pipeline,
    pool: settings.pool,
    state: "queued",
    waitingFor: runAt > world.now ? "time" : null,
    priority: options.priority ?? settings.priority,
    runAt,
    orderAt: null,
    expiresAt: options.expiresIn === null ? null : world.now + options.expiresIn,
    startedAt: null,
    claimedAt: null,
    endedAt: null,
    attempt: 0,
    maxAttempts: options.maxAttempts ?? settings.maxAttempts,
    crashes: 0,
    epoch: 0,
    worker: null,
    lease: null,
    key,
    tenant,
    slot,
    idempotencyKey,
    failure: null,
    output: null,
    cancel: null,
    pause: null,
    progress: null,
    feed: [],
    attempts: new Map(),
    checkpoints: new Map(),
  });
  if (waits) waitForKey(world.jobs.get(id)!);
  return id;
}
