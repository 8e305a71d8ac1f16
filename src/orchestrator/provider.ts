// What starts and stops machines, as the orchestrator sees it: five verbs, which every provider answers alike (test/orchestrator/providers.test.ts holds all of them to it).
// A provider knows no database and no jobs. It is made for one pool of one fleet, and touches only what carries both names.
//
// What no answer means: list() that cannot be answered throws, and is never taken for "there are none". start() that cannot be answered may or may
// not have started something: it throws an error that is not `certain`, and is called again with the same name, which adopts what is there.
import { StillwakeError } from "../errors.ts";

/**
 *   stopped   made, costs next to nothing, can be started          running    as far as the provider knows
 *   starting  asked for; not running yet                           stopping   on its way out
 *   gone      it ran once and can never be started again
 */
export type MachineState = "stopped" | "starting" | "running" | "stopping" | "gone";

/** How a machine ended. */
export interface Exit {
  code?: number;
  signal?: string;
  /** For want of memory. */
  oom?: boolean;
  /** What memory it had, in words such as "64 GB". */
  memory?: string;
  /** Somebody asked it to. */
  requested?: boolean;
  /** Anything else the provider says. */
  reason?: string;
}

/** A machine of this fleet and pool at its provider. Times are the provider's. */
export interface SeenMachine {
  name: string;
  /** What the provider calls it. */
  id: string;
  state: MachineState;
  /** Since when it is in a state that should pass (starting, stopping): one that lasts too long is stuck. */
  since?: Date;
  /** Of its present life or, if it is stopped or gone, of its last. */
  startedAt?: Date;
  endedAt?: Date;
  exit?: Exit;
  /** It was made with other settings (image, size, region) than those of now. */
  stale?: boolean;
}

/** A machine that is wanted. */
export interface Order {
  /** Its name, which no other machine has or had, but for one that is stopped and started again. */
  name: string;
  /** Made for one life: it goes when it ends. Otherwise it is stopped then and can be started again. */
  burst: boolean;
  /** For its worker: who it is, whose jobs it does, when it leaves. No secret. */
  env: Readonly<Record<string, string>>;
}

export interface Started {
  id: string;
  startedAt?: Date;
  /** Where, if not in the first region. */
  region?: string;
}

export interface Provider {
  /** "fly", "local", … */
  readonly kind: string;
  /** What its machines are, for prices and for people. */
  readonly facts: ProviderFacts;
  list(): Promise<SeenMachine[]>;
  /** Starts the machine of this name: the stopped one, or a new one. To ask again is harmless. Throws ProviderError. */
  start(order: Order): Promise<Started>;
  /** Makes a machine that can be started later, where that can be had; it may run for a moment first. To ask again is harmless. */
  prepare?(order: Order): Promise<{ id: string }>;
  /** Ends it if it runs, and leaves nothing of it. One that is gone already is no error. One that was seen as stopped and has been started since is left alone. */
  remove(machine: { name: string; id: string; state?: MachineState }): Promise<void>;
  /** Providers that learn of an end by themselves say so at once; of others list() is asked. */
  onEnded?(listener: (machine: SeenMachine) => void): void;
  /** How a machine has ended, where list() does not tell. */
  autopsy?(machine: { name: string; id: string }): Promise<Exit | undefined>;
  /** Checks that can be made before anything is started, such as what a token may do; answers warnings. */
  check?(): Promise<string[]>;
  /**
   * Lets go of everything in this process. Machines elsewhere go on; those that are children of this process are told to hand back their jobs and are waited
   * for, unless they are to be left: then they go on too.
   */
  close?(options?: { leave?: boolean }): Promise<void>;
}

export interface ProviderFacts {
  /** As the price table calls it: "performance-8x", "1 vCPU". */
  size?: string;
  region?: string;
  cpus?: number;
  memoryMb?: number;
  /** Of what its machines are made, in short (image, environment …): when that changes, how earlier ones fared counts no more. */
  made?: string;
  /** Seconds that are paid for at least. */
  leastSeconds?: number;
  /** How long from start() until its worker is expected to arrive, at most; default 2 minutes. */
  bootMs?: number;
}

/** What a provider is made with. */
export interface ProviderContext {
  fleet: string;
  pool: string;
  slots: number;
  /** From being asked to end to being killed. */
  graceMs: number;
  /** Said to people, once per happening. */
  say(level: "info" | "warn" | "error", message: string, facts?: Record<string, unknown>): void;
  /** Time and chance, for tests. */
  clock: Clock;
}

export interface Clock {
  now(): number;
  /** Ends early, without an error, when the signal does. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** What `fly({ … })`, `local({ … })` and the others answer: the pool that it stands under makes a provider of it. */
export type ProviderFactory = (context: ProviderContext) => Provider;

/**
 *   auth         the token is refused: somebody has to mend it; nothing is tried again for a while
 *   rate         asked too often; retryAfterMs says when
 *   capacity     there is no room, or a quota is used up
 *   unreachable  no answer, or an error on their side, after every try
 *   refused      what was asked makes no sense to them: it will be refused again
 *   unstartable  this one machine cannot be started; another one may
 */
export type ProviderTrouble = "auth" | "rate" | "capacity" | "unreachable" | "refused" | "unstartable";

export class ProviderError extends StillwakeError {
  readonly trouble: ProviderTrouble;
  /** Nothing has been started, and nothing will be, by what was asked. */
  readonly certain: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(
    trouble: ProviderTrouble,
    message: string,
    options: { certain: boolean; remedy?: string; retryAfterMs?: number; cause?: unknown; status?: number },
  ) {
    super(`PROVIDER_${trouble.toUpperCase()}`, message, {
      ...(options.remedy !== undefined && { remedy: options.remedy }),
      ...(options.cause !== undefined && { cause: options.cause }),
      retryable: trouble !== "refused" && trouble !== "auth",
    });
    this.trouble = trouble;
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
