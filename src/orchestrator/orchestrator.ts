// Turns demand into machines. One round is: look (the database does what is due without a worker and answers demand and lives), ask the provider where that is
// needed, plan, act. Between rounds it sleeps until it is poked or something is due; with no work and no machine there is no timer, no query and no call.
//
// Several may run at once: each start is reserved in the database first, where a place can be taken once.
import { randomBytes } from "node:crypto";
import os from "node:os";
import { Database, type DatabaseOptions } from "../database.ts";
import { StillwakeError } from "../errors.ts";
import { type Fleet, type Look, look, readFleet, reportTrouble, setMachines, type Trouble } from "../fleet-verbs.ts";
import { Actor } from "./actor.ts";
import { databaseAddress } from "./address.ts";
import { actWords, type OrchestratorEvent } from "./event.ts";
import { machineName, slotOf } from "./names.ts";
import { type Plan, plan } from "./plan.ts";
import { type PriceTable, priceOf } from "./prices.ts";
import { type Clock, type Provider, ProviderError, realClock, type SeenMachine } from "./provider.ts";
import { type PoolOptions, type PoolSettings, readPoolOptions } from "./settings.ts";

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
  /** Since when machines without a life have been seen, by their name. */
  strays: Map<string, number>;
  /** When the provider was asked last, and from when on it may be asked again after it gave no answer. */
  listedAt: number;
  askAgainAt: number;
  /** The last decision that was said. */
  said: string;
}

/** How often the provider is asked about machines that run, unless it tells of their ends by itself. */
const LIST_EVERY_MS = 30_000;
/** After a provider did not say which machines there are, with all its tries. */
const ASK_PAUSE_MS = 15_000;
const FIRST_BACKOFF_MS = 1000;
const MOST_BACKOFF_MS = 60_000;

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
  /** Ask every provider in the next round, whatever was known before. */
  #askAll = true;
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
    this.#askAll = true;
    const plans = await this.#look();
    await this.settled();
    return plans;
  }

  /** There may be work. Costs nothing here; calls of one moment are one look. */
  poke(_pool?: string): void {
    this.#vainRounds = 0;
    this.#kick();
  }

  /** Resolves when no round and no call to a provider is under way. */
  async settled(): Promise<void> {
    while (this.#round || this.#pools.some(({ actor }) => actor.busy)) {
      await this.#round;
      await Promise.all(this.#pools.map(({ actor }) => actor.settled()));
    }
  }

  /** Lets calls under way end. Machines go on; those that are children of this process hand back their jobs and are waited for. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#sleeping?.abort();
    await this.settled();
    await Promise.all(this.#pools.map(({ provider }) => provider.close?.()));
    await this.settled();
    await this.#database.close();
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
    return {
      name,
      settings,
      provider,
      price,
      actor,
      strays: new Map(),
      listedAt: Number.NEGATIVE_INFINITY,
      askAgainAt: 0,
      said: "",
    };
  }

  async #register({ name, settings, provider, price }: Pool): Promise<void> {
    const { size, region } = provider.facts;
    const perSecond = settings.price ?? price?.perSecond;
    await setMachines(this.#database, name, {
      provider: provider.kind,
      ...(size !== undefined && { size }),
      ...(region !== undefined && { region }),
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

  async #look(): Promise<Record<string, Plan>> {
    const plans: Record<string, Plan> = {};
    try {
      const looks = await look(
        this.#database,
        this.#pools.map(({ name }) => name),
      );
      if (this.#failures > 0) this.#say({ kind: "database", level: "info", message: "The database is back" });
      this.#failures = 0;
      const askAll = this.#askAll;
      this.#askAll = false;
      await Promise.all(
        looks.map(async (one) => {
          const pool = this.#pools.find(({ name }) => name === one.pool)!;
          plans[one.pool] = await this.#decide(pool, one, askAll);
        }),
      );
      this.#rest(looks, Object.values(plans));
    } catch (error) {
      if (this.#stopped) return plans;
      if (this.#failures === 0)
        this.#say({
          kind: "database",
          level: "warn",
          message: `The database cannot be asked: ${(error as Error).message}`,
        });
      const waitMs = Math.min(FIRST_BACKOFF_MS * 2 ** Math.min(this.#failures++, 10), MOST_BACKOFF_MS);
      this.#sleep(waitMs);
    }
    return plans;
  }

  /** Plans for one pool and acts; with the provider's word where that is needed. */
  async #decide(pool: Pool, first: Look, askAll: boolean): Promise<Plan> {
    const { provider, actor } = pool;
    const dueForList = first.lives.length > 0 && !provider.onEnded && this.#clock.now() - pool.listedAt > LIST_EVERY_MS;
    let now = first;
    let decided = this.#plan(pool, now);
    if ((askAll || dueForList || decided.ask) && this.#clock.now() >= pool.askAgainAt) {
      const askedAt = this.#clock.now();
      const machines = await this.#list(pool);
      if (machines) {
        // Looked at after the list: whatever is in the list and has no life now was not reserved by anybody.
        now = (await look(this.#database, [pool.name]))[0]!;
        decided = this.#plan(pool, now, { machines, agoMs: this.#clock.now() - askedAt });
      }
    }
    decided.actions.unshift(...actor.endings(now));
    this.#tell(pool, decided);
    for (const action of decided.actions) actor.act(action, now);
    return decided;
  }

  #plan(pool: Pool, one: Look, seen?: { machines: readonly SeenMachine[]; agoMs: number }): Plan {
    const now = this.#clock.now();
    return plan({
      settings: pool.settings,
      look: one,
      ...(seen && { seen }),
      placeOf: (name) => slotOf(this.fleet, pool.name, name),
      shunned: pool.actor.shunned(now),
      unanswered: pool.actor.unanswered,
      strayMs: (name) => now - (pool.strays.get(name) ?? now),
      prepares: pool.provider.prepare !== undefined,
    });
  }

  /** Undefined when nobody answers: then nothing is known, and nothing is concluded. */
  async #list(pool: Pool): Promise<SeenMachine[] | undefined> {
    pool.listedAt = this.#clock.now();
    try {
      const machines = await pool.provider.list();
      const seen = new Set(machines.map(({ name }) => name));
      for (const name of pool.strays.keys()) if (!seen.has(name)) pool.strays.delete(name);
      for (const name of seen) if (!pool.strays.has(name)) pool.strays.set(name, pool.listedAt);
      return machines;
    } catch (error) {
      await this.#trouble(pool, error);
      return undefined;
    }
  }

  async #trouble(pool: Pool, error: unknown): Promise<void> {
    const trouble: Trouble = pool.actor.troubleOf(error);
    pool.askAgainAt = this.#clock.now() + ASK_PAUSE_MS;
    this.#say({
      kind: "trouble",
      level:
        error instanceof ProviderError && error.trouble !== "auth" && error.trouble !== "refused" ? "warn" : "error",
      pool: pool.name,
      message: `Machines cannot be looked at: ${trouble.message}`,
    });
    // What is only a look that failed does not keep starts from being tried, but for a token that is refused.
    if (error instanceof ProviderError && error.trouble === "auth")
      await reportTrouble(this.#database, pool.name, trouble);
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
  #rest(looks: Look[], plans: Plan[]): void {
    const times = plans.flatMap(({ againMs }) => (againMs === undefined ? [] : [againMs]));
    if (this.#pools.some(({ actor }) => actor.hasPrepared)) times.push(5000);
    for (const { nextDue, at, paused } of looks) {
      if (nextDue === null || paused !== null) continue;
      const inMs = nextDue.getTime() - at.getTime();
      // Due, and yet nothing was to be done about it: somebody else is at it, or it cannot be done. The waits grow.
      times.push(inMs > 0 ? inMs + 5 : Math.min(1000 * 2 ** Math.min(this.#vainRounds++, 6), MOST_BACKOFF_MS));
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
