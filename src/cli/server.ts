// stillwake server: the HTTP API until it is told to stop. SIGTERM and SIGINT let requests under way finish; a second one leaves.
import { InvalidInput } from "../errors.ts";
import { createServer } from "../server/index.ts";
import { openStore } from "../worker/stores.ts";
import type { Call } from "./command.ts";
import { needUrl } from "./migrate.ts";

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

export function portOf(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new InvalidInput(`--port ${JSON.stringify(text)} is not a port`, {
    field: "port",
    remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
  });
}
