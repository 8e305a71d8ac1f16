// Machines on Fly. A warm machine is stopped and started again; a burst machine is created, and destroys itself when its worker exits.
//
// A name is unique in its app, so creating a machine is idempotent: the second call fails with the id of the first one.
// Before a call without a response is repeated, machines are listed, and an existing one is adopted. Machines are never
// updated, which takes a minute: one of older settings is removed and created again. A machine is started or removed
// only after it was read with this fleet and pool in its tags and its name.
import { createHash } from "node:crypto";
import { readFlyConfig } from "../../../config.ts";
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
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
  type ProviderFacts,
  type StartedMachine,
} from "../../provider.ts";
import { type ApiResponse, asUncertain, type RequestOptions } from "../http.ts";
import { errorText, FlyApi, isCapacity, isNameTaken } from "./api.ts";
import { type FlyMachine, isBroken, readLastExit, toListedMachine, toState } from "./machine.ts";
import { type Guest, readGuest } from "./size.ts";
import { tokenWarnings } from "./token.ts";

export interface FlyOptions {
  /** The app of the workers, separate from the app of this process. */
  app: string;
  /** A deploy token of that app. Default: FLY_API_TOKEN. */
  token?: string | undefined;
  /** The image of the workers. Default: STILLWAKE_IMAGE, or the image of this process on Fly (FLY_IMAGE_REF). */
  image?: string | undefined;
  /** Overrides the command of the image. */
  command?: readonly string[];
  /** "shared-cpu-1x" to "performance-16x". */
  size: string;
  /** Default: the minimum of the size. */
  memoryMb?: number | undefined;
  /** Regions in order of preference; the next one is used without capacity. A warm machine stays in its region. */
  region: string | readonly string[];
  /** Additional environment of the workers. Use `fly secrets set` for secrets. */
  env?: Readonly<Record<string, string>>;
  /** Default: https://api.machines.dev/v1; in Fly's private network http://_api.internal:4280/v1. */
  base?: string | undefined;
  /** Timeout of one API call. Default: 15s. */
  timeout?: Duration | undefined;
  /** Replaced in tests. */
  fetch?: typeof fetch;
}

export function fly(options: FlyOptions): ProviderFactory {
  return (context) => new Fly(options, context);
}

/** The longest stop timeout that Fly allows. */
const MAX_GRACE_MS = 300_000;
/** A machine that is still "created" after this time was never launched. */
const UNLAUNCHED_MS = 60_000;
/** How long list() includes a machine that Fly no longer lists, with its exit. */
const KEEP_GONE_MS = 10 * 60_000;

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
  /** Hash of the settings, stored as a tag: another value means older settings. */
  readonly #fingerprint: string;
  /** Ids by name of the machines of this pool, as last read. */
  readonly #ids = new Map<string, string>();
  /** Machines that are gone, and when that was noticed. */
  readonly #gone = new Map<string, { machine: FlyMachine; at: number }>();

  constructor(options: FlyOptions, context: ProviderContext) {
    const { token, ownApp, ownImage } = readFlyConfig();
    this.#options = options;
    this.#context = context;
    this.#ownApp = ownApp;
    // Both are optional here: `facts` works without them.
    this.#token = options.token || token;
    this.#image = options.image || ownImage;
    required("app", options.app, "Set the app of the workers");
    this.#guest = readGuest(options.size, options.memoryMb);
    this.#regions = [options.region].flat();
    if (this.#regions.length === 0) required("region", undefined, 'Set a region, such as "iad"');
    const leak = Object.entries(options.env ?? {}).find(
      ([, value]) => this.#token !== undefined && value.includes(this.#token),
    );
    if (leak) {
      throw new InvalidInput(`env.${leak[0]} of pool "${context.pool}" contains the Fly token`, {
        field: "env",
        remedy: "Remove it: workers do not need it",
      });
    }
    this.#fingerprint = createHash("sha256")
      .update(JSON.stringify([this.#config("", false, {}), context.slots]))
      .digest("hex")
      .slice(0, 12);
    this.facts = {
      size: options.size,
      region: this.#regions[0]!,
      cpus: this.#guest.cpus,
      memoryMb: this.#guest.memory_mb,
      fingerprint: this.#fingerprint,
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

  async list(): Promise<ListedMachine[]> {
    const before = new Map(this.#ids);
    const machines = await this.#list();
    for (const { name } of machines) before.delete(name);
    // Fly no longer lists a burst machine that has ended, but its exit can still be read.
    const found = await Promise.all([...before].map(([name, id]) => this.#findUnlisted(name, id)));
    machines.push(...found.filter((machine) => machine !== undefined));
    const now = this.#context.clock.now();
    for (const [name, { at }] of this.#gone) if (now - at > KEEP_GONE_MS) this.#gone.delete(name);
    return [
      ...machines.map((machine) => toListedMachine(machine, this.#isStale(machine))),
      ...[...this.#gone.values()].map(({ machine }) => toListedMachine(machine, false)),
    ];
  }

  async start(request: MachineRequest): Promise<StartedMachine> {
    // The name of a burst machine is new, so it need not be looked up. For a repeated request, creating it reports the conflict.
    const machine = request.burst && !this.#ids.has(request.name) ? undefined : await this.#find(request.name);
    if (!machine) return this.#create(request);
    return this.#startExisting(machine, request);
  }

  /**
   * The machine runs for a moment, until its worker finds no job and exits. Fly can create a machine without launching
   * it, but there are reports that such machines could not be started later.
   */
  async prepare(request: MachineRequest): Promise<{ id: string }> {
    const machine = await this.#find(request.name);
    return machine && !isBroken(machine) ? { id: machine.id } : this.start({ ...request, burst: false });
  }

  /** A machine that was listed as stopped is removed only if it still is. */
  async remove({ name, id, state }: { name: string; id: string; state?: MachineState }): Promise<void> {
    const machine = await this.#api.get(id);
    if (!machine || toState(machine) === "gone") return;
    if (machine.name !== name || this.#ownership(machine) !== "ours") {
      throw new ProviderError("refused", `Not removing ${id}: it is not the machine ${name} of this fleet and pool`, {
        certain: true,
      });
    }
    const isStopped = toState(machine) === "stopped";
    const force = state !== "stopped" || (isStopped && machine.state !== "stopped");
    if ((state !== "stopped" || isStopped) && (await this.#api.remove(id, { force }))) {
      this.#ids.delete(name);
      return;
    }
    throw new ProviderError("refused", `Not removing ${name} (${id}): it was stopped and is now ${machine.state}`, {
      certain: true,
    });
  }

  async getExitReason({ id }: { name: string; id: string }): Promise<Exit | undefined> {
    const machine = await this.#api.get(id);
    return machine && this.#ownership(machine) === "ours" ? readLastExit(machine)?.exit : undefined;
  }

  async check(): Promise<string[]> {
    const { graceMs, pool } = this.#context;
    const missing = this.#missing();
    const warnings = missing ? [missing.message] : [];
    if (this.#token !== undefined) {
      const facts = await this.#calls.readToken();
      warnings.push(...tokenWarnings({ token: this.#token, app: this.#options.app, ownApp: this.#ownApp, facts }));
    }
    if (graceMs > MAX_GRACE_MS) {
      warnings.push(
        `Pool "${pool}" has a grace of ${graceMs / 1000} s, but Fly allows 300 s: jobs have to save their progress earlier`,
      );
    }
    return warnings;
  }

  get #api(): FlyApi {
    const missing = this.#missing();
    if (missing) throw missing;
    return this.#calls;
  }

  /** Every call needs a token, and the check for older settings needs an image. */
  #missing(): ProviderError | undefined {
    const { app } = this.#options;
    if (this.#token === undefined) {
      const remedy = `Set FLY_API_TOKEN to a deploy token of the workers' app: fly tokens create deploy --app ${app}`;
      return new ProviderError("auth", "fly() has no token", { certain: true, remedy });
    }
    if (this.#image !== undefined) return undefined;
    return new ProviderError("refused", "fly() has no image", {
      certain: true,
      remedy: "Set the image of the workers: image in fly(), or STILLWAKE_IMAGE",
    });
  }

  /** Starts the existing machine of this name, or replaces it. */
  async #startExisting(machine: FlyMachine, request: MachineRequest): Promise<StartedMachine> {
    const state = toState(machine);
    if (state === "gone") return this.#create(request);
    if (state === "running" || (state === "starting" && !this.#isUnlaunched(machine))) return this.#started(machine);
    if (state === "stopping") throw this.#unstartable(machine, `it is ${machine.state}`, true);
    if (machine.host_status === "unreachable" || this.#ownership(machine) !== "ours")
      throw this.#unstartable(machine, "its host is unreachable", true);
    if (state === "stopped" && (isBroken(machine) || this.#isStale(machine) || differs(machine, request.env))) {
      await this.#discard(machine);
      return this.#create(request);
    }
    const response = await this.#api.start(machine.id);
    if (response.status === 200) return this.#started(machine);
    const now = await uncertainIf(this.#api.get(machine.id));
    if (!now || toState(now) === "gone") return this.#create(request);
    // Another orchestrator has started it, or an earlier attempt without a response.
    if (["running", "starting"].includes(toState(now)) && !this.#isUnlaunched(now)) return this.#started(now);
    // It would not start the next time either, and no worker runs on it.
    if (this.#isUnlaunched(now)) await this.#discard(now);
    throw this.#unstartable(now, `${response.status} ${errorText(response)}`, !response.uncertain);
  }

  async #create(request: MachineRequest): Promise<StartedMachine> {
    let uncertain = false;
    let reason = "";
    for (const region of this.#regions) {
      const config = this.#config(request.name, request.burst, request.env);
      const recheck = () => this.#recheck(request.name);
      const response: ApiResponse = await uncertainIf(
        this.#api.create({ name: request.name, region, config }, recheck),
        uncertain,
      );
      uncertain ||= response.uncertain === true;
      if (response.status === 200) {
        const created = response.body as FlyMachine;
        this.#ids.set(request.name, created.id);
        return this.#started({ ...created, region: created.region ?? region });
      }
      if (isNameTaken(response)) return this.#adopt(request, response);
      if (!isCapacity(response)) {
        throw new ProviderError(
          "refused",
          `Fly refuses to create ${request.name}: ${response.status} ${errorText(response)}`,
          {
            certain: !uncertain,
          },
        );
      }
      reason = errorText(response);
      this.#context.report("warn", `Fly has no capacity for ${request.name} in ${region}: ${reason}`, { region });
    }
    throw new ProviderError(
      "capacity",
      `Fly has no capacity for ${request.name} in ${this.#regions.join(", ")}: ${reason}`,
      {
        certain: !uncertain,
        remedy: "Add regions to the pool, or use a smaller size",
      },
    );
  }

  /** The name is taken: by a machine of an earlier call, or of another orchestrator. */
  async #adopt(request: MachineRequest, response: ApiResponse): Promise<StartedMachine> {
    const id = /machine ID ([\w-]+)/i.exec(errorText(response))?.[1];
    const byId = id === undefined ? undefined : await uncertainIf(this.#api.get(id));
    const machine = byId?.name === request.name ? byId : await uncertainIf(this.#find(request.name));
    // Lists are eventually consistent: the machine of a call without a response may be missing.
    if (!machine)
      throw this.#unstartable(
        { name: request.name, id: id ?? "no id" },
        `its name is taken, but no such machine is listed: ${errorText(response)}`,
        false,
      );
    if (this.#ownership(machine) === "foreign") {
      const conflict = `The name ${request.name} is taken by a machine outside this fleet and pool`;
      throw new ProviderError("refused", `${conflict}: ${errorText(response)}`, { certain: true });
    }
    if (toState(machine) === "gone") throw this.#unstartable(machine, "its name is not free yet", !response.uncertain);
    return uncertainIf(this.#startExisting(machine, request), response.uncertain);
  }

  /** Looks up whether the machine was created. If the list fails, creating it again decides. */
  async #recheck(name: string): Promise<ApiResponse | undefined> {
    const machines = await this.#list({ retries: 0 }).catch(() => []);
    const machine = machines.find((candidate) => candidate.name === name && toState(candidate) !== "gone");
    return machine && { status: 200, body: machine };
  }

  async #find(name: string): Promise<FlyMachine | undefined> {
    const id = this.#ids.get(name);
    const known = id === undefined ? undefined : await this.#api.get(id);
    if (known && known.name === name && this.#ownership(known) === "ours" && toState(known) !== "gone") return known;
    this.#ids.delete(name);
    return (await this.#list()).find((machine) => machine.name === name && toState(machine) !== "gone");
  }

  async #list(options: RequestOptions = {}): Promise<FlyMachine[]> {
    const all = await this.#api.list(this.#context.fleet, options);
    const machines = all.filter((machine) => this.#ownership(machine) !== "foreign");
    for (const { name, id } of machines) {
      this.#ids.set(name, id);
      this.#gone.delete(name);
    }
    return machines;
  }

  /** Reads a known machine that is missing from the list. If that fails, it is read again after the next list. */
  async #findUnlisted(name: string, id: string): Promise<FlyMachine | undefined> {
    const machine = await this.#api.get(id).catch(() => "unknown" as const);
    if (machine === "unknown" || this.#ids.get(name) !== id) return undefined;
    const isOurs = machine !== undefined && machine.name === name && this.#ownership(machine) === "ours";
    if (isOurs && toState(machine) !== "gone") return machine;
    this.#ids.delete(name);
    if (isOurs) this.#gone.set(name, { machine, at: this.#context.clock.now() });
    return undefined;
  }

  /** Removes a stopped machine to free its name. A machine that was started in the meantime stays. */
  async #discard(machine: FlyMachine): Promise<void> {
    this.#ids.delete(machine.name);
    if (await this.#api.remove(machine.id, { force: machine.state !== "stopped" })) return;
    throw this.#unstartable(machine, "it was created with other settings, and it is running", true);
  }

  #config(name: string, burst: boolean, env: Readonly<Record<string, string>>): object {
    const { command, env: extraEnv } = this.#options;
    const { fleet, pool, graceMs } = this.#context;
    return {
      image: this.#image,
      env: { ...extraEnv, ...env },
      guest: this.#guest,
      auto_destroy: burst,
      // Also for warm machines: a crashing worker must not be restarted forever. Its job is retried by the engine.
      restart: { policy: "no" },
      stop_config: {
        signal: "SIGTERM",
        timeout: `${Math.max(1, Math.ceil(Math.min(graceMs, MAX_GRACE_MS) / 1000))}s`,
      },
      ...(command && { init: { cmd: command } }),
      ...(name !== "" && {
        metadata: { stillwake_fleet: fleet, stillwake_pool: pool, stillwake_made: this.#fingerprint },
      }),
    };
  }

  /** "unknown": its name fits, but its host, which stores the tags, is unreachable. It is listed but not touched. */
  #ownership({ name, config, incomplete_config }: FlyMachine): "ours" | "unknown" | "foreign" {
    const { fleet, pool } = this.#context;
    if (ordinalOf(fleet, pool, name) === undefined) return "foreign";
    const known = config ?? incomplete_config;
    if (!known) return "unknown";
    const { stillwake_fleet, stillwake_pool } = known.metadata ?? {};
    return stillwake_fleet === fleet && stillwake_pool === pool ? "ours" : "foreign";
  }

  #isStale({ config, region }: FlyMachine): boolean {
    if (!config) return false;
    return (
      config.metadata?.stillwake_made !== this.#fingerprint || (region !== undefined && !this.#regions.includes(region))
    );
  }

  #isUnlaunched({ state, updated_at }: FlyMachine): boolean {
    return state === "created" && this.#context.clock.now() - Date.parse(updated_at ?? "") > UNLAUNCHED_MS;
  }

  #started({ id, region }: FlyMachine): StartedMachine {
    return { id, ...(region !== undefined && region !== this.#regions[0] && { region }) };
  }

  #unstartable({ name, id }: { name: string; id: string }, why: string, certain: boolean): ProviderError {
    return new ProviderError("unstartable", `${name} (${id}) cannot be started: ${why}`, { certain });
  }
}

/** Marks errors of `call` as not certain: the machine may run. */
async function uncertainIf<T>(call: Promise<T>, isUncertain = true): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw isUncertain && error instanceof ProviderError ? asUncertain(error) : error;
  }
}

function differs({ config }: FlyMachine, env: Readonly<Record<string, string>>): boolean {
  return config?.env !== undefined && Object.entries(env).some(([name, value]) => config.env![name] !== value);
}

function required(field: string, value: string | undefined, remedy: string): string {
  if (value) return value;
  throw new InvalidInput(`fly() has no ${field}`, { field, remedy });
}
