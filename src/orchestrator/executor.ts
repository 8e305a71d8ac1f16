// Does what was planned for one pool, each thing once at a time. What goes wrong becomes a trouble that the database keeps, so that every orchestrator waits and
// people see why; it never throws.

import {
  type Life,
  type Look,
  machineEnded,
  machineStarted,
  reportTrouble,
  reserveMachine,
  retireMachine,
  type Trouble,
} from "../db/calls/machines.ts";
import type { Database } from "../db/database.ts";
import { actWords, type OrchestratorEvent } from "./event.ts";
import type { Action } from "./plan.ts";
import { type Order, type Provider, ProviderError, type ProviderTrouble, type SeenMachine } from "./provider.ts";
import type { PoolSettings } from "./settings.ts";

export interface ActorOptions {
  database: Database;
  provider: Provider;
  settings: PoolSettings;
  pool: string;
  /** Per second, of which table, and how many are paid for at least. */
  price: number | undefined;
  prices: string | undefined;
  leastSeconds: number;
  by: string;
  nameOf(slot: number): string;
  say(event: OrchestratorEvent): void;
  /** Something has changed: look again. */
  onDone(): void;
  now(): number;
}

/** How long nothing is started after a trouble. A token that is refused, or settings that make no sense, are for a person to mend: no storm. */
const PAUSES_MS: Record<ProviderTrouble, number> = {
  auth: 5 * 60_000,
  refused: 5 * 60_000,
  rate: 5000,
  capacity: 30_000,
  unreachable: 15_000,
  unstartable: 0,
};
/** When somebody else has taken a place it is seen in the next look. */
const TAKEN_MS = 5000;
/** After something could not be done. */
const UNFINISHED_MS = 15_000;
/** How long what became of it is looked for after a start had no answer. */
const DOUBT_MS = 5 * 60_000;
/** How long a start that had no answer is left alone. */
const REPEAT_MS = 10_000;
/** How long another place is preferred after a machine could not be started. */
const SHUN_MS = 60_000;

export class Actor {
  readonly #options: ActorOptions;
  readonly #busy = new Map<string, Promise<void>>();
  readonly #shunned = new Map<number, number>();
  /** Ends that the provider told of by itself, of machines whose life was not in the last look. */
  readonly #ended = new Map<string, SeenMachine>();
  /** Lives whose start had no answer, and from when on they may be asked for again: something may have been started, or not. */
  readonly #unanswered = new Map<string, number>();
  #hasTrouble = false;
  #unfinishedAt = Number.NEGATIVE_INFINITY;
  #doubtedAt = Number.NEGATIVE_INFINITY;
  #preparedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ActorOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#busy.size > 0;
  }

  /** A machine that was made just now may run for a moment: its worker arrives and leaves again, of which nobody tells. */
  get hasPrepared(): boolean {
    return this.#options.now() - this.#preparedAt < Math.min(this.#options.settings.bootMs, 60_000);
  }

  /** A start had no answer not long ago: it may still come to something, when nobody expects it any more. */
  get isInDoubt(): boolean {
    return this.#options.now() - this.#doubtedAt < DOUBT_MS;
  }

  /** Something could not be done a while ago: the provider is to be asked how things stand. Undefined when there is nothing of the kind. */
  get unfinishedMs(): number | undefined {
    if (this.#unfinishedAt === Number.NEGATIVE_INFINITY) return undefined;
    return Math.max(0, this.#unfinishedAt + UNFINISHED_MS - this.#options.now());
  }

  /** It is being asked. */
  askedAgain(): void {
    this.#unfinishedAt = Number.NEGATIVE_INFINITY;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#busy.values());
  }

  shunned(now: number): ReadonlySet<number> {
    for (const [slot, until] of this.#shunned) if (until <= now) this.#shunned.delete(slot);
    return new Set(this.#shunned.keys());
  }

  unanswered(now: number): ReadonlySet<string> {
    return new Set([...this.#unanswered].filter(([, from]) => from <= now).map(([life]) => life));
  }

  /** The provider tells of an end: kept until a look has the life. */
  ended(machine: SeenMachine): void {
    this.#ended.set(machine.name, machine);
  }

  get hasEndings(): boolean {
    return this.#ended.size > 0;
  }

  /** What the provider told of by itself since the last look, as if it had been asked. */
  endings(look: Look): Extract<Action, { do: "end" }>[] {
    return look.lives.flatMap((life) => {
      const machine = this.#ended.get(life.machine);
      if (!machine || (machine.endedAt && machine.endedAt < life.askedAt)) return [];
      return [{ do: "end" as const, life, machine, exit: machine.exit ?? {} }];
    });
  }

  act(action: Action, look: Look): void {
    const key = keyOf(action);
    if (this.#busy.has(key)) return;
    const done = this.#do(action, look)
      .catch((error: Error) => {
        // The database is away or refuses, or the provider does: the next look finds things as they are.
        this.#say("warn", `${actWords(action)}: ${error.message}`);
        return false;
      })
      .then((isDone) => {
        this.#busy.delete(key);
        // What could not be done is not tried again at once; but where one machine could not be started, another may.
        if (isDone || action.do === "start") this.#options.onDone();
        else this.#unfinishedAt = this.#options.now();
      });
    this.#busy.set(key, done);
  }

  troubleOf(error: unknown, at: Date = new Date()): Trouble {
    const { message } = error as Error;
    if (!(error instanceof ProviderError))
      return { code: "PROVIDER_FAILED", message, until: after(at, PAUSES_MS.unreachable) };
    const pauseMs = Math.max(PAUSES_MS[error.trouble], error.retryAfterMs ?? 0);
    return { code: error.code, message, ...(pauseMs > 0 && { until: after(at, pauseMs) }) };
  }

  /** Answers false when it could not be done. */
  async #do(action: Action, look: Look): Promise<boolean> {
    const { database, provider } = this.#options;
    switch (action.do) {
      case "start":
        return this.#start(action, look);
      case "repeat":
        return this.#repeat(action.life, look);
      case "confirm":
        await machineStarted(database, action.life.id, action.machine.id, action.machine.startedAt);
        return true;
      case "prepare":
        return this.#prepare(action.slot, look);
      case "end":
        await this.#end(action.life, action.machine, action.exit);
        return true;
      case "retire":
        return this.#retire(action);
      case "remove":
        await provider.remove(action.machine);
        this.#say("info", `${action.machine.name} is removed: ${action.why}`, action.machine.name);
        return true;
    }
  }

  async #start({ slot, burst, why }: Extract<Action, { do: "start" }>, look: Look): Promise<boolean> {
    const { database, provider, settings, pool, price, prices, leastSeconds, by, nameOf } = this.#options;
    const { region, size } = provider.facts;
    const reserved = await reserveMachine(database, pool, settings.max, {
      slot,
      machine: nameOf(slot),
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
    if (reserved) return this.#call(reserved.life, this.#order(reserved.machine, burst), slot, look);
    // Somebody else was quicker.
    this.#shunned.set(slot, this.#options.now() + TAKEN_MS);
    return true;
  }

  #repeat({ id, machine, burst, slot }: Life, look: Look): Promise<boolean> {
    return this.#call(id, this.#order(machine, burst), slot, look, true);
  }

  /** Asks the provider to start what is reserved. */
  async #call(life: string, order: Order, slot: number, look: Look, again = false): Promise<boolean> {
    const { database, provider, pool } = this.#options;
    const began = performance.now();
    this.#ended.delete(order.name);
    try {
      const { id, startedAt } = await provider.start(order);
      this.#unanswered.delete(life);
      await machineStarted(database, life, id, startedAt);
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      this.#say("info", `${order.name} is started (${seconds} s)`, order.name, { id });
      if (look.trouble || this.#hasTrouble) await reportTrouble(database, pool, null);
      this.#hasTrouble = false;
      return true;
    } catch (error) {
      // Of a call that is repeated only the second is certain: the first may have started something.
      const never = !again && error instanceof ProviderError && error.certain;
      this.#shunned.set(slot, this.#options.now() + SHUN_MS);
      // The trouble first: whoever looks while the place is free again must know why.
      await this.#report(error, look, `${order.name} could not be started${never ? "" : ", as far as is known"}`);
      if (never) await machineEnded(database, life, { exit: { never: true } });
      else this.#unanswered.set(life, this.#options.now() + REPEAT_MS);
      if (!never) this.#doubtedAt = this.#options.now();
      return false;
    }
  }

  async #prepare(slot: number, look: Look): Promise<boolean> {
    const { provider, nameOf } = this.#options;
    const order = this.#order(nameOf(slot), false);
    try {
      await provider.prepare!(order);
      this.#preparedAt = this.#options.now();
      this.#say("info", `${order.name} is made, to be started when there is work`, order.name);
      return true;
    } catch (error) {
      await this.#report(error, look, `${order.name} could not be made`);
      return false;
    }
  }

  async #end(life: Life, machine: SeenMachine | undefined, found: object): Promise<void> {
    const { database, provider } = this.#options;
    let exit = found;
    const body = machine ?? (life.providerId === null ? undefined : { name: life.machine, id: life.providerId });
    if (body && !machine?.exit && provider.autopsy)
      exit = (await provider.autopsy(body).catch(() => undefined)) ?? found;
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
    const how = oom
      ? `out of memory${memory ? ` at ${memory}` : ""}`
      : signal
        ? `ended by ${signal}`
        : code
          ? `exit code ${code}`
          : reason;
    const back = jobs > 0 ? `; ${jobs === 1 ? "its job goes" : `its ${jobs} jobs go`} back to the line` : "";
    this.#say(
      jobs > 0 || oom ? "warn" : "info",
      `${life.machine} has ended${how ? `: ${how}` : ""}${back}`,
      life.machine,
      { exit },
    );
  }

  /** The database says whether it may be ended: not while it has a job. */
  async #retire({ life, machine, why }: Extract<Action, { do: "retire" }>): Promise<boolean> {
    const { database, provider } = this.#options;
    if (!(await retireMachine(database, life.id))) return false;
    if (machine) await provider.remove(machine);
    await machineEnded(database, life.id, { exit: { reason: why }, startedAt: machine?.startedAt });
    this.#say("warn", `${life.machine} was ended: ${why}`, life.machine);
    return true;
  }

  #order(name: string, burst: boolean): Order {
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

  async #report(error: unknown, look: Look, what: string): Promise<void> {
    const { database, pool } = this.#options;
    const trouble = this.troubleOf(error, look.at);
    const grave = !(error instanceof ProviderError) || error.trouble === "auth" || error.trouble === "refused";
    this.#options.say({
      kind: "trouble",
      level: grave ? "error" : "warn",
      message: `${what}: ${trouble.message}`,
      facts: { code: trouble.code },
    });
    if (trouble.until === undefined) return;
    this.#hasTrouble = true;
    await reportTrouble(database, pool, trouble);
  }

  #say(level: OrchestratorEvent["level"], message: string, machine?: string, facts?: Record<string, unknown>): void {
    this.#options.say({ kind: "machine", level, message, facts: { ...(machine && { machine }), ...facts } });
  }
}

function after(at: Date, ms: number): string {
  return new Date(at.getTime() + ms).toISOString();
}

/** What is done about one place is done one after another. */
function keyOf(action: Action): string {
  if (action.do === "start" || action.do === "prepare") return `place ${action.slot}`;
  return `place ${action.do === "remove" ? action.place : action.life.slot}`;
}
