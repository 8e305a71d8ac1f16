// stillwake worker: runs a worker until a signal stops it or it exits by itself. The first SIGTERM, SIGINT or SIGHUP
// drains, the second one stops the running jobs, the third one exits at once.
import { readConfig } from "../../config.ts";
import { InvalidInput } from "../../errors.ts";
import { durationMs } from "../../time.ts";
import type { WorkerHttp } from "../../worker/observe/http.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { type Command, configHelp, databaseFlags, directUrlHelp, pipelinesHelp, storeHelp } from "../command.ts";
import type { Flags } from "../flags.ts";

export const workerCommand: Command = {
  name: "worker",
  group: "Run",
  summary: "run jobs",
  usage: [""],
  args: [0, 0],
  flags: {
    pipelines: pipelinesHelp,
    pool: "<name> the only pool to work for (default: all pools of its pipelines)",
    slots: "<n> concurrent jobs (default: one per CPU)",
    "idle-exit": "<time> exit after this time without a job, such as 60s",
    drain: "run jobs until none is left, then exit",
    once: "run one job, then exit",
    "drain-timeout": "<time> how long a drain waits for running jobs (default: 25s); a second signal stops them",
    lease: "<time> how long a claim lasts without a heartbeat (default: 15s)",
    grace: "<time> from the stop signal of a job to its kill (default: 5s)",
    "cancel-grace": "<time> the same for a cancelled job (default: 500ms, at most --grace)",
    ...databaseFlags,
    "direct-url": directUrlHelp,
    store: storeHelp,
    withhold: "<names> variables that pipeline code does not get, such as DATABASE_URL,PG*",
    pass: "<names> variables that it gets although they are withheld by default, such as AWS_*",
    scratch: "<dir> parent of the scratch directories of attempts",
    name: "<name> of this worker in the database and in logs",
    "metrics-port": "<port> serve /metrics, /health and POST /wake on 127.0.0.1",
    "metrics-host": "<host> listen on this address instead, such as 0.0.0.0",
    "log-level": "<level> trace, debug, info (default), warn, error",
    config: configHelp,
  },
  examples: [
    ["worker --pipelines ./pipelines", "until it is stopped"],
    ["worker --pipelines ./pipelines --pool scan --slots 4 --idle-exit 60s", "on a machine that stops when idle"],
    ["worker --pipelines ./pipelines --drain", "from cron or CI"],
  ],
  run: ({ flags }) => runWorker(flags),
};

/** Returns 0 after a drain, 1 when the database could not be reached until the end. */
async function runWorker(flags: Flags): Promise<number> {
  const [
    { Worker },
    { serveWorker },
    { createProcessLog, logEvents },
    { loadConfigFile, noPipelines },
    { tryApplySchedules },
  ] = await Promise.all([
    import("../../worker/worker.ts"),
    import("../../worker/observe/http.ts"),
    import("../../worker/observe/process-log.ts"),
    import("../config-file.ts"),
    import("../project-schedules.ts"),
  ]);
  const file = await loadConfigFile(flags.config);
  const env = readConfig();
  const options: Partial<WorkerOptions> = { ...fromFile(file), ...fromEnvironment(env), ...fromFlags(flags) };
  if (flags.withhold || flags.pass) options.env = { ...options.env, ...readEnvFlags(flags) };
  if (options.pipelines === undefined) {
    throw new InvalidInput(noPipelines(flags.config), {
      field: "pipelines",
      remedy:
        'Pass --pipelines ./dir, or set pipelines in stillwake.config.ts: export default defineConfig({ pipelines: "./pipelines" })',
    });
  }
  options.store ??= `file:${env.dir}/artifacts`;
  const { logLevel, metricsPort, metricsHost } = { ...file, ...flags };
  if (logLevel !== undefined && !LOG_LEVELS.includes(logLevel)) {
    throw new InvalidInput(`Log level ${JSON.stringify(logLevel)} does not exist`, {
      field: "logLevel",
      remedy: `Levels: ${LOG_LEVELS.join(", ")}`,
    });
  }
  const port = Number(metricsPort ?? 0);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidInput(`Metrics port ${JSON.stringify(metricsPort)} is not a port`, {
      field: "metricsPort",
      remedy: "Use a whole number from 0 to 65535; 0 selects any free port",
    });
  }
  const log = createProcessLog({ ...(logLevel !== undefined && { level: logLevel }) });
  // Without /metrics the demand of the pool is not queried.
  const worker = new Worker({
    ...(metricsPort !== undefined && { demandEvery: "15s" }),
    ...(options as WorkerOptions),
  });
  logEvents(worker.events, log);
  let http: WorkerHttp | undefined;
  if (metricsPort !== undefined) {
    http = await serveWorker({
      port,
      ...(metricsHost !== undefined && { host: metricsHost, allowRemote: true }),
      metrics: worker.metrics,
      health: () => worker.health(),
      wake: () => worker.poke(),
    });
    log.info({ event: "http", address: http.url }, `metrics and health at ${http.url}`);
  }

  let signals = 0;
  const onSignal = (signal: NodeJS.Signals) => {
    signals += 1;
    if (signals > 2) process.exit(1);
    void worker.drain(signal);
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, onSignal);
  try {
    await worker.start();
    const { url = "", schema = "stillwake", sealKeys } = options;
    const print = (level: "info" | "warn", message: string) => log[level]({ event: "schedules" }, message);
    // Not if it was stopped while it was starting.
    if (worker.pools.length > 0)
      await tryApplySchedules(file.schedules, { url, schema, ...(sealKeys && { sealKeys }), print });
    const reason = await worker.done;
    return reason === "the database cannot be reached" ? 1 : 0;
  } finally {
    await worker.stop();
    await http?.close();
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.off(signal, onSignal);
  }
}

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"];

function fromFile(file: Record<string, unknown>): Partial<WorkerOptions> {
  const {
    logLevel: _1,
    metricsPort: _2,
    metricsHost: _3,
    pools: _4,
    prices: _5,
    dev: _6,
    schedules: _7,
    ...options
  } = file;
  return options as Partial<WorkerOptions>;
}

function fromEnvironment({
  databaseUrl,
  directUrl,
  schema,
  store,
  storeCredentials,
  sealKeys,
  machine: { name: machine, grace, ...machineSettings },
}: ReturnType<typeof readConfig>): Partial<WorkerOptions> {
  return {
    ...(databaseUrl && { url: databaseUrl }),
    ...(directUrl && { directUrl }),
    ...(schema !== "stillwake" && { schema }),
    ...(store && { store }),
    ...(storeCredentials && { storeCredentials }),
    ...(sealKeys && { sealKeys }),
    ...machineSettings,
    ...(machine && { machine }),
    ...(grace && splitGrace(durationMs(grace, "STILLWAKE_GRACE"))),
  } as Partial<WorkerOptions>;
}

/** `totalMs` is the time from the machine's stop signal to its kill: jobs still running shortly before are released. */
function splitGrace(totalMs: number): { grace: string; drainTimeout: string } {
  const graceMs = Math.min(5000, totalMs / 4);
  return { grace: `${graceMs}ms`, drainTimeout: `${Math.max(0, totalMs - 2 * graceMs - 2000)}ms` };
}

function readEnvFlags({ withhold, pass }: Flags): WorkerOptions["env"] {
  const names = (value: string) => value.split(",").map((name) => name.trim());
  return { ...(withhold && { withhold: names(withhold) }), ...(pass && { pass: names(pass) }) };
}

function fromFlags(flags: Flags): Partial<WorkerOptions> {
  // A value that is not a number is passed on, so that the error of the worker quotes it.
  const slots = Number.isNaN(Number(flags.slots)) ? flags.slots : Number(flags.slots);
  if ([flags.idleExit !== undefined, flags.drain, flags.once].filter(Boolean).length > 1) {
    throw new InvalidInput("--idle-exit, --drain and --once are mutually exclusive", { remedy: "Pass one of them" });
  }
  return {
    ...(flags.url && { url: flags.url }),
    ...(flags.directUrl && { directUrl: flags.directUrl }),
    ...(flags.schema && { schema: flags.schema }),
    ...(flags.pool && { pool: flags.pool }),
    ...(slots !== undefined && { slots }),
    ...(flags.pipelines && { pipelines: flags.pipelines }),
    ...(flags.name && { name: flags.name }),
    ...(flags.lease && { lease: flags.lease }),
    ...(flags.grace && { grace: flags.grace }),
    ...(flags.cancelGrace && { cancelGrace: flags.cancelGrace }),
    ...(flags.drainTimeout && { drainTimeout: flags.drainTimeout }),
    ...(flags.idleExit && { idleExit: flags.idleExit }),
    ...(flags.drain && { until: "empty" as const }),
    ...(flags.once && { until: "once" as const }),
    ...(flags.store && { store: flags.store }),
    ...(flags.scratch && { scratch: flags.scratch }),
  } as Partial<WorkerOptions>;
}
