// Turns demand into machines. One round: poll the database (which runs what is due and returns demand and lives), list
// the provider's machines if needed, plan, execute. Between rounds it sleeps until a poke or until something is due;
// with no work and no machine there is no timer, no query and no call.
//
// Several orchestrators may run at once: each start is first reserved in the database, where an ordinal can be taken once.

import { randomBytes } from "node:crypto";
import os from "node:os";
import { AbsenceWatch } from "../db/absence-watch.ts";
import {
  databaseAddress,
  type Fleet,
  type PoolSnapshot,
  pollPools,
  type ReportedProviderError,
  readFleet,
  reportProviderError,
  setMachines,
} from "../db/calls/machines.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { Housekeeping } from "../db/housekeeping.ts";
import { StillwakeError } from "../errors.ts";
import { formatPlural } from "../text/format.ts";
import { Executor, type OrchestratorEvent } from "./executor.ts";
import { describeAction, type Plan, plan } from "./plan.ts";
import { findPrice, type PriceTable } from "./prices.ts";
import {
  type Clock,
  type ListedMachine,
  machineName,
  ordinalOf,
  type Provider,
  ProviderError,
  realClock,
} from "./provider.ts";
import { ProviderListing } from "./provider-listing.ts";
import { checkPools, type PoolOptions, type PoolSettings, readPoolOptions } from "./settings.ts";

export interface OrchestratorOptions extends DatabaseOptions {
  /** The machines of each pool, by pool name. */
  pools: Readonly<Record<string, PoolOptions>>;
  /** Take precedence over the bundled price tables. */
  prices?: PriceTable;
  onEvent?: (event: OrchestratorEvent) => void;
  /** Its name in the database and in logs. */
  name?: string;
  /** Replaced in tests. */
  clock?: Clock;
}

/** The settings, provider and in-process state of one pool. */
export interface Pool {
  name: string;
  settings: PoolSettings;
  provider: Provider;
  price: ReturnType<typeof findPrice>;
  executor: Executor;
  listing: ProviderListing;
  /** The last decision that was reported. */
  lastDecision: string;
}

/** How often a provider that does not report exits itself is polled while machines run. */
const LIST_EVERY_MS = 30_000;
/** Workers check more often; the orchestrator and the server do it for the last one. */
const ABSENCE = { leaseMs: 15_000, everyMs: 500 };
const INITIAL_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 60_000;

export class Orchestrator {
  readonly name: string;
  readonly #options: OrchestratorOptions;
  readonly #database: Database;
  readonly #housekeeping: Housekeeping;
  readonly #absenceWatch: AbsenceWatch;
  readonly #clock: Clock;
  readonly #address: string | null;
  #fleet: Fleet | undefined;
  #pools: Pool[] = [];
  /** Aborting it ends the sleep. */
  #sleeping: AbortController | undefined;
  #round: Promise<void> | undefined;
  #again = false;
  /** The last plan of each pool. */
  #plans: Record<string, Plan> = {};
  #failures = 0;
  /** Rounds in a row that found nothing to do although something was due. */
  #idleRounds = 0;
  #stopped = false;

  constructor(options: OrchestratorOptions) {
    const { pools: _1, prices: _2, onEvent: _3, name, clock, ...database } = options;
    this.#options = options;
    this.#clock = clock ?? realClock;
    this.name = name ?? `${os.hostname()}-${process.pid}-${randomBytes(2).toString("hex")}`;
    this.#address = databaseAddress(options.url);
    this.#database = new Database({ idleTimeout: "2s", connections: 4, ...database });
    this.#housekeeping = new Housekeeping({
      database: this.#database,
      onError: (error) =>
        this.#emit({ kind: "database", level: "warn", message: `Housekeeping failed: ${(error as Error).message}` }),
    });
    this.#absenceWatch = new AbsenceWatch({ database: this.#database, worker: null, ...ABSENCE });
  }

  get fleet(): string {
    return this.#fleet!.id;
  }

  /** Resolves when the fleet is verified and every provider is ready; the first round follows at once. */
  async start(): Promise<this> {
    await this.#open();
    this.poke();
    return this;
  }

  /** Runs one round and its actions, for cron or to create warm machines. Returns the plans. */
  async once(): Promise<Record<string, Plan>> {
    await this.#open();
    for (const { listing } of this.#pools) listing.wanted = true;
    this.#kick();
    await this.settled();
    return this.#plans;
  }

  /** Announces possible work. Cheap; concurrent calls cause one round. */
  poke(_pool?: string): void {
    this.#idleRounds = 0;
    this.#kick();
  }

  /** Resolves when no round and no provider call is in progress. */
  async settled(): Promise<void> {
    while (this.#round || this.#pools.some(({ executor, listing }) => executor.busy || listing.busy)) {
      await this.#round;
      await Promise.all(this.#pools.flatMap(({ executor, listing }) => [executor.settled(), listing.settled()]));
    }
  }

  /**
   * Waits for calls in progress. Remote machines keep running; child processes release their jobs and are waited for,
   * unless `leave` is set.
   */
  async stop(options: { leave?: boolean } = {}): Promise<void> {
    this.#stopped = true;
    this.#sleeping?.abort();
    this.#absenceWatch.stop();
    await this.settled();
    await Promise.all(this.#pools.map(({ provider }) => provider.close?.(options)));
    // Record the exits of child processes.
    if (this.#pools.some(({ executor }) => executor.hasEnded)) await this.#closeLives().catch(() => {});
    await this.settled();
    await this.#housekeeping.stop();
    await this.#database.close();
  }

  async #closeLives(): Promise<void> {
    const snapshots = await pollPools(
      this.#database,
      this.#pools.map(({ name }) => name),
    );
    for (const snapshot of snapshots) {
      const { executor } = this.#pools.find(({ name }) => name === snapshot.pool)!;
      for (const action of executor.endActions(snapshot)) executor.execute(action, snapshot);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #open(): Promise<void> {
    if (this.#pools.length > 0) return;
    const fleet = await readFleet(this.#database, this.#address);
    if (!fleet.fits) {
      throw new StillwakeError("FLEET_COPIED", `This database looks like a copy: ${fleet.why}`, {
        remedy:
          "Run `stillwake fleet adopt` to give a copy its own fleet id and leave the machines to the original, or `stillwake fleet adopt --same` if this is the original at a new address",
      });
    }
    this.#fleet = fleet;
    checkPools(this.#options.pools);
    const pools = Object.entries(this.#options.pools).map(([name, options]) => this.#makePool(name, options));
    for (const pool of pools) await this.#register(pool);
    this.#pools = pools;
  }

  #makePool(name: string, options: PoolOptions): Pool {
    const { clock, prices } = { clock: this.#clock, prices: this.#options.prices };
    const graceMs = readPoolOptions(name, options, {}).graceMs;
    const provider = options.provider({
      fleet: this.fleet,
      pool: name,
      slots: options.slots ?? 1,
      graceMs,
      clock,
      report: (level, message, facts) =>
        this.#emit({ kind: "provider", level, pool: name, message, ...(facts && { facts }) }),
    });
    const settings = readPoolOptions(name, options, provider.facts);
    if (settings.warm > 0 && !provider.prepare) {
      throw new StillwakeError(
        "INVALID_INPUT",
        `Pool "${name}" has warm ${settings.warm}, but ${provider.kind} does not support warm machines`,
        {
          remedy: "Remove warm: machines are created when there is work",
          field: `pools.${name}.warm`,
        },
      );
    }
    const price = findPrice(provider.kind, provider.facts, prices && { prices });
    const executor = new Executor({
      database: this.#database,
      provider,
      settings,
      pool: name,
      price: settings.price ?? price?.perSecond,
      prices: settings.price === undefined ? price?.table : "own",
      leastSeconds: price?.leastSeconds ?? provider.facts.leastSeconds ?? 0,
      by: this.name,
      nameOf: (ordinal) => machineName(this.fleet, name, ordinal),
      report: (event) => this.#emit({ ...event, pool: name }),
      onDone: () => this.#kick(),
      now: () => this.#clock.now(),
    });
    provider.onEnded?.((machine) => {
      executor.noteEnded(machine);
      this.#kick();
    });
    const pool: Pool = {
      name,
      settings,
      provider,
      price,
      executor,
      listing: new ProviderListing({
        provider,
        clock,
        onListed: () => this.#kick(),
        onFailed: (error) => void this.#listingFailed(pool, error),
      }),
      lastDecision: "",
    };
    return pool;
  }

  async #register({ name, settings, provider, price }: Pool): Promise<void> {
    const { size, region, fingerprint } = provider.facts;
    const perSecond = settings.price ?? price?.perSecond;
    await setMachines(this.#database, name, {
      provider: provider.kind,
      ...(size !== undefined && { size }),
      ...(region !== undefined && { region }),
      ...(fingerprint !== undefined && { made: fingerprint }),
      slots: settings.slots,
      warm: settings.warm,
      max: settings.max,
      burst: settings.burst,
      idle_exit_ms: settings.idleExitMs,
      ...(perSecond !== undefined && {
        price: perSecond,
        prices: settings.price === undefined ? price!.table : "own",
        currency: "USD",
      }),
      ...(price && { least_seconds: price.leastSeconds, idle_price: price.idlePerSecond(settings.disk) }),
      disk: settings.disk,
      ...(settings.largerPool !== undefined && { larger_pool: settings.largerPool }),
    });
    // The token may have been replaced since the last start.
    await reportProviderError(this.#database, name, null);
    const warnings = await provider.check?.().catch((error: Error) => [error.message]);
    for (const message of warnings ?? []) this.#emit({ kind: "provider", level: "warn", pool: name, message });
  }

  #kick(): void {
    if (this.#stopped || this.#pools.length === 0) return;
    this.#sleeping?.abort();
    this.#again = true;
    this.#round ??= this.#rounds().finally(() => {
      this.#round = undefined;
      if (this.#again) this.#kick();
    });
  }

  async #rounds(): Promise<void> {
    while (this.#again && !this.#stopped) {
      this.#again = false;
      // Coalesce concurrent pokes.
      await new Promise(setImmediate);
      await this.#poll();
    }
  }

  async #poll(): Promise<void> {
    try {
      const began = this.#clock.now();
      const names = this.#pools.map(({ name }) => name);
      const snapshots = await pollPools(this.#database, names);
      this.#housekeeping.check();
      if (this.#failures > 0)
        this.#emit({ kind: "database", level: "info", message: "The database is reachable again" });
      this.#failures = 0;
      if (snapshots.some(({ working }) => working.length > 0)) this.#absenceWatch.start();
      for (const snapshot of snapshots) this.#plans[snapshot.pool] = this.#decide(snapshot, began);
      this.#scheduleNext(snapshots);
    } catch (error) {
      if (this.#stopped) return;
      if (this.#failures === 0) {
        const message = `Cannot query the database: ${(error as Error).message}`;
        this.#emit({ kind: "database", level: "warn", message });
      }
      this.#sleep(Math.min(INITIAL_BACKOFF_MS * 2 ** Math.min(this.#failures++, 10), MAX_BACKOFF_MS));
    }
  }

  /** Plans one pool and executes. If the plan needs a list, it is requested, and another round follows. */
  #decide(snapshot: PoolSnapshot, began: number): Plan {
    const pool = this.#pools.find(({ name }) => name === snapshot.pool)!;
    const { provider, executor, listing } = pool;
    const listed = listing.take(began);
    if (listed) {
      listing.noteStrays(
        listed.machines,
        new Set([...snapshot.lives.map(({ machine }) => machine), ...snapshot.working]),
      );
      if (isTokenRejected(snapshot)) void reportProviderError(this.#database, pool.name, null).catch(() => {});
    }
    const decided = this.#plan(pool, snapshot, listed);
    const isWatched = (snapshot.lives.length > 0 && !provider.onEnded) || executor.hasUncertainStart;
    const isDue = isWatched && this.#clock.now() - listing.requestedAt >= LIST_EVERY_MS;
    const isNeeded = listing.wanted || isDue || listing.isDue || decided.needsListing || executor.unfinishedMs === 0;
    if (!listed && isNeeded && !isTokenRejected(snapshot)) {
      listing.request();
      executor.clearUnfinished();
    }
    const ends = executor.endActions(snapshot);
    const hasEnded = (action: Plan["actions"][number]) =>
      "life" in action && ends.some(({ life }) => life === action.life);
    decided.actions = [...ends, ...decided.actions.filter((action) => !hasEnded(action))];
    this.#reportDecision(pool, decided);
    for (const action of decided.actions) executor.execute(action, snapshot);
    return decided;
  }

  #plan(pool: Pool, snapshot: PoolSnapshot, listing?: { machines: readonly ListedMachine[]; agoMs: number }): Plan {
    return plan({
      settings: pool.settings,
      snapshot,
      ...(listing && { listing }),
      ordinalOf: (name) => ordinalOf(this.fleet, pool.name, name),
      unavailableOrdinals: pool.executor.unavailableOrdinals(this.#clock.now()),
      unanswered: pool.executor.unansweredStarts(this.#clock.now()),
      strayMs: (name) => pool.listing.strayMs(name),
      canPrepare: pool.provider.prepare !== undefined,
    });
  }

  /** The provider's list failed: the state of its machines is unknown. */
  async #listingFailed(pool: Pool, error: unknown): Promise<void> {
    const isRejected = error instanceof ProviderError && error.kind === "auth";
    const providerError: ReportedProviderError = pool.executor.describeError(error);
    this.#emit({
      kind: "error",
      level: isRejected || (error instanceof ProviderError && error.kind === "refused") ? "error" : "warn",
      pool: pool.name,
      message: `Cannot list machines: ${providerError.message}`,
    });
    // A failed list does not block starts, except for a rejected token.
    if (isRejected) await reportProviderError(this.#database, pool.name, providerError).catch(() => {});
    this.#kick();
  }

  /** One event per decision; none when nothing has changed. */
  #reportDecision(pool: Pool, { current, wanted, why, actions }: Plan): void {
    const steps = actions.map(describeAction);
    const message = `${pool.name}: ${current} of ${formatPlural(wanted, "machine")}, ${why}${steps.length > 0 ? ` → ${steps.join(", ")}` : ""}`;
    if (message === pool.lastDecision) return;
    const isQuiet = pool.lastDecision === "" && steps.length === 0 && current === wanted;
    pool.lastDecision = message;
    if (isQuiet) return;
    const burst = actions.some((action) => action.do === "start" && action.burst) && pool.settings.warm > 0;
    this.#emit({
      kind: "decision",
      level: burst ? "warn" : "info",
      pool: pool.name,
      message,
      facts: { current, wanted, why },
    });
  }

  /** Sleeps until the next time that is due or that a plan requests. */
  #scheduleNext(snapshots: PoolSnapshot[]): void {
    const times = Object.values(this.#plans).flatMap(({ checkAgainMs: againMs }) =>
      againMs === undefined ? [] : [againMs],
    );
    for (const snapshot of snapshots) {
      const { nextDue, at, providerError } = snapshot;
      const { executor, listing } = this.#pools.find(({ name }) => name === snapshot.pool)!;
      if (executor.hasPrepared) times.push(5000);
      if (executor.hasUncertainStart) times.push(LIST_EVERY_MS);
      const queries = isTokenRejected(snapshot)
        ? [Date.parse(providerError!.until!) - at.getTime()]
        : [listing.checkAgainMs(), executor.unfinishedMs];
      times.push(...queries.filter((ms) => ms !== undefined));
      // A pool paused by its budget is due when the next period begins; any other paused pool is never due.
      if (nextDue === null) continue;
      const inMs = nextDue.getTime() - at.getTime();
      // Something is due but nothing could be done: another process is at work, or it is impossible. Back off.
      times.push(inMs > 0 ? inMs + 5 : Math.min(1000 * 2 ** Math.min(this.#idleRounds++, 6), MAX_BACKOFF_MS));
    }
    if (snapshots.every(({ nextDue, at }) => nextDue === null || nextDue > at)) this.#idleRounds = 0;
    if (times.length > 0) this.#sleep(Math.min(...times));
  }

  #sleep(ms: number): void {
    if (this.#stopped) return;
    this.#sleeping?.abort();
    const sleeping = new AbortController();
    this.#sleeping = sleeping;
    void this.#clock.sleep(Math.max(ms, 10), sleeping.signal).then(() => {
      if (!sleeping.signal.aborted) this.#kick();
    });
  }

  #emit(event: OrchestratorEvent): void {
    this.#options.onEvent?.(event);
  }
}

/** The provider rejected the token, and the pause after that has not passed. */
function isTokenRejected({ providerError, at }: PoolSnapshot): boolean {
  return (
    providerError?.code === "PROVIDER_AUTH" &&
    providerError.until !== undefined &&
    Date.parse(providerError.until) > at.getTime()
  );
}
