// job.each(): processes a long list in batches. After each batch its position is saved, in the transaction of the batch's rows if there is
// one, so that a later attempt neither repeats nor skips items. The position is a set of ranges, because parallel batches finish in any
// order. With a reducer, the value of the results so far is saved in the same statement as the position. Shortly before the attempt's time
// is over, the job is released.
import { setTimeout as delay } from "node:timers/promises";
import { type PositionCall, savePositionInTransaction } from "../../db/calls/long-work.ts";
import { sendThroughTransaction, type Transaction } from "../../db/transaction.ts";
import { InvalidInput, isConflict } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import { checkInteger, rejectUnknownOptions } from "../../validate.ts";
import type { AttemptState } from "./attempt-state.ts";
import { checkpointKind, decodeCheckpoint, encodeCheckpoint } from "./checkpoint-codec.ts";
import { Batch, type BatchHandle } from "./step-handle.ts";
import type { StepOptions, StepScope } from "./steps.ts";
import { type Begin, inTransaction } from "./tx-step.ts";

/** Where a source starts: the number of items done without a gap, and the `cursor` of the last of them. */
export interface From {
  done: number;
  after: unknown;
}

type Source<Item> = Iterable<Item> | AsyncIterable<Item>;

/** An iterable, whose done items are skipped, or a function that receives where to start and returns one. */
export type Items<Item> = readonly Item[] | Source<Item> | ((from: From) => Source<Item> | Promise<Source<Item>>);

export interface EachOptions<Item, Begins = undefined>
  extends Pick<StepOptions, "start" | "timeout" | "silence" | "retry"> {
  /** Items per batch. Default 100. */
  batch?: number;
  /** Batches at once. Default 1. */
  parallel?: number;
  /** The number of items, if it is known and `items` is not an array. */
  total?: number;
  /** Plain data that identifies an item: passed as `after` to the function that returns the items. */
  cursor?(item: Item): unknown;
  /** Commits rows and position together, in `handle.tx`: a pg.Pool, or `(run) => db.transaction(run)`. */
  tx?: Begins;
  /** Log line written when all items are done. */
  end?: string | ((each: Each) => string);
}

export interface Each {
  /** Items processed by this attempt and earlier ones. */
  done: number;
}

export interface ReducedEach<Value> extends Each {
  /** The results of all batches, of this attempt and earlier ones, reduced to one value. */
  value: Value;
}

/** Of the function of each() without a reducer, which keeps no results; also Promise.all() of functions without a result. */
// biome-ignore lint/suspicious/noConfusingVoidType: the elements are results of functions.
export type NoResult = Promise<void | void[]> | void;

/** Reduces the results of the batches to one value, which is saved together with the position. */
export interface Reducer<Value, Result> {
  /** The value before the first batch. */
  initial: Value;
  /** Called once per batch, in the order in which batches are saved; with `parallel` that is not the order of the list. */
  reduce(value: Value, result: Result): Value;
}

interface Position {
  /** Half-open ranges of items that are done, in order. */
  ranges: [number, number][];
  after: unknown;
  over: boolean;
  /** The value of the reducer as JSON; undefined if none was saved. */
  value: string | undefined;
}

type RunBatch<Item, Tx, Result> = (batch: Item[], handle: BatchHandle<Tx>) => Promise<Result> | Result;

/** Rolls back a batch that another attempt has already saved. */
class AlreadyDone extends Error {}

const optionNames = "start end batch parallel total cursor tx timeout silence retry".split(" ");
/** Parallel batches update the same checkpoint: under REPEATABLE READ they conflict and are rolled back. */
const MAX_CONFLICTS = 20;

export async function runEach<Item, Tx, Result, Value>(
  attempt: AttemptState,
  name: string,
  items: Items<Item>,
  options: EachOptions<Item, Begin<Tx>>,
  run: RunBatch<Item, Tx, Result>,
  reducer: Reducer<Value, Result> | undefined,
): Promise<Each | ReducedEach<Value>> {
  const steps = attempt.beginStep();
  const { batch = 100, parallel = 1, start, end } = options;
  rejectUnknownOptions(options, optionNames);
  checkInteger(batch, "batch", 1, 100_000);
  checkInteger(parallel, "parallel", 1, 1000);
  if (options.total !== undefined && options.total !== 0) {
    checkInteger(options.total, "total", 1, Number.MAX_SAFE_INTEGER);
  }
  const iterable = items as { [Symbol.iterator]?: unknown; [Symbol.asyncIterator]?: unknown } | null | undefined;
  if (typeof items !== "function" && !iterable?.[Symbol.iterator] && !iterable?.[Symbol.asyncIterator]) {
    throw new InvalidInput(`The items of "${name}" are not iterable`, {
      field: "items",
      remedy: "Pass an array, an iterable, or a function that returns one",
    });
  }
  if (reducer !== undefined && (!Object.hasOwn(reducer, "initial") || typeof reducer.reduce !== "function")) {
    throw new InvalidInput(`The reducer of "${name}" has no initial value or no function reduce`, {
      field: "reducer",
      remedy: "Pass { initial: 0, reduce: (value, result) => … }",
    });
  }
  const total = Array.isArray(items) ? items.length : options.total;
  const saved = await steps.begin(name);
  if (saved && checkpointKind(saved.raw) !== "position") {
    throw new InvalidInput(`"${name}" is a list of job.each() now, but an earlier attempt saved it as a step`, {
      field: "name",
      remedy: "Give the list another name, or raise the version of the pipeline",
    });
  }
  const position = readPosition(saved?.raw);
  const value = reducer && new SavedValue(name, position, reducer);
  if (position.over) return toResult(countItems(position.ranges), value);
  const list = new BatchedList(attempt, name, options, position, total, run, value);
  const endMessage = typeof end === "function" ? end : ({ done }: Each) => end ?? `${done} items done`;
  return steps.track(name, { ...(start !== undefined && { start }), end: endMessage }, (writeEnd) =>
    list.process(items, batch, parallel, writeEnd),
  );
}

function toResult<Value>(done: number, value: SavedValue<Value, never> | undefined): Each | ReducedEach<Value> {
  return value ? { done, value: value.current } : { done };
}

/**
 * The value of a reducer as it was saved last. It is kept as JSON: reduce() receives a new copy each time, so that a
 * value that it has changed and that was not saved is not used again. Batches save one at a time, from reduce() to the
 * end of their transaction: each value includes the one before.
 */
class SavedValue<Value, Result> {
  readonly #name: string;
  readonly #reduce: Reducer<Value, Result>["reduce"];
  #json: string;
  #turn: Promise<void> = Promise.resolve();

  constructor(name: string, { ranges, value }: Position, { initial, reduce }: Reducer<Value, Result>) {
    if (value === undefined && ranges.length > 0) {
      throw new InvalidInput(`"${name}" has a reducer now, but an earlier attempt saved batches of it without one`, {
        field: "reducer",
        remedy: "Give the list another name, or raise the version of the pipeline",
      });
    }
    this.#name = name;
    this.#reduce = reduce;
    this.#json = value ?? this.#encode(initial);
  }

  get current(): Value {
    return decodeCheckpoint(JSON.parse(this.#json)) as Value;
  }

  get json(): string {
    return this.#json;
  }

  /** Waits until no other batch is being saved. The caller must call the returned function when its own is saved or failed. */
  async enter(): Promise<() => void> {
    const before = this.#turn;
    let leave = () => {};
    this.#turn = new Promise((resolve) => {
      leave = resolve;
    });
    await before;
    return leave;
  }

  /** The value with this result, as JSON. It becomes the current one by saved(). */
  with(result: Result): string {
    return this.#encode(this.#reduce(this.current, result));
  }

  saved(json: string): void {
    this.#json = json;
  }

  #encode(value: Value): string {
    return encodeCheckpoint(value, `The value of "${this.#name}"`);
  }
}

class BatchedList<Item, Tx, Result, Value> {
  readonly #attempt: AttemptState;
  readonly #name: string;
  readonly #options: EachOptions<Item, Begin<Tx>>;
  readonly #position: Position;
  readonly #total: number | undefined;
  readonly #run: RunBatch<Item, Tx, Result>;
  readonly #value: SavedValue<Value, Result> | undefined;
  readonly #startedAt = performance.now();
  readonly #doneBefore: number;
  #done: number;
  #longestMs = 0;
  #failed: { error: unknown } | undefined;

  constructor(
    attempt: AttemptState,
    name: string,
    options: EachOptions<Item, Begin<Tx>>,
    position: Position,
    total: number | undefined,
    run: RunBatch<Item, Tx, Result>,
    value: SavedValue<Value, Result> | undefined,
  ) {
    this.#attempt = attempt;
    this.#name = name;
    this.#options = options;
    this.#position = position;
    this.#total = total;
    this.#run = run;
    this.#value = value;
    this.#done = countItems(position.ranges);
    this.#doneBefore = this.#done;
  }

  async process(
    items: Items<Item>,
    size: number,
    parallel: number,
    writeEnd: (result: Each | ReducedEach<Value>) => void,
  ): Promise<Each | ReducedEach<Value>> {
    const attempt = this.#attempt;
    const running = new Set<Promise<void>>();
    let releases = false;
    try {
      for await (const { first, batch } of splitIntoBatches(items, this.#position, size)) {
        if (running.size >= parallel) await Promise.race(running);
        if (this.#failed) break;
        const outOfTime = performance.now() + this.#longestMs > attempt.releaseAt;
        // Another running step would lose its work.
        releases = this.#done > this.#doneBefore && outOfTime && attempt.steps.runningCount <= 1;
        if (releases) break;
        attempt.check();
        const run = this.#runBatch(batch, first).finally(() => running.delete(run));
        running.add(run);
      }
    } catch (error) {
      this.#failed ??= { error };
    }
    // Running batches finish even after a failure: their work is saved.
    await Promise.all(running);
    if (this.#failed) throw this.#failed.error;
    if (releases) {
      const message = `The job is released with ${this.#describeProgress()} done`;
      return attempt.suspend({ kind: "released", reason: "released:time" }, message);
    }
    const value = this.#value?.json ?? null;
    const result = toResult(this.#done, this.#value);
    if (this.#done === 0) attempt.log.info(`Nothing to do: "${this.#name}" has no items`);
    writeEnd(result);
    attempt.logWriter.flush();
    await attempt.host.port.savePosition({ step: this.#name, from: 0, to: 0, last: null, over: true, value });
    attempt.sendProgress({ done: this.#done, total: this.#done });
    return result;
  }

  async #runBatch(batch: Item[], first: number): Promise<void> {
    const { steps } = this.#attempt;
    const startedAt = performance.now();
    // The idempotency key is derived from this name, so it must identify exactly these items.
    const label = `${this.#name} ${first}-${first + batch.length}`;
    try {
      const run = (scope: StepScope) => this.#repeatOnConflict(batch, first, scope);
      await steps.runWithLimits(label, this.#options as StepOptions<void>, run, this.#name);
    } catch (error) {
      this.#failed ??= { error };
      return;
    }
    steps.savedCount += 1;
    this.#longestMs = Math.max(this.#longestMs, performance.now() - startedAt);
    this.#done += batch.length;
    const progress = { done: this.#done, sentence: this.#describeProgress() };
    this.#attempt.sendProgress(this.#total === undefined ? progress : { ...progress, total: this.#total });
  }

  async #repeatOnConflict(batch: Item[], first: number, scope: StepScope): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#runAndSave(batch, first, scope);
      } catch (error) {
        if (attempt >= MAX_CONFLICTS || !hasConflict(error)) throw error;
        await delay(backoffMs(Math.min(attempt, 6), 5, 200));
        this.#attempt.check();
      }
    }
  }

  async #runAndSave(batch: Item[], first: number, scope: StepScope): Promise<void> {
    const attempt = this.#attempt;
    const { port, faultPoint } = attempt.host;
    const { tx: begin, cursor } = this.#options;
    const last = cursor ? JSON.stringify(cursor(batch.at(-1)!) ?? null) : null;
    const call: PositionCall = {
      step: this.#name,
      from: first,
      to: first + batch.length,
      last,
      over: false,
      value: null,
    };
    let leave: (() => void) | undefined;
    /** Adds the result of the batch to the value. */
    const reduce = async (result: Result) => {
      leave = await this.#value?.enter();
      attempt.checkMayWrite();
      call.value = this.#value?.with(result) ?? null;
      faultPoint?.("before", this.#name);
    };
    try {
      if (begin) {
        await this.#runInTransaction(batch, scope, begin, call, reduce);
      } else {
        await reduce(await this.#run(batch, new Batch(scope, attempt, this.#name, first, undefined as Tx)));
        attempt.logWriter.flush();
        if ((await port.savePosition(call)) === "kept") await this.#findSaved(call);
      }
      if (call.value !== null) this.#value?.saved(call.value);
    } finally {
      leave?.();
    }
    faultPoint?.("after", this.#name);
  }

  async #runInTransaction(
    batch: Item[],
    scope: StepScope,
    begin: Begin<Tx>,
    call: PositionCall,
    reduce: (result: Result) => Promise<void>,
  ): Promise<void> {
    const attempt = this.#attempt;
    const { schema, job, epoch, lease } = attempt.assignment;
    let sent = false;
    try {
      await inTransaction(begin, async (tx) => {
        await reduce(await this.#run(batch, new Batch(scope, attempt, call.step, call.from, tx as Tx)));
        const send = sendThroughTransaction(tx as Transaction);
        await attempt.flushBeforeCommit();
        const result = await savePositionInTransaction(send, schema, { job, epoch, lease }, call);
        if (result === "kept") throw new AlreadyDone();
        sent = true;
      });
    } catch (error) {
      const isDone = error instanceof AlreadyDone;
      if (!isDone && (!sent || hasConflict(error))) throw error;
      // If only the response to COMMIT was lost, the batch is done and its position and value are saved.
      if (!(await this.#findSaved(call)) && !isDone) throw error;
    }
  }

  /** Whether the batch is saved. If so, the value of the call becomes the one that was saved, possibly by another try. */
  async #findSaved(call: PositionCall): Promise<boolean> {
    const saved = (await this.#attempt.host.port.checkpoints()).find(({ step }) => step === this.#name);
    const { ranges, value } = readPosition(saved?.output);
    if (!ranges.some(([from, to]) => from <= call.from && call.to <= to)) return false;
    if (this.#value) call.value = value ?? call.value;
    return true;
  }

  #describeProgress(): string {
    const minutes = (performance.now() - this.#startedAt) / 60_000;
    const rate = Math.round((this.#done - this.#doneBefore) / Math.max(minutes, 1 / 600));
    const total = this.#total === undefined ? "" : ` of ${this.#total}`;
    return `${this.#done}${total}, ${rate} per minute`;
  }
}

/** Batches of consecutive items that are not done. */
async function* splitIntoBatches<Item>(
  items: Items<Item>,
  { ranges, after }: Position,
  size: number,
): AsyncGenerator<{ first: number; batch: Item[] }> {
  const done = doneWithoutGap(ranges);
  const isFunction = typeof items === "function";
  const source = isFunction ? await items({ done, after }) : Array.isArray(items) ? items.slice(done) : items;
  let index = isFunction || Array.isArray(items) ? done : 0;
  let batch: Item[] = [];
  for await (const item of source as AsyncIterable<Item>) {
    if (ranges.some(([from, to]) => from <= index && index < to)) {
      if (batch.length > 0) yield { first: index - batch.length, batch };
      batch = [];
    } else {
      batch.push(item);
    }
    index += 1;
    if (batch.length < size) continue;
    yield { first: index - batch.length, batch };
    batch = [];
  }
  if (batch.length > 0) yield { first: index - batch.length, batch };
}

/** Parses a checkpoint as save_position() in SQL writes it. */
function readPosition(raw: unknown): Position {
  if (checkpointKind(raw) !== "position") return { ranges: [], after: undefined, over: false, value: undefined };
  const [, stored] = (raw as { $stillwake: [string, Record<string, unknown>] }).$stillwake;
  const ranges = [...String(stored.done).matchAll(/\[(\d+),(\d+)\)/g)].map(([, from, to]): [number, number] => [
    Number(from),
    Number(to),
  ]);
  const after = (stored.lasts as Record<string, unknown>)?.[doneWithoutGap(ranges)];
  const value = stored.value === undefined ? undefined : JSON.stringify(stored.value);
  return { ranges, after, over: stored.over === true, value };
}

/** The number of items done from the start of the list. */
function doneWithoutGap(ranges: [number, number][]): number {
  return ranges[0]?.[0] === 0 ? ranges[0][1] : 0;
}

function countItems(ranges: [number, number][]): number {
  return ranges.reduce((count, [from, to]) => count + to - from, 0);
}

/** Libraries wrap the errors of the driver. */
function hasConflict(error: unknown): boolean {
  return isConflict(error) || (error instanceof Error && error.cause !== undefined && hasConflict(error.cause));
}
