// An HTTP proxy on 127.0.0.1 for a program that opens URLs of users itself: it connects only to addresses that the guard allows,
// and relays only a limited number of bytes to the program.
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { type AddressGuard, BlockedAddress } from "stillwake/worker";
import { sendGuarded } from "./guarded-get.ts";

export interface GuardedProxy {
  /** "http://127.0.0.1:4321" */
  url: string;
  /** Whether it has refused an address so far. */
  blocked: boolean;
  /** Whether more than maxBytes were received: its connections were closed, and no further one is made. */
  exceeded: boolean;
  close(): Promise<void>;
}

export interface GuardedProxyOptions {
  /** Received for the program over all its connections. */
  maxBytes: number;
}

export async function startGuardedProxy(guard: AddressGuard, { maxBytes }: GuardedProxyOptions): Promise<GuardedProxy> {
  const sockets = new Set<net.Socket>();
  let received = 0;
  const count = (chunk: Buffer) => {
    received += chunk.length;
    if (received <= maxBytes) return;
    proxy.exceeded = true;
    for (const socket of sockets) socket.destroy();
  };
  const closing = new AbortController();
  const refuse = (error: unknown) => {
    if (error instanceof BlockedAddress) proxy.blocked = true;
    return error instanceof BlockedAddress ? "403 Forbidden" : "502 Bad Gateway";
  };
  const server = http.createServer((request, response) => {
    const fail = (error: unknown) => {
      if (response.headersSent) response.destroy();
      else response.writeHead(Number.parseInt(refuse(error), 10)).end();
    };
    if (proxy.exceeded) return void response.writeHead(403).end();
    relay(request, response, guard, closing.signal, count).catch(fail);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("connect", (request, client: net.Socket, head: Buffer) => {
    client.on("error", () => {});
    const fail = (error: unknown) => void client.end(`HTTP/1.1 ${refuse(error)}\r\n\r\n`);
    if (proxy.exceeded) return void client.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    try {
      const url = new URL(`https://${request.url}`);
      guard.check(url);
      const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
      const remote = net.connect({ host, port: Number(url.port || 443), lookup: guard.lookup(url) });
      client.on("close", () => remote.destroy());
      remote.on("error", fail);
      remote.on("connect", () => {
        try {
          guard.connected(url, remote.remoteAddress);
        } catch (error) {
          remote.destroy();
          fail(error);
          return;
        }
        client.write("HTTP/1.1 200 Connection Established\r\n\r\n");
        remote.write(head);
        remote.on("data", count);
        client.pipe(remote).pipe(client);
      });
    } catch (error) {
      fail(error);
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const proxy: GuardedProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    blocked: false,
    exceeded: false,
    close() {
      closing.abort();
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
  return proxy;
}

/** Reads only: the body of a request is not forwarded. */
async function relay(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  guard: AddressGuard,
  signal: AbortSignal,
  count: (chunk: Buffer) => void,
): Promise<void> {
  const { "proxy-connection": _, "proxy-authorization": __, connection: ___, ...headers } = request.headers;
  const url = new URL(request.url ?? "");
  const method = request.method === "HEAD" ? "HEAD" : "GET";
  const answer = await sendGuarded(url, { guard, signal, method, headers: headers as Record<string, string> });
  response.writeHead(answer.status, answer.headers);
  answer.body.on("error", () => response.destroy());
  response.on("close", () => answer.body.destroy());
  answer.body.on("data", count);
  answer.body.pipe(response);
}
