// `sw.flow`: limits and breakers, tenant weights and pool caps.
import { type BreakerState, controlFlow, type LimitState, readBreakers, readLimits } from "../db/calls/flow.ts";
import type { Database } from "../db/database.ts";
import { type Duration, toInterval } from "../time.ts";

export type { BreakerState, LimitState } from "../db/calls/flow.ts";

export class Flow {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async limits(): Promise<LimitState[]> {
    return readLimits(this.#database);
  }

  async breakers(): Promise<BreakerState[]> {
    return readBreakers(this.#database);
  }

  /** Opens a breaker, for the given time or until it is closed: jobs that need it are paused. */
  async open(breaker: string, options: { for?: Duration; reason?: string; by?: string } = {}): Promise<void> {
    const time = options.for === undefined ? null : toInterval(options.for, "for");
    await controlFlow(this.#database, "open_breaker", [breaker, time, options.reason ?? null, options.by ?? null]);
  }

  async close(breaker: string): Promise<void> {
    await controlFlow(this.#database, "close_breaker", [breaker]);
  }

  /** Deletes the reported quota of a limit, and its block after a rejected call. */
  async reset(limit: string): Promise<void> {
    await controlFlow(this.#database, "reset_limit", [limit]);
  }

  /** Sets a tenant's share relative to other tenants, 1 to 100. */
  async weigh(tenant: string, weight: number): Promise<void> {
    await controlFlow(this.#database, "set_weight", [tenant, weight]);
  }

  /** Limits the jobs of a pool that run concurrently, over all workers; null removes the cap. */
  async cap(pool: string, concurrency: number | null): Promise<void> {
    await controlFlow(this.#database, "cap_pool", [pool, concurrency]);
  }
}
