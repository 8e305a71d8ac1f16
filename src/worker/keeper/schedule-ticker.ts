// Runs the due schedules of the pools while every slot of the worker is taken. Normally the claim does that; a full
// worker does not claim, and a long job must not delay schedules. Short jobs free a slot before the first query.

import { runDueSchedules } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";

export interface ScheduleTickerOptions {
  database: Database;
  pools: readonly string[];
  /** Every slot is taken, and the worker would claim if one were free. */
  full(): boolean;
}

/** How long a worker must be full before the first query. */
const FULL_FOR_MS = 1000;
/** Half a minute, so that a schedule created in the meantime is seen before its first occurrence. */
const MAX_MS = 30_000;
/** A schedule that is still due is being run by another worker, or one call was not enough. */
const MIN_MS = 200;

export class ScheduleTicker {
  readonly #options: ScheduleTickerOptions;
  #timer: NodeJS.Timeout | undefined;
  #querying = false;
  #stopped = false;

  constructor(options: ScheduleTickerOptions) {
    this.#options = options;
  }

  /** The worker may have become full. */
  startWhenFull(): void {
    if (this.#timer || this.#querying || this.#stopped || !this.#options.full()) return;
    this.#arm(FULL_FOR_MS);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #arm(ms: number): void {
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#tick(), ms);
  }

  async #tick(): Promise<void> {
    const { database, pools, full } = this.#options;
    this.#timer = undefined;
    if (!full()) return;
    this.#querying = true;
    let waitMs = MAX_MS;
    try {
      for (const pool of pools) {
        const inMs = await runDueSchedules(database, pool);
        waitMs = Math.min(waitMs, MAX_MS * (0.9 + Math.random() / 10), Math.max(MIN_MS, inMs ?? MAX_MS));
      }
    } catch {
      // The next due time is unknown: query again after MAX_MS.
    }
    this.#querying = false;
    this.#arm(waitMs);
  }
}
