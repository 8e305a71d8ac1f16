// stillwake orchestrator: starts machines when there is work, until it is told to stop; or, with --once, one look from a cron. Also used by `stillwake server`, which
// runs one in its own process when the project has pools of machines.
import type { Config } from "../../config.ts";
import { InvalidInput } from "../../errors.ts";
import type { OrchestratorEvent } from "../../orchestrator/event.ts";
import { createOrchestrator, type Orchestrator, type PoolOptions } from "../../orchestrator/index.ts";
import { servePokes } from "../../orchestrator/poke-http.ts";
import { createProcessLog } from "../../worker/observe/process-log.ts";
import { portOf } from "../checks.ts";
import type { Call } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import type { Flags } from "../flags.ts";
import { inLine } from "../output/escape.ts";
import { pricesFrom } from "../prices-file.ts";
import { needUrl } from "./migrate.ts";
import { registerProject } from "./register.ts";

export async function orchestratorCommand({ flags, config, screen }: Call): Promise<number> {
  const log = createProcessLog({ ...(flags.logLevel !== undefined && { level: flags.logLevel }) });
  /** What kept the one look from doing its work, by pool. */
  const troubles = new Map<string, string>();
  const orchestrator = await orchestratorOf(flags, config, ({ kind, level, message, ...facts }) => {
    if (kind === "trouble" && facts.pool !== undefined) troubles.set(facts.pool, message);
    log[level]({ event: kind, ...facts }, message);
  });
  if (!orchestrator) {
    throw new InvalidInput("No pool has machines", {
      field: "pools",
      remedy:
        "Say which in stillwake.config.mjs: export default defineConfig({ pools: { scan: { provider: fly({ … }), max: 5 } } })",
    });
  }
  const ending = new AbortController();
  const say = (level: "info" | "warn", message: string) => log[level]({ event: "pipelines" }, message);
  let registered: Promise<void> | undefined;
  const register = () => (registered = registerProject(flags, config, { say, signal: ending.signal }));
  try {
    if (flags.once) {
      const plans = Object.entries(await orchestrator.once());
      await register();
      for (const [pool, { current, wanted, why }] of plans) {
        const trouble = troubles.get(pool);
        screen.print(inLine(`${pool}: has ${current}, wants ${wanted}: ${why}${trouble ? `; ${trouble}` : ""}`));
      }
      return plans.length > 0 && troubles.size === 0 ? 0 : 1;
    }
    const stopped = stopSignal();
    const started = orchestrator.start().then(() => true);
    // A database that is away is waited for, but not by whoever ends this.
    if (!(await Promise.race([started, stopped.then(() => false)]))) return 0;
    log.info(
      { event: "orchestrator", fleet: orchestrator.fleet },
      `orchestrator ${orchestrator.name} of fleet ${orchestrator.fleet} started`,
    );
    void register();
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
    log.info({ event: "http", ...(http && { address: http.url }) }, http ? heardAt(http.url) : UNHEARD);
    // Without a port nothing else keeps the process.
    const alive = setInterval(() => {}, 2 ** 30);
    await stopped;
    clearInterval(alive);
    await http?.close();
    return 0;
  } finally {
    ending.abort();
    // What one look has started is to do its work when nobody looks: the next look finds it, or how it ended.
    await Promise.all([registered, orchestrator.stop({ leave: flags.once === true })]);
  }
}

const UNHEARD =
  "it hears no pokes: start it with --port, and whoever enqueues with STILLWAKE_POKE_URL. Without, it looks when something it knows of is due, and sees new jobs only then";

function heardAt(url: string): string {
  return `pokes are heard at ${url}/v1/poke: whoever enqueues needs STILLWAKE_POKE_URL=${url}/v1/poke`;
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
    // Said at once: patience is long, and silence looks like a hang.
    onOutage: (outage) =>
      onEvent(
        "lost" in outage
          ? { kind: "database", level: "warn", message: `The database cannot be reached: ${wordsOf(outage.lost)}` }
          : { kind: "database", level: "info", message: "The database can be reached again" },
      ),
  });
}

/** An address that nobody answers at has a code and no words. */
function wordsOf(error: unknown): string {
  const { message, code } = error as { message?: string; code?: string };
  return message || code || "no answer";
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
