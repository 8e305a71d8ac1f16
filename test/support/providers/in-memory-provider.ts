// A provider whose machines are in-process workers without isolation, for tests of the orchestrator. Tests inject failures
// with beforeCall. The real providers are tested against fakes of their APIs.
import type {
  Exit,
  ListedMachine,
  MachineRequest,
  Provider,
  ProviderContext,
  ProviderFactory,
} from "../../../src/orchestrator/index.ts";
import { ProviderError } from "../../../src/orchestrator/index.ts";
import { type AnyImplementation, createWorker, type Worker, type WorkerOptions } from "../../../src/worker/index.ts";

export interface MemoryCloudOptions {
  url: string;
  pipelines: readonly AnyImplementation[];
  /** Implements onEnded(). */
  reportsExits?: boolean;
  /** Its machines exit with the orchestrator, like child processes. */
  children?: boolean;
  worker?: Partial<WorkerOptions>;
  /** Replaces the start of a worker. */
  onStart?: (request: MachineRequest, cloud: MemoryCloud) => Promise<void>;
  facts?: Provider["facts"];
}

interface MemoryMachine extends ListedMachine {
  burst: boolean;
  worker?: Worker;
  ended?: Promise<void>;
}

type Method = "list" | "start" | "prepare" | "remove";

export class MemoryCloud {
  readonly options: MemoryCloudOptions;
  readonly machines = new Map<string, MemoryMachine>();
  readonly calls: { method: Method; name?: string }[] = [];
  /** Highest number of running machines so far. */
  maxAlive = 0;
  /** Called before each provider method; an error it throws is the result of the call. */
  beforeCall: (method: Method, name?: string) => Promise<void> | void = () => {};
  readonly #listeners: ((machine: ListedMachine) => void)[] = [];
  #serial = 0;

  constructor(options: MemoryCloudOptions) {
    this.options = options;
  }

  get alive(): string[] {
    return [...this.machines.values()].filter(({ state }) => state === "running").map(({ name }) => name);
  }

  readonly provider: ProviderFactory = (context) => {
    const provider: Provider = {
      kind: "memory",
      facts: this.options.facts ?? { size: "small", region: "here", bootMs: 20_000 },
      list: async () => {
        await this.#called("list");
        return this.#of(context).map(({ worker: _1, ended: _2, burst: _3, ...listed }) => listed);
      },
      start: async (request) => {
        await this.#called("start", request.name);
        return this.start(request);
      },
      prepare: async (request) => {
        await this.#called("prepare", request.name);
        const id = `c${++this.#serial}`;
        if (!this.machines.has(request.name))
          this.machines.set(request.name, { name: request.name, id, state: "stopped", burst: false });
        return { id: this.machines.get(request.name)!.id };
      },
      remove: async ({ name }) => {
        await this.#called("remove", name);
        await this.exit(name, { requested: true });
        this.machines.delete(name);
      },
      ...(this.options.children && { close: () => this.close() }),
      ...(this.options.reportsExits && { onEnded: (listener) => void this.#listeners.push(listener) }),
    };
    return provider;
  };

  /** Starts a machine outside of the orchestrator. */
  start(request: MachineRequest): { id: string; startedAt: Date } {
    const existing = this.machines.get(request.name);
    if (existing?.state === "running") return { id: existing.id, startedAt: existing.startedAt! };
    if (existing?.state === "gone")
      throw new ProviderError("unstartable", `${request.name} is gone`, { certain: true });
    const machine: MemoryMachine = {
      name: request.name,
      id: existing?.id ?? `c${++this.#serial}`,
      state: "running",
      startedAt: new Date(),
      burst: request.burst,
    };
    this.machines.set(request.name, machine);
    this.maxAlive = Math.max(this.maxAlive, this.alive.length);
    machine.ended = (this.options.onStart ? this.options.onStart(request, this) : this.#work(request, machine)).catch(
      () => {},
    );
    return { id: machine.id, startedAt: machine.startedAt! };
  }

  /** Makes the machine exit. */
  async exit(name: string, exit: Exit = { code: 0 }): Promise<void> {
    const machine = this.machines.get(name);
    if (machine?.state !== "running") return;
    Object.assign(machine, { state: machine.burst ? "gone" : "stopped", endedAt: new Date(), exit });
    await machine.worker?.stop();
    for (const listener of this.#listeners) listener({ ...machine });
  }

  /** Makes every machine exit. */
  async close(): Promise<void> {
    for (const { name } of this.machines.values()) await this.exit(name);
    await Promise.all([...this.machines.values()].map(({ ended }) => ended));
  }

  async #work({ name, env }: MachineRequest, machine: MemoryMachine): Promise<void> {
    const worker = createWorker({
      url: this.options.url,
      pipelines: this.options.pipelines,
      machine: name,
      pool: env.STILLWAKE_POOL!,
      slots: Number(env.STILLWAKE_SLOTS),
      idleExit: env.STILLWAKE_IDLE_EXIT as "1s",
      grace: "200ms",
      ...this.options.worker,
    });
    machine.worker = worker;
    await worker.start();
    await worker.done;
    await this.exit(name);
  }

  async #called(method: Method, name?: string): Promise<void> {
    this.calls.push({ method, ...(name !== undefined && { name }) });
    await this.beforeCall(method, name);
  }

  #of({ fleet, pool }: ProviderContext): MemoryMachine[] {
    return [...this.machines.values()].filter(({ name }) => name.startsWith(`sw-${fleet}-${pool}-`));
  }
}
