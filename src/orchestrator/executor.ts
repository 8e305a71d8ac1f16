// Executes the planned actions of one pool, one at a time per ordinal. An error is stored in the database as the pool's
// provider error, so that every orchestrator waits and operators see the cause. Nothing here throws.
import {
  type MachineLife,
  machineEnded,
  machineStarted,
  type PoolSnapshot,
  type ReportedProviderError,
  reportProviderError,
  reserveMachine,
  retireMachine,
} from "../db/calls/machines.ts";
import type { Database } from "../db/database.ts";
import { type Action, describeAction } from "./plan.ts";
import {
  type ListedMachine,
  type MachineRequest,
  type Provider,
  ProviderError,
  type ProviderErrorKind,
} from "./provider.ts";
import type { PoolSettings } from "./settings.ts";

/** An event for logs and alerts. `level` "error" needs an operator. */
export interface OrchestratorEvent {
  kind: "decision" | "machine" | "error" | "provider" | "database";
  level: "info" | "warn" | "error";
  pool?: string;
  message: string;
  facts?: Record<string, unknown>;
}

export interface ExecutorOptions {
  database: Database;
  provider: Provider;
  settings: PoolSettings;
  pool: string;
  /** Per second; the name of the price table; minimum billed seconds. */
  price: number | undefined;
  prices: string | undefined;
  leastSeconds: number;
  by: string;
  nameOf(ordinal: number): string;
  report(event: OrchestratorEvent): void;
  /** Something has changed: poll again. */
  onDone(): void;
  now(): number;
}

/** Pause of starts after an error. A rejected token or invalid settings need an operator: no retry storm. */
const PAUSES_MS: Record<ProviderErrorKind, number> = {
  auth: 5 * 60_000,
  refused: 5 * 60_000,
  rate: 5000,
  capacity: 30_000,
  unreachable: 15_000,
  unstartable: 0,
};
/** After another orchestrator took the ordinal, which the next snapshot shows. */
const TAKEN_MS = 5000;
/** Delay before the provider is queried again after a failed action. */
const UNFINISHED_MS = 15_000;
/** How long the provider is polled for a machine after a start without a response. */
const UNCERTAIN_MS = 5 * 60_000;
/** Delay before a start without a response is repeated. */
const REPEAT_MS = 10_000;
/** How long an ordinal is skipped after its machine could not be started. */
const UNAVAILABLE_MS = 60_000;

export class Executor {
  readonly #options: ExecutorOptions;
  readonly #busy = new Map<string, Promise<void>>();
  /** Ordinals, and until when they are skipped. */
  readonly #unavailable = new Map<number, number>();
  /** Exits reported by the provider whose life has not been in a snapshot yet. */
  readonly #ended = new Map<string, ListedMachine>();
  /** Lives whose start got no response, and when it may be repeated. The machine may or may not exist. */
  readonly #unanswered = new Map<string, number>();
  #hasReportedError = false;
  #unfinishedAt = Number.NEGATIVE_INFINITY;
  #uncertainAt = Number.NEGATIVE_INFINITY;
  #preparedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ExecutorOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#busy.size > 0;
  }

  /** A machine created just now may run for a moment: its worker registers and exits again, which no event reports. */
  get hasPrepared(): boolean {
    return this.#options.now() - this.#preparedAt < Math.min(this.#options.settings.bootMs, 60_000);
  }

  /** A recent start got no response: its machine may still appear. */
  get hasUncertainStart(): boolean {
    return this.#options.now() - this.#uncertainAt < UNCERTAIN_MS;
  }

  /** Time until the provider has to be queried because an action failed; undefined when none did. */
  get unfinishedMs(): number | undefined {
    if (this.#unfinishedAt === Number.NEGATIVE_INFINITY) return undefined;
    return Math.max(0, this.#unfinishedAt + UNFINISHED_MS - this.#options.now());
  }

  /** The provider is being queried. */
  clearUnfinished(): void {
    this.#unfinishedAt = Number.NEGATIVE_INFINITY;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#busy.values());
  }

  unavailableOrdinals(now: number): ReadonlySet<number> {
    for (const [ordinal, until] of this.#unavailable) if (until <= now) this.#unavailable.delete(ordinal);
    return new Set(this.#unavailable.keys());
  }

  unansweredStarts(now: number): ReadonlySet<string> {
    return new Set([...this.#unanswered].filter(([, from]) => from <= now).map(([life]) => life));
  }

  /** The provider reported an exit: kept until a snapshot contains the life. */
  noteEnded(machine: ListedMachine): void {
    this.#ended.set(machine.name, machine);
  }

  get hasEnded(): boolean {
    return this.#ended.size > 0;
  }

  /** Actions for the exits that the provider reported since the last snapshot. */
  endActions(snapshot: PoolSnapshot): Extract<Action, { do: "end" }>[] {
    return snapshot.lives.flatMap((life) => {
      const machine = this.#ended.get(life.machine);
      if (!machine || (machine.endedAt && machine.endedAt < life.requestedAt)) return [];
      return [{ do: "end" as const, life, machine, exit: machine.exit ?? {} }];
    });
  }

  execute(action: Action, snapshot: PoolSnapshot): void {
    const key = ordinalKey(action);
    if (this.#busy.has(key)) return;
    const done = this.#do(action, snapshot)
      .catch((error: Error) => {
        // The database or the provider failed; the next snapshot shows the actual state.
        this.#report("warn", `${describeAction(action)}: ${error.message}`);
        return false;
      })
      .then((isDone) => {
        this.#busy.delete(key);
        // A failed action is not retried at once; but after a failed start another machine may be tried.
        if (isDone || action.do === "start") this.#options.onDone();
        else this.#unfinishedAt = this.#options.now();
      });
    this.#busy.set(key, done);
  }

  describeError(error: unknown, at: Date = new Date()): ReportedProviderError {
    const { message } = error as Error;
    if (!(error instanceof ProviderError))
      return { code: "PROVIDER_FAILED", message, until: after(at, PAUSES_MS.unreachable) };
    const pauseMs = Math.max(PAUSES_MS[error.kind], error.retryAfterMs ?? 0);
    return { code: error.code, message, ...(pauseMs > 0 && { until: after(at, pauseMs) }) };
  }

  /** Returns false when the action failed. */
  async #do(action: Action, snapshot: PoolSnapshot): Promise<boolean> {
    const { database, provider } = this.#options;
    switch (action.do) {
      case "start":
        return this.#start(action, snapshot);
      case "repeat":
        return this.#repeat(action.life, snapshot);
      case "confirm":
        await machineStarted(database, action.life.id, action.machine.id, action.machine.startedAt);
        return true;
      case "prepare":
        return this.#prepare(action.ordinal, snapshot);
      case "end":
        await this.#end(action.life, action.machine, action.exit);
        return true;
      case "retire":
        return this.#retire(action);
      case "remove":
        await provider.remove(action.machine);
        this.#report("info", `${action.machine.name} removed: ${action.why}`, action.machine.name);
        return true;
    }
  }

  async #start({ ordinal, burst, why }: Extract<Action, { do: "start" }>, snapshot: PoolSnapshot): Promise<boolean> {
    const { database, provider, settings, pool, price, prices, leastSeconds, by, nameOf } = this.#options;
    const { region, size } = provider.facts;
    const reserved = await reserveMachine(database, pool, settings.max, {
      ordinal,
      machine: nameOf(ordinal),
      burst,
      provider: provider.kind,
      ...(region !== undefined && { region }),
      ...(size !== undefined && { size }),
      slots: settings.slots,
      ...(price !== undefined && { price }),
      ...(prices !== undefined && { prices }),
      least_seconds: leastSeconds,
      by,
      why,
    });
    if (reserved) return this.#requestStart(reserved.life, this.#request(reserved.machine, burst), ordinal, snapshot);
    // Another orchestrator took the ordinal.
    this.#unavailable.set(ordinal, this.#options.now() + TAKEN_MS);
    return true;
  }

  #repeat({ id, machine, burst, ordinal }: MachineLife, snapshot: PoolSnapshot): Promise<boolean> {
    return this.#requestStart(id, this.#request(machine, burst), ordinal, snapshot, true);
  }

  /** Requests the start of a reserved machine. */
  async #requestStart(
    life: string,
    request: MachineRequest,
    ordinal: number,
    snapshot: PoolSnapshot,
    again = false,
  ): Promise<boolean> {
    const { database, provider, pool } = this.#options;
    const began = performance.now();
    this.#ended.delete(request.name);
    try {
      const { id, startedAt } = await provider.start(request);
      this.#unanswered.delete(life);
      await machineStarted(database, life, id, startedAt);
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      this.#report("info", `${request.name} started (${seconds} s)`, request.name, { id });
      if (snapshot.providerError || this.#hasReportedError) await reportProviderError(database, pool, null);
      this.#hasReportedError = false;
      return true;
    } catch (error) {
      // For a repeated call only the second one is certain: the first may have started the machine.
      const isCertain = !again && error instanceof ProviderError && error.certain;
      this.#unavailable.set(ordinal, this.#options.now() + UNAVAILABLE_MS);
      // Report first: an orchestrator that finds the ordinal free again must see the error.
      await this.#reportError(
        error,
        snapshot,
        `${request.name} ${isCertain ? "could not be started" : "may not have been started"}`,
      );
      if (isCertain) await machineEnded(database, life, { exit: { never: true } });
      else this.#unanswered.set(life, this.#options.now() + REPEAT_MS);
      if (!isCertain) this.#uncertainAt = this.#options.now();
      return false;
    }
  }

  async #prepare(ordinal: number, snapshot: PoolSnapshot): Promise<boolean> {
    const { provider, nameOf } = this.#options;
    const request = this.#request(nameOf(ordinal), false);
    try {
      await provider.prepare!(request);
      this.#preparedAt = this.#options.now();
      this.#report("info", `${request.name} created; it starts when there is work`, request.name);
      return true;
    } catch (error) {
      await this.#reportError(error, snapshot, `${request.name} could not be created`);
      return false;
    }
  }

  async #end(life: MachineLife, machine: ListedMachine | undefined, listedExit: object): Promise<void> {
    const { database, provider } = this.#options;
    let exit = listedExit;
    const identity = machine ?? (life.providerId === null ? undefined : { name: life.machine, id: life.providerId });
    if (identity && !machine?.exit && provider.getExitReason)
      exit = (await provider.getExitReason(identity).catch(() => undefined)) ?? listedExit;
    const jobs = await machineEnded(database, life.id, {
      exit,
      startedAt: machine?.startedAt,
      endedAt: machine?.endedAt,
    });
    this.#ended.delete(life.machine);
    this.#unanswered.delete(life.id);
    const { oom, code, signal, reason, memory } = exit as {
      oom?: boolean;
      code?: number;
      signal?: string;
      reason?: string;
      memory?: string;
    };
    const cause = oom
      ? `out of memory${memory ? ` at ${memory}` : ""}`
      : signal
        ? `killed by ${signal}`
        : code
          ? `exit code ${code}`
          : reason;
    const requeued = jobs > 0 ? `; ${jobs === 1 ? "its job is" : `its ${jobs} jobs are`} queued again` : "";
    this.#report(
      jobs > 0 || oom ? "warn" : "info",
      `${life.machine} has ended${cause ? `: ${cause}` : ""}${requeued}`,
      life.machine,
      { exit },
    );
  }

  /** The database refuses to retire a machine that has a job. */
  async #retire({ life, machine, why }: Extract<Action, { do: "retire" }>): Promise<boolean> {
    const { database, provider } = this.#options;
    if (!(await retireMachine(database, life.id))) return false;
    if (machine) await provider.remove(machine);
    await machineEnded(database, life.id, { exit: { reason: why }, startedAt: machine?.startedAt });
    this.#report("warn", `${life.machine} was stopped: ${why}`, life.machine);
    return true;
  }

  #request(name: string, burst: boolean): MachineRequest {
    const { pool, settings } = this.#options;
    return {
      name,
      burst,
      env: {
        STILLWAKE_MACHINE: name,
        STILLWAKE_POOL: pool,
        STILLWAKE_SLOTS: `${settings.slots}`,
        STILLWAKE_IDLE_EXIT: `${settings.idleExitMs}ms`,
        ...(settings.minUptimeMs > 0 && { STILLWAKE_MIN_UPTIME: `${settings.minUptimeMs}ms` }),
        STILLWAKE_GRACE: `${settings.graceMs}ms`,
      },
    };
  }

  async #reportError(error: unknown, snapshot: PoolSnapshot, what: string): Promise<void> {
    const { database, pool } = this.#options;
    const described = this.describeError(error, snapshot.at);
    const isSevere = !(error instanceof ProviderError) || error.kind === "auth" || error.kind === "refused";
    this.#options.report({
      kind: "error",
      level: isSevere ? "error" : "warn",
      message: `${what}: ${described.message}`,
      facts: { code: described.code },
    });
    if (described.until === undefined) return;
    this.#hasReportedError = true;
    await reportProviderError(database, pool, described);
  }

  #report(level: OrchestratorEvent["level"], message: string, machine?: string, facts?: Record<string, unknown>): void {
    this.#options.report({ kind: "machine", level, message, facts: { ...(machine && { machine }), ...facts } });
  }
}

function after(at: Date, ms: number): string {
  return new Date(at.getTime() + ms).toISOString();
}

/** Actions on one ordinal run one after another. */
function ordinalKey(action: Action): string {
  return `ordinal ${"life" in action ? action.life.ordinal : action.ordinal}`;
}
