// stillwake orchestrator: starts machines when there is work, until it is told to stop; or, with --once, one look from a cron. Also used by `stillwake server`, which
// runs one in its own process when the project has pools of machines.
import type { Config } from "../config.ts";
import { InvalidInput } from "../errors.ts";
import type { OrchestratorEvent } from "../orchestrator/event.ts";
import { createOrchestrator, type Orchestrator, type PoolOptions } from "../orchestrator/index.ts";
import { servePokes } from "../orchestrator/poke-http.ts";
import { createProcessLog } from "../worker/process-log.ts";
import { portOf } from "./checks.ts";
import type { Call } from "./command.ts";
import { loadConfigFile } from "./config-file.ts";
import type { Flags } from "./flags.ts";
import { needUrl } from "./migrate.ts";
import { pricesFrom } from "./prices-file.ts";

export async function orchestratorCommand({ flags, config, screen }: Call): Promise<number> {
  const log = createProcessLog({ ...(flags.logLevel !== undefined && { level: flags.logLevel }) });
  const orchestrator = await orchestratorOf(flags, config, ({ kind, level, message, ...facts }) =>
    log[level]({ event: kind, ...facts }, message),
  );
  if (!orchestrator) {
    throw new InvalidInput("No pool has machines", {
      field: "pools",
      remedy:
        "Say which in stillwake.config.mjs: export default defineConfig({ pools: { scan: { provider: fly({ … }), max: 5 } } })",
    });
  }
  try {
    if (flags.once) {
      const plans = Object.entries(await orchestrator.once());
      for (const [pool, { current, wanted, why }] of plans)
        screen.print(`${pool}: has ${current}, wants ${wanted}: ${why}`);
      return plans.length > 0 ? 0 : 1;
    }
    const stopped = stopSignal();
    await orchestrator.start();
    log.info(
      { event: "orchestrator", fleet: orchestrator.fleet },
      `orchestrator ${orchestrator.name} of fleet ${orchestrator.fleet} started`,
    );
    const http =
      flags.port === undefined
        ? undefined
        : await servePokes({
            port: portOf(flags.port),
            ...(flags.host !== undefined && { host: flags.host }),
            token: config.token,
            poke: () => orchestrator.poke(),
            health: () => ({ orchestrator: orchestrator.name, fleet: orchestrator.fleet }),
          });
    if (http) log.info({ event: "http", address: http.url }, `pokes are heard at ${http.url}/v1/poke`);
    // Without a port nothing else keeps the process.
    const alive = setInterval(() => {}, 2 ** 30);
    await stopped;
    clearInterval(alive);
    await http?.close();
    return 0;
  } finally {
    // What one look has started is to do its work when nobody looks: the next look finds it, or how it ended.
    await orchestrator.stop({ leave: flags.once === true });
  }
}

/** Undefined when the project says nothing of machines. */
export async function orchestratorOf(
  flags: Flags,
  config: Config,
  onEvent: (event: OrchestratorEvent) => void,
): Promise<Orchestrator | undefined> {
  const file = await loadConfigFile(flags.config);
  const pools = file.pools as Record<string, PoolOptions> | undefined;
  if (!pools || Object.keys(pools).length === 0) return undefined;
  const prices = pricesFrom(config.prices, file.prices);
  return createOrchestrator({
    url: needUrl(flags.url ?? config.databaseUrl ?? (file.url as string | undefined)),
    schema: flags.schema ?? config.schema,
    pools,
    ...(prices && { prices }),
    onEvent,
  });
}

function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    let signals = 0;
    const stop = () => {
      signals += 1;
      if (signals > 1) process.exit(1);
      resolve();
    };
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, stop);
  });
}
