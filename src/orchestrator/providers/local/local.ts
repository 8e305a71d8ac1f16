// Machines that are processes of this one: for `npm start`, for a single server, and for tests. Each is `stillwake worker` in a session of its own, so that the
// Ctrl-C of a terminal does not reach it. It is ended in good order by close(), unless that is to leave it. Of an orchestrator that was killed, or took one look
// only, its machines outlive it: they finish what they have and leave after their idle time, or the next orchestrator finds them in the registry and goes on
// with them.
import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { machineEnvironment } from "../../../config.ts";
import { slotOf } from "../../names.ts";
import {
  type Exit,
  type MachineState,
  type Order,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type SeenMachine,
  type Started,
} from "../../provider.ts";
import { lastWords, secretsOf } from "../exit-reason.ts";
import { oomKills } from "./memory-kills.ts";
import { BECOME, digits, isThere, type MachineLife, type Owned, ownBirth, Registry, TAKEN } from "./registry.ts";

export interface LocalOptions {
  /** What a machine is. Default: `stillwake worker` of this package. */
  command?: string;
  /** What follows it, such as ["--pipelines", "./pipelines"]. */
  args?: readonly string[];
  /** On top of the environment of this process, of which providers' tokens are left out. */
  env?: Readonly<Record<string, string>>;
  cwd?: string;
  /** What machines say goes to a file beside their records, or with "inherit" to where this process writes. Default: "file". */
  log?: "file" | "inherit";
  /** Where they are written down. All orchestrators of a fleet on this computer have to name the same. Default: in the system's temporary directory. */
  dir?: string;
}

const CLI = fileURLToPath(new URL("../../../cli/index.js", import.meta.url));
/** How often machines that are no children of this process are looked at. */
const LOOK_MS = 500;
/** How long the end of a burst machine can be read. */
const KEPT_MS = 3600_000;

export function local(options: LocalOptions = {}): ProviderFactory {
  return (context) => new Local(options, context);
}

interface Child {
  process: ChildProcess;
  number: number;
  ended: Promise<void>;
  oomKills: number | undefined;
}

class Local implements Provider {
  readonly kind = "local";
  readonly facts = {};
  readonly #options: LocalOptions;
  readonly #context: ProviderContext;
  readonly #registry: Registry;
  readonly #children = new Map<string, Child>();
  /** Those of somebody else, who may be dead: nobody tells when they end. */
  readonly #watched = new Map<string, MachineLife>();
  readonly #leaving = new Map<string, Date>();
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #listeners: ((machine: SeenMachine) => void)[] = [];
  readonly #closing = new AbortController();
  #looking: Promise<void> | undefined;

  constructor(options: LocalOptions, context: ProviderContext) {
    this.#options = options;
    this.#context = context;
    const root = path.join(os.tmpdir(), `stillwake-${os.userInfo().uid}`);
    this.#registry =
      options.dir === undefined
        ? new Registry(path.join(root, `machines-${context.fleet}`), root)
        : new Registry(options.dir);
  }

  async list(): Promise<SeenMachine[]> {
    return this.#registry.names().flatMap((name) => {
      if (!this.#isNamed(name)) return [];
      const life = this.#registry.life(name);
      const seen = this.#see(name, life);
      const old = seen?.endedAt !== undefined && this.#context.clock.now() - seen.endedAt.getTime() > KEPT_MS;
      if (seen?.state === "gone" && old) this.#registry.forget(name);
      else if (seen) return [seen];
      // The name of a burst machine is used once.
      else if (life?.burst && !life.alive && this.#isOurs(life)) this.#registry.forgetLives(name, KEPT_MS);
      return [];
    });
  }

  start(order: Order): Promise<Started> {
    return this.#inTurn(order.name, async () => {
      const { name } = order;
      if (!this.#registry.life(name)?.alive) await this.#children.get(name)?.ended;
      // Only the life after the one that was looked at is started: if there is one more by then, somebody was quicker.
      const life = this.#registry.life(name);
      const there = this.#see(name, life);
      // One that was made for one life and has had it was started: that is the answer to whoever asks again.
      if (there && (there.state === "running" || there.state === "gone")) return startedOf(there);
      const owned = { ...this.#ownedOf(order, life), by: ownBirth() };
      const next = (life?.number ?? 0) + 1;
      const { first = next } = this.#registry.record(name) ?? {};
      this.#registry.write({ ...owned, first, next, startedAt: new Date().toISOString() });
      return this.#spawn(order, owned, next);
    });
  }

  prepare(order: Order): Promise<{ id: string }> {
    return this.#inTurn(order.name, async () => {
      const life = this.#registry.life(order.name);
      const there = this.#see(order.name, life);
      if (!there) this.#registry.writeFirst({ ...this.#ownedOf(order, life), first: (life?.number ?? 0) + 1 });
      return { id: there?.id ?? order.name };
    });
  }

  /** Not one that somebody has started since it was seen. */
  async remove({ name, id, state }: { name: string; id: string; state?: MachineState }): Promise<void> {
    if (!this.#isNamed(name)) return;
    await this.#inTurn(name, async () => {
      const life = this.#registry.life(name);
      if (!this.#see(name, life)) return;
      const isAnother = isOver(state) || (/^\d+$/.test(id) && id !== String(life?.pid));
      if (life?.alive && isAnother) return;
      if (life) await this.#end(name, life.number);
      if (!this.#registry.life(name)?.alive) this.#registry.forget(name);
    });
  }

  onEnded(listener: (machine: SeenMachine) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Also those of an orchestrator that was killed: nobody else would end them. Those of one that lives are its own. With `leave` all of them go on, and keep
   * this process from ending no longer.
   */
  async close({ leave = false } = {}): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#turns.values());
    if (leave) for (const { process: child } of this.#children.values()) child.unref();
    const orphans = [...this.#watched.values()].filter(({ by }) => !isThere(by));
    const all = leave ? [] : [...this.#children, ...orphans.map((life) => [life.name!, life] as const)];
    await Promise.allSettled(all.map(([name, { number }]) => this.#inTurn(name, () => this.#end(name, number))));
    await this.#looking;
  }

  /** One thing after the other with each machine. */
  #inTurn<T>(name: string, act: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(name) ?? Promise.resolve();
    const turn = before.catch(() => {}).then(act);
    this.#turns.set(name, turn);
    void turn
      .catch(() => {})
      .then(() => {
        if (this.#turns.get(name) === turn) this.#turns.delete(name);
      });
    return turn;
  }

  #isNamed(name: string): boolean {
    return slotOf(this.#context.fleet, this.#context.pool, name) !== undefined;
  }

  #isOurs({ name = "", fleet, pool }: Partial<Owned>): boolean {
    return fleet === this.#context.fleet && pool === this.#context.pool && this.#isNamed(name);
  }

  #ownedOf({ name, burst }: Order, life: MachineLife | undefined): Owned {
    const { fleet, pool } = this.#context;
    if (!this.#isNamed(name)) {
      const message = `${JSON.stringify(name)} is no name of a machine of pool ${pool}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    const there = this.#registry.record(name);
    if ((there && !this.#isOurs(there)) || (life?.alive && !this.#isOurs(life))) {
      const message = `There is a machine ${name} that is not of fleet ${fleet}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    return { fleet, pool, name, burst };
  }

  /** Undefined for what is not there, or not ours. */
  #see(name: string, life = this.#registry.life(name)): SeenMachine | undefined {
    const record = this.#registry.record(name);
    // A process without a record was started while its machine was removed: it is there.
    if (record ? !this.#isOurs(record) : !life?.alive) return undefined;
    if (life?.alive) return this.#isOurs(life) ? this.#seeAlive(name, life) : undefined;
    const now = new Date(this.#context.clock.now());
    const { first, next = 0, by, burst, startedAt = "" } = record!;
    const asked = dateOf(startedAt);
    if (asked && next > (life?.number ?? 0) && isThere(by))
      return { name, id: name, state: "starting", since: asked, startedAt: asked };
    if (!life || life.number < first) {
      // Whoever was about to start it is dead, or nobody was.
      const over = burst && asked ? { startedAt: asked, endedAt: now } : undefined;
      return { name, id: name, state: over ? "gone" : "stopped", ...over };
    }
    const end = this.#registry.end(name, life.number);
    // Whoever has started it is there and writes down what becomes of it.
    if (!end && isThere(life.by))
      return { name, id: name, state: "stopping", since: life.startedAt, startedAt: life.startedAt };
    return {
      name,
      id: name,
      state: burst ? "gone" : "stopped",
      startedAt: life.startedAt,
      endedAt: dateOf(end?.endedAt ?? "") ?? now,
      ...(end && { exit: end.exit }),
    };
  }

  #seeAlive(name: string, life: MachineLife): SeenMachine {
    if (this.#children.get(name)?.number !== life.number) this.#watch(name, life);
    const leaving = this.#leaving.get(name);
    return {
      name,
      id: String(life.pid),
      state: leaving ? "stopping" : "running",
      startedAt: life.startedAt,
      ...(leaving && { since: leaving }),
    };
  }

  async #spawn({ name, env }: Order, owned: Owned, number: number): Promise<Started> {
    const { command, args = [], cwd, log = "file", env: given } = this.#options;
    const program = command === undefined ? [process.execPath, CLI, "worker", ...args] : [command, ...args];
    const life = [path.join(this.#registry.dir, name), digits(number), JSON.stringify(owned)];
    const output = log === "inherit" ? ("inherit" as const) : fs.openSync(this.#registry.file(name, "log"), "a", 0o600);
    let child: ChildProcess;
    try {
      child = spawn("/bin/sh", ["-c", BECOME, "sh", ...life, ...program], {
        env: { ...machineEnvironment(), ...given, ...env },
        ...(cwd !== undefined && { cwd }),
        detached: true,
        stdio: ["ignore", output, output, "pipe"],
      });
    } finally {
      if (typeof output === "number") fs.closeSync(output);
    }
    let failed: (NodeJS.ErrnoException & { code?: string }) | undefined;
    const exited = new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
      child.once("exit", (code, signal) => resolve([code, signal]));
      child.once("error", (error) => {
        failed = error;
        resolve([null, null]);
      });
    });
    const mine = await new Promise<boolean>((resolve) => {
      child.stdio[3]!.once("data", () => resolve(true));
      void exited.then(() => resolve(false));
    });
    if (!mine) {
      const [code, signal] = await exited;
      return this.#notMine(name, failed?.message ?? `the shell ended with ${signal ?? code}`, code, failed?.code);
    }
    child.stdio[3]!.destroy();
    const startedAt = this.#registry.life(name)?.startedAt ?? new Date();
    const ended = exited.then(([code, signal]) =>
      this.#ended(name, { ...owned, number, startedAt }, signal ? { signal } : { code: code ?? 0 }),
    );
    this.#children.set(name, { process: child, number, ended, oomKills: oomKills() });
    return { id: String(child.pid), startedAt };
  }

  /** Another orchestrator was quicker, or the process could not be made. */
  #notMine(name: string, message: string, code: number | null, cause: string | undefined): Started {
    const there = code === TAKEN ? this.#see(name) : undefined;
    if (there) return startedOf(there);
    if (!this.#registry.life(name)?.alive) this.#registry.forget(name);
    const full = cause === "EAGAIN" || cause === "ENOMEM";
    // Somebody killed it before it was a machine: the next one may live.
    const killed = code === null && cause === undefined;
    throw new ProviderError(
      full ? "capacity" : killed ? "unstartable" : "refused",
      `No process can be started for ${name}: ${message}`,
      {
        certain: true,
        remedy: full
          ? "Lower max, or raise the limit of processes"
          : "Check cwd, that there is a /bin/sh, and that files can be linked in dir",
      },
    );
  }

  /** Written down by whoever learns of it first, and said. */
  #ended(name: string, life: Omit<MachineLife, "pid" | "alive">, exit: Exit): void {
    const { number, startedAt, burst } = life;
    const child = this.#children.get(name);
    if (child?.number === number) this.#children.delete(name);
    if (this.#watched.get(name)?.number === number) this.#watched.delete(name);
    const told: Exit = {
      ...exit,
      ...(exit.signal === "SIGKILL" && (oomKills() ?? 0) > (child?.oomKills ?? Number.MAX_VALUE) && { oom: true }),
      ...(this.#leaving.has(name) && { requested: true }),
      ...(exit.code !== 0 && exit.reason === undefined && this.#reason(name, number)),
    };
    let end = { endedAt: new Date(this.#context.clock.now()).toISOString(), exit: told };
    try {
      if (this.#registry.record(name)) end = this.#registry.writeEnd(name, number, end);
    } catch (error) {
      this.#context.say("warn", `The end of ${name} cannot be written down: ${(error as Error).message}`);
    }
    const seen = { name, id: name, startedAt, endedAt: new Date(end.endedAt), exit: end.exit };
    for (const listener of this.#listeners) listener({ ...seen, state: burst ? "gone" : "stopped" });
  }

  /** What it said last, unless that was another life by now. */
  #reason(name: string, number: number): { reason?: string } {
    if (this.#options.log === "inherit" || this.#registry.life(name)?.number !== number) return {};
    const words = lastWords(this.#registry.said(name), secretsOf({ ...machineEnvironment(), ...this.#options.env }));
    return words === undefined ? {} : { reason: words };
  }

  /** Told to end; after the grace the whole of its session is killed. Only a process that is certainly this life of the machine. */
  async #end(name: string, number: number): Promise<void> {
    if (!this.#lives(name, number)) return;
    this.#leaving.set(name, new Date(this.#context.clock.now()));
    const over = new AbortController();
    const gone = this.#gone(name, number, over.signal);
    try {
      this.#signal(name, number, "SIGTERM");
      await Promise.race([gone, this.#context.clock.sleep(this.#context.graceMs, over.signal)]);
      if (this.#lives(name, number)) {
        this.#context.say("warn", `${name} has not ended within its grace and is killed`);
        this.#signal(name, number, "SIGKILL");
        await Promise.race([gone, this.#context.clock.sleep(10_000, over.signal)]);
        if (this.#lives(name, number))
          throw new ProviderError("unreachable", `${name} cannot be ended: even SIGKILL does nothing`, {
            certain: false,
          });
      }
    } finally {
      over.abort();
      this.#leaving.delete(name);
    }
  }

  async #gone(name: string, number: number, signal: AbortSignal): Promise<void> {
    const child = this.#children.get(name);
    if (child?.number === number) return child.ended;
    while (this.#lives(name, number) && !signal.aborted) await this.#context.clock.sleep(20, signal);
    const life = this.#watched.get(name);
    if (life?.number === number && !signal.aborted) this.#ended(name, life, { reason: UNSEEN });
  }

  /** Asked for anew each time: its number may be another's by now. */
  #signal(name: string, number: number, signal: NodeJS.Signals): void {
    const life = this.#lives(name, number);
    if (!life) return;
    try {
      process.kill(-life.pid, signal);
    } catch {
      // It has ended this moment.
    }
  }

  #lives(name: string, number: number): MachineLife | undefined {
    const life = this.#registry.life(name);
    return life?.alive && life.number === number ? life : undefined;
  }

  #watch(name: string, life: MachineLife): void {
    this.#watched.set(name, life);
    if (this.#closing.signal.aborted) return;
    this.#looking ??= this.#lookOn().finally(() => (this.#looking = undefined));
  }

  async #lookOn(): Promise<void> {
    while (this.#watched.size > 0 && !this.#closing.signal.aborted) {
      await this.#context.clock.sleep(LOOK_MS, this.#closing.signal);
      for (const [name, life] of this.#watched) {
        if (this.#lives(name, life.number) || this.#leaving.has(name)) continue;
        // Whose it is writes down how it ended, unless it is dead itself.
        const end = this.#registry.end(name, life.number);
        if (end || !isThere(life.by)) this.#ended(name, life, end?.exit ?? { reason: UNSEEN });
      }
    }
  }
}

const UNSEEN = "it ended while nobody was watching";

function startedOf({ id, startedAt }: SeenMachine): Started {
  return { id, ...(startedAt && { startedAt }) };
}

function isOver(state: MachineState | undefined): boolean {
  return state === "stopped" || state === "gone";
}

function dateOf(text: string): Date | undefined {
  return text === "" ? undefined : new Date(text);
}
