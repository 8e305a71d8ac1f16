// What people do about flow: see the budgets and breakers, open and close by hand, weigh tenants, cap pools.

import { controlFlow, readBreakers, readLimits } from "../db/calls/flow.ts";
import type { Database } from "../db/database.ts";
import { type Duration, toInterval } from "../time.ts";

export interface LimitState {
  name: string;
  max: number | null;
  perMs: number | null;
  concurrency: number | null;
  /** Uses that are free now. */
  free: number;
  /** When there will be some, if there are none. */
  until: Date | null;
  reason: string | null;
  /** What the other side has told, where the limit learns. */
  reported: { max: number | null; remaining: number; resetAt: Date } | null;
  /** A call was refused: nobody calls before. */
  blockedUntil: Date | null;
}

export interface BreakerState {
  name: string;
  state: "closed" | "open";
  /** Failures in a row, of so many that open it. */
  failures: number;
  threshold: number;
  openedAt: Date | null;
  /** When one job may try; null in an open one: when somebody closes it. */
  resumeAt: Date | null;
  /** Tries that failed since it opened. */
  probes: number;
  reason: string | null;
  openedBy: string | null;
}

export class Flow {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async limits(): Promise<LimitState[]> {
    const rows = await readLimits(this.#database);
    return rows.map((row) => ({
      name: row.name,
      max: row.max,
      perMs: row.period_ms === null ? null : Number(row.period_ms),
      concurrency: row.concurrency,
      free: row.free,
      until: row.free > 0 ? null : row.until,
      reason: row.free > 0 ? null : row.reason,
      reported: row.reset_at && { max: row.reported_max, remaining: row.remaining ?? 0, resetAt: row.reset_at },
      blockedUntil: row.blocked_until,
    }));
  }

  async breakers(): Promise<BreakerState[]> {
    const rows = await readBreakers(this.#database);
    return rows.map((row) => ({
      name: row.name,
      state: row.resume_at === null ? "closed" : "open",
      failures: row.failures,
      threshold: row.threshold,
      openedAt: row.opened_at,
      // The driver reads infinity as a number.
      resumeAt: row.resume_at instanceof Date ? row.resume_at : null,
      probes: row.probes,
      reason: row.reason,
      openedBy: row.opened_by,
    }));
  }

  /** Sets aside what a breaker stands before, for a time or until somebody closes it. */
  async open(breaker: string, options: { for?: Duration; reason?: string; by?: string } = {}): Promise<void> {
    const time = options.for === undefined ? null : toInterval(options.for, "for");
    await controlFlow(this.#database, "open_breaker", [breaker, time, options.reason ?? null, options.by ?? null]);
  }

  async close(breaker: string): Promise<void> {
    await controlFlow(this.#database, "close_breaker", [breaker]);
  }

  /** Forgets what a limit has learned, and a refusal. */
  async reset(limit: string): Promise<void> {
    await controlFlow(this.#database, "reset_limit", [limit]);
  }

  /** The share of a tenant beside the others, 1 to 100. */
  async weigh(tenant: string, weight: number): Promise<void> {
    await controlFlow(this.#database, "set_weight", [tenant, weight]);
  }

  /** How many jobs of a pool may run at once on all workers; null for as many as there are slots. */
  async cap(pool: string, concurrency: number | null): Promise<void> {
    await controlFlow(this.#database, "cap_pool", [pool, concurrency]);
  }
}
