// Decides when to claim again after a claim found too few jobs. The worker queries when the next job is due and sleeps until then, or until
// a hint arrives, but never longer than its poll interval: hints are lost with connections. While other workers hold leases it also checks
// their presence, so that the jobs of a killed worker are recovered within a second instead of after the lease.

import { type DueRequest, nextDueInMs, recoverAbsent, recoverStale } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import type { WorkerEvents } from "../observe/events.ts";

export interface IdlePollOptions {
  database: Database;
  events: WorkerEvents;
  worker: string;
  claimable: DueRequest;
  /** How long a lease lasts. */
  leaseMs: number;
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
}

const PRESENCE_CHECK_MS = 200;
const PRESENCE_GRACE_MS = 400;
/** How long to keep checking when no presence is found: between a recovery and the next claim, and during a start, there is none. */
const PRESENCE_LINGER_MS = 2000;

export class IdlePoll {
  readonly #options: IdlePollOptions;
  #timer: NodeJS.Timeout | undefined;
  #presenceTimer: NodeJS.Timeout | undefined;
  #querying = false;
  #again = false;
  #checkingPresence = false;
  /** When the presence of another worker was last found. */
  #presenceSeenAt = Number.NEGATIVE_INFINITY;
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
      if (!this.#presenceTimer) void this.#checkPresence();
    });
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#presenceTimer);
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

  async #checkPresence(): Promise<void> {
    const { database, events, worker, leaseMs } = this.#options;
    if (this.#checkingPresence || this.#stopped) return;
    this.#checkingPresence = true;
    this.#presenceTimer = undefined;
    try {
      // After an outage of its own, a worker cannot tell dead workers from those that have not reconnected yet: it
      // waits for the length of a lease, as after a start.
      if (database.reachableForMs < leaseMs) {
        this.#presenceTimer = setTimeout(() => void this.#checkPresence(), leaseMs - database.reachableForMs);
        return;
      }
      const { recovered, watched } = await recoverAbsent(database, worker, PRESENCE_GRACE_MS);
      if (watched > 0 || recovered > 0) this.#presenceSeenAt = performance.now();
      if (recovered > 0) {
        events.emit({ kind: "recovered", count: recovered, reason: "absent" });
        this.#claim();
      }
      // The more workers check, the less often each one does.
      const everyMs = PRESENCE_CHECK_MS * Math.max(1, watched / 4);
      if (performance.now() - this.#presenceSeenAt < PRESENCE_LINGER_MS && !this.#stopped) {
        this.#presenceTimer = setTimeout(() => void this.#checkPresence(), everyMs * (0.9 + Math.random() / 5));
      }
    } catch {
    } finally {
      this.#checkingPresence = false;
    }
  }

  #claim(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#stopped) this.#options.onDue();
  }
}
