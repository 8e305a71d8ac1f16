// Machines as child processes, for `npm start`, a single server and tests. Each is a `stillwake worker` in a separate
// session, so that Ctrl-C in a terminal does not reach it. close() stops them gracefully, unless `leave` is set. The
// machines of an orchestrator that was killed, or ran with --once, outlive it: they finish their jobs and exit after
// their idle time, or the next orchestrator finds them in the registry and takes them over.
import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { machineEnvironment } from "../../../config.ts";
import { oomKills } from "../../../memory.ts";
import {
  type Exit,
  type ListedMachine,
  type MachineRequest,
  type MachineState,
  ordinalOf,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type StartedMachine,
} from "../../provider.ts";
import { collectSecrets, toExitReason } from "../exit-reason.ts";
import {
  EXIT_TAKEN,
  formatNumber,
  isRunning,
  type MachineOwner,
  ownIdentity,
  type ProcessLife,
  Registry,
  START_SCRIPT,
} from "./registry.ts";

export interface LocalOptions {
  /** The program of a machine. Default: `stillwake worker` of this package. */
  command?: string;
  /** Its arguments, such as ["--pipelines", "./pipelines"]. */
  args?: readonly string[];
  /** Added to the environment of this process, which is passed on without provider tokens. */
  env?: Readonly<Record<string, string>>;
  cwd?: string;
  /** Output of the machines: a file in `dir`, or with "inherit" the output of this process. Default: "file". */
  log?: "file" | "inherit";
  /** The registry directory, shared by all orchestrators of a fleet on this host. Default: in $TMPDIR. */
  dir?: string;
}

const CLI = fileURLToPath(new URL("../../../cli/index.js", import.meta.url));
/** How often machines that are not children of this process are checked. */
const WATCH_MS = 500;
/** How long the exit of a burst machine is kept. */
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
  /** Machines of another process, which may be dead: their exit is polled. */
  readonly #watched = new Map<string, ProcessLife>();
  readonly #stopping = new Map<string, Date>();
  readonly #queues = new Map<string, Promise<unknown>>();
  readonly #listeners: ((machine: ListedMachine) => void)[] = [];
  readonly #closing = new AbortController();
  #watching: Promise<void> | undefined;

  constructor(options: LocalOptions, context: ProviderContext) {
    this.#options = options;
    this.#context = context;
    const root = path.join(os.tmpdir(), `stillwake-${os.userInfo().uid}`);
    this.#registry =
      options.dir === undefined
        ? new Registry(path.join(root, `machines-${context.fleet}`), root)
        : new Registry(options.dir);
  }

  async list(): Promise<ListedMachine[]> {
    return this.#registry.names().flatMap((name) => {
      if (!this.#isMachineName(name)) return [];
      const life = this.#registry.lastLife(name);
      const machine = this.#describe(name, life);
      const isOld = machine?.endedAt !== undefined && this.#context.clock.now() - machine.endedAt.getTime() > KEPT_MS;
      if (machine?.state === "gone" && isOld) this.#registry.forget(name);
      else if (machine) return [machine];
      // The name of a burst machine is never reused.
      else if (life?.burst && !life.alive && this.#isOurs(life)) this.#registry.forgetLives(name, KEPT_MS);
      return [];
    });
  }

  start(request: MachineRequest): Promise<StartedMachine> {
    return this.#enqueue(request.name, async () => {
      const { name } = request;
      if (!this.#registry.lastLife(name)?.alive) await this.#children.get(name)?.ended;
      // Start only the life after the one just read: if there is a newer one by then, another process was faster.
      const life = this.#registry.lastLife(name);
      const existing = this.#describe(name, life);
      // A burst machine that is gone was started: a repeated request returns it.
      if (existing && (existing.state === "running" || existing.state === "gone")) return toStarted(existing);
      const owner = { ...this.#toOwner(request, life), by: ownIdentity() };
      const next = (life?.number ?? 0) + 1;
      const { first = next } = this.#registry.record(name) ?? {};
      this.#registry.write({ ...owner, first, next, startedAt: new Date().toISOString() });
      return this.#spawn(request, owner, next);
    });
  }

  prepare(request: MachineRequest): Promise<{ id: string }> {
    return this.#enqueue(request.name, async () => {
      const life = this.#registry.lastLife(request.name);
      const existing = this.#describe(request.name, life);
      if (!existing) this.#registry.writeIfMissing({ ...this.#toOwner(request, life), first: (life?.number ?? 0) + 1 });
      return { id: existing?.id ?? request.name };
    });
  }

  /** Leaves a machine alone that was started after it was listed. */
  async remove({ name, id, state }: { name: string; id: string; state?: MachineState }): Promise<void> {
    if (!this.#isMachineName(name)) return;
    await this.#enqueue(name, async () => {
      const life = this.#registry.lastLife(name);
      if (!this.#describe(name, life)) return;
      const isNewer = isOver(state) || (/^\d+$/.test(id) && id !== String(life?.pid));
      if (life?.alive && isNewer) return;
      if (life) await this.#stop(name, life.number);
      if (!this.#registry.lastLife(name)?.alive) this.#registry.forget(name);
    });
  }

  onEnded(listener: (machine: ListedMachine) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Stops the children of this process and the machines of orchestrators that were killed. With `leave` all keep
   * running and no longer keep this process alive.
   */
  async close({ leave = false } = {}): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#queues.values());
    if (leave) for (const { process: child } of this.#children.values()) child.unref();
    const orphans = [...this.#watched.values()].filter(({ by }) => !isRunning(by));
    const all = leave ? [] : [...this.#children, ...orphans.map((life) => [life.name!, life] as const)];
    await Promise.allSettled(all.map(([name, { number }]) => this.#enqueue(name, () => this.#stop(name, number))));
    await this.#watching;
  }

  /** Serializes operations per machine. */
  #enqueue<T>(name: string, operation: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(name) ?? Promise.resolve();
    const result = before.catch(() => {}).then(operation);
    this.#queues.set(name, result);
    void result
      .catch(() => {})
      .then(() => {
        if (this.#queues.get(name) === result) this.#queues.delete(name);
      });
    return result;
  }

  #isMachineName(name: string): boolean {
    return ordinalOf(this.#context.fleet, this.#context.pool, name) !== undefined;
  }

  #isOurs({ name = "", fleet, pool }: Partial<MachineOwner>): boolean {
    return fleet === this.#context.fleet && pool === this.#context.pool && this.#isMachineName(name);
  }

  #toOwner({ name, burst }: MachineRequest, life: ProcessLife | undefined): MachineOwner {
    const { fleet, pool } = this.#context;
    if (!this.#isMachineName(name)) {
      const message = `${JSON.stringify(name)} is not a machine name of pool ${pool}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    const record = this.#registry.record(name);
    if ((record && !this.#isOurs(record)) || (life?.alive && !this.#isOurs(life))) {
      const message = `Machine ${name} exists and does not belong to fleet ${fleet}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    return { fleet, pool, name, burst };
  }

  /** Undefined for a machine that does not exist or belongs to another fleet or pool. */
  #describe(name: string, life = this.#registry.lastLife(name)): ListedMachine | undefined {
    const record = this.#registry.record(name);
    // A process without a record was started while its machine was being removed: it exists.
    if (record ? !this.#isOurs(record) : !life?.alive) return undefined;
    if (life?.alive) return this.#isOurs(life) ? this.#describeAlive(name, life) : undefined;
    const now = new Date(this.#context.clock.now());
    const { first, next = 0, by, burst, startedAt = "" } = record!;
    const requestedAt = toDate(startedAt);
    if (requestedAt && next > (life?.number ?? 0) && isRunning(by))
      return { name, id: name, state: "starting", since: requestedAt, startedAt: requestedAt };
    if (!life || life.number < first) {
      // The process that was about to start it is dead, or there was none.
      const over = burst && requestedAt ? { startedAt: requestedAt, endedAt: now } : undefined;
      return { name, id: name, state: over ? "gone" : "stopped", ...over };
    }
    const end = this.#registry.end(name, life.number);
    // The process that started it is alive and records the exit.
    if (!end && isRunning(life.by))
      return { name, id: name, state: "stopping", since: life.startedAt, startedAt: life.startedAt };
    return {
      name,
      id: name,
      state: burst ? "gone" : "stopped",
      startedAt: life.startedAt,
      endedAt: toDate(end?.endedAt ?? "") ?? now,
      ...(end && { exit: end.exit }),
    };
  }

  #describeAlive(name: string, life: ProcessLife): ListedMachine {
    if (this.#children.get(name)?.number !== life.number) this.#watch(name, life);
    const stoppingSince = this.#stopping.get(name);
    return {
      name,
      id: String(life.pid),
      state: stoppingSince ? "stopping" : "running",
      startedAt: life.startedAt,
      ...(stoppingSince && { since: stoppingSince }),
    };
  }

  async #spawn({ name, env }: MachineRequest, owner: MachineOwner, number: number): Promise<StartedMachine> {
    const { command, args = [], cwd, log = "file", env: extraEnv } = this.#options;
    const program = command === undefined ? [process.execPath, CLI, "worker", ...args] : [command, ...args];
    const life = [path.join(this.#registry.dir, name), formatNumber(number), JSON.stringify(owner)];
    const output = log === "inherit" ? ("inherit" as const) : fs.openSync(this.#registry.file(name, "log"), "a", 0o600);
    let child: ChildProcess;
    try {
      child = spawn("/bin/sh", ["-c", START_SCRIPT, "sh", ...life, ...program], {
        env: { ...machineEnvironment(), ...extraEnv, ...env },
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
    const isRegistered = await new Promise<boolean>((resolve) => {
      child.stdio[3]!.once("data", () => resolve(true));
      void exited.then(() => resolve(false));
    });
    if (!isRegistered) {
      const [code, signal] = await exited;
      return this.#spawnFailed(name, failed?.message ?? `the shell exited with ${signal ?? code}`, code, failed?.code);
    }
    child.stdio[3]!.destroy();
    const startedAt = this.#registry.lastLife(name)?.startedAt ?? new Date();
    const ended = exited.then(([code, signal]) =>
      this.#ended(name, { ...owner, number, startedAt }, signal ? { signal } : { code: code ?? 0 }),
    );
    this.#children.set(name, { process: child, number, ended, oomKills: oomKills() });
    return { id: String(child.pid), startedAt };
  }

  /** Another orchestrator was faster, or the process could not be created. */
  #spawnFailed(name: string, message: string, code: number | null, cause: string | undefined): StartedMachine {
    const existing = code === EXIT_TAKEN ? this.#describe(name) : undefined;
    if (existing) return toStarted(existing);
    if (!this.#registry.lastLife(name)?.alive) this.#registry.forget(name);
    const isFull = cause === "EAGAIN" || cause === "ENOMEM";
    // Killed before it had registered: the next attempt may succeed.
    const isKilled = code === null && cause === undefined;
    throw new ProviderError(
      isFull ? "capacity" : isKilled ? "unstartable" : "refused",
      `Cannot start a process for ${name}: ${message}`,
      {
        certain: true,
        remedy: isFull
          ? "Lower max, or raise the process limit"
          : "Check that cwd and /bin/sh exist and that dir supports hard links",
      },
    );
  }

  /** Records the exit, unless another process already has, and notifies the listeners. */
  #ended(name: string, life: Omit<ProcessLife, "pid" | "alive">, exit: Exit): void {
    const { number, startedAt, burst } = life;
    const child = this.#children.get(name);
    if (child?.number === number) this.#children.delete(name);
    if (this.#watched.get(name)?.number === number) this.#watched.delete(name);
    const details: Exit = {
      ...exit,
      ...(exit.signal === "SIGKILL" && (oomKills() ?? 0) > (child?.oomKills ?? Number.MAX_VALUE) && { oom: true }),
      ...(this.#stopping.has(name) && { requested: true }),
      ...(exit.code !== 0 && exit.reason === undefined && this.#reason(name, number)),
    };
    let end = { endedAt: new Date(this.#context.clock.now()).toISOString(), exit: details };
    try {
      if (this.#registry.record(name)) end = this.#registry.writeEnd(name, number, end);
    } catch (error) {
      this.#context.report("warn", `Cannot record the exit of ${name}: ${(error as Error).message}`);
    }
    const machine = { name, id: name, startedAt, endedAt: new Date(end.endedAt), exit: end.exit };
    for (const listener of this.#listeners) listener({ ...machine, state: burst ? "gone" : "stopped" });
  }

  /** From the end of its log, unless the log belongs to a newer life. */
  #reason(name: string, number: number): { reason?: string } {
    if (this.#options.log === "inherit" || this.#registry.lastLife(name)?.number !== number) return {};
    const reason = toExitReason(
      this.#registry.readLogTail(name),
      collectSecrets({ ...machineEnvironment(), ...this.#options.env }),
    );
    return reason === undefined ? {} : { reason };
  }

  /** Sends SIGTERM, and SIGKILL after the grace, to the process group of this life and of no other. */
  async #stop(name: string, number: number): Promise<void> {
    if (!this.#liveLife(name, number)) return;
    this.#stopping.set(name, new Date(this.#context.clock.now()));
    const done = new AbortController();
    const exited = this.#waitForExit(name, number, done.signal);
    try {
      this.#signal(name, number, "SIGTERM");
      await Promise.race([exited, this.#context.clock.sleep(this.#context.graceMs, done.signal)]);
      if (this.#liveLife(name, number)) {
        this.#context.report("warn", `${name} did not exit within its grace and is killed`);
        this.#signal(name, number, "SIGKILL");
        await Promise.race([exited, this.#context.clock.sleep(10_000, done.signal)]);
        if (this.#liveLife(name, number))
          throw new ProviderError("unreachable", `Cannot stop ${name}: it survives SIGKILL`, {
            certain: false,
          });
      }
    } finally {
      done.abort();
      this.#stopping.delete(name);
    }
  }

  async #waitForExit(name: string, number: number, signal: AbortSignal): Promise<void> {
    const child = this.#children.get(name);
    if (child?.number === number) return child.ended;
    while (this.#liveLife(name, number) && !signal.aborted) await this.#context.clock.sleep(20, signal);
    const life = this.#watched.get(name);
    if (life?.number === number && !signal.aborted) this.#ended(name, life, { reason: UNOBSERVED });
  }

  /** Reads the life again each time, because its pid may have been reused. */
  #signal(name: string, number: number, signal: NodeJS.Signals): void {
    const life = this.#liveLife(name, number);
    if (!life) return;
    try {
      process.kill(-life.pid, signal);
    } catch {
      // It has just exited.
    }
  }

  #liveLife(name: string, number: number): ProcessLife | undefined {
    const life = this.#registry.lastLife(name);
    return life?.alive && life.number === number ? life : undefined;
  }

  #watch(name: string, life: ProcessLife): void {
    this.#watched.set(name, life);
    if (this.#closing.signal.aborted) return;
    this.#watching ??= this.#watchExits().finally(() => (this.#watching = undefined));
  }

  async #watchExits(): Promise<void> {
    while (this.#watched.size > 0 && !this.#closing.signal.aborted) {
      await this.#context.clock.sleep(WATCH_MS, this.#closing.signal);
      for (const [name, life] of this.#watched) {
        if (this.#liveLife(name, life.number) || this.#stopping.has(name)) continue;
        // Its parent records the exit, unless the parent is dead.
        const end = this.#registry.end(name, life.number);
        if (end || !isRunning(life.by)) this.#ended(name, life, end?.exit ?? { reason: UNOBSERVED });
      }
    }
  }
}

const UNOBSERVED = "it exited while no orchestrator was running";

function toStarted({ id, startedAt }: ListedMachine): StartedMachine {
  return { id, ...(startedAt && { startedAt }) };
}

function isOver(state: MachineState | undefined): boolean {
  return state === "stopped" || state === "gone";
}

function toDate(text: string): Date | undefined {
  return text === "" ? undefined : new Date(text);
}
