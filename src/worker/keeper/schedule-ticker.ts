// Sees to the schedules of the pool while every slot of the worker is taken. As long as there is a free one, claims do it; who is full claims nothing,
// and a long job must not cost others their time. It is no reason to ask more often: jobs that are short free a slot before this asks at all.

import { tendSchedules } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";

export interface TenderOptions {
  database: Database;
  pool: string;
  /** Every slot is taken, and the worker would claim if one were free. */
  full(): boolean;
}

/** How long a worker has been full before it asks. */
const PATIENCE_MS = 1000;
/** A schedule that is made in the meantime is seen in time for its first slot: what is looked at within a minute is on time. */
const MAX_MS = 30_000;
/** What is due still is being seen to by somebody else, or is more than one call does. */
const MIN_MS = 200;

export class Tender {
  readonly #options: TenderOptions;
  #timer: NodeJS.Timeout | undefined;
  #asking = false;
  #stopped = false;

  constructor(options: TenderOptions) {
    this.#options = options;
  }

  /** The worker may have become full. */
  watch(): void {
    if (this.#timer || this.#asking || this.#stopped || !this.#options.full()) return;
    this.#arm(PATIENCE_MS);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #arm(ms: number): void {
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#tend(), ms);
  }

  async #tend(): Promise<void> {
    const { database, pool, full } = this.#options;
    this.#timer = undefined;
    if (!full()) return;
    this.#asking = true;
    let waitMs = MAX_MS;
    try {
      const inMs = await tendSchedules(database, pool);
      waitMs = Math.min(MAX_MS * (0.9 + Math.random() / 10), Math.max(MIN_MS, inMs ?? MAX_MS));
    } catch {
      // Nothing is known: it asks again in its time.
    }
    this.#asking = false;
    this.#arm(waitMs);
  }
}
