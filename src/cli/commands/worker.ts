// stillwake worker: a worker until it is told to stop, or ends by itself. SIGTERM and SIGINT drain, a second one hurries, a third one leaves.
import { readConfig } from "../../config.ts";
import { InvalidInput } from "../../errors.ts";
import { durationMs } from "../../time.ts";
import { serveWorker, type WorkerHttp } from "../../worker/observe/http.ts";
import { createProcessLog, logAnnouncements } from "../../worker/observe/process-log.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { Worker } from "../../worker/worker.ts";
import { loadConfigFile } from "../config-file.ts";
import type { Flags } from "../flags.ts";

/** Answers the exit code: 0 after a drain, 1 when the database was out of reach until the end. */
export async function workerCommand(flags: Flags): Promise<number> {
  // Arguments can be read by everyone on the machine, the runners too.
  if (flags.url || flags.directUrl) process.title = "stillwake worker";
  const file = await loadConfigFile(flags.config);
  const env = readConfig();
  const options = { ...fromFile(file), ...fromEnvironment(env), ...fromFlags(flags) };
  options.pipelines ??= undefined as never;
  if (options.pipelines === undefined) {
    throw new InvalidInput("No pipelines are given", {
      field: "pipelines",
      remedy:
        'Pass --pipelines ./dir, or set pipelines in stillwake.config.ts: export default defineConfig({ pipelines: "./pipelines" })',
    });
  }
  options.store ??= `file:${env.dir}/artifacts`;
  const { logLevel, metricsPort, metricsHost } = { ...file, ...flags };
  if (logLevel !== undefined && !levels.includes(logLevel)) {
    throw new InvalidInput(`Log level ${JSON.stringify(logLevel)} does not exist`, {
      field: "logLevel",
      remedy: `Levels: ${levels.join(", ")}`,
    });
  }
  const port = Number(metricsPort ?? 0);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidInput(`Metrics port ${JSON.stringify(metricsPort)} is not a port`, {
      field: "metricsPort",
      remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
    });
  }
  const log = createProcessLog({ ...(logLevel !== undefined && { level: logLevel }) });
  // Nobody is to be asked for figures that nobody reads.
  const worker = new Worker({ ...(metricsPort !== undefined && { demandEvery: "15s" }), ...options });
  logAnnouncements(worker.announcer, log);
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
    const reason = await worker.done;
    return reason === "the database cannot be reached" ? 1 : 0;
  } finally {
    await worker.stop();
    await http?.close();
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.off(signal, onSignal);
  }
}

const levels = ["trace", "debug", "info", "warn", "error"];

function fromFile(file: Record<string, unknown>): Partial<WorkerOptions> {
  const { logLevel: _1, metricsPort: _2, metricsHost: _3, pools: _4, prices: _5, dev: _6, ...options } = file;
  return options as Partial<WorkerOptions>;
}

function fromEnvironment({
  databaseUrl,
  directUrl,
  schema,
  store,
  storeCredentials,
  sealKeys,
  machine: { name: machine, grace, ...told },
}: ReturnType<typeof readConfig>): Partial<WorkerOptions> {
  return {
    ...(databaseUrl && { url: databaseUrl }),
    ...(directUrl && { directUrl }),
    ...(schema !== "stillwake" && { schema }),
    ...(store && { store }),
    ...(storeCredentials && { storeCredentials }),
    ...(sealKeys && { sealKeys }),
    ...told,
    ...(machine && { machine }),
    ...(grace && graceWithin(durationMs(grace, "STILLWAKE_GRACE"))),
  } as Partial<WorkerOptions>;
}

/** From being asked to end to being killed by whoever runs the machine: jobs that have not ended shortly before that are handed back. */
function graceWithin(totalMs: number): { grace: string; drainTimeout: string } {
  const graceMs = Math.min(5000, totalMs / 4);
  return { grace: `${graceMs}ms`, drainTimeout: `${Math.max(0, totalMs - 2 * graceMs - 2000)}ms` };
}

function fromFlags(flags: Flags): WorkerOptions {
  // What is no number is refused as it was written.
  const slots = Number.isNaN(Number(flags.slots)) ? flags.slots : Number(flags.slots);
  const ways = [flags.idleExit !== undefined, flags.drain, flags.once].filter(Boolean).length;
  if (ways > 1) {
    throw new InvalidInput("--idle-exit, --drain and --once exclude one another", { remedy: "Give one of them" });
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
  } as WorkerOptions;
}
