// The HTTP server of `stillwake orchestrator`: POST /v1/poke, as on a Stillwake server, and GET /health for the
// platform. A poke costs a database query, so any address but loopback requires a token.
import { createHash, timingSafeEqual } from "node:crypto";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { InvalidInput, StillwakeError } from "../errors.ts";

export interface PokeHttpOptions {
  /** 0 selects a free port. */
  port: number;
  host?: string;
  token?: string | undefined;
  poke(): void;
  health(): object;
}

export interface PokeHttp {
  readonly url: string;
  close(): Promise<void>;
}

export async function servePokes({
  port,
  host = "127.0.0.1",
  token,
  poke,
  health,
}: PokeHttpOptions): Promise<PokeHttp> {
  if (token === undefined && !isLoopback(host)) {
    throw new InvalidInput(`Listening on ${host} requires a token, because other hosts can reach it`, {
      field: "host",
      remedy: "Set STILLWAKE_TOKEN, which clients send with each poke, or listen on 127.0.0.1",
    });
  }
  const server = http.createServer((request, response) => {
    request.resume();
    const respond = (status: number, body: object) => {
      response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" });
      response.end(`${JSON.stringify(body)}\n`);
    };
    const path = request.url?.split("?")[0];
    if (path === "/health" && request.method === "GET") return respond(200, health());
    if (path !== "/v1/poke" && path !== "/poke")
      return respond(404, { code: "NOT_FOUND", remedy: "POST /v1/poke, GET /health" });
    if (request.method !== "POST") return respond(405, { code: "METHOD_NOT_ALLOWED", remedy: "Use POST" });
    if (token !== undefined && !isEqual(request.headers.authorization, `Bearer ${token}`))
      return respond(401, { code: "UNAUTHORIZED", remedy: "Send Authorization: Bearer <STILLWAKE_TOKEN>" });
    poke();
    return respond(202, { poked: true });
  });
  server.requestTimeout = 10_000;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(
        new StillwakeError("LISTEN_FAILED", `Cannot listen on ${host}:${port}: ${cause.message}`, {
          cause,
          remedy: "Choose another --port",
        }),
      ),
    );
    server.listen(port, host, resolve);
  });
  const { address, family, port: boundPort } = server.address() as AddressInfo;
  return {
    url: `http://${family === "IPv6" ? `[${address}]` : address}:${boundPort}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (net.isIPv4(host) && host.startsWith("127."));
}

function isEqual(value: string | undefined, expected: string): boolean {
  const hash = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(value ?? ""), hash(expected));
}
