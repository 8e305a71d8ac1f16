// The small HTTP server of a worker: numbers for Prometheus, health for the platform it runs on, and a way to wake it. Nothing it answers is
// secret, but nothing is protected either, so it stays on this machine unless told otherwise.
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import type { Metrics } from "./metrics.ts";

export interface Health {
  worker: string;
  pool: string;
  active: number;
  slots: number;
  database: "up" | "down";
  push: "ready" | "lost" | "unavailable";
  draining: boolean;
  /** Null before the first heartbeat. */
  lastHeartbeatAgoMs: number | null;
}

export interface WorkerHttpOptions {
  /** 0 takes any free port. */
  port: number;
  host?: string;
  /** Needed to listen where other machines can reach it. */
  allowRemote?: boolean;
  metrics: Pick<Metrics, "text" | "contentType">;
  health: () => Health;
  /** Makes the worker look for jobs now. */
  wake: () => void;
}

export interface WorkerHttp {
  readonly url: string;
  close(): Promise<void>;
}

/** A wake needs no body at all; what is sent is read and forgotten up to here, so that a connection can be used again. */
const MAX_BODY_BYTES = 16 * 1024;

export async function serveWorker(options: WorkerHttpOptions): Promise<WorkerHttp> {
  const { port, host = "127.0.0.1", allowRemote = false } = options;
  if (!allowRemote && !isLoopback(host)) {
    throw new InvalidInput(`The worker's HTTP server would listen on ${host}, where other machines can reach it`, {
      field: "host",
      remedy: "Use 127.0.0.1, or set allowRemote: true where a firewall or a private network protects it",
    });
  }
  const routes = routesOf(options);
  const server = http.createServer((request, response) => void answer(routes, request, response));
  server.requestTimeout = 10_000;
  await listen(server, port, host);
  const { address, family, port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${family === "IPv6" ? `[${address}]` : address}:${taken}`,
    close: () => close(server),
  };
}

interface Reply {
  status: number;
  /** Without one the body is a line of text. */
  type?: string;
  body: string;
}

type Routes = Record<
  string,
  { method: "GET" | "POST"; reply: (request: http.IncomingMessage) => Reply | Promise<Reply> }
>;

function routesOf({ metrics, health, wake }: WorkerHttpOptions): Routes {
  return {
    "/live": { method: "GET", reply: () => ({ status: 200, body: "live" }) },
    "/health": { method: "GET", reply: () => healthReply(health()) },
    "/metrics": {
      method: "GET",
      reply: async () => ({ status: 200, type: metrics.contentType, body: await metrics.text() }),
    },
    "/wake": {
      method: "POST",
      reply: (request) => {
        if (isFromAnotherSite(request)) return { status: 403, body: "a page of another site may not wake this worker" };
        wake();
        return { status: 202, body: "awake" };
      },
    },
  };
}

/** 503 says that this worker takes no jobs now. Whether to restart it is what /live is for. */
function healthReply({ worker, pool, active, slots, database, push, draining, lastHeartbeatAgoMs }: Health): Reply {
  const status = database === "down" ? "database down" : draining ? "draining" : "ok";
  const facts = { status, worker, pool, active, slots, database, push, draining, lastHeartbeatAgoMs };
  return { status: status === "ok" ? 200 : 503, type: "application/json", body: JSON.stringify(facts) };
}

async function answer(routes: Routes, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
  const path = (request.url ?? "").split("?", 1)[0]!;
  const route = routes[path];
  const method = request.method === "HEAD" ? "GET" : request.method;
  if (Number(request.headers["content-length"]) > MAX_BODY_BYTES) {
    response.setHeader("connection", "close");
    return send(response, {
      status: 413,
      body: `a body may have ${MAX_BODY_BYTES} bytes at most, and none is needed`,
    });
  }
  forgetBody(request);
  if (!route) return send(response, { status: 404, body: `nothing here; try ${Object.keys(routes).join(", ")}` });
  if (route.method !== method) {
    response.setHeader("allow", route.method === "GET" ? "GET, HEAD" : route.method);
    return send(response, { status: 405, body: `${path} answers ${route.method} only` });
  }
  try {
    send(response, await route.reply(request));
  } catch {
    // What went wrong may name a host or a user; the worker's own log has it.
    send(response, { status: 500, body: "this failed inside the worker" });
  }
}

function send(response: http.ServerResponse, { status, type, body }: Reply): void {
  response.writeHead(status, {
    "content-type": type ?? "text/plain; charset=utf-8",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  response.end(type ? body : `${body}\n`);
}

function forgetBody(request: http.IncomingMessage): void {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) request.destroy();
  });
  request.on("error", () => {});
}

/** Browsers say where a request comes from; programs say nothing. */
function isFromAnotherSite({ headers }: http.IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none") return true;
  return headers.origin !== undefined && headers.origin !== `http://${headers.host}`;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (net.isIPv4(host) && host.startsWith("127."));
}

function listen(server: http.Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    // Stays after listening has begun: running out of file descriptors is an error of the server, and no reason to end the worker.
    server.on("error", (cause: NodeJS.ErrnoException) => {
      const remedy = cause.code === "EADDRINUSE" ? "Choose another port, or 0 for any free one" : "Check host and port";
      reject(
        new StillwakeError("HTTP_UNAVAILABLE", `The worker cannot listen on ${host}:${port}: ${cause.message}`, {
          cause,
          remedy,
        }),
      );
    });
    server.listen(port, host, resolve);
  });
}

function close(server: http.Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
