// Streams for tests: a small server around streamJob(), a proxy that resets connections after N bytes, and a client
// that reconnects like an EventSource.
import { fork } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import path from "node:path";
import { serve } from "@hono/node-server";
import { onTestFinished } from "vitest";
import { StillwakeError } from "../../../src/errors.ts";
import { type StreamOptions, streamJob } from "../../../src/server/stream.ts";
import { ROOT } from "../processes/build.ts";

/** Serves /<job id> with ?after= and Last-Event-ID. Returns its URL. */
export async function serveStreams(options: Omit<StreamOptions, "id" | "lastEventId" | "after">): Promise<string> {
  const fetch = async (request: Request, env: unknown): Promise<Response> => {
    const url = new URL(request.url);
    const { outgoing } = env as { outgoing: { destroy(): void } };
    try {
      return await streamJob({
        destroyConnection: () => outgoing.destroy(),
        ...options,
        id: url.pathname.slice(1),
        lastEventId: request.headers.get("last-event-id"),
        after: url.searchParams.get("after"),
        signal: request.signal,
      });
    } catch (error) {
      if (!(error instanceof StillwakeError)) throw error;
      return Response.json(
        { code: error.code, detail: error.message },
        { status: error.code === "JOB_NOT_FOUND" ? 404 : 400 },
      );
    }
  };
  const port = await new Promise<number>((resolve) => {
    const server = serve({ fetch, port: 0, hostname: "127.0.0.1" }, (address) => resolve(address.port));
    onTestFinished(() => {
      (server as unknown as { closeAllConnections(): void }).closeAllConnections();
      server.close();
    });
  });
  return `http://127.0.0.1:${port}`;
}

export interface ServerMemory {
  rss: number;
  heapUsed: number;
  external: number;
  jobs: number;
  followers: number;
}

/** The same in a separate process, from the built package. */
export async function streamServer(url: string): Promise<{ port: number; memory(): Promise<ServerMemory> }> {
  const child = fork(path.join(ROOT, "test/fixtures/stream-server.mjs"), [url], { execArgv: ["--expose-gc"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [{ port }] = (await once(child, "message")) as [{ port: number }];
  return {
    port,
    async memory() {
      child.send({ ask: "memory" });
      return ((await once(child, "message")) as [ServerMemory])[0];
    },
  };
}

export interface CuttingProxy {
  url: string;
  /** The number of reset connections, by client port. */
  cuts(): number;
  /** Resets no more connections. */
  spare(): void;
}

/** Resets every connection after `budget` bytes of the response, at any position. */
export async function cuttingProxy(target: string, budget: () => number): Promise<CuttingProxy> {
  const { port, hostname } = new URL(target);
  const open = new Set<net.Socket>();
  let cuts = 0;
  let sparing = false;
  const listener = net.createServer((client) => {
    const server = net.connect(Number(port), hostname);
    let left = sparing ? Number.POSITIVE_INFINITY : budget();
    open.add(client);
    for (const socket of [client, server]) socket.setNoDelay(true).on("error", () => {});
    client.pipe(server);
    server.on("data", (data: Buffer) => {
      if (client.destroyed) return;
      if (sparing || data.length < left) {
        left -= data.length;
        if (!client.write(data)) {
          server.pause();
          client.once("drain", () => server.resume());
        }
        return;
      }
      cuts += 1;
      // The allowed bytes arrive first.
      client.write(data.subarray(0, left), () => client.destroy());
      server.destroy();
    });
    server.on("close", () => client.end());
    client.on("close", () => {
      open.delete(client);
      server.destroy();
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    listener.close();
  });
  return {
    url: `http://127.0.0.1:${(listener.address() as net.AddressInfo).port}`,
    cuts: () => cuts,
    spare: () => {
      sparing = true;
    },
  };
}

export interface StreamEvent {
  id: string;
  event: string;
  data: { seq: string; message: string; kind: string; state: string; output: unknown };
}

/** Parses complete events of a text stream. */
export function parser(onEvent: (event: StreamEvent) => void): (text: string) => void {
  let rest = "";
  return (text) => {
    rest += text;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const received: Record<string, string> = { id: "", event: "", data: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) received[line.slice(0, colon)] = line.slice(colon + 2);
      }
      rest = rest.slice(end + 2);
      if (received.event) onEvent({ id: received.id!, event: received.event, data: JSON.parse(received.data!) });
    }
  };
}

/** Follows to the end with fetch, reconnecting with the last id. Returns how it ended. */
export async function fetchStream(url: string, onEvent: (event: StreamEvent) => void, lastId = ""): Promise<void> {
  for (let last = lastId, ended = false; !ended; ) {
    try {
      const response = await fetch(url, { headers: last ? { "last-event-id": last } : {} });
      if (response.status !== 200)
        throw Object.assign(new Error(`Answered ${response.status}`), { status: response.status });
      const decoder = new TextDecoder();
      const parse = parser((received) => {
        if (received.id) last = received.id;
        ended = received.event === "end";
        onEvent(received);
      });
      for await (const chunk of response.body!) parse(decoder.decode(chunk, { stream: true }));
    } catch (error) {
      if ((error as { status?: number }).status) throw error;
    }
  }
}
