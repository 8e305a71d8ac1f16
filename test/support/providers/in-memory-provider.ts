// A provider of machines that exist in this process only, each with a real worker on it (in process, without isolation): for tests of the orchestrator, which is
// shown a provider's every mood. The providers of the product are tested against fakes of their APIs.
import type {
  Exit,
  Order,
  Provider,
  ProviderContext,
  ProviderFactory,
  SeenMachine,
} from "../../../src/orchestrator/index.ts";
import { ProviderError } from "../../../src/orchestrator/index.ts";
import { type AnyImplementation, createWorker, type Worker, type WorkerOptions } from "../../../src/worker/index.ts";

export interface CloudOptions {
  url: string;
  pipelines: readonly AnyImplementation[];
  /** Tells of ends by itself. */
  tells?: boolean;
  /** Its machines end with the orchestrator, as children of its process do. */
  children?: boolean;
  worker?: Partial<WorkerOptions>;
  /** What happens instead of the worker's start. */
  body?: (order: Order, cloud: Cloud) => Promise<void>;
  facts?: Provider["facts"];
}

interface Held extends SeenMachine {
  burst: boolean;
  worker?: Worker;
  ended?: Promise<void>;
}

type Verb = "list" | "start" | "prepare" | "remove";

export class Cloud {
  readonly options: CloudOptions;
  readonly machines = new Map<string, Held>();
  readonly calls: { verb: Verb; name?: string }[] = [];
  /** The most that have been alive at once. */
  most = 0;
  /** Called before each verb; what it throws is thrown at the orchestrator. */
  mood: (verb: Verb, name?: string) => Promise<void> | void = () => {};
  readonly #listeners: ((machine: SeenMachine) => void)[] = [];
  #serial = 0;

  constructor(options: CloudOptions) {
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
        return this.#of(context).map(({ worker: _1, ended: _2, burst: _3, ...seen }) => seen);
      },
      start: async (order) => {
        await this.#called("start", order.name);
        return this.start(order);
      },
      prepare: async (order) => {
        await this.#called("prepare", order.name);
        const id = `c${++this.#serial}`;
        if (!this.machines.has(order.name))
          this.machines.set(order.name, { name: order.name, id, state: "stopped", burst: false });
        return { id: this.machines.get(order.name)!.id };
      },
      remove: async ({ name }) => {
        await this.#called("remove", name);
        await this.end(name, { requested: true });
        this.machines.delete(name);
      },
      ...(this.options.children && { close: () => this.close() }),
      ...(this.options.tells && { onEnded: (listener) => void this.#listeners.push(listener) }),
    };
    return provider;
  };

  /** As the provider would, whoever asks. */
  start(order: Order): { id: string; startedAt: Date } {
    const had = this.machines.get(order.name);
    if (had?.state === "running") return { id: had.id, startedAt: had.startedAt! };
    if (had?.state === "gone") throw new ProviderError("unstartable", `${order.name} is gone`, { certain: true });
    const machine: Held = {
      name: order.name,
      id: had?.id ?? `c${++this.#serial}`,
      state: "running",
      startedAt: new Date(),
      burst: order.burst,
    };
    this.machines.set(order.name, machine);
    this.most = Math.max(this.most, this.alive.length);
    machine.ended = (this.options.body ? this.options.body(order, this) : this.#work(order, machine)).catch(() => {});
    return { id: machine.id, startedAt: machine.startedAt! };
  }

  /** It ends, by itself or not. */
  async end(name: string, exit: Exit = { code: 0 }): Promise<void> {
    const machine = this.machines.get(name);
    if (machine?.state !== "running") return;
    Object.assign(machine, { state: machine.burst ? "gone" : "stopped", endedAt: new Date(), exit });
    await machine.worker?.stop();
    for (const listener of this.#listeners) listener({ ...machine });
  }

  /** Every machine ends. */
  async close(): Promise<void> {
    for (const { name } of this.machines.values()) await this.end(name);
    await Promise.all([...this.machines.values()].map(({ ended }) => ended));
  }

  async #work({ name, env }: Order, machine: Held): Promise<void> {
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
    await this.end(name);
  }

  async #called(verb: Verb, name?: string): Promise<void> {
    this.calls.push({ verb, ...(name !== undefined && { name }) });
    await this.mood(verb, name);
  }

  #of({ fleet, pool }: ProviderContext): Held[] {
    return [...this.machines.values()].filter(({ name }) => name.startsWith(`sw-${fleet}-${pool}-`));
  }
}
