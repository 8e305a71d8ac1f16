// The proxy for programs that open URLs of users: limited in bytes, over requests and tunnels.
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { addressGuard } from "stillwake/worker";
import { afterAll, expect, it } from "vitest";
import { startGuardedProxy } from "../src/http/guarded-proxy.ts";

const CHUNK = Buffer.alloc(10_000, "a");
const server = http.createServer((_, response) => response.end(CHUNK));
await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
const port = (server.address() as AddressInfo).port;
afterAll(() => void server.close());
const guard = addressGuard({ allowHttp: true, allow: ["127.0.0.1/32 *"] });

function get(proxy: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const { hostname, port: proxyPort } = new URL(proxy);
    const request = http.get(
      { hostname, port: proxyPort, path: `http://127.0.0.1:${port}/`, agent: false },
      (response) => {
        text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }), reject);
      },
    );
    request.on("error", reject);
  });
}

/** What a tunnel to the server receives until it is closed. */
function tunnel(proxy: string): Promise<string> {
  const { hostname, port: proxyPort } = new URL(proxy);
  const socket = net.connect(Number(proxyPort), hostname);
  socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`);
  socket.once("data", () => socket.write("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
  return text(socket).catch(() => "closed");
}

it("relays up to its limit over all connections, then closes them and makes no further one", async () => {
  const proxy = await startGuardedProxy(guard, { maxBytes: 25_000 });
  try {
    expect((await get(proxy.url)).body).toHaveLength(CHUNK.length);
    expect((await get(proxy.url)).body).toHaveLength(CHUNK.length);
    expect(proxy.exceeded).toBe(false);
    await expect(get(proxy.url)).rejects.toThrow();
    expect(proxy.exceeded).toBe(true);
    expect(await get(proxy.url)).toMatchObject({ status: 403 });
  } finally {
    await proxy.close();
  }
});

it("limits tunnels as well", async () => {
  const proxy = await startGuardedProxy(guard, { maxBytes: 15_000 });
  try {
    expect(await tunnel(proxy.url)).toContain(CHUNK.toString());
    expect(proxy.exceeded).toBe(false);
    expect(await tunnel(proxy.url)).not.toContain(CHUNK.toString());
    expect(proxy.exceeded).toBe(true);
    expect(await tunnel(proxy.url)).toMatch(/^HTTP\/1.1 403 /);
  } finally {
    await proxy.close();
  }
});
