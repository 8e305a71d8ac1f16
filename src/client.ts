// The library's face: enqueue, watch, cancel, retry, pause, resume. Everything it does is a verb of sql/functions; this file checks what
// comes in, shares commits among concurrent calls and gives the answers names.
import { setTimeout as delay } from "node:timers/promises";
import { Database, type DatabaseOptions } from "./database.ts";
import { InvalidInput, JobFailed, JobNotFound, StillwakeError } from "./errors.ts";
import { checkId, newId } from "./ids.ts";
import { type EnqueueManyOptions, type EnqueueOptions, label, sqlOptions } from "./options.ts";
import { toJson } from "./payload.ts";
import { type Pipeline, validateInput } from "./pipeline.ts";
import { sharedCommit } from "./shared-commit.ts";
import { type Duration, durationMs } from "./time.ts";
import { type Send, sendThrough } from "./transaction.ts";
import * as verbs from "./verbs.ts";

export interface Enqueued {
  id: string;
  /** True when the idempotency key had made this job before. */
  existing: boolean;
}

/** Where a job stands. Times are the database's. */
export interface Job {
  id: string;
  pipeline: string;
  pool: string;
  state: verbs.JobState;
  /** Why a queued job waits; null when it could start now. */
  waitingFor: verbs.WaitingFor | null;
  priority: number;
  /** Null while it is set aside with no time to resume. */
  runAt: Date | null;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
  expiresAt: Date | null;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  /** The fencing token of the latest attempt, a whole number as text. */
  epoch: string;
  worker: string | null;
  key: string | null;
  tenant: string | null;
  idempotencyKey: string | null;
  input: unknown;
  output: unknown;
  failure: verbs.Failure | null;
  cancel: verbs.JobRow["cancel"];
  pause: verbs.JobRow["pause"];
  progress: verbs.JobRow["progress"];
  /** Optional steps of a completed job that have no result. */
  missing: string[];
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

interface EnqueueCall {
  pipeline: string;
  id: string;
  input: string;
  options: Record<string, unknown>;
  idempotencyKey: string | null;
}

/** A statement takes no further input once those it has are this long together, in characters of JSON. */
const MOST_JSON = 16 * 1024 * 1024;

export class Stillwake {
  readonly database: Database;
  readonly #registering = new Map<string, Promise<void>>();
  readonly #registered = new Set<string>();
  readonly #share: (call: EnqueueCall) => Promise<string>;
  /** A key that another transaction holds is waited for; calls without one do not wait behind it. */
  readonly #shareKeyed: (call: EnqueueCall) => Promise<string>;

  constructor(options: DatabaseOptions) {
    this.database = new Database(options);
    const share = () =>
      sharedCommit<EnqueueCall, string>({
        groupOf: (call) => `${call.pipeline}\n${JSON.stringify(call.options)}`,
        sizeOf: (call) => call.input.length,
        send: (calls) => verbs.enqueueMany(this.database, batchOf(calls)),
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
    const call = { pipeline: name, id: newId(), input: json, options: shared, idempotencyKey: key };
    const id = send
      ? (await verbs.enqueueManyThrough(send, this.database.schema, batchOf([call])))[0]!
      : await (key === null ? this.#share : this.#shareKeyed)(call);
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

    const batches: EnqueueCall[][] = [];
    for (let index = 0; index < inputs.length; ) {
      const calls: EnqueueCall[] = [];
      for (let size = 0; index < inputs.length && calls.length < 10_000 && size < MOST_JSON; index++) {
        const at = `inputs[${index}]`;
        const idempotencyKey = keyOf(index);
        const value = hasSchema(pipeline) ? await validateInput(pipeline, inputs[index], at) : inputs[index];
        const input = toJson(value, at);
        size += input.length;
        calls.push({ pipeline: name, id: "", input, options: shared, idempotencyKey });
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
    if (!Number.isInteger(limit) || limit < 1 || limit > 200) {
      throw new InvalidInput(`limit ${limit} is not a whole number from 1 to 200`, {
        field: "limit",
        remedy: "Ask for a page of that size and follow the cursor",
      });
    }
    const rows = await verbs.listJobs(
      this.database,
      checkFilter(filter),
      cursor === undefined ? null : readCursor(cursor),
      limit + 1,
    );
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

  /** Ends a waiting job, asks a running one to stop. Answers the state it is in now. */
  async cancel(id: string, actor: Actor = {}): Promise<verbs.JobState> {
    return verbs.controlJob(this.database, "cancel", [checkId(id), actor.reason ?? null, actor.by ?? null]);
  }

  /** Runs a failed or cancelled job again, from its checkpoints or from the start. */
  async retry(id: string, options: { fromStart?: boolean; by?: string } = {}): Promise<verbs.JobState> {
    return verbs.controlJob(this.database, "retry", [checkId(id), options.fromStart ?? false, options.by ?? null]);
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
    await verbs.registerPipelineThrough(send, this.database.schema, pipeline.name, pipeline.settings);
  }

  async #register({ name, settings }: Pipeline): Promise<void> {
    if (this.#registered.has(name)) return;
    const pending = this.#registering.get(name) ?? verbs.registerPipeline(this.database, name, settings);
    this.#registering.set(name, pending);
    try {
      await pending;
      this.#registered.add(name);
    } finally {
      this.#registering.delete(name);
    }
  }
}

export function createStillwake(options: DatabaseOptions): Stillwake {
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

function batchOf(calls: EnqueueCall[]): verbs.EnqueueBatch {
  const first = calls[0]!;
  const keyed = calls.some((call) => call.idempotencyKey !== null);
  return {
    pipeline: first.pipeline,
    ids: calls.map((call) => call.id),
    inputs: calls.map((call) => call.input),
    options: keyed ? { ...first.options, idempotency_keys: calls.map((call) => call.idempotencyKey) } : first.options,
  };
}

const states = ["queued", "running", "paused", "completed", "failed", "cancelled"];

function checkFilter(filter: verbs.JobFilter): verbs.JobFilter {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  for (const [field, value] of given) {
    if (!["pipeline", "pool", "state", "key", "tenant"].includes(field)) {
      throw new InvalidInput(`Unknown filter "${field}"`, {
        field,
        remedy: "Filters: pipeline, pool, state, key, tenant",
      });
    }
    if (field === "state" && !states.includes(value)) {
      throw new InvalidInput(`${JSON.stringify(value)} is not a state`, {
        field,
        remedy: `States: ${states.join(", ")}`,
      });
    }
    label(value, field);
  }
  return Object.fromEntries(given);
}

function writeCursor(id: string): string {
  return Buffer.from(id.replaceAll("-", ""), "hex").toString("base64url");
}

function readCursor(cursor: string): string {
  const hex =
    typeof cursor === "string" && cursor.length === 22 ? Buffer.from(cursor, "base64url").toString("hex") : "";
  if (hex.length !== 32) {
    throw new InvalidInput(`${JSON.stringify(cursor)} is not a cursor`, {
      field: "cursor",
      remedy: "Pass the cursor of the page before, unchanged, or none for the first page",
    });
  }
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function toJob(row: verbs.JobRow): Job {
  return {
    id: row.id,
    pipeline: row.pipeline,
    pool: row.pool,
    state: row.state,
    waitingFor: row.waiting_for,
    priority: row.priority,
    // The driver reads infinity as a number.
    runAt: row.run_at instanceof Date ? row.run_at : null,
    createdAt: row.created_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    expiresAt: row.expires_at,
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    crashes: row.crashes,
    epoch: row.epoch,
    worker: row.worker,
    key: row.key,
    tenant: row.tenant,
    idempotencyKey: row.idempotency_key,
    input: row.input,
    output: row.output,
    failure: row.failure,
    cancel: row.cancel,
    pause: row.pause,
    progress: row.progress,
    missing: row.missing ?? [],
  };
}
