// The HTTP server of a worker: metrics for Prometheus, health for the platform, and a way to trigger a claim. It has no
// authentication, so it listens on the loopback interface unless allowRemote is set.
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import type { Metrics } from "./metrics.ts";

export interface Health {
  worker: string;
  pools: readonly string[];
  active: number;
  slots: number;
  database: "up" | "down";
  hints: "ready" | "lost" | "unavailable";
  draining: boolean;
  /** Finished jobs whose end Postgres rejects in every form, such as by a trigger of the application; they are retried. */
  rejectedSettlements: number;
  /** Null before the first heartbeat. */
  lastHeartbeatAgoMs: number | null;
}

export interface WorkerHttpOptions {
  /** 0 selects any free port. */
  port: number;
  host?: string;
  /** Required to listen on an address that other machines can reach. */
  allowRemote?: boolean;
  metrics: Pick<Metrics, "text" | "contentType">;
  health: () => Health;
  /** Makes the worker claim now. */
  wake: () => void;
}

export interface WorkerHttp {
  readonly url: string;
  close(): Promise<void>;
}

/** No route needs a body. A body up to this size is read and discarded, so that the connection can be reused. */
const MAX_BODY_BYTES = 16 * 1024;

export async function serveWorker(options: WorkerHttpOptions): Promise<WorkerHttp> {
  const { port, host = "127.0.0.1", allowRemote = false } = options;
  if (!allowRemote && !isLoopback(host)) {
    throw new InvalidInput(`The worker's HTTP server would listen on ${host}, where other machines can reach it`, {
      field: "host",
      remedy: "Use 127.0.0.1, or set allowRemote: true where a firewall or a private network protects it",
    });
  }
  const routes = createRoutes(options);
  const server = http.createServer((request, response) => void handle(routes, request, response));
  server.requestTimeout = 10_000;
  await listen(server, port, host);
  const { address, family, port: boundPort } = server.address() as AddressInfo;
  return {
    url: `http://${family === "IPv6" ? `[${address}]` : address}:${boundPort}`,
    close: () => close(server),
  };
}

interface Reply {
  status: number;
  /** Default: a line of plain text. */
  type?: string;
  body: string;
}

type Routes = Record<
  string,
  { method: "GET" | "POST"; reply: (request: http.IncomingMessage) => Reply | Promise<Reply> }
>;

function createRoutes({ metrics, health, wake }: WorkerHttpOptions): Routes {
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
        if (isCrossSite(request)) return { status: 403, body: "cross-site requests are not allowed" };
        wake();
        return { status: 202, body: "awake" };
      },
    },
  };
}

/** 503 means that this worker claims no jobs now. Use /live to decide about a restart. */
function healthReply(health: Health): Reply {
  const { worker, pools, active, slots, database, hints, draining, rejectedSettlements, lastHeartbeatAgoMs } = health;
  const status = database === "down" ? "database down" : draining ? "draining" : "ok";
  const counts = { active, slots, rejectedSettlements, lastHeartbeatAgoMs };
  const body = { status, worker, pools, database, hints, draining, ...counts };
  return { status: status === "ok" ? 200 : 503, type: "application/json", body: JSON.stringify(body) };
}

async function handle(routes: Routes, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
  const path = (request.url ?? "").split("?", 1)[0]!;
  const route = routes[path];
  const method = request.method === "HEAD" ? "GET" : request.method;
  if (Number(request.headers["content-length"]) > MAX_BODY_BYTES) {
    response.setHeader("connection", "close");
    return send(response, {
      status: 413,
      body: `the body exceeds ${MAX_BODY_BYTES} bytes; no body is needed`,
    });
  }
  discardBody(request);
  if (!route)
    return send(response, { status: 404, body: `not found; the paths are ${Object.keys(routes).join(", ")}` });
  if (route.method !== method) {
    response.setHeader("allow", route.method === "GET" ? "GET, HEAD" : route.method);
    return send(response, { status: 405, body: `${path} accepts ${route.method} only` });
  }
  try {
    send(response, await route.reply(request));
  } catch {
    // The error may name a host or a user, so its text is not sent.
    send(response, { status: 500, body: "internal error of the worker" });
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

function discardBody(request: http.IncomingMessage): void {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) request.destroy();
  });
  request.on("error", () => {});
}

/** Browsers send these headers; other clients do not. */
function isCrossSite({ headers }: http.IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none") return true;
  return headers.origin !== undefined && headers.origin !== `http://${headers.host}`;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (net.isIPv4(host) && host.startsWith("127."));
}

function listen(server: http.Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    // Stays attached after the start: running out of file descriptors is a server error and must not crash the worker.
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
