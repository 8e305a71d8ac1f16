// Fly's Machines API as far as we use it: machines with its states, names that are taken once, events, limits per action, and regions that are full. A machine
// may have a body, such as a real worker, that begins when the machine starts and whose end is the machine's.
import { randomBytes } from "node:crypto";
import { type Call, type Fake, type Reply, startFake } from "./fake-provider-api.ts";
import { flyDescription } from "./schemas/fly.ts";

/**
 *   create → created → starting → started → stopping → stopped → (start) starting …        exit: stopped, or with auto_destroy destroyed
 *   half: stays created          wedged: stays as it is, whatever is asked         remove: destroying → destroyed, which can still be read
 */
export interface FakeMachine {
  id: string;
  name: string;
  region: string;
  state: string;
  config: Config;
  createdAt: number;
  updatedAt: number;
  events: Event[];
  hostStatus: "ok" | "unknown" | "unreachable";
  /** Starts and stops are taken and lead to nothing. */
  wedged: boolean;
  /** Lives so far. */
  starts: number;
  body?: Body;
}

interface Config {
  image: string;
  env?: Record<string, string>;
  guest?: { cpu_kind: string; cpus: number; memory_mb: number };
  auto_destroy?: boolean;
  restart?: { policy: string; max_retries?: number };
  stop_config?: { signal?: string; timeout?: string };
  metadata?: Record<string, string>;
}

interface Event {
  id: string;
  type: string;
  status: string;
  source: string;
  timestamp: number;
  request?: { exit_event: Record<string, unknown> };
}

export interface End {
  code: number;
  oom?: boolean;
  requested?: boolean;
}

/** What runs on a machine. */
export interface Body {
  exited: Promise<End>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

export interface FakeFlyOptions {
  app?: string;
  now?(): number;
  /** Begins what runs on a machine that has started. */
  onStart?(machine: FakeMachine): Body | undefined;
  /** Whether the documented limits are kept. Default: true. */
  limits?: boolean;
  /** See provider-fake.ts. */
  onStuck?(): void;
}

export interface FakeFly extends Fake {
  app: string;
  token: string;
  machines: FakeMachine[];
  /** Regions without room. */
  full: Set<string>;
  /** What /tokens/current tells. */
  tokens: Record<string, unknown>[];
  /** Those that are there. */
  alive(): FakeMachine[];
  /** The most that have been there at once. */
  most(): number;
  machine(name: string): FakeMachine;
  /** One that somebody else has made. */
  add(name: string, metadata: Record<string, string>, state?: string): FakeMachine;
  /** What runs on it ends. */
  exit(name: string, end: End): void;
  move(name: string, state: string): void;
  /** Calls that were refused for their number. */
  limited(): number;
}

const LIMITS: Record<string, { perSecond: number; burst: number }> = {
  get: { perSecond: 5, burst: 10 },
};
const LIMIT = { perSecond: 1, burst: 3 };

export async function startFakeFly(options: FakeFlyOptions = {}): Promise<FakeFly> {
  const { app = "workers", now = Date.now, onStart, limits = true } = options;
  const token = `fm2_${randomBytes(12).toString("hex")}`;
  const machines: FakeMachine[] = [];
  const full = new Set<string>();
  const buckets = new Map<string, { tokens: number; at: number }>();
  const refuse = (status: number, error: string, code?: string): Reply => ({
    status,
    body: { error, ...(code && { status: code }) },
  });
  let events = 0;
  let most = 0;

  function move(machine: FakeMachine, state: string, type: string, request?: Event["request"]): void {
    machine.state = state;
    machine.updatedAt = now();
    events += 1;
    machine.events.unshift({
      id: `e${String(events).padStart(8, "0")}`,
      type,
      status: state,
      source: type === "exit" ? "flyd" : "user",
      timestamp: now(),
      ...(request && { request }),
    });
    machine.events.splice(20);
  }

  function launch(machine: FakeMachine): void {
    move(machine, "starting", "start");
    if (machine.wedged) return;
    move(machine, "started", "start");
    machine.starts += 1;
    const life = machine.starts;
    const body = onStart?.(machine);
    if (!body) return;
    machine.body = body;
    void body.exited.then((end) => {
      if (machine.starts === life) ended(machine, end);
    });
  }

  function ended(machine: FakeMachine, { code, oom = false, requested = false }: End): void {
    if (machine.state === "destroyed") return;
    const { auto_destroy, restart } = machine.config;
    const again = restart?.policy === "always" || (restart?.policy !== "no" && code !== 0);
    move(machine, "stopped", "exit", {
      exit_event: {
        exit_code: code,
        oom_killed: oom,
        requested_stop: requested,
        restarting: again,
        exited_at: new Date(now()).toISOString(),
      },
    });
    delete machine.body;
    if (again) launch(machine);
    else if (auto_destroy) move(machine, "destroyed", "destroy");
  }

  /** Undefined when there is room for one more. */
  function overLimit({ operation, params }: Call): Reply | undefined {
    if (!limits || operation === "token") return undefined;
    const { perSecond, burst } = LIMITS[operation] ?? LIMIT;
    const key = `${operation} ${params.id ?? params.app}`;
    const bucket = buckets.get(key) ?? { tokens: burst, at: now() };
    const tokens = Math.min(burst, bucket.tokens + ((now() - bucket.at) / 1000) * perSecond);
    const isOver = tokens < 1 - 1e-9;
    buckets.set(key, { tokens: isOver ? tokens : tokens - 1, at: now() });
    return isOver ? refuse(429, "rate limit exceeded") : undefined;
  }

  const withMachine = (act: (machine: FakeMachine, call: Call) => Reply) => (call: Call) => {
    const machine = machines.find(({ id }) => id === call.params.id);
    return machine ? act(machine, call) : refuse(404, "machine not found");
  };

  const fake = await startFake({
    description: flyDescription,
    now,
    ...(options.onStuck && { onStuck: options.onStuck }),
    error: (_, message) => ({ error: message }),
    headers: () => ({ "fly-request-id": `01FAKE${randomBytes(5).toString("hex").toUpperCase()}` }),
    admit(call) {
      if (call.headers.authorization !== `Bearer ${token}`) return refuse(401, "unauthorized");
      if (call.params.app !== undefined && call.params.app !== app) return refuse(404, "app not found");
      return overLimit(call);
    },
    handlers: {
      list({ query }) {
        const wanted = [...query].filter(([key]) => key.startsWith("metadata."));
        const found = machines.filter(
          ({ state, config }) =>
            state !== "destroyed" && wanted.every(([key, value]) => config.metadata?.[key.slice(9)] === value),
        );
        return { status: 200, body: found.map(shown) };
      },
      create({ body, half }) {
        const { name, region = "iad", config } = body as { name: string; region?: string; config: Config };
        const same = machines.find((machine) => machine.name === name && machine.state !== "destroyed");
        if (same) {
          return refuse(
            409,
            `already_exists: unique machine name violation, machine ID ${same.id} already exists with name "${name}"`,
          );
        }
        if (full.has(region)) {
          return refuse(422, "insufficient resources available to fulfill request", "insufficient_capacity");
        }
        const machine = made(name, region, config);
        const answer = shown(machine);
        if (!half) launch(machine);
        return { status: 200, body: answer };
      },
      get: withMachine((machine) => ({ status: 200, body: shown(machine) })),
      start: withMachine((machine) => {
        if (machine.state === "started" || machine.state === "starting") return { status: 200, body: {} };
        if (machine.state !== "stopped" && machine.state !== "suspended") {
          return refuse(412, `failed_precondition: unable to start machine from current state: '${machine.state}'`);
        }
        if (full.has(machine.region))
          return refuse(409, "aborted: insufficient resources available to fulfill request");
        launch(machine);
        return { status: 200, body: { previous_state: "stopped" } };
      }),
      remove: withMachine((machine, { query }) => {
        const still = ["stopped", "suspended", "destroyed", "failed"].includes(machine.state);
        if (!still && query.get("force") !== "true") {
          return refuse(
            412,
            `failed_precondition: unable to destroy machine, not currently stopped: '${machine.state}'`,
          );
        }
        if (machine.state === "destroyed") return { status: 200, body: { ok: true } };
        machine.body?.kill("SIGKILL");
        delete machine.body;
        move(machine, "destroyed", "destroy");
        return { status: 200, body: { ok: true } };
      }),
      token: () => ({ status: 200, body: { tokens: fly.tokens } }),
    },
  });

  function made(name: string, region: string, config: Config): FakeMachine {
    const machine: FakeMachine = {
      id: randomBytes(7).toString("hex"),
      name,
      region,
      state: "created",
      config,
      createdAt: now(),
      updatedAt: now(),
      events: [],
      hostStatus: "ok",
      wedged: false,
      starts: 0,
    };
    move(machine, "created", "launch");
    machines.push(machine);
    most = Math.max(most, machines.filter(({ state }) => state !== "destroyed").length);
    return machine;
  }

  const fly: FakeFly = {
    ...fake,
    app,
    token,
    machines,
    full,
    tokens: [{ apps: [app], organization: "acme" }],
    alive: () => machines.filter(({ state }) => state !== "destroyed"),
    most: () => most,
    machine(name) {
      const found = machines.findLast((machine) => machine.name === name);
      if (!found) throw new Error(`There is no machine ${name}, but ${machines.map((one) => one.name).join(", ")}`);
      return found;
    },
    add(name, metadata, state = "stopped") {
      const machine = made(name, "iad", { image: "registry.fly.io/workers:v1", metadata });
      move(machine, state, "update");
      return machine;
    },
    exit: (name, end) => ended(fly.machine(name), end),
    move: (name, state) => move(fly.machine(name), state, "update"),
    limited: () => fake.calls.filter(({ status, fault }) => status === 429 && !fault).length,
    async close() {
      for (const { body } of machines) body?.kill("SIGKILL");
      await fake.close();
    },
  };
  return fly;
}

function shown({
  createdAt,
  updatedAt,
  hostStatus,
  wedged: _,
  starts: _1,
  body: _2,
  config,
  ...rest
}: FakeMachine): object {
  return structuredClone({
    ...rest,
    // A host that does not answer is asked for nothing.
    ...(hostStatus === "ok" && { config }),
    created_at: new Date(createdAt).toISOString(),
    updated_at: new Date(updatedAt).toISOString(),
    host_status: hostStatus,
  });
}
