// Setup shared by the tests of the API providers: a fake API and a provider on a simulated clock, closed after each test,
// and workers that run as the processes of a fake's machines.

import { afterEach, expect } from "vitest";
import {
  type Clock,
  type MachineRequest,
  machineName,
  type Provider,
  type ProviderError,
  type ProviderFactory,
  realClock,
} from "../../../src/orchestrator/provider.ts";
import { travel } from "../../../src/testing/index.ts";
import { createWorker, type WorkerOptions } from "../../../src/worker/index.ts";
import { deferred } from "../deferred.ts";
import {
  createTestTime,
  type Fake,
  type Fault,
  type MachineProcess,
  type ProcessExit,
  type TestTime,
} from "./fake-provider-api.ts";

export const FLEET = "1a2b3c4d";
export const POOL = "scan";
export const SEED = Number(process.env.STILLWAKE_SEED ?? Date.now() % 1_000_000);

export interface ApiFixture<F extends Fake, Options> {
  fake: F;
  time: TestTime;
  provider: Provider;
  /** Messages the providers have reported. */
  messages: string[];
  createProvider(options?: Partial<Options>, owner?: { fleet?: string; pool?: string }): Provider;
}

/** Returns open(), which starts a fake and a provider for the running test. The fake must have seen no schema violation. */
export function apiFixture<F extends Fake, Options>(
  startFake: (options: { now(): number; onNoResponse(): void }) => Promise<F>,
  createFactory: (fake: F, time: TestTime, options: Partial<Options>) => ProviderFactory,
  graceMs = 30_000,
): (defaults?: Partial<Options>) => Promise<ApiFixture<F, Options>> {
  const fakes: F[] = [];
  afterEach(async () => {
    for (const fake of fakes.splice(0)) {
      await fake.close();
      expect(fake.violations).toEqual([]);
    }
  });
  return async (defaults) => {
    const time = createTestTime();
    const fake = await startFake({ now: time.now, onNoResponse: time.abortRequests });
    fakes.push(fake);
    const messages: string[] = [];
    const report = (_: string, message: string) => void messages.push(message);
    const createProvider: ApiFixture<F, Options>["createProvider"] = (options, { fleet = FLEET, pool = POOL } = {}) =>
      createFactory(fake, time, { ...defaults, ...options })({ fleet, pool, slots: 1, graceMs, clock: time, report });
    return { fake, time, messages, createProvider, provider: createProvider() };
  };
}

/** The request for the machine of this ordinal; `serial` is the number in a burst machine's name. */
export function requestFor(ordinal: number, serial?: number, env: Record<string, string> = {}): MachineRequest {
  const name = machineName(FLEET, POOL, ordinal) + (serial === undefined ? "" : `-${serial}`);
  return { name, burst: serial !== undefined, env: { STILLWAKE_MACHINE: name, STILLWAKE_POOL: POOL, ...env } };
}

export async function failure(call: Promise<unknown>): Promise<ProviderError> {
  return call.then(
    () => expect.fail("The call should have failed"),
    (error: ProviderError) => error,
  );
}

export function status(code: number, more: Partial<Extract<Fault, { kind: "status" }>> = {}): Fault {
  return { kind: "status", status: code, ...more };
}

export const RANDOM_FAULTS: Fault[] = [
  ...[500, 503, 429].map((code) => status(code)),
  ...(["lost", "reset", "late"] as const).map((kind) => ({ kind })),
  status(502, { done: true }),
];

/** Repeats a call until it succeeds. */
export async function retry<T>(call: () => Promise<T>, onFailure?: (error: ProviderError) => unknown): Promise<T> {
  for (let attempt = 0; attempt < 30; attempt++) {
    try {
      return await call();
    } catch (error) {
      await onFailure?.(error as ProviderError);
    }
  }
  return expect.fail(`Failed after 30 attempts (seed ${SEED})`);
}

/** A real worker that runs as the process of a fake's machine. */
export function startMachineWorker(env: Record<string, string>, options: WorkerOptions): MachineProcess {
  const worker = createWorker({
    directUrl: false,
    machine: env.STILLWAKE_MACHINE!,
    pool: env.STILLWAKE_POOL!,
    slots: Number(env.STILLWAKE_SLOTS),
    // STILLWAKE_MIN_UPTIME is ignored: no test waits for the minimum billed time.
    idleExit: env.STILLWAKE_IDLE_EXIT as "1s",
    poll: "50ms",
    grace: "100ms",
    webhooks: false,
    ...options,
  });
  const exited = worker
    .start()
    .then(() => worker.done)
    .then(
      (): ProcessExit => ({ code: 0 }),
      (): ProcessExit => ({ code: 1 }),
    );
  return { exited, kill: () => void worker.stop() };
}

/** A clock on which waits pass `speed` times as fast; advance() moves it together with the clock of the database. */
export function fastClock(url: string, speed = 50): Clock & { advance(ms: number): Promise<void> } {
  let aheadMs = 0;
  return {
    now: () => Date.now() + aheadMs,
    sleep: (ms, signal) => realClock.sleep(ms / speed, signal),
    async advance(ms) {
      await travel(url, `${ms}ms`);
      aheadMs += ms;
    },
  };
}

/** A promise, and the function that resolves it. */
export function latch(): { opened: Promise<void>; open(): void } {
  const { promise: opened, resolve: open } = deferred();
  return { opened, open };
}
