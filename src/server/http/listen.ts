// Opens a port for the server. Without tokens it listens on loopback addresses only.
import http from "node:http";
import net from "node:net";
import { getRequestListener } from "@hono/node-server";
import { InvalidInput, StillwakeError } from "../../errors.ts";

export interface ListenOptions {
  /** 0 selects any free port. Default 4700. */
  port?: number;
  /** Default "127.0.0.1". */
  host?: string;
  /** How long close() waits for requests in flight. Default 5000. */
  graceMs?: number;
}

export interface Listening {
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

type Fetch = (request: Request, env: unknown) => Promise<Response>;

export async function listen(fetch: Fetch, options: ListenOptions, auth: "tokens" | "none"): Promise<Listening> {
  const { port = 4700, host = "127.0.0.1", graceMs = 5000 } = options;
  if (auth === "none" && !isLoopback(host)) {
    throw new InvalidInput(`A server without tokens cannot listen on ${host}: every caller would be an admin`, {
      field: "host",
      remedy: 'Use 127.0.0.1, or auth "tokens" and `stillwake tokens create --role admin --name me`',
    });
  }
  const handle = getRequestListener((request, env) => fetch(request, env), { overrideGlobalObjects: false });
  const server = http.createServer(
    { maxHeaderSize: 16 * 1024, requestTimeout: 30_000, headersTimeout: 10_000 },
    handle,
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => {
      const taken = (cause as { code?: string }).code === "EADDRINUSE";
      const remedy = taken
        ? "Another program uses it: choose another port, or 0 for any free one"
        : "Check host and port";
      reject(
        new StillwakeError("HTTP_UNAVAILABLE", `Cannot listen on ${host}:${port}: ${cause.message}`, { cause, remedy }),
      );
    });
    server.listen(port, host, resolve);
  });
  const { port: boundPort } = server.address() as net.AddressInfo;
  let closing: Promise<void> | undefined;
  const close = () =>
    new Promise<void>((resolve) => {
      const limit = setTimeout(() => server.closeAllConnections(), graceMs);
      server.close(() => {
        clearTimeout(limit);
        resolve();
      });
      server.closeIdleConnections();
    });
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${boundPort}`,
    port: boundPort,
    close: () => (closing ??= close()),
  };
}

function isLoopback(host: string): boolean {
  if (host === "localhost") return true;
  const loopback = new net.BlockList();
  loopback.addSubnet("127.0.0.0", 8, "ipv4");
  loopback.addAddress("::1", "ipv6");
  const family = net.isIP(host);
  return family !== 0 && loopback.check(host, family === 6 ? "ipv6" : "ipv4");
}
