// A worker: keeper and crew put together, from start to drain. The command `stillwake worker` and `createWorker` are both this.
//
//   start -> working -> draining (claims no more, waits for its jobs up to the limit) -> hurrying (tells them to stop) -> stopped
//
// It drains by itself when it was told to end when idle, when nothing is left to do, or after its one job.
import { randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import os from "node:os";
import { runnerEnvironment, withheldNames } from "../config.ts";
import { registerNeed } from "../db/calls/flow.ts";
import { readDemand, registerPipeline } from "../db/calls/jobs.ts";
import { Database } from "../db/database.ts";
import { DirectLine } from "../db/worker-presence.ts";
import { loadTracing } from "../tracing.ts";
import { version } from "../version.ts";
import { Keeper } from "./keeper/keeper.ts";
import { Machine } from "./keeper/machine-registration.ts";
import { sweepScratch } from "./keeper/scratch.ts";
import { Tells } from "./keeper/webhook-pump.ts";
import { type Announcer, createAnnouncer } from "./observe/events.ts";
import type { Health } from "./observe/http.ts";
import { createMetrics, type Metrics } from "./observe/metrics.ts";
import { readWorkerOptions, type WorkerOptions, type WorkerSettings } from "./options.ts";
import { OwnCrew } from "./runner/in-process.ts";
import { LazyCrew } from "./runner/lazy-crew.ts";
import { findModules } from "./runner/load-pipelines.ts";
import { memoryUse, watchMemory } from "./runner/memory.ts";
import type { Crew, PipelineFacts } from "./runner/port.ts";
import { Runners } from "./runner/runner-pool.ts";

export type WorkerState = "new" | "working" | "draining" | "stopped";

/** How often limits are looked at. */
const WATCH_MS = 500;

export class Worker {
  readonly name: string;
  readonly pool: string;
  readonly announcer: Announcer = createAnnouncer();
  readonly metrics: Metrics;
  readonly #settings: WorkerSettings;
  readonly #database: Database;
  readonly #crew: Crew;
  readonly #direct: DirectLine | undefined;
  readonly #tells: Tells;
  readonly #machine: Machine | undefined;
  #keeper: Keeper | undefined;
  #state: WorkerState = "new";
  #databaseUp = true;
  #pushUnavailable = false;
  #idleTimer: NodeJS.Timeout | undefined;
  #timers: NodeJS.Timeout[] = [];
  #memory: { stop(): void } | undefined;
  #draining: Promise<void> | undefined;
  #hurry: () => void = () => {};
  #done: (reason: string) => void = () => {};
  #jobs = 0;
  /** Resolves with the reason when the worker has stopped. */
  readonly done: Promise<string>;

  constructor(options: WorkerOptions) {
    const settings = readWorkerOptions(options);
    this.#settings = settings;
    this.pool = settings.pool;
    this.name =
      settings.machine ?? settings.name ?? `${os.hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.done = new Promise((resolve) => {
      this.#done = resolve;
    });
    this.metrics = createMetrics(this.announcer, { labels: { pool: this.pool, worker: this.name } });
    this.announcer.subscribe((event) => {
      if (event.kind === "attempt.ended") this.#jobs += 1;
    });
    this.#database = new Database({
      ...settings.database,
      patience: "forever",
      idleTimeout: `${keptMs(settings)}ms`,
      onOutage: (outage) => this.#outage(outage),
    });
    this.#machine =
      settings.machine === undefined
        ? undefined
        : new Machine(this.#database, { ...settings, machine: settings.machine });
    this.#crew = this.#makeCrew();
    this.#direct = settings.directUrl === undefined ? undefined : this.#makeDirect(settings.directUrl);
    const { announcer, name } = this;
    const pushed = () => this.#direct?.ready ?? false;
    this.#tells = new Tells({ ...settings, database: this.#database, announcer, name, pushed });
  }

  get state(): WorkerState {
    return this.#state;
  }

  /** Resolves when it is at work. It waits for a database that is not there yet; pipelines that cannot be loaded throw. */
  async start(): Promise<this> {
    const { pool, slots, isolation, scratchRoot, until } = this.#settings;
    this.#armIdle();
    await fs.mkdir(scratchRoot, { recursive: true, mode: 0o700 });
    await sweepScratch(scratchRoot).catch(() => {});
    const tracing = await loadTracing();
    const pipelines = await this.#prepare().catch((error) => {
      if (this.#state === "new") throw error;
    });
    // Told to stop while it loaded pipelines or waited for the database.
    if (!pipelines || this.#state !== "new") {
      await this.#crew.stop();
      return this;
    }
    const names = pipelines.map(({ name }) => name);
    if (until === "registered") return this.drain(`its pipelines are known: ${names.join(", ")}`).then(() => this);
    this.#keeper = new Keeper({
      ...this.#settings,
      database: this.#database,
      announcer: this.announcer,
      crew: this.#crew,
      tracing,
      pipelines,
      worker: this.name,
      presence: () => this.#direct?.presence ?? null,
      pushed: () => this.#direct?.ready ?? false,
      onIdle: () => this.#idle(),
      onBusy: () => this.#busy(),
    });
    this.#state = "working";
    const welcome = await this.#machine?.arrive(pipelines, () => this.state === "working");
    // It was told to stop while the database was away.
    if (this.state !== "working") return this;
    if (welcome === false) void this.drain("the machine is to be stopped");
    this.announcer.announce({
      kind: "worker.started",
      worker: this.name,
      pool,
      slots,
      pipelines: names,
      isolation,
      version,
    });
    this.#direct?.open();
    this.#keepWatch();
    this.#busy();
    this.#armIdle();
    this.#keeper.start();
    this.#tells.begin();
    return this;
  }

  async #prepare(): Promise<PipelineFacts[]> {
    const pipelines = await this.#crew.start();
    for (const { name, settings, needs } of pipelines) {
      for (const need of needs) await registerNeed(this.#database, need);
      await registerPipeline(this.#database, name, settings);
    }
    return pipelines;
  }

  /** There may be work. */
  poke(): void {
    this.#keeper?.poke();
    this.#tells.ask();
  }

  /** Claims no more and waits for its jobs up to the limit; then they are told to stop and go back to the line. A second call hurries. */
  drain(reason = "asked", limitMsGiven?: number): Promise<void> {
    if (this.#draining) this.#hurry();
    this.#draining ??= this.#drain(reason, limitMsGiven ?? this.#settings.drainMs);
    return this.#draining;
  }

  /** A drain without patience. */
  stop(): Promise<void> {
    return this.#draining ? this.drain() : this.drain("stopped", 0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  health(): Health {
    return {
      worker: this.name,
      pool: this.pool,
      active: this.#keeper?.active ?? 0,
      slots: this.#settings.slots,
      database: this.#databaseUp ? "up" : "down",
      push: this.#direct?.ready ? "ready" : this.#pushUnavailable || !this.#direct ? "unavailable" : "lost",
      draining: this.#state === "draining",
      lastHeartbeatAgoMs:
        this.#keeper && this.#keeper.active > 0 ? performance.now() - this.#keeper.lastHeartbeatAt : null,
    };
  }

  #makeCrew(): Crew {
    const {
      isolation,
      implementations,
      slots,
      spares,
      graceMs,
      pool,
      secrets,
      env,
      runAs,
      heapMb,
      maxJobs,
      files,
      crash,
    } = this.#settings;
    // Not the name alone: a worker that replaces one of the same name on this machine must not be swept away with it.
    const own = `${process.pid}-${randomBytes(4).toString("hex")}`;
    const mark = `${this.name.replaceAll(/[^\w-]/g, "_")}-${own}.`;
    const { announcer } = this;
    if (isolation === "none") {
      return new LazyCrew(
        async () => new OwnCrew({ implementations, tracing: await loadTracing(), pool, mark, graceMs, env, crash }),
      );
    }
    const shown = runnerEnvironment(secrets, env);
    return new LazyCrew(
      async () =>
        new Runners({
          announcer,
          files: await findModules(files),
          pool,
          slots,
          spares,
          mark,
          graceMs,
          env: shown,
          withheld: withheldNames(secrets, env),
          runAs,
          heapMb,
          maxJobs,
        }),
    );
  }

  #makeDirect(url: string): DirectLine {
    return new DirectLine({
      url,
      schema: this.#database.schema,
      worker: this.name,
      pool: this.pool,
      onHint: (payload) => {
        if (payload === this.pool) this.#keeper?.poke();
        else if (payload === `@${this.name}`) this.#keeper?.heartbeat();
        else if (payload === "#webhooks") this.#tells.poke();
      },
      onReady: () => {
        this.announcer.announce({ kind: "push.ready" });
        // Leases taken before are given the sign of life; hints that went by unheard are made up for by looking once.
        this.#keeper?.heartbeat();
        this.#keeper?.poke();
        this.#tells.ask();
      },
      onLost: (error) => {
        this.announcer.announce({ kind: "push.lost", message: error.message });
        this.#keeper?.heartbeat();
        // Hints may have been lost with it, and the floor is a shorter one from now on.
        this.#keeper?.poke();
      },
      onUnavailable: (why) => {
        this.#pushUnavailable = true;
        this.announcer.announce({ kind: "push.unavailable", why });
      },
    });
  }

  #outage(outage: { lost: unknown } | { awayMs: number }): void {
    this.#databaseUp = "awayMs" in outage;
    if ("lost" in outage) {
      this.announcer.announce({
        kind: "database.lost",
        message: (outage.lost as Error).message || "connection refused",
      });
    } else {
      this.announcer.announce({ kind: "database.back", awayMs: outage.awayMs });
      this.#keeper?.heartbeat();
    }
  }

  /** Limits, memory, and how much there is to do. */
  #keepWatch(): void {
    let lookedAt = performance.now();
    const look = () => {
      const now = performance.now();
      // A process that was stopped or starved itself must not blame its jobs for the silence.
      const gapMs = now - lookedAt - WATCH_MS;
      lookedAt = now;
      this.#keeper?.watch(now, gapMs > WATCH_MS ? gapMs : 0);
    };
    this.#timers.push(setInterval(look, WATCH_MS));
    this.#memory = watchMemory({
      everyMs: 2000,
      above: 0.8,
      read: memoryUse,
      onHigh: ({ fraction, usedBytes, limitBytes }) => {
        this.announcer.announce({ kind: "memory.high", fraction, usedBytes, limitBytes });
        const gb = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GB`;
        const message = `Memory is nearly used up: ${Math.round(fraction * 100)} % of ${gb(limitBytes)}`;
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
    for (const { pool, claimable, running, oldest } of pools.filter(({ pool }) => pool === this.pool)) {
      const oldestSeconds = oldest ? Math.max(0, (Date.now() - oldest.getTime()) / 1000) : 0;
      this.announcer.announce({ kind: "demand", pool, claimable, running, oldestSeconds });
    }
  }

  #idle(): void {
    const { until } = this.#settings;
    if (until === "empty" || until === "once")
      void this.drain(until === "once" ? "after one job" : "nothing is left to do");
    else this.#armIdle();
  }

  #busy(): void {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = undefined;
  }

  /** Also while the database is away: a machine that cannot reach it does not wait for ever at somebody's expense. */
  #armIdle(): void {
    const { idleExitMs } = this.#settings;
    if (!Number.isFinite(idleExitMs) || this.#state === "draining" || this.#state === "stopped") return;
    // Looking in vain does not start the time anew.
    this.#idleTimer ??= setTimeout(
      () => {
        this.#idleTimer = undefined;
        void this.#leave();
      },
      Math.min(Math.max(idleExitMs, this.#settings.minUptimeMs - process.uptime() * 1000), 2 ** 31 - 1),
    );
  }

  /** On a machine the database has the last word: a job that came in this moment would otherwise need another one. */
  async #leave(): Promise<void> {
    // To load pipelines is no idleness, however long it takes; whoever started the machine has a limit for that.
    if (this.#state === "new" && this.#databaseUp) return this.#armIdle();
    const stays = this.#databaseUp && (await this.#machine?.mayLeave()) === false;
    if (this.#idleTimer || (this.#keeper?.held ?? 0) > 0) return;
    if (!stays) return this.drain(this.#databaseUp ? "idle" : "the database cannot be reached");
    this.#armIdle();
    this.#keeper?.poke();
  }

  async #drain(reason: string, limitMs: number): Promise<void> {
    const began = performance.now();
    this.#state = "draining";
    clearTimeout(this.#idleTimer);
    const keeper = this.#keeper;
    if (keeper) {
      this.announcer.announce({ kind: "worker.draining", reason, active: keeper.active, limitMs });
      keeper.retire();
      const quiet = keeper.quiet();
      // A claim that waits for a database which is away has nothing to bring.
      const patience = (ms: number) => (this.#databaseUp || keeper.held > 0 ? ms : 0);
      await this.#withPatience(quiet, patience(limitMs));
      keeper.stopAll({ kind: "shutdown" });
      // The grace of every job, and as long again for its hand-back. Without the database nothing can be handed back: leases run out.
      await this.#withPatience(quiet, patience(this.#settings.graceMs * 2 + 5000));
      keeper.close();
    }
    if (this.#databaseUp) await this.#machine?.leave(reason);
    await this.#tells.end(reason, this.#databaseUp ? limitMs - (performance.now() - began) : 0);
    for (const timer of this.#timers) clearInterval(timer);
    this.#memory?.stop();
    await this.#crew.stop();
    await this.#direct?.close();
    await this.#database.close();
    this.#state = "stopped";
    this.announcer.announce({ kind: "worker.stopped", reason, tookMs: performance.now() - began, jobs: this.#jobs });
    this.metrics.stop();
    this.#done(reason);
  }

  async #withPatience(quiet: Promise<void>, limitMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      this.#hurry = resolve;
      timer = setTimeout(resolve, Math.min(limitMs, 2 ** 31 - 1));
    });
    await Promise.race([quiet, over]);
    clearTimeout(timer);
  }
}

/** How long a connection stays open without use: from one look to the next, because to open another costs more than all that a look asks. */
function keptMs({ pollMs, pushedPollMs }: WorkerSettings): number {
  const floorMs = Math.max(pollMs, pushedPollMs);
  return floorMs > 10_000 ? 5000 : Math.max(5000, floorMs * 1.5);
}
