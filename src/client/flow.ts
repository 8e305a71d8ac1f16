// `sw.flow`: limits and breakers, tenant weights and pool caps.
import { controlFlow, readBreakers, readLimits } from "../db/calls/flow.ts";
import type { Database } from "../db/database.ts";
import { type Duration, toInterval } from "../time.ts";

export interface LimitState {
  name: string;
  max: number | null;
  perMs: number | null;
  concurrency: number | null;
  /** Uses that are available now. */
  free: number;
  /** When uses become available, if there are none now. */
  until: Date | null;
  reason: string | null;
  /** The budget that the service reported, for a limit with `learn`. */
  reported: { max: number | null; remaining: number; resetAt: Date } | null;
  /** The service rejected a call: no calls before this time. */
  blockedUntil: Date | null;
}

export interface BreakerState {
  name: string;
  state: "closed" | "open";
  /** Consecutive failures; `threshold` of them open it. */
  failures: number;
  threshold: number;
  openedAt: Date | null;
  /** When one job may probe the dependency; null in an open breaker: only when an operator closes it. */
  resumeAt: Date | null;
  /** Failed probes since it opened. */
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
      // pg parses infinity as a number.
      resumeAt: row.resume_at instanceof Date ? row.resume_at : null,
      probes: row.probes,
      reason: row.reason,
      openedBy: row.opened_by,
    }));
  }

  /** Opens a breaker, for the given time or until it is closed: jobs that need it are paused. */
  async open(breaker: string, options: { for?: Duration; reason?: string; by?: string } = {}): Promise<void> {
    const time = options.for === undefined ? null : toInterval(options.for, "for");
    await controlFlow(this.#database, "open_breaker", [breaker, time, options.reason ?? null, options.by ?? null]);
  }

  async close(breaker: string): Promise<void> {
    await controlFlow(this.#database, "close_breaker", [breaker]);
  }

  /** Deletes the reported budget of a limit, and its block after a rejected call. */
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
