// The heartbeat of a keeper: one statement extends the leases of all its jobs and returns the verdicts on them (lease lost, cancel
// requested). A failed heartbeat is counted and followed by the next one; a lease expires if none succeeds.
import { setTimeout as delay } from "node:timers/promises";
import { heartbeat, type Lease, type Verdict } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { backoffMs } from "../../time.ts";
import type { WorkerEvents } from "../observe/events.ts";

export interface HeartbeatOptions {
  database: Database;
  events: WorkerEvents;
  /** How long a lease lasts. */
  leaseMs: number;
  leases(): Lease[];
  presence(): string | null;
  onVerdict(verdict: Verdict, lease: string | undefined): void;
  /** These leases were valid when the heartbeat was sent. */
  onExtended(leases: Lease[], sentAt: number): void;
}

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #everyMs: number;
  #timer: NodeJS.Timeout | undefined;
  #inFlight: Promise<void> | undefined;
  #again = false;
  #stopped = true;
  #lastAt = performance.now();

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#everyMs = options.leaseMs / 3;
  }

  /** Called with the first job. */
  start(): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#lastAt = performance.now();
    this.#arm();
  }

  /** Called when no job is left. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** The presence changed, or a cancel or pause was requested. Calls during a heartbeat share the next one. */
  sendNow(): void {
    if (this.#stopped) return;
    if (this.#inFlight) this.#again = true;
    else void this.#run();
  }

  /**
   * Undefined while the last heartbeat is recent; otherwise resolves after a new one. A worker that was itself
   * suspended must extend its own leases before it looks for expired ones.
   */
  ensureFresh(): Promise<void> | undefined {
    return this.#isFresh() ? undefined : this.#untilFresh();
  }

  get lastAt(): number {
    return this.#lastAt;
  }

  #isFresh(): boolean {
    return this.#stopped || performance.now() - this.#lastAt < this.#everyMs * 2;
  }

  async #untilFresh(): Promise<void> {
    for (let failures = 0; !this.#isFresh(); failures++) {
      if (failures > 0) await delay(backoffMs(failures, 20, 1000));
      await this.#run();
    }
  }

  #arm(): void {
    clearTimeout(this.#timer);
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#run(), this.#everyMs);
  }

  #run(): Promise<void> {
    clearTimeout(this.#timer);
    this.#inFlight ??= this.#send().finally(() => {
      this.#inFlight = undefined;
      if (!this.#again) return this.#arm();
      this.#again = false;
      void this.#run();
    });
    return this.#inFlight;
  }

  async #send(): Promise<void> {
    const { database, events, presence, onVerdict, onExtended } = this.#options;
    const leases = this.#options.leases();
    const sentAt = performance.now();
    if (leases.length === 0) {
      this.#lastAt = sentAt;
      return;
    }
    try {
      const verdicts = await heartbeat(database, leases, presence(), this.#everyMs);
      // The same job may be under another lease by now.
      const leaseOf = new Map(leases.map(({ job, lease }) => [job, lease]));
      const notExtended = new Set(
        verdicts.filter(({ verdict }) => verdict === "lost" || verdict === "busy").map(({ job_id }) => job_id),
      );
      this.#lastAt = performance.now();
      onExtended(
        leases.filter(({ job }) => !notExtended.has(job)),
        sentAt,
      );
      events.emit({ kind: "heartbeat", jobs: leases.length, tookMs: this.#lastAt - sentAt });
      for (const verdict of verdicts) onVerdict(verdict, leaseOf.get(verdict.job_id));
    } catch (error) {
      events.emit({ kind: "heartbeat.failed", message: (error as Error).message });
    }
  }
}
