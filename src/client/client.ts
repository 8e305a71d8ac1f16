// The client, `Stillwake`: enqueue, wait, cancel, retry, pause, resume, signal, follow. It inherits all reads from Reader, and its parts
// (flow, costs, schedules, webhooks, tokens) have a file each. Every operation is a function of sql/functions, called through db/calls.
import { setTimeout as delay } from "node:timers/promises";
import type { AnyPipeline, InputOf, OutputOf } from "../contract/pipeline.ts";
import type { WatchdogAction } from "../db/calls/housekeeping.ts";
import type { CompletedJob, JobId, JobState } from "../db/calls/job.ts";
import * as calls from "../db/calls/jobs.ts";
import { type Signalled, signal } from "../db/calls/long-work.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { type Erased, type EraseOptions, erase } from "../db/erase.ts";
import { watchdog } from "../db/housekeeping.ts";
import { tenantDatabase } from "../db/tenant-database.ts";
import { InvalidInput, JobFailed, StillwakeError } from "../errors.ts";
import { checkId } from "../ids.ts";
import { FeedReader } from "../live/feed-reader.ts";
import { type FollowOptions, follow } from "../live/follower.ts";
import type { FollowEvent } from "../live/job-buffer.ts";
import { checkLabel, toJson } from "../payload.ts";
import { readSealKeys, type SealKeys } from "../secrets/seal.ts";
import { type Duration, durationMs } from "../time.ts";
import { rejectUnknownOptions } from "../validate.ts";
import { Costs } from "./costs.ts";
import { type Enqueued, Enqueuer } from "./enqueue.ts";
import type { EnqueueManyOptions, EnqueueOptions } from "./enqueue-options.ts";
import { Flow } from "./flow.ts";
import { Poker, type PokeTarget } from "./poke.ts";
import { checkSecrets, type ReadTokenOptions, signReadToken } from "./read-token.ts";
import { type ArtifactSource, Reader } from "./reader.ts";
import { Schedules } from "./schedules.ts";
import { Tokens } from "./tokens.ts";
import { Webhooks } from "./webhooks.ts";

export interface StillwakeOptions extends DatabaseOptions {
  /** For downloading artifacts. */
  store?: ArtifactSource;
  /**
   * Seals the paths that contracts declare sealed: "k2:base64,k1:base64" (the first key seals), or an object with named
   * keys. Workers need the keys to unseal; the server needs none.
   */
  sealKeys?: SealKeys | string;
  /** A URL that bypasses the pooler, for hints of new log lines to followers. Default: the database URL. */
  directUrl?: string;
  /** Signs read tokens: the server's secret, at least 32 characters. The first of several signs, all are accepted. */
  secret?: string | readonly string[];
  /**
   * Notified of new work, where machines are started on demand: an orchestrator's poke(), or a server's URL. It is only
   * a hint: a failed poke fails no call.
   */
  poke?: PokeTarget;
}

export interface Actor {
  reason?: string;
  by?: string;
}

export class Stillwake extends Reader {
  readonly database: Database;
  /** Limits, breakers, tenant weights and pool caps. */
  readonly flow: Flow;
  /** Machine costs and budgets. */
  readonly costs: Costs;
  /** Webhook endpoints and deliveries. */
  readonly webhooks: Webhooks;
  /** Access tokens of the server, and its audit log. */
  readonly tokens: Tokens;
  /** Reads the feed of all jobs that are followed in this process. */
  readonly feed: FeedReader;
  readonly schedules: Schedules;
  readonly #enqueuer: Enqueuer;
  readonly #secrets: readonly string[];
  readonly #store: ArtifactSource | undefined;
  readonly #poker: Poker | undefined;

  constructor(options: StillwakeOptions) {
    const database = new Database(options);
    super(database, options.store);
    const keyRing = readSealKeys(options.sealKeys);
    const directUrl = options.directUrl ?? options.url;
    const poke = () => this.poke();
    this.database = database;
    this.#secrets = checkSecrets(options.secret);
    this.#store = options.store;
    this.#poker = options.poke === undefined ? undefined : new Poker(options.poke);
    this.#enqueuer = new Enqueuer(database, keyRing, this.#poker);
    this.flow = new Flow(database);
    this.costs = new Costs(database, poke);
    this.webhooks = new Webhooks(database);
    this.tokens = new Tokens(database);
    this.feed = new FeedReader(database, directUrl === undefined ? {} : { directUrl });
    this.schedules = new Schedules(database, (contract) => this.#enqueuer.register(contract), keyRing, poke);
  }

  /** Stores one job and resolves when it is durable. Concurrent calls share one commit. */
  // One signature instead of overloads: the compiler reports a wrong input at its field.
  async enqueue<P extends AnyPipeline | string>(
    pipeline: P,
    input: InputOf<P>,
    options: EnqueueOptions = {},
  ): Promise<Enqueued<OutputOf<P>>> {
    return (await this.#enqueuer.enqueue(pipeline, input, options)) as Enqueued<OutputOf<P>>;
  }

  /**
   * Stores many jobs of one pipeline, in order, in statements of up to 10,000 jobs or about 16 MB. Every input is
   * checked before the first statement is sent. With `tx` all of them commit or roll back together.
   */
  async enqueueMany<P extends AnyPipeline | string>(
    pipeline: P,
    inputs: readonly InputOf<P>[],
    options: EnqueueManyOptions = {},
  ): Promise<Enqueued<OutputOf<P>>[]> {
    return (await this.#enqueuer.enqueueMany(pipeline, inputs, options)) as Enqueued<OutputOf<P>>[];
  }

  /** Registers contracts with the database. enqueue() does this automatically, once per process. */
  async register(...pipelines: AnyPipeline[]): Promise<void> {
    await Promise.all(pipelines.map((pipeline) => this.#enqueuer.register(pipeline)));
  }

  /**
   * Resolves with the job when it has completed; throws JobFailed when it failed or was cancelled. The output has the
   * contract's type if the id is that of enqueue().
   */
  async wait<Output = unknown>(
    id: JobId<Output>,
    options: { timeout?: Duration; signal?: AbortSignal } = {},
  ): Promise<CompletedJob<Output>> {
    const { timeout, signal } = options;
    const deadline =
      timeout === undefined ? Number.POSITIVE_INFINITY : performance.now() + durationMs(timeout, "timeout");
    for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 1.5, 1000)) {
      signal?.throwIfAborted();
      const job = await this.get(id);
      if (job.state === "completed") return job as CompletedJob<Output>;
      if (job.state === "failed" || job.state === "cancelled") throw new JobFailed(id, job.state, job.failure);
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) {
        throw new StillwakeError("TIMEOUT", `Job ${id} is still ${job.state} after ${timeout}`, {
          remedy: "Use a longer timeout, or check why the job does not end",
          field: "timeout",
          retryable: true,
        });
      }
      await delay(Math.min(pauseMs, leftMs), undefined, signal && { signal }).catch(() => {});
    }
  }

  /**
   * For health checks: throws DatabaseUnavailable when Postgres cannot be reached, or when it answers reads and
   * acknowledges no commits because a synchronous standby is away.
   */
  async checkDatabase(): Promise<void> {
    await this.database.checkCommits();
  }

  /** Cancels a waiting job, or requests that a running one stops. Returns its state after the call. */
  async cancel(id: string, actor: Actor = {}): Promise<JobState> {
    return calls.controlJob(this.database, "cancel", [checkId(id), actor.reason ?? null, actor.by ?? null]);
  }

  /** Runs a failed or cancelled job again, from its checkpoints or from the start. */
  async retry(id: string, options: { fromStart?: boolean; by?: string } = {}): Promise<JobState> {
    const by = options.by ?? null;
    return this.#thenPoke(calls.controlJob(this.database, "retry", [checkId(id), options.fromStart ?? false, by]));
  }

  /**
   * Notifies the orchestrator that there may be work. Call it after you commit a transaction in which you enqueued
   * jobs; in all other cases the client does it.
   */
  async poke(): Promise<void> {
    await this.#poker?.poke();
  }

  async #thenPoke<Result>(operation: Promise<Result>): Promise<Result> {
    const result = await operation;
    await this.poke();
    return result;
  }

  /** Sends an event to a job, which receives it with `job.waitFor(event)`, now or later. The result says which event the job waited for. */
  async signal(id: string, event: string, data: unknown = null, actor: Pick<Actor, "by"> = {}): Promise<Signalled> {
    const call = {
      job: checkId(id),
      event: checkLabel(event, "event"),
      data: toJson(data, "data"),
      by: actor.by ?? null,
    };
    return this.#thenPoke(signal(this.database, call));
  }

  async pause(target: string | { pool: string }, actor: Actor = {}): Promise<JobState | undefined> {
    const by = [actor.reason ?? null, actor.by ?? null];
    if (typeof target === "string") return calls.controlJob(this.database, "pause", [checkId(target), ...by]);
    await calls.controlPool(this.database, "pause_pool", [checkLabel(target?.pool, "pool"), ...by]);
  }

  async resume(target: string | { pool: string }, actor: Pick<Actor, "by"> = {}): Promise<JobState | undefined> {
    if (typeof target === "string") {
      return this.#thenPoke(calls.controlJob(this.database, "resume", [checkId(target), actor.by ?? null]));
    }
    await this.#thenPoke(calls.controlPool(this.database, "resume_pool", [checkLabel(target?.pool, "pool")]));
  }

  /** Streams a job's state, log lines, steps, progress and result. Finishes with the job. */
  follow(id: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent, void> {
    return follow(this.feed, id, options);
  }

  /** A reader of one tenant's rows, enforced by the database (row-level security). */
  tenant(name: string): Reader {
    return new Reader(tenantDatabase(this.database, name), this.#store);
  }

  /** Deletes all data of a tenant: jobs, dependent rows, artifacts in the store. Call it again if it was interrupted. */
  erase(tenant: string, options: EraseOptions = {}): Promise<Erased> {
    return erase(this.database, tenant, options);
  }

  /** Signs a token that gives a customer's browser read access to one job, or to all jobs of one key. No database call. */
  readToken(options: ReadTokenOptions): string {
    if (this.#secrets.length > 0) return signReadToken(this.#secrets, options);
    throw new InvalidInput("This client has no secret for signing read tokens", {
      field: "secret",
      remedy: "Pass the server's secret: createStillwake({ url, secret: process.env.STILLWAKE_SECRET })",
    });
  }

  /** Recovers, expires, creates partitions, prunes. Workers, servers and orchestrators do it by themselves; call it where none runs. */
  watchdog(): Promise<WatchdogAction[]> {
    return watchdog(this.database);
  }

  /** Waits for statements in flight. */
  async close(): Promise<void> {
    this.#poker?.close();
    await this.feed.close();
    await this.database.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const optionNames =
  "url pool schema connections retryTimeout statementTimeout idleTimeout onOutage store sealKeys directUrl secret poke".split(
    " ",
  );

export function createStillwake(options: StillwakeOptions): Stillwake {
  rejectUnknownOptions(options, optionNames, "createStillwake()");
  return new Stillwake(options);
}
