// A tenant leaves, and everything of it goes: jobs, what hangs on them, the objects of the store. Batch by batch, each in a transaction of its own, so that it may be broken
// off anywhere and called again. Objects go before the rows that name them, because nothing would find them afterwards.
import { setTimeout as delay } from "node:timers/promises";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, durationMs } from "../time.ts";
import type { Database } from "./database.ts";

export interface Erased {
  jobs: number;
  /** Objects that were removed from the store. */
  objects: number;
}

export interface EraseOptions {
  /** Where artifacts are kept: what openStore() of stillwake/worker returns. Needed when the tenant has any. */
  store?: { remove(prefix: string): Promise<number> };
  /** How long to wait for running jobs to stop. Default "5m". */
  timeout?: Duration;
  signal?: AbortSignal;
  /** Told after each batch, and while running jobs are waited for. */
  onProgress?: (progress: Erased & { live: number }) => void;
}

const MOST = 500;
const AT_ONCE = 8;

/** Stop enqueueing for the tenant first: what comes meanwhile is cancelled and erased too, and so it would not end. */
export async function erase(database: Database, tenant: string, options: EraseOptions = {}): Promise<Erased> {
  const name = checkLabel(tenant, "tenant");
  const { store, signal, onProgress, timeout = "5m" } = options;
  const patienceMs = durationMs(timeout, "timeout");
  const sum: Erased = { jobs: 0, objects: 0 };
  let removed: string[] = [];
  let deadline = performance.now() + patienceMs;
  for (let pauseMs = 50; ; ) {
    signal?.throwIfAborted();
    const { live, erased, objects, artifacts, over } = await eraseBatch(database, name, removed);
    sum.jobs += Number(erased);
    if (over) return sum;
    removed = [];
    if (objects.length > 0) {
      if (!store && artifacts !== "0") throw needsStore(name, artifacts);
      if (store) sum.objects += await removeAll(store, objects, signal);
      removed = objects;
    }
    onProgress?.({ ...sum, live: Number(live) });
    if (live === "0") {
      deadline = performance.now() + patienceMs;
      continue;
    }
    if (performance.now() + pauseMs > deadline) throw stillRunning(name, live, timeout);
    await delay(pauseMs, undefined, signal && { signal });
    pauseMs = Math.min(pauseMs * 2, 1000);
  }
}

interface EraseRow {
  /** Jobs that were asked to stop and have not yet. */
  live: string;
  erased: string;
  /** What the store has of the next batch of jobs. */
  objects: string[];
  /** How many artifacts these jobs have, by their rows. */
  artifacts: string;
  over: boolean;
}

async function eraseBatch(database: Database, tenant: string, removed: string[]): Promise<EraseRow> {
  const [row] = await database.insist<EraseRow>(
    `select live, erased, objects, artifacts, over from ${database.schema}.erase_tenant($1, $2, $3)`,
    [tenant, MOST, removed],
  );
  return row!;
}

async function removeAll(
  store: NonNullable<EraseOptions["store"]>,
  prefixes: string[],
  signal?: AbortSignal,
): Promise<number> {
  let count = 0;
  for (let from = 0; from < prefixes.length; from += AT_ONCE) {
    signal?.throwIfAborted();
    const batch = prefixes.slice(from, from + AT_ONCE).map((prefix) => store.remove(prefix));
    for (const removed of await Promise.all(batch)) count += removed;
  }
  return count;
}

function needsStore(tenant: string, artifacts: string): InvalidInput {
  return new InvalidInput(
    `Tenant ${JSON.stringify(tenant)} has ${artifacts} artifacts or more, and no store is given`,
    {
      field: "store",
      remedy:
        "Pass the store they are in, as in erase(tenant, { store: openStore(url) }); their rows are not erased before",
    },
  );
}

function stillRunning(tenant: string, live: string, timeout: Duration): StillwakeError {
  return new StillwakeError(
    "TIMEOUT",
    `${live} jobs of tenant ${JSON.stringify(tenant)} have not stopped after ${timeout}`,
    {
      field: "timeout",
      retryable: true,
      remedy:
        "Nothing of what was erased comes back; call it again. Jobs of workers that are dead end once a worker of their pool or the watchdog has looked after them",
    },
  );
}
