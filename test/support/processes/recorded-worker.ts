// A worker in the process of the test, with all that it announces kept, so that a test can wait for what it says.
import { onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { createWorker, type Worker, type WorkerOptions } from "../../../src/worker/index.ts";
import type { EventOf, WorkerEvent } from "../../../src/worker/observe/events.ts";

/** `at`: performance.now(). */
type Heard<Event> = Event & { at: number };

export interface OwnWorker {
  worker: Worker;
  heard: Heard<WorkerEvent>[];
  of<Kind extends WorkerEvent["kind"]>(kind: Kind): Heard<EventOf<Kind>>[];
  /** Waits until it has announced one of these `times` times since the moment `after`; answers that one. */
  hears<Kind extends WorkerEvent["kind"]>(
    kind: Kind,
    options?: { after?: number; times?: number; timeout?: number },
  ): Promise<Heard<EventOf<Kind>>>;
}

/** Starts it, unless it is told to be patient, and stops it when the test has finished. */
export async function ownWorker(options: WorkerOptions, patient = false): Promise<OwnWorker> {
  const worker = createWorker({ isolation: "none", ...options });
  const heard: Heard<WorkerEvent>[] = [];
  worker.announcer.subscribe((event) => heard.push({ ...event, at: performance.now() }));
  onTestFinished(() => worker.stop());
  const of = <Kind extends WorkerEvent["kind"]>(kind: Kind) =>
    heard.filter((event) => event.kind === kind) as Heard<EventOf<Kind>>[];
  if (!patient) await worker.start();
  return {
    worker,
    heard,
    of,
    hears: (kind, { after = 0, times = 1, timeout = 20_000 } = {}) =>
      waitFor(() => of(kind).filter(({ at }) => at >= after)[times - 1], { timeout, interval: 2, what: kind }),
  };
}
