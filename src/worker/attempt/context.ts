// The job as user code sees it: one object per attempt. Every method delegates; after the attempt has ended all of them throw.
import type pg from "pg";
import type { Breaker } from "../../contract/breaker.ts";
import type { Limit } from "../../contract/limit.ts";
import type { Pipeline, Schema } from "../../contract/pipeline.ts";
import type { Learn } from "../../contract/rate-limit-headers.ts";
import { type ScheduledFor, scheduledFor } from "../../db/calls/job.ts";
import type { OnError } from "../../db/calls/long-work.ts";
import { type Duration, durationMs } from "../../time.ts";
import type { Exec, ExecOptions } from "../exec/exec.ts";
import type { AttemptState } from "./attempt-state.ts";
import { type Children, type Results, type SpawnOptions, spawnChildren } from "./children.ts";
import {
  type Each,
  type EachOptions,
  type Items,
  type NoResult,
  type ReducedEach,
  type Reducer,
  runEach,
} from "./each.ts";
import type { FetchNeeds } from "./limits-and-breakers.ts";
import type { Artifact, ArtifactProducer } from "./produce-artifact.ts";
import { type BatchHandle, Handle, type Log, type StepHandle } from "./step-handle.ts";
import { checkStep, type StepOptions } from "./steps.ts";
import { type Begin, runTxStep, type TransactionOf } from "./tx-step.ts";
import { type WaitOptions, waitForEvent } from "./wait-for.ts";

export type StepFunction<Result> = (step: StepHandle) => Promise<Result> | Result;

export class JobContext {
  readonly id: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly key: string | null;
  readonly tenant: string | null;
  /** The schedule that created the job and its occurrence, if a schedule did. */
  readonly schedule: ScheduledFor | null;
  readonly #attempt: AttemptState;

  constructor(attempt: AttemptState) {
    this.#attempt = attempt;
    const { assignment } = attempt;
    this.id = assignment.job;
    this.attempt = assignment.attempt;
    this.maxAttempts = assignment.maxAttempts;
    this.key = assignment.key;
    this.tenant = assignment.tenant;
    this.schedule = scheduledFor(assignment.origin);
  }

  /** Aborts when the job is cancelled, its lease is lost, a limit is exceeded or the worker shuts down. */
  get signal(): AbortSignal {
    return this.#attempt.signal;
  }

  /**
   * Grows with every attempt at this job: external systems can use it to reject a replaced attempt. It may repeat after a
   * failover to an asynchronous standby, which did not have the last claims.
   */
  get fencingToken(): number {
    return Number(this.#attempt.assignment.epoch);
  }

  get log(): Log {
    return this.#attempt.log;
  }

  /** A part whose failure fails the attempt. Its result is saved as a checkpoint: it never runs again after success. */
  step<Result>(name: string, run: StepFunction<Result>): Promise<Result>;
  step<Result>(name: string, options: StepOptions<NoInfer<Result>>, run: StepFunction<Result>): Promise<Result>;
  async step<Result>(
    name: string,
    options: StepOptions<Result> | StepFunction<Result>,
    run?: StepFunction<Result>,
  ): Promise<Result> {
    const steps = this.#attempt.beginStep();
    const [settings, work] = typeof options === "function" ? [{}, options] : [options, run!];
    checkStep(name, settings, work);
    return this.#attempt.call("Step", name, () =>
      steps.critical(name, settings, (scope) => work(new Handle(scope, this.#attempt))),
    );
  }

  /** A step the job can do without: a failure logs a warning, returns undefined and is listed in `missing`. */
  optional<Result>(name: string, run: StepFunction<Result>): Promise<Result | undefined>;
  optional<Result>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    run: StepFunction<Result>,
  ): Promise<Result | undefined>;
  async optional<Result>(
    name: string,
    options: StepOptions<Result> | StepFunction<Result>,
    run?: StepFunction<Result>,
  ): Promise<Result | undefined> {
    const steps = this.#attempt.beginStep();
    const [settings, work] = typeof options === "function" ? [{}, options] : [options, run!];
    checkStep(name, settings, work);
    return this.#attempt.call("Step", name, () =>
      steps.optional(name, settings, (scope) => work(new Handle(scope, this.#attempt))),
    );
  }

  /** A step whose rows and checkpoint commit together, in your own transaction: exactly once inside your Postgres. */
  tx<Result>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    pool: pg.Pool,
    run: (tx: pg.PoolClient, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result>;
  // biome-ignore lint/suspicious/noExplicitAny: the type of the transaction cannot be inferred.
  tx<Result, Tx = any>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    begin: (run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown>,
    run: (tx: Tx, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result>;
  async tx<Result, Tx>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    begin: Begin<Tx>,
    run: (tx: Tx, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result> {
    return this.#attempt.call("Step", name, () => runTxStep(this.#attempt, name, options, begin, run));
  }

  /** Sleeps durably: no slot is occupied, and a later attempt does not sleep again. Named like a step. */
  async sleep(name: string, time: Duration | Date): Promise<void> {
    this.#attempt.check();
    return this.#attempt.call("Sleep", name, async () => {
      if (await this.#attempt.steps.begin(name)) return;
      const when = time instanceof Date ? { until: time.toISOString() } : { forMs: durationMs(time, "sleep") };
      this.#attempt.suspend({ kind: "slept", ...when, waitingFor: "time", step: name }, `The job sleeps in "${name}"`);
    });
  }

  /** Progress as a fraction from 0 to 1 or as done of total. Call it as often as you like: it is throttled. */
  progress(value: number | { done: number; total: number }, sentence?: string): void {
    this.#attempt.progress(value, sentence);
  }

  /** Runs a command without a shell. Returns a promise of its result and an async iterator of its lines. */
  exec(command: string, args: readonly string[] = [], options: ExecOptions = {}): Exec {
    return this.#attempt.exec(this.#attempt.commandLog, () => this.signal, command, args, options);
  }

  /** Stores a file, complete or not at all. The producer is not called if an earlier attempt stored it. */
  async artifact(name: string, producer: ArtifactProducer): Promise<Artifact> {
    return this.#attempt.call("Artifact", name, () => this.#attempt.artifacts().make(name, producer));
  }

  /** The path of a readable copy of an artifact in the scratch directory; fetched if an earlier attempt stored it. */
  async artifactFile(name: string): Promise<string> {
    return this.#attempt.artifacts().file(name);
  }

  /** A directory for this attempt, readable only by its user and removed when the attempt ends. */
  scratch(): Promise<string> {
    return this.#attempt.scratch();
  }

  /** Redacts a value from logs, progress and failures of this job: a string, or all leaves of an object. */
  secret(value: unknown): void {
    this.#attempt.redactor.add(value);
  }

  /** Resolves when all log lines and progress so far are stored. */
  flush(): Promise<void> {
    return this.#attempt.flush();
  }

  /**
   * Node's fetch under a limit and a breaker: waits for a use of the limit, learns from the response, and gives up the
   * slot when the limit is used up or the breaker is open. Completed steps are kept.
   */
  async fetch(url: string | URL | Request, init?: RequestInit, needs: FetchNeeds = {}): Promise<Response> {
    return this.#attempt.limits().fetch(url, init, needs);
  }

  /** See `limit.take(job, count)`. */
  async take(limit: Limit, count = 1): Promise<void> {
    return this.#attempt.limits().takeByHand(limit, count);
  }

  /** See `limit.observe(job, response)`. */
  async observe(limit: Limit, response: Parameters<Learn>[0]): Promise<void> {
    return this.#attempt.limits().observe(limit, response);
  }

  /** See `breaker.call(job, run)`. */
  async call<Result>(breaker: Breaker, run: () => Promise<Result> | Result): Promise<Result> {
    return this.#attempt.limits().call(breaker, run);
  }

  /**
   * Enqueues one job of a pipeline per input as children of this job, once: a later attempt finds them. `key` names the
   * spawn if a job has several of one pipeline. Cancelling this job cancels its children.
   */
  async spawn<Input, Output, Result, Mode extends OnError = "fail">(
    pipeline: Pipeline<Input, Output, Result>,
    inputs: readonly NoInfer<Input>[],
    options: SpawnOptions<Mode> = {},
  ): Promise<Children<Results<Result, Mode>>> {
    return this.#attempt.call("Spawn", options.key ?? pipeline?.name, () =>
      spawnChildren(this.#attempt, pipeline, inputs, options),
    );
  }

  /**
   * Waits for a signal from outside, `sw.signal(job.id, "approval", data)`, without occupying a slot, and returns its
   * data if they match the schema. Named like a step; `step` names each of several waits for one event.
   */
  async waitFor<Data = unknown>(event: string, schema?: Schema<unknown, Data>, options?: WaitOptions): Promise<Data>;
  async waitFor<Data>(event: string, schema?: Schema<unknown, Data>, options: WaitOptions = {}): Promise<Data> {
    return this.#attempt.call("Wait", event, () => waitForEvent(this.#attempt, event, schema, options));
  }

  /**
   * Processes a long list in batches and saves the position after each; with `tx`, in the transaction of the batch's
   * rows. A later attempt resumes after the last saved batch, so variables that `run` changes outside of itself lose
   * what earlier attempts have added: pass a reducer to keep results. Shortly before the attempt's time is over, the
   * job is released for another attempt, which does not count as a failure.
   */
  // biome-ignore lint/suspicious/noExplicitAny: any type of transaction; TransactionOf finds it.
  each<Item, Begins extends Begin<any> | undefined = undefined>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, Begins>,
    run: (batch: Item[], handle: BatchHandle<TransactionOf<Begins>>) => NoResult,
  ): Promise<Each>;
  /** The same with a reducer: the results of `run` are reduced to a value that is saved together with the position. */
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  each<Item, Result, Value, Begins extends Begin<any> | undefined = undefined>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, Begins>,
    run: (batch: Item[], handle: BatchHandle<TransactionOf<Begins>>) => Promise<Result> | Result,
    reducer: Reducer<Value, NoInfer<Result>>,
  ): Promise<ReducedEach<Value>>;
  async each<Item, Result, Value, Tx>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, Begin<Tx>>,
    run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<Result> | Result,
    reducer?: Reducer<Value, Result>,
  ): Promise<Each | ReducedEach<Value>> {
    return this.#attempt.call("List", name, () => runEach(this.#attempt, name, items, options ?? {}, run, reducer));
  }
}
