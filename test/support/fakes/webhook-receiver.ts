// An HTTP server that receives webhooks, records them, and responds as the test configures.
import { once } from "node:events";
import http from "node:http";
import type net from "node:net";
import { onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";

export interface Received {
  id: string;
  path: string;
  headers: Record<string, string>;
  body: string;
  /** performance.now() */
  at: number;
}

type Respond = (request: Received, response: http.ServerResponse) => void;

export interface Receiver {
  url: string;
  port: number;
  received: Received[];
  /** How it responds from now on. Default: 204. */
  respond: Respond;
  /** Waits until this number of requests arrived, optionally of a kind. */
  gets(count: number, which?: (one: Received) => boolean): Promise<Received[]>;
  /** The number of opened connections. */
  connections(): number;
  close(): Promise<void>;
}

export async function startReceiver(respond: Respond = respondWith(204), keep = false): Promise<Receiver> {
  let connections = 0;
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (data) => (body += data));
    request.on("end", () => {
      const headers = request.headers as Record<string, string>;
      const one = {
        id: headers["webhook-id"] ?? "",
        path: request.url ?? "",
        headers,
        body,
        at: performance.now(),
      };
      receiver.received.push(one);
      receiver.respond(one, response);
    });
    request.on("error", () => {});
  });
  server.on("connection", () => (connections += 1));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}`,
    port,
    received: [],
    respond,
    gets: (count, which = () => true) =>
      waitFor(
        () => {
          const found = receiver.received.filter(which);
          return found.length >= count && found;
        },
        { timeout: 20_000, what: `${count} webhooks to come in` },
      ),
    connections: () => connections,
    async close() {
      server.closeAllConnections();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
  if (!keep) onTestFinished(() => receiver.close());
  return receiver;
}

export function respondWith(code: number, headers: Record<string, string> = {}, body = ""): Respond {
  return (_, response) => void response.writeHead(code, headers).end(body);
}

/** Sender options for tests: receivers run on this machine with plain http, and no host name resolves. */
export const ALLOW_LOCALHOST = {
  allowHttp: true,
  allow: ["127.0.0.0/8 *"],
  resolve: () => Promise.reject(new Error("No names here")),
};
