// Machines that are processes of this one: for `npm start`, for a single server, and for tests. Each is `stillwake worker` in a session of its own, so that the
// Ctrl-C of a terminal does not reach it. It is ended in good order by close(). Of an orchestrator that was killed its machines outlive it: they finish
// what they have and leave after their idle time, or the next orchestrator finds them in the registry and goes on with them.
import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { machineEnvironment } from "../config.ts";
import { BECOME, isThere, type MachineRecord, ownBirth, Registry, TAKEN } from "./local-registry.ts";
import { slotOf } from "./names.ts";
import {
  type Exit,
  type Order,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type SeenMachine,
  type Started,
} from "./provider.ts";

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

const CLI = fileURLToPath(new URL("../cli/index.js", import.meta.url));
/** How often machines that are no children of this process are looked at. */
const LOOK_MS = 500;
/** How long the end of a burst machine can be read. */
const KEPT_MS = 3600_000;

export function local(options: LocalOptions = {}): ProviderFactory {
  return (context) => new Local(options, context);
}

interface Child {
  process: ChildProcess;
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
  readonly #watched = new Set<string>();
  readonly #leaving = new Map<string, Date>();
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #listeners: ((machine: SeenMachine) => void)[] = [];
  readonly #closing = new AbortController();
  #looking: Promise<void> | undefined;

  constructor(options: LocalOptions, context: ProviderContext) {
    this.#options = options;
    this.#context = context;
    const root = path.join(os.tmpdir(), `stillwake-${os.userInfo().uid}`);
    this.#registry = new Registry(options.dir ?? path.join(root, `machines-${context.fleet}`));
  }

  async list(): Promise<SeenMachine[]> {
    return this.#registry.records().flatMap((record) => {
      if (!this.#isOurs(record)) return [];
      const seen = this.#see(record);
      const old = seen.endedAt !== undefined && this.#context.clock.now() - seen.endedAt.getTime() > KEPT_MS;
      if (seen.state === "gone" && old) {
        this.#registry.forget(record.name);
        return [];
      }
      return [seen];
    });
  }

  start(order: Order): Promise<Started> {
    return this.#inTurn(order.name, async () => {
      if (!this.#registry.alive(order.name)) await this.#children.get(order.name)?.ended;
      const there = this.#find(order.name);
      // One that was made for one life and has had it was started: that is the answer to whoever asks again.
      if (there && (there.state === "running" || there.state === "gone")) return startedOf(there);
      const record = { ...this.#recordOf(order), by: ownBirth(), startedAt: new Date().toISOString() };
      this.#registry.write(record);
      this.#registry.forgetProcess(order.name);
      return this.#spawn(order);
    });
  }

  prepare(order: Order): Promise<{ id: string }> {
    return this.#inTurn(order.name, async () => {
      const there = this.#find(order.name);
      if (!there) this.#registry.write(this.#recordOf(order));
      return { id: there?.id ?? order.name };
    });
  }

  async remove({ name }: { name: string }): Promise<void> {
    if (!this.#isNamed(name)) return;
    await this.#inTurn(name, async () => {
      const record = this.#registry.record(name);
      if (!record || !this.#isOurs(record)) return;
      await this.#end(name);
      this.#registry.forget(name);
    });
  }

  onEnded(listener: (machine: SeenMachine) => void): void {
    this.#listeners.push(listener);
  }

  /** Also those of an orchestrator that was killed: nobody else would end them. Those of one that lives are its own. */
  async close(): Promise<void> {
    this.#closing.abort();
    const orphans = [...this.#watched].filter((name) => !isThere(this.#registry.record(name)?.by));
    const all = [...this.#children.keys(), ...orphans].map((name) => this.#inTurn(name, () => this.#end(name)));
    await Promise.allSettled(all);
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

  #isOurs({ name, fleet, pool }: MachineRecord): boolean {
    return fleet === this.#context.fleet && pool === this.#context.pool && this.#isNamed(name);
  }

  #recordOf({ name, burst }: Order): MachineRecord {
    const { fleet, pool } = this.#context;
    if (!this.#isNamed(name)) {
      const message = `${JSON.stringify(name)} is no name of a machine of pool ${pool}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    const there = this.#registry.record(name);
    if (there && !this.#isOurs(there)) {
      const message = `There is a machine ${name} that is not of fleet ${fleet}`;
      throw new ProviderError("refused", message, { certain: true });
    }
    return { fleet, pool, name, burst };
  }

  #find(name: string): SeenMachine | undefined {
    const record = this.#registry.record(name);
    return record && this.#isOurs(record) ? this.#see(record) : undefined;
  }

  #see(record: MachineRecord): SeenMachine {
    const { name, burst } = record;
    const alive = this.#registry.alive(name);
    const child = this.#children.get(name);
    // How a child has ended is told to us in a moment: until then it is on its way out.
    if (alive || child) {
      if (!child) this.#watch(name);
      const leaving = this.#leaving.get(name);
      const startedAt = alive?.startedAt ?? this.#registry.startedAt(name);
      return {
        name,
        id: String(alive?.pid ?? child?.process.pid),
        state: alive && !leaving ? "running" : "stopping",
        ...(startedAt && { startedAt }),
        ...((leaving || !alive) && { since: leaving ?? new Date(this.#context.clock.now()) }),
      };
    }
    const { startedAt = "", endedAt = "", exit } = record;
    const written = this.#registry.startedAt(name);
    const begun = written ?? dateOf(startedAt);
    // Whoever has started it is there and writes down what becomes of it.
    if (begun && endedAt === "" && isThere(record.by))
      return { name, id: name, state: written ? "stopping" : "starting", since: begun, startedAt: begun };
    const over = dateOf(endedAt) ?? (begun && new Date(this.#context.clock.now()));
    return {
      name,
      id: name,
      state: burst && over ? "gone" : "stopped",
      ...(begun && { startedAt: begun }),
      ...(over && { endedAt: over }),
      ...(exit && { exit }),
    };
  }

  async #spawn({ name, env }: Order): Promise<Started> {
    const { command, args = [], cwd, log = "file", env: given } = this.#options;
    const program = command === undefined ? [process.execPath, CLI, "worker", ...args] : [command, ...args];
    const files = [this.#registry.file(name, "pid"), this.#registry.file(name, "log")];
    const output = log === "inherit" ? ("inherit" as const) : fs.openSync(files[1]!, "a", 0o600);
    let child: ChildProcess;
    try {
      child = spawn("/bin/sh", ["-c", BECOME, "sh", ...files, ...program], {
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
    const ended = exited.then(([code, signal]) =>
      this.#ended(name, { ...(signal ? { signal } : { code: code ?? 0 }) }),
    );
    this.#children.set(name, { process: child, ended, oomKills: oomKills() });
    return { id: String(child.pid), startedAt: this.#registry.startedAt(name) ?? new Date() };
  }

  /** Another orchestrator was quicker, or the process could not be made. */
  #notMine(name: string, message: string, code: number | null, cause: string | undefined): Started {
    const there = code === TAKEN ? this.#find(name) : undefined;
    if (there) return startedOf(there);
    this.#registry.forget(name);
    const full = cause === "EAGAIN" || cause === "ENOMEM";
    throw new ProviderError(full ? "capacity" : "refused", `No process can be started for ${name}: ${message}`, {
      certain: true,
      remedy: full ? "Lower max, or raise the limit of processes" : "Check cwd, and that there is a /bin/sh",
    });
  }

  /** Written down by whoever learns of it first, and said. */
  #ended(name: string, exit: Exit): void {
    const child = this.#children.get(name);
    this.#children.delete(name);
    this.#watched.delete(name);
    const record = this.#registry.record(name);
    if (!record || !this.#isOurs(record)) return;
    const startedAt = this.#registry.startedAt(name) ?? dateOf(record.startedAt ?? "");
    const words = exit.code === 0 || this.#options.log === "inherit" ? undefined : this.#registry.lastWords(name);
    const told: Exit = {
      ...exit,
      ...(exit.signal === "SIGKILL" && (oomKills() ?? 0) > (child?.oomKills ?? Number.MAX_VALUE) && { oom: true }),
      ...(this.#leaving.has(name) && { requested: true }),
      ...(exit.reason === undefined && words && { reason: words }),
    };
    const endedAt = new Date(this.#context.clock.now());
    try {
      this.#registry.write({
        ...record,
        ...(startedAt && { startedAt: startedAt.toISOString() }),
        endedAt: endedAt.toISOString(),
        exit: told,
      });
      this.#registry.forgetProcess(name);
    } catch (error) {
      this.#context.say("warn", `The end of ${name} cannot be written down: ${(error as Error).message}`);
    }
    const state = record.burst ? "gone" : "stopped";
    const seen: SeenMachine = { name, id: name, state, endedAt, exit: told, ...(startedAt && { startedAt }) };
    for (const listener of this.#listeners) listener(seen);
  }

  /** Told to end; after the grace the whole of its session is killed. Only a process that is certainly the machine's. */
  async #end(name: string): Promise<void> {
    if (!this.#registry.alive(name)) return;
    this.#leaving.set(name, new Date(this.#context.clock.now()));
    const over = new AbortController();
    const gone = this.#gone(name, over.signal);
    try {
      this.#signal(name, "SIGTERM");
      await Promise.race([gone, this.#context.clock.sleep(this.#context.graceMs, over.signal)]);
      if (this.#registry.alive(name)) {
        this.#context.say("warn", `${name} has not ended within its grace and is killed`);
        this.#signal(name, "SIGKILL");
        await Promise.race([gone, this.#context.clock.sleep(10_000, over.signal)]);
        if (this.#registry.alive(name))
          throw new ProviderError("unreachable", `${name} cannot be ended: even SIGKILL does nothing`, {
            certain: false,
          });
      }
    } finally {
      over.abort();
      this.#leaving.delete(name);
    }
  }

  async #gone(name: string, signal: AbortSignal): Promise<void> {
    const child = this.#children.get(name);
    if (child) return child.ended;
    while (this.#registry.alive(name) && !signal.aborted) await this.#context.clock.sleep(20, signal);
    if (this.#watched.has(name) && !signal.aborted) this.#ended(name, { reason: UNSEEN });
  }

  /** Asked for anew each time: its number may be another's by now. */
  #signal(name: string, signal: NodeJS.Signals): void {
    const alive = this.#registry.alive(name);
    if (!alive) return;
    try {
      process.kill(-alive.pid, signal);
    } catch {
      // It has ended this moment.
    }
  }

  #watch(name: string): void {
    this.#watched.add(name);
    if (this.#closing.signal.aborted) return;
    this.#looking ??= this.#lookOn().finally(() => (this.#looking = undefined));
  }

  async #lookOn(): Promise<void> {
    while (this.#watched.size > 0 && !this.#closing.signal.aborted) {
      await this.#context.clock.sleep(LOOK_MS, this.#closing.signal);
      for (const name of this.#watched) {
        if (this.#registry.alive(name) || this.#leaving.has(name)) continue;
        // Whose it is has written down how it ended, unless it is dead itself.
        const { exit } = this.#registry.record(name) ?? {};
        this.#ended(name, exit ?? { reason: UNSEEN });
      }
    }
  }
}

const UNSEEN = "it ended while nobody was watching";

function startedOf({ id, startedAt }: SeenMachine): Started {
  return { id, ...(startedAt && { startedAt }) };
}

function dateOf(text: string): Date | undefined {
  return text === "" ? undefined : new Date(text);
}

/** How often the kernel has killed for want of memory where this process is; undefined where it does not say. */
function oomKills(): number | undefined {
  try {
    const [, group = "/"] = /^0::(.*)$/m.exec(fs.readFileSync("/proc/self/cgroup", "utf8")) ?? [];
    const events = fs.readFileSync(
      path.join("/sys/fs/cgroup", path.posix.resolve("/", group), "memory.events"),
      "utf8",
    );
    return Number(/^oom_kill (\d+)$/m.exec(events)?.[1]);
  } catch {
    return undefined;
  }
}
