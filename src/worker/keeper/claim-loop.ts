// The claim loop of a keeper. A round settles the finished attempts and claims jobs for the free slots, in one
// statement and one commit. Two rounds may be in flight, so that Postgres works while this process prepares the next.
// Attempts that finish in the same turn of the event loop are settled together. A round claims from one pool; the pools
// in which there may be work take turns.
import { randomUUID } from "node:crypto";
import type { JobState } from "../../db/calls/job.ts";
import { type ClaimedJob, type ClaimRequest, settle, settleAndClaim } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { InvalidInput, isLocked, isRejection, UnknownPool } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import type { Tracing } from "../../tracing.ts";
import { toFailure } from "../attempt/failure.ts";
import { type Outcome, toSettlement } from "../attempt/outcome.ts";
import type { WorkerEvents } from "../observe/events.ts";
import type { LeasedJob } from "./leased-job.ts";

export interface ClaimLoopOptions {
  database: Database;
  events: WorkerEvents;
  tracing: Tracing;
  request: Omit<ClaimRequest, "pool" | "limit" | "presence" | "cursor" | "leaseId" | "held">;
  pools: readonly string[];
  slots: number;
  /** The number of jobs to claim in total. */
  maxClaims: number;
  presence(): string | null;
  /** The number of jobs whose code runs. */
  active(): number;
  /** The leases of the jobs whose code runs. */
  held(): Iterable<string>;
  /** This worker was not connected for the length of a lease: others may have been cut off too. */
  maySeeOutage(): boolean;
  /** Awaited before a claim, because a claim recovers expired leases: see Heartbeat.ensureFresh(). */
  ensureFresh(): Promise<void> | undefined;
  onClaimed(job: ClaimedJob, pool: string, claimedAt: number): void;
  /** The presence sent with a claim has changed since: other workers would take the new leases for those of a dead worker. */
  onPresenceChanged(): void;
  onSettled(finished: FinishedAttempt, refused: boolean): void;
  /** Claims returned fewer jobs than they asked for: nothing else is claimable now, or no slot is free for other pools. */
  onExhausted(claimed: number): void;
  /** After each round. `idle`: no job runs or is being settled, and the last claim returned none. */
  onRound(idle: boolean): void;
}

/** An attempt whose code has ended and that is not settled yet. */
export interface FinishedAttempt {
  leased: LeasedJob;
  outcome: Outcome;
  /** A Settlement in JSON. */
  settlement: string;
}

const MAX_ROUNDS_IN_FLIGHT = 2;
const MAX_JOBS_PER_ROUND = 500;
/** In characters of JSON. Postgres limits the size of one argument. */
const MAX_SETTLEMENTS_SIZE = 8 * 1024 * 1024;
/** After this many failed rounds in succession finished attempts are settled one by one, whatever the error. */
const MAX_FAILED_ROUNDS = 3;
const MAX_REJECTED_PAUSE_MS = 60_000;
const MAX_LOCKED_PAUSE_MS = 1000;

export class ClaimLoop {
  readonly #options: ClaimLoopOptions;
  readonly #finished: FinishedAttempt[] = [];
  /** Attempts that Postgres refuses to settle in any way, with the timer of the next try. */
  readonly #rejected = new Map<FinishedAttempt, NodeJS.Timeout>();
  /** Attempts whose lease a transaction of the application has locked, with the timer of the next try. */
  readonly #locked = new Map<FinishedAttempt, NodeJS.Timeout>();
  #claiming = false;
  /** The pools in which there may be work, the next one first. */
  readonly #due = new Set<string>();
  /** Those of which a hint reported it. */
  readonly #hinted = new Set<string>();
  #scheduled = false;
  #inFlight = 0;
  /** Slots that claims in flight may fill. */
  #reserved = 0;
  #claimed = 0;
  #failures = 0;
  /** The leases that claims in flight may have taken. */
  readonly #requestedLeases = new Set<string>();
  /** Where the last claim ended in a pool that alternates between keys or tenants. */
  readonly #cursors = new Map<string, string | null>();
  /** A pool has nothing claimable, and onExhausted was not called yet: the number of jobs claimed since then. */
  #exhausted: number | undefined;
  #closed = false;

  constructor(options: ClaimLoopOptions) {
    this.#options = options;
  }

  get claiming(): boolean {
    return this.#claiming;
  }

  /** It would claim, but every slot is taken. */
  get full(): boolean {
    return this.#claiming && this.#freeSlots <= 0;
  }

  /**
   * The leases of this worker: those of its jobs, and those that claims in flight may have taken. With a null it cannot
   * tell whether other workers could reach Postgres: see recover() in lease.sql.
   */
  get held(): (string | null)[] {
    const unsure = this.#options.maySeeOutage() ? [null] : [];
    return [...this.#requestedLeases, ...this.#options.held(), ...unsure];
  }

  /** The number of finished attempts that Postgres refuses to settle. */
  get rejected(): number {
    return this.#rejected.size;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  start(): void {
    this.#claiming = true;
    this.requestClaim();
  }

  /** Stops claiming; finished attempts are still settled. */
  retire(): void {
    this.#claiming = false;
  }

  /** The database is closed: attempts that are not settled by now are recovered when their leases expire. */
  close(): void {
    this.#claiming = false;
    this.#closed = true;
    this.#finished.length = 0;
    for (const timer of [...this.#rejected.values(), ...this.#locked.values()]) clearTimeout(timer);
  }

  /** There may be work in these pools; `hinted` when a hint reported it. */
  requestClaim(pools: readonly string[] = this.#options.pools, hinted = false): void {
    for (const pool of pools) {
      this.#due.add(pool);
      if (hinted) this.#hinted.add(pool);
    }
    this.#schedule();
  }

  settle(finished: FinishedAttempt): void {
    this.#finished.push(finished);
    // The end of a job can make others of its pool claimable: those of its key, for example.
    this.#due.add(finished.leased.assignment.pool);
    this.#schedule();
  }

  get #freeSlots(): number {
    const { slots, maxClaims, active } = this.#options;
    return Math.min(slots - active(), maxClaims - this.#claimed) - this.#reserved;
  }

  /** At the end of this turn of the event loop, so that attempts that finish together are settled together. */
  #schedule(): void {
    if (this.#scheduled || this.#closed) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      const due = () => this.#finished.length > 0 || (this.#claiming && this.#due.size > 0 && this.#freeSlots > 0);
      while (this.#inFlight < MAX_ROUNDS_IN_FLIGHT && due()) void this.#round();
    });
  }

  async #round(): Promise<void> {
    const finished = this.#takeFinished();
    const share = Math.ceil(this.#options.slots / MAX_ROUNDS_IN_FLIGHT);
    const [pool] = this.#due;
    const canClaim = this.#claiming && pool !== undefined;
    const limit = canClaim ? Math.max(0, Math.min(this.#freeSlots, share, MAX_JOBS_PER_ROUND)) : 0;
    this.#inFlight += 1;
    this.#reserved += limit;
    try {
      if (limit > 0) await this.#settleAndClaim(finished, pool!, limit);
      else await this.#settle(finished);
      this.#failures = 0;
    } catch (error) {
      this.#reserved -= limit;
      await this.#handleError(finished, pool, error);
      this.#reserved += limit;
    }
    this.#inFlight -= 1;
    this.#reserved -= limit;
    this.#schedule();
    const mayClaim = this.#due.size > 0 && this.#freeSlots > 0;
    if (this.#exhausted !== undefined && !mayClaim) {
      const claimed = this.#exhausted;
      this.#exhausted = undefined;
      this.#options.onExhausted(claimed);
    }
    const empty = this.#finished.length === 0 && this.#reserved === 0 && this.#options.active() === 0;
    this.#options.onRound(empty && !mayClaim);
  }

  #takeFinished(): FinishedAttempt[] {
    const max = Math.min(this.#finished.length, MAX_JOBS_PER_ROUND);
    let count = 0;
    for (let size = 0; count < max && size < MAX_SETTLEMENTS_SIZE; count++) {
      size += this.#finished[count]!.settlement.length;
    }
    return this.#finished.splice(0, count);
  }

  async #settleAndClaim(finished: FinishedAttempt[], pool: string, limit: number): Promise<void> {
    const { database, events, tracing, request, presence, ensureFresh } = this.#options;
    const { onClaimed, onPresenceChanged } = this.#options;
    const hinted = this.#hinted.delete(pool);
    this.#due.delete(pool);
    const fresh = ensureFresh();
    if (fresh) await fresh;
    const sentAt = performance.now();
    const settlements = finished.map(({ settlement }) => settlement);
    const sentPresence = presence();
    const leaseId = randomUUID();
    this.#requestedLeases.add(leaseId);
    const cursor = this.#cursors.get(pool) ?? null;
    const claim = { ...request, pool, limit, presence: sentPresence, cursor, leaseId, held: this.held };
    const { refused, claimed } = await tracing
      .claim(() => settleAndClaim(database, settlements, claim))
      .finally(() => this.#requestedLeases.delete(leaseId));
    this.#reportSettled(finished, refused);
    if (claimed.length === 0) events.emit({ kind: "claim.empty", hinted });
    else events.emit({ kind: "claimed", count: claimed.length, tookMs: performance.now() - sentAt });
    this.#claimed += claimed.length;
    if (claimed.length > 0) this.#cursors.set(pool, claimed[0]!.cursor);
    for (const job of claimed) onClaimed(job, pool, sentAt);
    if (claimed.length > 0 && presence() !== sentPresence) onPresenceChanged();
    if (claimed.length === limit) this.#due.add(pool);
    else this.#exhausted = (this.#exhausted ?? 0) + claimed.length;
  }

  async #settle(finished: FinishedAttempt[]): Promise<void> {
    const settlements = finished.map(({ settlement }) => settlement);
    this.#reportSettled(finished, refusedJobs(await settle(this.#options.database, settlements)));
  }

  #reportSettled(finished: FinishedAttempt[], refused: string[]): void {
    const { onSettled } = this.#options;
    for (const attempt of finished) onSettled(attempt, refused.length > 0 && refused.includes(attempt.leased.job));
  }

  async #handleError(finished: FinishedAttempt[], pool: string | undefined, error: unknown): Promise<void> {
    if (this.#closed) return;
    // The pool was deleted since the start, so it has no jobs either.
    const isGone = error instanceof UnknownPool && finished.length === 0;
    if (pool !== undefined && !isGone) this.#due.add(pool);
    const separately =
      isRejection(error) || isLocked(error) || (finished.length > 1 && this.#failures >= MAX_FAILED_ROUNDS);
    if (finished.length > 0 && separately) {
      await Promise.all(finished.map((attempt) => this.#settleAlone(attempt)));
      if (!finished.some((attempt) => this.#finished.includes(attempt))) return;
      finished = [];
    }
    this.#options.events.emit({ kind: "claim.failed", message: (error as Error).message });
    if (isGone) {
      this.#exhausted ??= 0;
      return;
    }
    this.#finished.unshift(...finished);
    await new Promise((resolve) => setTimeout(resolve, backoffMs(this.#failures++, 100, 5000)));
  }

  /**
   * Settles an attempt apart from the others, which its rejection must not block. If Postgres rejects its outcome, the
   * job fails; if it rejects that too (a trigger on ended jobs, for example), the job is paused.
   */
  async #settleAlone(attempt: FinishedAttempt, tries = 0): Promise<void> {
    let rejection: unknown;
    for (const { outcome, settlement } of alternatives(attempt, () => rejection)) {
      try {
        await this.#settle([{ ...attempt, outcome, settlement }]);
        this.#rejected.delete(attempt);
        this.#locked.delete(attempt);
        return;
      } catch (error) {
        if (this.#closed) return;
        if (isLocked(error)) {
          const again = () => void this.#settleAlone(attempt, tries + 1);
          this.#locked.set(attempt, setTimeout(again, backoffMs(tries, 50, MAX_LOCKED_PAUSE_MS)));
          return;
        }
        if (!isRejection(error)) {
          this.#rejected.delete(attempt);
          this.#locked.delete(attempt);
          this.#finished.push(attempt);
          this.#schedule();
          return;
        }
        rejection ??= error;
        const { job } = attempt.leased;
        if (tries === 0 && rejection === error) {
          this.#options.events.emit({ kind: "settlement.rejected", job, message: (error as Error).message });
        }
      }
    }
    const retry = () => void this.#settleAlone(attempt, tries + 1);
    this.#rejected.set(attempt, setTimeout(retry, backoffMs(tries, 1000, MAX_REJECTED_PAUSE_MS)));
  }
}

/** The outcome of an attempt and, for the case that Postgres rejects it, those that take its place. */
function* alternatives(attempt: FinishedAttempt, rejection: () => unknown): Generator<Omit<FinishedAttempt, "leased">> {
  yield attempt;
  const error = rejection() as Error;
  const message = `Postgres rejected the outcome of this attempt: ${error.message}`;
  const failure =
    error instanceof InvalidInput
      ? toFailure(error)
      : { name: "SettlementRejected", code: "SETTLEMENT_REJECTED", message };
  for (const outcome of [
    { kind: "failed", failure, fatal: true },
    { kind: "paused", reason: message.slice(0, 500) },
  ] satisfies Outcome[]) {
    yield { outcome, settlement: JSON.stringify(toSettlement(attempt.leased, outcome)) };
  }
}

function refusedJobs(rows: { job_id: string; state: JobState | "lost" }[]): string[] {
  return rows.filter(({ state }) => state === "lost").map(({ job_id }) => job_id);
}
