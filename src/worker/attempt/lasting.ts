// The calls of a job whose work outlives an attempt: others that it spawns and waits for, words from outside, long lists in batches.

import type pg from "pg";
import type { Pipeline, Schema } from "../../contract/pipeline.ts";
import type { OnError } from "../../db/calls/long-work.ts";
import { type Children, type Results, type SpawnOptions, spawnChildren } from "./children.ts";
import { type Each, type EachOptions, type Items, workOff } from "./each.ts";
import type { LastingHost } from "./lasting-host.ts";
import { Needing } from "./limits-and-breakers.ts";
import type { BatchHandle } from "./step-handle.ts";
import { type WaitOptions, waitForEvent } from "./wait-for.ts";

export abstract class Lasting extends Needing {
  /** Throws when the attempt has ended. */
  protected abstract lasting(): LastingHost;

  /**
   * Enqueues one job of a pipeline per input, as children of this one, once: an attempt that goes on finds them. `key` names the spawn where a job has
   * several of one pipeline. Cancelling this job cancels them.
   */
  async spawn<Input, Output, Result, Mode extends OnError = "fail">(
    pipeline: Pipeline<Input, Output, Result>,
    inputs: readonly NoInfer<Input>[],
    options: SpawnOptions<Mode> = {},
  ): Promise<Children<Results<Result, Mode>>> {
    return spawnChildren(this.lasting(), pipeline, inputs, options);
  }

  /**
   * Waits for a word from outside, `sw.signal(job.id, "approval", data)`, without holding a slot, and returns its data when they fit the schema. Named
   * like a step; `step` gives a name of its own to each of several waits for one event.
   */
  async waitFor<Data = unknown>(event: string, schema?: Schema<unknown, Data>, options?: WaitOptions): Promise<Data>;
  async waitFor<Data>(event: string, schema?: Schema<unknown, Data>, options: WaitOptions = {}): Promise<Data> {
    return waitForEvent(this.lasting(), event, schema, options);
  }

  /**
   * Works off a long list in batches and saves its place after each; with `tx` in the transaction of the batch's own rows. An attempt that goes on
   * begins behind the last batch. When the time of the attempt is nearly over the job is handed on, uncharged.
   */
  each<Item>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item> & { tx?: undefined },
    run: (batch: Item[], handle: BatchHandle) => Promise<unknown> | unknown,
  ): Promise<Each>;
  each<Item>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, pg.PoolClient> & { tx: pg.Pool },
    run: (batch: Item[], handle: BatchHandle<pg.PoolClient>) => Promise<unknown> | unknown,
  ): Promise<Each>;
  // biome-ignore lint/suspicious/noExplicitAny: in `(run) => db.transaction(run)` nothing tells the type of the library's transaction.
  each<Item, Tx = any>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, Tx> & { tx: (run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown> },
    run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown,
  ): Promise<Each>;
  async each<Item, Tx>(
    name: string,
    items: Items<Item>,
    options: EachOptions<Item, Tx>,
    run: (batch: Item[], handle: BatchHandle<Tx>) => Promise<unknown> | unknown,
  ): Promise<Each> {
    return workOff(this.lasting(), name, items, options ?? {}, run);
  }
}
