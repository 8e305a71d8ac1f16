// A TCP proxy with injectable faults. Tests put it between a client and Postgres to reset, silence, refuse or slow down
// connections, or to lose exactly the response to a COMMIT.
import { once } from "node:events";
import net from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/**
 * pass          bytes flow
 * refuse        new connections are reset at once; open ones continue
 * silent        open connections stay open and no byte arrives, in either direction
 * deaf          data of clients never reaches the server; its responses still arrive
 * mute          responses of the server never reach clients; their requests still arrive
 */
export type FaultProxyMode = "pass" | "refuse" | "silent" | "deaf" | "mute";

export interface FaultProxy extends AsyncDisposable {
  /** The target's URL with the proxy's host and port. */
  url: string;
  port: number;
  /** The URL of the server that new connections reach; set it to another one to test a failover. */
  target: string;
  /** Bytes withheld by a mode are delivered when the mode ends. */
  mode: FaultProxyMode;
  /** Milliseconds that every chunk is delayed, in each direction. */
  latencyMs: number;
  /** The number of open connections. */
  connections(): number;
  /** The number of connections that clients have opened so far, including refused ones. */
  asked(): number;
  /** Closes every open connection with a TCP reset. */
  reset(): void;
  /** Silences the open connections; new ones pass. As when a firewall has dropped the state of its flows. */
  freeze(): void;
  /** Delivers the withheld data of frozen connections, even if their sender has closed them. */
  thaw(): void;
  /**
   * Waits for matching data of a client, forwards it to the server, and resets the client's connection before the
   * response: the server has acted, and the client cannot know. Resolves when the server has closed its side too.
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

/** Starts a proxy in front of `target`, a URL such as postgres://user:password@host:port/database. */
export async function faultProxy(target: string): Promise<FaultProxy> {
  const url = new URL(target);
  const pairs = new Set<Pair>();
  const frozen = new Set<Pair>();
  const cuts = new Set<Cut>();

  let opened = 0;
  const listener = net.createServer((client) => {
    opened += 1;
    client.on("error", () => {});
    if (proxy.mode === "refuse") {
      client.resetAndDestroy();
      return;
    }
    const { hostname, port } = new URL(proxy.target);
    const server = net.connect(Number(port || 5432), hostname);
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

  /** Forwards data in one direction, chunk by chunk, so that a withheld chunk withholds everything after it. */
  async function pump(
    from: net.Socket,
    to: net.Socket,
    pair: Pair,
    blockedBy: FaultProxyMode,
    findCut?: (data: Buffer) => Cut | undefined,
  ): Promise<void> {
    try {
      for await (const data of from as AsyncIterable<Buffer>) {
        if (proxy.latencyMs > 0) await delay(proxy.latencyMs);
        const isBlocked = () => proxy.mode === "silent" || proxy.mode === blockedBy;
        while (frozen.has(pair) || (isBlocked() && !from.destroyed)) await delay(5);
        const cut = findCut?.(data);
        if (cut) return cutAfter(from, to, data, cut);
        if (!to.destroyed) to.write(data);
      }
      to.end();
    } catch {
      to.destroy();
    }
  }

  /** Sends the data and the end of input to the server: it acts, its response is lost, and it closes. */
  function cutAfter(client: net.Socket, server: net.Socket, data: Buffer, cut: Cut): void {
    server.once("close", cut.done);
    server.end(data);
    client.resetAndDestroy();
  }

  const proxy: FaultProxy = {
    url: "",
    port: 0,
    target,
    mode: "pass",
    latencyMs: 0,
    connections: () => pairs.size,
    asked: () => opened,
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
