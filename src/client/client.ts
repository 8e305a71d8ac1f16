// The library's face: enqueue, wait, cancel, retry, pause, resume, and by inheritance all that can be read. Everything it does is a verb of
// sql/functions; this file checks what comes in, shares commits among concurrent calls and gives the answers names.
import { setTimeout as delay } from "node:timers/promises";
import { type Pipeline, validateInput } from "../contract/pipeline.ts";
import { sharedCommit } from "../db/batcher.ts";
import { registerNeed, registerNeedThrough } from "../db/calls/flow.ts";
import * as verbs from "../db/calls/jobs.ts";
import { signal } from "../db/calls/long-work.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { type Erased, type EraseOptions, erase } from "../db/erase.ts";
import { scopedTo } from "../db/tenant-database.ts";
import { type Send, sendThrough } from "../db/transaction.ts";
import { InvalidInput, JobFailed, KeyTaken, StillwakeError } from "../errors.ts";
import { checkId, newId } from "../ids.ts";
import { FeedReader } from "../live/feed-reader.ts";
import { type FollowOptions, follow } from "../live/follower.ts";
import type { FollowEvent } from "../live/job-buffer.ts";
import { checkLabel, toJson } from "../payload.ts";
import { type KeyRing, readSealKeys, type SealKeys } from "../secrets/seal.ts";
import { type Duration, durationMs } from "../time.ts";
import { loadTracing, type Tracing } from "../tracing.ts";
import { Costs } from "./costs.ts";
import { batchOf, type EnqueueCall, sealed } from "./enqueue.ts";
import { type EnqueueManyOptions, type EnqueueOptions, labelsOf, sqlOptions } from "./enqueue-options.ts";
import { Flow } from "./flow.ts";
import type { Job } from "./job.ts";
import { Poker, type PokeTarget } from "./poke.ts";
import { checkSecrets, type ReadTokenOptions, signReadToken } from "./read-token.ts";
import { type ArtifactSource, Reader } from "./reader.ts";
import { Schedules } from "./schedules.ts";
import { Tokens } from "./tokens.ts";
import { Webhooks } from "./webhooks.ts";

export interface Enqueued {
  id: string;
  /** True when the job was there before: its idempotency key was seen, or its key is that of an active job. */
  existing: boolean;
}

export interface StillwakeOptions extends DatabaseOptions {
  /** To download artifacts. */
  store?: ArtifactSource;
  /** Seals what contracts have sealed: "k2:base64,k1:base64", of which the first seals, or by name. Workers open it; the server needs none. */
  sealKeys?: SealKeys | string;
  /** Past the pooler, for hints of new log lines to those who follow jobs; the database's own without one. */
  directUrl?: string;
  /** To sign read tokens with, the same as the server's: 32 characters at least. Of several the first signs, all are accepted. */
  secret?: string | readonly string[];
  /** Who is told that there is work, where machines start when there is: an orchestrator's poke(), or a server's address. A hint that fails nobody. */
  poke?: PokeTarget;
}

export interface Actor {
  reason?: string;
  by?: string;
}

/** A statement takes no further input once those it has are this long together, in characters of JSON. */
const MAX_JSON = 16 * 1024 * 1024;

export class Stillwake extends Reader {
  readonly database: Database;
  /** Limits, breakers, weights and caps. */
  readonly flow: Flow;
  /** What machines cost, and budgets. */
  readonly costs: Costs;
  /** Endpoints, and what was told them. */
  readonly webhooks: Webhooks;
  /** Who may come in by the server, and what was done there. */
  readonly tokens: Tokens;
  /** News of the jobs that somebody in this process follows. */
  readonly feed: FeedReader;
  /** Which job is due when. */
  readonly schedules: Schedules;
  readonly #registering = new Map<string, Promise<void>>();
  readonly #registered = new Set<string>();
  readonly #share: (call: EnqueueCall) => Promise<string | Error>;
  /** A key that another transaction holds is waited for; calls without one do not wait behind it. */
  readonly #shareKeyed: (call: EnqueueCall) => Promise<string | Error>;
  readonly #secrets: readonly string[];
  readonly #store: ArtifactSource | undefined;
  readonly #ring: KeyRing | undefined;
  readonly #poker: Poker | undefined;
  #tracing: Tracing | undefined;

  constructor(options: StillwakeOptions) {
    const database = new Database(options);
    super(database, options.store);
    this.database = database;
    this.flow = new Flow(this.database);
    this.costs = new Costs(this.database, () => this.poke());
    this.webhooks = new Webhooks(this.database);
    this.tokens = new Tokens(this.database);
    const directUrl = options.directUrl ?? options.url;
    this.feed = new FeedReader(this.database, directUrl === undefined ? {} : { directUrl });
    this.#secrets = checkSecrets(options.secret);
    this.#store = options.store;
    this.#ring = readSealKeys(options.sealKeys);
    this.#poker = options.poke === undefined ? undefined : new Poker(options.poke);
    this.schedules = new Schedules(
      this.database,
      (contract) => this.#register(contract),
      this.#ring,
      () => this.poke(),
    );
    const share = () =>
      sharedCommit<EnqueueCall, string | Error>({
        groupOf: (call) => `${call.pipeline}\n${JSON.stringify(call.options)}`,
        sizeOf: (call) => call.input.length,
        send: (calls) => this.#send(calls),
        most: 1000,
        mostSize: MAX_JSON,
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
    const key = options.idempotencyKey === undefined ? null : checkLabel(options.idempotencyKey, "idempotencyKey");
    const send = options.tx === undefined ? undefined : sendThrough(options.tx);
    const name = nameOf(pipeline);
    const value = hasSchema(pipeline) ? await validateInput(pipeline, input) : input;
    const json = toJson(value, "input");
    await this.#ready(pipeline, send);
    this.#tracing ??= await loadTracing();
    const trace = this.#tracing.inject();
    const labels = labelsOf(pipeline, value, options, "input");
    const plain = { pipeline: name, id: newId(), input: json, options: shared, idempotencyKey: key, trace, ...labels };
    const call = sealed(this.#ring, pipeline, plain);
    const id = send
      ? (await verbs.enqueueManyThrough(send, this.database.schema, batchOf([call])))[0]!
      : await (key === null && labels.key === null ? this.#share : this.#shareKeyed)(call);
    if (id instanceof Error) throw id;
    if (send) this.#poker?.pokeLater();
    else await this.poke();
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
      return !keys || key === null ? null : checkLabel(key, `idempotencyKeys[${index}]`);
    };
    const send = options.tx === undefined ? undefined : sendThrough(options.tx);
    const name = nameOf(pipeline);
    if (inputs.length === 0) return [];

    this.#tracing ??= await loadTracing();
    const trace = this.#tracing.inject();
    const batches: EnqueueCall[][] = [];
    for (let index = 0; index < inputs.length; ) {
      const calls: EnqueueCall[] = [];
      for (let size = 0; index < inputs.length && calls.length < 10_000 && size < MAX_JSON; index++) {
        const at = `inputs[${index}]`;
        const idempotencyKey = keyOf(index);
        const value = hasSchema(pipeline) ? await validateInput(pipeline, inputs[index], at) : inputs[index];
        const input = toJson(value, at);
        size += input.length;
        const labels = labelsOf(pipeline, value, options, at);
        calls.push({ pipeline: name, id: "", input, options: shared, idempotencyKey, trace, ...labels });
        sealed(this.#ring, pipeline, calls.at(-1)!);
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
      const batch = batchOf(calls.map((call) => sealed(this.#ring, pipeline, call)));
      const ids = send
        ? await verbs.enqueueManyThrough(send, this.database.schema, batch)
        : await verbs.enqueueMany(this.database, batch);
      for (const [index, id] of ids.entries()) done.push({ id, existing: id !== calls[index]!.id });
    }
    if (send) this.#poker?.pokeLater();
    else await this.poke();
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
    const by = options.by ?? null;
    return this.#poked(verbs.controlJob(this.database, "retry", [checkId(id), options.fromStart ?? false, by]));
  }

  /** Tells whoever starts machines that there may be work: after a transaction of yours in which jobs were enqueued, for which nobody else can. */
  async poke(): Promise<void> {
    await this.#poker?.poke();
  }

  async #poked<Answer>(done: Promise<Answer>): Promise<Answer> {
    const answer = await done;
    await this.poke();
    return answer;
  }

  /** Says something to a job that waits for it, now or later: `job.waitFor(event)`. Answers the state the job is in. */
  async signal(
    id: string,
    event: string,
    data: unknown = null,
    actor: Pick<Actor, "by"> = {},
  ): Promise<verbs.JobState> {
    const call = {
      job: checkId(id),
      event: checkLabel(event, "event"),
      data: toJson(data, "data"),
      by: actor.by ?? null,
    };
    return this.#poked(signal(this.database, call));
  }

  async pause(target: string | { pool: string }, actor: Actor = {}): Promise<verbs.JobState | undefined> {
    const by = [actor.reason ?? null, actor.by ?? null];
    if (typeof target === "string") return verbs.controlJob(this.database, "pause", [checkId(target), ...by]);
    await verbs.controlPool(this.database, "pause_pool", [checkLabel(target?.pool, "pool"), ...by]);
  }

  async resume(target: string | { pool: string }, actor: Pick<Actor, "by"> = {}): Promise<verbs.JobState | undefined> {
    if (typeof target === "string") {
      return this.#poked(verbs.controlJob(this.database, "resume", [checkId(target), actor.by ?? null]));
    }
    await this.#poked(verbs.controlPool(this.database, "resume_pool", [checkLabel(target?.pool, "pool")]));
  }

  /** A job as it happens: how it stands, every line after a place, steps and progress, and what came of it. Ends with the job. */
  follow(id: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent, void> {
    return follow(this.feed, id, options);
  }

  /** What one tenant may see, and nothing else: the database itself shows no more. */
  tenant(name: string): Reader {
    return new Reader(scopedTo(this.database, name), this.#store);
  }

  /** A tenant leaves, and everything of it goes: jobs, what hangs on them, the objects of the store. May be called again where it broke off. */
  erase(tenant: string, options: EraseOptions = {}): Promise<Erased> {
    return erase(this.database, tenant, options);
  }

  /** A word that opens one job, or all jobs of one key, for reading: for the browser of a customer who follows it. Made without asking the database. */
  readToken(options: ReadTokenOptions): string {
    if (this.#secrets.length > 0) return signReadToken(this.#secrets, options);
    throw new InvalidInput("This client has no secret to sign with", {
      field: "secret",
      remedy: "Create it with the server's: createStillwake({ url, secret: process.env.STILLWAKE_SECRET })",
    });
  }

  /** What must happen even if every worker is dead: recovers, expires, prepares partitions, prunes. Once a minute, from any scheduler. */
  watchdog(): Promise<verbs.WatchdogAct[]> {
    return verbs.watchdog(this.database);
  }

  /** Lets statements in flight finish. */
  async close(): Promise<void> {
    this.#poker?.close();
    await this.feed.close();
    await this.database.close();
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
