// The witness outside the database: steps of test pipelines tell it what they do, as an outside system would see it. It keeps the order, refuses
// tokens lower than one it has seen for the same job, and holds gates that a step waits at until the test opens them.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { waitFor } from "../../../src/testing/index.ts";

interface Sight {
  job: string;
  event: "begin" | "effect";
  step?: string;
  attempt?: number;
  epoch: string;
  pid: number;
  token?: string;
  /** performance.now() of the test. */
  at: number;
  /** Its epoch was lower than one seen before for this job. */
  stale: boolean;
}

export interface Witness extends AsyncDisposable {
  url: string;
  sights: Sight[];
  of(job: string): Sight[];
  /** Waits until a sight matches; answers it. */
  see(matches: (sight: Sight) => boolean, options?: { timeout?: number; from?: number }): Promise<Sight>;
  open(gate: string): void;
  close(): Promise<void>;
}

export async function startWitness(): Promise<Witness> {
  const sights: Sight[] = [];
  const newest = new Map<string, bigint>();
  const gates = new Map<string, { open: boolean; waiting: http.ServerResponse[] }>();
  const gate = (name: string) => {
    const found = gates.get(name) ?? { open: false, waiting: [] };
    gates.set(name, found);
    return found;
  };
  const server = http.createServer((request, response) => {
    const name = /^\/gate\/(.+)/.exec(request.url ?? "")?.[1];
    if (name) {
      const { open, waiting } = gate(name);
      if (open) response.end("open");
      else waiting.push(response);
      return;
    }
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      const sight = JSON.parse(body) as Sight;
      const epoch = BigInt(sight.epoch);
      const highest = newest.get(sight.job) ?? 0n;
      sights.push({ ...sight, at: performance.now(), stale: epoch < highest });
      if (epoch > highest) newest.set(sight.job, epoch);
      response.writeHead(epoch < highest ? 409 : 200).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sights,
    of: (job) => sights.filter((sight) => sight.job === job),
    see: (matches, { timeout = 20_000, from = 0 } = {}) =>
      waitFor(() => sights.slice(from).find(matches), { timeout, what: "a sight" }),
    open(name) {
      const found = gate(name);
      found.open = true;
      for (const response of found.waiting.splice(0)) response.end("open");
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
