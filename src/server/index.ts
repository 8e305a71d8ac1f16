// stillwake/server: the door for other programs and for people. As a server of its own, or as a fetch handler to mount in an application.
import { createStillwake, type Stillwake } from "../client/client.ts";
import { InvalidInput } from "../errors.ts";
import { makeApp } from "./app.ts";
import { ServerContext } from "./context.ts";
import { type Listening, type ListenOptions, listen } from "./http/listen.ts";
import type { ServerOptions } from "./options.ts";
import { routes } from "./routes.ts";

export type { Access, Identity } from "./http/access.ts";
export type { Listening, ListenOptions } from "./http/listen.ts";
export type * as nouns from "./nouns.ts";
export type { ServerOptions } from "./options.ts";

export interface StillwakeServer extends AsyncDisposable {
  /** Answers one request. To be mounted: `app.mount("/stillwake", server.fetch)`. */
  fetch(request: Request, env?: unknown): Promise<Response>;
  /** Opens a port. */
  listen(options?: ListenOptions): Promise<Listening>;
  /** What it speaks to the database with. */
  readonly stillwake: Stillwake;
  /** Ends streams, closes ports and lets requests under way finish. */
  close(): Promise<void>;
}

const known =
  "url pool schema connections patience statementTimeout idleTimeout onOutage directUrl store secret auth authenticate clientAddress origins path rate streams poke onPoke onError".split(
    " ",
  );

export function createServer(options: ServerOptions): StillwakeServer {
  checkOptions(options);
  // A request that cannot be answered soon is better refused: who asks has a patience of its own.
  const { onPoke } = options;
  const stillwake = createStillwake({ patience: "5s", ...options, ...(onPoke && { poke: () => onPoke() }) });
  const house = new ServerContext(stillwake, options);
  const app = makeApp(house, routes);
  const open = new Set<Listening>();
  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    house.closing.abort();
    await Promise.all([...open].map((one) => one.close()));
    await stillwake.close();
  }

  const server: StillwakeServer = {
    stillwake,
    fetch: async (request, env) => app.fetch(request, env as object),
    async listen(where = {}) {
      const listening = await listen(server.fetch, where, options.auth ?? "tokens");
      open.add(listening);
      return listening;
    },
    close: () => (closing ??= close()),
    [Symbol.asyncDispose]: () => server.close(),
  };
  return server;
}

function checkOptions(options: ServerOptions): void {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) {
    throw new InvalidInput(`The server has no option "${unknown}"`, {
      field: unknown,
      remedy: `Known options: ${known.join(", ")}`,
    });
  }
  if (!["tokens", "none", undefined].includes(options.auth)) {
    throw new InvalidInput(`auth ${JSON.stringify(options.auth)} is neither "tokens" nor "none"`, {
      field: "auth",
      remedy: 'Leave it out for "tokens"',
    });
  }
  for (const origin of options.origins ?? []) {
    if (URL.canParse(origin) && new URL(origin).origin === origin) continue;
    throw new InvalidInput(`${JSON.stringify(origin)} is not an origin`, {
      field: "origins",
      remedy: "Write scheme, host and port alone, such as https://app.example.com",
    });
  }
}
