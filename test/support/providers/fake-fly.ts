// A fake of Fly's Machines API: machines with its states, unique names, events, rate limits per action, and regions without
// capacity. A machine may have a process, such as a real worker, that starts and exits with it.
import { randomBytes } from "node:crypto";
import {
  type Call,
  type Fake,
  type MachineProcess,
  type ProcessExit,
  type Reply,
  startFake,
} from "./fake-provider-api.ts";
import { flyDescription } from "./schemas/fly.ts";

/**
 *   create → created → starting → started → stopping → stopped → (start) starting …        exit: stopped, or with auto_destroy destroyed
 *   half: stays created          stuck: never leaves "starting"                    remove: destroyed, can still be read
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
  /** Starts are accepted and have no effect. */
  stuck: boolean;
  /** Number of starts so far. */
  starts: number;
  process?: MachineProcess;
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

export interface FakeFlyOptions {
  app?: string;
  now?(): number;
  /** Starts the process of a machine. */
  onStart?(machine: FakeMachine): MachineProcess | undefined;
  /** Whether the documented rate limits apply. Default: true. */
  limits?: boolean;
  /** See FakeOptions. */
  onNoResponse?(): void;
}

export interface FakeFly extends Fake {
  app: string;
  token: string;
  machines: FakeMachine[];
  /** Regions without capacity. */
  fullRegions: Set<string>;
  /** The response of /tokens/current. */
  tokens: Record<string, unknown>[];
  /** Machines that are not destroyed. */
  alive(): FakeMachine[];
  /** Highest number of machines so far. */
  maxAlive(): number;
  machine(name: string): FakeMachine;
  /** Adds a machine of another owner. */
  add(name: string, metadata: Record<string, string>, state?: string): FakeMachine;
  /** Makes its process exit. */
  exit(name: string, end: ProcessExit): void;
  setState(name: string, state: string): void;
  /** Number of calls rejected by the rate limit. */
  countRateLimited(): number;
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
  const reject = (status: number, error: string, code?: string): Reply => ({
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
    if (machine.stuck) return;
    move(machine, "started", "start");
    machine.starts += 1;
    const life = machine.starts;
    const body = onStart?.(machine);
    if (!body) return;
    machine.process = body;
    void body.exited.then((end) => {
      if (machine.starts === life) ended(machine, end);
    });
  }

  function ended(machine: FakeMachine, { code, oom = false, requested = false }: ProcessExit): void {
    if (machine.state === "destroyed") return;
    const { auto_destroy, restart } = machine.config;
    const restarts = restart?.policy === "always" || (restart?.policy !== "no" && code !== 0);
    move(machine, "stopped", "exit", {
      exit_event: {
        exit_code: code,
        oom_killed: oom,
        requested_stop: requested,
        restarting: restarts,
        exited_at: new Date(now()).toISOString(),
      },
    });
    delete machine.process;
    if (restarts) launch(machine);
    else if (auto_destroy) move(machine, "destroyed", "destroy");
  }

  /** Undefined if the call is within the limit. */
  function overLimit({ operation, params }: Call): Reply | undefined {
    if (!limits || operation === "token") return undefined;
    const { perSecond, burst } = LIMITS[operation] ?? LIMIT;
    const key = `${operation} ${params.id ?? params.app}`;
    const bucket = buckets.get(key) ?? { tokens: burst, at: now() };
    const tokens = Math.min(burst, bucket.tokens + ((now() - bucket.at) / 1000) * perSecond);
    const isOver = tokens < 1 - 1e-9;
    buckets.set(key, { tokens: isOver ? tokens : tokens - 1, at: now() });
    return isOver ? reject(429, "rate limit exceeded") : undefined;
  }

  const withMachine = (act: (machine: FakeMachine, call: Call) => Reply) => (call: Call) => {
    const machine = machines.find(({ id }) => id === call.params.id);
    return machine ? act(machine, call) : reject(404, "machine not found");
  };

  const fake = await startFake({
    description: flyDescription,
    now,
    ...(options.onNoResponse && { onNoResponse: options.onNoResponse }),
    error: (_, message) => ({ error: message }),
    headers: () => ({ "fly-request-id": `01FAKE${randomBytes(5).toString("hex").toUpperCase()}` }),
    authorize(call) {
      if (call.headers.authorization !== `Bearer ${token}`) return reject(401, "unauthorized");
      if (call.params.app !== undefined && call.params.app !== app) return reject(404, "app not found");
      return overLimit(call);
    },
    handlers: {
      list({ query }) {
        const wanted = [...query].filter(([key]) => key.startsWith("metadata."));
        const found = machines.filter(
          ({ state, config }) =>
            state !== "destroyed" && wanted.every(([key, value]) => config.metadata?.[key.slice(9)] === value),
        );
        return { status: 200, body: found.map(toResource) };
      },
      create({ body, half }) {
        const { name, region = "iad", config } = body as { name: string; region?: string; config: Config };
        const same = machines.find((machine) => machine.name === name && machine.state !== "destroyed");
        if (same) {
          return reject(
            409,
            `already_exists: unique machine name violation, machine ID ${same.id} already exists with name "${name}"`,
          );
        }
        if (full.has(region)) {
          return reject(422, "insufficient resources available to fulfill request", "insufficient_capacity");
        }
        const machine = createMachine(name, region, config);
        const created = toResource(machine);
        if (!half) launch(machine);
        return { status: 200, body: created };
      },
      get: withMachine((machine) => ({ status: 200, body: toResource(machine) })),
      start: withMachine((machine) => {
        if (machine.state === "started" || machine.state === "starting") return { status: 200, body: {} };
        if (machine.state !== "stopped" && machine.state !== "suspended") {
          return reject(412, `failed_precondition: unable to start machine from current state: '${machine.state}'`);
        }
        if (full.has(machine.region))
          return reject(409, "aborted: insufficient resources available to fulfill request");
        launch(machine);
        return { status: 200, body: { previous_state: "stopped" } };
      }),
      remove: withMachine((machine, { query }) => {
        const isStopped = ["stopped", "suspended", "destroyed", "failed"].includes(machine.state);
        if (!isStopped && query.get("force") !== "true") {
          return reject(
            412,
            `failed_precondition: unable to destroy machine, not currently stopped: '${machine.state}'`,
          );
        }
        if (machine.state === "destroyed") return { status: 200, body: { ok: true } };
        machine.process?.kill("SIGKILL");
        delete machine.process;
        move(machine, "destroyed", "destroy");
        return { status: 200, body: { ok: true } };
      }),
      token: () => ({ status: 200, body: { tokens: fly.tokens } }),
    },
  });

  function createMachine(name: string, region: string, config: Config): FakeMachine {
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
      stuck: false,
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
    fullRegions: full,
    tokens: [{ apps: [app], organization: "acme" }],
    alive: () => machines.filter(({ state }) => state !== "destroyed"),
    maxAlive: () => most,
    machine(name) {
      const found = machines.findLast((machine) => machine.name === name);
      if (!found) throw new Error(`No machine ${name}, only ${machines.map((machine) => machine.name).join(", ")}`);
      return found;
    },
    add(name, metadata, state = "stopped") {
      const machine = createMachine(name, "iad", { image: "registry.fly.io/workers:v1", metadata });
      move(machine, state, "update");
      return machine;
    },
    exit: (name, end) => ended(fly.machine(name), end),
    setState: (name, state) => move(fly.machine(name), state, "update"),
    countRateLimited: () => fake.calls.filter(({ status, fault }) => status === 429 && !fault).length,
    async close() {
      for (const { process: body } of machines) body?.kill("SIGKILL");
      await fake.close();
    },
  };
  return fly;
}

function toResource({
  createdAt,
  updatedAt,
  hostStatus,
  stuck: _,
  starts: _1,
  process: _2,
  config,
  ...rest
}: FakeMachine): object {
  return structuredClone({
    ...rest,
    // An unreachable host returns no config.
    ...(hostStatus === "ok" && { config }),
    created_at: new Date(createdAt).toISOString(),
    updated_at: new Date(updatedAt).toISOString(),
    host_status: hostStatus,
  });
}
