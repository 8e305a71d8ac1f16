// stillwake orchestrator and stillwake fleet. `stillwake server` uses createProjectOrchestrator too.

import type { Config } from "../../config.ts";
import { InvalidInput } from "../../errors.ts";
import type { OrchestratorEvent } from "../../orchestrator/executor.ts";
import type { Orchestrator, PoolOptions } from "../../orchestrator/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatPlural } from "../../text/format.ts";
import { parsePort } from "../arguments.ts";
import { type Command, type CommandContext, configHelp, databaseFlags } from "../command.ts";
import type { Flags } from "../flags.ts";
import { registerProject } from "./register.ts";

export const orchestratorCommand: Command = {
  name: "orchestrator",
  group: "Run",
  summary: "start machines when there is work, for the pools of stillwake.config",
  usage: ["", "--once"],
  args: [0, 0],
  flags: {
    once: "reconcile once and exit: start needed machines, create missing warm machines; for cron",
    port: "<port> accept pokes: POST /v1/poke, with STILLWAKE_TOKEN as its token if set; GET /health",
    host: "<host> the address to listen on (default: 127.0.0.1)",
    config: configHelp,
    ...databaseFlags,
    "log-level": "<level> debug, info (default), warn, error",
  },
  examples: [
    ["orchestrator", "until it is stopped; it sleeps while there is no work"],
    [
      "orchestrator --port 4701",
      "and wakes when an enqueue pokes it: STILLWAKE_POKE_URL=http://127.0.0.1:4701/v1/poke",
    ],
    ["orchestrator --once", "from cron, or to create the warm machines of a new pool"],
  ],
  run: runOrchestrator,
};

async function runOrchestrator({ flags, config, screen }: CommandContext): Promise<number> {
  const [{ createProcessLog }, { servePokes }] = await Promise.all([
    import("../../worker/observe/process-log.ts"),
    import("../../orchestrator/poke-http.ts"),
  ]);
  const log = createProcessLog({ ...(flags.logLevel !== undefined && { level: flags.logLevel }) });
  /** With --once: the last error of each pool. */
  const errors = new Map<string, string>();
  const orchestrator = await createProjectOrchestrator(flags, config, ({ kind, level, message, ...facts }) => {
    if (kind === "error" && facts.pool !== undefined) errors.set(facts.pool, message);
    log[level]({ event: kind, ...facts }, message);
  });
  if (!orchestrator) {
    throw new InvalidInput("No pool has machines", {
      field: "pools",
      remedy:
        "Add pools to stillwake.config.ts: export default defineConfig({ pools: { scan: { provider: fly({ … }), max: 5 } } })",
    });
  }
  const stopping = new AbortController();
  const print = (level: "info" | "warn", message: string) => log[level]({ event: "pipelines" }, message);
  let registered: Promise<void> | undefined;
  const register = () => (registered = registerProject(flags, config, { print, signal: stopping.signal }));
  try {
    if (flags.once) {
      const plans = Object.entries(await orchestrator.once());
      await register();
      for (const [pool, { current, wanted, why }] of plans) {
        const error = errors.get(pool);
        screen.print(
          escapeLine(`${pool}: ${current} of ${formatPlural(wanted, "machine")}, ${why}${error ? `; ${error}` : ""}`),
        );
      }
      return plans.length > 0 && errors.size === 0 ? 0 : 1;
    }
    const stopped = waitForStopSignal();
    const started = orchestrator.start().then(() => true);
    // The start waits for a database that cannot be reached; a signal must not.
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
            port: parsePort(flags.port),
            ...(flags.host !== undefined && { host: flags.host }),
            token: config.token,
            poke: () => orchestrator.poke(),
            health: () => ({ orchestrator: orchestrator.name, fleet: orchestrator.fleet }),
          });
    log.info(
      { event: "http", ...(http && { address: http.url }) },
      http
        ? `accepting pokes at ${http.url}/v1/poke: set STILLWAKE_POKE_URL=${http.url}/v1/poke where jobs are enqueued`
        : "accepting no pokes: new jobs are noticed at the next known due time only. Pass --port, and set STILLWAKE_POKE_URL where jobs are enqueued",
    );
    // Without a port nothing else keeps the process alive.
    const keepAlive = setInterval(() => {}, 2 ** 30);
    await stopped;
    clearInterval(keepAlive);
    await http?.close();
    return 0;
  } finally {
    stopping.abort();
    // With --once the started machines keep running: the next call finds them, or their outcome.
    await Promise.all([registered, orchestrator.stop({ leave: flags.once === true })]);
  }
}

/** Undefined when the configuration has no pools of machines. */
export async function createProjectOrchestrator(
  flags: Flags,
  config: Config,
  onEvent: (event: OrchestratorEvent) => void,
): Promise<Orchestrator | undefined> {
  const [{ createOrchestrator }, { loadConfigFile, readPrices }, { requireDatabaseUrl }] = await Promise.all([
    import("../../orchestrator/index.ts"),
    import("../config-file.ts"),
    import("../connection.ts"),
  ]);
  const file = await loadConfigFile(flags.config);
  const pools = file.pools as Record<string, PoolOptions> | undefined;
  if (!pools || Object.keys(pools).length === 0) return undefined;
  const prices = readPrices(config.prices, file.prices);
  return createOrchestrator({
    url: requireDatabaseUrl(flags.url ?? config.databaseUrl ?? (file.url as string | undefined)),
    schema: flags.schema ?? config.schema,
    pools,
    ...(prices && { prices }),
    onEvent,
    // Reported at once: the orchestrator waits long for a database, and silence looks like a hang.
    onOutage: (outage) =>
      onEvent(
        "lost" in outage
          ? { kind: "database", level: "warn", message: `The database cannot be reached: ${formatError(outage.lost)}` }
          : { kind: "database", level: "info", message: "The database can be reached again" },
      ),
  });
}

/** A refused connection has a code and no message. */
function formatError(error: unknown): string {
  const { message, code } = error as { message?: string; code?: string };
  return message || code || "no response";
}

/** Resolves on the first SIGTERM, SIGINT or SIGHUP; the second one exits. */
export function waitForStopSignal(): Promise<void> {
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

/**
 * A copy of a database, such as staging restored from a backup, carries the fleet id of the original. No machine is
 * started from a copy until the operator has decided which database owns the machines.
 */
export const fleetCommand: Command = {
  name: "fleet",
  group: "Run",
  summary: "show which machines belong to this database, or decide it for a copied database",
  usage: ["", "adopt [--same]"],
  args: [0, 1],
  subcommands: ["adopt"],
  flags: {
    same: "with adopt: this is the original under another address; it keeps its machines",
    by: "<name> with adopt: who decided it",
    ...databaseFlags,
    json: "print JSON",
  },
  examples: [
    ["fleet", "exits 1 for a copy that has not been adopted"],
    ["fleet adopt", "a copy: gets a new fleet; the machines stay with the original"],
    ["fleet adopt --same", "the original under another address"],
  ],
  async run({ flags, args, config, screen }) {
    const [{ adoptFleet, databaseAddress, readFleet }, { Database }, { findDatabaseUrl }] = await Promise.all([
      import("../../db/calls/machines.ts"),
      import("../../db/database.ts"),
      import("../connection.ts"),
    ]);
    const url = findDatabaseUrl(flags, config, screen);
    const address = databaseAddress(url);
    const database = new Database({ url, schema: flags.schema ?? config.schema, connections: 1 });
    try {
      if (args[0] === "adopt") {
        const id = await adoptFleet(database, { address, same: flags.same ?? false, by: flags.by ?? null });
        screen.print(
          flags.same
            ? `This database keeps fleet ${id} and its machines.`
            : `This database now has fleet ${id}. The machines of the original fleet are not touched.`,
        );
        return 0;
      }
      const { id, fits, why } = await readFleet(database, address);
      if (flags.json) screen.print(JSON.stringify({ id, fits, why }));
      else if (fits) screen.print(`Fleet ${id}. Its machines are named sw-${id}-<pool>-…`);
      else
        screen.print(
          [
            `Fleet ${id}, but this database looks like a copy: ${why}.`,
            "No machine is started or stopped from here until you decide:",
            "  stillwake fleet adopt          a copy: it gets a new fleet, the machines stay with the original",
            "  stillwake fleet adopt --same   the original under another address: it keeps its machines",
          ].join("\n"),
        );
      return fits ? 0 : 1;
    } finally {
      await database.close();
    }
  },
};
