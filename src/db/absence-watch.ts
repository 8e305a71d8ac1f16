// Checks whether workers that hold leases are gone, so that the jobs of a killed worker are queued again within about a second
// instead of after the lease. Workers do it, busy ones too, and so do the server and the orchestrator. It runs as long as it
// finds workers to watch.
import { recoverAbsent } from "./calls/worker.ts";
import type { Database } from "./database.ts";

export interface AbsenceWatchOptions {
  database: Database;
  /** The worker of this process, if it is one. */
  worker: string | null;
  /** How long a lease lasts. */
  leaseMs: number;
  /** Between two checks. */
  everyMs?: number;
  onRecovered?(count: number): void;
}

const CHECK_MS = 200;
const GRACE_MS = 400;
/** How long to keep checking when no worker is found: between a recovery and the next claim, and during a start, there is none. */
const LINGER_MS = 2000;

export class AbsenceWatch {
  readonly #options: AbsenceWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  #checking = false;
  #stopped = false;
  /** When a worker to watch was last found. */
  #foundAt = Number.NEGATIVE_INFINITY;

  constructor(options: AbsenceWatchOptions) {
    this.#options = options;
  }

  /** Other workers may hold leases. Cheap while the watch runs. */
  start(): void {
    if (!this.#timer) void this.#check();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #check(): Promise<void> {
    const { database, worker, leaseMs, everyMs = CHECK_MS, onRecovered } = this.#options;
    if (this.#checking || this.#stopped) return;
    this.#checking = true;
    this.#timer = undefined;
    try {
      // After its connection was lost, a process cannot tell dead workers from those that have not reconnected yet: it
      // waits for the length of a lease, as after a start.
      if (database.reachableForMs < leaseMs) return this.#checkIn(leaseMs - database.reachableForMs);
      const { recovered, watched } = await recoverAbsent(database, worker, GRACE_MS);
      if (watched > 0 || recovered > 0) this.#foundAt = performance.now();
      if (recovered > 0) onRecovered?.(recovered);
      // The more workers check, the less often each one does.
      const waitMs = everyMs * Math.max(1, watched / 4) * (0.9 + Math.random() / 5);
      if (performance.now() - this.#foundAt < LINGER_MS) this.#checkIn(waitMs);
    } catch {
    } finally {
      this.#checking = false;
    }
  }

  #checkIn(ms: number): void {
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#check(), ms).unref();
  }
}
