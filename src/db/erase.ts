// Deletes everything of one tenant: its jobs with all their rows, and the objects in the store. Works in batches, one
// transaction each, so that it may be interrupted and called again. Objects are removed before the rows that name them,
// because without these rows they could not be found.

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
  /** The artifact store, from openStore() of stillwake/worker. Required when the tenant has artifacts. */
  store?: { remove(prefix: string): Promise<number> };
  /** How long to wait for running jobs to stop. Default "5m". */
  timeout?: Duration;
  signal?: AbortSignal;
  /** Called after each batch, and while waiting for running jobs. */
  onProgress?: (progress: Erased & { live: number }) => void;
}

const BATCH_JOBS = 500;
const CONCURRENT_REMOVALS = 8;

/** Stop enqueueing for the tenant first: jobs that arrive during the call are cancelled and erased too, so it might not finish. */
export async function erase(database: Database, tenant: string, options: EraseOptions = {}): Promise<Erased> {
  const name = checkLabel(tenant, "tenant");
  const { store, signal, onProgress, timeout = "5m" } = options;
  const timeoutMs = durationMs(timeout, "timeout");
  const sum: Erased = { jobs: 0, objects: 0 };
  let removed: string[] = [];
  let deadline = performance.now() + timeoutMs;
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
      deadline = performance.now() + timeoutMs;
      continue;
    }
    if (performance.now() + pauseMs > deadline) throw stillRunning(name, live, timeout);
    await delay(pauseMs, undefined, signal && { signal });
    pauseMs = Math.min(pauseMs * 2, 1000);
  }
}

interface EraseRow {
  /** Jobs that were cancelled and have not stopped yet. */
  live: string;
  erased: string;
  /** Store prefixes of the next batch of jobs. */
  objects: string[];
  /** The number of artifact rows of these jobs. */
  artifacts: string;
  over: boolean;
}

async function eraseBatch(database: Database, tenant: string, removed: string[]): Promise<EraseRow> {
  const [row] = await database.queryUntilDone<EraseRow>(
    `select live, erased, objects, artifacts, over from ${database.schema}.erase_tenant($1, $2, $3)`,
    [tenant, BATCH_JOBS, removed],
  );
  return row!;
}

async function removeAll(
  store: NonNullable<EraseOptions["store"]>,
  prefixes: string[],
  signal?: AbortSignal,
): Promise<number> {
  let count = 0;
  for (let from = 0; from < prefixes.length; from += CONCURRENT_REMOVALS) {
    signal?.throwIfAborted();
    const batch = prefixes.slice(from, from + CONCURRENT_REMOVALS).map((prefix) => store.remove(prefix));
    for (const removed of await Promise.all(batch)) count += removed;
  }
  return count;
}

function needsStore(tenant: string, artifacts: string): InvalidInput {
  return new InvalidInput(
    `Tenant ${JSON.stringify(tenant)} has ${artifacts} or more artifacts, and no store was passed`,
    {
      field: "store",
      remedy: "Pass their store, as in erase(tenant, { store: openStore(url) }); rows are erased after their objects",
    },
  );
}

function stillRunning(tenant: string, live: string, timeout: Duration): StillwakeError {
  return new StillwakeError(
    "TIMEOUT",
    `${live} ${live === "1" ? "job" : "jobs"} of tenant ${JSON.stringify(tenant)} did not stop within ${timeout}`,
    {
      field: "timeout",
      retryable: true,
      remedy:
        "Call it again to erase the rest. Jobs of dead workers stop once a worker of their pool or the watchdog has recovered them",
    },
  );
}
