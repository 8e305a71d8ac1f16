// A long list, worked off in batches. After each batch its place is saved, in the transaction of the batch's own rows where there is one, so that an
// attempt that goes on neither repeats what was done nor leaves anything out. The place is a set of ranges: batches that run side by side may end in any
// order. When the attempt's time is nearly over it hands its job on.
import { setTimeout as delay } from "node:timers/promises";
import { type PlaceCall, savePlaceThrough } from "../../db/calls/long-work.ts";
import { sendThrough, type Transaction } from "../../db/transaction.ts";
import { InvalidInput, isConflict } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import { checkOptions, type LastingHost } from "./lasting-host.ts";
import { type Begin, opened } from "./own-transaction.ts";
import type { BatchHandle } from "./step-handle.ts";
import { kindOf, type StepOptions, type StepScope } from "./steps.ts";

/** Where to begin: how many items are done without a gap, and what `cursor` said of the last of them. */
export interface From {
  done: number;
  after: unknown;
}

type Source<Item> = Iterable<Item> | AsyncIterable<Item>;

/** A list, or something that yields the items one after the other. A function is told where to begin; of all else the items that are done are skipped. */
export type Items<Item> = readonly Item[] | Source<Item> | ((from: From) => Source<Item> | Promise<Source<Item>>);

export interface EachOptions<Item, Tx = undefined>
  extends Pick<StepOptions, "start" | "timeout" | "silence" | "retry"> {
  /** Items in a batch. Default 100. */
  batch?: number;
  /** Batches at once. Default 1. */
  parallel?: number;
  /** How many items there are, if that is known and they are no array. */
  total?: number;
  /** What finds an item again: given to the function that yields the items as `after`. Plain data. */
  cursor?(item: Item): unknown;
  /** The rows of a batch and its place commit together: a pg.Pool, or `(run) => db.transaction(run)`. The transaction is in `handle.tx`. */
  tx?: Begin<Tx>;
  /** Said at the end. */
  end?: string | ((each: Each) => string);
}

export interface Each {
  /** Items that were worked off, by this attempt and those before it. */
  done: number;
}

interface Place {
  ranges: [number, number][];
  after: unknown;
  over: boolean;
}

/** Somebody has done this batch: nothing of it may be kept. */
class DoneBefore extends Error {}

const known = "start end batch parallel total cursor tx timeout silence retry".split(" ");
/** Batches side by side write one place: under REPEATABLE READ they collide, and are undone as a whole. */
const MAX_CONFLICTS = 20;

export async function workOff<Item, Tx>(
  host: LastingHost,
  name: string,
  items: Items<Item>,
  options: EachOptions<Item, Tx>,
  run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown,
): Promise<Each> {
  const { batch = 100, parallel = 1 } = options;
  checkOptions(options, known);
  checkWhole(batch, "batch", 100_000);
  checkWhole(parallel, "parallel", 1000);
  if (options.total !== undefined && options.total !== 0) checkWhole(options.total, "total", Number.MAX_SAFE_INTEGER);
  const iterable = items as { [Symbol.iterator]?: unknown; [Symbol.asyncIterator]?: unknown } | null | undefined;
  if (typeof items !== "function" && !iterable?.[Symbol.iterator] && !iterable?.[Symbol.asyncIterator]) {
    throw new InvalidInput(`The items of "${name}" are no list`, {
      field: "items",
      remedy: "Pass an array, an iterable, or a function that returns one",
    });
  }
  const total = Array.isArray(items) ? items.length : options.total;
  const kept = await host.steps.begin(name);
  if (kept && kindOf(kept.raw) !== "place") {
    throw new InvalidInput(`"${name}" was a step before, and is a list now`, {
      field: "name",
      remedy: "Give the list a name of its own, or raise the version of the pipeline",
    });
  }
  const place = readPlace(kept?.raw);
  if (place.over) return { done: sum(place.ranges) };
  const work = new Work(host, name, options, place, total, run);
  return host.steps.tell(
    name,
    { ...(options.start !== undefined && { start: options.start }), end: wordsOf(options) },
    () => work.through(items, batch, parallel),
  );
}

class Work<Item, Tx> {
  readonly #host: LastingHost;
  readonly #name: string;
  readonly #options: EachOptions<Item, Tx>;
  readonly #place: Place;
  readonly #total: number | undefined;
  readonly #run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown;
  readonly #began = performance.now();
  readonly #before: number;
  #done: number;
  #longestMs = 0;
  #failed: { error: unknown } | undefined;

  constructor(
    host: LastingHost,
    name: string,
    options: EachOptions<Item, Tx>,
    place: Place,
    total: number | undefined,
    run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown,
  ) {
    this.#host = host;
    this.#name = name;
    this.#options = options;
    this.#place = place;
    this.#total = total;
    this.#run = run;
    this.#done = sum(place.ranges);
    this.#before = this.#done;
  }

  async through(items: Items<Item>, size: number, parallel: number): Promise<Each> {
    const host = this.#host;
    const underWay = new Set<Promise<void>>();
    let tired = false;
    try {
      for await (const { first, batch } of batchesOf(items, this.#place, size)) {
        if (underWay.size >= parallel) await Promise.race(underWay);
        if (this.#failed) break;
        // Alone: what else is under way would be lost.
        tired = this.#done > this.#before && performance.now() + this.#longestMs > host.handOnAt && host.steps.alone;
        if (tired) break;
        host.check();
        const one = this.#one(batch, first).finally(() => underWay.delete(one));
        underWay.add(one);
      }
    } catch (error) {
      this.#failed ??= { error };
    }
    // Those under way are not left behind: what they do counts.
    await Promise.all(underWay);
    if (this.#failed) throw this.#failed.error;
    if (tired) {
      return host.end({ kind: "released", reason: "handed_on" }, `The job is handed on with ${this.#words()} done`);
    }
    await host.port.savePlace({ step: this.#name, from: 0, to: 0, last: null, over: true });
    if (this.#done === 0) host.log.info(`Nothing to do: "${this.#name}" has no items`);
    host.progress({ done: this.#done, total: this.#done });
    return { done: this.#done };
  }

  async #one(batch: Item[], first: number): Promise<void> {
    const { steps } = this.#host;
    const began = performance.now();
    // The same items, the same name: what an outside system has seen of 0-50 is not what it sees of 0-100.
    const label = `${this.#name} ${first}-${first + batch.length}`;
    try {
      await steps.within(label, this.#options as StepOptions<void>, (scope) => this.#undisturbed(batch, first, scope));
    } catch (error) {
      if (!(error instanceof DoneBefore)) {
        this.#failed ??= { error };
        return;
      }
    }
    steps.saved += 1;
    this.#longestMs = Math.max(this.#longestMs, performance.now() - began);
    this.#done += batch.length;
    const progress = { done: this.#done, sentence: this.#words() };
    this.#host.progress(this.#total === undefined ? progress : { ...progress, total: this.#total });
  }

  /** A batch that was undone because another one was quicker is repeated. */
  async #undisturbed(batch: Item[], first: number, scope: StepScope): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#once(batch, first, scope);
      } catch (error) {
        if (attempt >= MAX_CONFLICTS || !hasConflict(error)) throw error;
        await delay(backoffMs(Math.min(attempt, 6), 5, 200));
        this.#host.check();
      }
    }
  }

  async #once(batch: Item[], first: number, scope: StepScope): Promise<void> {
    const host = this.#host;
    const { port, assignment, journal, crashPoint } = host;
    const { tx: begin, cursor } = this.#options;
    const last = cursor ? JSON.stringify(cursor(batch.at(-1)!) ?? null) : null;
    const call: PlaceCall = { step: this.#name, from: first, to: first + batch.length, last, over: false };
    if (!begin) {
      await this.#run(batch, host.batch(scope, first, undefined as Tx));
      host.mayWrite();
      crashPoint?.("before", this.#name);
      journal.handOver();
      await port.savePlace(call);
      crashPoint?.("after", this.#name);
      return;
    }
    const { schema, job, epoch, lease } = assignment;
    let sent = false;
    try {
      await opened(begin, async (tx) => {
        await this.#run(batch, host.batch(scope, first, tx as Tx));
        host.mayWrite();
        crashPoint?.("before", this.#name);
        const result = await savePlaceThrough(sendThrough(tx as Transaction), schema, { job, epoch, lease }, call);
        if (result === "kept") throw new DoneBefore();
        sent = true;
      });
    } catch (error) {
      if (!sent || hasConflict(error)) throw error;
      // The answer to COMMIT may be what was lost, and then the batch is done.
      const kept = (await port.checkpoints()).find(({ step }) => step === this.#name);
      if (!readPlace(kept?.output).ranges.some(([from, to]) => from <= call.from && call.to <= to)) throw error;
    }
    crashPoint?.("after", this.#name);
  }

  #words(): string {
    const minutes = (performance.now() - this.#began) / 60_000;
    const rate = Math.round((this.#done - this.#before) / Math.max(minutes, 1 / 600));
    const of = this.#total === undefined ? "" : ` of ${this.#total}`;
    return `${this.#done}${of}, ${rate} per minute`;
  }
}

/** Batches of items that are not done, each without a gap. */
async function* batchesOf<Item>(
  items: Items<Item>,
  { ranges, after }: Place,
  size: number,
): AsyncGenerator<{ first: number; batch: Item[] }> {
  const done = ranges[0]?.[0] === 0 ? ranges[0][1] : 0;
  const told = typeof items === "function";
  const source = told ? await items({ done, after }) : Array.isArray(items) ? items.slice(done) : items;
  let at = told || Array.isArray(items) ? done : 0;
  let batch: Item[] = [];
  for await (const item of source as AsyncIterable<Item>) {
    if (ranges.some(([from, to]) => from <= at && at < to)) {
      if (batch.length > 0) yield { first: at - batch.length, batch };
      batch = [];
    } else {
      batch.push(item);
    }
    at += 1;
    if (batch.length < size) continue;
    yield { first: at - batch.length, batch };
    batch = [];
  }
  if (batch.length > 0) yield { first: at - batch.length, batch };
}

/** From the checkpoint as save_place() writes it. */
function readPlace(raw: unknown): Place {
  const [kind, place] = (raw as { $stillwake?: [string, Record<string, unknown>] } | undefined)?.$stillwake ?? [];
  if (kind !== "place" || !place) return { ranges: [], after: undefined, over: false };
  const ranges = [...String(place.done).matchAll(/\[(\d+),(\d+)\)/g)].map(([, from, to]): [number, number] => [
    Number(from),
    Number(to),
  ]);
  const done = ranges[0]?.[0] === 0 ? ranges[0][1] : 0;
  return { ranges, after: (place.lasts as Record<string, unknown>)?.[done], over: place.over === true };
}

/** Libraries wrap what the driver throws. */
function hasConflict(error: unknown): boolean {
  return isConflict(error) || (error instanceof Error && error.cause !== undefined && hasConflict(error.cause));
}

function sum(ranges: [number, number][]): number {
  return ranges.reduce((count, [from, to]) => count + to - from, 0);
}

function wordsOf<Item, Tx>({ end }: EachOptions<Item, Tx>): (each: Each) => string {
  return typeof end === "function" ? end : ({ done }) => end ?? `${done} items done`;
}

function checkWhole(value: number, field: string, most: number): void {
  if (Number.isInteger(value) && value >= 1 && value <= most) return;
  throw new InvalidInput(`${field} must be a whole number from 1 to ${most}, not ${String(value)}`, {
    field,
    remedy: "Choose a value within that range",
  });
}
