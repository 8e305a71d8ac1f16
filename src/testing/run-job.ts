// Runs one job of a pipeline in a test, with the real engine, in this process. Waits (back-off, sleep, rate limits) are
// skipped by moving the database's clock. The attempt can be made to die at a step, as if its runner had been killed.
import pg from "pg";
import { createStillwake } from "../client/client.ts";
import type { EnqueueOptions } from "../client/enqueue-options.ts";
import type { InputOf } from "../contract/pipeline.ts";
import type { Job } from "../db/calls/job.ts";
import type { LogRow } from "../db/calls/reads.ts";
import { schemaName } from "../db/schema-check.ts";
import { JobFailed } from "../errors.ts";
import type { AnyImplementation } from "../worker/attempt/implement.ts";
import type { WorkerOptions } from "../worker/options.ts";
import { Worker } from "../worker/worker.ts";
import { travel } from "./clock.ts";

export interface RunJobOptions {
  /** A migrated database, such as that of testDatabase(); the user must own the schema. */
  url: string;
  schema?: string;
  /** Dies once, right after this step's checkpoint: the next attempt does not run the step again. */
  crashAfter?: string;
  /** Dies once, right before this step's checkpoint: the next attempt runs the step again. */
  crashBefore?: string;
  /** Time limit in milliseconds. Default 20,000. */
  timeout?: number;
  enqueue?: EnqueueOptions;
  /** The pipelines it spawns. */
  children?: readonly AnyImplementation[];
  /** Signals to send when the job waits for an event, by the event's name. */
  signals?: Readonly<Record<string, unknown>>;
  worker?: Pick<
    WorkerOptions,
    "store" | "storeCredentials" | "sealKeys" | "secrets" | "scratch" | "grace" | "environment"
  >;
}

export interface RanJob {
  job: Job;
  logs: LogRow[];
  /** How often each step's code ran, over all attempts. */
  runs: Record<string, number>;
  attempts: number;
}

/** Runs one job of this pipeline until it ends or pauses, with any outcome. */
export async function runJob<Code extends AnyImplementation>(
  implementation: Code,
  input: InputOf<Code["pipeline"]>,
  options: RunJobOptions,
): Promise<RanJob> {
  const { url, schema, timeout = 20_000 } = options;
  const { sealKeys } = options.worker ?? {};
  const stillwake = createStillwake({ url, ...(schema && { schema }), ...(sealKeys && { sealKeys }) });
  const runs: Record<string, number> = {};
  let attempts = 0;
  let crashed = false;
  const shared = {
    ...options.worker,
    url,
    ...(schema && { schema }),
    directUrl: false as const,
    poll: "20ms" as const,
  };
  const children = options.children ?? [];
  const childWorkers = [...new Set(children.map(poolOf))].map(
    (pool) => new Worker({ ...shared, pool, pipelines: children.filter((child) => poolOf(child) === pool), slots: 4 }),
  );
  const worker = new Worker({
    ...shared,
    pool: poolOf(implementation),
    pipelines: [implementation],
    slots: 1,
    crash: (point, step) => {
      const crashNow = !crashed && step === (point === "before" ? options.crashBefore : options.crashAfter);
      crashed ||= crashNow;
      return crashNow;
    },
  });
  worker.events.subscribe((event) => {
    if (event.kind === "attempt.started") attempts += 1;
    if (event.kind === "step.started") runs[event.step] = (runs[event.step] ?? 0) + 1;
  });
  try {
    for (const starting of [...childWorkers, worker]) await starting.start();
    const { id } = await stillwake.enqueue(implementation.pipeline, input, options.enqueue);
    const job = await waitForEnd(stillwake, id, options, performance.now() + timeout);
    return { job, logs: await stillwake.logs(id), runs, attempts };
  } finally {
    for (const running of [worker, ...childWorkers]) await running.stop();
    await stillwake.close();
  }
}

async function waitForEnd(
  stillwake: ReturnType<typeof createStillwake>,
  id: string,
  { url, schema, signals = {}, timeout = 20_000 }: RunJobOptions,
  deadline: number,
): Promise<Job> {
  const sent = new Set<string>();
  for (let travelledMs = 0; ; ) {
    try {
      return await stillwake.wait(id, { timeout: "50ms" });
    } catch (error) {
      const job = await stillwake.get(id);
      if (error instanceof JobFailed || job.state === "paused") return job;
      if (performance.now() > deadline) throw await timeoutError(job, { url, schema, timeout }, error);
      if (job.state === "queued" && job.waitingFor === "event" && sent.size < Object.keys(signals).length) {
        for (const [event, data] of Object.entries(signals)) {
          if (!sent.has(event)) await stillwake.signal(id, event, data);
          sent.add(event);
        }
        continue;
      }
      if (job.state !== "queued" || job.waitingFor === null || !job.runAt) continue;
      const aheadMs = Math.max(job.runAt.getTime() - Date.now() - travelledMs, 0) + 100;
      await travel(url, `${Math.round(aheadMs)}ms`, schema);
      travelledMs += aheadMs;
    }
  }
}

/** Says what the job waits for, and how a test provides it. */
async function timeoutError(
  job: Job,
  { url, schema, timeout }: { url: string; schema: string | undefined; timeout: number },
  cause: unknown,
): Promise<Error> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client
    .query<{ awaits: string | null }>(`select awaits from ${schemaName(schema)}.live_jobs where id = $1`, [job.id])
    .finally(() => client.end());
  const why = describeWait(job, rows[0]?.awaits ?? null);
  return new Error(`Job ${job.id} of "${job.pipeline}" has not ended within ${timeout} ms: ${why}`, { cause });
}

function describeWait({ state, waitingFor, children, runAt, attempt }: Job, awaits: string | null): string {
  if (state !== "queued") return `it is ${state}, in attempt ${attempt}`;
  if (waitingFor === "event") {
    return `it waits for the event "${awaits}". Pass its data: signals: { ${JSON.stringify(awaits)}: … }`;
  }
  if (waitingFor === "children") {
    const left = children ? children.total - children.completed - children.failed - children.cancelled : "some";
    return `it waits for ${left} of its children, spawned as "${awaits}". Pass their pipelines: children: [ … ]`;
  }
  if (waitingFor === null) return "it is queued and was not claimed";
  return `it waits for ${waitingFor === "time" ? "a time" : `its ${waitingFor}`}, until ${runAt?.toISOString() ?? "it is resumed"}`;
}

function poolOf({ pipeline }: AnyImplementation): string {
  return pipeline.options.pool ?? "default";
}
