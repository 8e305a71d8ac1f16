// The HTTP server of a worker, over real sockets.
import { EventEmitter, once } from "node:events";
import net from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { createWorkerEvents } from "../../../src/worker/observe/events.ts";
import { type Health, serveWorker, type WorkerHttp, type WorkerHttpOptions } from "../../../src/worker/observe/http.ts";
import { createMetrics } from "../../../src/worker/observe/metrics.ts";

const healthy: Health = {
  worker: "w1",
  pools: ["gpu"],
  active: 2,
  slots: 4,
  database: "up",
  hints: "ready",
  draining: false,
  rejectedSettlements: 0,
  lastHeartbeatAgoMs: 1200,
};
const metrics = createMetrics(createWorkerEvents(), { labels: { pool: "gpu", worker: "w1" } });
const open: WorkerHttp[] = [];
let wakes = 0;

afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
  wakes = 0;
});

describe("reading", () => {
  it("/metrics returns the Prometheus text format", async () => {
    const response = await fetch(`${(await serve()).url}/metrics`);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(await response.text()).toContain('worker_heartbeats_total{pool="gpu",worker="w1"} 0');
  });

  it("/health returns the worker's state and no other fields", async () => {
    const { url } = await serve({ health: () => ({ ...healthy, databaseUrl: "postgres://u:secret@h" }) as Health });
    const response = await fetch(`${url}/health?verbose=1`);
    expect(response.status).toBe(200);
    expect(response.headers.get("cache-control")).toBe("no-store");
    expect(await response.json()).toEqual({ status: "ok", ...healthy });
  });

  it.each<[string, Partial<Health>]>([
    ["database down", { database: "down", draining: true }],
    ["draining", { draining: true }],
  ])(
    "/health is 503 with the status %s while the worker claims no jobs, and /live stays 200",
    async (status, facts) => {
      const { url } = await serve({ health: () => ({ ...healthy, ...facts }) });
      const response = await fetch(`${url}/health`);
      expect(response.status).toBe(503);
      expect(await response.json()).toMatchObject({ status, ...facts });
      expect((await fetch(`${url}/live`)).status).toBe(200);
    },
  );

  it("lost hints are reported, and the worker stays healthy", async () => {
    const { url } = await serve({ health: () => ({ ...healthy, hints: "lost", lastHeartbeatAgoMs: null }) });
    const response = await fetch(`${url}/health`);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ status: "ok", hints: "lost", lastHeartbeatAgoMs: null });
  });

  it("HEAD works like GET, without the body", async () => {
    const response = await fetch(`${(await serve()).url}/health`, { method: "HEAD" });
    expect([response.status, await response.text()]).toEqual([200, ""]);
  });

  it("an internal error does not reveal its message", async () => {
    const fail = () => {
      throw new Error("postgres://user:secret@host");
    };
    const { url } = await serve({ health: fail, metrics: { contentType: "text/plain", text: async () => fail() } });
    for (const path of ["/health", "/metrics"]) {
      const response = await fetch(url + path);
      expect(response.status).toBe(500);
      expect(await response.text()).not.toMatch(/secret|host/);
    }
  });
});

describe("POST /wake", () => {
  it("wakes the worker, with or without a body", async () => {
    const { url } = await serve();
    expect((await fetch(`${url}/wake`, { method: "POST" })).status).toBe(202);
    expect((await fetch(`${url}/wake`, { method: "POST", body: "{}" })).status).toBe(202);
    expect(wakes).toBe(2);
  });

  it("rejects cross-site pages, and accepts direct and same-origin requests", async () => {
    const { url } = await serve();
    const status = async (headers: Record<string, string>) => {
      const { hostname, port } = new URL(url);
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      return exchange(
        url,
        `POST /wake HTTP/1.1\r\nhost: ${hostname}:${port}\r\n${lines.join("")}connection: close\r\n\r\n`,
      );
    };
    expect(await status({ "sec-fetch-site": "cross-site" })).toMatch(/^HTTP\/1.1 403/);
    expect(await status({ "sec-fetch-site": "same-site" })).toMatch(/^HTTP\/1.1 403/);
    expect(await status({ origin: "https://evil.example" })).toMatch(/^HTTP\/1.1 403/);
    expect(wakes).toBe(0);
    expect(await status({ "sec-fetch-site": "none" })).toMatch(/^HTTP\/1.1 202/);
    expect(await status({ "sec-fetch-site": "same-origin", origin: url })).toMatch(/^HTTP\/1.1 202/);
    expect(wakes).toBe(2);
  });

  it("rejects a body with a too large content-length before reading it", async () => {
    const { url } = await serve();
    const answer = await exchange(url, "POST /wake HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n");
    expect(answer).toMatch(/^HTTP\/1.1 413.*connection: close/is);
    expect(wakes).toBe(0);
  });

  it("closes the connection of an endless body", async () => {
    const { url } = await serve();
    const socket = net.connect(Number(new URL(url).port), "127.0.0.1");
    socket.on("error", () => {});
    const closed = once(socket, "close");
    socket.resume();
    socket.write("POST /wake HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    const chunk = `400\r\n${"x".repeat(1024)}\r\n`;
    const more = () => void (socket.writable && socket.write(chunk, () => setImmediate(more)));
    more();
    await closed;
  });
});

describe("the server", () => {
  it("returns 404 for unknown paths, and 405 with the allowed method", async () => {
    const { url } = await serve();
    const answers = [
      await fetch(`${url}/`),
      await fetch(`${url}/wake`),
      await fetch(`${url}/metrics`, { method: "POST" }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 405, 405]);
    expect(answers.map(({ headers }) => headers.get("allow"))).toEqual([null, "POST", "GET, HEAD"]);
    expect(answers.map(({ headers }) => headers.get("content-type"))).toEqual(
      Array(3).fill("text/plain; charset=utf-8"),
    );
    expect(wakes).toBe(0);
  });

  it.each(["0.0.0.0", "::", "192.168.0.4", "example.com", "127.evil.example"])(
    "does not listen on %s without allowRemote",
    async (host) => {
      await expect(serve({ host })).rejects.toThrow(new RegExp(`${host}.*allowRemote: true`));
    },
  );

  it("listens on other interfaces with allowRemote", async () => {
    const { url } = await serve({ host: "0.0.0.0", allowRemote: true });
    expect((await fetch(url.replace("0.0.0.0", "127.0.0.1").concat("/live"))).status).toBe(200);
  });

  it("reports a port that is in use", async () => {
    const { url } = await serve();
    const port = Number(new URL(url).port);
    await expect(serve({ port })).rejects.toMatchObject({
      code: "HTTP_UNAVAILABLE",
      message: expect.stringMatching(new RegExp(`127\\.0\\.0\\.1:${port}.*another port`)),
    });
  });

  it("closes at once, even during a hanging response, and can be closed twice", async () => {
    const asked = new EventEmitter();
    const text = () => {
      asked.emit("asked");
      return new Promise<string>(() => {});
    };
    const beingAsked = once(asked, "asked");
    const server = await serve({ metrics: { contentType: "text/plain", text } });
    const answer = expect(fetch(`${server.url}/metrics`)).rejects.toThrow();
    await beingAsked;
    await server.close();
    await answer;
    await server.close();
    await expect(fetch(`${server.url}/live`)).rejects.toThrow();
  });
});

async function serve(options: Partial<WorkerHttpOptions> = {}): Promise<WorkerHttp> {
  const server = await serveWorker({
    port: 0,
    metrics,
    health: () => healthy,
    wake: () => {
      wakes++;
    },
    ...options,
  });
  open.push(server);
  return server;
}

/** The response to exactly these bytes. */
async function exchange(url: string, bytes: string): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), "127.0.0.1");
  let answer = "";
  socket.setEncoding("utf8").on("data", (text) => {
    answer += text;
  });
  socket.write(bytes);
  await once(socket, "close");
  return answer;
}
