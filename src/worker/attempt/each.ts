// job.each(): processes a long list in batches. After each batch its position is saved, in the transaction of the batch's rows if there is
// one, so that a later attempt neither repeats nor skips items. The position is a set of ranges, because parallel batches finish in any
// order. Shortly before the attempt's time is over, the job is released.
import { setTimeout as delay } from "node:timers/promises";
import { type PositionCall, savePositionInTransaction } from "../../db/calls/long-work.ts";
import { sendThroughTransaction, type Transaction } from "../../db/transaction.ts";
import { InvalidInput, isConflict } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import { checkInteger, rejectUnknownOptions } from "../../validate.ts";
import type { AttemptState } from "./attempt-state.ts";
import { checkpointKind } from "./checkpoint-codec.ts";
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

export interface EachOptions<Item, Tx = undefined>
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
  tx?: Begin<Tx>;
  /** Log line written when all items are done. */
  end?: string | ((each: Each) => string);
}

export interface Each {
  /** Items processed by this attempt and earlier ones. */
  done: number;
}

interface Position {
  /** Half-open ranges of items that are done, in order. */
  ranges: [number, number][];
  after: unknown;
  over: boolean;
}

type RunBatch<Item, Tx> = (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown;

/** Rolls back a batch that another attempt has already saved. */
class AlreadyDone extends Error {}

const optionNames = "start end batch parallel total cursor tx timeout silence retry".split(" ");
/** Parallel batches update the same checkpoint: under REPEATABLE READ they conflict and are rolled back. */
const MAX_CONFLICTS = 20;

export async function runEach<Item, Tx>(
  attempt: AttemptState,
  name: string,
  items: Items<Item>,
  options: EachOptions<Item, Tx>,
  run: RunBatch<Item, Tx>,
): Promise<Each> {
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
  const total = Array.isArray(items) ? items.length : options.total;
  const saved = await steps.begin(name);
  if (saved && checkpointKind(saved.raw) !== "position") {
    throw new InvalidInput(`"${name}" is a list of job.each() now, but an earlier attempt saved it as a step`, {
      field: "name",
      remedy: "Give the list another name, or raise the version of the pipeline",
    });
  }
  const position = readPosition(saved?.raw);
  if (position.over) return { done: countItems(position.ranges) };
  const list = new BatchedList(attempt, name, options, position, total, run);
  const endMessage = typeof end === "function" ? end : ({ done }: Each) => end ?? `${done} items done`;
  return steps.track(name, { ...(start !== undefined && { start }), end: endMessage }, () =>
    list.process(items, batch, parallel),
  );
}

class BatchedList<Item, Tx> {
  readonly #attempt: AttemptState;
  readonly #name: string;
  readonly #options: EachOptions<Item, Tx>;
  readonly #position: Position;
  readonly #total: number | undefined;
  readonly #run: RunBatch<Item, Tx>;
  readonly #startedAt = performance.now();
  readonly #doneBefore: number;
  #done: number;
  #longestMs = 0;
  #failed: { error: unknown } | undefined;

  constructor(
    attempt: AttemptState,
    name: string,
    options: EachOptions<Item, Tx>,
    position: Position,
    total: number | undefined,
    run: RunBatch<Item, Tx>,
  ) {
    this.#attempt = attempt;
    this.#name = name;
    this.#options = options;
    this.#position = position;
    this.#total = total;
    this.#run = run;
    this.#done = countItems(position.ranges);
    this.#doneBefore = this.#done;
  }

  async process(items: Items<Item>, size: number, parallel: number): Promise<Each> {
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
    await attempt.host.port.savePosition({ step: this.#name, from: 0, to: 0, last: null, over: true });
    if (this.#done === 0) attempt.log.info(`Nothing to do: "${this.#name}" has no items`);
    attempt.sendProgress({ done: this.#done, total: this.#done });
    return { done: this.#done };
  }

  async #runBatch(batch: Item[], first: number): Promise<void> {
    const { steps } = this.#attempt;
    const startedAt = performance.now();
    // The idempotency key is derived from this name, so it must identify exactly these items.
    const label = `${this.#name} ${first}-${first + batch.length}`;
    try {
      await steps.runWithLimits(label, this.#options as StepOptions<void>, (scope) =>
        this.#repeatOnConflict(batch, first, scope),
      );
    } catch (error) {
      if (!(error instanceof AlreadyDone)) {
        this.#failed ??= { error };
        return;
      }
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
    const call: PositionCall = { step: this.#name, from: first, to: first + batch.length, last, over: false };
    if (!begin) {
      await this.#run(batch, new Batch(scope, attempt, first, undefined as Tx));
      attempt.checkMayWrite();
      faultPoint?.("before", this.#name);
      attempt.logWriter.flush();
      await port.savePosition(call);
      faultPoint?.("after", this.#name);
      return;
    }
    const { schema, job, epoch, lease } = attempt.assignment;
    let sent = false;
    try {
      await inTransaction(begin, async (tx) => {
        await this.#run(batch, new Batch(scope, attempt, first, tx as Tx));
        attempt.checkMayWrite();
        faultPoint?.("before", this.#name);
        const send = sendThroughTransaction(tx as Transaction);
        const result = await savePositionInTransaction(send, schema, { job, epoch, lease }, call);
        if (result === "kept") throw new AlreadyDone();
        sent = true;
      });
    } catch (error) {
      if (!sent || hasConflict(error)) throw error;
      // If only the response to COMMIT was lost, the batch is done and its position is saved.
      const saved = (await port.checkpoints()).find(({ step }) => step === this.#name);
      if (!readPosition(saved?.output).ranges.some(([from, to]) => from <= call.from && call.to <= to)) throw error;
    }
    faultPoint?.("after", this.#name);
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
  if (checkpointKind(raw) !== "position") return { ranges: [], after: undefined, over: false };
  const [, stored] = (raw as { $stillwake: [string, Record<string, unknown>] }).$stillwake;
  const ranges = [...String(stored.done).matchAll(/\[(\d+),(\d+)\)/g)].map(([, from, to]): [number, number] => [
    Number(from),
    Number(to),
  ]);
  const after = (stored.lasts as Record<string, unknown>)?.[doneWithoutGap(ranges)];
  return { ranges, after, over: stored.over === true };
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
