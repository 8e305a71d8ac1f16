// Proof of life: one statement prolongs the leases of all jobs of this worker and brings back what others have decided about them. A heartbeat that
// fails is counted and followed by the next; the lease decides what a missed one means.
import { setTimeout as delay } from "node:timers/promises";
import { heartbeat, type Lease, type Verdict } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { backoffMs } from "../../time.ts";
import type { Announcer } from "../observe/events.ts";

export interface BeatsOptions {
  database: Database;
  announcer: Announcer;
  /** How long a lease lasts. */
  spanMs: number;
  leases(): Lease[];
  presence(): string | null;
  onVerdict(verdict: Verdict, lease: string | undefined): void;
  /** These leases held at the moment the heartbeat was sent. */
  onProof(leases: Lease[], sentAt: number): void;
}

export class Heartbeat {
  readonly #options: BeatsOptions;
  readonly #everyMs: number;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #again = false;
  #stopped = true;
  #lastAt = performance.now();

  constructor(options: BeatsOptions) {
    this.#options = options;
    this.#everyMs = options.spanMs / 3;
  }

  /** The first job is here. */
  start(): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#lastAt = performance.now();
    this.#arm();
  }

  /** No job is left: no heartbeat. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Beats at once: the session broke, or somebody changed his mind about a job. Calls of the same moment share the next one. */
  now(): void {
    if (this.#stopped) return;
    if (this.#beating) this.#again = true;
    else void this.#heartbeat();
  }

  /** Undefined while the last heartbeat is fresh. Otherwise resolves after one of now: who was stopped himself must not look for the dead first. */
  fresh(): Promise<void> | undefined {
    return this.#isFresh() ? undefined : this.#untilFresh();
  }

  #isFresh(): boolean {
    return this.#stopped || performance.now() - this.#lastAt < this.#everyMs * 2;
  }

  async #untilFresh(): Promise<void> {
    for (let failures = 0; !this.#isFresh(); failures++) {
      if (failures > 0) await delay(backoffMs(failures, 20, 1000));
      await this.#heartbeat();
    }
  }

  get lastAt(): number {
    return this.#lastAt;
  }

  #arm(): void {
    clearTimeout(this.#timer);
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#heartbeat(), this.#everyMs);
  }

  #heartbeat(): Promise<void> {
    clearTimeout(this.#timer);
    this.#beating ??= this.#once().finally(() => {
      this.#beating = undefined;
      if (this.#again) {
        this.#again = false;
        void this.#heartbeat();
      } else {
        this.#arm();
      }
    });
    return this.#beating;
  }

  async #once(): Promise<void> {
    const { database, announcer, leases, presence, onVerdict, onProof } = this.#options;
    const held = leases();
    const sentAt = performance.now();
    if (held.length === 0) {
      this.#lastAt = sentAt;
      return;
    }
    try {
      const verdicts = await heartbeat(database, held, presence(), this.#everyMs);
      // The same job may be under another lease by now.
      const leaseOf = new Map(held.map(({ job, lease }) => [job, lease]));
      const unproven = verdicts.filter(({ verdict }) => verdict === "lost" || verdict === "busy");
      const lost = new Set(unproven.map(({ job_id }) => job_id));
      this.#lastAt = performance.now();
      onProof(
        held.filter(({ job }) => !lost.has(job)),
        sentAt,
      );
      announcer.announce({ kind: "heartbeat", jobs: held.length, tookMs: this.#lastAt - sentAt });
      for (const verdict of verdicts) onVerdict(verdict, leaseOf.get(verdict.job_id));
    } catch (error) {
      announcer.announce({ kind: "heartbeat.failed", message: (error as Error).message });
    }
  }
}
