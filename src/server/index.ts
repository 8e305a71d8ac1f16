// Package entry `stillwake/server`: the HTTP API and the dashboard, as a standalone server or as a fetch handler to mount.
import type { RequestListener } from "node:http";
import { Stillwake } from "../client/client.ts";
import { InvalidInput } from "../errors.ts";
import { checkInteger, rejectUnknownOptions } from "../validate.ts";
import { createApp } from "./app.ts";
import { ServerContext, type ServerOptions } from "./context.ts";
import { type Listening, type ListenOptions, listen } from "./http/listen.ts";
import { mountFetch, mountListener } from "./http/mount.ts";
import { routes } from "./routes.ts";

export type { ServerOptions } from "./context.ts";
export type { Access, EnqueueLimits, Identity } from "./http/access.ts";
export type { Listening, ListenOptions } from "./http/listen.ts";
export type * as api from "./schemas.ts";

export interface StillwakeServer extends AsyncDisposable {
  /** Handles one request, without the mount path in its URL. In Hono: `app.mount("/stillwake", server.fetch)`. */
  fetch(request: Request, env?: unknown): Promise<Response>;
  /** Handles one request whose URL contains the mount path, the option `path`: for Next.js and other fetch handlers. */
  handle(request: Request, env?: unknown): Promise<Response>;
  /** The same as a request listener of Node, for Express, NestJS, Fastify and `http.createServer`. */
  readonly listener: RequestListener;
  listen(options?: ListenOptions): Promise<Listening>;
  /** The client that it uses. */
  readonly stillwake: Stillwake;
  /** Ends streams, closes ports and waits for requests in flight. */
  close(): Promise<void>;
}

const known =
  "url pool schema connections retryTimeout statementTimeout idleTimeout onOutage directUrl store secret auth authenticate clientAddress trustProxy origins path rate streams poke onPoke onError".split(
    " ",
  );

export function createServer(options: ServerOptions): StillwakeServer {
  checkOptions(options);
  const { onPoke } = options;
  // Fail early during an outage: HTTP clients have their own timeouts.
  const stillwake = new Stillwake({ retryTimeout: "5s", ...options, ...(onPoke && { poke: () => onPoke() }) });
  const context = new ServerContext(stillwake, options);
  const app = createApp(context, routes);
  const ports = new Set<Listening>();
  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    context.closing.abort();
    await Promise.all([...ports].map((port) => port.close()));
    await context.close();
    await stillwake.close();
  }

  const fetch = async (request: Request, env?: unknown) => app.fetch(request, env as object);
  const server: StillwakeServer = {
    stillwake,
    fetch,
    handle: mountFetch(fetch, context.base),
    listener: mountListener(fetch, context.base),
    async listen(listenOptions = {}) {
      const listening = await listen(server.fetch, listenOptions, options.auth ?? "tokens");
      ports.add(listening);
      context.housekeeping.check();
      return listening;
    },
    close: () => (closing ??= close()),
    [Symbol.asyncDispose]: () => server.close(),
  };
  return server;
}

function checkOptions(options: ServerOptions): void {
  rejectUnknownOptions(options, known, "The server");
  if (!["tokens", "none", undefined].includes(options.auth)) {
    throw new InvalidInput(`auth ${JSON.stringify(options.auth)} is neither "tokens" nor "none"`, {
      field: "auth",
      remedy: 'Leave it out for "tokens"',
    });
  }
  if (options.trustProxy !== undefined) checkInteger(options.trustProxy, "trustProxy", 0, 100);
  for (const origin of options.origins ?? []) {
    if (URL.canParse(origin) && new URL(origin).origin === origin) continue;
    throw new InvalidInput(`${JSON.stringify(origin)} is not an origin`, {
      field: "origins",
      remedy: "Write only scheme, host and port, such as https://app.example.com",
    });
  }
}
