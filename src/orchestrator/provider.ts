// The contract between the orchestrator and a provider, which starts and stops machines.
// test/orchestrator/providers.test.ts runs the same cases against every provider. A provider knows no database and no
// jobs. It is created for one pool of one fleet and touches only machines that carry both names.
//
// When a provider gets no response: list() throws and never returns an empty list instead. start() may or may not have
// started a machine: it throws an error that is not `certain`, and the next start() of that name adopts the machine.
import { createHash } from "node:crypto";
import { StillwakeError } from "../errors.ts";

/**
 *   stopped   created, costs next to nothing, can be started       running    as far as the provider knows
 *   starting  requested, not running yet                           stopping   shutting down
 *   gone      it has run and can never be started again
 */
export type MachineState = "stopped" | "starting" | "running" | "stopping" | "gone";

/** How a machine ended. */
export interface Exit {
  code?: number;
  signal?: string;
  /** Killed because it ran out of memory. */
  oom?: boolean;
  /** Its memory size as text, such as "64 GB". */
  memory?: string;
  /** A stop was requested. */
  requested?: boolean;
  /** Anything else the provider reports. */
  reason?: string;
}

/** A machine of this fleet and pool, as its provider lists it. Times are the provider's. */
export interface ListedMachine {
  name: string;
  /** The provider's id. */
  id: string;
  state: MachineState;
  /** Since when it is in a temporary state (starting, stopping); one that lasts too long is stuck. */
  since?: Date;
  /** Of its current life or, if it is stopped or gone, of its last one. */
  startedAt?: Date;
  endedAt?: Date;
  exit?: Exit;
  /** Created with other settings (image, size, region) than the current ones. */
  stale?: boolean;
}

/** A machine to start. */
export interface MachineRequest {
  /** Unique for all time, except that a stopped machine is started again under its name. */
  name: string;
  /** Created for one life and removed when it ends. Otherwise it is stopped and can be started again. */
  burst: boolean;
  /** Environment of its worker: its name, its pool, when it exits. No secrets. */
  env: Readonly<Record<string, string>>;
}

export interface StartedMachine {
  id: string;
  startedAt?: Date;
  /** Its region, if that is not the first one of the settings. */
  region?: string;
}

export interface Provider {
  /** "fly", "local", … */
  readonly kind: string;
  /** Properties of its machines, for prices and display. */
  readonly facts: ProviderFacts;
  list(): Promise<ListedMachine[]>;
  /** Starts the machine of this name: the stopped one, or a new one. Idempotent. Throws ProviderError. */
  start(request: MachineRequest): Promise<StartedMachine>;
  /** Creates a machine that can be started later; it may run for a moment first. Idempotent. */
  prepare?(request: MachineRequest): Promise<{ id: string }>;
  /**
   * Stops the machine if it runs, and deletes it. A machine that is gone already is no error. One that was listed as
   * stopped and has been started since is left alone.
   */
  remove(machine: { name: string; id: string; state?: MachineState }): Promise<void>;
  /** For providers that notice an exit themselves. For the others the orchestrator polls list(). */
  onEnded?(listener: (machine: ListedMachine) => void): void;
  /** How a machine ended, where list() does not include it. */
  getExitReason?(machine: { name: string; id: string }): Promise<Exit | undefined>;
  /** Checks before anything is started, such as the scope of a token. Returns warnings. */
  check?(): Promise<string[]>;
  /**
   * Releases everything in this process. Remote machines keep running. Child processes release their jobs and are
   * waited for; with `leave` they keep running too.
   */
  close?(options?: { leave?: boolean }): Promise<void>;
}

export interface ProviderFacts {
  /** As in the price table: "performance-8x", "1 vCPU". */
  size?: string;
  region?: string;
  cpus?: number;
  memoryMb?: number;
  /** Hash of the settings (image, environment …). When it changes, earlier wasted starts are forgotten. */
  fingerprint?: string;
  /** Minimum billed seconds. */
  leastSeconds?: number;
  /** Longest expected time from start() until the worker registers. Default: 2 minutes. */
  bootMs?: number;
}

/** What the orchestrator passes to a provider. */
export interface ProviderContext {
  fleet: string;
  pool: string;
  slots: number;
  /** Time between the stop request and the kill. */
  graceMs: number;
  /** Reports an event to the operator, once per occurrence. */
  report(level: "info" | "warn" | "error", message: string, facts?: Record<string, unknown>): void;
  clock: Clock;
}

/** Replaced in tests. */
export interface Clock {
  now(): number;
  /** Resolves early, without an error, when the signal is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** What `fly({ … })`, `local({ … })` and the others return; the orchestrator calls it once per pool. */
export type ProviderFactory = (context: ProviderContext) => Provider;

/**
 *   auth         the token is rejected: the operator has to fix it; no retry for a while
 *   rate         rate limited; see retryAfterMs
 *   capacity     no capacity, or a quota is used up
 *   unreachable  no response, or a server error, after every retry
 *   refused      the request is invalid for the provider: a retry fails as well
 *   unstartable  this one machine cannot be started; another one may
 */
export type ProviderErrorKind = "auth" | "rate" | "capacity" | "unreachable" | "refused" | "unstartable";

export class ProviderError extends StillwakeError {
  readonly kind: ProviderErrorKind;
  /** The call has started nothing, and will start nothing. */
  readonly certain: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(
    kind: ProviderErrorKind,
    message: string,
    options: { certain: boolean; remedy?: string; retryAfterMs?: number; cause?: unknown; status?: number },
  ) {
    super(`PROVIDER_${kind.toUpperCase()}`, message, {
      ...(options.remedy !== undefined && { remedy: options.remedy }),
      ...(options.cause !== undefined && { cause: options.cause }),
      retryable: kind !== "refused" && kind !== "auth",
    });
    this.kind = kind;
    this.certain = options.certain;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export const realClock: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1));
      function done(): void {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      }
      signal?.addEventListener("abort", done);
    }),
};

/**
 * A machine's name: fleet, pool and ordinal, such as "sw-1a2b3c4d-scan-m3". SQL appends a number for a burst machine. Providers allow
 * lower-case letters, digits and dashes, 63 at most: a pool name that does not fit is shortened and extended by part of its hash.
 */
export function machineName(fleet: string, pool: string, ordinal: number): string {
  return `${poolPrefix(fleet, pool)}m${ordinal}`;
}

/** The prefix of all machine names of a pool. It may also be a prefix of another pool's names: ordinalOf() is exact. */
export function poolPrefix(fleet: string, pool: string): string {
  const slug = pool.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-+|-+$/g, "");
  const fits = slug === pool && pool.length <= 24;
  const label = fits ? pool : `${slug.slice(0, 16)}-x${createHash("sha256").update(pool).digest("hex").slice(0, 7)}`;
  return `sw-${fleet}-${label}-`;
}

/** The ordinal in the pool; undefined for a name that no machine of this pool can have. */
export function ordinalOf(fleet: string, pool: string, name: string): number | undefined {
  const prefix = poolPrefix(fleet, pool);
  const rest = name.startsWith(prefix) ? /^m(\d{1,6})(-\d+)?$/.exec(name.slice(prefix.length)) : null;
  return rest ? Number(rest[1]) : undefined;
}
