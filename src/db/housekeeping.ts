// The watchdog as workers, servers and orchestrators run it, and as `sw.watchdog()` does: the jobs in one statement, the
// housekeeping in portions, each in its own transaction. At any time one process does it; the others find it done.
import { setTimeout as delay } from "node:timers/promises";
import {
  HOUSEKEEPING_TASKS,
  housekeep,
  isHousekeepingDue,
  recordHousekeeping,
  tendJobs,
  type WatchdogAction,
} from "./calls/housekeeping.ts";
import type { Database } from "./database.ts";

/** How often one of the processes looks after the jobs of all pools. */
const TEND_EVERY_MS = 60_000;
/** How often one of them does the housekeeping. Partitions exist four weeks ahead, and data is kept for days. */
const KEEP_EVERY_MS = 3_600_000;
/** How long one call of watchdog() continues; the rest is for the next one. */
const WATCHDOG_MS = 20_000;

export interface HousekeepingOptions {
  database: Database;
  /** The leases of this process, as for a claim. They are not recovered by a statement that arrives late. */
  held?(): (string | null)[];
  onError?(error: unknown): void;
}

export class Housekeeping {
  readonly #options: HousekeepingOptions;
  #tendAt = Number.NEGATIVE_INFINITY;
  #keepAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  #stopped = false;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
  }

  /**
   * Called whenever the process uses the database anyway, and cheap unless something is due: an idle process sends
   * nothing, so that a database can sleep.
   */
  check(): void {
    if (this.#running || this.#stopped || performance.now() < this.#tendAt) return;
    this.#tendAt = performance.now() + TEND_EVERY_MS * (0.9 + Math.random() / 5);
    this.#running = this.#run()
      .catch((error) => {
        if (!this.#stopped) this.#options.onError?.(error);
      })
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Before the first job: the partitions that its rows need. */
  async preparePartitions(): Promise<void> {
    const { database, onError } = this.#options;
    try {
      while (!this.#stopped && isProgress(await housekeep(database, "partitions")));
    } catch (error) {
      onError?.(error);
    }
  }

  /** Resolves after the current portion. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    const { database, held } = this.#options;
    await tendJobs(database, TEND_EVERY_MS, held?.());
    if (this.#stopped || performance.now() < this.#keepAt) return;
    if (await isHousekeepingDue(database, KEEP_EVERY_MS)) {
      const complete = await runTasks(database, () => this.#stopped);
      // Another process is at it, or this one stops: it is still due.
      if (!complete) return;
    }
    this.#keepAt = performance.now() + KEEP_EVERY_MS * (0.9 + Math.random() / 5);
  }
}

/** One run of the watchdog, without regard to when the last one was. */
export async function watchdog(database: Database): Promise<WatchdogAction[]> {
  const until = performance.now() + WATCHDOG_MS;
  const actions = await tendJobs(database);
  const sums = new Map<string, WatchdogAction>();
  await runTasks(
    database,
    () => performance.now() > until,
    (action) => {
      const sum = sums.get(action.act);
      if (!sum) sums.set(action.act, { ...action });
      else if (action.count > 0) {
        const notes = action.act === "dropped" && sum.count > 0 ? [sum.note, action.note] : [action.note];
        Object.assign(sum, { count: sum.count + action.count, note: notes.join(", ") });
      }
    },
  );
  return [...actions, ...sums.values()];
}

/** Whether every task was completed: false when another process is at it, or `stopped` returned true. */
async function runTasks(
  database: Database,
  stopped: () => boolean,
  onAction: (action: WatchdogAction) => void = () => {},
): Promise<boolean> {
  for (const task of HOUSEKEEPING_TASKS) {
    for (;;) {
      const startedAt = performance.now();
      const actions = await housekeep(database, task);
      actions.forEach(onAction);
      if (actions.length === 0) return false;
      if (!isProgress(actions)) break;
      if (stopped()) return false;
      // Half of the time is for the statements of others.
      await delay(performance.now() - startedAt);
    }
  }
  await recordHousekeeping(database);
  return true;
}

function isProgress(actions: WatchdogAction[]): boolean {
  return actions.some(({ count }) => count > 0);
}
