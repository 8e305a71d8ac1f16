// stillwake server: serves the HTTP API until a signal stops it. The first SIGTERM, SIGINT or SIGHUP lets open requests
// finish, the second one exits. Runs the orchestrator too when the configuration has pools of machines.
import { inspect } from "node:util";
import type { Orchestrator } from "../../orchestrator/index.ts";
import type { StillwakeServer } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { parseInteger, parsePort } from "../arguments.ts";
import { type Command, type CommandContext, configHelp, databaseFlags, directUrlHelp, storeHelp } from "../command.ts";
import type { Screen } from "../output/screen.ts";
import { createProjectOrchestrator, waitForStopSignal } from "./orchestrator.ts";
import { registerProject } from "./register.ts";

export const serverCommand: Command = {
  name: "server",
  group: "Run",
  summary: "serve the HTTP API and the dashboard",
  usage: [""],
  args: [0, 0],
  flags: {
    port: "<port> (default: STILLWAKE_PORT or 4700; 0 selects any free port)",
    host: "<host> the address to listen on (default: STILLWAKE_HOST or 127.0.0.1)",
    origin: "<origin> allow pages of this origin to call the API, such as https://app.example.com; repeatable",
    "trust-proxy":
      "<n> proxies in front append the client's address to X-Forwarded-For (default: STILLWAKE_TRUST_PROXY or 0)",
    "no-auth": "allow everything without a token; only on loopback addresses",
    ...databaseFlags,
    "direct-url": directUrlHelp,
    store: storeHelp,
    config: configHelp,
    "no-orchestrator": "start no machines, even if the configuration has pools of machines",
    verbose: "print the stacks of internal errors",
  },
  examples: [
    ["server", "at http://127.0.0.1:4700, with tokens: see stillwake tokens"],
    ["server --host 0.0.0.0 --port 8080 --trust-proxy 1", "behind a proxy that terminates TLS"],
    ["server --no-auth", "for local use"],
  ],
  run: runServer,
};

async function runServer({ flags, config, screen }: CommandContext): Promise<number> {
  const [{ createServer }, { openStore }, { checkSecretSetting, pokeOptions, requireDatabaseUrl }] = await Promise.all([
    import("../../server/index.ts"),
    import("../../artifacts/open-store.ts"),
    import("../connection.ts"),
  ]);
  const port = flags.port === undefined ? config.port : parsePort(flags.port);
  const trustProxy = parseInteger(flags.trustProxy ?? config.trustProxy, "trust-proxy");
  const store = flags.store ?? config.store ?? `file:${config.dir}/artifacts`;
  const directUrl = flags.directUrl ?? config.directUrl;
  const url = requireDatabaseUrl(flags.url ?? config.databaseUrl);
  const orchestrator = flags.noOrchestrator
    ? undefined
    : await createProjectOrchestrator(flags, config, ({ message }) => screen.printStderr(escapeLine(message)));
  const server = createServer({
    url,
    schema: flags.schema ?? config.schema,
    ...(directUrl && { directUrl }),
    ...(config.secret && { secret: checkSecretSetting(config.secret) }),
    store: openStore(store, config.storeCredentials),
    ...(flags.origin && { origins: flags.origin }),
    ...(trustProxy !== undefined && { trustProxy }),
    auth: flags.noAuth ? "none" : "tokens",
    ...(orchestrator
      ? { onPoke: () => orchestrator.poke() }
      : config.pokeUrl && { poke: pokeOptions(config.pokeUrl, config.token) }),
    onError: (error, { method, path }) => {
      screen.printStderr(escapeLine(`${formatError(error)} (${method} ${path})`));
      screen.printVerbose(inspect(error));
    },
  });
  const stopping = new AbortController();
  const runOrchestrator = async (own: Orchestrator) => {
    if (!(await startWithRetry(own, screen))) return;
    screen.printStderr(`Starting machines as fleet ${own.fleet}; enqueues over this API and POST /v1/poke notify it`);
    const print = (level: "info" | "warn", message: string) =>
      screen[level === "info" ? "printVerbose" : "printStderr"](escapeLine(message));
    await registerProject(flags, config, { print, signal: stopping.signal });
  };
  let orchestration: Promise<void> | undefined;
  try {
    const host = flags.host ?? config.host;
    const listening = await server.listen({ port, ...(host && { host }) });
    screen.print(`Stillwake serves ${listening.url}${flags.noAuth ? ", without tokens" : ""}`);
    if (orchestrator) orchestration = runOrchestrator(orchestrator);
    // Not awaited: signals must be handled while the database cannot be reached.
    void printSetupHints(server, screen, { tokens: !flags.noAuth, secret: config.secret !== undefined });
    await waitForStopSignal();
    return 0;
  } finally {
    stopping.abort();
    await server.close();
    await orchestrator?.stop();
    await orchestration;
  }
}

/** Reports incomplete setup once. The server starts anyway: the setup can be completed while it runs. */
async function printSetupHints(
  { stillwake }: StillwakeServer,
  screen: Screen,
  { tokens, secret }: { tokens: boolean; secret: boolean },
): Promise<void> {
  if (!secret)
    screen.printStderr(
      "STILLWAKE_SECRET is not set: read tokens cannot be signed (generate one with openssl rand -base64 32)",
    );
  try {
    await stillwake.pipelines();
    if (tokens && (await stillwake.tokens.list()).length === 0)
      screen.printStderr("There is no token yet: stillwake tokens create --name me --role admin");
  } catch (error) {
    if ((error as { code?: string }).code !== "CLOSED") screen.printStderr(escapeLine(formatError(error)));
  }
}

function formatError(error: unknown): string {
  const { code, name, message } = error as { code?: string; name?: string; message?: string };
  return `${code ?? name ?? "Error"}: ${message ?? String(error)}`;
}

/**
 * The API is served even while the orchestrator cannot start: a database may be down, and a copied database needs a
 * decision of the operator. Returns false when the orchestrator was stopped first.
 */
async function startWithRetry(orchestrator: Orchestrator, screen: Screen): Promise<boolean> {
  for (let waitMs = 1000; ; waitMs = Math.min(waitMs * 2, 60_000)) {
    try {
      await orchestrator.start();
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === "CLOSED") return false;
      screen.printStderr(escapeLine(`Not starting machines: ${formatError(error)}`));
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
  }
}
