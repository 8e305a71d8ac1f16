// Turns demand into machines. One round is: look (the database does what is due without a worker and answers demand and lives), ask the provider where that is
// needed, plan, act. Between rounds it sleeps until it is poked or something is due; with no work and no machine there is no timer, no query and no call.
//
// Several may run at once: each start is reserved in the database first, where a place can be taken once.
import { randomBytes } from "node:crypto";
import os from "node:os";
import {
  type Fleet,
  type Look,
  look,
  readFleet,
  reportTrouble,
  setMachines,
  type Trouble,
} from "../db/calls/machines.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { StillwakeError } from "../errors.ts";
import { databaseAddress } from "./database-address.ts";
import { actWords, type OrchestratorEvent } from "./event.ts";
import { Actor } from "./executor.ts";
import { machineName, slotOf } from "./names.ts";
import { type Plan, plan } from "./plan.ts";
import { type PriceTable, priceOf } from "./prices.ts";
import { type Clock, type Provider, ProviderError, realClock, type SeenMachine } from "./provider.ts";
import { Listing } from "./provider-listing.ts";
import { checkPools, type PoolOptions, type PoolSettings, readPoolOptions } from "./settings.ts";

export interface OrchestratorOptions extends DatabaseOptions {
  /** What machines each pool has. */
  pools: Readonly<Record<string, PoolOptions>>;
  /** Prices instead of those that come with this version. */
  prices?: PriceTable;
  onEvent?: (event: OrchestratorEvent) => void;
  /** How it is called in the database and in logs. */
  name?: string;
  /** For tests. */
  clock?: Clock;
}

/** One pool: its settings, its provider, and what this process knows of it. */
export interface Pool {
  name: string;
  settings: PoolSettings;
  provider: Provider;
  price: ReturnType<typeof priceOf>;
  actor: Actor;
  listing: Listing;
  /** The last decision that was said. */
  said: string;
}

/** How often the provider is asked about machines that run, unless it tells of their ends by itself. */
const LIST_EVERY_MS = 30_000;
const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 60_000;

export class Orchestrator {
  readonly name: string;
  readonly #options: OrchestratorOptions;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #address: string | null;
  #fleet: Fleet | undefined;
  #pools: Pool[] = [];
  /** Ends the sleep. */
  #sleeping: AbortController | undefined;
  #round: Promise<void> | undefined;
  #again = false;
  /** What was decided last, by pool. */
  #plans: Record<string, Plan> = {};
  #failures = 0;
  /** How often in a row a round found nothing to do though something was due. */
  #vainRounds = 0;
  #stopped = false;

  constructor(options: OrchestratorOptions) {
    const { pools: _1, prices: _2, onEvent: _3, name, clock, ...database } = options;
    this.#options = options;
    this.#clock = clock ?? realClock;
    this.name = name ?? `${os.hostname()}-${process.pid}-${randomBytes(2).toString("hex")}`;
    this.#address = databaseAddress(options.url);
    this.#database = new Database({ idleTimeout: "2s", connections: 4, ...database });
  }

  get fleet(): string {
    return this.#fleet!.id;
  }

  /** Resolves when the fleet is known to be ours and every provider is ready; the first round follows at once. */
  async start(): Promise<this> {
    await this.#open();
    this.poke();
    return this;
  }

  /** One round with everything that follows from it, and no more: for a cron, or to make the warm machines of a new pool. Answers what was decided. */
  async once(): Promise<Record<string, Plan>> {
    await this.#open();
    for (const { listing } of this.#pools) listing.wanted = true;
    this.#kick();
    await this.settled();
    return this.#plans;
  }

  /** There may be work. Costs nothing here; calls of one moment are one look. */
  poke(_pool?: string): void {
    this.#vainRounds = 0;
    this.#kick();
  }

  /** Resolves when no round and no call to a provider is under way. */
  async settled(): Promise<void> {
    while (this.#round || this.#pools.some(({ actor, listing }) => actor.busy || listing.busy)) {
      await this.#round;
      await Promise.all(this.#pools.flatMap(({ actor, listing }) => [actor.settled(), listing.settled()]));
    }
  }

  /** Lets calls under way end. Machines go on; those that are children of this process hand back their jobs and are waited for, unless they are to be left. */
  async stop(options: { leave?: boolean } = {}): Promise<void> {
    this.#stopped = true;
    this.#sleeping?.abort();
    await this.settled();
    await Promise.all(this.#pools.map(({ provider }) => provider.close?.(options)));
    // The ends of those that were children of this process.
    if (this.#pools.some(({ actor }) => actor.hasEndings)) await this.#closeLives().catch(() => {});
    await this.settled();
    await this.#database.close();
  }

  async #closeLives(): Promise<void> {
    const looks = await look(
      this.#database,
      this.#pools.map(({ name }) => name),
    );
    for (const one of looks) {
      const { actor } = this.#pools.find(({ name }) => name === one.pool)!;
      for (const action of actor.endings(one)) actor.act(action, one);
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
          "Decide once: `stillwake fleet adopt` gives it a fleet of its own and leaves the machines to the original; `stillwake fleet adopt --same` says that it is the original, moved",
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
      say: (level, message, facts) =>
        this.#say({ kind: "provider", level, pool: name, message, ...(facts && { facts }) }),
    });
    const settings = readPoolOptions(name, options, provider.facts);
    if (settings.warm > 0 && !provider.prepare) {
      throw new StillwakeError(
        "INVALID_INPUT",
        `Pool "${name}" keeps ${settings.warm} machines warm, which ${provider.kind} does not offer`,
        {
          remedy: "Leave warm out: its machines are made when there is work",
          field: `pools.${name}.warm`,
        },
      );
    }
    const price = priceOf(provider.kind, provider.facts, prices && { prices });
    const actor = new Actor({
      database: this.#database,
      provider,
      settings,
      pool: name,
      price: settings.price ?? price?.perSecond,
      prices: settings.price === undefined ? price?.table : "own",
      leastSeconds: price?.leastSeconds ?? provider.facts.leastSeconds ?? 0,
      by: this.name,
      nameOf: (slot) => machineName(this.fleet, name, slot),
      say: (event) => this.#say({ ...event, pool: name }),
      onDone: () => this.#kick(),
      now: () => this.#clock.now(),
    });
    provider.onEnded?.((machine) => {
      actor.ended(machine);
      this.#kick();
    });
    const pool: Pool = {
      name,
      settings,
      provider,
      price,
      actor,
      listing: new Listing({
        provider,
        clock,
        onAnswer: () => this.#kick(),
        onTrouble: (error) => void this.#trouble(pool, error),
      }),
      said: "",
    };
    return pool;
  }

  async #register({ name, settings, provider, price }: Pool): Promise<void> {
    const { size, region, made } = provider.facts;
    const perSecond = settings.price ?? price?.perSecond;
    await setMachines(this.#database, name, {
      provider: provider.kind,
      ...(size !== undefined && { size }),
      ...(region !== undefined && { region }),
      ...(made !== undefined && { made }),
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
      ...(settings.larger !== undefined && { larger: settings.larger }),
    });
    // Whoever starts anew may have another token.
    await reportTrouble(this.#database, name, null);
    const warnings = await provider.check?.().catch((error: Error) => [error.message]);
    for (const message of warnings ?? []) this.#say({ kind: "provider", level: "warn", pool: name, message });
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
      // Pokes of this moment are one.
      await new Promise(setImmediate);
      await this.#look();
    }
  }

  async #look(): Promise<void> {
    try {
      const began = this.#clock.now();
      const names = this.#pools.map(({ name }) => name);
      const looks = await look(this.#database, names);
      if (this.#failures > 0) this.#say({ kind: "database", level: "info", message: "The database is back" });
      this.#failures = 0;
      for (const one of looks) this.#plans[one.pool] = this.#decide(one, began);
      this.#rest(looks);
    } catch (error) {
      if (this.#stopped) return;
      if (this.#failures === 0) {
        const message = `The database cannot be asked: ${(error as Error).message}`;
        this.#say({ kind: "database", level: "warn", message });
      }
      this.#sleep(Math.min(FIRST_BACKOFF_MS * 2 ** Math.min(this.#failures++, 10), MAX_BACKOFF_MS));
    }
  }

  /** Plans for one pool and acts, with the provider's word if there is a fresh one; where one is needed it is asked for, and a round follows. */
  #decide(one: Look, began: number): Plan {
    const pool = this.#pools.find(({ name }) => name === one.pool)!;
    const { provider, actor, listing } = pool;
    const seen = listing.take(began);
    if (seen) {
      listing.note(seen.machines, new Set([...one.lives.map(({ machine }) => machine), ...one.working]));
      if (isRefused(one)) void reportTrouble(this.#database, pool.name, null).catch(() => {});
    }
    const decided = this.#plan(pool, one, seen);
    const isWatched = (one.lives.length > 0 && !provider.onEnded) || actor.isInDoubt;
    const isDue = isWatched && this.#clock.now() - listing.askedAt >= LIST_EVERY_MS;
    const wants = listing.wanted || isDue || listing.isDue || decided.ask || actor.unfinishedMs === 0;
    if (!seen && wants && !isRefused(one)) {
      listing.ask();
      actor.askedAgain();
    }
    const told = actor.endings(one);
    const isTold = (action: Plan["actions"][number]) =>
      "life" in action && told.some(({ life }) => life === action.life);
    decided.actions = [...told, ...decided.actions.filter((action) => !isTold(action))];
    this.#tell(pool, decided);
    for (const action of decided.actions) actor.act(action, one);
    return decided;
  }

  #plan(pool: Pool, one: Look, seen?: { machines: readonly SeenMachine[]; agoMs: number }): Plan {
    return plan({
      settings: pool.settings,
      look: one,
      ...(seen && { seen }),
      placeOf: (name) => slotOf(this.fleet, pool.name, name),
      shunned: pool.actor.shunned(this.#clock.now()),
      unanswered: pool.actor.unanswered(this.#clock.now()),
      strayMs: (name) => pool.listing.strayMs(name),
      prepares: pool.provider.prepare !== undefined,
    });
  }

  /** Nobody says which machines there are: nothing is known, and nothing is concluded. */
  async #trouble(pool: Pool, error: unknown): Promise<void> {
    const refused = error instanceof ProviderError && error.trouble === "auth";
    const trouble: Trouble = pool.actor.troubleOf(error);
    this.#say({
      kind: "trouble",
      level: refused || (error instanceof ProviderError && error.trouble === "refused") ? "error" : "warn",
      pool: pool.name,
      message: `Machines cannot be looked at: ${trouble.message}`,
    });
    // A look that failed keeps nothing from being started, but for a token that is refused.
    if (refused) await reportTrouble(this.#database, pool.name, trouble).catch(() => {});
    this.#kick();
  }

  /** One line per decision, and none when nothing has changed. */
  #tell(pool: Pool, { current, wanted, why, actions }: Plan): void {
    const acts = actions.map((action) => actWords(action));
    const message = `${pool.name}: has ${current}, wants ${wanted}: ${why}${acts.length > 0 ? ` → ${acts.join(", ")}` : ""}`;
    if (message === pool.said) return;
    const quiet = pool.said === "" && acts.length === 0 && current === wanted;
    pool.said = message;
    if (quiet) return;
    const burst = actions.some((action) => action.do === "start" && action.burst) && pool.settings.warm > 0;
    this.#say({
      kind: "decision",
      level: burst ? "warn" : "info",
      pool: pool.name,
      message,
      facts: { current, wanted, why },
    });
  }

  /** Sleeps until something is due, or for as long as the plans say. */
  #rest(looks: Look[]): void {
    const times = Object.values(this.#plans).flatMap(({ againMs }) => (againMs === undefined ? [] : [againMs]));
    for (const one of looks) {
      const { nextDue, at, trouble } = one;
      const { actor, listing } = this.#pools.find(({ name }) => name === one.pool)!;
      if (actor.hasPrepared) times.push(5000);
      if (actor.isInDoubt) times.push(LIST_EVERY_MS);
      const asking = isRefused(one)
        ? [Date.parse(trouble!.until!) - at.getTime()]
        : [listing.againMs(), actor.unfinishedMs];
      times.push(...asking.filter((ms) => ms !== undefined));
      // A paused pool has none, but for the moment at which its budget begins anew.
      if (nextDue === null) continue;
      const inMs = nextDue.getTime() - at.getTime();
      // Due, and yet nothing was to be done about it: somebody else is at it, or it cannot be done. The waits grow.
      times.push(inMs > 0 ? inMs + 5 : Math.min(1000 * 2 ** Math.min(this.#vainRounds++, 6), MAX_BACKOFF_MS));
    }
    if (looks.every(({ nextDue, at }) => nextDue === null || nextDue > at)) this.#vainRounds = 0;
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

  #say(event: OrchestratorEvent): void {
    this.#options.onEvent?.(event);
  }
}

/** The token was refused, and nobody is to be asked with it for a while. */
function isRefused({ trouble, at }: Look): boolean {
  return trouble?.code === "PROVIDER_AUTH" && trouble.until !== undefined && Date.parse(trouble.until) > at.getTime();
}
