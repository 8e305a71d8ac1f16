// Clients and servers of streams, for tests: a small server around streamJob(), a proxy that cuts after so many bytes, a client that comes back as an
// EventSource would.
import { fork } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import path from "node:path";
import { serve } from "@hono/node-server";
import { onTestFinished } from "vitest";
import { StillwakeError } from "../../../src/errors.ts";
import { type StreamOptions, streamJob } from "../../../src/server/stream.ts";
import { ROOT } from "../processes/build.ts";

/** Serves /<job id>; ?after= and Last-Event-ID as the real one. Answers its URL. */
export async function serveStreams(options: Omit<StreamOptions, "id" | "lastEventId" | "after">): Promise<string> {
  const fetch = async (request: Request, env: unknown): Promise<Response> => {
    const url = new URL(request.url);
    const { outgoing } = env as { outgoing: { destroy(): void } };
    try {
      return await streamJob({
        drop: () => outgoing.destroy(),
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

/** The same in a process of its own, from the built package. */
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
  /** How many connections were cut, by the port their client had. */
  cuts(): number;
  /** From now on everything passes. */
  spare(): void;
}

/** Every connection is reset after as many bytes of the answer as `budget` says, in the middle of whatever it is. */
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
      // What was allowed arrives first.
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

export interface Told {
  id: string;
  event: string;
  data: { seq: string; message: string; kind: string; state: string; output: unknown };
}

/** Events of a stream of text, as they are complete. */
export function parser(onEvent: (told: Told) => void): (text: string) => void {
  let rest = "";
  return (text) => {
    rest += text;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const told: Record<string, string> = { id: "", event: "", data: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) told[line.slice(0, colon)] = line.slice(colon + 2);
      }
      rest = rest.slice(end + 2);
      if (told.event) onEvent({ id: told.id!, event: told.event, data: JSON.parse(told.data!) });
    }
  };
}

/** Follows until the end, with a plain fetch, coming back with the last id whenever it was cut. Answers how it ended. */
export async function fetchStream(url: string, onEvent: (told: Told) => void, lastId = ""): Promise<void> {
  for (let last = lastId, ended = false; !ended; ) {
    try {
      const response = await fetch(url, { headers: last ? { "last-event-id": last } : {} });
      if (response.status !== 200)
        throw Object.assign(new Error(`Answered ${response.status}`), { status: response.status });
      const decoder = new TextDecoder();
      const parse = parser((told) => {
        if (told.id) last = told.id;
        ended = told.event === "end";
        onEvent(told);
      });
      for await (const chunk of response.body!) parse(decoder.decode(chunk, { stream: true }));
    } catch (error) {
      if ((error as { status?: number }).status) throw error;
    }
  }
}
