// When to look for work again. A worker that found nothing asks the database when something is due and sleeps until then, or until a hint
// comes in, but never longer than its poll floor: hints are lost with connections, and the floor is the truth. While others hold leases it
// also watches whether their sessions live, so that the jobs of a killed worker are taken up in a second and not after its lease.

import { type DueQuestion, dueIn, recoverAbsent, recoverStale } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import type { Announcer } from "../observe/events.ts";

export interface WakeOptions {
  database: Database;
  announcer: Announcer;
  worker: string;
  question: DueQuestion;
  /** How long a lease lasts. */
  spanMs: number;
  /** Whether hints are to be expected. */
  pushed(): boolean;
  /** The floor without hints, and with them. */
  pollMs: number;
  pushedPollMs: number;
  /** Something to wait for before leases are looked at that have run out: see Heartbeat.fresh(). */
  prove(): Promise<void> | undefined;
  /** There may be work. */
  onDue(): void;
}

const WATCH_MS = 200;
const GRACE_MS = 400;
/** Between a recovery and the next claim, and until a worker that has just started names its session, there is nobody to be seen. */
const LINGER_MS = 2000;

export class Wake {
  readonly #options: WakeOptions;
  #timer: NodeJS.Timeout | undefined;
  #watchTimer: NodeJS.Timeout | undefined;
  #asking = false;
  #again = false;
  #watching = false;
  /** When there was last somebody to watch. */
  #watchedAt = Number.NEGATIVE_INFINITY;
  #stopped = false;
  /** How often in a row the database said "now" and a claim found nothing: others were quicker. */
  #vain = 0;
  /** The database said last that nothing is waiting and nobody at work in this pool. */
  #empty = false;

  constructor(options: WakeOptions) {
    this.#options = options;
  }

  /** A claim came back with less than it had room for. */
  rest(found: number): void {
    if (found > 0) this.#vain = 0;
    if (this.#stopped) return;
    // What is being answered may be older than what happened since.
    this.#again = this.#asking;
    if (this.#asking) return;
    this.#asking = true;
    void this.#ask().finally(() => {
      this.#asking = false;
      if (this.#again) this.rest(0);
      // After the answer: a job that it no longer counts as waiting is under a lease by now, and that is seen.
      if (!this.#watchTimer) void this.#watch();
    });
  }

  /** Something happened: look now. */
  due(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#stopped) this.#options.onDue();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#watchTimer);
  }

  async #ask(): Promise<void> {
    const { database, question, pushed, pollMs, pushedPollMs } = this.#options;
    let waitMs = pollMs;
    this.#empty = false;
    try {
      const inMs = await dueIn(database, question);
      this.#empty = inMs === null;
      const floorMs = pushed() ? pushedPollMs : pollMs;
      if (inMs !== null && inMs <= 0) waitMs = Math.min(floorMs, 10 * 2 ** Math.min(this.#vain++, 10));
      else waitMs = Math.min(floorMs * (0.9 + Math.random() / 5), inMs ?? Number.POSITIVE_INFINITY);
    } catch {
      // Nothing is known: look again at the floor.
    }
    if (this.#stopped) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#look(), Math.min(Math.max(waitMs, 1), 2 ** 31 - 1));
  }

  async #look(): Promise<void> {
    const { database, announcer, question, prove } = this.#options;
    this.#timer = undefined;
    // Where nobody was at work there is nothing to recover; who came and died since is found by the claim itself.
    if (this.#empty) return this.due();
    try {
      await prove();
      const count = await recoverStale(database, question.pool);
      if (count > 0) announcer.announce({ kind: "recovered", count, reason: "stale" });
    } catch {}
    this.due();
  }

  async #watch(): Promise<void> {
    const { database, announcer, worker, spanMs } = this.#options;
    if (this.#watching || this.#stopped) return;
    this.#watching = true;
    this.#watchTimer = undefined;
    try {
      // Who was away himself cannot tell the dead from those who are not back yet: all are given the length of a lease, as after a start.
      if (database.steadyMs < spanMs) {
        this.#watchTimer = setTimeout(() => void this.#watch(), spanMs - database.steadyMs);
        return;
      }
      const { recovered, watched } = await recoverAbsent(database, worker, GRACE_MS);
      if (watched > 0 || recovered > 0) this.#watchedAt = performance.now();
      if (recovered > 0) {
        announcer.announce({ kind: "recovered", count: recovered, reason: "absent" });
        this.due();
      }
      // Many workers watch together; each looks less often.
      const everyMs = WATCH_MS * Math.max(1, watched / 4);
      if (performance.now() - this.#watchedAt < LINGER_MS && !this.#stopped) {
        this.#watchTimer = setTimeout(() => void this.#watch(), everyMs * (0.9 + Math.random() / 5));
      }
    } catch {
    } finally {
      this.#watching = false;
    }
  }
}
