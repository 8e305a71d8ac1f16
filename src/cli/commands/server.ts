// stillwake server: the HTTP API until it is told to stop. SIGTERM and SIGINT let requests under way finish; a second one leaves.
import { inspect } from "node:util";
import { openStore } from "../../artifacts/open-store.ts";
import type { Orchestrator } from "../../orchestrator/index.ts";
import { createServer, type StillwakeServer } from "../../server/index.ts";
import { checkSecretSetting, pokeAt, portOf } from "../checks.ts";
import type { Call } from "../command.ts";
import { inLine } from "../output/escape.ts";
import type { Screen } from "../output/screen.ts";
import { needUrl } from "./migrate.ts";

export async function serverCommand({ flags, config, screen }: Call): Promise<number> {
  const port = flags.port === undefined ? config.port : portOf(flags.port);
  const store = flags.store ?? config.store ?? `file:${config.dir}/artifacts`;
  const directUrl = flags.directUrl ?? config.directUrl;
  const url = needUrl(flags.url ?? config.databaseUrl);
  const orchestrator = flags.noOrchestrator
    ? undefined
    : await (await import("./orchestrator.ts")).orchestratorOf(flags, config, ({ message }) =>
        screen.say(inLine(message)),
      );
  const server = createServer({
    url,
    schema: flags.schema ?? config.schema,
    ...(directUrl && { directUrl }),
    ...(config.secret && { secret: checkSecretSetting(config.secret) }),
    store: openStore(store, config.storeCredentials),
    ...(flags.origin && { origins: flags.origin }),
    auth: flags.noAuth ? "none" : "tokens",
    ...(orchestrator
      ? { onPoke: () => orchestrator.poke() }
      : config.pokeUrl && { poke: pokeAt(config.pokeUrl, config.token) }),
    onError: (error, { method, path }) => {
      screen.say(inLine(`${troubleOf(error)} (${method} ${path})`));
      screen.mention(inspect(error));
    },
  });
  const ending = new AbortController();
  const machines = async (own: Orchestrator) => {
    if (!(await startSoon(own, screen))) return;
    screen.say(`It starts machines too, as fleet ${own.fleet}; an enqueue over this API, and POST /v1/poke, wake it`);
    const say = (level: "info" | "warn", message: string) =>
      screen[level === "info" ? "mention" : "say"](inLine(message));
    await (await import("./register.ts")).registerProject(flags, config, { say, signal: ending.signal });
  };
  let started: Promise<void> | undefined;
  try {
    const host = flags.host ?? config.host;
    const listening = await server.listen({ port, ...(host && { host }) });
    screen.print(`Stillwake serves ${listening.url}${flags.noAuth ? ", without tokens" : ""}`);
    if (orchestrator) started = machines(orchestrator);
    // Not waited for: what tells it to stop must be heard while a database that is away is asked.
    void hint(server, screen, { tokens: !flags.noAuth, secret: config.secret !== undefined });
    await new Promise<void>((resolve) => {
      let signals = 0;
      const stop = () => {
        signals += 1;
        if (signals > 1) process.exit(1);
        resolve();
      };
      for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, stop);
    });
    return 0;
  } finally {
    ending.abort();
    await server.close();
    await orchestrator?.stop();
    await started;
  }
}

/** What keeps others from being served is said once; none of it is a reason not to start, since it may be mended while the server runs. */
async function hint(
  { stillwake }: StillwakeServer,
  screen: Screen,
  { tokens, secret }: { tokens: boolean; secret: boolean },
): Promise<void> {
  if (!secret)
    screen.say("STILLWAKE_SECRET is not set: read tokens cannot be signed (openssl rand -base64 32 makes one)");
  try {
    await stillwake.pipelines();
    if (tokens && (await stillwake.tokens.list()).length === 0)
      screen.say("There is no token yet: stillwake tokens create --name me --role admin");
  } catch (error) {
    if ((error as { code?: string }).code !== "CLOSED") screen.say(inLine(troubleOf(error)));
  }
}

function troubleOf(error: unknown): string {
  const { code, name, message } = error as { code?: string; name?: string; message?: string };
  return `${code ?? name ?? "Error"}: ${message ?? String(error)}`;
}

/** The API is served whatever becomes of it: a database that is away comes back, and a copied one wants a decision. False when it ended before. */
async function startSoon(orchestrator: Orchestrator, screen: Screen): Promise<boolean> {
  for (let waitMs = 1000; ; waitMs = Math.min(waitMs * 2, 60_000)) {
    try {
      await orchestrator.start();
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === "CLOSED") return false;
      screen.say(inLine(`No machines are started from here: ${troubleOf(error)}`));
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
  }
}
