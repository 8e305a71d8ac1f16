// stillwake server: the HTTP API until it is told to stop. SIGTERM and SIGINT let requests under way finish; a second one leaves.
import { InvalidInput } from "../errors.ts";
import { createServer, type StillwakeServer } from "../server/index.ts";
import { openStore } from "../worker/stores.ts";
import type { Call } from "./command.ts";
import { needUrl } from "./migrate.ts";
import type { Screen } from "./screen.ts";

export async function serverCommand({ flags, config, screen }: Call): Promise<number> {
  const port = flags.port === undefined ? config.port : portOf(flags.port);
  const store = flags.store ?? config.store ?? `file:${config.dir}/artifacts`;
  const directUrl = flags.directUrl ?? config.directUrl;
  const url = needUrl(flags.url ?? config.databaseUrl);
  const server = createServer({
    url,
    schema: flags.schema ?? config.schema,
    ...(directUrl && { directUrl }),
    ...(config.secret && { secret: config.secret }),
    store: openStore(store, config.storeCredentials),
    ...(flags.origin && { origins: flags.origin }),
    auth: flags.noAuth ? "none" : "tokens",
  });
  try {
    const host = flags.host ?? config.host;
    const listening = await server.listen({ port, ...(host && { host }) });
    screen.print(`Stillwake serves ${listening.url}${flags.noAuth ? ", without tokens" : ""}`);
    if (!flags.noAuth) await hint(server, screen);
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
    await server.close();
  }
}

/** Nobody can come in before there is a token; a database that cannot be reached yet is no reason not to start. */
async function hint({ stillwake }: StillwakeServer, screen: Screen): Promise<void> {
  const tokens = await stillwake.tokens.list().catch(() => undefined);
  if (tokens?.length === 0) screen.say("There is no token yet: stillwake tokens create --name me --role admin");
}

export function portOf(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new InvalidInput(`--port ${JSON.stringify(text)} is not a port`, {
    field: "port",
    remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
  });
}
