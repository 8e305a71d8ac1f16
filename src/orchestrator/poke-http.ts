// The small HTTP server of an orchestrator that is a process of its own: POST /v1/poke, as at a Stillwake server, and GET /health for the platform it runs on.
// A poke costs a look at the database, so beyond this machine it wants a token.
import { createHash, timingSafeEqual } from "node:crypto";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { InvalidInput, StillwakeError } from "../errors.ts";

export interface PokeHttpOptions {
  /** 0 takes any free port. */
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
  if (token === undefined && !isOwn(host)) {
    throw new InvalidInput(`The orchestrator would listen on ${host}, where others can reach it`, {
      field: "host",
      remedy: "Set STILLWAKE_TOKEN, which those who poke it send along, or listen on 127.0.0.1",
    });
  }
  const server = http.createServer((request, response) => {
    request.resume();
    const answer = (status: number, body: object) => {
      response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" });
      response.end(`${JSON.stringify(body)}\n`);
    };
    const path = request.url?.split("?")[0];
    if (path === "/health" && request.method === "GET") return answer(200, health());
    if (path !== "/v1/poke" && path !== "/poke")
      return answer(404, { code: "NOT_FOUND", remedy: "POST /v1/poke, GET /health" });
    if (request.method !== "POST") return answer(405, { code: "METHOD_NOT_ALLOWED", remedy: "POST it" });
    if (token !== undefined && !same(request.headers.authorization, `Bearer ${token}`))
      return answer(401, { code: "UNAUTHORIZED", remedy: "Send Authorization: Bearer <STILLWAKE_TOKEN>" });
    poke();
    return answer(202, { poked: true });
  });
  server.requestTimeout = 10_000;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(
        new StillwakeError("LISTEN_FAILED", `Cannot listen on ${host}:${port}: ${cause.message}`, {
          cause,
          remedy: "Give another --port",
        }),
      ),
    );
    server.listen(port, host, resolve);
  });
  const { address, family, port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${family === "IPv6" ? `[${address}]` : address}:${taken}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function isOwn(host: string): boolean {
  return host === "localhost" || host === "::1" || (net.isIPv4(host) && host.startsWith("127."));
}

function same(given: string | undefined, wanted: string): boolean {
  const hash = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(given ?? ""), hash(wanted));
}
