// The turns of a keeper: settle what is finished and claim for the free slots, in one statement and one commit. Two may be in flight, so that
// Postgres has work while this process prepares the next. What ends in the same moment is settled together.

import type { JobState } from "../../db/calls/jobs.ts";
import { type ClaimedJob, type ClaimRequest, type Settlement, settle, settleAndClaim } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { InvalidInput, UnknownPool } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import type { Tracing } from "../../tracing.ts";
import { failureOf } from "../attempt/failure.ts";
import { type Outcome, settlementOf } from "../attempt/outcome.ts";
import type { Announcer } from "../observe/events.ts";
import type { Running } from "./leased-job.ts";

export interface TurnsOptions {
  database: Database;
  announcer: Announcer;
  tracing: Tracing;
  request: Omit<ClaimRequest, "limit" | "presence" | "cursor">;
  slots: number;
  /** Jobs to take in all. */
  most: number;
  presence(): string | null;
  /** Jobs whose code runs. */
  active(): number;
  /** Something to wait for before a claim, which takes back leases that have run out: see Heartbeat.fresh(). */
  prove(): Promise<void> | undefined;
  begin(job: ClaimedJob, claimedAt: number): void;
  /** The session that a claim named broke while it was on its way: others would take the lease for that of a dead worker. */
  misnamed(): void;
  settled(ended: Ended, refused: boolean): void;
  /** A claim found less than there was room for. */
  rest(found: number): void;
  /** After each turn. `idle`: no job runs, none is being settled, and the last claim found none. */
  turned(idle: boolean): void;
}

/** An attempt whose code has ended and whose settlement is on the way. */
export interface Ended {
  running: Running;
  outcome: Outcome;
  settlement: Settlement;
}

const LANES = 2;
const MAX_IN_TURN = 500;

export class Turns {
  readonly #options: TurnsOptions;
  readonly #ended: Ended[] = [];
  #claiming = false;
  #due = false;
  #hinted = false;
  #armed = false;
  #lanes = 0;
  #reserved = 0;
  #taken = 0;
  #failures = 0;
  /** Whose turn it was last, in a pool whose jobs take turns. */
  #cursor: string | null = null;
  #closed = false;

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  get claiming(): boolean {
    return this.#claiming;
  }

  /** It would claim, but every slot is taken. */
  get full(): boolean {
    return this.#claiming && this.#free <= 0;
  }

  /** Statements in flight. */
  get lanes(): number {
    return this.#lanes;
  }

  start(): void {
    this.#claiming = true;
    this.look();
  }

  /** Claims no more; settles on. */
  retire(): void {
    this.#claiming = false;
  }

  /** The database is closed: what is not settled by now is left to the lease. */
  close(): void {
    this.#claiming = false;
    this.#closed = true;
    this.#ended.length = 0;
  }

  /** There may be work; `hinted` when somebody said so. */
  look(hinted = false): void {
    this.#due = true;
    this.#hinted ||= hinted;
    this.#pump();
  }

  end(ended: Ended): void {
    this.#ended.push(ended);
    this.#pump();
  }

  get #free(): number {
    const { slots, most, active } = this.#options;
    return Math.min(slots - active(), most - this.#taken) - this.#reserved;
  }

  /** At the end of this turn of the event loop, so that jobs which end together are settled together. */
  #pump(): void {
    if (this.#armed || this.#closed) return;
    this.#armed = true;
    setImmediate(() => {
      this.#armed = false;
      const wanted = () => this.#ended.length > 0 || (this.#claiming && this.#due && this.#free > 0);
      while (this.#lanes < LANES && wanted()) void this.#turn();
    });
  }

  async #turn(): Promise<void> {
    const ended = this.#ended.splice(0, MAX_IN_TURN);
    const room = Math.min(this.#free, Math.ceil(this.#options.slots / LANES), MAX_IN_TURN);
    const limit = this.#claiming ? Math.max(0, room) : 0;
    this.#lanes += 1;
    this.#reserved += limit;
    try {
      if (limit > 0) await this.#settleAndClaim(ended, limit);
      else await this.#settle(ended);
      this.#failures = 0;
    } catch (error) {
      this.#reserved -= limit;
      await this.#mend(ended, error);
      this.#reserved += limit;
    }
    this.#lanes -= 1;
    this.#reserved -= limit;
    this.#pump();
    const nothing = this.#ended.length === 0 && this.#reserved === 0 && this.#options.active() === 0;
    this.#options.turned(nothing && (!this.#due || this.#free <= 0));
  }

  async #settleAndClaim(ended: Ended[], limit: number): Promise<void> {
    const { database, announcer, tracing, request, presence, prove, begin, misnamed, rest } = this.#options;
    const hinted = this.#hinted;
    this.#due = false;
    this.#hinted = false;
    const proof = prove();
    if (proof) await proof;
    const sentAt = performance.now();
    const settlements = ended.map(({ settlement }) => settlement);
    const named = presence();
    const { refused, claimed } = await tracing.claim(() =>
      settleAndClaim(database, settlements, { ...request, limit, presence: named, cursor: this.#cursor }),
    );
    this.#report(ended, refused);
    if (claimed.length > 0) {
      announcer.announce({ kind: "claimed", count: claimed.length, tookMs: performance.now() - sentAt });
    } else {
      announcer.announce({ kind: "claim.empty", hinted });
    }
    this.#taken += claimed.length;
    if (claimed.length > 0) this.#cursor = claimed[0]!.cursor;
    for (const job of claimed) begin(job, sentAt);
    if (claimed.length > 0 && presence() !== named) misnamed();
    if (claimed.length === limit) this.#due = true;
    else rest(claimed.length);
  }

  async #settle(ended: Ended[]): Promise<void> {
    const rows = await settle(
      this.#options.database,
      ended.map(({ settlement }) => settlement),
    );
    this.#report(ended, lostOf(rows));
  }

  #report(ended: Ended[], refused: string[]): void {
    for (const one of ended) this.#options.settled(one, refused.length > 0 && refused.includes(one.running.job));
  }

  /** One settlement that cannot be stored must not hold up the others: each is sent alone, and that one fails its job. */
  async #mend(ended: Ended[], error: unknown): Promise<void> {
    if (this.#closed) return;
    // No pipeline names this pool yet, so it has no jobs either.
    this.#due = !(error instanceof UnknownPool) || ended.length > 0;
    if (!(error instanceof InvalidInput) || ended.length === 0) {
      this.#options.announcer.announce({ kind: "claim.failed", message: (error as Error).message });
      if (!this.#due) return this.#options.rest(0);
      this.#ended.unshift(...ended);
      await new Promise((resolve) => setTimeout(resolve, backoffMs(this.#failures++, 100, 5000)));
      return;
    }
    for (const one of ended) {
      try {
        await this.#settle([one]);
      } catch (refusal) {
        if (!(refusal instanceof InvalidInput)) {
          this.#ended.push(one);
          continue;
        }
        const outcome: Outcome = { kind: "failed", failure: failureOf(refusal), fatal: true };
        this.#ended.push({ ...one, outcome, settlement: settlementOf(one.running, outcome)! });
      }
    }
  }
}

function lostOf(rows: { job_id: string; state: JobState | "lost" }[]): string[] {
  return rows.filter(({ state }) => state === "lost").map(({ job_id }) => job_id);
}
