// A worker: a keeper and its runners, from start to drain. `stillwake worker` and `createWorker` both use it.
//
//   start -> working -> draining (stops claiming, waits for its jobs up to the limit, then stops them) -> stopped
//
// It drains by itself when it has been idle for `idleExit`, and with `until` when nothing is left to do or after one job.
import { randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import os from "node:os";
import { runnerEnvironment, withheldNames } from "../config.ts";
import { registerDependency } from "../db/calls/flow.ts";
import { readDemand, registerPipeline } from "../db/calls/jobs.ts";
import { readPipelinePools } from "../db/calls/worker.ts";
import { Database } from "../db/database.ts";
import { Housekeeping } from "../db/housekeeping.ts";
import { WorkerPresence } from "../db/worker-presence.ts";
import { UnknownPool } from "../errors.ts";
import { memoryUse, watchMemory } from "../memory.ts";
import { findClosest } from "../text/suggest.ts";
import { MAX_TIMER_MS, withTimeout } from "../timeout.ts";
import { loadTracing, type Tracing } from "../tracing.ts";
import { version } from "../version.ts";
import { Keeper } from "./keeper/keeper.ts";
import { MachineRegistration } from "./keeper/machine-registration.ts";
import { sweepScratch } from "./keeper/scratch.ts";
import { WebhookPump } from "./keeper/webhook-pump.ts";
import { createWorkerEvents, type WorkerEvents } from "./observe/events.ts";
import type { Health } from "./observe/http.ts";
import { createMetrics, type Metrics } from "./observe/metrics.ts";
import { readWorkerOptions, type WorkerOptions, type WorkerSettings } from "./options.ts";
import { InProcessRunner } from "./runner/in-process.ts";
import { findModules } from "./runner/load-pipelines.ts";
import type { LoadedPipeline, Runners } from "./runner/port.ts";
import { RunnerPool } from "./runner/runner-pool.ts";

export type WorkerState = "new" | "working" | "draining" | "stopped";

/** How often time limits of jobs are checked. */
const LIMITS_MS = 500;

export class Worker {
  readonly name: string;
  readonly events: WorkerEvents = createWorkerEvents();
  readonly metrics: Metrics;
  readonly #settings: WorkerSettings;
  readonly #database: Database;
  readonly #presence: WorkerPresence | undefined;
  readonly #webhookPump: WebhookPump;
  readonly #housekeeping: Housekeeping;
  readonly #machine: MachineRegistration | undefined;
  /** Variables that runners do not get. */
  readonly #withheld: string[];
  #runners: Runners | undefined;
  #keeper: Keeper | undefined;
  #state: WorkerState = "new";
  #databaseUp = true;
  #hintsUnavailable = false;
  #idleTimer: NodeJS.Timeout | undefined;
  #timers: NodeJS.Timeout[] = [];
  #memoryWatch: { stop(): void } | undefined;
  #draining: Promise<void> | undefined;
  #forceStop: () => void = () => {};
  #onDone: (reason: string) => void = () => {};
  #jobs = 0;
  #startedAt = 0;
  /** Reported by the error of start(): the end of a worker that never worked is no news. */
  #startFailed = false;
  #pools: readonly string[] = [];
  /** Resolves with the reason when the worker has stopped. */
  readonly done: Promise<string>;

  constructor(options: WorkerOptions) {
    const settings = readWorkerOptions(options);
    this.#settings = settings;
    const { isolation, secrets, env, environment } = settings;
    this.#withheld = isolation === "process" ? withheldNames(secrets, env, environment).sort() : [];
    this.name =
      settings.machine ?? settings.name ?? `${os.hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.done = new Promise((resolve) => {
      this.#onDone = resolve;
    });
    this.metrics = createMetrics(this.events, { labels: { worker: this.name } });
    this.events.subscribe((event) => {
      if (event.kind === "attempt.ended") this.#jobs += 1;
    });
    this.#database = new Database({
      ...settings.database,
      retryTimeout: "forever",
      idleTimeout: `${connectionIdleMs(settings)}ms`,
      onOutage: (outage) => this.#onOutage(outage),
    });
    this.#machine =
      settings.machine === undefined
        ? undefined
        : new MachineRegistration(this.#database, { ...settings, machine: settings.machine, pool: settings.pool! });
    this.#presence = settings.directUrl === undefined ? undefined : this.#createPresence(settings.directUrl);
    const { events, name } = this;
    const hintsArrive = () => this.#presence?.ready ?? false;
    this.#webhookPump = new WebhookPump({ ...settings, database: this.#database, events, name, hintsArrive });
    this.#housekeeping = new Housekeeping({
      database: this.#database,
      held: () => this.#keeper?.held ?? [null],
      onError: (error) => events.emit({ kind: "housekeeping.failed", message: (error as Error).message }),
    });
    events.subscribe(({ kind }) => {
      if (kind === "claimed" || kind === "claim.empty" || kind === "heartbeat") this.#housekeeping.check();
    });
  }

  get state(): WorkerState {
    return this.#state;
  }

  /** The pools it serves; empty before it has started. */
  get pools(): readonly string[] {
    return this.#pools;
  }

  /** Resolves when the worker claims jobs. Waits for a database that is not reachable yet; throws if pipelines cannot be loaded or its pool does not exist. */
  async start(): Promise<this> {
    return this.#start().catch((error) => {
      this.#startFailed = true;
      throw error;
    });
  }

  async #start(): Promise<this> {
    const { slots, isolation, scratchRoot, until } = this.#settings;
    this.#startIdleTimer();
    await fs.mkdir(scratchRoot, { recursive: true, mode: 0o700 });
    await sweepScratch(scratchRoot).catch(() => {});
    const tracing = await loadTracing();
    const pipelines = await this.#loadPipelines(tracing).catch((error) => {
      if (this.#state === "new") throw error;
    });
    // drain() was called while pipelines were loaded or the database was unreachable.
    if (!pipelines || this.#state !== "new") {
      await this.#runners?.stop();
      return this;
    }
    const names = pipelines.map(({ name }) => name);
    if (until === "registered") return this.drain(`registered: ${names.join(", ")}`).then(() => this);
    const pools = await this.#readPools(pipelines).catch(async (error) => {
      if (this.#state !== "new") return undefined;
      await this.#runners?.stop();
      throw error;
    });
    if (!pools || this.#state !== "new") {
      await this.#runners?.stop();
      return this;
    }
    const { served, notServed } = pools;
    this.#pools = Object.keys(served);
    this.#keeper = new Keeper({
      ...this.#settings,
      pools: this.#pools,
      database: this.#database,
      events: this.events,
      runners: this.#runners!,
      tracing,
      pipelines,
      worker: this.name,
      presence: () => this.#presence?.presence ?? null,
      hintsArrive: () => this.#presence?.ready ?? false,
      connectedForMs: () => this.#connectedForMs(),
      onIdle: () => this.#onIdle(),
      onBusy: () => this.#stopIdleTimer(),
    });
    this.#state = "working";
    this.#startedAt = performance.now();
    const accepted = await this.#machine?.register(pipelines, () => this.state === "working");
    // drain() was called while the database was unreachable.
    if (this.state !== "working") return this;
    if (accepted === false) void this.drain("the machine is to be stopped");
    const { name: worker, events } = this;
    events.emit({ kind: "worker.started", worker, slots, pools: served, notServed, isolation, version });
    if (this.#withheld.length > 0) events.emit({ kind: "env.withheld", names: this.#withheld });
    this.#presence?.open();
    this.#startMonitors();
    this.#stopIdleTimer();
    this.#startIdleTimer();
    this.#keeper.start();
    this.#webhookPump.start();
    return this;
  }

  /** There may be work. */
  poke(): void {
    this.#keeper?.poke();
    this.#webhookPump.check();
  }

  /**
   * Stops claiming and waits for running jobs up to the limit; then they are stopped and queued again. A second call stops them at once.
   */
  drain(reason = "requested", timeoutMs?: number): Promise<void> {
    if (this.#draining) this.#forceStop();
    this.#draining ??= this.#drain(reason, timeoutMs ?? this.#settings.drainMs);
    return this.#draining;
  }

  /** A drain that does not wait for running jobs. */
  stop(): Promise<void> {
    return this.#draining ? this.drain() : this.drain("stopped", 0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  health(): Health {
    return {
      worker: this.name,
      pools: this.pools,
      active: this.#keeper?.active ?? 0,
      slots: this.#settings.slots,
      database: this.#databaseUp ? "up" : "down",
      hints: this.#presence?.ready ? "ready" : this.#hintsUnavailable || !this.#presence ? "unavailable" : "lost",
      draining: this.#state === "draining",
      rejectedSettlements: this.#keeper?.rejected ?? 0,
      lastHeartbeatAgoMs:
        this.#keeper && this.#keeper.active > 0 ? performance.now() - this.#keeper.lastHeartbeatAt : null,
    };
  }

  /** Without a direct connection it polls, and a poll that fails counts as an outage of the database. */
  #connectedForMs(): number {
    const listens = this.#presence !== undefined && !this.#hintsUnavailable;
    const connectedMs = listens ? this.#presence!.readyForMs : performance.now() - this.#startedAt;
    return Math.min(this.#database.reachableForMs, connectedMs);
  }

  /** Starts the runners, and registers their pipelines in the database, which needs partitions for their retention. */
  async #loadPipelines(tracing: Tracing): Promise<LoadedPipeline[]> {
    this.#runners = await this.#createRunners(tracing);
    const pipelines = await this.#runners.start();
    for (const { name, settings, dependencies } of pipelines) {
      for (const dependency of dependencies) await registerDependency(this.#database, dependency);
      await registerPipeline(this.#database, name, settings);
    }
    await this.#housekeeping.preparePartitions();
    return pipelines;
  }

  /** The pools of the pipelines, with their names: those that this worker serves, and the others. */
  async #readPools(
    pipelines: LoadedPipeline[],
  ): Promise<{ served: Record<string, string[]>; notServed: Record<string, string[]> }> {
    const { pool, exceptPools } = this.#settings;
    const names = pipelines.map(({ name }) => name);
    const pools = await readPipelinePools(this.#database, names, pool).catch((error) => {
      throw error instanceof UnknownPool ? suggestPool(error, pool!, pipelines) : error;
    });
    if (pool !== undefined && !pools.has(pool)) pools.set(pool, []);
    const isServed = (name: string) => (pool === undefined || name === pool) && !exceptPools.includes(name);
    const select = (wanted: boolean) => Object.fromEntries([...pools].filter(([name]) => isServed(name) === wanted));
    return { served: select(true), notServed: select(false) };
  }

  async #createRunners(tracing: Tracing): Promise<Runners> {
    const { isolation, environment, files } = this.#settings;
    // The name alone is not unique: a worker that replaces one of the same name on this machine must not kill its processes.
    const unique = `${process.pid}-${randomBytes(4).toString("hex")}`;
    const processTag = `${this.name.replaceAll(/[^\w-]/g, "_")}-${unique}.`;
    if (isolation === "none") return new InProcessRunner({ ...this.#settings, tracing, processTag, env: environment });
    return new RunnerPool({
      ...this.#settings,
      events: this.events,
      files: await findModules(files),
      processTag,
      env: runnerEnvironment(this.#withheld, environment),
      withheld: this.#withheld,
    });
  }

  #createPresence(url: string): WorkerPresence {
    return new WorkerPresence({
      url,
      schema: this.#database.schema,
      worker: this.name,
      pools: () => this.#pools,
      onHint: (payload) => {
        if (this.#pools.includes(payload)) this.#keeper?.poke([payload]);
        else if (payload === `@${this.name}`) this.#keeper?.heartbeat();
        else if (payload === "#webhooks") this.#webhookPump.poke();
      },
      onReady: () => {
        this.events.emit({ kind: "hints.ready" });
        // Adds the presence to existing leases, and claims once for hints that were missed.
        this.#keeper?.heartbeat();
        this.#keeper?.poke();
        this.#webhookPump.check();
      },
      onLost: (error) => {
        this.events.emit({ kind: "hints.lost", message: error.message });
        this.#keeper?.heartbeat();
        // Hints may have been lost, and the poll interval is shorter from now on.
        this.#keeper?.poke();
      },
      onUnavailable: (why) => {
        this.#hintsUnavailable = true;
        this.events.emit({ kind: "hints.unavailable", why });
      },
    });
  }

  #onOutage(outage: { lost: unknown } | { awayMs: number }): void {
    this.#databaseUp = "awayMs" in outage;
    if ("lost" in outage) {
      const message = (outage.lost as Error).message || "connection refused";
      this.events.emit({ kind: "database.lost", message });
    } else {
      this.events.emit({ kind: "database.back", awayMs: outage.awayMs });
      this.#keeper?.heartbeat();
    }
  }

  /** Monitors time limits, memory, and the demand of the pool. */
  #startMonitors(): void {
    let checkedAt = performance.now();
    const checkLimits = () => {
      const now = performance.now();
      // While this process itself was suspended or starved, its jobs could not report anything.
      const gapMs = now - checkedAt - LIMITS_MS;
      checkedAt = now;
      this.#keeper?.enforceLimits(now, gapMs > LIMITS_MS ? gapMs : 0);
    };
    this.#timers.push(setInterval(checkLimits, LIMITS_MS));
    this.#memoryWatch = watchMemory({
      everyMs: 2000,
      above: 0.8,
      read: memoryUse,
      onHigh: ({ fraction, usedBytes, limitBytes }) => {
        this.events.emit({ kind: "memory.high", fraction, usedBytes, limitBytes });
        const gb = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GB`;
        const message = `Memory is nearly exhausted: ${Math.round(fraction * 100)} % of ${gb(limitBytes)} used`;
        this.#keeper?.warnAll(message, { used_bytes: usedBytes, limit_bytes: limitBytes });
      },
    });
    if (this.#settings.demandMs < Number.POSITIVE_INFINITY) {
      this.#timers.push(setInterval(() => void this.#readDemand(), this.#settings.demandMs));
    }
  }

  async #readDemand(): Promise<void> {
    if (!this.#databaseUp) return;
    const pools = await readDemand(this.#database).catch(() => []);
    for (const { pool, claimable, running, oldest } of pools.filter(({ pool }) => this.#pools.includes(pool))) {
      const oldestSeconds = oldest ? Math.max(0, (Date.now() - oldest.getTime()) / 1000) : 0;
      this.events.emit({ kind: "demand", pool, claimable, running, oldestSeconds });
    }
  }

  #onIdle(): void {
    const { until } = this.#settings;
    if (until === "once") void this.drain("after one job");
    else if (until === "empty") void this.drain("nothing is left to do");
    else this.#startIdleTimer();
  }

  #stopIdleTimer(): void {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = undefined;
  }

  /** Also runs while the database is unreachable: a machine that cannot reach it must not wait, and cost, forever. */
  #startIdleTimer(): void {
    const { idleExitMs, minUptimeMs } = this.#settings;
    if (!Number.isFinite(idleExitMs) || this.#state === "draining" || this.#state === "stopped") return;
    const waitMs = Math.max(idleExitMs, minUptimeMs - process.uptime() * 1000);
    // An empty claim does not restart a running timer.
    this.#idleTimer ??= setTimeout(
      () => {
        this.#idleTimer = undefined;
        void this.#exitIdle();
      },
      Math.min(waitMs, MAX_TIMER_MS),
    );
  }

  /** On a machine the database decides: a job that arrives at this moment would otherwise need another machine. */
  async #exitIdle(): Promise<void> {
    // Loading pipelines is not idle time; the orchestrator has its own limit for a start.
    if (this.#state === "new" && this.#databaseUp) return this.#startIdleTimer();
    const hasWork = this.#databaseUp && (await this.#machine?.mayLeave()) === false;
    if (this.#idleTimer || (this.#keeper?.unsettled ?? 0) > 0) return;
    if (!hasWork) return this.drain(this.#databaseUp ? "idle" : "the database cannot be reached");
    this.#startIdleTimer();
    this.#keeper?.poke();
  }

  async #drain(reason: string, limitMs: number): Promise<void> {
    const startedAt = performance.now();
    this.#state = "draining";
    clearTimeout(this.#idleTimer);
    const keeper = this.#keeper;
    if (keeper) {
      this.events.emit({ kind: "worker.draining", reason, active: keeper.active, limitMs });
      keeper.retire();
      const settled = keeper.settled();
      // Without jobs, only a claim may be in flight, which an unreachable database cannot complete.
      const unlessDown = (ms: number) => (this.#databaseUp || keeper.unsettled > 0 ? ms : 0);
      await this.#waitForJobs(settled, unlessDown(limitMs));
      keeper.stopAll({ kind: "shutdown" });
      // The grace period of every job, and as long again for its settlement. Without a database the leases expire instead.
      await this.#waitForJobs(settled, unlessDown(this.#settings.graceMs * 2 + 5000));
      keeper.close();
    }
    if (this.#databaseUp) await this.#machine?.leave(reason);
    void this.#housekeeping.stop();
    await this.#webhookPump.stop(reason, this.#databaseUp ? limitMs - (performance.now() - startedAt) : 0);
    for (const timer of this.#timers) clearInterval(timer);
    this.#memoryWatch?.stop();
    await this.#runners?.stop();
    await this.#presence?.close();
    await this.#database.close();
    this.#state = "stopped";
    const tookMs = performance.now() - startedAt;
    if (!this.#startFailed) this.events.emit({ kind: "worker.stopped", reason, tookMs, jobs: this.#jobs });
    this.metrics.stop();
    this.#onDone(reason);
  }

  /** Until all jobs are settled, the time is over, or drain() is called again. */
  async #waitForJobs(settled: Promise<void>, limitMs: number): Promise<void> {
    const forced = new Promise<void>((resolve) => {
      this.#forceStop = resolve;
    });
    await withTimeout(Promise.race([settled, forced]), limitMs, undefined);
  }
}

function suggestPool({ message, remedy = "" }: UnknownPool, pool: string, pipelines: LoadedPipeline[]): UnknownPool {
  const closest = findClosest(pool, [...new Set(pipelines.map(({ settings }) => String(settings.pool ?? "default")))]);
  return new UnknownPool(message.slice(0, message.length - remedy.length).replace(/\. $/, ""), {
    field: "pool",
    remedy: closest ? `Did you mean "${closest}"? ${remedy}` : remedy,
  });
}

/** How long an unused connection stays open: until the next poll, because a new connection costs more than a poll. */
function connectionIdleMs({ pollMs, pollWithHintsMs }: WorkerSettings): number {
  const intervalMs = Math.max(pollMs, pollWithHintsMs);
  return intervalMs > 10_000 ? 5000 : Math.max(5000, intervalMs * 1.5);
}
