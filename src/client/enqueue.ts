// Enqueues jobs: checks the input, seals it, registers the contract once, and stores the jobs. Concurrent calls of
// enqueue() share statements and commits through db/batcher.ts; db/calls/jobs.ts sends them.
import { type Pipeline, validateInput } from "../contract/pipeline.ts";
import { createBatcher } from "../db/batcher.ts";
import { registerDependency, registerDependencyInTransaction } from "../db/calls/flow.ts";
import type { JobId } from "../db/calls/job.ts";
import * as calls from "../db/calls/jobs.ts";
import type { Database } from "../db/database.ts";
import { OtherDatabase, type Send, sendThroughTransaction } from "../db/transaction.ts";
import { InvalidInput, KeyTaken } from "../errors.ts";
import { newId } from "../ids.ts";
import { checkLabel, toJson } from "../payload.ts";
import { type KeyRing, sealInput } from "../secrets/seal.ts";
import { loadTracing, type TraceCarrier, type Tracing } from "../tracing.ts";
import {
  type EnqueueManyOptions,
  type EnqueueOptions,
  type Labels,
  resolveLabels,
  toSqlOptions,
} from "./enqueue-options.ts";
import type { Poker } from "./poke.ts";

export interface Enqueued<Output = unknown> {
  id: JobId<Output>;
  /** True when the job existed already: it has the same idempotency key, or is the active job of the same key. */
  existing: boolean;
}

/** One job of a statement. */
interface EnqueueCall extends Labels {
  pipeline: string;
  id: string;
  input: string;
  options: Record<string, unknown>;
  idempotencyKey: string | null;
  trace: TraceCarrier | undefined;
}

type Batcher = (call: EnqueueCall) => Promise<string | Error>;

const MAX_BATCH = 10_000;
/** A statement takes no further job once its inputs have this many characters of JSON. */
const MAX_JSON = 16 * 1024 * 1024;

export class Enqueuer {
  readonly #database: Database;
  readonly #keyRing: KeyRing | undefined;
  readonly #poker: Poker | undefined;
  readonly #registering = new Map<string, Promise<void>>();
  readonly #registered = new Set<string>();
  readonly #batcher: Batcher;
  /** A statement waits for a key that another transaction has locked; jobs without a key must not wait behind it. */
  readonly #keyedBatcher: Batcher;
  /** Pipelines given by name may have keys that only the database knows. */
  readonly #namedBatcher: Batcher;
  #tracing: Tracing | undefined;

  constructor(database: Database, keyRing: KeyRing | undefined, poker: Poker | undefined) {
    this.#database = database;
    this.#keyRing = keyRing;
    this.#poker = poker;
    const create = () =>
      createBatcher<EnqueueCall, string | Error>({
        groupOf: (call) => `${call.pipeline}\n${JSON.stringify(call.options)}`,
        sizeOf: (call) => call.input.length,
        send: (batch) => this.#send(batch),
        maxCalls: 1000,
        maxSize: MAX_JSON,
        lanes: 2,
      });
    this.#batcher = create();
    this.#keyedBatcher = create();
    this.#namedBatcher = create();
  }

  async enqueue(pipeline: Pipeline | string, input: unknown, options: EnqueueOptions): Promise<Enqueued> {
    const sqlOptions = toSqlOptions(options);
    const idempotencyKey =
      options.idempotencyKey === undefined ? null : checkLabel(options.idempotencyKey, "idempotencyKey");
    const send = options.tx === undefined ? undefined : sendThroughTransaction(options.tx);
    const name = checkPipeline(pipeline);
    const value = hasSchema(pipeline) ? await validateInput(pipeline, input) : input;
    const json = toJson(value, "input");
    await this.#ensureRegistered(pipeline, send);
    const trace = await this.#readTrace();
    const labels = resolveLabels(pipeline, value, options, "input");
    const call = this.#seal(pipeline, {
      pipeline: name,
      id: newId(),
      input: json,
      options: sqlOptions,
      idempotencyKey,
      trace,
      ...labels,
    });
    const unkeyedBatcher = typeof pipeline === "string" ? this.#namedBatcher : this.#batcher;
    const batcher = idempotencyKey === null && labels.key === null ? unkeyedBatcher : this.#keyedBatcher;
    const id = send ? (await this.#sendInTransaction(send, toBatch([call])))[0]! : await batcher(call);
    if (id instanceof Error) throw id;
    if (send) this.#poker?.pokeLater();
    else await this.#poker?.poke();
    return { id, existing: id !== call.id };
  }

  async enqueueMany(
    pipeline: Pipeline | string,
    inputs: readonly unknown[],
    options: EnqueueManyOptions,
  ): Promise<Enqueued[]> {
    if (!Array.isArray(inputs))
      throw new InvalidInput("inputs is not an array", { field: "inputs", remedy: "Pass one element per job" });
    const sqlOptions = toSqlOptions(options, true);
    const readKey = checkIdempotencyKeys(options.idempotencyKeys, inputs.length);
    const send = options.tx === undefined ? undefined : sendThroughTransaction(options.tx);
    const name = checkPipeline(pipeline);
    if (inputs.length === 0) return [];

    const trace = await this.#readTrace();
    const batches: EnqueueCall[][] = [];
    for (let index = 0; index < inputs.length; ) {
      const batch: EnqueueCall[] = [];
      for (let size = 0; index < inputs.length && batch.length < MAX_BATCH && size < MAX_JSON; index++) {
        const at = `inputs[${index}]`;
        const idempotencyKey = readKey(index);
        const value = hasSchema(pipeline) ? await validateInput(pipeline, inputs[index], at) : inputs[index];
        const input = toJson(value, at);
        size += input.length;
        const labels = resolveLabels(pipeline, value, options, at);
        const call = { pipeline: name, id: "", input, options: sqlOptions, idempotencyKey, trace, ...labels };
        // Sealed only to check it before the first statement: the id it is bound to is generated below.
        this.#seal(pipeline, call);
        batch.push(call);
      }
      batches.push(batch);
      // Yield to the event loop between two batches.
      await new Promise(setImmediate);
    }

    await this.#ensureRegistered(pipeline, send);
    const enqueued: Enqueued[] = [];
    for (const batch of batches) {
      // Generated late: Postgres looks up an id that is seconds old before it inserts, in case the call was repeated.
      for (const call of batch) call.id = newId();
      const statement = toBatch(batch.map((call) => this.#seal(pipeline, call)));
      const ids = send
        ? await this.#sendInTransaction(send, statement)
        : await calls.enqueueMany(this.#database, statement);
      for (const [index, id] of ids.entries()) enqueued.push({ id, existing: id !== batch[index]!.id });
    }
    if (send) this.#poker?.pokeLater();
    else await this.#poker?.poke();
    return enqueued;
  }

  /** Registers a contract, once per process. */
  async register({ name, settings, options }: Pipeline): Promise<void> {
    if (this.#registered.has(name)) return;
    const register = async () => {
      for (const need of options.needs ?? []) await registerDependency(this.#database, need);
      await calls.registerPipeline(this.#database, name, settings);
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

  /**
   * With the caller's transaction the contract is registered inside of it, because it may hold the only connection.
   * It can roll back, so the registration is not remembered.
   */
  async #ensureRegistered(pipeline: Pipeline | string, send: Send | undefined): Promise<void> {
    if (typeof pipeline === "string" || this.#registered.has(pipeline.name)) return;
    if (!send) return this.register(pipeline);
    for (const need of pipeline.options.needs ?? [])
      await registerDependencyInTransaction(send, this.#database.schema, need);
    await calls.registerPipelineInTransaction(send, this.#database.schema, pipeline.name, pipeline.settings);
  }

  /** The identity that is known may be out of date: the database may have moved to another cluster. */
  async #sendInTransaction(send: Send, batch: calls.EnqueueBatch): Promise<string[]> {
    const { schema } = this.#database;
    const known = await this.#database.identity();
    try {
      return await calls.enqueueManyInTransaction(send, schema, batch, known);
    } catch (error) {
      const current = error instanceof OtherDatabase ? await this.#database.identity(true) : known;
      if (current === known) throw error;
      return calls.enqueueManyInTransaction(send, schema, batch, current);
    }
  }

  async #readTrace(): Promise<TraceCarrier | undefined> {
    this.#tracing ??= await loadTracing();
    return this.#tracing.inject();
  }

  /** Seals the paths that the contract names. A sealed value is bound to the job's id, or to the pipeline without one. */
  #seal(pipeline: Pipeline | string, call: EnqueueCall): EnqueueCall {
    const paths = typeof pipeline === "string" ? [] : (pipeline.options.sealed ?? []);
    if (paths.length === 0) return call;
    const { id, key, tenant, idempotencyKey } = call;
    const owner = { pipeline: call.pipeline, tenant, job: id || null };
    const input = sealInput(this.#keyRing, paths, JSON.parse(call.input), owner, [key, tenant, idempotencyKey]);
    return { ...call, input: toJson(input, "input") };
  }

  /** The calls of a statement are independent: if the key or the input of one is refused, each is sent again separately. */
  async #send(batch: EnqueueCall[]): Promise<(string | Error)[]> {
    try {
      return await calls.enqueueMany(this.#database, toBatch(batch));
    } catch (error) {
      if (!(error instanceof KeyTaken || error instanceof InvalidInput) || batch.length === 1) throw error;
      return Promise.all(
        batch.map((call) =>
          this.#send([call]).then(
            ([id]) => id!,
            (rejection: Error) => rejection,
          ),
        ),
      );
    }
  }
}

function toBatch(batch: EnqueueCall[]): calls.EnqueueBatch {
  const first = batch[0]!;
  let { options } = first;
  if (batch.some((call) => call.idempotencyKey !== null))
    options = { ...options, idempotency_keys: batch.map((call) => call.idempotencyKey) };
  if (batch.some((call) => call.trace !== undefined))
    options = { ...options, traces: batch.map((call) => call.trace ?? null) };
  if (batch.some((call) => call.key !== null)) options = { ...options, keys: batch.map((call) => call.key) };
  if (batch.some((call) => call.tenant !== null)) options = { ...options, tenants: batch.map((call) => call.tenant) };
  return {
    pipeline: first.pipeline,
    ids: batch.map((call) => call.id),
    inputs: batch.map((call) => call.input),
    options,
  };
}

function checkIdempotencyKeys(keys: unknown, count: number): (index: number) => string | null {
  if (keys === undefined) return () => null;
  if (!Array.isArray(keys) || keys.length !== count) {
    throw new InvalidInput(`idempotencyKeys must be an array of ${count}, one per input`, {
      field: "idempotencyKeys",
      remedy: "Pass one per input, null for none",
    });
  }
  return (index) => (keys[index] === null ? null : checkLabel(keys[index], `idempotencyKeys[${index}]`));
}

function checkPipeline(pipeline: Pipeline | string): string {
  if (typeof pipeline === "string") return pipeline;
  if (typeof pipeline?.name === "string" && pipeline.options && pipeline.settings) return pipeline.name;
  throw new InvalidInput("pipeline is neither a name nor a contract", {
    field: "pipeline",
    remedy: 'Pass the result of pipeline("name", { … }), or the name of a registered pipeline',
  });
}

function hasSchema(pipeline: Pipeline | string): pipeline is Pipeline {
  return typeof pipeline !== "string" && pipeline.options.input !== undefined;
}
