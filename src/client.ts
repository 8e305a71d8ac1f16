// The library's face: enqueue, watch, cancel, retry, pause, resume. Everything it does is a verb of sql/functions; this file checks what
// comes in, shares commits among concurrent calls and gives the answers names.
import type { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { setTimeout as delay } from "node:timers/promises";
import { Database, type DatabaseOptions } from "./database.ts";
import { batchOf, type EnqueueCall } from "./enqueue-call.ts";
import { InvalidInput, JobFailed, JobNotFound, KeyTaken, StillwakeError } from "./errors.ts";
import { Flow } from "./flow.ts";
import { registerNeed, registerNeedThrough } from "./flow-verbs.ts";
import { checkId, newId } from "./ids.ts";
import { type Job, toJob } from "./job.ts";
import { signal } from "./long-work-verbs.ts";
import { type EnqueueManyOptions, type EnqueueOptions, label, labelsOf, sqlOptions } from "./options.ts";
import { checkFilter, checkLimit, readCursor, writeCursor } from "./page.ts";
import { toJson } from "./payload.ts";
import { type Pipeline, validateInput } from "./pipeline.ts";
import { Schedules } from "./schedules.ts";
import { sharedCommit } from "./shared-commit.ts";
import { type Duration, durationMs } from "./time.ts";
import { loadTracing, type Tracing } from "./tracing.ts";
import { type Send, sendThrough } from "./transaction.ts";
import * as verbs from "./verbs.ts";
import { verified } from "./verified.ts";
import { Webhooks } from "./webhooks.ts";

export interface Enqueued {
  id: string;
  /** True when the job was there before: its idempotency key was seen, or its key is that of an active job. */
  existing: boolean;
}

export type LogLine = verbs.LogRow;

/** A file a job has made. */
export interface ArtifactInfo {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  savedAt: Date;
}

/** Where artifacts are read from: what openStore() of stillwake/worker returns. */
export interface ArtifactSource {
  get(key: string): Promise<ReadableStream<Uint8Array> | Readable>;
  link(key: string, options: { fileName: string; seconds: number }): Promise<string | undefined>;
}

export interface StillwakeOptions extends DatabaseOptions {
  /** To download artifacts. */
  store?: ArtifactSource;
}

export interface ListOptions extends verbs.JobFilter {
  /** 1 to 200. Default 50. */
  limit?: number;
  /** From the page before. */
  cursor?: string;
}

export interface Actor {
  reason?: string;
  by?: string;
}

/** A statement takes no further input once those it has are this long together, in characters of JSON. */
const MOST_JSON = 16 * 1024 * 1024;

export class Stillwake {
  readonly database: Database;
  /** Limits, breakers, weights and caps. */
  readonly flow: Flow;
  /** Endpoints, and what was told them. */
  readonly webhooks: Webhooks;
  /** Which job is due when. */
  readonly schedules: Schedules;
  readonly #registering = new Map<string, Promise<void>>();
  readonly #registered = new Set<string>();
  readonly #share: (call: EnqueueCall) => Promise<string | Error>;
  /** A key that another transaction holds is waited for; calls without one do not wait behind it. */
  readonly #shareKeyed: (call: EnqueueCall) => Promise<string | Error>;
  readonly #store: ArtifactSource | undefined;
  #tracing: Tracing | undefined;

  constructor(options: StillwakeOptions) {
    this.database = new Database(options);
    this.flow = new Flow(this.database);
    this.webhooks = new Webhooks(this.database);
    this.schedules = new Schedules(this.database, (contract) => this.#register(contract));
    this.#store = options.store;
    const share = () =>
      sharedCommit<EnqueueCall, string | Error>({
        groupOf: (call) => `${call.pipeline}\n${JSON.stringify(call.options)}`,
        sizeOf: (call) => call.input.length,
        send: (calls) => this.#send(calls),
        most: 1000,
        mostSize: MOST_JSON,
        lanes: 2,
      });
    this.#share = share();
    this.#shareKeyed = share();
  }

  /** Stores one job and answers when it is durable. Calls of the same moment share one commit. */
  async enqueue<Input, Output>(
    pipeline: Pipeline<Input, Output>,
    input: Input,
    options?: EnqueueOptions,
  ): Promise<Enqueued>;
  async enqueue(pipeline: string, input: unknown, options?: EnqueueOptions): Promise<Enqueued>;
  async enqueue(pipeline: Pipeline | string, input: unknown, options: EnqueueOptions = {}): Promise<Enqueued> {
    const shared = sqlOptions(options);
    const key = options.idempotencyKey === undefined ? null : label(options.idempotencyKey, "idempotencyKey");
    const send = options.tx === undefined ? undefined : sendThrough(options.tx);
    const name = nameOf(pipeline);
    const value = hasSchema(pipeline) ? await validateInput(pipeline, input) : input;
    const json = toJson(value, "input");
    await this.#ready(pipeline, send);
    this.#tracing ??= await loadTracing();
    const trace = this.#tracing.inject();
    const labels = labelsOf(pipeline, value, options, "input");
    const call = { pipeline: name, id: newId(), input: json, options: shared, idempotencyKey: key, trace, ...labels };
    const id = send
      ? (await verbs.enqueueManyThrough(send, this.database.schema, batchOf([call])))[0]!
      : await (key === null && labels.key === null ? this.#share : this.#shareKeyed)(call);
    if (id instanceof Error) throw id;
    return { id, existing: id !== call.id };
  }

  /**
   * Stores many jobs of one pipeline, in order, in statements of up to 10,000 jobs or about 16 MB. Every input is checked before the first
   * statement is sent. With `tx` all of them commit or vanish together.
   */
  async enqueueMany<Input, Output>(
    pipeline: Pipeline<Input, Output>,
    inputs: readonly Input[],
    options?: EnqueueManyOptions,
  ): Promise<Enqueued[]>;
  async enqueueMany(pipeline: string, inputs: readonly unknown[], options?: EnqueueManyOptions): Promise<Enqueued[]>;
  async enqueueMany(
    pipeline: Pipeline | string,
    inputs: readonly unknown[],
    options: EnqueueManyOptions = {},
  ): Promise<Enqueued[]> {
    if (!Array.isArray(inputs))
      throw new InvalidInput("inputs is not an array", { field: "inputs", remedy: "Pass one element per job" });
    const shared = sqlOptions(options, true);
    const keys = options.idempotencyKeys;
    if (keys !== undefined && (!Array.isArray(keys) || keys.length !== inputs.length)) {
      throw new InvalidInput(`idempotencyKeys is not an array of ${inputs.length}, as many as there are inputs`, {
        field: "idempotencyKeys",
        remedy: "Pass one per input, null for none",
      });
    }
    const keyOf = (index: number) => {
      const key: unknown = keys?.[index];
      return !keys || key === null ? null : label(key, `idempotencyKeys[${index}]`);
    };
    const send = options.tx === undefined ? undefined : sendThrough(options.tx);
    const name = nameOf(pipeline);
    if (inputs.length === 0) return [];

    this.#tracing ??= await loadTracing();
    const trace = this.#tracing.inject();
    const batches: EnqueueCall[][] = [];
    for (let index = 0; index < inputs.length; ) {
      const calls: EnqueueCall[] = [];
      for (let size = 0; index < inputs.length && calls.length < 10_000 && size < MOST_JSON; index++) {
        const at = `inputs[${index}]`;
        const idempotencyKey = keyOf(index);
        const value = hasSchema(pipeline) ? await validateInput(pipeline, inputs[index], at) : inputs[index];
        const input = toJson(value, at);
        size += input.length;
        const labels = labelsOf(pipeline, value, options, at);
        calls.push({ pipeline: name, id: "", input, options: shared, idempotencyKey, trace, ...labels });
      }
      batches.push(calls);
      // Others in this process have their turn between two batches.
      await new Promise(setImmediate);
    }

    await this.#ready(pipeline, send);
    const done: Enqueued[] = [];
    for (const calls of batches) {
      // Made now: an id that is seconds old when it arrives is looked up first, as a repeated one.
      for (const call of calls) call.id = newId();
      const batch = batchOf(calls);
      const ids = send
        ? await verbs.enqueueManyThrough(send, this.database.schema, batch)
        : await verbs.enqueueMany(this.database, batch);
      for (const [index, id] of ids.entries()) done.push({ id, existing: id !== calls[index]!.id });
    }
    return done;
  }

  /** Calls that share a statement are calls of strangers: a key that one of them finds taken is no concern of the others. */
  async #send(calls: EnqueueCall[]): Promise<(string | Error)[]> {
    try {
      return await verbs.enqueueMany(this.database, batchOf(calls));
    } catch (error) {
      if (!(error instanceof KeyTaken) || calls.length === 1) throw error;
      return Promise.all(
        calls.map((call) =>
          this.#send([call]).then(
            ([id]) => id!,
            (refusal: Error) => refusal,
          ),
        ),
      );
    }
  }

  /** Makes pipelines known to the database. enqueue() does it for contracts by itself, once per process. */
  async register(...pipelines: Pipeline[]): Promise<void> {
    await Promise.all(pipelines.map((pipeline) => this.#register(pipeline)));
  }

  async get(id: string): Promise<Job> {
    const [row] = await verbs.readJobs(this.database, [checkId(id)]);
    if (!row)
      throw new JobNotFound(`Job ${id} does not exist`, {
        field: "id",
        remedy: "It was never enqueued here, or its retention is over and it was pruned",
      });
    return toJob(row);
  }

  /** Newest first. */
  async list(options: ListOptions = {}): Promise<{ jobs: Job[]; cursor: string | null }> {
    const { limit = 50, cursor, ...filter } = options;
    const before = cursor === undefined ? null : readCursor(cursor);
    const rows = await verbs.listJobs(this.database, checkFilter(filter), before, checkLimit(limit, 200) + 1);
    const page = rows.slice(0, limit);
    return { jobs: page.map(toJob), cursor: rows.length > limit ? writeCursor(page.at(-1)!.id) : null };
  }

  /** Resolves with the job when it has completed; throws JobFailed when it failed or was cancelled. */
  async wait(id: string, options: { timeout?: Duration; signal?: AbortSignal } = {}): Promise<Job> {
    const { timeout, signal } = options;
    const deadline =
      timeout === undefined ? Number.POSITIVE_INFINITY : performance.now() + durationMs(timeout, "timeout");
    for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 1.5, 1000)) {
      signal?.throwIfAborted();
      const job = await this.get(id);
      if (job.state === "completed") return job;
      if (job.state === "failed" || job.state === "cancelled") throw new JobFailed(id, job.state, job.failure);
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) {
        throw new StillwakeError("TIMEOUT", `Job ${id} is still ${job.state} after ${timeout}`, {
          remedy: "Wait longer, or look at why it does not end",
          field: "timeout",
          retryable: true,
        });
      }
      await delay(Math.min(pauseMs, leftMs), undefined, signal && { signal }).catch(() => {});
    }
  }

  /** The lines of a job in order, those after `after`; ask again with the last `seq` to read on. */
  async logs(id: string, options: { after?: string; limit?: number } = {}): Promise<LogLine[]> {
    const { after = "0", limit = 1000 } = options;
    if (!/^\d{1,18}$/.test(after)) {
      throw new InvalidInput(`${JSON.stringify(after)} is not a place in a log`, {
        field: "after",
        remedy: "Pass the seq of the last line you have",
      });
    }
    return verbs.readLogs(this.database, checkId(id), after, checkLimit(limit, 10_000));
  }

  /** The files a job has made so far. */
  async artifacts(id: string): Promise<ArtifactInfo[]> {
    const rows = await verbs.listArtifacts(this.database, checkId(id));
    return rows.map(({ name, size, sha256, content_type, saved_at }) => {
      return { name, size: Number(size), sha256, contentType: content_type, savedAt: saved_at };
    });
  }

  /** The content of one of them. It is compared with its hash on the way: a stream that ends without an error was whole. */
  async download(id: string, name: string): Promise<Readable> {
    const { store, row } = await this.#artifact(id, name);
    return verified(await store.get(row.key), name, row);
  }

  /** A link to it that is good for some minutes, where the store has such links. */
  async link(id: string, name: string, options: { seconds?: number } = {}): Promise<string | undefined> {
    const { store, row } = await this.#artifact(id, name);
    return store.link(row.key, { fileName: name, seconds: options.seconds ?? 300 });
  }

  /** Ends a waiting job, asks a running one to stop. Answers the state it is in now. */
  async cancel(id: string, actor: Actor = {}): Promise<verbs.JobState> {
    return verbs.controlJob(this.database, "cancel", [checkId(id), actor.reason ?? null, actor.by ?? null]);
  }

  /** Runs a failed or cancelled job again, from its checkpoints or from the start. */
  async retry(id: string, options: { fromStart?: boolean; by?: string } = {}): Promise<verbs.JobState> {
    return verbs.controlJob(this.database, "retry", [checkId(id), options.fromStart ?? false, options.by ?? null]);
  }

  /** Says something to a job that waits for it, now or later: `job.waitFor(event)`. Answers the state the job is in. */
  async signal(
    id: string,
    event: string,
    data: unknown = null,
    actor: Pick<Actor, "by"> = {},
  ): Promise<verbs.JobState> {
    const call = { job: checkId(id), event: label(event, "event"), data: toJson(data, "data"), by: actor.by ?? null };
    return signal(this.database, call);
  }

  async pause(target: string | { pool: string }, actor: Actor = {}): Promise<verbs.JobState | undefined> {
    const by = [actor.reason ?? null, actor.by ?? null];
    if (typeof target === "string") return verbs.controlJob(this.database, "pause", [checkId(target), ...by]);
    await verbs.controlPool(this.database, "pause_pool", [label(target?.pool, "pool"), ...by]);
  }

  async resume(target: string | { pool: string }, actor: Pick<Actor, "by"> = {}): Promise<verbs.JobState | undefined> {
    if (typeof target === "string") {
      return verbs.controlJob(this.database, "resume", [checkId(target), actor.by ?? null]);
    }
    await verbs.controlPool(this.database, "resume_pool", [label(target?.pool, "pool")]);
  }

  /** What must happen even if every worker is dead: recovers, expires, prepares partitions, prunes. Once a minute, from any scheduler. */
  watchdog(): Promise<verbs.WatchdogAct[]> {
    return verbs.watchdog(this.database);
  }

  /** Lets statements in flight finish. */
  close(): Promise<void> {
    return this.database.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Registers a contract the first time. In the caller's transaction that goes through it too: it may hold the only connection there is.
   * It may also roll back, so what it registered is not remembered.
   */
  async #ready(pipeline: Pipeline | string, send: Send | undefined): Promise<void> {
    if (typeof pipeline === "string" || this.#registered.has(pipeline.name)) return;
    if (!send) return this.#register(pipeline);
    for (const need of pipeline.options.needs ?? []) await registerNeedThrough(send, this.database.schema, need);
    await verbs.registerPipelineThrough(send, this.database.schema, pipeline.name, pipeline.settings);
  }

  async #artifact(id: string, name: string): Promise<{ store: ArtifactSource; row: verbs.ArtifactRow }> {
    if (!this.#store) {
      throw new InvalidInput("This client has no artifact store", {
        field: "store",
        remedy: "Create it with one: createStillwake({ url, store: openStore(url) }), openStore from stillwake/worker",
      });
    }
    const row = (await verbs.listArtifacts(this.database, checkId(id))).find((one) => one.name === name);
    if (row) return { store: this.#store, row };
    throw new StillwakeError("ARTIFACT_MISSING", `Job ${id} has no artifact ${JSON.stringify(name)}`, {
      field: "name",
      remedy: "See artifacts(id) for those it has",
    });
  }

  async #register({ name, settings, options }: Pipeline): Promise<void> {
    if (this.#registered.has(name)) return;
    const register = async () => {
      for (const need of options.needs ?? []) await registerNeed(this.database, need);
      await verbs.registerPipeline(this.database, name, settings);
    };
    const pending = this.#registering.get(name) ?? register();
    this.#registering.set(name, pending);
    try {
      await pending;
      this.#registered.add(name);
    } finally {
      this.#registering.delete(name);
    }
  }
}

export function createStillwake(options: StillwakeOptions): Stillwake {
  return new Stillwake(options);
}

function nameOf(pipeline: Pipeline | string): string {
  if (typeof pipeline === "string") return pipeline;
  if (typeof pipeline?.name === "string" && pipeline.options && pipeline.settings) return pipeline.name;
  throw new InvalidInput("pipeline is neither a name nor a contract", {
    field: "pipeline",
    remedy: 'Pass what pipeline("name", { … }) returned, or the name of a registered one',
  });
}

function hasSchema(pipeline: Pipeline | string): pipeline is Pipeline {
  return typeof pipeline !== "string" && pipeline.options.input !== undefined;
}
