// Decides when to claim again after a claim found too few jobs. The worker queries when the next job is due and sleeps until then, or until
// a hint arrives, but never longer than its poll interval: hints are lost with connections.

import { type DueRequest, nextDueInMs, recoverStale } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import type { WorkerEvents } from "../observe/events.ts";

export interface IdlePollOptions {
  database: Database;
  events: WorkerEvents;
  claimable: DueRequest;
  /** Whether hints arrive. */
  hintsArrive(): boolean;
  /** The poll interval without hints, and with them. */
  pollMs: number;
  pollWithHintsMs: number;
  /** Awaited before expired leases are recovered: see Heartbeat.ensureFresh(). */
  ensureFresh(): Promise<void> | undefined;
  /** The leases of this worker. */
  held(): (string | null)[];
  /** There may be work. */
  onDue(): void;
  /** Called after each query: other workers may hold leases. */
  onQueried(): void;
}

export class IdlePoll {
  readonly #options: IdlePollOptions;
  #timer: NodeJS.Timeout | undefined;
  #querying = false;
  #again = false;
  #stopped = false;
  /** How often in a row a job was reported as due and the claim found none: other workers were faster. */
  #lostRaces = 0;
  /** The last query found no waiting and no running job in these pools. */
  #poolsEmpty = false;

  constructor(options: IdlePollOptions) {
    this.#options = options;
  }

  /** A claim returned `claimed` jobs, fewer than it asked for. */
  schedule(claimed: number): void {
    if (claimed > 0) this.#lostRaces = 0;
    if (this.#stopped) return;
    // The result of a query in flight may be older than what this claim has seen.
    this.#again = this.#querying;
    if (this.#querying) return;
    this.#querying = true;
    void this.#queryNextDue().finally(() => {
      this.#querying = false;
      if (this.#again) this.schedule(0);
      // After the query: a job that it no longer counts as waiting is leased by now, and its worker's presence is visible.
      this.#options.onQueried();
    });
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #queryNextDue(): Promise<void> {
    const { database, claimable, hintsArrive, pollMs, pollWithHintsMs } = this.#options;
    let waitMs = pollMs;
    this.#poolsEmpty = false;
    try {
      const inMs = await nextDueInMs(database, claimable);
      this.#poolsEmpty = inMs === null;
      const intervalMs = hintsArrive() ? pollWithHintsMs : pollMs;
      if (inMs !== null && inMs <= 0) waitMs = Math.min(intervalMs, 10 * 2 ** Math.min(this.#lostRaces++, 10));
      else waitMs = Math.min(intervalMs * (0.9 + Math.random() / 5), inMs ?? Number.POSITIVE_INFINITY);
    } catch {
      // The due time is unknown: poll again after the interval.
    }
    if (this.#stopped) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#recoverAndClaim(), Math.min(Math.max(waitMs, 1), 2 ** 31 - 1));
  }

  async #recoverAndClaim(): Promise<void> {
    const { database, events, claimable, held, ensureFresh } = this.#options;
    this.#timer = undefined;
    // Empty pools have nothing to recover. A worker that has started and died since is found by the claim itself.
    if (this.#poolsEmpty) return this.#claim();
    try {
      await ensureFresh();
      for (const pool of claimable.pools) {
        const count = await recoverStale(database, pool, held());
        if (count > 0) events.emit({ kind: "recovered", count, reason: "stale" });
      }
    } catch {}
    this.#claim();
  }

  #claim(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#stopped) this.#options.onDue();
  }
}
