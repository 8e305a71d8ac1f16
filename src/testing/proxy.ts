// A TCP proxy that misbehaves on request. Tests put it between a client and Postgres to see what the client does when
// the network resets, goes silent, refuses, slows down, or loses exactly the answer to a COMMIT.
import { once } from "node:events";
import net from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/**
 * pass          bytes flow
 * refuse        new connections are reset at once; open ones go on
 * silent        open connections stay open and no byte arrives, in either direction
 * deaf          what clients send never reaches the server; its answers still arrive
 * mute          what the server answers never reaches clients; their requests still arrive
 */
export type FaultProxyMode = "pass" | "refuse" | "silent" | "deaf" | "mute";

export interface FaultProxy extends AsyncDisposable {
  /** The target's address with the proxy's host and port in place of its own. */
  url: string;
  port: number;
  /** Bytes withheld by a mode are delivered when the mode ends. */
  mode: FaultProxyMode;
  /** Milliseconds every piece of data is held, each way. */
  latencyMs: number;
  /** How many connections are open now. */
  connections(): number;
  /** How many connections clients have asked for so far, those that were refused among them. */
  asked(): number;
  /** Breaks every open connection with a TCP reset. */
  reset(): void;
  /** The connections that are open now go silent, new ones pass: a firewall has forgotten their flows. */
  freeze(): void;
  /** What was on the way in frozen connections arrives after all, even when whoever sent it has given up. */
  thaw(): void;
  /**
   * Waits for a client's data that matches, lets the server have it, and breaks that connection before the answer
   * gets back: the server has acted, and the client cannot know. Resolves when the server has closed its side too.
   */
  cutAfterServerReceives(matches: (sent: Buffer) => boolean): Promise<void>;
  close(): Promise<void>;
}

interface Cut {
  matches: (sent: Buffer) => boolean;
  done: () => void;
}

interface Pair {
  client: net.Socket;
  server: net.Socket;
}

/** Starts a proxy before `target`, a URL such as postgres://user:password@host:port/database. */
export async function faultProxy(target: string): Promise<FaultProxy> {
  const url = new URL(target);
  const host = url.hostname;
  const targetPort = Number(url.port || 5432);
  const pairs = new Set<Pair>();
  const frozen = new Set<Pair>();
  const cuts = new Set<Cut>();

  let asked = 0;
  const listener = net.createServer((client) => {
    asked += 1;
    client.on("error", () => {});
    if (proxy.mode === "refuse") {
      client.resetAndDestroy();
      return;
    }
    const server = net.connect(targetPort, host);
    const pair = { client, server };
    pairs.add(pair);
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on("error", () => breakPair(pair));
    }
    void pump(client, server, pair, "deaf", (data) => {
      const cut = [...cuts].find((candidate) => candidate.matches(data));
      if (cut) cuts.delete(cut);
      return cut;
    });
    void pump(server, client, pair, "mute");
    client.once("close", () => pairs.delete(pair));
  });

  const breakPair = ({ client, server }: Pair) => {
    client.resetAndDestroy();
    server.destroy();
  };

  /** Moves data one way, a piece at a time, so that a held piece holds everything behind it. */
  async function pump(
    from: net.Socket,
    to: net.Socket,
    pair: Pair,
    stops: FaultProxyMode,
    findCut?: (data: Buffer) => Cut | undefined,
  ): Promise<void> {
    try {
      for await (const data of from as AsyncIterable<Buffer>) {
        if (proxy.latencyMs > 0) await delay(proxy.latencyMs);
        const isHeld = () => proxy.mode === "silent" || proxy.mode === stops;
        while (frozen.has(pair) || (isHeld() && !from.destroyed)) await delay(5);
        const cut = findCut?.(data);
        if (cut) return cutAfter(from, to, data, cut);
        if (!to.destroyed) to.write(data);
      }
      to.end();
    } catch {
      to.destroy();
    }
  }

  /** The server gets the data and an orderly end of input: it acts, answers nobody, and closes. */
  function cutAfter(client: net.Socket, server: net.Socket, data: Buffer, cut: Cut): void {
    server.once("close", cut.done);
    server.end(data);
    client.resetAndDestroy();
  }

  const proxy: FaultProxy = {
    url: "",
    port: 0,
    mode: "pass",
    latencyMs: 0,
    connections: () => pairs.size,
    asked: () => asked,
    reset() {
      for (const pair of pairs) breakPair(pair);
    },
    freeze() {
      for (const pair of pairs) frozen.add(pair);
    },
    thaw: () => frozen.clear(),
    cutAfterServerReceives: (matches) => new Promise((done) => cuts.add({ matches, done })),
    async close() {
      frozen.clear();
      for (const pair of pairs) breakPair(pair);
      listener.close();
      await once(listener, "close");
    },
    [Symbol.asyncDispose]: () => proxy.close(),
  };

  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  proxy.port = (listener.address() as net.AddressInfo).port;
  url.hostname = "127.0.0.1";
  url.port = String(proxy.port);
  proxy.url = url.href;
  return proxy;
}
