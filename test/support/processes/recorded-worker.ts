// A worker in the test's process that records its events, so that a test can wait for them.
import { onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { createWorker, type Worker, type WorkerOptions } from "../../../src/worker/index.ts";
import type { EventOf, WorkerEvent } from "../../../src/worker/observe/events.ts";

/** `at`: performance.now(). */
type Recorded<Event> = Event & { at: number };

export interface RecordedWorker {
  worker: Worker;
  events: Recorded<WorkerEvent>[];
  eventsOf<Kind extends WorkerEvent["kind"]>(kind: Kind): Recorded<EventOf<Kind>>[];
  /** Waits for the `times`-th event of this kind since `after`, and returns it. */
  waitForEvent<Kind extends WorkerEvent["kind"]>(
    kind: Kind,
    options?: { after?: number; times?: number; timeout?: number },
  ): Promise<Recorded<EventOf<Kind>>>;
}

/** Starts it unless `startLater`, and stops it when the test has finished. */
export async function startRecordedWorker(options: WorkerOptions, startLater = false): Promise<RecordedWorker> {
  const worker = createWorker({ isolation: "none", ...options });
  const events: Recorded<WorkerEvent>[] = [];
  worker.events.subscribe((event) => events.push({ ...event, at: performance.now() }));
  onTestFinished(() => worker.stop());
  const of = <Kind extends WorkerEvent["kind"]>(kind: Kind) =>
    events.filter((event) => event.kind === kind) as Recorded<EventOf<Kind>>[];
  if (!startLater) await worker.start();
  return {
    worker,
    events,
    eventsOf: of,
    waitForEvent: (kind, { after = 0, times = 1, timeout = 20_000 } = {}) =>
      waitFor(() => of(kind).filter(({ at }) => at >= after)[times - 1], { timeout, interval: 2, what: kind }),
  };
}
