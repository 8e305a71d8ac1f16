// Machines on Fly. A warm machine is stopped and is started again; a burst machine is made, and destroys itself when its worker ends.
//
// A name is unique in its app, so that to make a machine again is harmless: the second call is refused with the id of the first. Before a call that had no
// answer is sent again, machines are listed, and what is there is adopted. No machine is ever updated, which takes a minute: one of older settings is
// removed and made again. Nothing is started or removed that was not read, just before, with our fleet and pool in its tags and in its name.
import { createHash } from "node:crypto";
import { readFlyConfig } from "../../../config.ts";
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
import { slotOf } from "../../names.ts";
import {
  type Exit,
  type MachineState,
  type Order,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type ProviderFacts,
  type SeenMachine,
  type Started,
} from "../../provider.ts";
import type { Answer, Ask } from "../http.ts";
import { doubtful as inDoubt } from "../uncertain-starts.ts";
import { FlyApi, isCapacity, isNameTaken, said } from "./api.ts";
import { endOf, type FlyMachine, isBroken, seen, stateOf } from "./machine.ts";
import { type Guest, guestOf } from "./size.ts";
import { tokenWarnings } from "./token.ts";

export interface FlyOptions {
  /** The app of the workers: one of their own, and not the one that this process runs in. */
  app: string;
  /** A deploy token of that app. Default: FLY_API_TOKEN. */
  token?: string | undefined;
  /** What machines run. Default: STILLWAKE_IMAGE, or the image of this process if it runs on Fly itself (FLY_IMAGE_REF). */
  image?: string | undefined;
  /** Instead of the image's own command. */
  command?: readonly string[];
  /** "shared-cpu-1x" to "performance-16x". */
  size: string;
  /** Default: the least of its size. */
  memoryMb?: number | undefined;
  /** Where machines are made; of several the next when there is no room in one. A warm machine stays where it was made. */
  region: string | readonly string[];
  /** For workers, beside what Stillwake tells them. Secrets are set with `fly secrets set`, not here. */
  env?: Readonly<Record<string, string>>;
  /** Default: https://api.machines.dev/v1; within Fly's private network http://_api.internal:4280/v1. */
  base?: string | undefined;
  /** How long one call may take. Default: 15s. */
  timeout?: Duration | undefined;
  /** For tests. */
  fetch?: typeof fetch;
}

export function fly(options: FlyOptions): ProviderFactory {
  return (context) => new Fly(options, context);
}

/** Fly gives a machine no longer than this to end by itself. */
const MAX_GRACE_MS = 300_000;
/** A machine that has been made and not launched for so long was made by half. */
const HALF_MADE_MS = 60_000;
/** For so long is told how a machine has ended that is not listed any more. */
const DEPARTED_MS = 10 * 60_000;

class Fly implements Provider {
  readonly kind = "fly";
  readonly facts: ProviderFacts;
  readonly #options: FlyOptions;
  readonly #context: ProviderContext;
  readonly #token: string | undefined;
  readonly #ownApp: string | undefined;
  readonly #image: string | undefined;
  readonly #guest: Guest;
  readonly #regions: readonly string[];
  readonly #calls: FlyApi;
  /** Of what machines are made, in short: a tag that differs tells of older settings. */
  readonly #made: string;
  /** Ids by name, of machines that were ours when they were read. */
  readonly #ids = new Map<string, string>();
  /** Machines that have gone, and when we learnt of it. */
  readonly #departed = new Map<string, { machine: FlyMachine; at: number }>();

  constructor(options: FlyOptions, context: ProviderContext) {
    const { token, ownApp, ownImage } = readFlyConfig();
    this.#options = options;
    this.#context = context;
    this.#ownApp = ownApp;
    // Whoever only wants to know what machines these are, as a developer does, need have neither.
    this.#token = options.token || token;
    this.#image = options.image || ownImage;
    needed("app", options.app, "Name the app of the workers");
    this.#guest = guestOf(options.size, options.memoryMb);
    this.#regions = [options.region].flat();
    if (this.#regions.length === 0) needed("region", undefined, 'Name a region, such as "iad"');
    const leak = Object.entries(options.env ?? {}).find(
      ([, value]) => this.#token !== undefined && value.includes(this.#token),
    );
    if (leak) {
      throw new InvalidInput(`The Fly token stands in env.${leak[0]} of pool "${context.pool}"`, {
        field: "env",
        remedy: "Leave it out: workers start no machines",
      });
    }
    this.#made = createHash("sha256")
      .update(JSON.stringify([this.#config("", false, {}), context.slots]))
      .digest("hex")
      .slice(0, 12);
    this.facts = {
      size: options.size,
      region: this.#regions[0]!,
      cpus: this.#guest.cpus,
      memoryMb: this.#guest.memory_mb,
      made: this.#made,
    };
    this.#calls = new FlyApi({
      base: (options.base ?? "https://api.machines.dev/v1").replace(/\/+$/, ""),
      app: options.app,
      token: this.#token ?? "",
      clock: context.clock,
      timeoutMs: durationMs(options.timeout ?? "15s", "timeout"),
      ...(options.fetch && { fetch: options.fetch }),
    });
  }

  async list(): Promise<SeenMachine[]> {
    const before = new Map(this.#ids);
    const machines = await this.#list();
    for (const { name } of machines) before.delete(name);
    // A burst machine is not listed once it has ended. How it did can still be read, and is told for a while.
    const found = await Promise.all([...before].map(([name, id]) => this.#lookFor(name, id)));
    machines.push(...found.filter((machine) => machine !== undefined));
    const now = this.#context.clock.now();
    for (const [name, { at }] of this.#departed) if (now - at > DEPARTED_MS) this.#departed.delete(name);
    return [
      ...machines.map((machine) => seen(machine, this.#isStale(machine))),
      ...[...this.#departed.values()].map(({ machine }) => seen(machine, false)),
    ];
  }

  async start(order: Order): Promise<Started> {
    // A burst machine's name is new: nobody need be asked for it first. If it is not, because this is asked again, making it says so.
    const machine = order.burst && !this.#ids.has(order.name) ? undefined : await this.#find(order.name);
    if (!machine) return this.#create(order);
    return this.#wake(machine, order);
  }

  /**
   * It is made like any other and runs for a moment, until its worker finds nothing to do and leaves. To make it without a launch is possible, but there are
   * reports of machines made so that refused to be started afterwards.
   */
  async prepare(order: Order): Promise<{ id: string }> {
    const machine = await this.#find(order.name);
    return machine && !isBroken(machine) ? { id: machine.id } : this.start({ ...order, burst: false });
  }

  /** One that was seen as stopped goes only if it still is: somebody may have started it since. */
  async remove({ name, id, state }: { name: string; id: string; state?: MachineState }): Promise<void> {
    const machine = await this.#api.get(id);
    if (!machine || stateOf(machine) === "gone") return;
    if (machine.name !== name || this.#whose(machine) !== "ours") {
      throw new ProviderError("refused", `${id} is not removed: it is not the machine ${name} of this fleet and pool`, {
        certain: true,
      });
    }
    const isStill = stateOf(machine) === "stopped";
    const force = state !== "stopped" || (isStill && machine.state !== "stopped");
    if ((state !== "stopped" || isStill) && (await this.#api.remove(id, { force }))) {
      this.#ids.delete(name);
      return;
    }
    throw new ProviderError(
      "refused",
      `${name} (${id}) is not removed: it was stopped, and now it is ${machine.state}`,
      {
        certain: true,
      },
    );
  }

  async autopsy({ id }: { name: string; id: string }): Promise<Exit | undefined> {
    const machine = await this.#api.get(id);
    return machine && this.#whose(machine) === "ours" ? endOf(machine)?.exit : undefined;
  }

  async check(): Promise<string[]> {
    const { graceMs, pool } = this.#context;
    const missing = this.#missing();
    const warnings = missing ? [missing.message] : [];
    if (this.#token !== undefined) {
      const facts = await this.#calls.token();
      warnings.push(...tokenWarnings({ token: this.#token, app: this.#options.app, ownApp: this.#ownApp, facts }));
    }
    if (graceMs > MAX_GRACE_MS) {
      warnings.push(
        `Pool "${pool}" gives machines ${graceMs / 1000} s to end, of which Fly grants 300: jobs have to keep what they have done before`,
      );
    }
    return warnings;
  }

  get #api(): FlyApi {
    const missing = this.#missing();
    if (missing) throw missing;
    return this.#calls;
  }

  /** Nothing can be asked without a token; and without an image nobody knows which machines are of older settings. */
  #missing(): ProviderError | undefined {
    const { app } = this.#options;
    if (this.#token === undefined) {
      const remedy = `Set FLY_API_TOKEN to a deploy token of the workers' app: fly tokens create deploy --app ${app}`;
      return new ProviderError("auth", "fly() has no token", { certain: true, remedy });
    }
    if (this.#image !== undefined) return undefined;
    return new ProviderError("refused", "fly() has no image", {
      certain: true,
      remedy: "Name the image that workers run: image in fly(), or STILLWAKE_IMAGE",
    });
  }

  /** Whatever is there under this name becomes a machine that runs. */
  async #wake(machine: FlyMachine, order: Order): Promise<Started> {
    const state = stateOf(machine);
    if (state === "gone") return this.#create(order);
    if (state === "running" || (state === "starting" && !this.#isHalfMade(machine))) return this.#started(machine);
    if (state === "stopping") throw this.#unstartable(machine, `it is ${machine.state}`, true);
    if (machine.host_status === "unreachable" || this.#whose(machine) !== "ours")
      throw this.#unstartable(machine, "its host is unreachable", true);
    if (state === "stopped" && (isBroken(machine) || this.#isStale(machine) || differs(machine, order.env))) {
      await this.#discard(machine);
      return this.#create(order);
    }
    const answer = await this.#api.start(machine.id);
    if (answer.status === 200) return this.#started(machine);
    const now = await doubtful(this.#api.get(machine.id));
    if (!now || stateOf(now) === "gone") return this.#create(order);
    // Somebody else has started it in the meantime, or an earlier try that had no answer.
    if (["running", "starting"].includes(stateOf(now)) && !this.#isHalfMade(now)) return this.#started(now);
    // It will not start the next time either, and nobody runs on it.
    if (this.#isHalfMade(now)) await this.#discard(now);
    throw this.#unstartable(now, `${answer.status} ${said(answer)}`, !answer.unsure);
  }

  async #create(order: Order): Promise<Started> {
    let unsure = false;
    let full = "";
    for (const region of this.#regions) {
      const config = this.#config(order.name, order.burst, order.env);
      const recheck = () => this.#recheck(order.name);
      const answer: Answer = await doubtful(this.#api.create({ name: order.name, region, config }, recheck), unsure);
      unsure ||= answer.unsure === true;
      if (answer.status === 200) {
        const made = answer.body as FlyMachine;
        this.#ids.set(order.name, made.id);
        return this.#started({ ...made, region: made.region ?? region });
      }
      if (isNameTaken(answer)) return this.#adopt(order, answer);
      if (!isCapacity(answer)) {
        throw new ProviderError("refused", `Fly refuses to make ${order.name}: ${answer.status} ${said(answer)}`, {
          certain: !unsure,
        });
      }
      full = said(answer);
      this.#context.say("warn", `Fly has no room for ${order.name} in ${region}: ${full}`, { region });
    }
    throw new ProviderError("capacity", `Fly has no room for ${order.name} in ${this.#regions.join(", ")}: ${full}`, {
      certain: !unsure,
      remedy: "Give the pool more regions, or a smaller size",
    });
  }

  /** The name is taken: by the machine that an earlier call has made, or another orchestrator. */
  async #adopt(order: Order, answer: Answer): Promise<Started> {
    const id = /machine ID ([\w-]+)/i.exec(said(answer))?.[1];
    const told = id === undefined ? undefined : await doubtful(this.#api.get(id));
    const machine = told?.name === order.name ? told : await doubtful(this.#find(order.name));
    // Lists lag behind: what is not in one may be the very machine that a lost call has made.
    if (!machine)
      throw this.#unstartable(
        { name: order.name, id: id ?? "no id" },
        `its name is taken, and it is not found: ${said(answer)}`,
        false,
      );
    if (this.#whose(machine) === "foreign") {
      const what = `The name ${order.name} is taken by a machine that is not of this fleet and pool`;
      throw new ProviderError("refused", `${what}: ${said(answer)}`, { certain: true });
    }
    if (stateOf(machine) === "gone") throw this.#unstartable(machine, "its name is not free yet", !answer.unsure);
    return doubtful(this.#wake(machine, order), answer.unsure);
  }

  /** Was it made after all? A list that fails is no answer: then making it again tells. */
  async #recheck(name: string): Promise<Answer | undefined> {
    const machines = await this.#list({ retries: 0 }).catch(() => []);
    const machine = machines.find((one) => one.name === name && stateOf(one) !== "gone");
    return machine && { status: 200, body: machine };
  }

  async #find(name: string): Promise<FlyMachine | undefined> {
    const id = this.#ids.get(name);
    const known = id === undefined ? undefined : await this.#api.get(id);
    if (known && known.name === name && this.#whose(known) === "ours" && stateOf(known) !== "gone") return known;
    this.#ids.delete(name);
    return (await this.#list()).find((machine) => machine.name === name && stateOf(machine) !== "gone");
  }

  async #list(ask: Ask = {}): Promise<FlyMachine[]> {
    const all = await this.#api.list(this.#context.fleet, ask);
    const machines = all.filter((machine) => this.#whose(machine) !== "foreign");
    for (const { name, id } of machines) {
      this.#ids.set(name, id);
      this.#departed.delete(name);
    }
    return machines;
  }

  /** One that we knew and that is not listed. If it cannot be read now, it is looked for again after the next list. Answers it if it is there after all. */
  async #lookFor(name: string, id: string): Promise<FlyMachine | undefined> {
    const machine = await this.#api.get(id).catch(() => "unread" as const);
    if (machine === "unread" || this.#ids.get(name) !== id) return undefined;
    const isOurs = machine !== undefined && machine.name === name && this.#whose(machine) === "ours";
    if (isOurs && stateOf(machine) !== "gone") return machine;
    this.#ids.delete(name);
    if (isOurs) this.#departed.set(name, { machine, at: this.#context.clock.now() });
    return undefined;
  }

  /** One that is of no use and does not run makes room for another of its name. If it runs after all, because somebody has just started it, it stays. */
  async #discard(machine: FlyMachine): Promise<void> {
    this.#ids.delete(machine.name);
    if (await this.#api.remove(machine.id, { force: machine.state !== "stopped" })) return;
    throw this.#unstartable(machine, "it was made with other settings, and runs", true);
  }

  #config(name: string, burst: boolean, env: Readonly<Record<string, string>>): object {
    const { command, env: own } = this.#options;
    const { fleet, pool, graceMs } = this.#context;
    return {
      image: this.#image,
      env: { ...own, ...env },
      guest: this.#guest,
      auto_destroy: burst,
      // Also for those that are kept: a worker that crashes must not be started over and over at our expense. What becomes of its job is decided elsewhere.
      restart: { policy: "no" },
      stop_config: {
        signal: "SIGTERM",
        timeout: `${Math.max(1, Math.ceil(Math.min(graceMs, MAX_GRACE_MS) / 1000))}s`,
      },
      ...(command && { init: { cmd: command } }),
      ...(name !== "" && { metadata: { stillwake_fleet: fleet, stillwake_pool: pool, stillwake_made: this.#made } }),
    };
  }

  /** "unknown": it has one of our names, and its host, which would know its tags, does not answer. Such a one is seen, and not touched. */
  #whose({ name, config, incomplete_config }: FlyMachine): "ours" | "unknown" | "foreign" {
    const { fleet, pool } = this.#context;
    if (slotOf(fleet, pool, name) === undefined) return "foreign";
    const known = config ?? incomplete_config;
    if (!known) return "unknown";
    const { stillwake_fleet, stillwake_pool } = known.metadata ?? {};
    return stillwake_fleet === fleet && stillwake_pool === pool ? "ours" : "foreign";
  }

  #isStale({ config, region }: FlyMachine): boolean {
    if (!config) return false;
    return config.metadata?.stillwake_made !== this.#made || (region !== undefined && !this.#regions.includes(region));
  }

  #isHalfMade({ state, updated_at }: FlyMachine): boolean {
    return state === "created" && this.#context.clock.now() - Date.parse(updated_at ?? "") > HALF_MADE_MS;
  }

  #started({ id, region }: FlyMachine): Started {
    return { id, ...(region !== undefined && region !== this.#regions[0] && { region }) };
  }

  #unstartable({ name, id }: { name: string; id: string }, why: string, certain: boolean): ProviderError {
    return new ProviderError("unstartable", `${name} (${id}) cannot be started: ${why}`, { certain });
  }
}

/** What goes wrong here leaves it open whether a machine runs. */
async function doubtful<T>(work: Promise<T>, isDoubtful = true): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw isDoubtful && error instanceof ProviderError ? inDoubt(error) : error;
  }
}

function differs({ config }: FlyMachine, env: Readonly<Record<string, string>>): boolean {
  return config?.env !== undefined && Object.entries(env).some(([name, value]) => config.env![name] !== value);
}

function needed(field: string, value: string | undefined, remedy: string): string {
  if (value) return value;
  throw new InvalidInput(`fly() has no ${field}`, { field, remedy });
}
