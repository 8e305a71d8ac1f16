// Reads and removes jobs of BullMQ with the `bullmq` package of the user's project. Redis and Postgres share no
// transaction: a queue is paused while its jobs are moved, so that no worker of BullMQ takes a job that Stillwake has
// stored, and each job has an idempotency key, so that a second run after an interruption stores none twice.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import type { ImportSource, SourceJob, SourceQueue, SourceSchedule } from "../../db/import/source.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";

/** What is used of BullMQ 5 and 6. */
interface Queue {
  name: string;
  /** BullMQ 5 */
  client?: Promise<RedisClient>;
  /** BullMQ 6 */
  getBackend?(): { client: Promise<RedisClient> };
  toKey(type: string): string;
  on(event: "error", listener: () => void): unknown;
  waitUntilReady(): Promise<unknown>;
  isPaused(): Promise<boolean>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  close(): Promise<void>;
  getJobCounts(...types: string[]): Promise<Record<string, number>>;
  getJobs(types: string[], start: number, end: number, asc: boolean): Promise<(Job | undefined)[]>;
  getJobSchedulers(start: number, end: number, asc: boolean): Promise<(Scheduler | undefined)[]>;
  removeJobScheduler(id: string): Promise<boolean>;
}

interface RedisClient {
  zscore(key: string, member: string): Promise<string | null>;
}

interface Job {
  id: string;
  name: string;
  data: unknown;
  timestamp: number;
  delay: number;
  attemptsMade: number;
  opts: { attempts?: number; priority?: number };
  deduplicationId?: string;
  /** Set for a job that a scheduler has created. */
  repeatJobKey?: string;
  /** Set for a child of a flow. */
  parentKey?: string;
  remove(): Promise<void>;
}

interface Scheduler {
  key: string;
  pattern?: string;
  every?: number;
  tz?: string;
  startDate?: number;
  endDate?: number;
  limit?: number;
  template?: { data?: unknown; opts?: { attempts?: number; priority?: number } };
}

/** In the order in which workers take them. A paused queue of BullMQ 5 keeps its waiting jobs in "paused". */
const TYPES = ["wait", "paused", "prioritized", "delayed"];
/** A delayed job's score is its time in milliseconds times this. */
const SCORE_UNIT = 0x1000;

export interface BullMqOptions {
  url: string;
  prefix?: string | undefined;
  queues: readonly string[];
  /** Reports that a queue stays paused. */
  onNote(note: string): void;
}

export async function openBullMq(options: BullMqOptions): Promise<ImportSource> {
  const { url, prefix, queues: names, onNote } = options;
  if (names.length === 0) {
    throw new InvalidInput("import bullmq needs the names of the queues", {
      field: "queue",
      remedy: "BullMQ keeps no list of them: write stillwake import bullmq email reports --from redis://…",
    });
  }
  const bullmq = await loadBullMq();
  const connection = { url, maxRetriesPerRequest: 1, retryStrategy: () => null };
  const queues = names.map(
    (name) => new bullmq.Queue(name, { connection, ...(prefix !== undefined && { prefix }) }) as Queue,
  );
  for (const queue of queues) queue.on("error", () => {});
  const paused = new Set<Queue>();
  /** Queues with a job that Stillwake may have stored and that was not removed yet. */
  const unsure = new Set<Queue>();
  let dryRun = true;
  let left = Number.POSITIVE_INFINITY;
  let position = { queue: 0, type: 0, offset: 0 };
  let unremoved = new Map<string, Job>();

  async function close(): Promise<void> {
    for (const queue of paused) {
      if (!unsure.has(queue)) await queue.resume();
      else
        onNote(
          `Queue ${queue.name} of BullMQ stays paused: Stillwake may have stored jobs that are still there. Run the import again; it stores none twice.`,
        );
    }
    await Promise.all(queues.map((queue) => queue.close().catch(() => {})));
  }

  try {
    await Promise.all(queues.map((queue) => queue.waitUntilReady()));
  } catch (error) {
    await close();
    throw new StillwakeError("REDIS_UNAVAILABLE", `Redis cannot be reached: ${(error as Error).message}`, {
      cause: error,
      remedy: "Check --from redis://host:6379 and that Redis is running",
    });
  }

  return {
    name: "bullmq",
    keptReason: "part of a flow",
    notes: async () => [],

    async queues() {
      return Promise.all(
        queues.map(async (queue): Promise<SourceQueue> => {
          const counts = await queue.getJobCounts(...TYPES, "active", "waiting-children");
          const count = (type: string) => counts[type] ?? 0;
          const schedulers = await queue.getJobSchedulers(0, -1, true);
          // The next job of a scheduler is created by the schedule that replaces it.
          const scheduled = Math.min(count("delayed"), schedulers.length);
          const ready = count("wait") + count("paused") + count("prioritized");
          const kept = count("waiting-children");
          return { name: queue.name, ready, delayed: count("delayed") - scheduled, running: count("active"), kept };
        }),
      );
    },

    async schedules() {
      const lists = await Promise.all(
        queues.map(async (queue) => {
          const schedulers = (await queue.getJobSchedulers(0, -1, true)).filter((one) => one !== undefined);
          return schedulers.map((scheduler) => toSchedule(queue.name, scheduler));
        }),
      );
      return lists.flat();
    },

    async open(opened) {
      ({ dryRun } = opened);
      left = opened.limit ?? Number.POSITIVE_INFINITY;
      position = { queue: 0, type: 0, offset: 0 };
      unremoved = new Map();
      if (dryRun) return;
      for (const queue of queues) {
        if (await queue.isPaused()) continue;
        await queue.pause();
        paused.add(queue);
      }
    },

    async next(count) {
      // What was read and not removed is still at the beginning of its list.
      position.offset += unremoved.size;
      unremoved = new Map();
      while (position.queue < queues.length && left > 0) {
        const queue = queues[position.queue]!;
        const type = TYPES[position.type]!;
        const end = position.offset + Math.min(count, left) - 1;
        const jobs = await queue.getJobs([type], position.offset, end, true);
        if (jobs.length === 0) {
          const last = position.type === TYPES.length - 1;
          position = { queue: position.queue + Number(last), type: last ? 0 : position.type + 1, offset: 0 };
          continue;
        }
        const movable = jobs.filter((job): job is Job => Boolean(job && !job.repeatJobKey && !job.parentKey));
        position.offset += jobs.length - movable.length;
        if (movable.length === 0) continue;
        left -= movable.length;
        unremoved = new Map(movable.map((job) => [job.id, job]));
        return Promise.all(movable.map((job) => toSourceJob(queue, job, type)));
      }
      return [];
    },

    storing: (jobs) => {
      for (const queue of queues) if (jobs.some((job) => job.queue === queue.name)) unsure.add(queue);
    },

    async remove(moved) {
      for (const { id } of moved) {
        await unremoved.get(id)!.remove();
        unremoved.delete(id);
      }
      unsure.clear();
    },

    async removeSchedule({ queue, key }) {
      await queues.find(({ name }) => name === queue)!.removeJobScheduler(key);
    },

    close,
  };
}

async function toSourceJob(queue: Queue, job: Job, type: string): Promise<SourceJob> {
  const { attempts = 1, priority = 0 } = job.opts;
  let runAt: string | null = null;
  if (type === "delayed") {
    // The score is the time of the next attempt, also after a failed one; the fields of the job are not.
    const client = await (queue.getBackend?.().client ?? queue.client);
    const score = await client?.zscore(queue.toKey("delayed"), job.id);
    runAt = new Date(score ? Math.floor(Number(score) / SCORE_UNIT) : job.timestamp + job.delay).toISOString();
  }
  return {
    id: job.id,
    queue: queue.name,
    name: job.name,
    input: JSON.stringify(job.data ?? {}),
    runAt,
    // 0 runs first, then 1, 2, …
    priority: -priority,
    attempts: Math.max(1, attempts - job.attemptsMade),
    key: job.deduplicationId ?? null,
  };
}

function toSchedule(queue: string, scheduler: Scheduler): SourceSchedule {
  const { key, pattern, every, tz = "UTC", startDate, endDate, limit, template } = scheduler;
  const cron = pattern === undefined ? everyToCron(every ?? 0) : withoutSeconds(pattern);
  const limited = startDate !== undefined || endDate !== undefined || limit !== undefined;
  const problem = limited
    ? "it has a start, an end or a limit"
    : cron === undefined
      ? `${pattern === undefined ? `every ${every} ms` : `"${pattern}"`} cannot be written as minutes, hours and days`
      : undefined;
  return {
    queue,
    key,
    ...(cron !== undefined && { cron }),
    zone: tz,
    input: JSON.stringify(template?.data ?? {}),
    ...(template?.opts?.priority !== undefined && { priority: -template.opts.priority }),
    attempts: template?.opts?.attempts ?? 1,
    ...(problem !== undefined && { problem }),
  };
}

/** A pattern with six fields starts with the seconds. */
function withoutSeconds(pattern: string): string | undefined {
  const fields = pattern.trim().split(/\s+/);
  if (fields.length !== 6) return pattern;
  return fields[0] === "0" ? fields.slice(1).join(" ") : undefined;
}

/** Whole minutes that divide an hour, or whole hours that divide a day. */
function everyToCron(ms: number): string | undefined {
  const minutes = ms / 60_000;
  if (!Number.isInteger(minutes) || minutes < 1) return undefined;
  if (minutes < 60) return 60 % minutes === 0 ? `*/${minutes} * * * *` : undefined;
  const hours = minutes / 60;
  return Number.isInteger(hours) && 24 % hours === 0 ? (hours === 24 ? "0 0 * * *" : `0 */${hours} * * *`) : undefined;
}

async function loadBullMq(): Promise<{ Queue: new (name: string, options: object) => unknown }> {
  try {
    const file = createRequire(path.join(process.cwd(), "package.json")).resolve("bullmq");
    const loaded = await import(pathToFileURL(file).href);
    return loaded.Queue ? loaded : loaded.default;
  } catch (error) {
    throw new InvalidInput(`The package bullmq cannot be loaded from this directory: ${(error as Error).message}`, {
      cause: error,
      field: "bullmq",
      remedy: "Run the import in the project that uses BullMQ, after npm install",
    });
  }
}
